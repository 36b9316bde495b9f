"""An attach that is read late: its client has given up the connection, and attached elsewhere.

    a - the attach that is late
   / \\
  b---c - subscriber
  |
  publisher
"""

from signal import SIGCONT, SIGSTOP

import pytest
import trio

from router.amqp.format.values import ACCEPTED
from tests.processes.by_hand import heard, lasting_attach
from tests.processes.clients import Clients, hold
from tests.processes.mesh import RunningMesh, eventually
from tests.processes.pair import LASTING
from tests.router.amqp.frames import BEGIN, opening

CONTAINER = "hostile"  # as frames by hand have it


async def until_in_contact(mesh: RunningMesh, router: str) -> None:
    async def is_so() -> bool:
        return all(route["contact"] for route in (await mesh.status(router))["routes"])

    await eventually(is_so)


@pytest.mark.parametrize("of_life", [None, b"formerly"], ids=["null", "map"])
async def test_the_life_that_went_on_elsewhere_goes_on(
    own_triangle: RunningMesh, clients: Clients, of_life: bytes | None
) -> None:
    """The late attach begins afresh, or is of a life that another has followed."""
    mesh, topic = own_triangle, "topic/late"
    subscriber = await clients.subscriber(mesh.address("c"), topic, respond=hold)
    stream = await trio.open_tcp_stream(mesh.address("a").host, mesh.address("a").port)
    await stream.send_all(opening())
    await heard(stream, BEGIN)
    mesh.signal("a", SIGSTOP)
    await stream.send_all(lasting_attach(0, receiver=False, address=topic, of_life=of_life))
    await stream.aclose()

    client = await clients.connect(mesh.address("b"), CONTAINER)
    publisher = client.publisher(topic, "link", second=True, **LASTING)
    await clients.until(lambda: publisher.link.credit > 0)
    publisher.send(b"1")
    await clients.until(lambda: subscriber.bodies == [b"1"])
    mesh.signal("a", SIGCONT)
    await until_in_contact(mesh, "a")
    assert (await mesh.status("a"))["publishers"] == []

    subscriber.link.update(subscriber.received[0].handle, ACCEPTED)
    subscriber.link.connection.wake()
    await clients.until(lambda: publisher.accepted == [0])
    assert publisher.detached is None
    publisher.link.detach()
    publisher.link.connection.wake()
    await eventually(lambda: forgotten(mesh))


async def forgotten(mesh: RunningMesh) -> bool:
    return not any([(await mesh.status(router))["publishers"] for router in mesh.routers])
