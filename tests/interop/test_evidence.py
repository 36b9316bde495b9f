"""A publisher that knows nothing of us is believed to be alive, so that subscribers can move while routers are missing.

        a - publisher of another maker
       / \\
      b   c - subscriber, until c dies; then at a
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from failover.client import Delivery, Subscriber
from tests.hangs import HANGS_S
from tests.interop.foreign import foreign
from tests.processes.mesh import RunningMesh, eventually, running

COUNT = 50


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("triangle", tmp_path) as triangle:
        yield triangle


@pytest.mark.parametrize("maker", ["proton", "rhea"])
async def test_a_subscriber_moves_while_routers_are_missing(maker: str, mesh: RunningMesh) -> None:
    """What it is given anew must not come from a router whose publisher has gone on elsewhere: it has to be proven
    here, by a client that answers nothing."""
    topic = "topic/evidence"
    urls = [f"amqp://{mesh.address(router)}" for router in ("c", "a")]
    taken: list[Delivery] = []
    with trio.fail_after(HANGS_S):
        async with (
            Subscriber(urls, topic, container="s", link="in") as subscriber,
            foreign(maker, "publish", mesh.address("a"), topic, COUNT, 100) as sending,
        ):
            while len(taken) < COUNT // 2:  # the others wait for it, or for credit
                taken.append(await anext(subscriber))
            for router in ("b", "c"):
                mesh.signal(router, signal.SIGKILL)
                await mesh.ending(router)
            await eventually(lambda: has_moved(mesh))
            for delivery in taken:
                await delivery.accept()
            while len(taken) < COUNT:
                taken.append(await anext(subscriber))
                await taken[-1].accept()
            await sending.event("complete")
            published = await sending.finish()
    assert published["numbers"] == list(range(COUNT))
    assert [int(delivery.body.split()[0]) for delivery in taken] == list(range(COUNT))
    for router in ("b", "c"):
        await mesh.start(router)


async def has_moved(mesh: RunningMesh) -> bool:
    return [subscriber["status"] for subscriber in (await mesh.status("a"))["subscribers"]] == ["attached"]
