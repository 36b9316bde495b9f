"""The few things we do to messages: wrap and unwrap a body for our own clients, and count redeliveries.

AMQP 1.0 3.2. Everybody else's messages pass through the mesh as bytes: `with_delivery_count` changes that one header
field and keeps every other byte, and leaves alone what is not a message.

A message's format, 0 but for those of other standards, is said by its transfer (AMQP 1.0 2.7.5). A message of another
one is kept in an *envelope*, which begins with a byte that no message of format 0 begins with, and has the format in
front. So it is carried wherever the message is, and costs the others nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

from router.amqp.codec import Described, decode, encode, skip, uint
from router.amqp.errors import DECODE_ERROR, PeerError

HEADER: Final = 0x70
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
VALUE: Final = 0x77

ENVELOPE: Final = b"\xff"
ENVELOPE_SIZE: Final = 5  # with the format

_DELIVERY_COUNT: Final = 4  # its place in the header
_HEADER_STARTS: Final = (b"\x00\x53\x70", b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70")


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
    section = b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big") + body
    return encode(Described(APPLICATION_PROPERTIES, dict(properties))) + section if properties else section


def body_of(message: bytes) -> bytes:
    """The data sections' bytes, or a string or binary that came as amqp-value. Raises PeerError on other bodies."""
    body = []
    for code, value in sections_of(message):
        if code == DATA and isinstance(value, bytes):
            body.append(value)
        elif code == VALUE and isinstance(value, str | bytes):
            body.append(value.encode() if isinstance(value, str) else value)
    if not body:
        raise PeerError(DECODE_ERROR, "a message whose body is neither data nor text")
    return b"".join(body)


def application_properties(message: bytes) -> dict[str, Any]:
    """The application properties of a message; empty if it has none."""
    for code, value in sections_of(message):
        if code == APPLICATION_PROPERTIES and isinstance(value, dict):
            return value
    return {}


def sections_of(message: bytes) -> list[tuple[Any, Any]]:
    """Descriptors and values. Raises PeerError on what is not made of sections."""
    if message >= ENVELOPE:
        raise PeerError(DECODE_ERROR, f"a message of format {format_of(message):#x}")
    at, sections = 0, []
    while at < len(message):
        section, at = decode(message, at)
        if not isinstance(section, Described):
            raise PeerError(DECODE_ERROR, "a message is made of sections")
        sections.append((section.descriptor, section.value))
    return sections


def with_delivery_count(message: bytes, count: int) -> bytes:
    """The message with that delivery-count in its header, which is added if there was none."""
    try:
        fields, end = _header(message)
    except PeerError:
        return message
    fields += [b"\x40"] * (_DELIVERY_COUNT + 1 - len(fields))
    fields[_DELIVERY_COUNT] = encode(uint(count))
    content = b"".join(fields)
    size = (len(content) + 4).to_bytes(4, "big")
    return b"\x00\x53\x70\xd0" + size + len(fields).to_bytes(4, "big") + content + message[end:]


def _header(message: bytes) -> tuple[list[bytes], int]:
    """The header's fields as they are encoded, and the offset behind it; none and 0 if there is no header."""
    start = next((start for start in _HEADER_STARTS if message.startswith(start)), None)
    if message >= ENVELOPE:
        raise PeerError(DECODE_ERROR, "not sections that we know")
    if start is None:
        skip(message, 0)  # is it a section at all?
        return [], 0
    at = len(start)
    end = skip(message, at)
    widths = {0x45: 1, 0xC0: 3, 0xD0: 9}  # of constructor, size and count
    if message[at] not in widths:
        raise PeerError(DECODE_ERROR, "a header is a list")
    at += widths[message[at]]
    fields = []
    while at < end:
        after = skip(message, at)
        fields.append(message[at:after])
        at = after
    return fields, end
