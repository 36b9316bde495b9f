"""Subscribers that were out of contact for longer than their timeout: they go on, or are told that something was
accepted without them (protocol 8, Apart). What a lapse meets on its way is in `test_apart_attacks.py`."""

import re

import attrs
import pytest

from tests.topic.bench import LASTING, Bench, pen_at, reader_at
from tests.topic.clients import Reader, key_of
from topic.actions import EXPIRED, Detach
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Role
from topic.journal import Event
from topic.wire.segments import Segment


def test_subscriber_apart_for_long_goes_on_if_nothing_was_accepted() -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "c"), reader_at(bench, "b")
    for other in ("b", "c"):
        bench.part("a", other)
    bench.wait(64)
    for other in ("b", "c"):
        bench.meet("a", other)
    bench.flow()
    assert not reader.mine(Detach) and not pen.mine(Detach)
    writer = pen_at(bench, "a", name="q")
    writer.send(b"1")
    assert not writer.outcomes and reader.delivered == [b"1"]


def test_subscriber_back_before_an_acceptance_gets_the_waiting_messages() -> None:
    """A router that was lost knows of another subscriber: so the delivery waits, also for who has lapsed."""
    bench = Bench("a", "b", "c")
    pen, reader, slow = pen_at(bench, "a"), reader_at(bench, "b"), reader_at(bench, "c", "t", credit=0)
    bench.part("a", "b")
    pen.send(b"1")
    bench.wait(64, "a")
    pen.send(b"2")
    bench.meet("a", "b")
    bench.flow()
    pen.answer_echo()
    assert reader.delivered == [b"1", b"2"] and not pen.outcomes
    slow.grant(2)
    slow.accept(b"1", b"2")
    assert not pen.outcomes
    reader.accept(b"1", b"2")
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), DeliveryOutcome.ACCEPTED)


def test_router_tells_subscriber_of_a_message_accepted_without_it() -> None:
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    name = reader.end.name
    pen.send(b"1")
    reader.accept(b"1")
    bench.part("a", "b")
    pen.send(b"2")
    bench.wait(64, "a")
    assert pen.outcomes[b"2"] is DeliveryOutcome.ACCEPTED
    assert bench.logged("a", Event.APART) == [key_of(pen, b"2")]
    bench.meet("a", "b")
    bench.flow()
    [detach] = reader.mine(Detach)
    assert detach.condition == EXPIRED
    assert "router a accepted messages without this subscriber" in detach.description
    assert re.search(r"out of reach for 6\d\.\d s, longer than its timeout of 60 s", detach.description)
    reader.answer_detach()
    assert not [entry for core in bench.cores.values() for entry in core.directory.entries() if entry.name == name]


def test_router_tells_moved_subscriber_of_a_message_accepted_without_it() -> None:
    """It was attached on its side of the partition all the time, if not at the same router."""
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    for other in ("b", "c"):
        bench.part("a", other)
    moved = reader_at(bench, "c", unsettled={}, seen=reader.end.epoch)
    pen.send(b"1")
    bench.wait(64)
    for other in ("b", "c"):
        bench.meet("a", other)
    bench.flow()
    assert [detach.condition for detach in moved.mine(Detach)] == [EXPIRED]
    afresh = reader_at(bench, "c")
    pen.settle(b"1")
    pen.send(b"2")
    assert afresh.answered and afresh.delivered == [b"2"]


def test_home_tells_subscriber_once_of_a_message_accepted_without_it() -> None:
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    bench.part("a", "b")
    pen.send(b"1")
    bench.wait(64, "a")
    first = reader_at(bench, "a", unsettled={}, seen=reader.end.epoch)
    assert [detach.condition for detach in first.mine(Detach)] == [EXPIRED] and not first.answered
    first.answer_detach()
    second = reader_at(bench, "a", unsettled={}, seen=first.end.epoch)
    bench.meet("a", "b")
    bench.flow()
    pen.settle(b"1")
    pen.send(b"2")
    assert second.answered and second.delivered == [b"2"] and not second.mine(Detach)


@pytest.mark.parametrize("closes", [True, False])
def test_router_tells_subscriber_that_left_untold_when_it_comes_again(closes: bool) -> None:
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    bench.part("a", "b")
    pen.send(b"1")
    bench.wait(64, "a")
    first = reader_at(bench, "a", unsettled={}, seen=reader.end.epoch)
    if closes:
        first.close()
    else:
        bench.tick("a").suspend_subscriber(first.end, first, bench.now)
    second = reader_at(bench, "a", unsettled={}, seen=reader.end.epoch)
    assert [detach.condition for detach in second.mine(Detach)] == [EXPIRED] and not second.answered


