"""The pipe above WebSocket: bytes come out as they went in, however frames cut them, and control frames stay below."""

import random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.events import CloseConnection, Ping, Pong, TextMessage

from router.websocket.stream import WebSocketFault, WebSocketPipe
from tests.router.websocket.peer import WebSocketPeer, Wire


async def read_to_end(pipe: WebSocketPipe, size: int = 1 << 19) -> bytes:
    parts = []
    while data := await pipe.read(size):
        parts.append(data)
    return b"".join(parts)


@pytest.mark.parametrize("seed", range(10))
async def test_fragments_pings_and_reads_of_any_size_do_not_show(seed: int) -> None:
    rng, peer, wire = random.Random(seed), WebSocketPeer(), Wire()
    said, frames = b"", b""
    for _ in range(60):
        parts = [rng.randbytes(rng.choice([0, 1, 125, 126, 70_000])) for _ in range(rng.randint(1, 4))]
        said += b"".join(parts)
        for at, part in enumerate(parts):
            frames += peer.say(part, ends=at == len(parts) - 1)
            frames += peer.tell(Ping(payload=b"are you there")) * rng.randint(0, 1)
    at = 0
    while at < len(frames):
        size = rng.choice([1, 2, 7, 100, 40_000])
        wire.come.append(frames[at : at + size])
        at += size
    pipe = WebSocketPipe(wire)
    assert await read_to_end(pipe, rng.choice([100, 1 << 19])) == said
    assert pipe.taken == wire.taken
    peer.hear(bytes(wire.written))
    assert peer.events and all(isinstance(event, Pong) for event in peer.events)


@pytest.mark.parametrize("step", [1, 3, 1000, 1 << 20])
@pytest.mark.parametrize("room", [0, 1, 5, 70_000])
async def test_output_arrives_whole_and_a_pong_never_within_a_frame(room: int, step: int) -> None:
    said, peer, wire = random.Random(1).randbytes(200_000 if step > 9 else 90), WebSocketPeer(), Wire(room, step)
    pipe, rest = WebSocketPipe(wire), memoryview(said)
    while rest:
        wire.come.append(peer.tell(Ping(payload=b"now")))
        assert await pipe.read(1000) == b""
        rest = rest[pipe.write(rest) :]
        rest = rest[await pipe.write_on(rest) :] if rest else rest
    await pipe.close()
    peer.hear(bytes(wire.written))
    assert peer.received == said
    assert peer.closed == (1000, "")
    assert Pong(payload=b"now") in peer.events


async def test_a_ping_that_comes_while_a_write_waits_is_answered_after_its_frame() -> None:
    peer, wire = WebSocketPeer(), Wire(room=0, step=10)
    pipe = WebSocketPipe(wire)
    wire.come.append(peer.tell(Ping(payload=b"now")))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pipe.write_on, bytes(1000))
        nursery.start_soon(pipe.read, 1000)
    wire.room = 1000
    assert await pipe.write_on(b"more") == 4
    peer.hear(bytes(wire.written))
    assert peer.received == bytes(1000) + b"more"
    assert peer.events == [Pong(payload=b"now")]


async def test_many_pings_at_once_get_one_pong() -> None:
    peer, wire = WebSocketPeer(), Wire()
    wire.come.append(b"".join(peer.tell(Ping(payload=b"%d" % number)) for number in range(500)))
    await WebSocketPipe(wire).read(1 << 19)
    peer.hear(bytes(wire.written))
    assert peer.events == [Pong(payload=b"499")]


async def test_a_ping_counts_as_handled_input_and_data_only_once_it_is_returned() -> None:
    peer, wire = WebSocketPeer(), Wire()
    pipe = WebSocketPipe(wire)
    wire.come.append(peer.say(b"data"))
    assert await pipe.read(1000) == b"data"
    assert pipe.ignored == 0
    wire.come.append(ping := peer.tell(Ping(payload=b"now")))
    await pipe.read(1000)
    assert pipe.ignored == len(ping)
    wire.come.append(peer.say(b"more"))
    assert await pipe.read(1000) == b"more"
    assert pipe.ignored == 0


async def test_a_frame_without_end_is_passed_on_as_it_comes() -> None:
    """Its length is below AMQP's limits nowhere; AMQP's and MQTT's own limits hold for its bytes."""
    wire = Wire()
    wire.come.append(b"\x82\xff\x3f" + bytes(7) + bytes(4) + b"the beginning")
    pipe = WebSocketPipe(wire)
    assert await pipe.read(1000) == b"the beginning"
    wire.come.append(b", and more")
    assert await pipe.read(1000) == b", and more"


@pytest.mark.parametrize(("code", "reason", "answer"), [(1000, "bye", 1000), (4321, "", 4321), (1005, "", 1005)])
async def test_a_close_is_answered_and_ends_the_input(code: int, reason: str, answer: int) -> None:
    peer, wire = WebSocketPeer(), Wire()
    pipe, last = WebSocketPipe(wire), peer.say(b"last")
    end = b"\x88\x80" + bytes(4) if code == 1005 else peer.tell(CloseConnection(code=code, reason=reason))
    wire.come.append(last + end + b"\x82")
    assert await read_to_end(pipe) == b"last"
    assert pipe.write(b"too late") == await pipe.write_on(b"too late") == len(b"too late")
    await pipe.close()
    other = WebSocketPeer()
    other.hear(bytes(wire.written))
    assert other.closed is not None and other.closed[0] == answer
    assert other.received == b"" and len(other.events) == 1


FAULTS = {
    "text": (WebSocketPeer().tell(TextMessage(data="AMQP")), 1003, "text message"),
    "no mask": (b"\x82\x04AMQP", 1002, "mask"),
    "an extension that was not agreed": (b"\xc2\x80" + bytes(4), 1002, "Reserved"),
    "an unknown opcode": (b"\x83\x80" + bytes(4), 1002, "opcode"),
    "a long ping": (b"\x89\xfe\x00\x7e" + bytes(4 + 126), 1002, "Control"),
    "a ping in fragments": (b"\x09\x80" + bytes(4), 1002, "control"),
    "a fragment of no message": (b"\x80\x80" + bytes(4), 1002, "CONTINUATION"),
    "a message within a message": (b"\x02\x80" + bytes(4) + b"\x82\x80" + bytes(4), 1002, "CONTINUATION"),
    "a code that nobody may send": (b"\x88\x82" + bytes(4) + b"\x03\xed", 1002, "local-only"),
}


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_fault_closes_with_its_code_once_the_input_before_it_is_returned(kind: str) -> None:
    frames, code, why = FAULTS[kind]
    peer, wire = WebSocketPeer(), Wire()
    wire.come += [peer.say(b"before") + frames, b"after"]
    pipe = WebSocketPipe(wire)
    assert await pipe.read(1000) == b"before"
    with pytest.raises(WebSocketFault, match=f"WebSocket: .*{why}"):
        await pipe.read(1000)
    assert await pipe.read(1000) == b"", "the rest is dropped, up to the end"
    assert not wire.come
    peer.hear(bytes(wire.written))
    assert peer.closed is not None and peer.closed[0] == code


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_input_does_more_than_end_the_connection(pieces: list[bytes]) -> None:
    async def read() -> None:
        wire = Wire()
        wire.come += pieces
        pipe = WebSocketPipe(wire)
        try:
            await read_to_end(pipe)
        except WebSocketFault:
            await read_to_end(pipe)
        await pipe.close()

    trio.run(read)
