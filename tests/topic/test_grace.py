"""Plain subscribers of a router out of contact are waited for, for a grace (protocol 8, Lost router)."""

import json

import attrs

from tests.topic.bench import SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import Pen, Reader
from topic.actions import Detach, Note
from topic.blocks import read_blocks
from topic.delivery.outcomes import DeliveryOutcome
from topic.journal import Event

GRACE_S = 5.0
ACCEPTED = DeliveryOutcome.ACCEPTED


def meshed(*routers: str) -> Bench:
    return Bench(*routers, settings=attrs.evolve(SETTINGS, grace=GRACE_S))


def meet_again(bench: Bench, *, restarted: str = "") -> None:
    if restarted:
        bench.boot(restarted, incarnation=2)
    bench.meet("a", "b")
    bench.flow()


def test_a_delivery_waits_for_the_plain_subscribers_of_a_router_that_was_lost() -> None:
    bench = meshed("a", "b")
    reader, pen = bench.subscriber("b"), pen_at(bench, "a")
    pen.send(b"1")
    bench.part("a", "b")
    pen.send(b"2")
    bench.time(GRACE_S - 1)
    assert not pen.outcomes
    meet_again(bench)
    assert reader.delivered == [b"1", b"2"], "what it has already it is not given again"
    reader.accept(b"1", b"2")
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), ACCEPTED) and not reader.mine(Detach)
    pen.settle(b"1", b"2")
    assert bench.records() == {}


def test_an_outcome_that_crossed_the_cut_is_told_when_the_contact_is_back() -> None:
    bench = meshed("a", "b")
    reader, pen = bench.subscriber("b"), pen_at(bench, "a")
    pen.send(b"1")
    bench.part("a", "b")
    reader.accept(b"1")
    assert not pen.outcomes
    meet_again(bench)
    assert pen.outcomes == {b"1": ACCEPTED} and reader.delivered == [b"1"]


def test_when_the_grace_is_over_nobody_waits_and_the_log_says_so() -> None:
    bench = meshed("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    pen.send(b"1")
    bench.part("a", "b")
    pen.send(b"2")
    bench.time(GRACE_S)
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), ACCEPTED)
    [note] = [action.text for action in bench.actions["a"] if isinstance(action, Note)]
    waiting = "2 deliveries no longer wait for its subscribers without a timeout"
    assert note == f"router b was out of contact for 5 s: {waiting}"
    meet_again(bench)
    assert [detach.condition for detach in reader.mine(Detach)] == ["amqp:resource-deleted"]


def test_the_log_says_when_nobody_waits_any_more() -> None:
    bench = meshed("a", "b")
    bench.subscriber("b")
    bench.part("a", "b")
    assert _told(bench) == [(Event.LOST, {"grace": GRACE_S})]
    meet_again(bench)
    bench.part("a", "b")
    bench.time(GRACE_S)
    assert _told(bench) == [(Event.LOST, {"grace": GRACE_S}), (Event.GIVEN_UP, {"incarnation": 1})]


def test_the_log_says_that_nobody_waits_for_a_process_that_is_gone() -> None:
    bench = meshed("a", "b", "c")
    bench.subscriber("c")
    bench.kill("c")
    bench.tick("b").refused("c")
    bench.flow()
    assert _told(bench) == [(Event.LOST, {"grace": GRACE_S}), (Event.GIVEN_UP, {"incarnation": 1})]
    bench.boot("c", incarnation=2)
    bench.meet("a", "c")
    bench.tick("a").grace.ended(("c", 2))
    bench.part("a", "c")
    assert _told(bench) == [(Event.LOST, {})]


def _told(bench: Bench, router: str = "a", *peers: str) -> list[tuple[Event, object]]:
    blocks, _ = read_blocks(bench.take_log(router))
    entries = [entry for block in blocks for entry in block.entries() if not peers or entry.peer in peers]
    lost = [entry for entry in entries if entry.event in (Event.LOST, Event.GIVEN_UP)]
    return [(entry.event, json.loads(entry.detail or "{}")) for entry in lost]


def test_a_router_whose_process_is_gone_is_not_waited_for() -> None:
    bench = meshed("a", "b", "c")
    bench.subscriber("c")
    pen = bench.publisher("a")
    pen.send(b"1")
    bench.kill("c")
    assert not pen.outcomes
    bench.tick("b").refused("c")
    bench.flow()
    assert pen.outcomes == {b"1": ACCEPTED}, "b tells a"


def test_word_that_a_process_is_gone_may_come_before_its_contact_is_lost() -> None:
    bench = meshed("a", "b", "c")
    bench.subscriber("c")
    pen = bench.publisher("a")
    pen.send(b"1")
    bench.part("b", "c")
    bench.tick("b").refused("c")
    bench.flow()
    assert not pen.outcomes
    bench.part("a", "c")
    assert pen.outcomes == {b"1": ACCEPTED}


