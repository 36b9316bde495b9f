"""Whom a gate keeps from what, and who waits for whom because of it (protocol 6.3, 6.5)."""

import pytest

from tests.topic.bench import Bench, pen_at, reader_at
from tests.topic.clients import key_of
from topic.actions import Echo
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Lifetime


def test_who_is_joined_once_more_stays_behind_its_gate() -> None:
    bench = Bench("a", "b")
    older, pen = reader_at(bench, "a", "older"), pen_at(bench, "a")
    pen.send(b"1")
    newer = reader_at(bench, "b", "newer")
    pen.send(b"2")
    bench.cores["b"].edge.joined("a", newer.end, {pen.stream.publisher: 0, b"unknown12345": 0})
    bench.flow()
    assert newer.delivered == [] and list(newer.end.gated) == [pen.stream.publisher]
    older.accept(b"1", b"2")
    pen.settle(b"1")
    assert newer.delivered == [b"2"]


def test_what_gates_a_subscriber_does_not_wait_for_it_when_it_moves() -> None:
    bench = Bench("a", "b", "c")
    older, pen = reader_at(bench, "b", "older"), pen_at(bench, "a", lively=False)
    pen.send(b"1")
    reader_at(bench, "b", "newer")
    reader_at(bench, "c", "newer", unsettled={})
    older.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


@pytest.mark.parametrize(("other", "was", "comes"), [("a", "b", "c"), ("b", "a", "a")])
def test_what_a_subscriber_has_answered_does_not_wait_for_it_when_it_attaches_again(
    other: str, was: str, comes: str
) -> None:
    bench = Bench("a", "b", "c")
    reader, slower, pen = reader_at(bench, was), reader_at(bench, other, "slower"), pen_at(bench, "a", lively=False)
    pen.send(b"1")
    reader.accept(b"1")
    reader_at(bench, comes, unsettled={key_of(pen, b"1"): DeliveryOutcome.ACCEPTED})
    slower.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_a_publisher_is_asked_about_outcomes_that_gate_somebody_and_no_others() -> None:
    bench = Bench("a")
    older, pen = reader_at(bench, "a", "older"), pen_at(bench, "a")
    pen.send(b"1")
    newer = reader_at(bench, "a", "newer")
    pen.send(b"2")
    asked = len(pen.mine(Echo))
    older.accept(b"2")
    bench.cores["a"].edge.admit(newer.end, pen.stream.publisher, "a")
    bench.flow()
    newer.accept(b"2")
    assert b"2" in pen.outcomes and len(pen.mine(Echo)) == asked


def test_a_plain_subscriber_that_moves_waits_for_no_sign_of_life() -> None:
    bench = Bench("a", "b", "c")
    here, pen = bench.subscriber("b"), pen_at(bench, "a", lively=False)
    pen.send(b"1")
    here.accept(b"1")
    there = bench.subscriber("c")
    pen.send(b"2")
    assert there.delivered == [b"2"]


def test_a_subscriber_that_was_nowhere_else_waits_for_no_sign_of_life() -> None:
    bench = Bench("a", "b", meet=False)
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a", lively=False)
    bench.meet("a", "b")
    bench.flow()
    pen.send(b"1")
    assert reader.delivered == [b"1"]


def test_a_publisher_of_which_nothing_is_here_is_asked_nothing() -> None:
    bench = Bench("a")
    assert not pen_at(bench, "a", unsettled={b"1": 0}).mine(Echo)


def test_what_was_abandoned_waits_behind_no_gate() -> None:
    """Else both would wait for ever: the gate is a delivery whose key the abandoned one holds."""
    bench = Bench("a", "b")
    pen = bench.publisher("a")
    lasting = bench.subscriber("b", "lasting", credit=0, lifetime=Lifetime(60))
    plain = bench.subscriber("b", "plain", credit=0)
    pen.send(b"1")
    bench.part("a", "b")  # ends the publisher for b, and the plain subscriber for a
    bench.meet("a", "b")
    bench.flow()
    plain.grant(1)
    assert plain.delivered == [b"1"]
    plain.accept(b"1")
    lasting.grant(2)
    lasting.accept(b"1")
    lasting.answer_echo()
    assert lasting.delivered == [b"1", b"1"], "the key is free; across the cut a plain publisher is at least once"


def test_who_is_admitted_and_answers_at_once_may_end_who_was_to_be_admitted_next() -> None:
    """Its answer was the last that a later message waited for, which is accepted without one that was apart."""
    bench = Bench("a", "b")
    older, pen = reader_at(bench, "a", "older"), bench.publisher("a")
    pen.send(b"1")
    quick, apart = bench.subscriber("a", "quick", sends_settled=True), reader_at(bench, "b", "apart")
    bench.part("a", "b")
    pen.send(b"2")
    bench.wait(64, "a")
    older.accept(b"2", b"1")
    assert quick.delivered == [b"2"] and pen.outcomes == dict.fromkeys((b"1", b"2"), DeliveryOutcome.ACCEPTED)
    assert not pen.stream.gates and bench.ended("a") and not apart.delivered


def test_what_is_settled_without_an_outcome_gets_none_from_whom_that_lets_in() -> None:
    """1 gates who came after it; as it is settled, that one has 2 at once, which its publisher has settled, too."""
    bench = Bench("a")
    older, pen = reader_at(bench, "a", "older"), pen_at(bench, "a", lively=False)
    pen.send(b"1")
    older.accept(b"1")
    bench.subscriber("a", "newer", sends_settled=True)
    pen.send(b"2")
    older.accept(b"2")
    assert b"2" not in pen.outcomes
    pen.settle(b"1", b"2")
    assert b"2" not in pen.outcomes
