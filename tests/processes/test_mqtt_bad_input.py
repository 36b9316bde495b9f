"""Peers that break MQTT at a router's listener: their connection ends with one line in the log, everybody else goes on.

        a - a publisher of AMQP, undisturbed
       / \\
      b---c - a subscriber of AMQP, undisturbed
      |
      the troublemakers
"""

import random
from collections.abc import Iterator

import pytest
import trio

from router.mqtt.format.values import V3, PacketKind
from tests.hangs import HANGS_S
from tests.processes.background import background_traffic
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, eventually, running
from tests.router.mqtt import by_hand

MIB = 1 << 20
TOPIC = "topic/hostile"
MAX_MESSAGE = 256 * 1024
CONNECT, CONNECT_3 = by_hand.connect("hostile"), by_hand.connect("hostile", V3)
PUBREC, PUBREL, PUBCOMP, PUBACK = PacketKind.PUBREC, PacketKind.PUBREL, PacketKind.PUBCOMP, PacketKind.PUBACK
CLOSED = b""
"""Nothing is said to it in the end."""


def gone(reason: int) -> bytes:
    """What the DISCONNECT has in it."""
    return bytes((reason,))


ENDED: dict[str, tuple[bytes, bytes, str]] = {
    "random bytes": (random.Random(1).randbytes(2000), CLOSED, "a packet before its CONNECT"),
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", CLOSED, "a packet before its CONNECT"),
    "AMQP": (b"AMQP\x00\x01\x00\x00", CLOSED, "a packet before its CONNECT"),
    "another protocol": (by_hand.packet(0x10, b"\0\6MQIsdp\3\2\0\0\0\1x"), CLOSED, "the protocol 'MQIsdp'"),
    "another level": (by_hand.connect(version=9), b"\x20\x02\x00\x01", "the protocol level 9"),
    "a CONNECT of 1 MB": (by_hand.packet(0x10, bytes(MIB)), CLOSED, "a packet of 1048576 bytes"),
    "a name with a zero byte": (by_hand.packet(0x10, b"\0\4MQTT\5\2\0\0\0\0\1\0"), CLOSED, "a zero byte"),
    "a name that is not UTF-8": (by_hand.packet(0x10, b"\0\4MQTT\5\2\0\0\0\0\1\xff"), CLOSED, "not UTF-8"),
    "a will of no kind": (by_hand.connect(will=by_hand.WillByHand("q/x")), b"\x90", "no topic 'q/x'"),
    "a retained will": (by_hand.connect(will=by_hand.WillByHand(TOPIC, retain=True)), b"\x9a", "a retained will"),
    "a session without a name": (by_hand.connect("", V3, clean=False), b"\x20\x02\x00\x02", "without an identifier"),
    "a way to authenticate": (by_hand.connect(found={"authentication-method": "x"}), b"\x8c", "not supported"),
    "a PUBLISH before the CONNECT": (by_hand.publish(TOPIC, b"x"), CLOSED, "a packet before its CONNECT"),
    "a second CONNECT": (CONNECT + CONNECT, gone(0x82), "a second CONNECT"),
    "a second CONNECT of 3.1.1": (CONNECT_3 + CONNECT_3, CLOSED, "a second CONNECT"),
    "a retained message": (CONNECT + by_hand.packet(0x31, b"\0\7topic/x\0"), gone(0x9A), "a retained message"),
    "a topic with a zero byte": (CONNECT + by_hand.packet(0x30, b"\0\7topic/\0\0"), gone(0x81), "a zero byte"),
    "a topic that is not UTF-8": (CONNECT + by_hand.packet(0x30, b"\0\7topic/\xff\0"), gone(0x81), "not UTF-8"),
    "a topic with a wildcard": (CONNECT + by_hand.publish("topic/#", b""), gone(0x90), "cannot publish to"),
    "a topic of no kind, in 3.1.1": (CONNECT_3 + by_hand.publish("q/x", b"", 1, 1, V3), CLOSED, "no topic 'q/x'"),
    "a message that is too large": (CONNECT + by_hand.publish(TOPIC, bytes(2 * MAX_MESSAGE)), gone(0x95), "a packet"),
    "a packet of 256 MB": (CONNECT + b"\x30\xff\xff\xff\x7f", gone(0x95), "a packet of 268435455 bytes"),
    "a length without end": (CONNECT + b"\x30\xff\xff\xff\xff\xff", gone(0x81), "too many bytes"),
    "an unknown alias": (CONNECT + by_hand.publish("", b"", found={"topic-alias": 1}), gone(0x82), "topic alias 1"),
    "an alias of 0": (CONNECT + by_hand.publish(TOPIC, b"", found={"topic-alias": 0}), gone(0x94), "topic alias 0"),
    "an alias too high": (CONNECT + by_hand.publish(TOPIC, b"", found={"topic-alias": 65}), gone(0x94), "alias 65"),
    "no topic, no alias": (CONNECT + by_hand.publish("", b""), gone(0x90), "cannot publish to"),
    "a subscription identifier of 0": (
        CONNECT + by_hand.packet(0x82, b"\0\1\2\x0b\0\0\1t\0"), gone(0x82), "the value of a property is 0",
    ),
    "a subscription identifier of a publisher": (
        CONNECT + by_hand.publish(TOPIC, b"", found={"subscription-identifier": 1}), gone(0x82), "clients may not send",
    ),
    "an AUTH": (CONNECT + by_hand.packet(0xF0), gone(0x82), "sent AUTH"),
    "a packet of no type": (CONNECT + b"\0\0", gone(0x82), "type 0"),
    "a SUBSCRIBE of QoS 3": (CONNECT + by_hand.subscribe(1, [(TOPIC, 3)]), gone(0x81), "options"),
}  # fmt: skip
"""What is said, what the answer ends with, and what the log says."""

