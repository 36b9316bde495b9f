"""A client of MQTT that comes to a router which has just started."""

from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import pytest
import trio

from router.mqtt.format.fields import properties
from router.mqtt.format.values import PacketKind
from tests.hangs import HANGS_S
from tests.processes.mesh import RunningMesh, eventually, running
from tests.router.mqtt import by_hand

CONNECT = by_hand.connect("reader", clean=False, found={"session-expiry-interval": 60})
GOODBYE = by_hand.packet(0xE0, b"\x00" + properties({"session-expiry-interval": 0}))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("pair", tmp_path, mqtt=True, boot_wait="60s") as mesh:
        yield mesh


async def test_it_is_told_of_its_session_when_the_router_has_heard_of_that(pair: RunningMesh) -> None:
    """The only one that knows of it, as it is not on disk, is stopped as the other one starts."""
    async with await client(pair, "b") as stream:
        assert await answer(stream, CONNECT) == (PacketKind.CONNACK, 0)
        assert await answer(stream, by_hand.subscribe(1, [("topic/t", 0)])) == (PacketKind.SUBACK, 0)
    pair.signal("a", SIGKILL)
    await pair.ending("a")
    pair.signal("b", SIGSTOP)
    pair.begin("a")

    async def waits() -> bool:
        return pair.log("a").count("waits for b before") == 2

    await eventually(waits)
    async with await client(pair, "a") as stream:
        await stream.send_all(CONNECT)
        pair.signal("b", SIGCONT)
        assert await answer(stream, b"") == (PacketKind.CONNACK, 1)
        await stream.send_all(GOODBYE)


async def client(mesh: RunningMesh, router: str) -> trio.SocketStream:
    address = mesh.mqtt(router)
    return await trio.open_tcp_stream(address.host, address.port)


async def answer(stream: trio.SocketStream, said: bytes) -> tuple[PacketKind, int]:
    """Of one short packet: its kind, and the first byte of its body."""
    await stream.send_all(said)
    with trio.fail_after(HANGS_S):
        packet = await stream.receive_some()
    return PacketKind(packet[0] >> 4), packet[2]
