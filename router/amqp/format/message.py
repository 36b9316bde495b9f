"""Operations on encoded messages: wraps and unwraps a body for our own clients, and applies `modified` outcomes.

See AMQP 1.0 3.2. All other messages pass through the mesh as bytes. `modified` changes one header field and the
annotations that the outcome gives, keeps every other byte, and does not change bytes that are no message.

The transfer of a message gives the message-format: 0 for a message of AMQP sections, another number for a format of
another standard (AMQP 1.0 2.7.5). A router keeps a message of another format than 0 in an *envelope*: the byte
`ENVELOPE`, the format in four bytes, and then the message. No message of format 0 begins with the byte `ENVELOPE`. So
the format travels with the message, and messages of format 0 need no extra bytes.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from router.amqp.format.codec import Described, Symbol, decode, encode, skip, uint
from router.amqp.format.errors import DECODE_ERROR, AmqpError
from router.amqp.format.performative import join_list, join_map, map_of, padded, split_list

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
VALUE: Final = 0x77

ENVELOPE: Final = b"\xff"
# The number of bytes before the message in an envelope: the byte `ENVELOPE`, and the message-format.
ENVELOPE_SIZE: Final = 5

LOOKED_INTO: Final = 64 << 10
"""Readers ignore a section before the body that has more bytes than this."""
SHORT: Final = 4096
"""The entries of a map of annotations are read one by one only if the map has at most this many bytes."""
_LISTS: Final = b"\x45\xc0\xd0"
_MAPS: Final = b"\xc1\xd1"
_ULONGS: Final = b"\x44\x53\x80"
_SYMBOLS: Final = {0xA1: b"\xa3", 0xB1: b"\xb3", 0xA3: b"\xa3", 0xB3: b"\xb3"}
"""Maps the constructor of a text or symbol to the constructor of a symbol with the same length."""
_LONG_TEXT: Final = b"\xb1"
_LONG: Final = (b"\xb0", _LONG_TEXT)  # the constructors of a binary and of a text with more than 255 bytes
_LONG_HEAD: Final = 5  # the number of bytes before the content of a long binary or text
# The constructors of all sections before the body. After each of these constructors comes the length of the section.
_SECTIONS: Final = frozenset(_LISTS + _MAPS)

_NAMES: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": 0x76,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": 0x78,
}
"""Maps each symbol that may be the descriptor of a section to the numeric descriptor (AMQP 1.0 3.2)."""
# The beginning of a data section whose length takes four bytes.
_ONE_SECTION: Final = b"\x00\x53\x75\xb0"
# The next three values are indexes into the list of the header's fields (AMQP 1.0 3.2.1).
_TTL: Final = 2
_FIRST_ACQUIRER: Final = 3
_DELIVERY_COUNT: Final = 4
# The highest number of bytes of a section's descriptor, with the byte 0 before it.
_LONGEST_CODE: Final = 64


def in_envelope(message: bytes, message_format: int) -> bytes:
    """Put a message into an envelope, because its format is not 0, or because it begins like an envelope."""
    return ENVELOPE + message_format.to_bytes(4, "big") + message


def format_of(message: bytes) -> int:
    """The message-format of a message that may be in an envelope."""
    return int.from_bytes(message[1:ENVELOPE_SIZE], "big") if message >= ENVELOPE else 0


def content_of(message: bytes) -> bytes:
    """The payload of the message's transfer: the message without its envelope."""
    return message[ENVELOPE_SIZE:] if message >= ENVELOPE else message


def data_message(body: bytes, properties: Mapping[str, Any] | None = None) -> bytes:
    """A message of one data section, with application properties if there are any. Raises TypeError if AMQP cannot hold
    a property: its name is no text, or its value is a list or a map (AMQP 1.0 3.2.5)."""
    section = data_section(body)
    if not properties:
        return section
    for name, value in properties.items():
        if not isinstance(name, str) or isinstance(value, list | dict):
            raise TypeError(f"an application property has a text as name and a simple value, not {name!r}: {value!r}")
    return encode(Described(APPLICATION_PROPERTIES, dict(properties))) + section


