"""Gives selectors the parts of a message that they read: fields of its header and properties, and its application
properties.

A section is read at its first use, once for all selectors; the body is never read. The values of short sections are
cached, because many messages have the same sections. A section that cannot be decoded counts as missing. A damaged
message, or one of another format than AMQP's, has no properties. Neither has a message with too many properties."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from router.amqp.format.codec import skip
from router.amqp.format.errors import AmqpError
from router.amqp.format.message import (
    APPLICATION_PROPERTIES,
    HEADER,
    PROPERTIES,
    fields_of,
    section_of,
    simple,
)
from router.amqp.format.sections import FIELDS

Simple = bool | int | float | str | None

REMEMBERED: Final = 256
SHORT: Final = 1024
"""The highest number of bytes of a cached section. The cache keeps `REMEMBERED` sections of each kind."""
MOST_PROPERTIES: Final = 1024
"""A message with more application properties counts as having none."""
_MOST_FIELDS: Final = max(map(len, FIELDS.values()))


class Content:
    __slots__ = ("_fields", "_message", "_places", "_properties")

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._properties: _ApplicationProperties | None = None
        self._fields: dict[int, list[Any]] = {}
        """The fields of the sections that were read so far, keyed by section."""
        self._places: dict[tuple[str, str], int] | None = None

    def application_property(self, name: bytes) -> Simple:
        """The value of the property with this name in UTF-8; None if there is none."""
        if self._properties is None:
            section = self._section(APPLICATION_PROPERTIES)
            read = _remembered_properties if len(section) <= SHORT else _ApplicationProperties
            self._properties = read(section)
        return self._properties.get(name)

    def field(self, section: int, number: int) -> Simple:
        if section not in self._fields:
            found = self._section(section)
            self._fields[section] = (_remembered_fields if len(found) <= SHORT else _fields)(found)
        fields = self._fields[section]
        return _simple(fields[number]) if number < len(fields) else None

    def places(self, text: str, character: str) -> int:
        """Positions of the character in one of the message's texts: one bit for each position, the lowest for the
        first.
        """
        if self._places is None:
            self._places = {}
        known = self._places.get((text, character))
        if known is None:
            known = self._places[text, character] = _places_in(text, character)
        return known

    def _section(self, code: int) -> bytes:
        try:
            return section_of(self._message, code)
        except AmqpError:
            return b""


def _places_in(text: str, character: str) -> int:
    bits = bytearray(len(text) // 8 + 1)
    at = text.find(character)
    while at >= 0:
        bits[at >> 3] |= 1 << (at & 7)
        at = text.find(character, at + 1)
    return int.from_bytes(bits, "little")


class _ApplicationProperties:
    """The application properties of a message. Each one is decoded at its first use."""

    __slots__ = ("_places", "_section", "_values")

    def __init__(self, section: bytes) -> None:
        self._section = section
        self._values: dict[bytes, Simple] = {}
        try:
            self._places = _places(section)
        except AmqpError:
            self._places = {}

    def get(self, name: bytes) -> Simple:
        if name not in self._values and name in self._places:
            self._values[name] = _value(self._section, self._places[name])
        return self._values.get(name)


def _fields(section: bytes) -> list[Any]:
    try:
        return list(map(simple, fields_of(section, _MOST_FIELDS)))
    except AmqpError:
        return []


_remembered_properties = lru_cache(REMEMBERED)(_ApplicationProperties)
_remembered_fields = lru_cache(REMEMBERED)(_fields)


def _places(section: bytes) -> dict[bytes, int]:
    """Offsets of the values of a map, keyed by the keys that are texts. Raises AmqpError if the map is damaged."""
    if section[:1] not in (b"\xc1", b"\xd1"):
        return {}
    width = 1 if section[0] == 0xC1 else 4
    at = 1 + width
    count, at = int.from_bytes(section[at : at + width], "big"), at + width
    found: dict[bytes, int] = {}
    if count > 2 * MOST_PROPERTIES:
        return found
    for _ in range(count // 2):
        key, at = at, skip(section, at)
        if section[key] == 0xA1:
            found[section[key + 2 : at]] = at
        elif section[key] == 0xB1:
            found[section[key + 5 : at]] = at
        at = skip(section, at)
    return found


def _value(message: bytes, at: int) -> Simple:
    try:
        if message[at] == 0xA1:
            return message[at + 2 : at + 2 + message[at + 1]].decode()
        return _simple(simple(message[at : skip(message, at)]))
    except (AmqpError, UnicodeDecodeError):
        return None


def _simple(value: Any) -> Simple:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, UUID):
        return str(value)
    try:
        return value.decode() if isinstance(value, bytes) else None
    except UnicodeDecodeError:
        return None


Property = Callable[[Content], Simple]


def _field(section: str, name: str) -> tuple[int, int]:
    return HEADER if section == "header" else PROPERTIES, list(FIELDS[section]).index(name)


_PLACES: Final[Mapping[str, tuple[int, int]]] = {
    "amqp." + name.replace("-", "_"): _field(section, name) for section, fields in FIELDS.items() for name in fields
} | {
    "JMSMessageID": _field("properties", "message-id"),
    "JMSDestination": _field("properties", "to"),
    "JMSReplyTo": _field("properties", "reply-to"),
    "JMSCorrelationID": _field("properties", "correlation-id"),
    "JMSType": _field("properties", "subject"),
    "JMSTimestamp": _field("properties", "creation-time"),
    "JMSExpiration": _field("properties", "absolute-expiry-time"),
    "JMSXUserID": _field("properties", "user-id"),
    "JMSXGroupID": _field("properties", "group-id"),
    "JMSXGroupSeq": _field("properties", "group-sequence"),
}
_DURABLE, _PRIORITY, _FAILURES = (_field("header", name) for name in ("durable", "priority", "delivery-count"))
DEFAULT_PRIORITY: Final = 4
"""The default of `priority` in AMQP 1.0 (3.2.1)."""


def _delivery_mode(content: Content) -> Simple:
    return "PERSISTENT" if content.field(*_DURABLE) is True else "NON_PERSISTENT"


def _priority(content: Content) -> Simple:
    priority = content.field(*_PRIORITY)
    return DEFAULT_PRIORITY if priority is None else priority


_DEFAULTED: Final[Mapping[str, Property]] = {
    "JMSDeliveryMode": _delivery_mode,
    "JMSPriority": _priority,
    "amqp.priority": _priority,
    "JMSRedelivered": lambda content: bool(content.field(*_FAILURES)),
}


def property_named(name: str) -> Property:
    """The property with this name. The name may be a JMS name of a field of the header or the properties. It may be an
    AMQP name of a field, with `amqp.` in front and `_` in place of `-`. Any other name is the name of an application
    property."""
    if name in _DEFAULTED:
        return _DEFAULTED[name]
    if name in _PLACES:
        code, place = _PLACES[name]
        return lambda content: content.field(code, place)
    encoded = name.encode()
    return lambda content: content.application_property(encoded)
