"""Peers that break AMQP, or just break: their connection ends with a line in the log, everybody else goes on.

        a - a publisher, undisturbed
       / \\
      b---c - a subscriber, undisturbed
      |
      the troublemaker
"""

import random
import socket
import struct

import pytest
import trio

from router.amqp.format.message import data_message
from router.amqp.format.values import SND_SETTLED
from router.mesh.quantities import Address
from router.neighbours import MESH, VERSION, WIRE
from tests.processes.background import background_traffic
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, eventually
from tests.router.amqp.frames import (
    FLOW,
    HEADER,
    OPEN,
    Described,
    Raw,
    Symbol,
    attach,
    frame,
    opening,
    settlement,
    transfer,
)
from topic.properties import GENERATION

MAX_FRAME = 64 * 1024
WINDOW = 1000
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

GARBAGE = {
    "random bytes": random.Random(1).randbytes(2000),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS handshake": bytes.fromhex("160301020001000001fc0303") + bytes(500),
    "another version of AMQP": b"AMQP\x00\x00\x09\x01" + bytes(8),
    "random bytes behind the header": HEADER + random.Random(2).randbytes(2000),
    "random bytes in place of SASL": SASL_HEADER + random.Random(3).randbytes(2000),
    "a frame that is too small": HEADER + b"\x00\x00\x00\x03\x02\x00\x00\x00",
    "a frame of 2 GiB": HEADER + b"\x7f\xff\xff\xff\x02\x00\x00\x00" + bytes(100),
    "a frame larger than was agreed": opening() + frame(OPEN, "x" * MAX_FRAME),
    "a second open": opening() + frame(OPEN, "hostile again"),
    "an attach before the open": HEADER + attach("link", 0, receiver=True),
    "a transfer on no link": opening() + transfer(7, 0),
    "a transfer without credit": opening() + attach("link", 0, receiver=False) + 3000 * transfer(0, 0),
    "a value cut short": HEADER + frame(OPEN, Raw(b"\xb1\x00\x00\xff\xffshort")),
    "deep nesting": HEADER + frame(OPEN, "deep", None, None, None, None, None, None, None, Raw(b"\xc0\xff\x01" * 5000)),
    "a frame of nothing we know": opening() + frame(0x7E, Described(0x7F, 1)),
}


async def provoke(address: Address, data: bytes) -> bytes:
    """What the peer says until it closes; a peer that resets has closed, too."""
    said = b""
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        with trio.fail_after(10):
            try:
                await stream.send_all(data)
                while heard := await stream.receive_some():
                    said += heard
            except trio.BrokenResourceError:
                pass
    return said


@pytest.mark.parametrize("port", ["for clients", "for routers"])
@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_ends_its_connection_and_nothing_else(
    garbage: str, port: str, triangle: RunningMesh, clients: Clients
) -> None:
    address = triangle.address("b") if port == "for clients" else triangle.inter("b")
    before = triangle.log("b").count("WARNING")
    async with background_traffic(triangle, clients):
        await provoke(address, GARBAGE[garbage])

        async def logged() -> bool:
            return triangle.log("b").count("WARNING") > before

        await eventually(logged)


async def reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


