"""Clients that all come to one router, and do not stay there: those that resume are asked to go, and lose nothing.

a ── b
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from failover.client import Connected, Event, Handle, Outcome, Publisher, Subscriber
from router.plan.balance import moves
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, eventually, running

TOPICS = 4


@pytest.fixture
def own_pair(tmp_path: Path) -> Iterator[RunningMesh]:
    """Whose routers ask soon."""
    with running("pair", tmp_path, hello="100ms", dead="500ms") as mesh:
        yield mesh


async def test_clients_go_where_there_are_few_and_every_message_comes_once_and_in_order(
    own_pair: RunningMesh, clients: Clients
) -> None:
    """One is of another make: it stays, and is not disturbed."""
    url = f"amqp://{own_pair.address('a')}"
    at, got, sent = dict[str, str](), [list[int]() for _ in range(TOPICS)], list[Handle]()
    spread = trio.Event()

    def hear(name: str, event: Event) -> None:
        if isinstance(event, Connected):
            at[name] = event.router

    async def subscribe(n: int, task_status: trio.TaskStatus[None]) -> None:
        events = partial(hear, f"s{n}")
        async with Subscriber([url], f"topic/{n}", container=f"s{n}", link="l", events=events) as subscriber:
            task_status.started()
            async for delivery in subscriber:
                await delivery.accept()
                if delivery.body == b"the end":
                    return
                got[n].append(int(delivery.body))

    async def publish(n: int) -> None:
        numbers, events = iter(range(1_000_000)), partial(hear, f"p{n}")
        async with Publisher([url], f"topic/{n}", container=f"p{n}", link="l", events=events) as publisher:
            while not spread.is_set():
                sent.append(await publisher.send(b"%d" % next(numbers)))
                await trio.sleep(0.01)
            await publisher.send(b"the end")

    async def is_spread() -> bool:
        """As even as routers care for; who came late may have found it so."""
        loads = Counter({"a": 1, "b": 0}) + Counter(at.values())
        return len(at) == 2 * TOPICS and "b" in loads and not list(moves(loads))

    other = await clients.subscriber(own_pair.address("a"), "topic/0", "another make")
    async with trio.open_nursery() as nursery:
        for n in range(TOPICS):
            await nursery.start(subscribe, n)
            nursery.start_soon(publish, n)
        await eventually(is_spread)
        spread.set()
    assert [numbers == list(range(len(numbers))) for numbers in got] == [True] * TOPICS
    assert sum(map(len, got)) == len(sent)
    assert {await handle.outcome() for handle in sent} == {Outcome.ACCEPTED}
    assert other.attached and not other.ended
    assert other.bodies == [b"%d" % n for n in got[0]] + [b"the end"]
