"""A message that has failed pauses before a consumer gets it again (protocol 14.17).

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

from typing import Any
from unittest.mock import patch

import pytest

from tests.failures import marked
from tests.topic.clients import Pen
from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, QueueBench
from tests.topic.queues.test_bodies import purge
from tests.topic.queues.test_drains import drain, drained
from tests.topic.queues.test_egress import at_rest, plain
from tests.topic.queues.test_ingress import publisher
from topic.delivery.outcomes import DeliveryOutcome
from topic.queues.leader import leaders
from topic.queues.leader.egress import Resting
from topic.queues.operations import QueueSettings

MODIFIED, RELEASED = DeliveryOutcome.MODIFIED, DeliveryOutcome.RELEASED


def filled(*messages: bytes, **settings: Any) -> tuple[QueueBench, Pen]:
    bench = QueueBench(*"abcde")
    bench.configure(QUEUE, **settings)
    pen = publisher(bench, "e")
    pen.send(*messages)
    pen.settle(*messages)
    return bench, pen


@pytest.mark.parametrize(
    ("settings", "pauses"),
    [
        ({}, [0, 0, 0]),
        ({"retry_after_ms": 1000}, [1, 1, 1]),
        ({"retry_after_ms": 1000, "retry_factor": 1}, [1, 1, 1]),
        ({"retry_after_ms": 1000, "retry_factor": 2}, [1, 2, 4, 8]),
        ({"retry_after_ms": 1000, "retry_factor": 3, "retry_most_ms": 5000}, [1, 3, 5, 5]),
        ({"retry_after_ms": 9000, "retry_most_ms": 5000}, [5]),
        ({"retry_after_ms": 1000, "retry_factor": 100}, [1, 100, 10_000, 86_400, 86_400]),
    ],
)
def test_each_pause_is_longer_than_the_one_before(settings: dict[str, int], pauses: list[float]) -> None:
    asked = QueueSettings.of(settings)
    assert [asked.pause_s(failed) for failed in range(len(pauses) + 1)] == [0, *pauses]
    assert asked.pause_s(10**9) == (86_400 if settings == {"retry_after_ms": 1000, "retry_factor": 2} else max(pauses))


@pytest.mark.parametrize(
    ("settings", "conflict"),
    [
        ({"retry_after_ms": 5000}, ""),
        ({"retry_after_ms": 5000, "retry_factor": 2, "retry_most_ms": 5000}, ""),
        ({"retry_factor": 2}, "retry-factor 2 has no effect without retry-after, expected both"),
        ({"retry_most_ms": 3_600_000}, "retry-most 1h has no effect without retry-after, expected both"),
        (
            {"retry_after_ms": 1500, "retry_most_ms": 1000},
            "retry-most 1s is below retry-after 1500ms, expected at least as much",
        ),
    ],
)
def test_settings_of_pauses_that_do_not_go_together_are_named(settings: dict[str, int], conflict: str) -> None:
    assert QueueSettings.of(settings).conflict == conflict


@pytest.mark.parametrize("wrong", [0, 101, True, 1.5, "2"])
def test_a_factor_is_a_small_number(wrong: Any) -> None:
    with pytest.raises(ValueError, match="expected a number from 1 to 100"):
        QueueSettings.of({"retry_factor": wrong})


@pytest.mark.parametrize("router", ["a", "d"])
def test_a_message_that_has_failed_pauses(router: str) -> None:
    bench, _ = filled(b"1", retry_after_ms=2000, retry_factor=2)
    reader = plain(bench, router)
    for failures, pause in ((1, 2), (2, 4)):
        reader.answer(MODIFIED, marked(b"1", failures - 1), failed=True)
        bench.wait(pause - 1)
        assert reader.delivered[-1] == marked(b"1", failures - 1)
        bench.wait(2)
        assert reader.delivered[-1] == marked(b"1", failures)
    reader.accept(marked(b"1", 2))
    bench.wait(1)
    assert at_rest(bench)


def resting(bench: QueueBench) -> Resting:
    [egress] = bench.at(bench.leader).node.led[SET].egresses.values()
    return egress.resting


def test_the_leader_tells_how_many_messages_pause() -> None:
    bench, _ = filled(b"1", b"2", b"3", retry_after_ms=2000)
    reader = plain(bench, "d")
    assert resting(bench) == Resting()
    reader.answer(MODIFIED, b"1", b"2", failed=True)
    assert resting(bench) == Resting(paused=2)
    bench.wait(3)
    assert resting(bench) == Resting() and len(reader.delivered) == 5
    reader.answer(MODIFIED, marked(b"1", 1), failed=True)
    purge(bench)
    assert resting(bench) == Resting() and bench.messages("b") == [b"2", b"3"]


@pytest.mark.parametrize("outcome", [RELEASED, MODIFIED])
def test_a_message_that_comes_back_without_a_failure_does_not_pause(outcome: DeliveryOutcome) -> None:
    """AMQP 1.0 3.4.5: a modified message without delivery-failed was not acted upon, as a released one (3.4.4)."""
    bench, _ = filled(b"1", retry_after_ms=2000, dead_letter="queue/dead", redeliveries=0)
    reader = plain(bench, "d")
    reader.answer(outcome, b"1")
    assert reader.delivered == [b"1", b"1"]


def test_what_a_consumer_has_gone_with_pauses() -> None:
    bench, _ = filled(b"1", retry_after_ms=2000)
    plain(bench, "d").close()
    other = plain(bench, "e", "other")
    assert other.delivered == []
    bench.wait(3)
    assert other.delivered == [marked(b"1", 1)]


def test_later_messages_go_before_one_that_pauses() -> None:
    bench, pen = filled(b"1", retry_after_ms=2000)
    reader = plain(bench, "d")
    reader.answer(MODIFIED, b"1", failed=True)
    pen.send(b"2")
    assert reader.delivered == [b"1", b"2"]
    bench.wait(3)
    assert reader.delivered == [b"1", b"2", marked(b"1", 1)]


def test_a_drain_does_not_wait_for_what_pauses() -> None:
    bench, _ = filled(b"1", retry_after_ms=2000)
    reader = plain(bench, "d", credit=1)
    reader.answer(MODIFIED, b"1", failed=True)
    drain(reader, 5)
    assert reader.delivered == [b"1"] and len(drained(reader)) == 1


def test_the_next_leader_gives_at_once_what_pauses() -> None:
    bench, _ = filled(b"1", retry_after_ms=3_600_000)
    reader = plain(bench, "d")
    reader.answer(MODIFIED, b"1", failed=True)
    bench.wait(1)
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert reader.delivered == [b"1", marked(b"1", 1)]


def test_what_pauses_can_be_purged() -> None:
    bench, _ = filled(b"1", retry_after_ms=2000)
    reader = plain(bench, "d")
    reader.answer(MODIFIED, b"1", failed=True)
    purge(bench)
    bench.wait(3)
    assert reader.delivered == [b"1"] and bench.messages("b") == []


def test_the_time_of_a_message_that_pauses_goes_on() -> None:
    bench, _ = filled(b"1!3", retry_after_ms=60_000)
    reader = plain(bench, "d")
    reader.answer(MODIFIED, b"1!3", failed=True)
    bench.wait(5)
    assert reader.delivered == [b"1!3"] and bench.messages("b") == []


def test_no_more_messages_pause_than_a_set_may_have() -> None:
    bench, _ = filled(b"1", b"2", b"3", retry_after_ms=2000)
    reader = plain(bench, "d")
    with patch.object(leaders, "MOST_RESTING", 1):
        reader.answer(MODIFIED, b"1", b"2", failed=True)
    assert reader.delivered == [b"1", b"2", b"3", marked(b"2", 1)]
    bench.wait(3)
    assert reader.delivered[4:] == [marked(b"1", 1)]