def test_who_is_in_contact_has_not_ended_whatever_refuses_connections() -> None:
    bench = meshed("a", "b")
    bench.subscriber("b")
    pen = bench.publisher("a")
    pen.send(b"1")
    bench.tick("a").refused("b")
    bench.part("a", "b")
    bench.flow()
    assert not pen.outcomes


def test_word_of_a_former_process_says_nothing_of_the_present_one() -> None:
    bench = meshed("a", "b")
    bench.part("a", "b")
    meet_again(bench, restarted="b")
    bench.subscriber("b")
    pen = bench.publisher("a")
    pen.send(b"1")
    bench.tick("a").grace.ended(("b", 1))
    bench.part("a", "b")
    assert not pen.outcomes


def test_a_router_that_comes_back_in_another_incarnation_has_no_plain_subscribers() -> None:
    bench = meshed("a", "b")
    bench.subscriber("b")
    pen = bench.publisher("a")
    pen.send(b"1")
    bench.part("a", "b")
    meet_again(bench, restarted="b")
    assert pen.outcomes == {b"1": ACCEPTED}
    bench.time(2 * GRACE_S)
    pen.settle(b"1")
    assert bench.records() == {}


def test_a_subscriber_that_closed_behind_the_cut_is_not_waited_for_when_the_contact_is_back() -> None:
    bench = meshed("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    pen.send(b"1")
    bench.part("a", "b")
    reader.close()
    meet_again(bench)
    assert pen.outcomes == {b"1": ACCEPTED}


def test_a_subscriber_that_attaches_elsewhere_is_given_there_what_has_waited() -> None:
    bench = meshed("a", "b", "c")
    bench.subscriber("b")
    pen = bench.publisher("a")
    pen.send(b"1")
    bench.kill("b")
    again = bench.subscriber("c")
    assert again.delivered == [b"1"]
    again.accept(b"1")
    assert pen.outcomes == {b"1": ACCEPTED}, "nobody else was at b"


def test_a_contact_that_comes_and_goes_does_not_begin_the_grace_anew() -> None:
    bench = meshed("a", "b")
    bench.subscriber("b")
    pen = bench.publisher("a")
    pen.send(b"1")
    bench.part("a", "b")
    bench.time(GRACE_S - 1)
    bench.hold("b", "a")
    bench.meet("a", "b")
    bench.time(2)
    assert not pen.outcomes, "its section is about to come"
    bench.part("a", "b")
    bench.time(0)
    assert pen.outcomes == {b"1": ACCEPTED}


def test_lasting_and_plain_subscribers_of_one_router_are_waited_for_each_for_its_time() -> None:
    bench = meshed("a", "b")
    lasting, _, pen = reader_at(bench, "b", "lasting"), bench.subscriber("b", "plain"), bench.publisher("a")
    bench.part("a", "b")
    pen.send(b"1")
    bench.time(GRACE_S)
    assert not pen.outcomes
    meet_again(bench)
    lasting.accept(b"1")
    assert not pen.outcomes, "the plain one gets it, too, as nothing was accepted without it"


def test_a_plain_publisher_is_given_up_with_its_contact() -> None:
    """It is promised at least once (10): what its home forgets with the contact, an edge must not hold against it."""
    bench = meshed("a", "b")
    reader, pen = reader_at(bench, "b"), bench.publisher("a")
    pen.send(b"1")
    bench.part("a", "b")
    assert bench.cores["b"].directory.publisher(pen.stream.publisher) is None
    reader.accept(b"1")
    assert reader.settled_messages == [b"1"]


def test_a_message_in_time_is_given_up_for_a_router_out_of_contact() -> None:
    bench = meshed("a", "b")
    reader, pen = bench.subscriber("b"), pen_at(bench, "a")
    bench.part("a", "b")
    pen.lively = False
    pen.send(b"1", until=[1.0])
    pen.send(b"2")
    bench.time(2.0)
    assert pen.outcomes == {b"1": DeliveryOutcome.REJECTED}
    meet_again(bench)
    assert reader.delivered == [], "the publisher has not said that it knows"
    pen.settle(b"1")
    for _ in range(2):
        pen.answer_echo()
    assert reader.delivered == [b"2"]


def test_what_its_publisher_gives_up_in_a_grace_is_forgotten() -> None:
    bench = meshed("a", "b")
    bench.subscriber("b")
    slow, pen = bench.subscriber("a", "slow"), bench.publisher("a")
    bench.part("a", "b")
    pen.send(b"1")
    pen.settle(b"1")
    slow.accept(b"1")
    meet_again(bench)
    assert bench.records() == {}


def test_a_router_that_was_lost_twice_is_counted_on_by_its_contact_alone() -> None:
    bench = meshed("a", "b")
    bench.subscriber("b", "former")
    bench.part("a", "b")
    bench.hold("b", "a")
    bench.meet("a", "b")
    bench.tick("a").grace.ended(("b", 1))
    bench.part("a", "b")
    bench.let_go()
    meet_again(bench, restarted="b")
    leaving, pen = bench.subscriber("b", "leaving"), bench.publisher("a")
    staying = reader_at(bench, "b", "staying")
    pen.send(b"1")
    leaving.close()
    assert not pen.outcomes
    staying.accept(b"1")
    assert pen.outcomes == {b"1": ACCEPTED}


def moved_out_of_reach() -> tuple[Bench, Reader, Pen]:
    """Router d has never met c. It hears from a that its subscriber has attached there."""
    bench = Bench("a", "c", "d", meet=False, settings=attrs.evolve(SETTINGS, grace=GRACE_S))
    bench.meet("a", "d")
    bench.time(SETTINGS.boot_wait)
    bench.subscriber("d")
    pen = bench.publisher("d")
    bench.part("a", "d")
    bench.meet("a", "c")
    reader = bench.subscriber("c")
    bench.meet("a", "d")
    bench.flow()
    pen.send(b"1")
    return bench, reader, pen


def test_a_delivery_waits_for_a_plain_subscriber_at_a_router_never_met() -> None:
    bench, reader, pen = moved_out_of_reach()
    assert not pen.outcomes
    bench.meet("c", "d")
    bench.flow()
    assert reader.delivered == [b"1"]
    reader.accept(b"1")
    assert pen.outcomes == {b"1": ACCEPTED}


def test_the_wait_for_a_router_never_met_ends_with_the_grace() -> None:
    bench, _, pen = moved_out_of_reach()
    bench.time(0)
    bench.time(GRACE_S - 1)
    assert not pen.outcomes
    bench.time(1)
    assert pen.outcomes == {b"1": ACCEPTED}


def test_two_that_attach_elsewhere_at_once_are_both_given_there_what_has_waited() -> None:
    bench = Bench("a", "b", "c", settings=attrs.evolve(SETTINGS, grace=GRACE_S))
    for name in ("one", "other"):
        bench.subscriber("c", name)
    pen = bench.publisher("a")
    bench.part("a", "b")
    bench.part("a", "c")
    pen.send(b"1")
    readers = [bench.subscriber("b", name) for name in ("one", "other")]
    bench.meet("a", "b")
    bench.flow()
    assert [reader.delivered for reader in readers] == [[b"1"], [b"1"]]


def test_a_router_that_has_begun_anew_out_of_contact_is_waited_for_in_its_present_life_alone() -> None:
    """Router d hears from a that its subscriber has attached at c, which has been started anew."""
    bench = meshed("a", "c", "d")
    bench.subscriber("c", "former")
    bench.subscriber("d")
    pen = bench.publisher("d")
    bench.part("c", "d")
    pen.send(b"1")
    bench.kill("c")
    bench.boot("c", incarnation=2)
    bench.part("a", "d")
    bench.meet("a", "c")
    bench.flow()
    reader = bench.subscriber("c")
    bench.meet("a", "d")
    bench.flow()
    assert _told(bench, "d", "c") == [(Event.LOST, {"grace": GRACE_S}), (Event.GIVEN_UP, {"incarnation": 1})]
    pen.send(b"2")
    bench.time(GRACE_S - 1)
    assert not pen.outcomes
    bench.meet("c", "d")
    bench.flow()
    reader.accept(b"1", b"2")
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), ACCEPTED)


