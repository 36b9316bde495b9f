"""Termini that nobody comes back for, and who has to know that they are over (protocol 8, Expiry and Partition)."""

import pytest

from linkstate.clock import COUNTER_BITS
from tests.topic.bench import FORGETFUL, LASTING, SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import Pen, key_of
from topic.actions import EXPIRED, Detach
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Lifetime, Role, Status
from topic.identity import NOWHERE, Epoch


def status(bench: Bench, router: str, name: bytes) -> Status | None:
    """Of a link as that router has it."""
    return next((entry.status for entry in bench.cores[router].directory.entries() if entry.name == name), None)


def agrees(bench: Bench, router: str, name: bytes) -> None:
    """To what a proposes; the decision is on its way."""
    bench.hold("a", router)
    bench.wait(62)
    while status(bench, router, name) is not Status.BOUND:
        bench.step("a", router)


def orphaned(home: str) -> tuple[Bench, Pen]:
    """c has died with its subscriber, for whom what a publisher has sent at this home waits."""
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, home)
    reader_at(bench, "c")
    pen.send(b"1")
    bench.kill("c")
    bench.time(1)
    return bench, pen


def test_an_orphan_expires_when_all_in_contact_agree() -> None:
    bench, pen = orphaned("b")
    assert not pen.outcomes
    bench.time(61)
    bench.flow()
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    statuses = [entry.status for entry in bench.cores["b"].directory.entries() if entry.role is Role.SUBSCRIBER]
    assert statuses == [Status.EXPIRED]


def test_one_that_has_seen_a_later_attach_prevents_it() -> None:
    bench, pen = orphaned("a")
    bench.hold("b", "a")
    reader_at(bench, "b", unsettled={})  # a has not heard of it
    bench.time(61)
    bench.let_go()
    assert not pen.outcomes


def test_router_does_not_repeat_an_unanswered_question() -> None:
    """Over a slow link questions would pile up faster than they are answered."""
    bench, pen = orphaned("b")
    bench.hold("a", "b")
    bench.wait(62)
    asked = bench.under_way("a", "b")
    assert asked
    bench.wait(10)
    assert bench.under_way("a", "b") == asked
    bench.let_go()
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_who_comes_into_contact_while_others_are_asked() -> None:
    """The one that comes has the subscriber: b's consent, on its way still, must not be taken for that of all."""
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "c")
    for other in ("a", "b"):
        bench.part(other, "c")
    pen.send(b"1")
    bench.hold("b", "a")
    bench.wait(64)
    assert bench.under_way("b", "a") and not pen.outcomes
    bench.hold("c", "a")
    bench.meet("a", "c")
    while bench.under_way("b", "a"):
        bench.step("b", "a")
    assert not pen.outcomes
    bench.let_go()
    pen.answer_echo()
    reader.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_the_time_of_a_link_begins_anew_with_each_contact() -> None:
    """However short: whoever has it was there, and it with them."""
    bench = Bench("a", "b")
    pen, _ = pen_at(bench, "a"), reader_at(bench, "b")
    bench.part("a", "b")
    bench.wait(58, "a")
    bench.meet("a", "b")
    bench.flow()
    bench.part("a", "b")
    pen.send(b"1")
    bench.wait(58, "a")
    assert not pen.outcomes
    bench.wait(6, "a")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_a_suspended_subscriber_is_waited_for_no_longer_than_its_timeout_though_a_router_is_missing() -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    bench.kill("c")
    pen.send(b"1")
    bench.tick("b").suspend_subscriber(reader.end, reader, bench.now)
    bench.wait(58)
    assert not pen.outcomes
    bench.wait(6)
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    assert status(bench, "a", reader.end.name) is status(bench, "b", reader.end.name) is Status.EXPIRED
    back = reader_at(bench, "b", unsettled={})
    assert [detach.condition for detach in back.mine(Detach)] == [EXPIRED]


def test_a_publishers_life_does_not_end_while_a_router_is_missing() -> None:
    """Else what the subscriber has accepted would be settled there, and be given to it anew where the publisher is."""
    bench = Bench("a", "b", "c")
    reader, pen = reader_at(bench, "c"), bench.publisher("b", lifetime=Lifetime(3, "connection-close"))
    pen.send(b"1")
    for other in ("a", "b"):
        bench.part("c", other)
    reader.accept(b"1")
    bench.wait(50)
    assert not reader.settled and status(bench, "c", pen.stream.publisher) is Status.ATTACHED
    moved = reader_at(bench, "b", unsettled={key_of(pen, b"1"): DeliveryOutcome.ACCEPTED})
    assert moved.delivered == [] and moved.resumed == [(None, DeliveryOutcome.ACCEPTED, False)]
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_a_publishers_time_runs_while_all_routers_are_in_contact() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "b")
    bench.kill("c")
    bench.tick("b").suspend_publisher(pen.stream, pen, bench.now)
    bench.wait(64)
    bench.boot("c", 2)
    for other in ("a", "b"):
        bench.meet("c", other)
    bench.flow()
    bench.wait(58)
    assert status(bench, "a", pen.stream.publisher) is Status.ATTACHED
    bench.wait(6)
    assert status(bench, "a", pen.stream.publisher) is Status.EXPIRED


