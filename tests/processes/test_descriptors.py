"""Descriptors are few and connections many: strangers, and clients for whom there is no room, are sent away.

        a - a publisher, undisturbed
       / \\
      b---c - a subscriber, undisturbed
      |
      the crowd; each router has 128 descriptors
"""

from collections.abc import Iterator

import pytest
import trio

from router.amqp.format.errors import RESOURCE_LIMIT
from router.mesh.launcher import ROUTER_COMMAND
from router.mesh.quantities import Address
from tests.processes.background import background_traffic
from tests.processes.clients import Client, Clients
from tests.processes.mesh import RunningMesh, eventually, running
from tests.router.amqp.frames import HEADER, opening

LIMIT = 128
CROWD = 200
TOPIC = "topic/beside the crowd"


@pytest.fixture(scope="module")
def triangle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """In place of the usual one. Its routers may not have more, whatever this process has."""
    limited = ("sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh", *ROUTER_COMMAND)
    with running("triangle", tmp_path_factory.mktemp("triangle"), limited) as mesh:
        yield mesh


async def crowd(address: Address, says: bytes, nursery: trio.Nursery) -> None:
    """Connections that say so much, and stay as long as they are let."""

    async def stays(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                await stream.send_all(says)
                while await stream.receive_some():
                    pass
            except trio.BrokenResourceError:
                pass

    for _ in range(CROWD):
        nursery.start_soon(stays, await trio.open_tcp_stream(address.host, address.port))


SAYS = {"nothing": b"", "a part of its header": HEADER[:3], "an open": opening()}


@pytest.mark.parametrize("says", SAYS.values(), ids=SAYS)
@pytest.mark.parametrize("port", ["for clients", "for routers"])
async def test_a_crowd_keeps_out_nobody(
    says: bytes, port: str, triangle: RunningMesh, clients: Clients, nursery: trio.Nursery
) -> None:
    address = triangle.address("b") if port == "for clients" else triangle.inter("b")
    async with background_traffic(triangle, clients):
        await crowd(address, says, nursery)
        subscriber = await clients.subscriber(triangle.address("b"), TOPIC)
        publisher = await clients.publisher(triangle.address("b"), TOPIC)
        publisher.send(b"0")
        await clients.until(lambda: subscriber.numbers == [0])


async def test_a_neighbour_finds_its_way_through_a_crowd(triangle: RunningMesh, nursery: trio.Nursery) -> None:
    """Its start waits until it has its link to b; b dials c, and a dials b."""
    for router in ("a", "c"):
        await triangle.stop(router)
        await crowd(triangle.address("b"), HEADER[:3], nursery)
        await crowd(triangle.inter("b"), HEADER[:3], nursery)
        await triangle.start(router)


async def test_a_router_that_is_full_of_clients_says_so_and_still_shows_its_status(
    triangle: RunningMesh, clients: Clients
) -> None:
    async with background_traffic(triangle, clients):
        attached: list[Client] = []
        while True:
            client = await clients.connect(triangle.address("b"), f"client {len(attached)}")
            subscriber = client.subscriber(TOPIC)
            await clients.until(lambda: subscriber.attached or client.closed is not None)  # noqa: B023
            if client.closed is not None:
                break
            attached.append(client)
        assert client.closed.name == RESOURCE_LIMIT
        assert len((await triangle.status("b"))["subscribers"]) == len(attached)

        attached[0].close()
        await clients.until(lambda: attached[0].connection.closed)

        async def has_room() -> bool:
            client = await clients.connect(triangle.address("b"), "the next")
            subscriber = client.subscriber(TOPIC)
            await clients.until(lambda: subscriber.attached or client.closed is not None)
            return subscriber.attached

        await eventually(has_room)
        for client in attached:
            client.close()
