"""Deliveries that nobody is subscribed to (protocol 5, Nobody): their home tells how many of an answer's are."""

from tests.topic.bench import Bench, pen_at, reader_at
from tests.topic.clients import Pen
from topic.actions import AnswerDeliveries
from topic.delivery.outcomes import DeliveryOutcome


def told(pen: Pen) -> list[tuple[int, int]]:
    """(deliveries, alone) of each answer."""
    return [(len(answer.records), answer.alone) for answer in pen.mine(AnswerDeliveries)]


def test_a_batch_that_nobody_is_subscribed_to_is_alone() -> None:
    pen = Bench("a", "b").publisher("a")
    pen.send(b"1", b"2", b"3")
    assert told(pen) == [(3, 3)]


def test_who_has_a_subscriber_here_or_elsewhere_is_not_alone() -> None:
    for router in ("a", "b"):
        bench = Bench("a", "b")
        reader, pen = bench.subscriber(router), bench.publisher("a")
        pen.send(b"1", b"2")
        reader.accept(b"1", b"2")
        assert sum(alone for _, alone in told(pen)) == 0


def test_what_went_before_the_first_subscriber_and_after_the_last_is_alone_and_nothing_between() -> None:
    bench = Bench("a", "b")
    pen = bench.publisher("a")
    pen.send(b"1", b"2")
    reader = bench.subscriber("b")
    pen.send(b"3", b"4")
    reader.accept(b"3", b"4")
    reader.close()
    pen.send(b"5")
    assert sum(alone for _, alone in told(pen)) == 3
    assert len(pen.outcomes) == 5


def test_an_orphan_is_somebody() -> None:
    bench = Bench("a", "b")
    reader_at(bench, "b")
    pen = bench.publisher("a")
    bench.lose("a", "b")
    pen.send(b"1")
    assert pen.outcomes == {}
    assert told(pen) == []


def test_an_audience_that_has_grown_since_is_none_of_nobody() -> None:
    bench = Bench("a", "b", meet=False)
    pen = pen_at(bench, "a")
    pen.send(b"1")
    reader = reader_at(bench, "a", unsettled={})
    reader.grant(5)
    bench.meet("a", "b")
    bench.flow()
    assert pen.outcomes == {}, "a subscriber that had been attached before is awaited"
    reader.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    assert told(pen) == [(1, 0)]


def test_what_was_accepted_late_is_alone_too() -> None:
    bench = Bench("a", "b", meet=False)
    pen = bench.publisher("a")
    pen.send(b"1")
    assert pen.outcomes == {}, "the mesh is not complete"
    bench.meet("a", "b")
    bench.flow()
    assert told(pen) == [(1, 1)]