def data_section(body: bytes) -> bytes:
    """A message that consists of one data section. Raises TypeError if the body is not made of bytes."""
    try:
        return b"".join((_ONE_SECTION, len(body).to_bytes(4, "big"), body))
    except TypeError:
        raise TypeError(f"a body is made of bytes, not {type(body).__name__}") from None


def body_of(message: bytes) -> bytes:
    """The bytes of the data sections, or of a string or binary in an amqp-value. Raises AmqpError on any other body."""
    body = []
    for code, value in sections_of(message):
        if code == DATA and isinstance(value, bytes):
            body.append(value)
        elif code == VALUE and isinstance(value, str | bytes):
            body.append(value.encode() if isinstance(value, str) else value)
    if not body:
        raise AmqpError(DECODE_ERROR, "the body of the message is neither data nor text")
    return b"".join(body)


def application_properties(message: bytes) -> dict[str, Any]:
    """The application properties of a message; empty if it has none."""
    for code, value in sections_of(message):
        if code == APPLICATION_PROPERTIES and isinstance(value, dict):
            return value
    return {}


def sections_of(message: bytes) -> list[tuple[Any, Any]]:
    """The descriptor and value of each section; AMQP's descriptors are numbers. Raises AmqpError if the message does
    not consist of sections."""
    if message >= ENVELOPE:
        raise AmqpError(DECODE_ERROR, f"the message has the unknown message-format {format_of(message):#x}")
    at, sections = 0, []
    while at < len(message):
        section, at = decode(message, at)
        if not isinstance(section, Described):
            raise AmqpError(DECODE_ERROR, "the message does not consist of AMQP sections")
        sections.append((_code_of(section.descriptor), section.value))
    return sections


def place_of(message: bytes, code: int) -> int:
    """The offset of the value of a section before the body; -1 if there is none. Raises AmqpError if the sections
    before it are malformed.
    """
    at, before = 0 if message < ENVELOPE else len(message), HEADER - 1
    while at < len(message):
        found, at = _section_at(message, at)
        if found == code:
            return at
        # Sections have a fixed order, and each occurs at most once, so the loop is short.
        if not before < found < code:
            break
        before, at = found, _behind(message, at)
    return -1


def section_of(message: bytes, code: int) -> bytes:
    """The encoded value of a section; empty if there is none, or if it is longer than `LOOKED_INTO`. Raises AmqpError
    as `place_of` does."""
    at = place_of(message, code)
    end = _behind(message, at) if at >= 0 else at
    return message[at:end] if end - at <= LOOKED_INTO else b""


def fields_of(section: bytes, most: int) -> list[bytes]:
    """The first `most` fields of a list, encoded; none if the section is no list. Raises AmqpError."""
    return split_list(section, 0, most)[0] if section and section[0] in _LISTS else []


def simple(encoded: bytes) -> Any:
    """Decode a value that is neither described nor compound. Any other value gives None, because a compound value may
    have very many parts. Raises AmqpError."""
    return decode(encoded)[0] if 0 < encoded[0] < 0xC0 else None


def shortened(message: bytes, most: int) -> bytes:
    """The message, if it has at most `most` bytes. Otherwise a message of the sections before its body, and of the
    beginning of the body if the body is binary or text. Empty if the message does not consist of sections, or if the
    sections before the body already have more than `most` bytes."""
    if len(message) <= most:
        return message
    end = 0
    try:
        code, at = _section_at(message, end)
        while HEADER <= code < DATA:
            end = _behind(message, at)
            code, at = _section_at(message, end)
    except AmqpError:
        return b""
    if end > most:
        return b""
    if code not in (DATA, VALUE) or message[at : at + 1] not in _LONG:
        return message[:end]
    part = message[at + _LONG_HEAD : at + _LONG_HEAD + most - end]
    if message[at : at + 1] == _LONG_TEXT:
        part = part.decode(errors="ignore").encode()
    return message[: at + 1] + len(part).to_bytes(4, "big") + part


def annotation_of(message: bytes, name: str) -> Any:
    """The message annotation with this name; None if there is none. Raises AmqpError as `place_of` does. Not for
    routers, because each call decodes all annotations."""
    at = place_of(message, MESSAGE_ANNOTATIONS)
    annotations = decode(message, at)[0] if at >= 0 else None
    return annotations.get(name) if isinstance(annotations, dict) else None


