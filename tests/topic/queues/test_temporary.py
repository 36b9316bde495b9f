"""Temporary queues are deleted when their policy says so (protocol 14.21).

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

from functools import partial
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from tests.topic.clients import Pen, Reader
from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, QueueBench
from tests.topic.queues.test_egress import SHORT
from tests.topic.queues.test_messages import propose
from tests.topic.raft.mutants import Broken, must_notice
from topic.actions import DELETED, EXPIRED, Detach
from topic.delivery.outcomes import DeliveryOutcome
from topic.identity import egress_address, ingress_address
from topic.queues.declaring.declarations import Declarations
from topic.queues.leader.leaders import LedSet
from topic.queues.leader.temporary import AWAY_S, TemporaryQueues
from topic.queues.operations import (
    TEMPORARY,
    Configure,
    Declare,
    Delete,
    Done,
    QueueId,
    QueueSettings,
    Refused,
    RefusedFor,
    Temporary,
    encode,
)
from topic.queues.proposals import Enqueue, Enqueued
from topic.queues.sets import ReplicaSets
from topic.queues.state import SetState, entry
from topic.raft.life import SetLife

NAME = f"queue/{TEMPORARY}d/1"


def temporary(policy: Temporary, holder: str | None = "d 1", **options: Any) -> QueueBench:
    """A temporary queue whose link is at router d."""
    bench = QueueBench(*"abcde", **options)
    bench.queue = bench.declare(NAME, temporary=str(policy), held_by=holder)
    return bench


def let_go(bench: QueueBench) -> None:
    """The link that has created the queue ends."""
    queue = bench.sets(bench.leader).state(SET).get(NAME)
    assert queue is not None
    at = bench.at("d")
    at.node.follow(Configure(NAME, queue.id, queue.version, attrs.evolve(queue.settings, held_by=None)))
    bench.collect("d")
    bench.flow()


def is_there(bench: QueueBench) -> bool:
    return bench.sets(bench.leader).state(SET).get(NAME) is not None


def reader_of(bench: QueueBench, **options: Any) -> Reader:
    return bench.subscriber("e", address=egress_address(SET, NAME), **options)


def pen_of(bench: QueueBench) -> Pen:
    return bench.publisher("e", address=ingress_address(SET, NAME))


@pytest.mark.parametrize("policy", Temporary)
def test_a_queue_stays_as_long_as_its_link(policy: Temporary) -> None:
    bench = temporary(policy)
    bench.wait(5)
    assert is_there(bench)


@pytest.mark.parametrize("policy", Temporary)
@pytest.mark.parametrize("has_link", [True, False])
@pytest.mark.parametrize("has_message", [True, False])
def test_each_policy_says_what_keeps_a_queue(policy: Temporary, has_link: bool, has_message: bool) -> None:
    bench = temporary(policy)
    pen = pen_of(bench)
    if has_message:
        pen.send(b"1")
        pen.settle(b"1")
    if not has_link:
        pen.close()
    let_go(bench)
    bench.wait(3)
    kept = (has_link and "links" in policy) or (has_message and "messages" in policy)
    assert is_there(bench) is kept
    if has_link:
        pen.close()
    if has_message and kept and "messages" in policy:
        reader = reader_of(bench)
        reader.accept(b"1")
        reader.close()
    bench.wait(3)
    assert not is_there(bench)


@pytest.mark.parametrize("returns", [True, False])
def test_a_queue_goes_with_the_router_of_its_link(returns: bool) -> None:
    bench = temporary(Temporary.CLOSE)
    bench.stop("d")
    bench.wait(3)
    assert is_there(bench), "it may only be out of contact"
    if returns:
        bench.start("d", 2)
        bench.wait(3)
    else:
        bench.wait(int(AWAY_S))
    assert not is_there(bench)


def test_a_queue_stays_while_its_router_is_out_of_contact_for_a_moment() -> None:
    bench = temporary(Temporary.CLOSE)
    for _ in range(3):
        for other in "abce":
            bench.part("d", other)
        bench.wait(int(AWAY_S / 2))
        for other in "abce":
            bench.meet("d", other)
        bench.wait(3)
    assert is_there(bench)


def test_the_next_leader_deletes_it() -> None:
    bench = temporary(Temporary.NO_MESSAGES)
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert is_there(bench)
    let_go(bench)
    bench.wait(3)
    assert not is_there(bench)


def test_its_consumers_are_told_and_nobody_declares_it_again() -> None:
    bench = temporary(Temporary.CLOSE)
    reader, pen = reader_of(bench), pen_of(bench)
    let_go(bench)
    bench.wait(3)
    assert [(one.condition, one.description) for one in reader.mine(Detach)] == [(EXPIRED, DELETED)]
    pen.send(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.REJECTED} and not is_there(bench)
    late = bench.subscriber("e", "late", address=egress_address(SET, NAME))
    assert [one.description for one in late.mine(Detach)] == [DELETED] and not is_there(bench)


def test_a_deletion_is_asked_for_until_a_leader_answers() -> None:
    bench = temporary(Temporary.CLOSE)
    bench.stop("a")
    bench.stop("b")
    bench.at("d").node.follow(Delete(NAME, bench.queue))
    bench.wait(30)
    assert bench.leaders() == []
    bench.start("a", 2)
    bench.wait(2 * ELECTED_S + 10)
    assert not is_there(bench)
    nobody_waits(bench)


def test_a_declaration_that_comes_too_late_leaves_no_queue() -> None:
    """The client reads that no leader has answered. A leader decides the declaration after that."""
    bench = QueueBench(*"abcde")
    bench.hanging |= {*"bc"}
    heard: list[Any] = []
    end = SimpleNamespace(hear=heard.append)
    bench.at("d").node.declare(end, Declare(NAME, QueueSettings(temporary="close", held_by="d 1")))
    bench.collect("d")
    bench.wait(12)
    assert [one.answer.reason for one in heard] == [RefusedFor.NO_ANSWER]
    bench.hanging.clear()
    bench.flow()
    bench.wait(2 * ELECTED_S)
    assert not is_there(bench)
    nobody_waits(bench)


def test_what_follows_is_asked_for_however_many_requests_wait() -> None:
    bench = temporary(Temporary.CLOSE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topic.queues.sets.MOST_ASKED", 0)
        bench.stop("a")
        bench.stop("b")
        bench.at("d").node.follow(Delete(NAME, bench.queue))
        bench.wait(1)
        bench.start("a", 2)
        bench.wait(2 * ELECTED_S + 10)
    assert not is_there(bench)
    nobody_waits(bench)


@pytest.mark.parametrize("name", [NAME, QUEUE])
def test_only_its_router_changes_a_temporary_queue(name: str) -> None:
    """Otherwise the router would let go of an earlier version, and the queue would be held for ever."""
    bench = temporary(Temporary.NO_LINKS)
    state = bench.sets("a").state(SET)
    queue = state.get(name)
    assert queue is not None
    for changed in ({"ttl_ms": 5}, {"temporary": "close"}, {"held_by": "e 1"}):
        asked = Configure(name, queue.id, queue.version, attrs.evolve(queue.settings, **changed))
        answer = SetState(state.rows).apply(10**6, entry(SetLife(1, "a"), encode(asked)))
        allowed = name == QUEUE and "temporary" not in changed
        assert isinstance(answer, Done) if allowed else isinstance(answer, Refused)
        if isinstance(answer, Refused):
            assert answer.reason is RefusedFor.DIFFERS


def test_a_queue_with_another_name_is_not_temporary() -> None:
    state = QueueBench(*"abcde").sets("a").state(SET)
    answer = state.apply(10**6, entry(SetLife(1, "a"), encode(Declare("queue/x", QueueSettings(temporary="close")))))
    assert isinstance(answer, Refused) and answer.reason is RefusedFor.MALFORMED


def nobody_waits(bench: QueueBench) -> None:
    declarations = bench.at("d").node._declarations
    assert declarations is not None and not declarations._following and not declarations._asked


def test_a_state_knows_its_temporary_queues() -> None:
    bench = temporary(Temporary.CLOSE)
    state = bench.sets("a").state(SET)
    assert [*SetState(state.rows).temporary] == [*state.temporary] == [NAME]
    answer = propose(state, 99, Enqueue(f"queue/{TEMPORARY}x", (), (), [b"1"]))
    assert isinstance(answer, Enqueued) and answer.queue is None
    assert isinstance(state.apply(100, entry(SetLife(1, "a"), encode(Declare(f"queue/{TEMPORARY}x")))), Refused)
    state.check()


@pytest.mark.parametrize("wrong", [{"temporary": "never"}, {"held_by": ""}, {"held_by": 7}])
def test_a_wrong_policy_or_holder_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError):
        QueueSettings.of(wrong)


def test_many_that_were_made_and_are_gone_leave_nothing() -> None:
    bench = QueueBench(*"abcde", settings=attrs.evolve(SHORT, forget=20.0))
    before = {name: len(bench.sets(name).state(SET).rows) for name in "abc"}
    links = {name: sum(1 for _ in core.directory.entries()) for name, core in bench.cores.items()}
    for number in range(30):
        name = f"{NAME}{number}"
        queue: QueueId = bench.declare(name, temporary="close", held_by="d 1")
        pen = bench.publisher("d", f"p{number}", address=ingress_address(SET, name))
        reader = bench.subscriber("d", f"s{number}", address=egress_address(SET, name))
        pen.send(b"1")
        pen.settle(b"1")
        if number % 2:
            reader.accept(b"1")
        reader.close()
        pen.close()
        bench.at("d").node.follow(Delete(name, queue))
        bench.collect("d")
        bench.flow()
    bench.wait(60)
    assert {name: len(bench.sets(name).state(SET).rows) for name in "abc"} == before
    assert bench.records() == {} and not bench.sets("a").state(SET).temporary
    assert {name: sum(1 for _ in core.directory.entries()) for name, core in bench.cores.items()} == links
    [led] = bench.at("a").node.led.values()
    assert len(led.egresses) <= 1 and not led._temporary._away


BROKEN: list[Broken] = [
    (TemporaryQueues, "_is_there", "return str(known) == incarnation", "return True",
     partial(test_a_queue_goes_with_the_router_of_its_link, True)),
    (TemporaryQueues, "_is_there", "< AWAY_S", "< 0",
     test_a_queue_stays_while_its_router_is_out_of_contact_for_a_moment),
    (TemporaryQueues, "_is_there", "self._away.pop(holder, None)", "pass",
     test_a_queue_stays_while_its_router_is_out_of_contact_for_a_moment),
    (SetState, "_queue_for", " or is_temporary(asked.queue)", "",
     test_its_consumers_are_told_and_nobody_declares_it_again),
    (LedSet, "consumes", "known is None and is_temporary(queue)", "False",
     test_its_consumers_are_told_and_nobody_declares_it_again),
    (Declarations, "answered", "answer.reason is RefusedFor.NO_ANSWER", "False",
     test_a_declaration_that_comes_too_late_leaves_no_queue),
    (Declarations, "answered", "isinstance(followed, Declare) and", "False and",
     test_a_declaration_that_comes_too_late_leaves_no_queue),
    (Declarations, "follow", ", lasts=True", "", test_a_deletion_is_asked_for_until_a_leader_answers),
    (ReplicaSets, "ask", " and not lasts", "", test_what_follows_is_asked_for_however_many_requests_wait),
    (SetState, "_configure", "not _may_change(known.settings, operation.settings)", "False",
     partial(test_only_its_router_changes_a_temporary_queue, NAME)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
