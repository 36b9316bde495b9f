"""Large messages that nobody takes: routers hold what windows allow, in bytes, and say for whom.

publisher - a     c - subscriber
"""

from typing import Any

import pytest
import trio

from tests.hangs import HANGS_S
from tests.processes.clients import Clients, Subscriber, hold
from tests.processes.deaf import Deaf
from tests.processes.mesh import RunningMesh, eventually

pytestmark = pytest.mark.real_start  # its memory is looked at

COUNT = 150
MIB = 1 << 20
MOST_RSS = 150 * MIB
PATIENCE_S = HANGS_S


async def attached(mesh: RunningMesh, clients: Clients, topic: str, credit: int) -> tuple[Deaf, Subscriber]:
    """A subscriber at c that can be deafened."""
    at = mesh.address("c")
    stream = Deaf(await trio.open_tcp_stream(at.host, at.port))
    subscriber = (await clients.over(stream, "subscriber")).subscriber(topic, credit=credit, respond=hold)
    await clients.until(lambda: subscriber.attached)
    return stream, subscriber


async def small(mesh: RunningMesh) -> bool:
    return all([(await mesh.status(router))["rss_bytes"] < MOST_RSS for router in mesh.routers])


@pytest.mark.parametrize("credit", [0, 2 * COUNT], ids=["grants no credit", "does not read"])
async def test_what_nobody_takes_does_not_fill_the_routers(
    triangle: RunningMesh, clients: Clients, credit: int
) -> None:
    topic = "topic/memory"
    stream, subscriber = await attached(triangle, clients, topic, credit)
    if credit:
        stream.deafen()
    publisher = await clients.publisher(triangle.address("a"), topic)
    publisher.feed = iter([bytes(MIB)] * COUNT)
    publisher.pump()

    async def held() -> bool:
        (status,) = (await triangle.status("a"))["publishers"]
        return bool(status["held_for"] == ["router c"] and status["bytes"] > 6 * MIB)

    await eventually(held)
    assert await small(triangle)
    stream.listen()
    subscriber.respond = lambda delivery: delivery.accept()
    subscriber.link.flow(2 * COUNT - credit)
    subscriber.link.connection.wake()
    for delivery in subscriber.received:
        delivery.accept()
    await clients.until(lambda: len(publisher.accepted) == COUNT, PATIENCE_S)
    assert await small(triangle)


async def test_a_drain_waits_for_what_the_connection_has_yet_to_take(triangle: RunningMesh, clients: Clients) -> None:
    topic = "topic/drained-large"
    _, subscriber = await attached(triangle, clients, topic, 0)
    publisher = await clients.publisher(triangle.address("a"), topic)
    publisher.feed = iter([bytes(MIB)] * 3)
    publisher.pump()

    async def queued() -> bool:
        links: list[dict[str, Any]] = (await triangle.status("c"))["subscribers"]
        return [link["queued"] for link in links if link["address"] == topic] == [3]

    await eventually(queued)
    subscriber.link.drain(10)
    subscriber.link.connection.wake()
    await clients.until(lambda: subscriber.link.credit == 0)
    assert len(subscriber.received) == 3
    for delivery in subscriber.received:
        delivery.accept()
    await clients.until(lambda: len(publisher.accepted) == 3)