def annotations_of(message: bytes) -> dict[Any, Any]:
    """The message annotations; empty if they cannot be read, or are longer than `LOOKED_INTO`."""
    try:
        section = section_of(message, MESSAGE_ANNOTATIONS)
        annotations = decode(section)[0] if section else None
    except AmqpError:
        return {}
    return annotations if isinstance(annotations, dict) else {}


def modified(message: bytes, failures: int, annotations: bytes) -> bytes:
    """The message after a `modified` outcome (AMQP 1.0 3.4.5). `failures`: the number to add to the delivery-count.
    `annotations`: an encoded map to merge into the message-annotations; empty: none. A section that cannot be read
    stays unchanged."""
    try:
        if message >= ENVELOPE:
            # A message of another message-format has none of AMQP's sections.
            return message
        if failures:
            message = _with_failures(message, failures)
        return _annotated(message, annotations) if annotations else message
    except AmqpError:
        return message


@lru_cache(maxsize=1024)
def annotation(name: str, text: str) -> bytes:
    """Encoded message-annotations with this text under this name."""
    return encode({Symbol(name): text})


def acquired_before(message: bytes, failures: int) -> bytes:
    """The message for a link that is not its first acquirer: a header with first-acquirer true gets false. `failures`
    is added to the delivery-count (AMQP 1.0 3.2.1)."""
    try:
        if message >= ENVELOPE:
            return message
        fields, end = _header(message)
        if simple(padded(fields, _FIRST_ACQUIRER + 1)[_FIRST_ACQUIRER]):
            fields[_FIRST_ACQUIRER] = encode(False)
            message = b"\x00\x53\x70" + join_list(fields) + message[end:]
        return _with_failures(message, failures) if failures else message
    except AmqpError:
        return message


def with_ttl(message: bytes, ttl_ms: int | None) -> bytes:
    """The message with another time to live in its header (AMQP 1.0 3.2.1); None removes the time to live. A message
    without a time to live stays without one."""
    try:
        fields, end = _header(message) if message < ENVELOPE else ([], 0)
        if len(fields) <= _TTL or simple(fields[_TTL]) is None:
            return message
        fields[_TTL] = encode(None if ttl_ms is None else uint(min(ttl_ms, 2**32 - 1)))
        return b"\x00\x53\x70" + join_list(fields) + message[end:]
    except AmqpError:
        return message


@lru_cache(maxsize=16)
def annotations_to_add(told: bytes) -> bytes:
    """The annotations of a peer's `modified` outcome in the form that all readers accept: a map whose keys are symbols
    or ulongs. A text key becomes a symbol, because some clients write texts. Empty if `told` is no such map, or is an
    empty map. One outcome may modify many messages, so the results are cached."""
    if not told or told[0] not in _MAPS:
        return b""
    try:
        elements, _ = split_list(told, 0, most=len(told))
        keys = list(map(_annotation_key, elements[::2]))
    except AmqpError:
        return b""
    if not keys or len(elements) % 2:
        return b""
    return join_map([part for entry in zip(keys, elements[1::2], strict=True) for part in entry])


def _annotation_key(key: bytes) -> bytes:
    """The key as a symbol or ulong. Raises AmqpError if it cannot be one."""
    if key[0] in _SYMBOLS and simple(key).isascii():
        return _SYMBOLS[key[0]] + key[1:]
    if key[0] not in _ULONGS:
        raise AmqpError(DECODE_ERROR, "a key of the annotations is neither a symbol nor an ulong")
    return key


def merged(annotations: bytes, more: bytes) -> bytes:
    """Merge two encoded maps; an entry of the second map replaces one of the first. Empty stands for no map. Raises
    AmqpError.

    A peer could send maps with very many entries, and a router may merge them for many subscribers. So if a map is
    longer than `SHORT`, the entries of both maps stay unread, and the result has the entries of the first map and then
    the entries of the second map. A key may occur twice in the result, and readers take its last entry."""
    if not annotations or not more:
        return annotations or more
    if len(annotations) > SHORT or len(more) > SHORT:
        (count, content), (others, behind) = _content(annotations), _content(more)
        return map_of(count + others, content + behind)
    entries = _entries(annotations) | _entries(more)
    return join_map([element for entry in entries.values() for element in entry])


