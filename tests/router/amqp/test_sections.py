"""Messages by their sections: proton's Message is the oracle of what we write, and writes what we read."""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import UNDESCRIBED, Array, Data, Message, symbol, timestamp, ulong

from router.amqp.format.codec import MOST_EMPTY, Described, Symbol, Timestamp
from router.amqp.format.errors import AmqpError
from router.amqp.format.sections import read_message, write_message

PROPERTIES = {
    "message-id": 7,
    "user-id": "me",
    "to": "topic/x",
    "subject": "s" * 300,
    "reply-to": "r",
    "correlation-id": "c",
    "content-type": "text/plain",
    "content-encoding": "none",
    "absolute-expiry-time": 2_000_000_000_000,
    "creation-time": 1_700_000_000_000,
    "group-id": "g",
    "group-sequence": 4_000_000_000,
    "reply-to-group-id": "rg",
}
HEADER = {"durable": True, "priority": 9, "ttl": 4_000_000_000, "first-acquirer": False, "delivery-count": 2}

numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner), max_leaves=8
)


def of_proton(**fields: Any) -> bytes:
    return bytes(Message(**fields).encode())


def test_every_field_is_written_as_its_type_and_read_again() -> None:
    message = {
        "header": HEADER,
        "delivery-annotations": {"x-opt-d": 1},
        "message-annotations": {"x-opt-m": "m"},
        "properties": PROPERTIES,
        "application-properties": {"n": 1, "f": 1.5, "b": True, "t": "text", "none": None},
        "data": b"\x00body",
        "footer": {"x-opt-f": [1, 2]},
    }
    encoded = write_message(message)
    theirs: Any = Message()
    theirs.decode(encoded)
    assert (theirs.durable, theirs.priority, theirs.ttl, theirs.delivery_count) == (True, 9, 4_000_000.0, 2)
    assert (theirs.id, theirs.user_id, theirs.subject) == (ulong(7), b"me", "s" * 300)
    assert (theirs.content_type, theirs.expiry_time) == (symbol("text/plain"), 2_000_000_000.0)
    assert (theirs.group_sequence, theirs.reply_to_group_id) == (4_000_000_000, "rg")
    assert theirs.annotations == {symbol("x-opt-m"): "m"}
    assert theirs.properties == {"n": 1, "f": 1.5, "b": True, "t": "text", "none": None}
    assert bytes(theirs.body) == b"\x00body"
    message["properties"] = {**PROPERTIES, "user-id": b"me"}
    assert read_message(encoded) == message


@given(values)
def test_a_value_is_what_it_is_to_others_and_to_us(value: Any) -> None:
    encoded = write_message({"value": value})
    theirs = Message()
    theirs.decode(encoded)
    assert theirs.body == value
    assert read_message(encoded) == {"value": value}
    assert read_message(of_proton(body=value, inferred=False)).get("value") == value


def test_types_that_we_do_not_write_are_read() -> None:
    name = uuid.UUID(int=5)
    none: Any = UNDESCRIBED
    body = {
        "uuid": name,
        "time": timestamp(1_700_000_000_000),
        "symbols": Array(none, Data.SYMBOL, symbol("a"), symbol("b")),
        "ints": Array(none, Data.INT, 1, -2),
        "char": "x",
    }
    found = read_message(of_proton(body=body, inferred=False, id=name))
    assert found["properties"]["message-id"] == name
    assert found["value"] == {**body, "symbols": ["a", "b"], "ints": [1, -2]}
    assert isinstance(found["value"]["time"], Timestamp)
    assert isinstance(found["value"]["symbols"][0], Symbol)


