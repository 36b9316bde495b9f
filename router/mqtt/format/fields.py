"""The fields that MQTT packets are made of, read and written (MQTT 5 1.5, 2.2.2).

The reader is strict and bounded, because strangers write its input. If a field is too short, too long or not allowed in
its place, the reader raises `MqttError`. It takes time in proportion to the size of the packet.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen

from router.mqtt.format.values import MqttError, PacketKind, Reason

LONGEST: Final = 0xFFFF
"""The highest number of bytes of a text or of binary data."""
MOST_PROPERTIES: Final = 60 * 1024
"""The highest number of bytes of all properties of one packet. AMQP encodes the length of a text in more bytes than
MQTT. With this limit, the properties stay below 64 KiB when they are AMQP sections."""
_MOST_DIGITS: Final = 4  # the highest number of bytes of a number of variable length
WILL: Final = 0
"""Stands for the properties of a will in the table of properties. In this table, a place is the number of a kind of
packet; no kind of packet has the number 0."""


def malformed(what: str) -> MqttError:
    return MqttError(Reason.MALFORMED, what)


class FieldReader:
    """Reads the fields of one packet, in their order."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._end = len(data)

    def is_over(self) -> bool:
        return self._at == self._end

    def take(self, size: int) -> bytes:
        at, self._at = self._at, self._at + size
        if self._at > self._end:
            raise malformed("an MQTT packet is cut off")
        return self._data[at : self._at]

    def rest(self) -> bytes:
        return self.take(self._end - self._at)

    def byte(self) -> int:
        return self.take(1)[0]

    def uint16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def uint32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def number(self) -> int:
        """Read a number of variable length (MQTT 5 1.5.5)."""
        value = 0
        for digit in range(_MOST_DIGITS):
            byte = self.byte()
            value |= (byte & 0x7F) << (7 * digit)
            if byte < 0x80:
                return value
        raise malformed("a number in an MQTT packet has too many bytes")

    def binary(self) -> bytes:
        return self.take(self.uint16())

    def text(self) -> str:
        """Read a text in UTF-8 (MQTT 5 1.5.4). Refuses surrogates, as Python does, and NUL."""
        try:
            text = self.binary().decode()
        except UnicodeDecodeError:
            raise malformed("a text in an MQTT packet is not UTF-8") from None
        if "\0" in text:
            raise malformed("a text in an MQTT packet has a zero byte")
        return text

    def pair(self) -> tuple[str, str]:
        return self.text(), self.text()

    def identifier(self) -> int:
        """Read a packet identifier, which is not 0."""
        if not (found := self.uint16()):
            raise MqttError(Reason.PROTOCOL_ERROR, "the packet identifier is 0")
        return found

    def properties(self, place: int) -> dict[str, Any]:
        """Read properties. Maps the name of each property to its value; user properties are a list of pairs. `place` is
        a kind of packet, or `WILL`."""
        if self.is_over():
            return {}
        if (size := self.number()) > MOST_PROPERTIES:
            raise MqttError(
                Reason.TOO_LARGE, f"the packet has {size} bytes of properties, expected at most {MOST_PROPERTIES}"
            )
        end = self._at + size
        if end > self._end:
            raise malformed("the properties of a packet are cut off")
        whole, self._end = self._end, end
        found: dict[str, Any] = {}
        while not self.is_over():
            known = PROPERTIES.get(self.number())
            if known is None or place not in known.places:
                raise malformed("the packet has a property that its type does not allow")
            value = known.read(self)
            if known.name == USER:
                found.setdefault(USER, []).append(value)
            elif known.name in found:
                raise MqttError(Reason.PROTOCOL_ERROR, f"the packet has the property {known.name} twice")
            else:
                found[known.name] = value
        self._end = whole
        return found


@frozen
class Property:
    name: str
    read: Callable[[FieldReader], Any]
    write: Callable[[Any], bytes]
    places: frozenset[int]


def number(value: int) -> bytes:
    """Encode a number with variable length (MQTT 5 1.5.5)."""
    if value < 0x80:
        return bytes((value,))
    assert value < 1 << 28
    digits = bytearray()
    while True:
        value, digit = value >> 7, value & 0x7F
        digits.append(digit | 0x80 if value else digit)
        if not value:
            return bytes(digits)


def pack_uint16(value: int) -> bytes:
    return value.to_bytes(2, "big")


