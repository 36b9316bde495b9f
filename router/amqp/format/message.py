"""The few things we do to messages: wrap and unwrap a body for our own clients, and what `modified` outcomes ask for.

AMQP 1.0 3.2. Everybody else's messages pass through the mesh as bytes: `modified` changes one header field and the
annotations that it is given, keeps every other byte, and leaves alone what is not a message.

A message's format, 0 but for those of other standards, is said by its transfer (AMQP 1.0 2.7.5). A message of another
one is kept in an *envelope*, which begins with a byte that no message of format 0 begins with, and has the format in
front. So it is carried wherever the message is, and costs the others nothing.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from router.amqp.format.codec import Described, decode, encode, skip, uint
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
ENVELOPE_SIZE: Final = 5  # with the format

LOOKED_INTO: Final = 64 << 10
"""Bytes of a section in front of the body that anybody looks into. What a longer one says is not asked."""
SHORT: Final = 4096
"""Bytes of a map of annotations that is taken apart."""
_LISTS: Final = b"\x45\xc0\xd0"
_MAPS: Final = b"\xc1\xd1"
_ULONGS: Final = b"\x44\x53\x80"
_SYMBOLS: Final = {0xA1: b"\xa3", 0xB1: b"\xb3", 0xA3: b"\xa3", 0xB3: b"\xb3"}
"""By the code of a text, or of a symbol: that of a symbol of the same length."""
_LONG_TEXT: Final = b"\xb1"
_LONG: Final = (b"\xb0", _LONG_TEXT)  # binary or text of more than 255 bytes
_LONG_HEAD: Final = 5  # bytes in front of these
_SECTIONS: Final = frozenset(_LISTS + _MAPS)  # in front of the body: these say how long they are

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
"""What describes a section may be a symbol (3.2)."""
_ONE_SECTION: Final = b"\x00\x53\x75\xb0"  # its begin, with a length of four bytes
_TTL: Final = 2
_FIRST_ACQUIRER: Final = 3  # its place in the header
_DELIVERY_COUNT: Final = 4
_LONGEST_CODE: Final = 64  # bytes of what describes a section, with the sign that it does: more than any takes


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
    section = data_section(body)
    return encode(Described(APPLICATION_PROPERTIES, dict(properties))) + section if properties else section


def data_section(body: bytes) -> bytes:
    """A message that is no more than that."""
    return b"".join((_ONE_SECTION, len(body).to_bytes(4, "big"), body))


def body_of(message: bytes) -> bytes:
    """The data sections' bytes, or a string or binary that came as amqp-value. Raises AmqpError on other bodies."""
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
    """Descriptors and values; a descriptor that is one of AMQP's is a number. Raises AmqpError on what is not made of
    sections."""
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
    """Where the value of that section begins, which stands in front of the body; -1 if there is none. Raises AmqpError
    on what is not made of sections as far as that."""
    at, before = 0 if message < ENVELOPE else len(message), HEADER - 1
    while at < len(message):
        found, at = _section_at(message, at)
        if found == code:
            return at
        if not before < found < code:  # they have an order, and none comes twice: so this ends soon
            break
        before, at = found, _behind(message, at)
    return -1


def section_of(message: bytes, code: int) -> bytes:
    """The value of that section, as it is encoded; empty if there is none, or it is longer than anybody looks into.
    Raises AmqpError as `place_of` does."""
    at = place_of(message, code)
    end = _behind(message, at) if at >= 0 else at
    return message[at:end] if end - at <= LOOKED_INTO else b""


def fields_of(section: bytes, most: int) -> list[bytes]:
    """The first fields of a list, as they are encoded; none of what is no list. Raises AmqpError."""
    return split_list(section, 0, most)[0] if section and section[0] in _LISTS else []


def simple(encoded: bytes) -> Any:
    """The value, if it is neither described nor made of others, which may be very many; None for one that is. Raises
    AmqpError."""
    return decode(encoded)[0] if 0 < encoded[0] < 0xC0 else None


def shortened(message: bytes, most: int) -> bytes:
    """The message if it has at most so many bytes. Else a message of the sections in front of its body, and of the
    beginning of the body if that is binary or text. Empty if it is not made of sections, or these alone are longer."""
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
    """The message annotation of that name; None if there is none. Raises AmqpError as `place_of` does. Not for routers:
    whoever asks reads them all."""
    at = place_of(message, MESSAGE_ANNOTATIONS)
    annotations = decode(message, at)[0] if at >= 0 else None
    return annotations.get(name) if isinstance(annotations, dict) else None


