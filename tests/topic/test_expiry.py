"""Termini that nobody comes back for, and who has to know that they are over (protocol 8, Expiry and Partition)."""

import pytest

from tests.topic.bench import LASTING, Bench, pen_at, reader_at
from topic.actions import Detach
from topic.directory import Role, Status
from topic.record import Outcome
from topic.wire import Kind

EXPIRED = "amqp:resource-deleted"


def status(bench: Bench, router: str, name: bytes) -> Status | None:
    """Of a link as that router has it."""
    return next((entry.status for entry in bench.cores[router].directory.entries() if entry.name == name), None)


def agrees(bench: Bench, router: str, name: bytes) -> None:
    """To what a proposes; the decision is on its way."""
    bench.hold("a", router)
    bench.wait(62)
    while status(bench, router, name) is not Status.BOUND:
        bench.step("a", router)


def test_an_orphan_expires_when_all_in_contact_agree() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "b")
    reader_at(bench, "c")
    pen.send(b"1")
    bench.kill("c")
    bench.time(1)
    assert not pen.outcomes
    bench.time(61)
    bench.flow()
    assert pen.outcomes == {b"1": Outcome.ACCEPTED}
    statuses = [entry.status for entry in bench.cores["b"].directory.entries() if entry.role is Role.SUBSCRIBER]
    assert statuses == [Status.EXPIRED]


def test_one_that_has_seen_a_later_attach_prevents_it() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a")
    reader_at(bench, "c")
    pen.send(b"1")
    bench.kill("c")
    bench.time(1)
    bench.hold("b", "a")
    reader_at(bench, "b", unsettled={})  # a has not heard of it
    bench.time(61)
    bench.let_go()
    assert not pen.outcomes


def test_who_expired_behind_a_partition_is_told_so() -> None:
    bench = Bench("a", "b")
    reader = reader_at(bench, "b")
    bench.part("a", "b")
    bench.wait(64, "a")
    bench.meet("a", "b")
    bench.flow()
    assert [detach.condition for detach in reader.mine(Detach)] == ["amqp:resource-deleted"]


def test_who_expired_behind_a_partition_is_told_so_by_whoever_hears_of_it() -> None:
    bench = Bench("a", "b", "c")
    reader = reader_at(bench, "b")
    for other in ("b", "c"):
        bench.part("a", other)
    bench.wait(64, "a")
    bench.meet("a", "c")
    bench.flow()
    assert [detach.condition for detach in reader.mine(Detach)] == [EXPIRED]
    assert not [entry for core in bench.cores.values() for entry in core.directory.entries() if entry.live]


def test_an_ending_is_passed_on_by_who_has_it_from_the_owner_only() -> None:
    """Others may have forgotten it, and pass on what comes next of that link: news would chase news for ever."""
    bench = Bench("a", "b", "c", "d")
    reader_at(bench, "d")
    bench.kill("d")
    for other in ("b", "c"):
        bench.part("a", other)
    bench.wait(64, "a")
    bench.said.clear()
    bench.meet("a", "b")
    bench.flow()
    assert ("b", "c", Kind.HEARSAY) not in bench.said


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
    assert pen.outcomes == {b"1": Outcome.ACCEPTED}


def test_one_whose_new_custodian_never_speaks_of_it_expires_too() -> None:
    """It has closed there, as those know who have heard it; the one that has not waits, and nobody else does."""
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
    assert pen.outcomes == {b"1": Outcome.ACCEPTED}


@pytest.mark.parametrize("late", [False, True], ids=["before the section", "after it"])
def test_who_expired_is_told_so_by_who_hears_of_the_decision_last(late: bool) -> None:
    bench = Bench("a", "b", "c")
    reader = reader_at(bench, "b")
    for other in ("a", "c"):
        bench.part("b", other)
    agrees(bench, "c", reader.end.name)
    bench.flow()
    bench.meet("b", "c")
    if late:
        bench.flow()
    while bench.under_way("a", "c"):
        bench.step("a", "c")
    bench.part("a", "c")
    bench.flow()
    assert [detach.condition for detach in reader.mine(Detach)] == [EXPIRED]


def test_who_expired_is_told_so_though_everybody_else_has_met_meanwhile() -> None:
    bench = Bench("a", "b", "c")
    reader = reader_at(bench, "b")
    for other in ("a", "c"):
        bench.part("b", other)
    bench.wait(64, "a", "c")
    for other in ("a", "c"):
        bench.hold(other, "b")
        bench.meet(other, "b")
    bench.flow()
    pen_at(bench, "a")  # what the others acknowledge proves nothing of b
    pen_at(bench, "c", name="q")
    for other in ("a", "c"):
        bench.part(other, "b")
    bench.let_go()
    for other in ("a", "c"):
        bench.meet(other, "b")
    bench.flow()
    assert [detach.condition for detach in reader.mine(Detach)] == [EXPIRED]


def test_who_takes_for_live_what_another_knows_has_ended_learns_it() -> None:
    bench = Bench("a", "b", "c", "d")
    reader = reader_at(bench, "d")
    bench.kill("d")
    for other in ("b", "c"):
        bench.part("a", other)
    bench.wait(64, "a")
    pen = pen_at(bench, "c")
    bench.meet("a", "b")
    bench.flow()
    bench.part("a", "b")  # it never meets c
    assert status(bench, "b", reader.end.name) is Status.EXPIRED
    pen.send(b"1")
    bench.wait(64, "b", "c")
    assert pen.outcomes == {b"1": Outcome.ACCEPTED}


def test_the_word_of_its_owner_frees_who_had_agreed() -> None:
    """Its proposer was lost before it said what was decided; and the publisher was never gone."""
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "c")
    for other in ("a", "b"):
        bench.part("c", other)
    agrees(bench, "b", pen.stream.publisher)
    bench.part("a", "b")
    bench.meet("b", "c")
    bench.flow()
    bench.wait(64, "b", "c")
    assert status(bench, "b", pen.stream.publisher) is Status.ATTACHED
    assert pen_at(bench, "b", pen, unsettled={}).stream.generation == pen.stream.generation


def test_an_expired_life_stays_over_when_the_one_that_followed_it_unheard_has_expired_too() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "a")
    first, seen = pen.stream.generation, pen.stream.epoch.hlc
    for _ in range(2):
        bench.tick(pen.router).suspend_publisher(pen.stream, pen, bench.now)
        bench.wait(70)
        pen = bench.publisher("b", lifetime=LASTING, generation=first, seen=seen, unsettled={b"1": 0})
        assert pen.stream.generation != first
