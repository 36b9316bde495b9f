"""A message may say when consumers may have it at the earliest (protocol 14.18).

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

from unittest.mock import patch

import pytest

from tests.topic.queues.bench import ELECTED_S, START_US, QueueStation
from tests.topic.queues.test_bodies import filled as filled_disk
from tests.topic.queues.test_bodies import purge, without_bodies
from tests.topic.queues.test_browsing import Browser
from tests.topic.queues.test_drains import drain, drained
from tests.topic.queues.test_egress import at_rest, filled, lasting, plain
from tests.topic.queues.test_pauses import resting
from topic.delivery.outcomes import DeliveryOutcome
from topic.queues.leader import leaders
from topic.queues.leader.egress import Resting


@pytest.fixture(autouse=True)
def _messages_say_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueStation, "delivery_ms", lambda self, message: when(message))


def when(message: bytes) -> int:
    """A message that ends in `@20` is for consumers 20 seconds after the bench began."""
    text = message.partition(b"@")[2]
    return START_US // 1000 + 1000 * int(text) if text else 0


@pytest.mark.parametrize("router", ["a", "d"])
def test_a_message_waits_for_its_time_and_others_do_not(router: str) -> None:
    bench, _ = filled(b"1@30", b"2@20", b"3")
    reader = plain(bench, router)
    assert reader.delivered == [b"3"]
    bench.wait(int(21 - bench.now))
    assert reader.delivered == [b"3", b"2@20"]
    bench.wait(10)
    assert reader.delivered == [b"3", b"2@20", b"1@30"]
    reader.accept(b"1@30", b"2@20", b"3")
    bench.wait(1)
    assert at_rest(bench)


def test_a_message_whose_time_has_come_does_not_wait() -> None:
    bench, pen = filled(b"1@1")
    reader = plain(bench, "d")
    pen.send(b"2@2")
    assert reader.delivered == [b"1@1", b"2@2"]


def test_a_message_that_comes_while_a_consumer_waits_waits_for_its_time() -> None:
    bench, pen = filled()
    reader = plain(bench, "d")
    pen.send(b"1@20", b"2")
    assert reader.delivered == [b"2"] and pen.outcomes == dict.fromkeys((b"1@20", b"2"), DeliveryOutcome.ACCEPTED)
    bench.wait(int(21 - bench.now))
    assert reader.delivered == [b"2", b"1@20"]


def test_the_next_leader_keeps_the_time() -> None:
    bench, _ = filled(b"1@40")
    reader = lasting(bench, "d")
    bench.wait(1)
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert reader.delivered == []
    bench.wait(int(41 - bench.now))
    assert reader.delivered == [b"1@40"]


def test_what_comes_back_after_its_time_does_not_wait() -> None:
    bench, _ = filled(b"1@20")
    reader = plain(bench, "d")
    bench.wait(int(21 - bench.now))
    reader.answer(DeliveryOutcome.RELEASED, b"1@20")
    assert reader.delivered == [b"1@20", b"1@20"]


def test_all_messages_may_wait_for_their_time() -> None:
    with patch.object(leaders, "MOST_RESTING", 1):
        bench, _ = filled(b"1@20", b"2@20", b"3@20")
        reader = plain(bench, "d")
        assert reader.delivered == []
    bench.wait(int(21 - bench.now))
    assert reader.delivered == [b"1@20", b"2@20", b"3@20"]


def test_a_drain_does_not_wait_and_a_browser_sees_what_waits() -> None:
    bench, _ = filled(b"1@60")
    reader = plain(bench, "d", credit=0)
    drain(reader, 5)
    assert reader.delivered == [] and len(drained(reader)) == 1
    assert Browser(bench, "d").ask_all() == [b"1@60"]


def test_what_waits_can_be_purged() -> None:
    bench, _ = filled(b"1@20")
    reader = plain(bench, "d")
    assert resting(bench) == Resting(scheduled=1)
    purge(bench)
    assert resting(bench) == Resting()
    bench.wait(int(21 - bench.now))
    assert reader.delivered == [] and bench.messages("b") == []


@without_bodies
def test_a_message_on_the_disk_waits_for_its_time() -> None:
    bench, _ = filled_disk(*(b"%d@20" % number for number in range(12)))
    reader = plain(bench, "d", credit=100)
    assert reader.delivered == []
    bench.wait(int(21 - bench.now))
    assert reader.delivered == [b"%d@20" % number for number in range(12)]
