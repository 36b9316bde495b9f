"""Wrapping bodies, and what modified outcomes ask for, nothing else is touched; proton's Message judges."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Data, Message, symbol, ulong

from router.amqp.format.codec import decode
from router.amqp.format.errors import AmqpError
from router.amqp.format.message import (
    SHORT,
    acquired_before,
    annotations_to_add,
    application_properties,
    body_of,
    data_message,
    in_envelope,
    merged,
    modified,
    shortened,
    with_ttl,
)


def decoded(data: bytes) -> Any:
    message = Message()
    message.decode(data)
    return message


@given(st.binary(max_size=300), st.none() | st.dictionaries(st.text(max_size=5), st.text() | st.booleans(), max_size=3))
def test_a_data_message_is_read_by_others_and_by_us(body: bytes, properties: Any) -> None:
    data = data_message(body, properties)
    assert bytes(decoded(data).body) == body == body_of(data)
    assert (decoded(data).properties or {}) == (properties or {}) == application_properties(data)


@pytest.mark.parametrize(("body", "expected"), [("text", b"text"), (b"binary", b"binary")])
def test_the_body_of_others_messages(body: Any, expected: bytes) -> None:
    message = bytes(Message(body=body, inferred=False).encode())
    assert body_of(message) == expected
    assert body_of(bytes(Message(body=b"data", inferred=True, subject="x", durable=True).encode())) == b"data"


@pytest.mark.parametrize("message", [b"", b"\x00", b"\x00Su", b"\xff" * 20, data_message(b"")[:-1], b"\x40"])
def test_what_is_not_a_message_has_no_body(message: bytes) -> None:
    with pytest.raises(AmqpError):
        body_of(message)


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"\xd0\x00\x00\x00\x08\x00\x00\x00\x02\x55\x01\x55\x02",  # a list
        b"\xa1\x04text",
        b"\x00\x53\x05\xc1\x05\x02\xa3\x01x\x41",  # described
        b"\xe0\x03\x01\x50\x01",  # an array
        b"\xc1\x03\x02\x40\x41",  # null is a key
        b"\xc1\x03\x02\x41\x41",
        b"\xc1\x04\x02\x55\x01\x41",  # a long is a key
        b"\xc1\x06\x02\xa1\x02\xc3\xa4\x41",  # a text that is no symbol
        b"\xc1\x05\x02\xa3\x01\xff\x41",
        b"\xc1\x04\x01\xa3\x01x",  # a key without a value
        b"\xc1\x05\x02\xa3\x09x\x41",
        b"\xc1\x01\x00",
    ],
)
def test_what_are_no_annotations_are_none(told: bytes) -> None:
    assert annotations_to_add(told) == b""


def test_texts_as_keys_of_annotations_become_symbols() -> None:
    data = Data()
    data.put_dict({"x-opt-a": "text", symbol("x-opt-b"): [1], ulong(7): None})
    found = annotations_to_add(bytes(data.encode()))
    message = decoded(modified(bytes(Message(body=b"x").encode()), 0, found))
    assert message.annotations == {symbol("x-opt-a"): "text", symbol("x-opt-b"): [1], ulong(7): None}
    assert all(isinstance(key, symbol | ulong) for key in message.annotations)


ANNOTATIONS = st.dictionaries(st.sampled_from("abcdefgh"), st.text(max_size=300) | st.integers(0, 9), max_size=9)


def encoded(annotations: dict[str, Any]) -> bytes:
    """As a client writes them, in a map of symbols."""
    items = [(symbol(key), value) for key, value in annotations.items()]
    data = Data()
    data.put_dict(dict(items))
    return bytes(data.encode())


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 5),
    st.booleans(),
    st.integers(0, 9),
    st.none() | st.floats(0, 10000),
    st.none() | st.text(max_size=300),
    ANNOTATIONS,
    ANNOTATIONS,
)
def test_only_the_delivery_count_and_annotations_change(
    count: int, failures: int, durable: bool, priority: int, ttl: float | None, subject: str | None, has: Any, gets: Any
) -> None:
    message = Message(body={"a": [1, 2]}, durable=durable, priority=priority, subject=subject, instructions={"x": 1})
    message.delivery_count = count
    message.annotations = {symbol(key): value for key, value in has.items()}
    if ttl is not None:
        message.ttl = ttl
    data = bytes(message.encode())
    after = modified(data, failures, encoded(gets) if gets else b"")
    seen = decoded(after)
    assert seen.delivery_count == min(count + failures, 2**32 - 1)
    assert (seen.annotations or {}) == {**has, **gets}
    for field in ("durable", "priority", "ttl", "subject", "body", "first_acquirer", "instructions"):
        assert getattr(seen, field) == getattr(message, field)
    assert after.endswith(data[data.index(b"\x00\x53\x77") :])
    assert failures or gets or after == data


@pytest.mark.parametrize("failures", [0, 2])
@pytest.mark.parametrize("first_acquirer", [True, False])
def test_a_message_that_another_link_had_says_so(first_acquirer: bool, failures: int) -> None:
    message = Message(body=b"1", durable=True, first_acquirer=first_acquirer)
    message.delivery_count = 3
    data = bytes(message.encode())
    after = decoded(acquired_before(data, failures))
    assert (after.first_acquirer, after.delivery_count, after.durable) == (False, 3 + failures, True)
    assert failures or first_acquirer or acquired_before(data, failures) == data


@pytest.mark.parametrize("ttl_ms", [1, 500, 2**32])
def test_a_message_with_a_time_to_live_may_get_another_one(ttl_ms: int) -> None:
    message = bytes(Message(body=b"1", durable=True, ttl=3, subject="s").encode())
    after = decoded(with_ttl(message, ttl_ms))
    assert (round(after.ttl * 1000), after.durable, after.subject) == (min(ttl_ms, 2**32 - 1), True, "s")
    for without in (data_message(b"1"), bytes(Message(body=b"1", durable=True).encode()), in_envelope(message, 7)):
        assert with_ttl(without, ttl_ms) == without


def test_a_message_without_a_header_that_another_link_had_gets_one_if_that_has_failed() -> None:
    message = data_message(b"0")
    assert acquired_before(message, 0) == message
    assert decoded(acquired_before(message, 1)).delivery_count == 1
    assert acquired_before(in_envelope(message, 7), 1) == in_envelope(message, 7)


@given(ANNOTATIONS, ANNOTATIONS)
def test_the_later_annotations_go_before(one: dict[str, Any], other: dict[str, Any]) -> None:
    both = merged(encoded(one), encoded(other))
    assert decode(both)[0] == {**one, **other}
    assert merged(b"", both) == merged(both, b"") == both


def test_annotations_of_a_message_without_a_header_follow_its_delivery_annotations() -> None:
    ours = b"\x00\x53\x71" + encoded({"to": "node"})
    section = b"\x00\x53\x72" + encoded({"a": 1})
    for start in (b"", ours, b"\x00\x53\x70\x45" + ours):
        assert modified(start + data_message(b"0"), 0, encoded({"a": 1})).startswith(start + section[:3])
        assert decoded(modified(start + data_message(b"0"), 0, encoded({"a": 1}))).annotations == {"a": 1}


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_what_is_not_a_message_stays_as_it_is_or_gets_a_header(message: bytes, annotations: bytes) -> None:
    counted = modified(message, 3, b"")
    assert counted.endswith(message) or counted[:3] == b"\x00\x53\x70"
    modified(message, 0, annotations)


def test_a_delivery_count_below_zero_stays_as_it_is() -> None:
    message = b"\0\x53\x70\xc0\7\5\x40\x40\x40\x40\x54\xfb" + data_message(b"0")
    assert modified(message, 1, b"") == message


def test_a_message_of_descriptors_without_end_is_left_alone() -> None:
    hostile = bytes(5000)
    assert modified(hostile, 1, encoded({"a": 1})) == hostile


def test_a_long_map_of_annotations_is_not_taken_apart_and_what_is_added_comes_last() -> None:
    known = merged.__globals__["_entries"]
    known.cache_clear()
    entries: dict[str, Any] = {f"k{number}": None for number in range(SHORT)}
    message = b"\x00\x53\x72" + encoded({"x": 1, **entries}) + data_message(b"0")
    after = modified(message, 0, encoded({"x": 2, "y": 3}))
    assert decoded(after).annotations == {"x": 2, "y": 3, **entries}
    assert len(after) < len(message) + 40 and after.endswith(data_message(b"0"))
    assert decode(merged(encoded({"x": 2}), encoded(entries)))[0] == {"x": 2, **entries}
    assert known.cache_info().misses == known.cache_info().currsize == 0


@pytest.mark.parametrize("annotations", [b"\x40", b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00", b"\xd1\x00\x00\x20\x00"])
def test_what_is_no_map_is_not_put_together_with_a_long_one(annotations: bytes) -> None:
    with pytest.raises(AmqpError):
        merged(encoded({"x": "y" * SHORT}), annotations)


@pytest.mark.parametrize("body", [b"x" * 9000, "ä" * 5000, {"a": "x" * 9000}, b"x"])
def test_a_message_is_shortened_to_one_that_can_be_read(body: Any) -> None:
    message = Message(subject="s", properties={"a": 1}, body=body).encode()
    for most in (len(message), 4096, 4097, 300):
        short = shortened(message, most)
        assert len(short) <= most + 32
        read = decoded(short)
        assert (read.subject, read.properties) == ("s", {"a": 1})
        assert read.body == body or isinstance(body, dict) or (read.body and body.startswith(read.body))
    assert shortened(message, 10) == b"" or len(message) <= 10
    assert shortened(b"\x00\x53\x70\x45\x00\x53\x75", 5) == b"\x00\x53\x70\x45"
    assert shortened(b"\xff" * 5000, 4096) == b"" and shortened(b"x" * 10, 4096) == b"x" * 10


@pytest.mark.parametrize(
    ("body", "properties", "says"),
    [
        ("text", None, "made of bytes, not str"),
        (None, None, "made of bytes, not NoneType"),
        (b"", {1: 2}, "not 1: 2"),
        (b"", {"a": [1]}, r"not 'a': \[1\]"),
        (b"", {"a": object()}, "no AMQP type"),
    ],
)
def test_what_amqp_cannot_hold_is_no_message(body: Any, properties: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        data_message(body, properties)
