"""Dynamic nodes: an address that has one subscriber, and is over with it (protocol 12.8)."""

import pytest

from tests.topic.bench import SETTINGS, Bench
from tests.topic.clients import Pen, Reader
from topic.actions import AnswerDeliveries, Cause
from topic.delivery.outcomes import DeliveryOutcome
from topic.settings import DYNAMIC

ADDRESS = f"{DYNAMIC}b/xyz"


def pen_at(bench: Bench, router: str) -> Pen:
    return Pen(bench, router, "p", address=ADDRESS)


def reader_at(bench: Bench, router: str, credit: int = 9) -> Reader:
    return Reader(bench, router, "s", credit, address=ADDRESS)


def causes(pen: Pen) -> list[Cause]:
    return [answer.cause for answer in pen.mine(AnswerDeliveries)]


@pytest.mark.parametrize("router", ["a", "b"])
def test_it_is_accepted_when_its_subscriber_has_accepted(router: str) -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, router, 2), pen_at(bench, "a")
    pen.send(b"1", b"2", b"3")
    assert reader.delivered == [b"1", b"2"] and not pen.outcomes
    reader.accept(b"1", b"2")
    reader.grant(1)
    reader.accept(b"3")
    assert set(pen.outcomes.values()) == {DeliveryOutcome.ACCEPTED} and len(pen.outcomes) == 3


@pytest.mark.parametrize("router", ["a", "b"])
def test_what_its_subscriber_leaves_is_rejected_and_so_is_what_comes_after(router: str) -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, router, 2), pen_at(bench, "a")
    pen.send(b"had", b"1", b"2")
    reader.accept(b"had")
    reader.close()
    pen.send(b"3")
    pen.send(b"4", presettled=True)
    assert pen.outcomes == {
        b"had": DeliveryOutcome.ACCEPTED,
        **dict.fromkeys((b"1", b"2", b"3"), DeliveryOutcome.REJECTED),
    }
    assert set(causes(pen)[1:]) == {Cause.GONE}
    pen.settle(b"had", b"1", b"2", b"3")
    assert not bench.records()


def test_what_is_lost_with_the_router_of_its_subscriber_is_rejected() -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "b", 1), pen_at(bench, "a")
    pen.send(b"1", b"2")
    assert reader.delivered == [b"1"]
    bench.kill("b")
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), DeliveryOutcome.REJECTED)
    assert set(causes(pen)) == {Cause.GONE}


def test_what_it_gives_back_comes_again() -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1")
    for _ in range(SETTINGS.redeliveries):
        reader.answer(DeliveryOutcome.RELEASED, b"1")
    assert not pen.outcomes
    reader.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
