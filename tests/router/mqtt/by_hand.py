"""Packets of MQTT clients, written by hand: correct ones, and parts of others."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from router.mqtt.format.fields import binary, number, pack_uint16, properties, text
from router.mqtt.format.values import V5, PacketKind


@frozen
class WillByHand:
    topic: str
    payload: bytes = b"will"
    qos: int = 1
    found: Mapping[str, Any] = {}
    retain: bool = False


def packet(first: int, body: bytes = b"") -> bytes:
    return bytes((first,)) + number(len(body)) + body


def connect(
    client: str = "hand",
    version: int = V5,
    *,
    clean: bool = True,
    keep_alive: int = 0,
    found: Mapping[str, Any] | None = None,
    user: str | None = None,
    password: bytes | None = None,
    will: "WillByHand | None" = None,
) -> bytes:
    flags = (2 if clean else 0) | (0x80 if user is not None else 0) | (0x40 if password is not None else 0)
    flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0) if will is not None else 0
    body = text("MQTT") + bytes((version, flags)) + pack_uint16(keep_alive)
    body += (properties(found or {}) if version == V5 else b"") + text(client)
    if will is not None:
        body += (properties(will.found) if version == V5 else b"") + text(will.topic) + binary(will.payload)
    body += text(user) if user is not None else b""
    return packet(0x10, body + (binary(password) if password is not None else b""))


def publish(
    topic: str,
    payload: bytes,
    qos: int = 0,
    identifier: int = 0,
    version: int = V5,
    *,
    dup: bool = False,
    found: Mapping[str, Any] | None = None,
) -> bytes:
    middle = (
        text(topic) + (pack_uint16(identifier) if qos else b"") + (properties(found or {}) if version == V5 else b"")
    )
    return packet(0x30 | qos << 1 | dup << 3, middle + payload)


def ack(kind: PacketKind, identifier: int, reason: int | None = None) -> bytes:
    flags = 2 if kind is PacketKind.PUBREL else 0
    return packet(kind << 4 | flags, pack_uint16(identifier) + (bytes((reason,)) if reason is not None else b""))


def subscribe(
    identifier: int, filters: Sequence[tuple[str, int]], version: int = V5, *, subscription: int = 0
) -> bytes:
    found = {"subscription-identifier": subscription} if subscription else {}
    body = pack_uint16(identifier) + (properties(found) if version == V5 else b"")
    return packet(0x82, body + b"".join(text(name) + bytes((options,)) for name, options in filters))


def unsubscribe(identifier: int, filters: Sequence[str], version: int = V5) -> bytes:
    body = pack_uint16(identifier) + (b"\0" if version == V5 else b"")
    return packet(0xA2, body + b"".join(map(text, filters)))


def disconnect(reason: int, found: Mapping[str, Any] | None = None) -> bytes:
    return packet(0xE0, bytes((reason,)) + properties(found or {}))


PINGREQ = packet(0xC0)
DISCONNECT = packet(0xE0)