def annotations_of(message: bytes) -> dict[Any, Any]:
    """The message annotations; empty if they cannot be read, or are longer than anybody looks into."""
    try:
        section = section_of(message, MESSAGE_ANNOTATIONS)
        annotations = decode(section)[0] if section else None
    except AmqpError:
        return {}
    return annotations if isinstance(annotations, dict) else {}


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


def acquired_before(message: bytes, failures: int) -> bytes:
    """The message after another link has had it, and so many deliveries have failed (AMQP 1.0 3.2.1)."""
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


def without_ttl(message: bytes) -> bytes:
    """The message with no time to live in its header (AMQP 1.0 3.2.1)."""
    try:
        fields, end = _header(message) if message < ENVELOPE else ([], 0)
        if len(fields) <= _TTL or simple(fields[_TTL]) is None:
            return message
        fields[_TTL] = encode(None)
        return b"\x00\x53\x70" + join_list(fields) + message[end:]
    except AmqpError:
        return message


@lru_cache(maxsize=16)
def annotations_to_add(told: bytes) -> bytes:
    """The annotations that a peer gives, as all readers of a message take them: a map whose keys are symbols, or of
    type ulong. A text as a key becomes a symbol: some clients write texts. Empty if this is no such map, or has no
    entry. One outcome may modify many messages."""
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
    """Raises AmqpError if it is none."""
    if key[0] in _SYMBOLS and simple(key).isascii():
        return _SYMBOLS[key[0]] + key[1:]
    if key[0] not in _ULONGS:
        raise AmqpError(DECODE_ERROR, "a key of the annotations is neither a symbol nor an ulong")
    return key


def merged(annotations: bytes, more: bytes) -> bytes:
    """Two encoded maps as one; the second one's entries go before. Empty stands for no map. Raises AmqpError.

    Who takes a map apart pays for each entry, and may have to for many subscribers. So the entries of a long one stay
    as they are, and the second one's are put behind: of two that are alike, readers take the last."""
    if not annotations or not more:
        return annotations or more
    if len(annotations) > SHORT or len(more) > SHORT:
        (count, content), (others, behind) = _content(annotations), _content(more)
        return map_of(count + others, content + behind)
    entries = _entries(annotations) | _entries(more)
    return join_map([element for entry in entries.values() for element in entry])


def _content(annotations: bytes) -> tuple[int, bytes]:
    """How many keys and values an encoded map has, and these."""
    if annotations[0] not in _MAPS or skip(annotations, 0) != len(annotations):
        raise AmqpError(DECODE_ERROR, "the annotations are not a map")
    width = 1 if annotations[0] == 0xC1 else 4
    return int.from_bytes(annotations[1 + width : 1 + 2 * width], "big"), annotations[1 + 2 * width :]


@lru_cache(maxsize=16)
def _entries(annotations: bytes) -> dict[str | int, tuple[bytes, bytes]]:
    """Of a short map, by key: both as they are encoded. One outcome may modify many messages."""
    elements, _ = split_list(annotations, 0, most=len(annotations))
    entries = {}
    for key, value in zip(elements[::2], elements[1::2], strict=False):
        name = simple(key)
        if not isinstance(name, str | int):
            raise AmqpError(DECODE_ERROR, "a key of the annotations is neither a symbol nor a number")
        entries[name] = (key, value)
    return entries


def _with_failures(message: bytes, failures: int) -> bytes:
    """With a delivery-count that is higher, in its header, which is added if there was none."""
    fields, end = _header(message)
    fields = padded(fields, _DELIVERY_COUNT + 1)
    count = simple(fields[_DELIVERY_COUNT]) or 0
    if not isinstance(count, int) or count < 0:
        raise AmqpError(DECODE_ERROR, "the delivery-count is not a number from 0 on")
    fields[_DELIVERY_COUNT] = encode(uint(min(count + failures, 2**32 - 1)))
    return b"\x00\x53\x70" + join_list(fields) + message[end:]


def _header(message: bytes) -> tuple[list[bytes], int]:
    """The header's fields as they are encoded, and the offset behind it; none and 0 if there is no header."""
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
    """The number that describes the section there, -1 if it is none of AMQP's, and the offset of its value. Raises
    AmqpError if there is none."""
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
    """The offset behind the value of a section in front of the body. Raises AmqpError."""
    if at < len(message) and message[at] in _SECTIONS:
        return skip(message, at)
    raise AmqpError(DECODE_ERROR, "a section before the body is neither a list nor a map")
