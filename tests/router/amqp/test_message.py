"""Wrapping bodies, and counting redeliveries without touching anything else; proton's Message is the oracle."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message

from router.amqp.errors import PeerError
from router.amqp.message import application_properties, body_of, data_message, with_delivery_count


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
    assert body_of(bytes(Message(body=body, inferred=False).encode())) == expected
    assert body_of(bytes(Message(body=b"data", inferred=True, subject="x", durable=True).encode())) == b"data"


@pytest.mark.parametrize("message", [b"", b"\x00", b"\x00Su", b"\xff" * 20, data_message(b"")[:-1], b"\x40"])
def test_what_is_not_a_message_has_no_body(message: bytes) -> None:
    with pytest.raises(PeerError):
        body_of(message)


@given(
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.integers(0, 9),
    st.none() | st.floats(0, 10000),
    st.none() | st.text(max_size=300),
)
def test_only_the_delivery_count_changes(
    count: int, durable: bool, priority: int, ttl: float | None, subject: str | None
) -> None:
    message = Message(body={"a": [1, 2]}, durable=durable, priority=priority, subject=subject)
    if ttl is not None:
        message.ttl = ttl
    before = bytes(message.encode())
    after = with_delivery_count(before, count)
    message.delivery_count = count
    seen = decoded(after)
    assert seen.delivery_count == count
    for field in ("durable", "priority", "ttl", "subject", "body", "first_acquirer"):
        assert getattr(seen, field) == getattr(message, field)
    assert with_delivery_count(after, 0).endswith(before[before.index(b"\x00\x53\x77") :])


@given(st.binary(max_size=60))
def test_what_is_not_a_message_stays_as_it_is_or_gets_a_header(message: bytes) -> None:
    counted = with_delivery_count(message, 3)
    assert counted.endswith(message) or counted[:3] == b"\x00\x53\x70"


def test_a_message_of_descriptors_without_end_is_left_alone() -> None:
    hostile = bytes(5000)
    assert with_delivery_count(hostile, 1) == hostile