def test_a_suspended_subscriber_that_lapsed_and_missed_nothing_goes_on() -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    bench.kill("c")
    pen.send(b"1")
    bench.tick("b").suspend_subscriber(reader.end, reader, bench.now)
    pen.settle(b"1")  # it abandons it
    bench.wait(64)
    back = reader_at(bench, "a", unsettled={})
    pen.send(b"2")
    assert back.answered and back.delivered == [b"2"] and not pen.outcomes


def test_one_that_lapsed_is_waited_for_by_who_comes_later_until_that_agrees() -> None:
    bench = Bench("a", "b", "c", "d")
    pen, reader = pen_at(bench, "c"), reader_at(bench, "b")
    bench.kill("d")
    bench.part("b", "c")
    bench.part("a", "c")
    bench.tick("b").suspend_subscriber(reader.end, reader, bench.now)
    bench.wait(64, "a", "b")
    for other in ("a", "b"):
        bench.meet(other, "c")
    bench.flow()
    pen.send(b"1")
    assert not pen.outcomes
    bench.wait(3)
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def ended_and_heard_of_at_c() -> tuple[Bench, Reader]:
    """A subscriber at b, which is missed in something at a, and out of contact with a."""
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    for other in ("b", "c"):
        bench.part("a", other)
    pen.send(b"1")
    bench.wait(64, "a")
    bench.meet("a", "c")
    bench.flow()
    return bench, reader


def test_a_router_that_hears_of_an_ending_logs_from_where_on_it_awaits_nobody() -> None:
    bench, reader = ended_and_heard_of_at_c()
    assert bench.ended("c") == [reader.end.name.decode()]


def test_any_router_with_the_news_tells_subscriber_that_was_apart() -> None:
    bench, reader = ended_and_heard_of_at_c()
    assert [detach.condition for detach in reader.mine(Detach)] == [EXPIRED]
    entries = [entry for core in bench.cores.values() for entry in core.directory.entries()]
    assert not [entry for entry in entries if entry.live and entry.role is Role.SUBSCRIBER]


def test_an_ending_is_passed_on_by_who_has_it_from_the_owner_only() -> None:
    """Others may have forgotten it, and pass on what comes next of that link: news would chase news for ever."""
    bench = Bench("a", "b", "c", "d")
    pen = pen_at(bench, "a")
    reader_at(bench, "d")
    bench.kill("d")
    for other in ("b", "c"):
        bench.part("a", other)
    pen.send(b"1")
    bench.wait(64, "a")
    bench.said.clear()
    bench.meet("a", "b")
    bench.flow()
    assert ("b", "c", Segment.GOSSIP) not in bench.said


@pytest.mark.parametrize("late", [False, True], ids=["before the section", "after it"])
def test_last_router_to_hear_tells_subscriber_that_was_apart(late: bool) -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    for other in ("a", "c"):
        bench.part("b", other)
    bench.wait(64, "a", "c")
    bench.hold("a", "c")
    pen.send(b"1")
    bench.meet("b", "c")
    if late:
        bench.flow()
    while bench.under_way("a", "c"):
        bench.step("a", "c")
    bench.part("a", "c")
    bench.flow()
    assert [detach.condition for detach in reader.mine(Detach)] == [EXPIRED]


def test_router_tells_subscriber_that_was_apart_though_all_others_have_met() -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    for other in ("a", "c"):
        bench.part("b", other)
    bench.wait(64, "a", "c")
    pen.send(b"1")
    for other in ("a", "c"):
        bench.hold(other, "b")
        bench.meet(other, "b")
    bench.flow()
    pen_at(bench, "a", name="r")  # what the others acknowledge proves nothing of b
    pen_at(bench, "c", name="q")
    for other in ("a", "c"):
        bench.part(other, "b")
    bench.let_go()
    for other in ("a", "c"):
        bench.meet(other, "b")
    bench.flow()
    assert [detach.condition for detach in reader.mine(Detach)] == [EXPIRED]


def test_subscriber_that_ends_as_another_lapses_does_not_lapse() -> None:
    """Else its router's word would have it awaited again, for ever."""
    bench = Bench("a", "b")
    first = reader_at(bench, "b", "first")
    bench.subscriber("b", "second", lifetime=attrs.evolve(LASTING, timeout=90))
    pen = pen_at(bench, "a")
    bench.kill("b")
    pen.send(b"1")
    bench.wait(64)
    assert first.end.name in bench.cores["a"].directory.lapsed and not pen.outcomes
    bench.wait(30)
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    assert not bench.cores["a"].directory.lapsed
