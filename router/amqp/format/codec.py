"""The AMQP 1.0 type system (part 1), as far as it is needed beside proton: SASL frames and message sections.

Pure. Decoding checks sizes strictly and bounds the depth, because strangers write its input. A decimal stays as its
bytes, because Python has no matching type. Not for the hot path.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from router.amqp.format.errors import DECODE_ERROR, RESOURCE_LIMIT, AmqpError

MAX_DEPTH: Final = 32
MOST_EMPTY: Final = 4096
"""The highest number of surplus elements of all arrays of one value. An array of nulls has a *surplus* of elements if
it has more elements than bytes, because a null element takes no byte. AMQP itself allows billions of nulls in ten
bytes."""

TOO_MANY: Final = "a list or an array claims more elements than it has bytes"

_U8 = struct.Struct(">B")
_U32 = struct.Struct(">I")
_EMPTY: Final[Mapping[int, Any]] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: []}
_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_FORMS: Final = {
    0x50: "B",
    0x51: "b",
    0x52: "B",
    0x53: "B",
    0x54: "b",
    0x55: "b",
    0x56: "?",
    0x60: "H",
    0x61: "h",
    0x70: "I",
    0x71: "i",
    0x72: "f",
    0x80: "Q",
    0x81: "q",
    0x82: "d",
}
_NUMBERS: Final = {code: struct.Struct(">" + form) for code, form in _FORMS.items()}


class Symbol(str):
    """An AMQP symbol: ASCII from a constrained domain."""


class Timestamp(int):
    """A time: milliseconds since 1970, UTC."""


class Described(NamedTuple):
    """A described value: its descriptor, and the value."""

    descriptor: Any
    value: Any


def _damaged(what: str) -> AmqpError:
    return AmqpError(DECODE_ERROR, what)


_Room: TypeAlias = list[int]
"""A list with one number: how many more array elements without bytes the rest of a value may have (at first
`MOST_EMPTY`). All functions that decode a value share this list and change the number in it. Python makes
a list faster than an object of a class."""


def _take_room(room: _Room, count: int) -> None:
    """Use room for `count` elements; a count below 1 uses none. Raises AmqpError if too little room is left."""
    room[0] -= max(0, count)
    if room[0] < 0:
        what = f"the arrays of an AMQP value have more than {MOST_EMPTY} elements that take no bytes"
        raise AmqpError(RESOURCE_LIMIT, what)


def decode(data: bytes, at: int = 0, depth: int = 0, room: _Room | None = None) -> tuple[Any, int]:
    """The value at an offset, and the offset after it. Raises AmqpError if the value is malformed, nested too deeply,
    or too large for memory (`MOST_EMPTY`). Callers leave out `depth` and `room`: `decode` passes them to itself for
    nested values."""
    if room is None:
        room = [MOST_EMPTY]
    if depth > MAX_DEPTH:
        raise _damaged("an AMQP value is nested too deeply")
    if at >= len(data):
        raise _damaged("an AMQP value is cut off")
    code = data[at]
    if code == 0x00:
        _check_descriptor(data, at + 1)
        descriptor, at = decode(data, at + 1, depth + 1, room)
        value, at = decode(data, at, depth + 1, room)
        return Described(descriptor, value), at
    return _value(code, data, at + 1, depth, room)


def _check_descriptor(data: bytes, at: int) -> None:
    """Raise AmqpError if a descriptor is a described value, a list, a map or an array. AMQP reserves all descriptors
    but symbols and numbers (1.0 1.5). If a descriptor could itself be described, a peer could nest descriptors once
    for each byte. Lists, maps and arrays cannot be keys of a Python dict. All other values pass."""
    code = data[at : at + 1]
    if code == b"\x00" or code == b"\x45" or code >= b"\xc0":
        raise _damaged("the descriptor of a value is not a simple value, expected a symbol or a number")


def _value(code: int, data: bytes, at: int, depth: int, room: _Room) -> tuple[Any, int]:
    """Decode the value that follows a constructor."""
    if code in _EMPTY:
        return _EMPTY[code], at
    if (width := _WIDTHS.get(code >> 4)) is not None:
        body, end = _take(data, at, width)
        return _fixed(code, body), end
    size_form = _U8 if (code >> 4) in (0xA, 0xC, 0xE) else _U32
    prefix, at = _take(data, at, size_form.size)
    body, end = _take(data, at, size_form.unpack(prefix)[0])
    return _variable(code, body, size_form, depth, room), end


def _take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(data):
        raise _damaged("an AMQP value is cut off")
    return data[at : at + size], at + size


def _fixed(code: int, body: bytes) -> Any:
    if code in _NUMBERS:
        return _NUMBERS[code].unpack(body)[0]
    match code:
        case 0x73:
            return _char(int.from_bytes(body, "big"))
        case 0x83:
            return Timestamp.from_bytes(body, "big", signed=True)
        case 0x98:
            return UUID(bytes=body)
    return body


def _char(number: int) -> str:
    """The character of a code point. Raises AmqpError at half of a surrogate pair, which is no character and cannot be
    encoded again."""
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise _damaged(f"the char value {number:#x} is no Unicode character")
    return chr(number)


def _variable(code: int, body: bytes, size_form: struct.Struct, depth: int, room: _Room) -> Any:
    match code:
        case 0xA0 | 0xB0:
            return body
        case 0xA1 | 0xB1 | 0xA3 | 0xB3:
            try:
                text = body.decode("utf-8" if code & 0x0F == 1 else "ascii")
            except UnicodeDecodeError:
                raise _damaged("a string is not UTF-8, or a symbol is not ASCII") from None
            return text if code & 0x0F == 1 else Symbol(text)
        case 0xC0 | 0xD0:
            return _elements(body, size_form, depth, room)
        case 0xC1 | 0xD1:
            return _pairs(_elements(body, size_form, depth, room))
        case 0xE0 | 0xF0:
            return _array(body, size_form, depth, room)
    raise _damaged(f"the type constructor {code:#x} is unknown")


def _count(body: bytes, form: struct.Struct) -> tuple[int, int]:
    prefix, at = _take(body, 0, form.size)
    return form.unpack(prefix)[0], at


def _array(body: bytes, count_form: struct.Struct, depth: int, room: _Room) -> list[Any]:
    """The elements of an array, which share one constructor. If they are described, the result has their values without
    the common descriptor."""
    count, at = _count(body, count_form)
    if body[at : at + 1] == b"\x00":
        _, at = decode(body, at + 1, depth + 1, room)
    constructor, at = _take(body, at, 1)
    if depth >= MAX_DEPTH:
        raise _damaged("an AMQP value is nested too deeply")
    if constructor[0] in _EMPTY:
        _take_room(room, count - len(body))
    elif count > len(body):
        raise _damaged(TOO_MANY)
    elements = []
    for _ in range(count):
        element, at = _value(constructor[0], body, at, depth + 1, room)
        elements.append(element)
    if at != len(body):
        raise _damaged("the size of an array does not match its elements")
    return elements


def _elements(body: bytes, count_form: struct.Struct, depth: int, room: _Room) -> list[Any]:
    count, at = _count(body, count_form)
    if count > len(body):
        raise _damaged(TOO_MANY)
    elements = []
    for _ in range(count):
        element, at = decode(body, at, depth + 1, room)
        elements.append(element)
    if at != len(body):
        raise _damaged("the size of a list does not match its elements")
    return elements


def _pairs(elements: list[Any]) -> dict[Any, Any]:
    try:
        return dict(zip(elements[::2], elements[1::2], strict=True))
    except (TypeError, ValueError):
        raise _damaged("a map has an odd number of elements, or a key that is not a simple value") from None


def skip(data: bytes, at: int, depth: int = 0) -> int:
    """The offset after the value at an offset, without decoding it. Raises AmqpError if the value is incomplete."""
    code = data[at] if at < len(data) else 0x100
    if code == 0x00:
        if depth > MAX_DEPTH:
            raise _damaged("an AMQP value is nested too deeply")
        _check_descriptor(data, at + 1)
        return skip(data, skip(data, at + 1, depth + 1), depth + 1)
    if (width := _WIDTHS.get(code >> 4)) is not None:
        end = at + 1 + width
    elif not 0xA0 <= code <= 0xFF:
        raise _damaged("an AMQP value is cut off, or has an unknown type")
    elif code & 0x10:
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
    else:
        end = at + 2 + int.from_bytes(data[at + 1 : at + 2], "big")
    if end > len(data):
        raise _damaged("an AMQP value is cut off")
    return end


def encode(value: Any) -> bytes:
    """Encode None, bool, int (as ulong in a descriptor, else long), float (as double), Timestamp, str, Symbol, bytes,
    list, dict, Described or Raw."""
    match value:
        case None:
            return b"\x40"
        case bool():
            return b"\x41" if value else b"\x42"
        case Timestamp():
            return b"\x83" + value.to_bytes(8, "big", signed=True)
        case float():
            return b"\x82" + _NUMBERS[0x82].pack(value)
        case int():
            return b"\x81" + value.to_bytes(8, "big", signed=True)
        case Symbol():
            return _sized(0xA3, value.encode("ascii"))
        case str():
            return _sized(0xA1, value.encode())
        case bytes():
            return _sized(0xA0, value)
        case Described():
            return b"\x00" + _descriptor(value.descriptor) + encode(value.value)
        case list():
            return _compound(0xD0, value)
        case dict():
            return _compound(0xD1, [part for item in value.items() for part in item])
        case Raw():
            return value.encoded
    raise TypeError(f"no AMQP type can hold this value: {value!r}")


class Raw(NamedTuple):
    """A value that is already encoded."""

    encoded: bytes


def uint(value: int) -> Raw:
    return Raw(b"\x70" + _U32.pack(value))


def ulong(value: int) -> Raw:
    return Raw(b"\x80" + value.to_bytes(8, "big"))


def ubyte(value: int) -> Raw:
    return Raw(b"\x50" + _U8.pack(value))


def _descriptor(value: str | int) -> bytes:
    """A symbol, or a ulong."""
    if isinstance(value, str):
        return encode(Symbol(value))
    return b"\x53" + _U8.pack(value) if value < 256 else b"\x80" + value.to_bytes(8, "big")


def _sized(code: int, body: bytes) -> bytes:
    if len(body) < 256:
        return bytes([code, len(body)]) + body
    return bytes([code + 0x10]) + _U32.pack(len(body)) + body


def _compound(code: int, elements: Iterable[Any]) -> bytes:
    encoded = list(map(encode, elements))
    body = _U32.pack(len(encoded)) + b"".join(encoded)
    return bytes([code]) + _U32.pack(len(body)) + body
