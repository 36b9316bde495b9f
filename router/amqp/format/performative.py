"""Splits the performative of an AMQP frame (AMQP 1.0 2.3) into encoded fields, and joins the fields again.

The tap (`tap`) uses it for the frames that it changes. Fields stay encoded, so that an unchanged field is passed on
byte for byte. The callers know what a field means.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from router.amqp.format.codec import decode, skip
from router.amqp.format.errors import DECODE_ERROR, AmqpError

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ERROR = 0x1D

_NAMES: Final = {
    f"amqp:{name}:list": OPEN + place
    for place, name in enumerate(
        ("open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close")
    )
}
# Constructors of a descriptor that is a ulong, or a symbol.
_OTHERWISE: Final = (b"\x00\x80", b"\x00\xa3", b"\x00\xb3")
# Reads the two words of four bytes at the beginning of a frame.
_HEAD_WORDS: Final = 2

NULL: Final = b"\x40"
TRUE: Final = b"\x41"
TRUES: Final = (TRUE, b"\x56\x01")
# A list with more elements is not split. No performative has more than 14 fields.
MAX_FIELDS: Final = 32


class Performative(NamedTuple):
    """The encoded fields, up to the number that the caller asked for, and the offset of the payload in the frame."""

    fields: list[bytes]
    end: int

    def field(self, number: int) -> bytes:
        return self.fields[number] if number < len(self.fields) else NULL


def frames_of(data: bytes) -> Iterator[bytes]:
    """Yield the frames of an output of proton, which consists of whole frames."""
    at = len(AMQP_HEADER) if data.startswith(AMQP_HEADER) else 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield data[at : at + size]
        at += size


def code_of(frame: bytes) -> int:
    """The descriptor of a frame's performative; -1 if AMQP does not define such a performative."""
    at = 4 * frame[4]
    if frame[at : at + 2] == b"\x00\x53" and at + 2 < len(frame):
        return frame[at + 2]
    if frame[at : at + 2] in _OTHERWISE:
        try:
            descriptor, _ = decode(frame, at + 1)
        except AmqpError:
            return -1
        return _NAMES.get(descriptor, -1) if isinstance(descriptor, str) else int(descriptor)
    return -1


def is_usual(frame: bytes) -> bool:
    """Whether the frame has no extended header, and its performative has a descriptor of one byte."""
    return frame[4] == _HEAD_WORDS and frame[8:10] == b"\x00\x53"


def parse(frame: bytes, most: int = MAX_FIELDS) -> Performative:
    """Split a frame's performative into at most `most` fields. Raises AmqpError if it is malformed."""
    _, at = decode(frame, 4 * frame[4] + 1)
    items, end = split_list(frame, at, most)
    return Performative(items, end)


def split_list(data: bytes, at: int, most: int = MAX_FIELDS) -> tuple[list[bytes], int]:
    """The encoded elements of the list, or of the map, at an offset, and the offset behind it."""
    end = skip(data, at)
    match data[at]:
        case 0x45:
            return [], end
        case 0xC0 | 0xC1:
            count, at = data[at + 2 : at + 3], at + 3
        case 0xD0 | 0xD1:
            count, at = data[at + 5 : at + 9], at + 9
        case _:
            raise AmqpError(DECODE_ERROR, "the body of a frame is not a list")
    elements = []
    for _ in range(min(int.from_bytes(count, "big"), most)):
        after = skip(data, at)
        if after > end:
            raise AmqpError(DECODE_ERROR, "an element of a frame is longer than its list")
        elements.append(data[at:after])
        at = after
    return elements, end


def join_list(elements: Sequence[bytes]) -> bytes:
    """A list of encoded elements; trailing nulls are left out."""
    count = len(elements)
    while count and elements[count - 1] == NULL:
        count -= 1
    content = b"".join(elements[:count])
    if len(content) < 255 and count < 256:
        return b"\xc0" + bytes((len(content) + 1, count)) + content
    return b"\xd0" + (len(content) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + content


def join_map(elements: Sequence[bytes]) -> bytes:
    """Encode a map. `elements` has the encoded keys and values: each key is followed by its value."""
    return map_of(len(elements), b"".join(elements))


def map_of(count: int, content: bytes) -> bytes:
    """Encode a map whose `content` has `count` keys and values."""
    return b"\xd1" + (len(content) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + content


def build(channel: bytes, code: int, fields: Sequence[bytes], payload: bytes = b"") -> bytes:
    """Build a whole frame."""
    performative = join_list(fields)
    size = 11 + len(performative) + len(payload)
    return b"".join((size.to_bytes(4, "big"), b"\x02\x00", channel, b"\x00\x53", bytes((code,)), performative, payload))


def padded(fields: Sequence[bytes], count: int) -> list[bytes]:
    return [*fields, *[NULL] * (count - len(fields))]
