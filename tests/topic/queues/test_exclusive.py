"""An exclusive queue has one consumer. The link of any other one ends (protocol 14.14).

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

from typing import Any

import pytest

from tests.topic.clients import Pen, Reader
from tests.topic.queues.bench import ELECTED_S, QUEUE, QueueBench
from tests.topic.queues.test_egress import lasting, plain
from tests.topic.queues.test_ingress import publisher
from tests.topic.raft.mutants import Broken, must_notice
from topic.actions import EXCLUSIVE, LOCKED, Detach
from topic.queues.leader.egress import Egress
from topic.queues.leader.leaders import LedSet


def filled(*messages: bytes, exclusive: bool | None = True) -> tuple[QueueBench, Pen]:
    bench = QueueBench(*"abcde")
    bench.configure(QUEUE, exclusive=exclusive)
    pen = publisher(bench, "e")
    for message in messages:
        pen.send(message)
    pen.settle(*messages)
    return bench, pen


def refused(reader: Reader) -> bool:
    return [(one.condition, one.description) for one in reader.mine(Detach)] == [(LOCKED, EXCLUSIVE)]


@pytest.mark.parametrize("kind", [plain, lasting])
@pytest.mark.parametrize("router", ["a", "d"])
def test_a_second_consumer_is_refused(router: str, kind: Any) -> None:
    bench, _ = filled(b"1", b"2")
    first, second = kind(bench, "e", credit=1), kind(bench, router, "t")
    assert refused(second) and second.delivered == [] and first.delivered == [b"1"]
    first.accept(b"1")
    first.grant(1)
    assert first.delivered == [b"1", b"2"] and not first.mine(Detach)


def test_a_refused_consumer_may_come_again_when_the_first_has_ended() -> None:
    bench, _ = filled(b"1")
    first, second = plain(bench, "d", credit=0), lasting(bench, "e", "t")
    assert refused(second)
    second.answer_detach()
    first.close()
    third = lasting(bench, "e", "t")
    assert third.delivered == [b"1"] and not third.mine(Detach)


def test_a_consumer_that_comes_back_elsewhere_is_the_same_one() -> None:
    bench, _ = filled(b"1")
    lasting(bench, "d").vanish()
    again = lasting(bench, "e", unsettled={})
    other = plain(bench, "d", "t")
    assert not again.mine(Detach) and refused(other)


def test_a_consumer_that_is_away_keeps_its_queue() -> None:
    bench, _ = filled(b"1")
    lasting(bench, "d").vanish()
    assert refused(plain(bench, "e", "t"))


def test_the_next_leader_refuses_others_too() -> None:
    bench, _ = filled(b"1")
    first = lasting(bench, "d")
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert refused(plain(bench, "e", "t")) and not first.mine(Detach)


def test_an_empty_queue_has_one_consumer_too() -> None:
    bench, _ = filled()
    first, second = plain(bench, "d"), plain(bench, "e", "t", credit=0)
    assert refused(second) and not first.mine(Detach)


def test_it_is_switched_on_while_two_consumers_have_messages() -> None:
    """Both may answer. Then the one that attached first stays."""
    bench, _ = filled(b"1", b"2", exclusive=None)
    first, second = plain(bench, "d", credit=1), plain(bench, "e", "t", credit=1)
    assert (first.delivered, second.delivered) == ([b"1"], [b"2"])
    bench.configure(QUEUE, exclusive=True)
    assert not first.mine(Detach) and not second.mine(Detach)
    second.accept(b"2")
    assert refused(second) and not first.mine(Detach)


BROKEN: list[Broken] = [
    (Egress, "_publish", "self.node.topic.end_others(self.stream)", "pass",
     test_the_next_leader_refuses_others_too),
    (LedSet, "consumes", "self.egresses[known.id].go_on()", "pass", test_an_empty_queue_has_one_consumer_too),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
