"""The few things we do to messages: wrap and unwrap a body for our own clients, and what `modified` outcomes ask for.

AMQP 1.0 3.2. Everybody else's messages pass through the mesh as bytes: `modified` changes one header field and the
annotations that it is given, keeps every other byte, and leaves alone what is not a message.

A message's format, 0 but for those of other standards, is said by its transfer (AMQP 1.0 2.7.5). A message of another
one is kept in an *envelope*, which begins with a byte that no message of format 0 begins with, and has the format in
front. So it is carried wherever the message is, and costs the others nothing.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from router.amqp.format.codec import Described, decode, encode, skip, uint
from router.amqp.format.errors import DECODE_ERROR, AmqpError
from router.amqp.format.performative import join_list, join_map, padded, split_list

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
VALUE: Final = 0x77

ENVELOPE: Final = b"\xff"
ENVELOPE_SIZE: Final = 5  # with the format

_ONE_SECTION: Final = b"\x00\x53\x75\xb0"  # its begin, with a length of four bytes
_DELIVERY_COUNT: Final = 4  # its place in the header


def in_envelope(message: bytes, message_format: int) -> bytes:
    """Needed for a format other than 0, and for what begins like an envelope."""
    return ENVELOPE + message_format.to_bytes(4, "big") + message


def format_of(message: bytes) -> int:
    """The message-format of what may be in an envelope."""
    return int.from_bytes(message[1:ENVELOPE_SIZE], "big") if message >= ENVELOPE else 0


def content_of(message: bytes) -> bytes:
    """What its transfer has for a payload."""
    return message[ENVELOPE_SIZE:] if message >= ENVELOPE else message


def data_message(body: bytes, properties: Mapping[str, Any] | None = None) -> bytes:
    """A message of one data section, with application properties if there are any."""
    section = joined_message((body,))
    return encode(Described(APPLICATION_PROPERTIES, dict(properties))) + section if properties else section


def joined_message(bodies: Sequence[bytes]) -> bytes:
    """A message of one data section that has them all."""
    return b"".join((_ONE_SECTION, sum(map(len, bodies)).to_bytes(4, "big"), *bodies))


def body_of(message: bytes) -> bytes:
    """The data sections' bytes, or a string or binary that came as amqp-value. Raises AmqpError on other bodies."""
    if message.startswith(_ONE_SECTION) and len(message) == 8 + int.from_bytes(message[4:8], "big"):
        return message[8:]  # as `joined_message` writes it: there are many of these between routers
    body = []
    for code, value in sections_of(message):
        if code == DATA and isinstance(value, bytes):
            body.append(value)
        elif code == VALUE and isinstance(value, str | bytes):
            body.append(value.encode() if isinstance(value, str) else value)
    if not body:
        raise AmqpError(DECODE_ERROR, "a message whose body is neither data nor text")
    return b"".join(body)


def application_properties(message: bytes) -> dict[str, Any]:
    """The application properties of a message; empty if it has none."""
    for code, value in sections_of(message):
        if code == APPLICATION_PROPERTIES and isinstance(value, dict):
            return value
    return {}


def sections_of(message: bytes) -> list[tuple[Any, Any]]:
    """Descriptors and values. Raises AmqpError on what is not made of sections."""
    if message >= ENVELOPE:
        raise AmqpError(DECODE_ERROR, f"a message of format {format_of(message):#x}")
    at, sections = 0, []
    while at < len(message):
        section, at = decode(message, at)
        if not isinstance(section, Described):
            raise AmqpError(DECODE_ERROR, "a message is made of sections")
        sections.append((section.descriptor, section.value))
    return sections


def place_of(message: bytes, code: int) -> int:
    """Where the value of that section begins, which stands in front of the body; -1 if there is none. Raises AmqpError
    on what is not made of sections as far as that."""
    at = 0 if message < ENVELOPE else len(message)
    while at < len(message):
        found, at = _section_at(message, at)
        if found == code:
            return at
        if not isinstance(found, int) or found > code:  # they have an order
            break
        at = skip(message, at)
    return -1


def section_of(message: bytes, code: int) -> bytes:
    """The value of that section, as it is encoded; empty if there is none. Raises AmqpError as `place_of` does."""
    at = place_of(message, code)
    return message[at : skip(message, at)] if at >= 0 else b""


def annotation_of(message: bytes, name: str) -> Any:
    """The message annotation of that name; None if there is none. Raises AmqpError as `place_of` does."""
    section = section_of(message, MESSAGE_ANNOTATIONS)
    annotations = decode(section)[0] if section else None
    return annotations.get(name) if isinstance(annotations, dict) else None


def modified(message: bytes, failures: int, annotations: bytes) -> bytes:
    """The message after so many deliveries that failed, with more message-annotations: an encoded map, or nothing
    (AMQP 1.0 3.4.5)."""
    try:
        if message >= ENVELOPE:
            return message  # of another format, with no sections that we know
        if failures:
            message = _with_failures(message, failures)
        return _annotated(message, annotations) if annotations else message
    except AmqpError:
        return message


def merged(annotations: bytes, more: bytes) -> bytes:
    """Two encoded maps as one; the second one's entries go before. Empty stands for no map. Raises AmqpError."""
    if not annotations or not more:
        return annotations or more
    entries = _entries(annotations) | _entries(more)
    return join_map([element for entry in entries.values() for element in entry])


@lru_cache(maxsize=16)
def _entries(annotations: bytes) -> dict[str | int, tuple[bytes, bytes]]:
    """By key: both as they are encoded. One outcome may modify many messages."""
    elements, _ = split_list(annotations, 0, most=len(annotations))
    entries = {}
    for key, value in zip(elements[::2], elements[1::2], strict=False):
        name, _ = decode(key)
        if not isinstance(name, str | int):
            raise AmqpError(DECODE_ERROR, "a key of annotations is a symbol or a number")
        entries[name] = (key, value)
    return entries


def _with_failures(message: bytes, failures: int) -> bytes:
    """With a delivery-count that is higher, in its header, which is added if there was none."""
    fields, end = _header(message)
    fields = padded(fields, _DELIVERY_COUNT + 1)
    count = decode(fields[_DELIVERY_COUNT])[0] or 0
    if not isinstance(count, int):
        raise AmqpError(DECODE_ERROR, "a delivery-count is a number")
    fields[_DELIVERY_COUNT] = encode(uint(min(count + failures, 2**32 - 1)))
    return b"\x00\x53\x70" + join_list(fields) + message[end:]


def _header(message: bytes) -> tuple[list[bytes], int]:
    """The header's fields as they are encoded, and the offset behind it; none and 0 if there is no header."""
    code, at = _section_at(message, 0)
    return split_list(message, at) if code == HEADER else ([], 0)


def _annotated(message: bytes, annotations: bytes) -> bytes:
    start = 0
    for kind in (HEADER, DELIVERY_ANNOTATIONS):
        code, at = _section_at(message, start)
        start = skip(message, at) if code == kind else start
    code, at = _section_at(message, start)
    end = skip(message, at) if code == MESSAGE_ANNOTATIONS else start
    annotations = merged(message[at:end] if end > start else b"", annotations)
    return message[:start] + b"\x00\x53\x72" + annotations + message[end:]


def _section_at(message: bytes, start: int) -> tuple[Any, int]:
    """The descriptor of the section there, and the offset of its value. Raises AmqpError if it is none."""
    if message[start : start + 1] != b"\x00":
        raise AmqpError(DECODE_ERROR, "a message is made of sections")
    if message[start + 1 : start + 2] == b"\x53" and start + 2 < len(message):
        return message[start + 2], start + 3
    return decode(message, start + 1)
