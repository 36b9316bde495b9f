"""Translates a PUBLISH to an AMQP message, and back (docs/mqtt.md has the table).

The body of the AMQP message is the payload, byte for byte. The properties of MQTT 5 become the AMQP sections for the
same purpose, which other clients and selectors read. An annotation marks a message of QoS 1, because no subscriber may
receive it with a higher QoS (MQTT 5 3.8.4). A message of QoS 0 is presettled. Annotations also keep what AMQP has no
form for: the payload format, user properties with equal names, and a content type that is not ASCII.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from attrs import frozen

from router.amqp.format.codec import Described, Symbol, Timestamp, decode, encode, skip, ubyte, uint
from router.amqp.format.errors import DECODE_ERROR, AmqpError
from router.amqp.format.message import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    data_section,
    sections_of,
)
from router.mqtt.format.fields import LONGEST, USER, properties
from topic import properties as names

QOS: Final = Symbol("x-opt-mqtt-qos")
IS_TEXT: Final = Symbol("x-opt-mqtt-payload-is-text")
USER_PROPERTIES: Final = Symbol("x-opt-mqtt-user-properties")
"""The annotation with all user properties, as a list of names and values in turn. AMQP's application-properties have
only the last value of each name."""
CONTENT_TYPE: Final = Symbol("x-opt-mqtt-content-type")
ADDRESS: Final = Symbol(names.ADDRESS)
_TTL, _REPLY_TO, _CORRELATION_ID, _CONTENT_TYPE, _UNTIL = 2, 4, 5, 6, 8
"""The indexes of fields: TTL in the header, the others in the properties."""
EXPIRY: Final = "message-expiry-interval"
_MS: Final = 1000
_MOST: Final = 2**32 - 1
_DATA_BEGIN: Final = data_section(b"")[:4]
_OF_QOS_1: Final = encode(Described(MESSAGE_ANNOTATIONS, {QOS: ubyte(1)}))


@frozen
class MqttContent:
    """The parts of a message that an MQTT subscriber receives."""

    payload: bytes
    qos: int
    """The highest QoS with which the message may be sent."""
    properties: bytes
    """The encoded properties of MQTT 5, with their length before them."""
    until_ms: int | None = None
    """The time at which the message expires, in ms since 1970. If it is given, `properties` has no expiry."""
    expiry_s: int | None = None
    """The message expiry interval that the publisher gave, if `until_ms` is given."""

    def expiry_at(self, wall_ms: int) -> dict[str, int]:
        """The property *message expiry interval* for a PUBLISH that is sent now. Empty if `properties` has it already,
        or if the message does not expire."""
        if self.until_ms is None:
            return {}
        left = max(0, -(-(self.until_ms - wall_ms) // _MS))
        return {EXPIRY: min(left, _MOST if self.expiry_s is None else self.expiry_s)}


FLAT: Final = b"\xa0\xb0\xa1\xb1"
"""The constructor bytes of AMQP's binary data and of AMQP's texts."""
NO_PROPERTIES: Final = b"\0"
MOST_MESSAGE: Final = (1 << 28) - (1 << 20)
"""The highest number of bytes of a message. A larger one does not fit into a packet together with its topic."""
MOST_BESIDE: Final = 128 * 1024
"""The highest number of bytes of a message that the router decodes. Sections that consist of one text or binary value
do not count, because they are not decoded. The limit bounds the work, as the decoded bytes may hold any values. A
message from MQTT is always below the limit, even if it has the properties of its PUBLISH twice."""
MOST_SECTIONS: Final = 300


def to_amqp(payload: bytes, qos: int, found: Mapping[str, Any], until_ms: int | None = None) -> bytes:
    """Encode an AMQP message. `found` are the properties of the PUBLISH. `until_ms`: the time at which the message
    expires, in ms since 1970."""
    body = data_section(payload)
    if not found:
        return _OF_QOS_1 + body if qos == 1 else body
    sections = []
    if (expiry := found.get(EXPIRY)) is not None:
        sections.append(Described(HEADER, [None, None, uint(min(expiry * _MS, _MOST))]))
    annotations: dict[Symbol, Any] = {QOS: ubyte(1)} if qos == 1 else {}
    if "payload-format-indicator" in found:
        annotations[IS_TEXT] = bool(found["payload-format-indicator"])
    content_type, pairs = found.get("content-type"), found.get(USER, [])
    if content_type is not None and not content_type.isascii():
        annotations[CONTENT_TYPE], content_type = content_type, None
    if len(dict(pairs)) < len(pairs):
        annotations[USER_PROPERTIES] = [text for pair in pairs for text in pair]
    if annotations:
        sections.append(Described(MESSAGE_ANNOTATIONS, annotations))
    fields = [None, None, None, None, found.get("response-topic"), found.get("correlation-data")]
    fields.append(Symbol(content_type) if content_type is not None else None)
    if until_ms is not None:
        fields += [None, Timestamp(until_ms)]
    if any(field is not None for field in fields):
        sections.append(Described(PROPERTIES, fields))
    if pairs:
        sections.append(Described(APPLICATION_PROPERTIES, dict(pairs)))
    return b"".join(map(encode, sections)) + body


def from_amqp(message: bytes) -> MqttContent | None:
    """Translate a message to MQTT. None if MQTT cannot carry it: its body is neither data nor text, it is too large, or
    it is malformed."""
    qos = 2
    if len(message) > MOST_MESSAGE:
        return None
    if message.startswith(_OF_QOS_1):
        message, qos = message[len(_OF_QOS_1) :], 1
    if message.startswith(_DATA_BEGIN) and len(message) == 8 + int.from_bytes(message[4:8], "big"):
        return MqttContent(message[8:], qos, NO_PROPERTIES)
    try:
        beside, flat = _parted(message)
        body = [_bytes_of(decode(message, at)[0]) for at in flat]
    except AmqpError:
        return None
    told = _told(beside)
    if told is None or all(part is None for part in body):
        return None
    payload = b"".join(part for part in body if part is not None)
    return MqttContent(payload, min(qos, told.qos), told.properties, told.until_ms, told.expiry_s)


def _parted(message: bytes) -> tuple[bytes, list[int]]:
    """Returns two parts of a message: the bytes of the sections that have to be decoded, and the offsets of the
    sections that consist of one text or binary value. Raises AmqpError if the message is cut off, or if the first part
    has more than `MOST_BESIDE` bytes."""
    at, beside, flat, looked = 0, list[bytes](), list[int](), 0
    while at < len(message):
        begin, at = at, skip(message, at)
        value = begin if message[begin] else skip(message, begin + 1)
        is_flat = message[value] in FLAT
        looked += (value if is_flat else at) - begin
        if looked > MOST_BESIDE or len(beside) + len(flat) == MOST_SECTIONS:
            raise AmqpError(DECODE_ERROR, "the sections beside the body of the message are too large")
        if is_flat:
            flat.append(begin)
        else:
            beside.append(message[begin:at])
    return b"".join(beside), flat


def _bytes_of(section: Any) -> bytes | None:
    """The bytes of a body section; None if it is another section. Raises AmqpError if it is no section."""
    if not isinstance(section, Described):
        raise AmqpError(DECODE_ERROR, "the message does not consist of AMQP sections")
    code, value = section
    if code == DATA and isinstance(value, bytes):
        return value
    if code == VALUE and isinstance(value, str | bytes):
        return value.encode(errors="replace") if isinstance(value, str) else value
    return None


@frozen
class _Told:
    """The QoS, the properties and the expiry of a message, as in `MqttContent`."""

    qos: int
    properties: bytes
    until_ms: int | None
    expiry_s: int | None


@lru_cache(maxsize=64)
def _told(beside: bytes) -> _Told | None:
    """The QoS and the properties of a message with these sections; None if the bytes are no sections. Cached, so that a
    message is read once for all its subscribers."""
    try:
        sections = sections_of(beside)
    except AmqpError:
        return None
    qos, found, annotated, until_ms = 2, dict[str, Any](), dict[str, Any](), None
    for code, value in sections:
        if code == HEADER and isinstance(value, list):
            ttl = value[_TTL] if len(value) > _TTL else None
            if isinstance(ttl, int) and 0 <= ttl <= _MOST:
                found[EXPIRY] = -(-ttl // _MS)
        elif code == MESSAGE_ANNOTATIONS and isinstance(value, dict):
            qos = 1 if value.get(QOS) == 1 else qos
            if isinstance(value.get(IS_TEXT), bool):
                found["payload-format-indicator"] = int(value[IS_TEXT])
            annotated = _annotated(value)
        elif code == PROPERTIES and isinstance(value, list):
            found |= _properties(value)
            until_ms = _expiry_time(value)
        elif code == APPLICATION_PROPERTIES and isinstance(value, dict):
            texts = ((name, _text(each)) for name, each in value.items() if _fits(name))
            found[USER] = [(name, text) for name, text in texts if text is not None]
    expiry_s = found.pop(EXPIRY, None) if until_ms is not None else None
    return _Told(qos, properties(found | annotated), until_ms, expiry_s)


def address_in(message: bytes) -> str:
    """The address to which a message of a queue was published, which is an annotation of the message; empty if the
    message has none."""
    try:
        sections = sections_of(_parted(message)[0])
    except AmqpError:
        return ""
    found = [value.get(ADDRESS) for code, value in sections if code == MESSAGE_ANNOTATIONS and isinstance(value, dict)]
    return str(found[0]) if found and isinstance(found[0], str) else ""


def _expiry_time(fields: list[Any]) -> int | None:
    """The absolute-expiry-time in these fields of the properties; None if it has none."""
    value = fields[_UNTIL] if len(fields) > _UNTIL else None
    return int(value) if isinstance(value, Timestamp) and value > 0 else None


def _annotated(annotations: dict[Any, Any]) -> dict[str, Any]:
    """The properties of a PUBLISH that AMQP has no form for, from the annotations."""
    found: dict[str, Any] = {}
    if _fits(kind := annotations.get(CONTENT_TYPE)):
        found["content-type"] = kind
    texts = annotations.get(USER_PROPERTIES)
    if isinstance(texts, list) and len(texts) % 2 == 0 and all(map(_fits, texts)):
        found[USER] = list(zip(texts[::2], texts[1::2], strict=True))
    return found


def _properties(fields: list[Any]) -> dict[str, Any]:
    fields = [*fields, *[None] * (_CONTENT_TYPE + 1 - len(fields))]
    found: dict[str, Any] = {}
    if is_topic(topic := fields[_REPLY_TO]):
        found["response-topic"] = topic
    if (identity := fields[_CORRELATION_ID]) is not None:
        data = identity if isinstance(identity, bytes) else str(identity).encode(errors="replace")
        if len(data) <= LONGEST:
            found["correlation-data"] = data
    if _fits(kind := fields[_CONTENT_TYPE]):
        found["content-type"] = str(kind)
    return found


def is_topic(value: Any) -> bool:
    """Whether a PUBLISH may have this topic."""
    return _fits(value) and value != "" and "+" not in value and "#" not in value


def _text(value: Any) -> str | None:
    """A simple AMQP value as a text; None if it has no form as a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, bytes | list | dict | Described):
        return None
    text = str(int(value)) if isinstance(value, Timestamp) else str(value)
    return text if _fits(text) else None


def _fits(value: Any) -> bool:
    """Whether the value is a text that MQTT can carry."""
    if not isinstance(value, str) or "\0" in value or len(value) > LONGEST:
        return False
    try:
        return len(value.encode()) <= LONGEST
    # An AMQP char may be a surrogate, which UTF-8 cannot encode.
    except UnicodeEncodeError:
        return False


def read_again(message: bytes) -> MqttContent:
    """Translate a message again that `from_amqp` has translated. The second translation cannot fail, because the first
    did not."""
    content = from_amqp(message)
    assert content is not None
    return content
