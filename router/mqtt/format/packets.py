"""The packets of MQTT 3.1.1 and 5: reads the packets that clients send, writes the packets that servers send.

The packets are frozen values. `fields` reads and writes their fields; the session decides what a packet means.
"""

from collections.abc import Iterable, Mapping, Sized
from typing import Any, Final

from attrs import frozen

from router.mqtt.format.fields import WILL, FieldReader, malformed, number, pack_uint16, properties
from router.mqtt.format.values import V3, V5, MqttError, PacketKind, Reason, return_code

Properties = Mapping[str, Any]
_DUP, _RETAIN = 0x08, 0x01
MOST_IDENTIFIER: Final = (1 << 28) - 1
"""The highest subscription identifier."""
MOST_FILTERS: Final = 1000
"""The highest number of topic filters of one SUBSCRIBE or UNSUBSCRIBE. The router begins or ends a link for each
filter, and does this for all filters in one turn of the loop."""
_CLEAN, _WILL, _WILL_RETAIN, _PASSWORD, _USER = 0x02, 0x04, 0x20, 0x40, 0x80


@frozen
class AskedWill:
    topic: str
    payload: bytes
    qos: int
    properties: Properties


@frozen
class ConnectPacket:
    version: int
    client: str
    clean: bool
    keep_alive: int
    """The keep-alive, in seconds; 0: no limit."""
    user: str | None
    password: bytes | None
    will: AskedWill | None
    properties: Properties


@frozen
class PublishPacket:
    topic: str
    """The topic; empty if the packet names its topic only by an alias."""
    payload: bytes
    qos: int
    dup: bool
    identifier: int
    """0 at QoS 0."""
    properties: Properties


@frozen
class AckPacket:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    kind: PacketKind
    identifier: int
    reason: int


@frozen
class SubscriptionOptions:
    """The options of a subscription besides its QoS. *Retain as published* and *retain handling* have no effect,
    because there are no retained messages."""

    no_local: bool = False
    identifier: int = 0
    """The subscription identifier; 0: none."""

    @property
    def packed(self) -> int:
        """The options as one number, which other routers keep (`LinkEntry.options`)."""
        return self.identifier << 1 | self.no_local


def options_of(packed: int) -> SubscriptionOptions:
    return SubscriptionOptions(bool(packed & 1), packed >> 1 & MOST_IDENTIFIER)


@frozen
class FilterRequest:
    """A topic filter of a SUBSCRIBE, with its options."""

    filter: str
    qos: int
    options: SubscriptionOptions


@frozen
class SubscribePacket:
    identifier: int
    filters: tuple[FilterRequest, ...]


@frozen
class UnsubscribePacket:
    identifier: int
    filters: tuple[str, ...]


@frozen
class DisconnectPacket:
    reason: int
    properties: Properties


@frozen
class PingPacket:
    pass


Packet = ConnectPacket | PublishPacket | AckPacket | SubscribePacket | UnsubscribePacket | DisconnectPacket | PingPacket

# The flags that each kind of packet must have if a client sends it (MQTT 5 2.1.3). PUBLISH has flags of its own.
_FLAGS: Final = {
    PacketKind.CONNECT: 0,
    PacketKind.PUBACK: 0,
    PacketKind.PUBREC: 0,
    PacketKind.PUBREL: 2,
    PacketKind.PUBCOMP: 0,
    PacketKind.SUBSCRIBE: 2,
    PacketKind.UNSUBSCRIBE: 2,
    PacketKind.PINGREQ: 0,
    PacketKind.DISCONNECT: 0,
}


def read_packet(first: int, body: bytes, version: int) -> Packet:
    """Decode a packet. `first` is the first byte of its header, `body` all bytes after the header. Raises MqttError."""
    code = first >> 4
    if code == PacketKind.PUBLISH:
        return _publish(first & 0x0F, FieldReader(body), version)
    if code == PacketKind.AUTH:
        raise MqttError(Reason.PROTOCOL_ERROR, "the client sent AUTH, but no enhanced authentication has begun")
    if code not in _FLAGS:
        raise MqttError(Reason.PROTOCOL_ERROR, f"the client sent a packet of type {code}, which clients may not send")
    kind = PacketKind(code)
    if first & 0x0F != _FLAGS[kind]:
        raise malformed(f"the client sent a {kind.name} with the wrong flags {first & 15:#x}")
    reader = FieldReader(body)
    packet = _read(kind, reader, version)
    if not reader.is_over():
        raise malformed(f"the client sent a {kind.name} with extra bytes at its end")
    return packet


