"""Peers that break AMQP, or just break: their connection ends with a line in the log, everybody else goes on.

        a - a publisher, undisturbed
       / \\
      b---c - a subscriber, undisturbed
      |
      the troublemaker

For kinds of bad input (`bad_inputs`) the mesh is a ring, and the publisher at b, too.
"""

import random
import socket
import struct
from collections.abc import Iterator

import pytest
import trio

from router.amqp.format.message import data_message
from router.amqp.sasl.scram import Verifier
from router.mesh.quantities import Address
from router.neighbours import LANES
from router.security.users import UserFile, write_users
from tests.hangs import HANGS_S
from tests.processes.background import background_traffic
from tests.processes.bad_inputs import ASKED, ASKED_ROUTERS, BODIES, CLIENTS, RAW, Bad, as_router
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, eventually, running
from tests.router.amqp.frames import (
    ATTACH,
    FLOW,
    Symbol,
    attach,
    body_frame,
    frame,
    opening,
    settlement,
    transfer,
)
from topic.properties import GENERATION

WINDOW = 1000
MIB = 1 << 20
ROUNDS = 2
ATTACHED = b"\x00\x53" + bytes((ATTACH,))


async def provoke(address: Address, data: bytes, told: bytes | None = None, first: bytes = b"") -> bytes:
    """What the peer says until it has told this, or closes; a peer that resets has closed, too. What comes `first` ends
    with an attach, which is answered before the rest is said."""
    said = b""
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        with trio.fail_after(HANGS_S):
            try:
                if first:
                    await stream.send_all(first)
                    while ATTACHED not in said:
                        said += await stream.receive_some()
                await stream.send_all(data)
                while (told is None or told not in said) and (heard := await stream.receive_some()):
                    said += heard
            except trio.BrokenResourceError:
                pass
    return said


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """Of ring a-b-c-d, d has stopped."""
    with running(
        "ring", tmp_path_factory.mktemp("besieged"), limits={"unsettled": 4000, "links": 300, "sessions": 40}
    ) as mesh:
        trio.run(mesh.stop, "d")
        yield mesh
        trio.run(mesh.start, "d")


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """Asks who comes."""
    folder = tmp_path_factory.mktemp("asking")
    (folder / "secret").write_text("a secret of routers, 29 letters")
    write_users(folder / "users", UserFile({"bob": Verifier.of("open sesame")}))
    files = {"secret": "secret", "users": "users", "plain": "in-clear"}
    with running("pair", folder, security=files) as mesh:
        yield mesh


async def says(bad: Bad, mesh: RunningMesh) -> bytes:
    address = mesh.address("b") if bad.listener in (CLIENTS, ASKED) else mesh.inter("b")
    return await provoke(address, bad.said, None if bad.logged else bad.told, bad.first)


@pytest.mark.parametrize("kind", RAW)
async def test_who_says_what_nobody_may_is_told_so(kind: str, besieged: RunningMesh, asking: RunningMesh) -> None:
    bad = RAW[kind]
    mesh = asking if bad.listener in (ASKED, ASKED_ROUTERS) else besieged
    known = len(mesh.log("b"))

    async def is_logged() -> bool:
        return f"ended: {bad.logged}" in mesh.log("b")[known:]

    assert bad.told in await says(bad, mesh)
    if bad.logged:
        await eventually(is_logged)


@pytest.mark.parametrize("kind", [kind for kind, bad in RAW.items() if bad.limit])
async def test_who_goes_beyond_a_limit_is_logged_and_counted(kind: str, besieged: RunningMesh) -> None:
    bad = RAW[kind]
    known, before = len(besieged.log("b")), (await besieged.status("b"))["exceeded"]
    await says(bad, besieged)

    async def is_noted() -> bool:
        exceeded = (await besieged.status("b"))["exceeded"]
        is_logged = f"ended: {bad.told.decode()}: " in besieged.log("b")[known:]
        return is_logged and exceeded == before | {bad.limit: before[bad.limit] + 1}

    await eventually(is_noted)


async def tells(mesh: RunningMesh, kind: str) -> None:
    """Router c, as d, which is not there."""
    told, said = BODIES[kind]
    assert told.encode() in await provoke(mesh.inter("c"), said)


@pytest.mark.parametrize("kind", BODIES)
async def test_a_neighbour_that_says_what_none_may_is_sent_away(kind: str, besieged: RunningMesh) -> None:
    await tells(besieged, kind)


async def test_after_all_of_it_others_go_on_and_memory_is_back(
    besieged: RunningMesh, asking: RunningMesh, clients: Clients
) -> None:
    assert len(RAW) + len(BODIES) >= 60

    async def taken() -> int:
        statuses = [await besieged.status("b"), await besieged.status("c"), await asking.status("b")]
        return sum(status["rss_bytes"] for status in statuses)

    async with background_traffic(besieged, clients, publisher_at="b"):
        before = await taken()
        for _ in range(ROUNDS):
            for bad in RAW.values():
                await says(bad, asking if bad.listener in (ASKED, ASKED_ROUTERS) else besieged)
            for kind in BODIES:
                await tells(besieged, kind)
        after = await taken()
    assert (
        after - before < ROUNDS * 10 * MIB
    )  # code, buffers, what the allocator and the collector have not come to yet


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
    topic = "topic/aborted"
    subscriber = await clients.subscriber(triangle.address("c"), topic)
    async with await clients.stream(triangle.address("b")) as stream:
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
    hasty_triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/silent"
    address = hasty_triangle.address("b")
    async with (
        background_traffic(hasty_triangle, clients),
        await trio.open_tcp_stream(address.host, address.port) as silent,
    ):
        credit = frame(FLOW, 0, 1000, 0, 1000, 0, 0, 100)
        await silent.send_all(opening() + attach("link", 0, receiver=True, address=topic) + credit)
        publisher = await clients.publisher(hasty_triangle.address("a"), topic)
        await awaits_b(hasty_triangle, topic)
        publisher.send(b"0")
        await clients.until(lambda: publisher.accepted == [0])
        assert (await hasty_triangle.status("b"))["subscribers"] == []


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
        assert "the router belongs to mesh 'square', expected mesh 'triangle'" in triangle.log("b")


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
        bodies = b"".join(body_frame(lane, random.Random(4).randbytes(500)) for lane in range(len(LANES)))
        assert b"amqp:not-allowed" in await provoke(triangle.inter("b"), as_router("a", "triangle") + bodies)
        assert all(link["up"] for link in (await triangle.status("b"))["links"])
        assert "link to router a is down" not in triangle.log("b")