async def test_a_client_that_vanishes_in_the_middle_of_a_transfer_leaves_nothing(
    triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/cut off"
    subscriber = await clients.subscriber(triangle.address("c"), topic)
    async with background_traffic(triangle, clients):
        for whole in range(5):
            address = triangle.address("b")
            stream = await trio.open_tcp_stream(address.host, address.port)
            await stream.send_all(opening() + attach("link", 0, receiver=False, address=topic))
            await has_publisher(triangle, topic)
            parts = [transfer(0, n, b"%d" % n, payload=data_message(b"%d" % n)) for n in range(whole)]
            partial = transfer(0, whole, b"cut", more=True, payload=bytes(60_000))
            await stream.send_all(b"".join(parts) + 3 * partial + partial[:1000])
            await clients.until(lambda: len(subscriber.received) == sum(range(whole + 1)))  # noqa: B023
            await reset(stream)
            await has_publisher(triangle, topic, expected=False)
        assert subscriber.numbers == [n for whole in range(5) for n in range(whole)]


async def test_what_is_resumed_though_our_map_does_not_list_it_may_be_settled(
    triangle: RunningMesh, clients: Clients
) -> None:
    """AMQP 1.0 2.7.5: it is ignored, and so is what becomes of it."""
    topic, address = "topic/resumed in vain", triangle.address("b")
    subscriber = await clients.subscriber(triangle.address("c"), topic)
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        properties = {Symbol(GENERATION): b"8 bytes."}
        resumed = attach("link", 0, receiver=False, address=topic, unsettled={b"listed": None}, properties=properties)
        await stream.send_all(opening() + resumed)
        await has_publisher(triangle, topic)
        in_vain = [transfer(0, number, b"%d" % number, resume=True) for number in range(3)]
        await stream.send_all(b"".join(in_vain) + settlement(0, 2))
        await stream.send_all(transfer(0, 3, b"new", payload=data_message(b"0")))
        await clients.until(lambda: subscriber.numbers == [0])


async def test_whoever_aborts_more_transfers_than_the_window_has_room_for_goes_on(
    triangle: RunningMesh, clients: Clients
) -> None:
    topic, address = "topic/aborted", triangle.address("b")
    subscriber = await clients.subscriber(triangle.address("c"), topic)
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(opening() + attach("link", 0, receiver=False, address=topic))
        await has_publisher(triangle, topic)
        begun = (transfer(0, n, b"%d" % n, more=True) + transfer(0, n, aborted=True) for n in range(2 * WINDOW))
        await stream.send_all(b"".join(begun))
        await stream.send_all(transfer(0, 2 * WINDOW, b"whole", payload=data_message(b"0")))
        await clients.until(lambda: subscriber.numbers == [0])
    await has_publisher(triangle, topic, expected=False)


async def test_who_does_not_heed_its_first_credit_goes_on_within_the_window(
    triangle: RunningMesh, clients: Clients
) -> None:
    topic, address = "topic/heedless", triangle.address("b")
    subscriber = await clients.subscriber(triangle.address("c"), topic, credit=200)
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(opening() + attach("link", 0, receiver=False, address=topic))
        await has_publisher(triangle, topic)
        sent = [transfer(0, n, b"%d" % n, payload=data_message(b"%d" % n)) for n in range(100)]
        await stream.send_all(b"".join(sent))
        await clients.until(lambda: subscriber.numbers == list(range(100)))
    await has_publisher(triangle, topic, expected=False)


async def has_publisher(mesh: RunningMesh, topic: str, *, expected: bool = True) -> None:
    """Until b has answered the attach of a publisher of the topic, or none is there any more."""

    async def known() -> bool:
        found = [link["status"] for link in (await mesh.status("b"))["publishers"] if link["address"] == topic]
        return found == (["attached"] if expected else [])

    await eventually(known)


async def test_a_subscriber_that_falls_silent_holds_up_nobody_for_longer_than_the_idle_timeout(
    triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/silent"
    address = triangle.address("b")
    async with (
        background_traffic(triangle, clients),
        await trio.open_tcp_stream(address.host, address.port) as silent,
    ):
        credit = frame(FLOW, 0, 1000, 0, 1000, 0, 0, 100)
        await silent.send_all(opening() + attach("link", 0, receiver=True, address=topic) + credit)
        publisher = await clients.publisher(triangle.address("a"), topic)
        await awaits_b(triangle, topic)
        publisher.send(b"0")
        await clients.until(lambda: publisher.accepted == [0])
        assert (await triangle.status("b"))["subscribers"] == []


async def awaits_b(mesh: RunningMesh, topic: str) -> None:
    """Until b has a subscriber of the topic that is attached."""

    async def attached() -> bool:
        links = (await mesh.status("b"))["subscribers"]
        return any((link["address"], link["status"]) == (topic, "attached") for link in links)

    await eventually(attached)


async def test_clients_that_come_and_go_at_once_leave_nothing(triangle: RunningMesh, clients: Clients) -> None:
    async with background_traffic(triangle, clients):
        for number in range(100):
            address = triangle.address("b")
            stream = await trio.open_tcp_stream(address.host, address.port)
            said = opening() + attach(f"link {number}", 0, receiver=number % 2 == 0, address="topic/background")
            await stream.send_all(said[: len(said) - number % 3])
            await reset(stream)
        assert (await triangle.status("b"))["state"] == "ready"


async def test_a_client_at_the_port_for_routers_is_sent_away(triangle: RunningMesh, clients: Clients) -> None:
    async with background_traffic(triangle, clients):
        client = await clients.connect(triangle.inter("b"), "a client", expect_open=False)
        await clients.until(lambda: client.connection.closed)
        assert client.closed is not None
        assert client.closed.name == "amqp:not-allowed"


async def test_a_stranger_from_another_mesh_is_sent_away(triangle: RunningMesh, clients: Clients) -> None:
    async with background_traffic(triangle, clients):
        properties = {"oncemesh:mesh": "square"}
        client = await clients.connect(triangle.inter("b"), "a", expect_open=False, properties=properties)
        await clients.until(lambda: client.connection.closed)
        assert client.closed is not None
        assert "triangle" not in client.closed.description and not client.connection.remote_container
        assert "a router of mesh 'square', this is mesh 'triangle'" in triangle.log("b")


async def test_whoever_looks_at_a_router_without_end_harms_nobody(triangle: RunningMesh, clients: Clients) -> None:
    address = triangle.address("b")
    look = opening() + attach("look", 0, receiver=True, address="$status")
    credit = frame(FLOW, 0, 2**31 - 1, 0, 2**31 - 1, 0, 0, 2**31 - 1)
    async with background_traffic(triangle, clients), trio.open_nursery() as nursery:
        for _ in range(10):
            stream = await trio.open_tcp_stream(address.host, address.port)
            await stream.send_all(look + credit)
            nursery.start_soon(reads, stream)
        for _ in range(5):
            assert (await triangle.status("b"))["state"] == "ready"
        nursery.cancel_scope.cancel()


async def reads(stream: trio.SocketStream) -> None:
    async with stream:
        while await stream.receive_some():
            pass


async def test_an_impostor_does_not_take_the_place_of_a_neighbour_that_lives(
    triangle: RunningMesh, clients: Clients
) -> None:
    """In an open mesh, where nobody can prove that he is router a."""
    async with background_traffic(triangle, clients):
        properties = {MESH: "triangle", WIRE: VERSION}
        impostor = await clients.connect(triangle.inter("b"), "a", properties=properties)
        links = [
            impostor.publisher(f"oncemesh.{name}", snd_settle_mode=SND_SETTLED) for name in ("linkstate", "channel")
        ]
        await clients.until(lambda: impostor.connection.closed or all(link.link.credit > 0 for link in links))
        for link in links:
            link.send(random.Random(4).randbytes(500), settled=True)
        await clients.until(lambda: impostor.connection.closed)
        assert all(link["up"] for link in (await triangle.status("b"))["links"])
        assert "link to router a is down" not in triangle.log("b")
