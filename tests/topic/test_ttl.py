"""Deliveries whose time is over before anybody has them (protocol 5, Time to live)."""

import attrs

from linkstate.mesh_actions import Full, Room
from tests.topic.bench import SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import Pen, key_of
from topic.actions import AnswerDeliveries, Cause
from topic.blocks import read_blocks
from topic.delivery.outcomes import DeliveryOutcome
from topic.home.ttl import OVER
from topic.journal import BY_TTL, Event, LoggedOutcome

ACCEPTED, REJECTED = DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED


def expired(pen: Pen) -> list[bytes]:
    """What it was told is over, in the order in which it was told."""
    answers = [answer for answer in pen.mine(AnswerDeliveries) if answer.cause is Cause.EXPIRED]
    assert all(answer.outcome is REJECTED for answer in answers)
    return [record.tag for answer in answers for record in answer.records]


def test_what_waits_for_room_is_rejected_when_its_time_is_over() -> None:
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), bench.subscriber("b")
    bench.stations["a"].contacts.out.append(Full("b"))
    bench.flow()
    pen.send(b"1", b"2", b"3", until=[60.0, 5.0, 70.0])
    bench.time(4.9)
    assert pen.outcomes == {}
    bench.time(0.2)
    assert expired(pen) == [b"2"]
    bench.stations["a"].contacts.out.append(Room("b"))
    bench.flow()
    assert reader.delivered == [b"1"], "resumed elsewhere, 2 would come after 3"
    pen.settle(b"2")
    assert reader.delivered == [b"1", b"3"]
    reader.accept(b"1", b"3")
    assert pen.outcomes == {b"1": ACCEPTED, b"2": REJECTED, b"3": ACCEPTED}
    pen.settle(b"1", b"3")
    bench.wait(100)
    assert bench.records() == {} and expired(pen) == [b"2"]


def test_what_comes_too_late_is_rejected_and_what_came_with_it_goes_on() -> None:
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), bench.subscriber("b")
    pen.send(b"1", b"2", b"3", until=[OVER, 9.0, OVER])
    assert expired(pen) == [b"1", b"3"] and reader.delivered == []
    pen.settle(b"1", b"3")
    assert reader.delivered == [b"2"]
    reader.accept(b"2")
    pen.settle(b"2")
    assert bench.records() == {} and not pen.stream.withheld


def test_what_waits_for_who_is_nowhere_is_rejected_and_given_to_nobody() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a", lively=False)
    reader_at(bench, "b")
    bench.kill("b")
    pen.send(b"1", b"2", until=[5.0, 50.0])
    bench.wait(6)
    assert expired(pen) == [b"1"]
    back = reader_at(bench, "c", unsettled={})
    pen.acknowledge()
    pen.acknowledge()  # an echo was under way when it came
    assert back.delivered == [], "resumed elsewhere, 1 would come after 2"
    pen.settle(b"1")
    assert back.delivered == [b"2"]


def test_what_waits_for_credit_here_is_rejected_and_given_to_nobody() -> None:
    bench = Bench("a")
    pen, reader = pen_at(bench, "a", lively=False), bench.subscriber("a", credit=0)
    pen.send(b"1", b"2", until=[5.0, 60.0])
    bench.wait(6)
    assert expired(pen) == [b"1"] and not reader.end.ready
    reader.grant(10)
    assert reader.delivered == [], "resumed elsewhere, 1 would come after 2"
    pen.settle(b"1")
    assert reader.delivered == [b"2"] and not pen.stream.gates


def test_who_answers_an_echo_knows_what_was_ended() -> None:
    bench = Bench("a")
    pen, reader = pen_at(bench, "a"), bench.subscriber("a", credit=0)
    pen.send(b"1", b"2", until=[5.0, 60.0])
    bench.wait(6)
    reader.grant(10)
    assert reader.delivered == [b"2"] and not pen.stream.gates


def test_what_one_subscriber_was_sent_stays_for_all() -> None:
    bench = Bench("a")
    pen, slow, quick = pen_at(bench, "a"), bench.subscriber("a", "slow", credit=0), bench.subscriber("a", "quick")
    pen.send(b"1", until=[5.0])
    bench.wait(6)
    slow.grant(10)
    assert quick.delivered == slow.delivered == [b"1"] and pen.outcomes == {}
    for reader in (quick, slow):
        reader.accept(b"1")
    assert pen.outcomes == {b"1": ACCEPTED}