def _read(kind: PacketKind, reader: FieldReader, version: int) -> Packet:
    match kind:
        case PacketKind.CONNECT:
            return _connect(reader)
        case PacketKind.SUBSCRIBE:
            return _subscribe(reader, version)
        case PacketKind.UNSUBSCRIBE:
            return _unsubscribe(reader, version)
        case PacketKind.PINGREQ:
            return PingPacket()
        case PacketKind.DISCONNECT:
            reason = 0 if reader.is_over() or version == V3 else reader.byte()
            return DisconnectPacket(reason, reader.properties(kind) if version == V5 else {})
    identifier = reader.identifier()
    reason = 0 if reader.is_over() or version == V3 else reader.byte()
    if version == V5:
        reader.properties(kind)
    return AckPacket(kind, identifier, reason)


def version_of(connect: bytes) -> int:
    """The version in which to answer the client that sent this CONNECT, however malformed the rest of it is."""
    return V3 if connect.startswith(b"\0\4MQTT\4") else V5


def _connect(reader: FieldReader) -> ConnectPacket:
    name, version = reader.text(), reader.byte()
    if name != "MQTT":
        raise malformed(f"the CONNECT names the protocol {name[:20]!r}, expected MQTT")
    if version not in (V3, V5):
        raise MqttError(
            Reason.UNSUPPORTED_VERSION, f"the CONNECT has the protocol level {version}, expected 4 (3.1.1) or 5"
        )
    flags, keep_alive = reader.byte(), reader.uint16()
    if why := _wrong_flags(flags):
        raise malformed(f"the CONNECT has the flags {flags:#x}: {why}")
    if version == V3 and flags & _PASSWORD and not flags & _USER:
        raise malformed("the CONNECT has a password, but no user")
    found = reader.properties(PacketKind.CONNECT) if version == V5 else {}
    client = reader.text()
    will = _will(reader, flags, version) if flags & _WILL else None
    user = reader.text() if flags & _USER else None
    password = reader.binary() if flags & _PASSWORD else None
    return ConnectPacket(version, client, bool(flags & _CLEAN), keep_alive, user, password, will, found)


def _wrong_flags(flags: int) -> str:
    """The reason for which the flags of a CONNECT are wrong; empty if they are right."""
    if flags & 0x01:
        return "the reserved bit 0 is set, expected 0"
    if not flags & _WILL and flags & 0x38:
        return "they give a QoS of the will or retain the will, but there is no will"
    return "the QoS of the will is 3, expected 0, 1 or 2" if (flags >> 3) & 3 == 3 else ""


def _will(reader: FieldReader, flags: int, version: int) -> AskedWill:
    if flags & _WILL_RETAIN:
        raise MqttError(Reason.NO_RETAIN, "the client asks for a retained will, which is not supported")
    found = reader.properties(WILL) if version == V5 else {}
    topic, payload = _topic(reader.text()), reader.binary()
    return AskedWill(topic, payload, (flags >> 3) & 3, found)


def _topic(name: str) -> str:
    if not name or "+" in name or "#" in name:
        raise MqttError(
            Reason.BAD_TOPIC, f"the client cannot publish to {name[:100]!r}, expected a topic without wildcards"
        )
    return name


def _publish(flags: int, reader: FieldReader, version: int) -> PublishPacket:
    qos, dup = (flags >> 1) & 3, bool(flags & _DUP)
    if qos == 3 or (dup and not qos):
        raise malformed(f"the PUBLISH has the wrong flags {flags:#x}")
    if flags & _RETAIN:
        raise MqttError(Reason.NO_RETAIN, "the client sent a retained message, which is not supported")
    name = reader.text()
    identifier = reader.identifier() if qos else 0
    found = reader.properties(PacketKind.PUBLISH) if version == V5 else {}
    topic = name if not name and "topic-alias" in found else _topic(name)
    return PublishPacket(topic, reader.rest(), qos, dup, identifier, found)