def _content(annotations: bytes) -> tuple[int, bytes]:
    """The number of keys and values of an encoded map together, and the bytes of all of them."""
    if annotations[0] not in _MAPS or skip(annotations, 0) != len(annotations):
        raise AmqpError(DECODE_ERROR, "the annotations are not a map")
    width = 1 if annotations[0] == 0xC1 else 4
    return int.from_bytes(annotations[1 + width : 1 + 2 * width], "big"), annotations[1 + 2 * width :]


@lru_cache(maxsize=16)
def _entries(annotations: bytes) -> dict[str | int, tuple[bytes, bytes]]:
    """Map each decoded key of a short map to its encoded key and value. Cached, because one outcome may modify many
    messages."""
    elements, _ = split_list(annotations, 0, most=len(annotations))
    entries = {}
    for key, value in zip(elements[::2], elements[1::2], strict=False):
        name = simple(key)
        if not isinstance(name, str | int):
            raise AmqpError(DECODE_ERROR, "a key of the annotations is neither a symbol nor a number")
        entries[name] = (key, value)
    return entries


def _with_failures(message: bytes, failures: int) -> bytes:
    """The message with a higher delivery-count in its header; a header is added if there was none."""
    fields, end = _header(message)
    fields = padded(fields, _DELIVERY_COUNT + 1)
    count = simple(fields[_DELIVERY_COUNT]) or 0
    if not isinstance(count, int) or count < 0:
        raise AmqpError(DECODE_ERROR, "the delivery-count is not a number from 0 on")
    fields[_DELIVERY_COUNT] = encode(uint(min(count + failures, 2**32 - 1)))
    return b"\x00\x53\x70" + join_list(fields) + message[end:]


def _header(message: bytes) -> tuple[list[bytes], int]:
    """The encoded fields of the header, and the offset after it; no fields and 0 if there is no header."""
    code, at = _section_at(message, 0)
    if code != HEADER:
        return [], 0
    if _behind(message, at) - at > LOOKED_INTO:
        raise AmqpError(DECODE_ERROR, "the header section is too long")
    return split_list(message, at)


def _annotated(message: bytes, annotations: bytes) -> bytes:
    start = 0
    for kind in (HEADER, DELIVERY_ANNOTATIONS):
        code, at = _section_at(message, start)
        start = _behind(message, at) if code == kind else start
    code, at = _section_at(message, start)
    end = _behind(message, at) if code == MESSAGE_ANNOTATIONS else start
    annotations = merged(message[at:end] if end > start else b"", annotations)
    return message[:start] + b"\x00\x53\x72" + annotations + message[end:]


def _section_at(message: bytes, start: int) -> tuple[int, int]:
    """The descriptor of the section at an offset as a number, and the offset of the section's value. The number is
    -1 if the descriptor is too long, or is neither a number nor a section's symbol. Raises AmqpError if there is no
    section."""
    if message.startswith(b"\x00\x53", start) and start + 2 < len(message):
        return message[start + 2], start + 3
    if message[start : start + 1] != b"\x00":
        raise AmqpError(DECODE_ERROR, "the message does not consist of AMQP sections")
    if message[start + 1 : start + 2] == b"\x00":
        raise AmqpError(DECODE_ERROR, "the descriptor of a section is itself a described value")
    at = skip(message, start + 1)
    code = _code_of(decode(message, start + 1)[0]) if at - start <= _LONGEST_CODE else None
    return (code if isinstance(code, int) else -1), at


def _code_of(descriptor: Any) -> Any:
    return _NAMES.get(descriptor, descriptor) if isinstance(descriptor, str) else descriptor


def _behind(message: bytes, at: int) -> int:
    """The offset after the value of a section before the body. Raises AmqpError if the value is malformed."""
    if at < len(message) and message[at] in _SECTIONS:
        return skip(message, at)
    raise AmqpError(DECODE_ERROR, "a section before the body is neither a list nor a map")
