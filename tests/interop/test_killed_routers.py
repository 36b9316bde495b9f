"""Clients of other makes find another router by themselves when theirs is killed, and miss nothing.

Neither Qpid JMS nor go-amqp has an unsettled map: what was under way may come twice (docs/clients.md).
"""

import signal

import pytest

from tests.interop.foreign import foreign
from tests.processes.mesh import RunningMesh

COUNT = 1500
DOUBTFUL = 100
"""The most messages of a publisher that have no outcome yet."""
CREDIT = {"jms": 1000, "go": 100}


@pytest.mark.parametrize(
    ("address", "subscriber", "publisher"),
    [
        ("topic/x", "jms", "go"),
        ("topic/x", "go", "jms"),
        ("topic/x", "jms", "jms"),
        ("queue/x", "jms", "jms"),
        ("queue/x", "go", "go"),
    ],
)
async def test_the_router_of_the_subscriber_is_killed_then_that_of_the_publisher(
    address: str, subscriber: str, publisher: str, own_queues: RunningMesh
) -> None:
    mesh = own_queues
    by_subscriber, by_publisher = (",".join(str(mesh.address(router)) for router in order) for order in ("bca", "acb"))
    async with (
        foreign(subscriber, "subscribe", by_subscriber, address, COUNT, 100) as receiving,
        foreign(publisher, "publish", by_publisher, address, COUNT, 100) as sending,
    ):
        for victim in "ba":
            await receiving.event("part")
            mesh.signal(victim, signal.SIGKILL)
            await mesh.ending(victim)
            await mesh.start(victim)
        await receiving.event("received")
        await receiving.event("complete")
        await sending.event("complete")
        published = await sending.finish()
        received = await receiving.finish()
    assert set(received["numbers"]) == set(range(COUNT))
    assert len(received["numbers"]) <= COUNT + 2 * (DOUBTFUL + CREDIT[subscriber])
    assert (received["damaged"], published["refused"]) == (0, 0)
    assert set(published["numbers"]) == set(range(COUNT))
