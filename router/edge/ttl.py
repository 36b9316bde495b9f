"""The times after which messages expire (AMQP 1.0 3.2.1, 3.2.4): the header's `ttl`, and the properties'
`absolute-expiry-time`.

The earlier one counts. A value of 0 or less, or one that is no number, does not count: JMS writes *never* in this way.
`topic.home.ttl` decides when a delivery expires.

Hot path: most messages have no such time, and their first bytes show this.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

from router.amqp.format.errors import AmqpError
from router.amqp.format.message import (
    APPLICATION_PROPERTIES,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    fields_of,
    section_of,
    simple,
)
from router.amqp.format.sections import FIELDS
from topic.home.ttl import OVER
from topic.node import Node

_TTL: Final = list(FIELDS["header"]).index("ttl")
_EXPIRY: Final = list(FIELDS["properties"]).index("absolute-expiry-time")
_BEHIND: Final = b"\x00\x53" + bytes([APPLICATION_PROPERTIES])
"""A message with neither header nor properties begins with bytes in the range from these bytes to `_END`."""
_END: Final = b"\x00\x54"
_LIST0, _LIST8, _MAP8, _MAP32, _NULL, _TIMESTAMP = 0x45, 0xC0, 0xC1, 0xD1, 0x40, 0x83


def times_of(messages: Sequence[bytes], node: Node) -> list[float] | None:
    """The time at which each of these messages expires, for `Topic.publish`. The messages have just arrived. None if no
    message has such a time."""
    saying = _saying(messages)
    if saying is None:
        return None
    now = node.now()
    lefts = _lefts_ms(saying, node.topic.outlet.time_us / 1000)
    return [now + left / 1000 if left > 0 else OVER for left in lefts] if lefts is not None else None


def left_ms(messages: Sequence[bytes], wall_ms: float) -> list[float] | None:
    """The milliseconds that each message has left; infinity for a message without a time. None if no message has a
    time."""
    saying = _saying(messages)
    return _lefts_ms(saying, wall_ms) if saying is not None else None


def _saying(messages: Sequence[bytes]) -> list[bytes | None] | None:
    """The messages, with None in place of each message that surely has no time. None if no message may have a time."""
    if min(messages) >= _BEHIND and max(messages) < _END:
        return None
    saying = [None if _says_nothing(message) else message for message in messages]
    return saying if any(saying) else None


def _lefts_ms(saying: Sequence[bytes | None], wall_ms: float) -> list[float] | None:
    lefts = [inf if message is None else _left_ms(message, wall_ms) for message in saying]
    return lefts if min(lefts) < inf else None


def _says_nothing(message: bytes) -> bool:
    """Whether the message surely has no ttl and no expiry. This is so if its sections have too few fields for them, or
    if the expiry is empty and only a creation-time follows, as JMS writes it. False also if this quick look cannot
    tell."""
    at = 0
    try:
        if message[2] == HEADER:
            if message[3] == _LIST0:
                at = 4
            elif message[3] == _LIST8 and message[5] <= _TTL:
                at = 5 + message[4]
            else:
                return False
        if message[at + 2] == MESSAGE_ANNOTATIONS and message[at + 3] == _MAP8:
            at += 5 + message[at + 4]
        elif message[at + 2] == MESSAGE_ANNOTATIONS and message[at + 3] == _MAP32:
            at += 8 + int.from_bytes(message[at + 4 : at + 8], "big")
        section, kind = message[at + 2], message[at + 3]
        if section != PROPERTIES or kind == _LIST0:
            return section >= PROPERTIES
        count = message[at + 5] if kind == _LIST8 else _EXPIRY + 1
        return count <= _EXPIRY or (count == _EXPIRY + 2 and _ends_in_creation(message, at + 5 + message[at + 4]))
    except IndexError:
        return False


def _ends_in_creation(message: bytes, end: int) -> bool:
    """Whether encoded properties end with a creation-time at the offset `end`, and have a null absolute-expiry-time."""
    return message[end - 10] == _NULL and message[end - 9] == _TIMESTAMP and message[end - 18] != _TIMESTAMP


def _left_ms(message: bytes, wall_ms: float) -> float:
    """The milliseconds that the message has left; infinity if it has no time."""
    try:
        ttl = _time(section_of(message, HEADER), _TTL)
        expiry = _time(section_of(message, PROPERTIES), _EXPIRY)
    except AmqpError:
        return inf
    return min(ttl or inf, expiry - wall_ms if expiry else inf)


def _time(section: bytes, place: int) -> int:
    """The field at that place of a section, in milliseconds; 0 if it has none. Raises AmqpError."""
    fields = fields_of(section, place + 1)
    value = simple(fields[place]) if len(fields) > place else None
    return max(value, 0) if isinstance(value, int) and not isinstance(value, bool) else 0
