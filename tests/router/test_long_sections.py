"""Messages with very many tiny elements: what routers look for in them is found in a few steps, or not at all."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from router.amqp.format.codec import Described, Timestamp, encode, uint
from router.amqp.format.message import (
    APPLICATION_PROPERTIES,
    HEADER,
    LOOKED_INTO,
    PROPERTIES,
    data_message,
    modified,
    section_of,
)
from router.edge.anonymous import destination
from router.edge.selector.content import MOST_PROPERTIES
from router.edge.selector.selector import Selector
from router.edge.ttl import times_of
from tests.topic.bench import Bench

MANY = 100_000
NULLS = b"\xd0" + (4 + MANY).to_bytes(4, "big") + MANY.to_bytes(4, "big") + b"\x40" * MANY
BODY = data_message(b"body")
FEW = 500
"""Calls, of Python's functions and of C's."""


def section(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes([code]) + value


def fields(*values: Any, behind: int = 0) -> bytes:
    """A list with so many nulls behind these."""
    content = b"".join(map(encode, values)) + b"\x40" * behind
    return b"\xd0" + (4 + len(content)).to_bytes(4, "big") + (len(values) + behind).to_bytes(4, "big") + content


def properties(count: int) -> bytes:
    return section(APPLICATION_PROPERTIES, encode({f"k{number}": number for number in range(count)}))


def calls(act: Callable[[], Any]) -> int:
    made = 0

    def count(*_: Any) -> None:
        nonlocal made
        made += 1

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return made


HOSTILE = {
    "a header": section(HEADER, NULLS),
    "properties": section(PROPERTIES, NULLS),
    "a field of the header": section(HEADER, fields(None, None, None, None)[:-1] + NULLS),
    "a ttl": section(HEADER, fields(*[None] * 2) + NULLS),
    "application properties": section(APPLICATION_PROPERTIES, b"\xd1" + NULLS[1:]),
    "a property": section(APPLICATION_PROPERTIES, encode({"x": [None] * 30_000})),
    "a field": section(HEADER, fields(None, None, [None] * 30_000)) + section(PROPERTIES, fields(*[[None] * 900] * 13)),
    "headers": section(HEADER, b"\x45") * MANY,
    "numbers below": b"".join(b"\x00\x55" + bytes([0x80 + number % 0x80]) + b"\x45" for number in range(MANY)),
    "what describes it": b"\x00" + NULLS + b"\x45",
    "what describes that": b"\x00" * MANY + b"\x45",
    "what a section is": section(HEADER, b"\x00" * MANY),
    "a described section": section(HEADER, b"\x00\x53\x70" + NULLS),
}  # fmt: skip


@pytest.mark.parametrize("message", [pytest.param(said + BODY, id=name) for name, said in HOSTILE.items()])
def test_a_message_of_very_many_elements_is_looked_at_in_a_few_steps(message: bytes) -> None:
    node = Bench("a").stations["a"].node
    selector = Selector("x = 1 OR amqp.subject = 'a' OR JMSPriority = 9 OR amqp.ttl = 1")
    assert calls(lambda: times_of([message], node)) < FEW
    assert calls(lambda: destination(message)) < FEW
    assert calls(lambda: selector.wants(selector.read(message))) < FEW
    assert calls(lambda: modified(message, 1, encode({"a": 1}))) < FEW
    assert times_of([message], node) is None and destination(message) == ""
    assert not selector.wants(selector.read(message))


def test_a_section_that_is_too_long_says_nothing() -> None:
    node = Bench("a").stations["a"].node
    room = LOOKED_INTO - len(fields(None, None, uint(5)))
    assert times_of([section(HEADER, fields(None, None, uint(5), behind=room)) + BODY], node) is not None
    assert times_of([section(HEADER, fields(None, None, uint(5), behind=room + 1)) + BODY], node) is None
    room = LOOKED_INTO - len(fields(None, None, "topic/x"))
    assert destination(section(PROPERTIES, fields(None, None, "topic/x", behind=room)) + BODY) == "topic/x"
    assert destination(section(PROPERTIES, fields(None, None, "topic/x", behind=room + 1)) + BODY) == ""


def test_of_a_message_with_too_many_properties_none_is_known() -> None:
    first, missing = Selector("k0 = 0"), Selector("k0 IS NULL")
    for count, known in ((MOST_PROPERTIES, True), (MOST_PROPERTIES + 1, False)):
        message = properties(count) + BODY
        assert first.wants(first.read(message)) is known and missing.wants(missing.read(message)) is not known


def test_sections_are_found_behind_others_in_their_order_only() -> None:
    header, other = section(HEADER, encode([True])), section(PROPERTIES, encode([1, None, "to", None, None]))
    assert section_of(header + other + BODY, PROPERTIES) == other[3:]
    assert section_of(header + header + other + BODY, PROPERTIES) == b""
    named = encode(Described("amqp:header:list", [True]))
    assert section_of(named + other + BODY, PROPERTIES) == other[3:], "a name of a section means its code"
    assert times_of([section(PROPERTIES, encode([None] * 8 + [Timestamp(1)])) + BODY], Bench("a").stations["a"].node)
