"""Requests to replica sets: each task gets the answer to its own, whenever that comes."""

from collections import deque
from collections.abc import Mapping, Sequence

import pytest
import trio
from trio.testing import MockClock

from router.management.queues import READ_S, SetRequests
from topic.queues.actions import Answered, BodiesFound
from topic.queues.operations import Answer, Declare, Done, Operation, QueueId, Refused, RefusedFor
from topic.raft.life import SetLife


def done(index: int) -> Done:
    return Done(QueueId(SetLife(1, "a"), index), QueueId(SetLife(1, "a"), index))


class Node:
    """Answers with a pump what is there to be answered then."""

    def __init__(self, requests: SetRequests) -> None:
        self.requests = requests
        self.asked: list[Operation] = []
        self.reads: list[Sequence[int]] = []
        self.answers: deque[Answered] = deque()

    def ask(self, operation: Operation) -> int:
        if len(operation.name) > 255:
            raise ValueError("the name is too long")
        self.asked.append(operation)
        return len(self.asked)

    def read(self, set_: str, queue: QueueId, positions: Sequence[int]) -> int:
        self.reads.append(positions)
        return len(self.asked) + len(self.reads)

    def pump(self) -> None:
        while self.answers:
            self.requests.answered(self.answers.popleft())


@pytest.fixture
def node() -> Node:
    return Node(SetRequests())


async def test_an_answer_may_come_with_the_pump_that_asks(node: Node, autojump_clock: MockClock) -> None:
    refused = Refused(RefusedFor.NO_SET, "no set may have it")
    node.answers.append(Answered(1, refused))
    assert await node.requests.ask(node, Declare("x")) == refused


async def test_answers_that_come_in_another_order_reach_the_tasks_that_asked(
    node: Node, autojump_clock: MockClock
) -> None:
    told: dict[str, Answer] = {}

    async def ask(name: str) -> None:
        told[name] = await node.requests.ask(node, Declare(name))

    async with trio.open_nursery() as nursery:
        for name in ("a", "b", "c"):
            nursery.start_soon(ask, name)
        await trio.sleep(1)
        for number in (3, 1, 2):
            node.requests.answered(Answered(number, done(number)))
    assert told == {one.name: done(number) for number, one in enumerate(node.asked, 1)}


async def test_an_answer_for_a_task_that_has_gone_is_nobodys(node: Node, autojump_clock: MockClock) -> None:
    with trio.move_on_after(1):
        await node.requests.ask(node, Declare("a"))
    node.requests.answered(Answered(1, done(1)))
    node.answers.append(Answered(2, done(2)))
    assert await node.requests.ask(node, Declare("b")) == done(2)


async def test_what_cannot_be_asked_is_refused_at_once(node: Node) -> None:
    with pytest.raises(ValueError, match="too long"):
        await node.requests.ask(node, Declare("x" * 256))


async def test_who_waits_for_messages_gets_those_that_are_there(node: Node, autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.requests.ask, node, Declare("a"))
        await trio.sleep(1)
        found: list[Mapping[int, bytes]] = []

        async def read() -> None:
            found.append(await node.requests.read(node, "q0", QueueId(SetLife(1, "a"), 2), [5, 6]))

        nursery.start_soon(read)
        await trio.sleep(1)
        node.requests.found(BodiesFound(2, {5: b"body"}))
        node.requests.answered(Answered(1, done(1)))
    assert found == [{5: b"body"}] and node.reads == [[5, 6]]


async def test_a_disk_that_hangs_keeps_nobody_waiting(node: Node, autojump_clock: MockClock) -> None:
    with pytest.raises(trio.TooSlowError):
        await node.requests.read(node, "q0", QueueId(SetLife(1, "a"), 2), [5])
    assert trio.current_time() >= READ_S
    node.requests.found(BodiesFound(1, {}))