def test_word_of_a_former_life_of_a_router_in_contact_begins_no_wait() -> None:
    """Router a has not heard that c, where the subscriber of d has attached, has been started anew."""
    bench = meshed("a", "c", "d")
    bench.subscriber("d")
    pen = bench.publisher("d")
    bench.part("c", "d")
    bench.part("a", "d")
    bench.subscriber("c")
    bench.lose("a", "c")
    bench.boot("c", incarnation=2)
    bench.meet("c", "d")
    bench.flow()
    bench.meet("a", "d")
    bench.flow()
    pen.send(b"1")
    assert pen.outcomes == {b"1": ACCEPTED}


def attached_where_its_publishers_home_has_never_been(grace: float) -> None:
    """The subscriber of d has gone when d hears that it has attached at c, where d has never been. The first message is
    for another one; a next home of the publisher would give it to the subscriber, too, behind the second."""
    bench = Bench("a", "c", "d", meet=False, settings=attrs.evolve(SETTINGS, grace=grace))
    bench.meet("a", "d")
    bench.meet("a", "c")
    bench.time(SETTINGS.boot_wait)
    former, other, pen = bench.subscriber("d"), reader_at(bench, "d", "other"), pen_at(bench, "d")
    bench.hold("a", "d")
    reader = bench.subscriber("c")
    former.close()
    pen.send(b"1")
    bench.let_go()
    pen.send(b"2")
    bench.meet("c", "d")
    bench.flow()
    assert reader.delivered == []
    other.accept(b"1")
    pen.settle(b"1")
    assert reader.delivered == [b"2"]


def test_what_is_not_its_own_gates_a_plain_subscriber_at_a_router_never_met() -> None:
    attached_where_its_publishers_home_has_never_been(GRACE_S)


def test_it_gates_one_that_nobody_waits_for() -> None:
    attached_where_its_publishers_home_has_never_been(0.0)