def test_what_is_kept_for_a_link_that_nobody_hears_of_is_given_up_in_the_end() -> None:
    bench = Bench("a", "b", settings=FORGETFUL)
    pen, reader = pen_at(bench, "b"), reader_at(bench, "a")
    pen.send(b"1")
    bench.kill("b")
    reader.accept(b"1")
    bench.wait(118)
    assert not reader.settled
    bench.wait(4)
    assert len(reader.settled) == 1 and status(bench, "a", pen.stream.publisher) is Status.EXPIRED


@pytest.mark.parametrize("knows_an_older_attach", [False, True])
def test_an_orphan_that_its_speaker_has_not_heard_of_expires_too(knows_an_older_attach: bool) -> None:
    bench = Bench("a", "b", "c")
    if knows_an_older_attach:
        reader_at(bench, "b")
    pen = pen_at(bench, "c")
    bench.hold("b", "a")
    reader_at(bench, "b", unsettled={})
    bench.kill("b")
    pen.send(b"1")
    bench.wait(60)
    assert not pen.outcomes
    bench.wait(70)
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_one_whose_new_custodian_never_speaks_of_it_expires_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has closed there, and so many others since that this is forgotten; who has not heard waits, nobody else."""
    monkeypatch.setattr("topic.directory.entries.MOST_PAST", 0)
    bench = Bench("a", "b", "h", "m")
    pen = pen_at(bench, "h")
    bench.hold("b", "h")
    reader_at(bench, "b")
    reader_at(bench, "m", unsettled={}).close()
    while not any(map(bench.cores["h"].directory.is_announced, bench.cores["h"].directory.entries())):
        bench.step("b", "h")
    bench.kill("b")
    pen.send(b"1")
    bench.wait(70)
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_router_that_believes_an_ended_link_live_learns_of_its_ending() -> None:
    bench = Bench("a", "b", "c", "d")
    there, reader = pen_at(bench, "a", name="q"), reader_at(bench, "d")
    bench.kill("d")
    for other in ("b", "c"):
        bench.part("a", other)
    there.send(b"1")
    bench.wait(64, "a")
    pen = pen_at(bench, "c")
    bench.meet("a", "b")
    bench.flow()
    bench.part("a", "b")  # it never meets c
    assert status(bench, "b", reader.end.name) is Status.EXPIRED
    pen.send(b"1")
    bench.wait(64, "b", "c")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_the_word_of_its_owner_frees_who_had_agreed() -> None:
    """Its proposer was lost before it said what was decided; and the publisher was never gone."""
    bench = Bench("a", "b", "c", settings=FORGETFUL)
    pen = pen_at(bench, "c")
    for other in ("a", "b"):
        bench.part("c", other)
    bench.wait(60)
    agrees(bench, "b", pen.stream.publisher)
    bench.part("a", "b")
    bench.meet("b", "c")
    bench.flow()
    bench.wait(124, "b", "c")
    assert status(bench, "b", pen.stream.publisher) is Status.ATTACHED
    assert pen_at(bench, "b", pen, unsettled={}).stream.generation == pen.stream.generation


def test_a_life_that_its_own_home_has_forgotten_is_over_however_late_its_publisher_comes() -> None:
    for at in ("a", "b"):
        bench = Bench("a", "b")
        pen = _forgotten(bench)
        again = bench.publisher(
            at, lifetime=LASTING, generation=pen.stream.generation, seen=pen.stream.epoch, unsettled={b"1": 0}
        )
        assert again.stream.generation != pen.stream.generation


def test_an_expired_life_is_remembered_by_others_than_its_home() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "a")
    bench.tick("a").suspend_publisher(pen.stream, pen, bench.now)
    bench.wait(70)
    reader_at(bench, "b").close()  # all know of all endings by then
    bench.flow()
    bench.kill("a")
    again = bench.publisher(
        "b", lifetime=LASTING, generation=pen.stream.generation, seen=pen.stream.epoch, unsettled={}
    )
    assert again.stream.generation != pen.stream.generation


def test_a_life_is_remembered_for_its_time_when_another_of_the_same_epoch_is_forgotten() -> None:
    bench = Bench("a", "b")
    seen = Epoch((bench.wall_us // 1000 + 30_000) << COUNTER_BITS, "b", 1)
    sooner = bench.publisher("a", "q", lifetime=Lifetime(10, "connection-close", 1), seen=seen)
    pen = pen_at(bench, "a", seen=seen)
    assert pen.stream.epoch == sooner.stream.epoch
    for one in (sooner, pen):
        one.vanish()
    bench.wait(int(SETTINGS.terminus) + 30)
    assert status(bench, "a", sooner.stream.publisher) is None
    assert status(bench, "a", pen.stream.publisher) is Status.EXPIRED


def test_a_life_whose_home_has_died_since_may_be_resumed_after_it_was_forgotten() -> None:
    """A limit (protocol 10)."""
    bench = Bench("a", "b")
    pen = _forgotten(bench)
    bench.kill("a")
    again = bench.publisher(
        "b", lifetime=LASTING, generation=pen.stream.generation, seen=pen.stream.epoch, unsettled={}
    )
    assert again.stream.generation == pen.stream.generation


def test_who_comes_when_all_that_knew_it_have_died_is_too_late_once_no_terminus_lives_that_long() -> None:
    longest = SETTINGS.terminus + SETTINGS.boot_wait
    for seconds, goes_on in ((longest - 2, True), (longest + 2, False)):
        bench = Bench("a", "b")
        pen = pen_at(bench, "a")
        for name in ("a", "b"):
            bench.kill(name)
            bench.boot(name, incarnation=2)
        bench.meet("a", "b")
        bench.flow()
        bench.wait(int(seconds))
        again = pen_at(bench, "b", pen, seen=pen.stream.epoch, unsettled={b"1": 0})
        assert (again.stream.generation == pen.stream.generation) is goes_on


@pytest.mark.parametrize("tells", [True, False])
def test_who_comes_late_is_not_too_late_if_its_home_may_live_and_have_told_nothing(tells: bool) -> None:
    bench = Bench("a", "b", "c")
    bench.wait(int(SETTINGS.terminus + SETTINGS.boot_wait) + 2)
    bench.lose("c", "a")  # which a has not noticed
    pen = pen_at(bench, "c")
    again = pen_at(bench, "a", pen, seen=pen.stream.epoch if tells else NOWHERE, unsettled={b"1": 0})
    bench.part("a", "c")
    bench.meet("a", "c")
    bench.flow()
    assert again.stream.generation == pen.stream.generation


def test_who_waits_is_not_too_late_because_its_home_dies_meanwhile() -> None:
    """It was attached there a moment ago; all have been in contact for long, as it seemed when it came."""
    bench = Bench("a", "b", "c")
    reader = reader_at(bench, "b")
    bench.wait(int(SETTINGS.terminus + SETTINGS.boot_wait) + 2)
    bench.lose("c", "a")  # which a has not noticed
    pen = pen_at(bench, "c")
    pen.send(b"1")
    reader.accept(b"1")
    again = pen_at(bench, "a", pen, seen=pen.stream.epoch, unsettled={b"1": 0})
    assert bench.cores["a"].attaches.waiting
    bench.kill("c")
    bench.boot("c", incarnation=2)
    bench.meet("a", "c")
    bench.meet("b", "c")
    bench.flow()
    assert again.stream.generation == pen.stream.generation
    again.send(b"1")
    assert reader.delivered == [b"1"]


def test_who_comes_from_a_router_that_was_removed_out_of_reach_is_not_too_late() -> None:
    """It goes on there (11.8)."""
    bench = Bench("a", "b", "c")
    bench.part("a", "c")
    bench.part("b", "c")
    reader, pen = reader_at(bench, "c"), pen_at(bench, "c")
    pen.send(b"1")
    reader.accept(b"1")
    bench.replan("ab")
    bench.wait(int(SETTINGS.terminus + SETTINGS.boot_wait) + 2)
    moved = reader_at(bench, "b", unsettled={key_of(pen, b"1"): int(DeliveryOutcome.ACCEPTED)})
    again = pen_at(bench, "a", pen, seen=pen.stream.epoch, unsettled={b"1": 0})
    assert again.stream.generation == pen.stream.generation
    again.send(b"1")
    assert moved.delivered == []


def _forgotten(bench: Bench) -> Pen:
    """A publisher that was away for so long that no router knows that its life has expired."""
    pen = pen_at(bench, "a")
    bench.tick("a").suspend_publisher(pen.stream, pen, bench.now)
    bench.wait(70)
    bench.wait(int(SETTINGS.terminus))
    assert all(core.directory.publisher(pen.stream.publisher) is None for core in bench.cores.values())
    return pen


def test_an_expired_life_stays_over_when_the_one_that_followed_it_unheard_has_expired_too() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "a")
    first, seen = pen.stream.generation, pen.stream.epoch
    for _ in range(2):
        bench.tick(pen.router).suspend_publisher(pen.stream, pen, bench.now)
        bench.wait(70)
        pen = bench.publisher("b", lifetime=LASTING, generation=first, seen=seen, unsettled={b"1": 0})
        assert pen.stream.generation != first