ANSWERED: dict[str, tuple[bytes, bytes]] = {
    "a PUBREL of nothing": (by_hand.ack(PUBREL, 7), b"\x70\x03\x00\x07\x92"),
    "a PUBREC of nothing": (by_hand.ack(PUBREC, 7), b"\x62\x03\x00\x07\x92"),
    "a PUBACK and a PUBCOMP of nothing": (by_hand.ack(PUBACK, 7) + by_hand.ack(PUBCOMP, 7), b""),
    "a topic of no kind": (by_hand.publish("q/x", b"", 1, 7), b"\x00\x07\x90"),
    "a topic of no kind, at QoS 0": (by_hand.publish("q/x", b""), b""),
    "an UNSUBSCRIBE from nothing": (by_hand.unsubscribe(7, ["topic/x"]), b"\xb0\x04\x00\x07\x00\x11"),
    "a wildcard amid a level": (by_hand.subscribe(7, [("topic/a+", 2)]), b"\x90\x04\x00\x07\x00\x8f"),
    "a wildcard for all topics": (by_hand.subscribe(7, [("#", 2)]), b"\x90\x04\x00\x07\x00\x8f"),
    "a shared subscription": (by_hand.subscribe(7, [("$share/g/topic/x", 2)]), b"\x90\x04\x00\x07\x00\x9e"),
}
"""What ends nothing, and its answer."""


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    limits: dict[str, int | str] = {"max_message": MAX_MESSAGE, "opening": "2s"}
    with running("triangle", tmp_path_factory.mktemp("besieged"), limits=limits, mqtt=True) as mesh:
        yield mesh


async def provoke(mesh: RunningMesh, said: bytes, told: bytes | None = None) -> bytes:
    """What router b says until it has told this, or closes."""
    address, heard = mesh.mqtt("b"), b""
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        with trio.fail_after(HANGS_S):
            try:
                await stream.send_all(said)
                while (told is None or told not in heard) and (came := await stream.receive_some()):
                    heard += came
            except trio.BrokenResourceError:
                pass
    return heard


@pytest.mark.parametrize("kind", ENDED)
async def test_who_says_what_nobody_may_is_sent_away_with_a_line_in_the_log(kind: str, besieged: RunningMesh) -> None:
    said, told, logged = ENDED[kind]
    before = len(besieged.log("b"))
    heard = await provoke(besieged, said)
    assert told in heard
    lines = [line for line in besieged.log("b")[before:].splitlines() if " WARNING " in line]
    assert len([line for line in lines if logged in line]) == 1, lines


@pytest.mark.parametrize("kind", ANSWERED)
async def test_what_is_wrong_and_harms_nothing_is_answered(kind: str, besieged: RunningMesh) -> None:
    said, told = ANSWERED[kind]
    heard = await provoke(besieged, CONNECT + said + by_hand.PINGREQ, b"\xd0\x00")
    assert told in heard


@pytest.mark.parametrize(("size", "why"), [(5, "the client has not sent a protocol header"), (9, "no CONNECT in time")])
async def test_who_says_no_connect_is_given_up(besieged: RunningMesh, size: int, why: str) -> None:
    assert await provoke(besieged, CONNECT[:size]) == b""
    assert why in besieged.log("b")


async def test_floods_by_who_does_not_read_harm_nobody(besieged: RunningMesh, clients: Clients) -> None:
    """Messages for one who does not read, answers that nobody reads, and pings: without keep-alive."""
    address, other = besieged.mqtt("b"), besieged.mqtt("a")
    at_first = (await besieged.status("b"))["rss_bytes"]
    deaf = [await trio.open_tcp_stream(address.host, address.port) for _ in range(3)]
    await deaf[0].send_all(by_hand.connect("deaf") + by_hand.subscribe(1, [(TOPIC, 0)]))

    async def there() -> bool:
        return any(link["address"] == TOPIC for link in (await besieged.status("b"))["subscribers"])

    async def pour(stream: trio.SocketStream, said: bytes) -> None:
        with trio.move_on_after(3):
            while True:
                await stream.send_all(said)

    await eventually(there)
    async with background_traffic(besieged, clients), trio.open_nursery() as nursery:
        writer = await trio.open_tcp_stream(other.host, other.port)
        await writer.send_all(by_hand.connect("writer"))
        await deaf[1].send_all(by_hand.connect("pinging"))
        await deaf[2].send_all(by_hand.connect("unanswered", V3))
        nursery.start_soon(pour, writer, by_hand.publish(TOPIC, bytes(50_000)))
        nursery.start_soon(pour, deaf[1], 10_000 * by_hand.PINGREQ)
        unanswered = (by_hand.publish(TOPIC, b"x", 1, 1 + n, V3) for n in range(2000))
        nursery.start_soon(pour, deaf[2], b"".join(unanswered))
    assert (await besieged.status("b"))["rss_bytes"] - at_first < 60 * MIB
    for stream in (*deaf, writer):
        await stream.aclose()


async def test_after_all_of_it_others_go_on_and_memory_is_back(besieged: RunningMesh, clients: Clients) -> None:
    async def play() -> int:
        for said, _, _ in ENDED.values():
            await provoke(besieged, said)
        for said, _ in ANSWERED.values():
            await provoke(besieged, CONNECT + said + by_hand.PINGREQ, b"\xd0\x00")
        return int((await besieged.status("b"))["rss_bytes"])

    async with background_traffic(besieged, clients):
        before = await play()
        after = await play()
    assert after - before < 15 * MIB