def _four(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _byte(value: int) -> bytes:
    return bytes((value,))


def binary(value: bytes) -> bytes:
    assert len(value) <= LONGEST
    return pack_uint16(len(value)) + value


def text(value: str) -> bytes:
    return binary(value.encode())


def _pair(value: tuple[str, str]) -> bytes:
    return text(value[0]) + text(value[1])


def _flag(reader: FieldReader) -> int:
    if (value := reader.byte()) > 1:
        raise MqttError(Reason.PROTOCOL_ERROR, "a flag in a property is neither 0 nor 1")
    return value


def _positive(read: Callable[[FieldReader], int]) -> Callable[[FieldReader], int]:
    def positive(reader: FieldReader) -> int:
        if not (value := read(reader)):
            raise MqttError(Reason.PROTOCOL_ERROR, "the value of a property is 0, which is not allowed")
        return value

    return positive


USER: Final = "user-property"
_READ: Final[Mapping[str, tuple[Callable[[FieldReader], Any], Callable[[Any], bytes]]]] = {
    "flag": (_flag, _byte),
    "two": (FieldReader.uint16, pack_uint16),
    "some": (_positive(FieldReader.uint16), pack_uint16),
    "four": (FieldReader.uint32, _four),
    "size": (_positive(FieldReader.uint32), _four),
    "number": (_positive(FieldReader.number), number),
    "text": (FieldReader.text, text),
    "binary": (FieldReader.binary, binary),
    "pair": (FieldReader.pair, _pair),
}
_CONNECT, _CONNACK, _PUBLISH = PacketKind.CONNECT, PacketKind.CONNACK, PacketKind.PUBLISH
_SUBSCRIBE, _DISCONNECT, _AUTH = PacketKind.SUBSCRIBE, PacketKind.DISCONNECT, PacketKind.AUTH
_ACKS: Final = (PacketKind.PUBACK, PacketKind.PUBREC, PacketKind.PUBREL, PacketKind.PUBCOMP)
_ANSWERS: Final = (*_ACKS, PacketKind.SUBACK, PacketKind.UNSUBACK, _CONNACK, _DISCONNECT, _AUTH)
_ALL: Final = (*_ANSWERS, _CONNECT, _PUBLISH, _SUBSCRIBE, PacketKind.UNSUBSCRIBE, WILL)
_TABLE: Final[Mapping[int, tuple[str, str, tuple[int, ...]]]] = {
    0x01: ("payload-format-indicator", "flag", (_PUBLISH, WILL)),
    0x02: ("message-expiry-interval", "four", (_PUBLISH, WILL)),
    0x03: ("content-type", "text", (_PUBLISH, WILL)),
    0x08: ("response-topic", "text", (_PUBLISH, WILL)),
    0x09: ("correlation-data", "binary", (_PUBLISH, WILL)),
    0x0B: ("subscription-identifier", "number", (_PUBLISH, _SUBSCRIBE)),
    0x11: ("session-expiry-interval", "four", (_CONNECT, _CONNACK, _DISCONNECT)),
    0x12: ("assigned-client-identifier", "text", (_CONNACK,)),
    0x13: ("server-keep-alive", "two", (_CONNACK,)),
    0x15: ("authentication-method", "text", (_CONNECT, _CONNACK, _AUTH)),
    0x16: ("authentication-data", "binary", (_CONNECT, _CONNACK, _AUTH)),
    0x17: ("request-problem-information", "flag", (_CONNECT,)),
    0x18: ("will-delay-interval", "four", (WILL,)),
    0x19: ("request-response-information", "flag", (_CONNECT,)),
    0x1A: ("response-information", "text", (_CONNACK,)),
    0x1C: ("server-reference", "text", (_CONNACK, _DISCONNECT)),
    0x1F: ("reason-string", "text", _ANSWERS),
    0x21: ("receive-maximum", "some", (_CONNECT, _CONNACK)),
    0x22: ("topic-alias-maximum", "two", (_CONNECT, _CONNACK)),
    0x23: ("topic-alias", "two", (_PUBLISH,)),
    0x24: ("maximum-qos", "flag", (_CONNACK,)),
    0x25: ("retain-available", "flag", (_CONNACK,)),
    0x26: (USER, "pair", _ALL),
    0x27: ("maximum-packet-size", "size", (_CONNECT, _CONNACK)),
    0x28: ("wildcard-subscription-available", "flag", (_CONNACK,)),
    0x29: ("subscription-identifier-available", "flag", (_CONNACK,)),
    0x2A: ("shared-subscription-available", "flag", (_CONNACK,)),
}
PROPERTIES: Final[Mapping[int, Property]] = {
    code: Property(name, *_READ[kind], frozenset(places)) for code, (name, kind, places) in _TABLE.items()
}
"""Maps the code of a property to its name, its type and the packets that may have it (MQTT 5 2.2.2.2)."""
_WRITTEN: Final = {known.name: (bytes((code,)), known.write) for code, known in PROPERTIES.items()}


def properties(values: Mapping[str, Any]) -> bytes:
    """Encode properties, with their length before them."""
    whole = _encoded(values)
    return number(len(whole)) + whole


def extended(known: bytes, values: Mapping[str, Any]) -> bytes:
    """Add properties to encoded properties, which have their length before them."""
    reader = FieldReader(known)
    reader.number()
    whole = _encoded(values) + reader.rest()
    return number(len(whole)) + whole


def _encoded(values: Mapping[str, Any]) -> bytes:
    parts = []
    for name, value in values.items():
        code, write = _WRITTEN[name]
        parts += [code + write(each) for each in (value if name == USER else (value,))]
    return b"".join(parts)