def _subscribe(reader: FieldReader, version: int) -> SubscribePacket:
    identifier = reader.identifier()
    found = reader.properties(PacketKind.SUBSCRIBE) if version == V5 else {}
    subscription = found.get("subscription-identifier", 0)
    filters = []
    while not reader.is_over():
        name, options = reader.text(), reader.byte()
        if options & 3 == 3 or options & (0xC0 if version == V5 else 0xFC) or options & 0x30 == 0x30:
            raise malformed(f"the SUBSCRIBE has the wrong options {options:#x}")
        filters.append(FilterRequest(name, options & 3, SubscriptionOptions(bool(options & 4), subscription)))
        _bounded(filters)
    if not filters:
        raise MqttError(Reason.PROTOCOL_ERROR, "the SUBSCRIBE has no topic filter")
    return SubscribePacket(identifier, tuple(filters))


def _unsubscribe(reader: FieldReader, version: int) -> UnsubscribePacket:
    identifier = reader.identifier()
    if version == V5:
        reader.properties(PacketKind.UNSUBSCRIBE)
    filters = []
    while not reader.is_over():
        filters.append(reader.text())
        _bounded(filters)
    if not filters:
        raise MqttError(Reason.PROTOCOL_ERROR, "the UNSUBSCRIBE has no topic filter")
    return UnsubscribePacket(identifier, tuple(filters))


def _bounded(filters: Sized) -> None:
    if len(filters) > MOST_FILTERS:
        raise MqttError(Reason.QUOTA, f"the packet has more than {MOST_FILTERS} topic filters")


# The functions from here on encode packets that a server sends.

PINGRESP: Final = bytes((PacketKind.PINGRESP << 4, 0))


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + number(len(body)) + body


def connack(version: int, reason: Reason, *, present: bool = False, told: Properties | None = None) -> bytes:
    if version == V3:
        return _packet(PacketKind.CONNACK << 4, bytes((present, return_code(reason))))
    return _packet(PacketKind.CONNACK << 4, bytes((present, reason)) + properties(told or {}))


def publish(topic: bytes, payload: bytes, qos: int, identifier: int, found: bytes, *, dup: bool = False) -> bytes:
    """Encode a PUBLISH. `topic` has its length before it, as `fields.text` writes it. `found` are the encoded
    properties with their length; empty in 3.1.1."""
    first = PacketKind.PUBLISH << 4 | qos << 1 | (_DUP if dup else 0)
    middle = topic + pack_uint16(identifier) + found if qos else topic + found
    return b"".join((bytes((first,)), number(len(middle) + len(payload)), middle, payload))


def ack(version: int, kind: PacketKind, identifier: int, reason: int = 0, why: str = "") -> bytes:
    first = kind << 4 | (2 if kind is PacketKind.PUBREL else 0)
    if version == V3 or not reason:
        return bytes((first, 2)) + pack_uint16(identifier)
    return _packet(
        first, pack_uint16(identifier) + bytes((reason,)) + (properties({"reason-string": why}) if why else b"")
    )


def suback(version: int, kind: PacketKind, identifier: int, reasons: Iterable[int]) -> bytes:
    """Encode a SUBACK or an UNSUBACK. An UNSUBACK has no reason codes in 3.1.1."""
    if version == V3:
        codes = bytes(min(reason, 0x80) for reason in reasons) if kind is PacketKind.SUBACK else b""
        return _packet(kind << 4, pack_uint16(identifier) + codes)
    return _packet(kind << 4, pack_uint16(identifier) + b"\0" + bytes(reasons))


def disconnect(reason: Reason, why: str) -> bytes:
    """Encode a DISCONNECT of MQTT 5. A server of 3.1.1 sends none."""
    return _packet(PacketKind.DISCONNECT << 4, bytes((reason,)) + properties({"reason-string": why} if why else {}))