def test_what_was_given_back_stays() -> None:
    bench = Bench("a")
    pen, reader = pen_at(bench, "a"), bench.subscriber("a", credit=1)
    pen.send(b"1", until=[5.0])
    reader.answer(DeliveryOutcome.RELEASED, b"1")
    bench.wait(6)
    assert pen.outcomes == {}


def test_what_was_forwarded_stays_whatever_becomes_of_that_router() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a")
    reader_at(bench, "b", credit=0)
    pen.send(b"1", until=[5.0])
    bench.kill("b")
    bench.wait(6)
    assert pen.outcomes == {}
    assert reader_at(bench, "c", unsettled={}).delivered == [b"1"]


def test_a_backlog_that_was_forwarded_stays() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a")
    reader_at(bench, "b")
    bench.kill("b")
    pen.send(b"1", until=[5.0])
    assert reader_at(bench, "c", unsettled={}).delivered == [b"1"]
    bench.wait(6)
    assert pen.outcomes == {}


def test_what_its_publisher_brings_in_its_map_stays() -> None:
    """Whoever had it from the former home may have it."""
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a")
    reader_at(bench, "b")
    bench.kill("b")
    pen.send(b"1", until=[5.0])
    bench.kill("a")
    again = pen_at(bench, "c", pen, unsettled={b"1": 0})
    again.send(b"1", b"2", until=[OVER, OVER])
    bench.wait(6)
    assert again.outcomes == {b"2": REJECTED}


def test_after_an_incomplete_map_nothing_is_over() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "a")
    again = pen_at(bench, "a", pen, unsettled={}, complete=False)
    again.send(b"1", until=[OVER])
    assert again.outcomes == {b"1": ACCEPTED}


def test_a_publisher_that_is_gone_is_told_nothing() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "a")
    reader_at(bench, "b")
    bench.kill("b")
    pen.send(b"1", until=[5.0])
    bench.tick("a").suspend_publisher(pen.stream, pen, bench.now)
    bench.wait(6)
    assert pen.outcomes == {}
    again = pen_at(bench, "a", pen, unsettled={b"1": 0})
    assert again.map == {b"1": 0}, "it is still in doubt"


def test_a_large_message_that_is_over_is_recalled() -> None:
    bench = Bench("a", "b", settings=attrs.evolve(SETTINGS, piece=10))
    pen, reader = pen_at(bench, "a"), bench.subscriber("b")
    bench.hold("a", "b")
    message = b"x" * 100
    core = bench.tick("a")
    bench.stations["a"].contacts.out.append(Full("b"))
    (pen.sent[message],) = core.publish(pen.stream, [b"1"], [message], presettled=False, until=[5.0])
    bench.flow()
    bench.time(6.0)
    bench.stations["a"].contacts.out.append(Room("b"))
    bench.let_go()
    assert expired(pen) == [b"1"] and reader.delivered == []
    pen.settle(message)
    assert bench.cores["b"].peers.bodies.come == {} and not pen.stream.ahead


def test_a_presettled_message_that_is_over_is_dropped() -> None:
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), bench.subscriber("b")
    pen.send(b"1", b"2", presettled=True, until=[OVER, 5.0])
    assert reader.delivered == [b"2"] and pen.outcomes == {} and pen.stream.window.unsettled == 0


def test_the_log_tells_why_it_was_rejected() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "a")
    bench.subscriber("b")
    bench.take_log("a")
    pen.send(b"1", until=[OVER])
    pen.settle(b"1")
    blocks, _ = read_blocks(bench.take_log("a"))
    entries = [entry for block in blocks for entry in block.entries() if key_of(pen, b"1") in entry.keys]
    assert [entry.event for entry in entries] == [Event.ACCEPTED, Event.SETTLED, Event.FORGOTTEN]
    assert (entries[0].outcome, entries[0].detail) == (LoggedOutcome.REJECTED, BY_TTL)


def test_a_link_of_mode_first_is_settled_with_the_answer() -> None:
    bench = Bench("a")
    pen = pen_at(bench, "a", first=True)
    pen.send(b"1", until=[OVER])
    assert pen.outcomes == {b"1": REJECTED} and bench.records() == {} and pen.stream.window.unsettled == 0
