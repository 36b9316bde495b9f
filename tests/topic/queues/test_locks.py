"""A message that a consumer holds for too long comes back to its queue (protocol 14.19).

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

import gc
from functools import partial
from typing import Any
from weakref import ref

import pytest

from tests.topic.clients import Pen
from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, QueueBench
from tests.topic.queues.test_egress import MODIFIED, at_rest, delete, lasting, plain
from tests.topic.queues.test_ingress import publisher
from tests.topic.raft.mutants import Broken, must_notice
from topic.queues.leader.egress import Egress
from topic.queues.leader.locks import Locks


def filled(*messages: bytes, **settings: Any) -> tuple[QueueBench, Pen]:
    bench = QueueBench(*"abcde")
    bench.configure(QUEUE, **settings)
    pen = publisher(bench, "e")
    pen.send(*messages)
    pen.settle(*messages)
    return bench, pen


@pytest.mark.parametrize("kind", [plain, lasting])
@pytest.mark.parametrize("router", ["a", "d"])
def test_a_message_that_is_held_too_long_goes_to_another_consumer(router: str, kind: Any) -> None:
    bench, _ = filled(b"1", lock_ms=3000)
    first = kind(bench, router, credit=1)
    other = plain(bench, "e", "other")
    bench.wait(2)
    assert other.delivered == [] and first.settled == []
    bench.wait(2)
    assert other.delivered == [b"1"], "it has not failed"
    assert first.settled_messages == [b"1"]
    other.accept(b"1")
    bench.wait(1)
    assert kind is lasting or at_rest(bench)


@pytest.mark.parametrize("router", ["a", "d"])
def test_an_answer_that_comes_too_late_counts_nothing(router: str) -> None:
    """The next consumer has it, also while the end of the lock is decided, and under another leader."""
    bench, _ = filled(b"1", lock_ms=3000)
    first, other = plain(bench, router, credit=1), plain(bench, "e", "other", credit=0)
    bench.hanging |= {*"bc"}
    bench.wait(4)
    first.accept(b"1")
    assert bench.messages("a") == [b"1"]
    bench.hanging.clear()
    bench.flow()
    assert first.settled_messages == [b"1"] and bench.messages("a") == [b"1"]
    other.grant(1)
    assert other.delivered == [b"1"]
    other.accept(b"1")
    bench.wait(1)
    assert at_rest(bench)


def test_an_answer_that_is_not_decided_yet_is_in_time() -> None:
    bench, _ = filled(b"1", lock_ms=3000)
    first = plain(bench, "d")
    bench.hanging |= {*"bc"}
    first.accept(b"1")
    bench.wait(4)
    bench.hanging.clear()
    bench.flow()
    bench.wait(1)
    assert first.delivered == [b"1"] and at_rest(bench)


def test_a_message_that_comes_again_may_be_held_as_long_again() -> None:
    bench, _ = filled(b"1", lock_ms=3000)
    first, other = plain(bench, "d", credit=1), plain(bench, "e", "other", credit=0)
    bench.wait(2)
    first.answer(MODIFIED, b"1")
    first.grant(1)
    assert first.delivered == [b"1", b"1"]
    other.grant(1)
    bench.wait(2)
    assert other.delivered == []
    bench.wait(2)
    assert other.delivered == [b"1"]


def test_the_setting_counts_for_what_consumers_have() -> None:
    bench, _ = filled(b"1")
    first, other = plain(bench, "d", credit=1), plain(bench, "e", "other")
    bench.wait(10)
    bench.configure(QUEUE, lock_ms=3000)
    bench.wait(2)
    bench.configure(QUEUE, lock_ms=5000)
    bench.wait(2)
    assert other.delivered == []
    bench.wait(2)
    assert other.delivered == [b"1"] and first.settled_messages == [b"1"]
    bench.configure(QUEUE, lock_ms=None)
    bench.wait(60)
    assert first.delivered == [b"1"]


def test_the_next_leader_begins_anew() -> None:
    bench, _ = filled(b"1", lock_ms=8000)
    first, other = lasting(bench, "d", credit=1), plain(bench, "e", "other")
    bench.wait(6)
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert other.delivered == [] and first.settled == []
    bench.wait(8)
    assert other.delivered == [b"1"] and first.settled_messages == [b"1"]


def test_nothing_is_kept_of_what_was_answered() -> None:
    bench, _ = filled(b"1", b"2", lock_ms=3000)
    first = plain(bench, "d")
    first.accept(b"1")
    [egress] = bench.at("a").node.led[SET].egresses.values()
    assert len(egress._locks._since) == 1
    first.accept(b"2")
    bench.wait(4)
    assert not egress._locks._since and not egress._taken_back and not bench.at("a").node.led[SET]._resting


def test_the_egress_of_a_deleted_queue_is_freed_at_once() -> None:
    """Python's search for cycles is rare in a router (`router.garbage`), and temporary queues come and go."""
    bench, _ = filled(b"1")
    plain(bench, "d", credit=1)
    [egress] = bench.at("a").node.led[SET].egresses.values()
    gone = ref(egress)
    del egress
    gc.disable()
    try:
        delete(bench)
        bench.wait(1)
        assert gone() is None
    finally:
        gc.enable()


BROKEN: list[Broken] = [
    (Locks, "__init__", "ref(end)", "lambda: end", test_the_egress_of_a_deleted_queue_is_freed_at_once),
    (Egress, "send_outcomes", "if record not in self._taken_back", "",
     partial(test_an_answer_that_comes_too_late_counts_nothing, "d")),
    (Egress, "take_back", "and record not in waiting", "", test_an_answer_that_is_not_decided_yet_is_in_time),
    (Egress, "_ended", "self._locks.free(position)", "pass", test_nothing_is_kept_of_what_was_answered),
    (Egress, "_publish_some", "self._locks.hold(position for position, _ in doubted)", "pass",
     test_the_next_leader_begins_anew),
    (Egress, "_publish", "self._locks.set(settings.lock_ms, ", "str(", test_the_setting_counts_for_what_consumers_have),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