@pytest.mark.parametrize(
    ("constructor", "element"), [(0x40, None), (0x41, True), (0x42, False), (0x43, 0), (0x44, 0), (0x45, [])]
)
def test_elements_of_an_array_may_take_no_bytes(constructor: int, element: Any) -> None:
    def array(count: int) -> bytes:
        return b"\xf0\0\0\0\5" + count.to_bytes(4, "big") + bytes([constructor])

    def in_list(*arrays: bytes) -> bytes:
        body = len(arrays).to_bytes(4, "big") + b"".join(arrays)
        return b"\x00\x53\x77\xd0" + len(body).to_bytes(4, "big") + body

    assert read_message(b"\x00\x53\x77\xe0\2\xff" + bytes([constructor])) == {"value": 255 * [element]}
    assert read_message(in_list(array(1000), array(1000))) == {"value": 2 * [1000 * [element]]}
    few = array(5)  # no more than they have bytes
    assert read_message(in_list(array(MOST_EMPTY), *2 * MOST_EMPTY * [few]))
    for bomb in ([array(2**32 - 1)], [array(MOST_EMPTY + 6)], 5 * [array(1000)]):
        with pytest.raises(AmqpError, match="have more than 4096 elements that take no bytes"):
            read_message(in_list(*bomb))


def test_a_body_may_be_sections_of_data_or_sequences_or_nothing() -> None:
    data = b"\x00\x53\x75\xa0\x02ab"
    assert read_message(data + data) == {"data": b"abab"}
    assert read_message(write_message({"sequence": [[1, "a"], []]})) == {"sequence": [[1, "a"], []]}
    assert read_message(b"") == {}
    assert read_message(write_message({"value": None})) == {"value": None}
    described = write_message({"value": Described(5, "x")})
    assert read_message(described) == {"value": Described(5, "x")}


@pytest.mark.parametrize(
    "message",
    [
        b"\x00", b"\xff" * 9, b"\x40", b"\x00\x53\x79\x40", b"\x00\xa3\x01x\x40",
        b"\x00\x53\x77\xe0\x05\xff\x53abc", b"\x00\x53\x77\xe0\x03\x01\x53abc", b"\x00\x53\x77\xe0\x01\x01",
        b"\x00\x53\x77\x73\x00\x00\xd8\x00", b"\x00\x53\x77\x73\x00\x11\x00\x00",
        b"\x00\x53\x77\x00\x00\x53\x05\x40\x40",
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(AmqpError):
        read_message(message)


def test_arrays_within_arrays_end_somewhere() -> None:
    deep = b"\x00\x53\x77" + b"\xf0\x00\x00\xff\xff\x00\x00\x00\x01" * 5000
    with pytest.raises(AmqpError):
        read_message(deep)
    nested = b"\x40"
    for _ in range(200):
        nested = b"\xf0" + (len(nested) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + nested
    with pytest.raises(AmqpError, match="nested too deep"):
        read_message(b"\x00\x53\x77" + nested)


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"header": {"ttl": "5s"}}, "ttl is '5s', expected a number from 0 to 4294967295"),
        ({"header": {"ttl": 2**32}}, "ttl is 4294967296, expected a number from 0 to 4294967295"),
        ({"header": {"priority": True}}, "priority is True, expected a number from 0 to 255"),
        ({"header": {"durable": 1}}, "durable is 1, expected true or false"),
        ({"properties": {"message-id": 1.5}}, "message-id is 1.5, expected a text, a number or binary"),
        ({"properties": {"content-type": "é"}}, "content-type is 'é', expected a text of ASCII characters"),
        ({"properties": {"colour": "red"}}, 'properties has no "colour", expected message-id, user-id, to, subject,'),
        ({"properties": "s"}, "\"properties\" is 's', expected a JSON object of names and values"),
        (
            {"application-properties": {"a": [1]}},
            "application-properties: a value is a list or map, expected simple values only",
        ),
        (
            {"message-annotations": {"é": 1}},
            "message-annotations cannot be sent as AMQP: 'é' is not ASCII, expected ASCII characters",
        ),
        ({"value": 2**63}, "value cannot be sent as AMQP: an integer is not from -2^63 to 2^63 - 1"),
        ({"value": "\ud800"}, r"value cannot be sent as AMQP: '\ud800' is not UTF-8, expected a text"),
    ],
)
def test_what_cannot_be_meant_is_told(sections: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        write_message(sections)
    assert str(caught.value).startswith(complaint)


def test_a_value_that_is_nested_too_deeply_is_told() -> None:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(ValueError, match=r"^value cannot be sent as AMQP: lists or maps are nested too deeply$"):
        write_message({"value": value})
