"""What messages say of their time, as routers read it (AMQP 1.0 3.2.1, 3.2.4)."""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from proton import Message

from router.amqp.format.codec import Timestamp, encode, uint
from router.amqp.format.message import data_message, in_envelope
from router.edge.ttl import times_of
from tests.topic.bench import Bench
from topic.home.ttl import OVER

NOW_S = 7.0


@pytest.fixture
def read() -> Callable[..., list[float] | None]:
    """Seconds left of each message, at a router whose clock stands at NOW_S."""
    bench = Bench("a")
    bench.now = NOW_S
    node = bench.stations["a"].node

    def left(*messages: bytes) -> list[float] | None:
        times = times_of(messages, node)
        return None if times is None else [round(at - NOW_S, 1) for at in times]

    return left


def wall_s(seconds: float) -> float:
    """Of the bench, so many seconds ahead."""
    return Bench("a").wall_us / 1e6 + seconds


def written(**said: Any) -> bytes:
    return bytes(Message(body="text", **said).encode())


def test_most_messages_say_nothing(read: Callable[..., list[float] | None]) -> None:
    assert read(data_message(b"body"), data_message(b"body", {"a": 1})) is None
    assert read(written(), written(id=5, subject="s", durable=True, priority=7), data_message(b"x")) is None
    assert read(written(creation_time=5.0), written(annotations={"a": 1}), b"", b"damaged") is None
    assert read(in_envelope(written(ttl=1.0), 1)) is None, "of another format"


def test_a_quick_look_misses_nothing(read: Callable[..., list[float] | None]) -> None:
    """Whatever stands beside it."""
    besides: list[dict[str, Any]] = [
        {"creation_time": 5.0},
        {"creation_time": 5.0, "durable": True, "priority": 9, "id": "ID:1", "address": "topic/x", "reply_to": "y"},
        {"annotations": {"x-opt-jms-dest": 1}, "creation_time": 5.0},
        {"group_id": "g", "creation_time": 5.0, "content_type": "x" * 300},
        {"instructions": {"a": 1}, "properties": {"a": 1}, "id": 0x4083},
    ]
    for said in besides:
        assert read(written(**said)) is None
        assert read(written(ttl=2.0, **said)) == [2.0]
        for low in (0x00, 0x40, 0x83):
            at = wall_s(3000.0)
            at += (low - round(at * 1000) % 256) / 1000
            (left,) = read(written(expiry_time=at, **said)) or (inf,)
            assert abs(left - (at - wall_s(0.0))) < 1


def test_the_earlier_of_both_counts(read: Callable[..., list[float] | None]) -> None:
    assert read(written(ttl=2.0), written(), written(ttl=2.0, id=1, durable=True)) == [2.0, inf, 2.0]
    assert read(written(expiry_time=wall_s(30.0)), written(expiry_time=wall_s(30.0), ttl=5.0)) == [30.0, 5.0]
    assert read(written(expiry_time=wall_s(30.0), ttl=50.0, annotations={"a": 1})) == [30.0]


def test_what_comes_too_late_is_over(read: Callable[..., list[float] | None]) -> None:
    assert read(written(expiry_time=wall_s(-1.0), ttl=50.0)) == [OVER]


def test_zero_is_never_as_jms_writes_it(read: Callable[..., list[float] | None]) -> None:
    header = b"\x00\x53\x70" + encode([None, None, uint(0)])
    for expiry in (Timestamp(0), Timestamp(-62135596800000)):
        properties = b"\x00\x53\x73" + encode([*[None] * 8, expiry])
        assert read(header + properties + data_message(b"body")) is None


def test_what_cannot_be_meant_says_nothing(read: Callable[..., list[float] | None]) -> None:
    values: tuple[Any, ...] = ("soon", 2.5, True, b"\x01", [1], {})
    for value in values:
        for section, fields in ((b"\x70", [None, None, value]), (b"\x73", [*[None] * 8, value])):
            assert read(b"\x00\x53" + section + encode(fields) + data_message(b"body")) is None
    for cut in range(1, 20):
        assert read(written(ttl=5.0, id=1)[:cut]) in (None, [5.0])
    assert read(written(ttl=5.0), b"\x00\x53\x70", b"\x00\x53\x73\xc0\x7f\x09") == [5.0, inf, inf]


def test_sections_are_read_however_they_are_encoded(read: Callable[..., list[float] | None]) -> None:
    for descriptor in (b"\x53\x70", b"\x80" + (0x70).to_bytes(8, "big")):
        for fields in (b"\xc0\x08\x03\x40\x40\x70\x00\x00\x07\xd0", encode([None, None, uint(2000)])):
            assert read(b"\x00" + descriptor + fields + data_message(b"body")) == [2.0]
