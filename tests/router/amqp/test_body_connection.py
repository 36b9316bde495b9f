"""Bodies between two containers of ours, beside AMQP on one connection."""

import gc
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.amqp.body_connection import BodyConnection
from router.amqp.format.errors import FRAMING_ERROR, NOT_ALLOWED, RESOURCE_LIMIT, AmqpError
from router.amqp.format.values import HEARTBEAT
from router.amqp.frames.bodies import PART, BodyReader, Buffer, framed
from tests.router.amqp.frames import CLOSE, HEADER, OPEN, body_frame, frame
from tests.router.amqp.pair import Pair, Recorder
from tests.router.amqp.server import condition_of

MAX_FRAME = 64
MAX_BODY = 300
LANES = (0, 1, 2)


class Reading(Recorder):
    """Keeps what lies in an input beyond that."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[tuple[int, bytes]] = []

    def on_body(self, connection: BodyConnection, lane: int, body: Buffer) -> None:
        self.bodies.append((lane, bytes(body)))
        self.events.append(("body", bytes(body)))


class Between(Pair):
    """Two of ours; each has opened."""

    recorder = Reading
    client: BodyConnection
    server: BodyConnection
    here: Reading
    there: Reading

    def __init__(self, **settings: Any) -> None:
        super().__init__(BodyConnection, **{"max_frame": 4096, "max_body": 100_000, "lanes": 2} | settings)


def read(bodies: BodyReader, pieces: Iterable[bytes]) -> list[tuple[int | None, bytes]]:
    return [(lane, bytes(found)) for piece in pieces for lane, found in bodies.split(piece)]


def joined(said: list[tuple[int | None, bytes]]) -> list[tuple[int | None, bytes]]:
    """Frames of AMQP that follow each other may come as one."""
    result = said[:1]
    for lane, what in said[1:]:
        if lane is None and result[-1][0] is None:
            result[-1] = None, result[-1][1] + what
        else:
            result.append((lane, what))
    return result


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


def let_in() -> BodyReader:
    bodies = BodyReader(MAX_FRAME, MAX_BODY, len(LANES))
    bodies.are_let_in = True
    return bodies


SAID = st.lists(
    st.one_of(
        st.tuples(st.none(), st.binary(max_size=MAX_FRAME - 8).map(lambda end: _amqp(end))),
        st.tuples(st.sampled_from(LANES), st.binary(max_size=MAX_BODY)),
    ),
    max_size=12,
)


def _amqp(end: bytes) -> bytes:
    return (8 + len(end)).to_bytes(4, "big") + b"\x02\0\0\0" + end


@given(SAID, st.lists(st.integers(1, 200), max_size=20), st.booleans())
def test_whatever_is_said_comes_whole_and_in_order_however_it_is_read(
    said: list[tuple[int | None, bytes]], sizes: list[int], apart: bool
) -> None:
    data = HEADER
    for lane, what in said:
        given = [what[:3], what[3:]] if apart else [what]
        data += what if lane is None else b"".join(framed(lane, given, MAX_FRAME))
    found = read(let_in(), cut(data, sizes))
    assert joined(found) == joined([(None, HEADER), *said])


@given(st.lists(st.tuples(st.sampled_from(LANES), st.binary(min_size=1, max_size=MAX_BODY // 3)), max_size=20))
def test_a_lane_goes_on_while_another_has_a_part(said: list[tuple[int, bytes]]) -> None:
    frames: dict[int, list[bytes]] = {lane: [] for lane in LANES}
    for lane, body in said:
        parts = framed(lane, [body], MAX_FRAME)
        frames[lane] += [b"".join(parts[i : i + 2]) for i in range(0, len(parts), 2)]
    data = HEADER
    while any(frames.values()):
        for lane in LANES:
            data += frames[lane].pop(0) if frames[lane] else b""
    found = read(let_in(), [data])[1:]
    for lane in LANES:
        assert [body for at, body in found if at == lane] == [body for at, body in said if at == lane]


@pytest.mark.parametrize(
    ("said", "condition"),
    [
        (body_frame(0, bytes(MAX_FRAME)), FRAMING_ERROR),
        (b"\0\0\0\x05\x02\x02\0\0", FRAMING_ERROR),
        (body_frame(0, b"behind", offset=3), FRAMING_ERROR),
        (body_frame(0, b"behind", offset=0), FRAMING_ERROR),
        (body_frame(0, bytes(50), PART) * 7, RESOURCE_LIMIT),
        (b"".join(body_frame(lane, bytes(50), PART) for lane in LANES) * 3, RESOURCE_LIMIT),
        (body_frame(len(LANES), b"body"), FRAMING_ERROR),
        (body_frame(len(LANES), b"part", PART), FRAMING_ERROR),
        (body_frame(0, b"", PART), FRAMING_ERROR),
    ],
)
def test_what_no_neighbour_says(said: bytes, condition: str) -> None:
    with pytest.raises(AmqpError) as raised:
        read(let_in(), [HEADER, said])
    assert raised.value.condition == condition


def test_bodies_come_in_order_and_whole() -> None:
    pair = Between()
    pair.server.send(1, [b"to the client"])
    bodies = [(n % 2, bytes([n]) * size) for n, size in enumerate((0, 1, 4088, 4089, 100_000))]
    for lane, body in bodies:
        pair.client.send(lane, [body[:10], body[10:]])
    pair.pump()
    assert pair.there.bodies == bodies and pair.here.bodies == [(1, b"to the client")]


class Eager(Reading):
    def on_open(self, connection: Any) -> None:
        super().on_open(connection)
        connection.send(0, [b"first"])


class Hasty(Between):
    recorder = Eager


def test_a_body_may_follow_an_open_and_precede_a_close_in_one_write() -> None:
    pair = Hasty()
    assert pair.here.events == [("open", "server"), ("body", b"first")]
    assert pair.there.events == [("open", "client"), ("body", b"first")]
    pair.client.send(0, [b"last"])
    pair.client.close()
    pair.pump()
    assert pair.there.events[2:] == [("body", b"last"), ("close", None)] and not pair.errors


class Brief(Eager):
    def on_open(self, connection: Any) -> None:
        super().on_open(connection)
        connection.close()


def test_between_an_open_and_a_close_that_are_written_together_nothing_is_said() -> None:
    client = BodyConnection(there := Reading(), container="client", server=False, max_frame=512, max_body=99, lanes=2)
    server = BodyConnection(Brief(), container="server", server=True, max_frame=512, max_body=99, lanes=2)
    client.open()
    while (data := client.data_to_send()) or (answer := server.data_to_send()):
        if data:
            server.receive(data, 0.0)
        else:
            client.receive(answer, 0.0)
    assert there.events == [("open", "server"), ("close", None)]


def test_behind_a_close_nothing_is_said() -> None:
    pair = Between()
    pair.client.close()
    assert pair.client.data_to_send()
    pair.client.send(0, [b"late"])
    assert not pair.client.data_to_send()


def test_frames_of_amqp_that_follow_each_other_are_taken_at_once() -> None:
    assert read(let_in(), [HEADER + HEARTBEAT * 3 + body_frame(0, b"b") + HEARTBEAT * 2]) == [
        (None, HEADER + HEARTBEAT * 3),
        (0, b"b"),
        (None, HEARTBEAT * 2),
    ]


def test_what_was_read_last_is_not_kept_by_the_error_that_it_made() -> None:
    gc.disable()
    try:
        ended = []
        tracemalloc.start()
        for _ in range(20):
            server = BodyConnection(Reading(), container="x", server=True, max_frame=4096, max_body=1000, lanes=2)
            with suppress(AmqpError):
                server.receive(b"".join((HEADER, body_frame(0, bytes(400_000)))), 0.0)
            assert server.error is not None
            server.release()
            ended.append(server)
        assert tracemalloc.get_traced_memory()[0] < 20 * 50_000
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("kind", [2, PART])
def test_strangers_have_no_bodies(kind: int) -> None:
    class Refusing(Reading):
        def on_open(self, connection: Any) -> None:
            connection.refuse(NOT_ALLOWED, "no neighbour")

    for handler, said in ((Reading(), HEADER), (Refusing(), HEADER + frame(OPEN, "x"))):
        server = BodyConnection(handler, container="server", server=True, max_frame=4096, max_body=1000, lanes=2)
        assert condition_of(server, said + body_frame(0, b"body", kind)) == NOT_ALLOWED
        assert not handler.bodies


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    st.lists(st.integers(1, 120), max_size=6),
)
def test_what_is_damaged_ends_its_connection_and_nothing_else(flips: list[tuple[int, int]], sizes: list[int]) -> None:
    parts = b"".join(framed(0, [bytes(90)], MAX_FRAME))
    said = bytearray(HEADER + frame(OPEN, "client") + parts + HEARTBEAT + body_frame(1, b"body") + frame(CLOSE))
    for at, byte in flips:
        said[at % len(said)] = byte
    server = BodyConnection(Reading(), container="server", server=True, max_frame=MAX_FRAME, max_body=1000, lanes=2)
    for piece in cut(bytes(said), sizes):
        try:
            server.receive(piece, 0.0)
        except AmqpError:
            assert server.closed
        server.data_to_send()
    server.receive_eof()
    assert server.closed
    server.data_to_send()
    server.release()


def test_a_body_is_as_good_as_a_heartbeat() -> None:
    pair = Between(idle_timeout=4.0)
    for now in range(1, 40):
        assert pair.server.tick(now) is not None
        pair.client.send(0, [b"still here"])
        pair.pump(now)
    assert pair.there.bodies and not pair.errors


def test_a_part_of_a_body_is_a_sign_of_life() -> None:
    pair = Between(idle_timeout=4.0)
    long = body_frame(0, bytes(80))
    for now in range(1, 40):
        pair.server.tick(now)
        pair.server.receive(long[2 * now - 2 : 2 * now], now)
    assert not pair.server.closed


def test_who_says_nothing_is_gone() -> None:
    pair = Between(idle_timeout=4.0)
    pair.client.send(0, [b"the last of it"])
    pair.pump(0.0)
    with pytest.raises(AmqpError, match="silent for 4 s"):
        for now in range(1, 40):
            pair.server.tick(now)


def test_no_heartbeat_is_written_where_bodies_are_and_some_where_none_is() -> None:
    pair = Between(idle_timeout=4.0)
    written = b""

    def passes(now: float) -> bytes:
        pair.server.send(0, [b"b"])
        pair.client.receive(pair.server.data_to_send(), now)
        pair.client.tick(now)
        return pair.client.data_to_send()

    for now in range(1, 20):
        pair.client.send(0, [b"b"])
        written += pair.client.data_to_send()
        pair.client.send(0, [b"b"])
        written += passes(now)
    assert HEARTBEAT not in written
    for now in range(20, 40):
        written += passes(now)
    assert HEARTBEAT in written
