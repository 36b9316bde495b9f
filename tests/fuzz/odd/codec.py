"""AMQP's types (AMQP 1.0 part 1): every encoding of a value, drawn at random, and the value of every encoding.

A value is Python's own where that says its type: None, bool, str, bytes, list, dict. The others have a wrapper.
"""

import struct
from random import Random
from typing import Any, Final

from attrs import frozen


@frozen
class Typed:
    """A value of a type with no Python type of its own: `uint`, `symbol`, `timestamp`."""

    type: str
    value: Any


@frozen
class Array:
    """Values of one type; AMQP's `multiple`."""

    type: str
    values: tuple[Any, ...]


@frozen
class Described:
    descriptor: Any
    value: Any


def typed(kind: str) -> Any:
    def make(value: Any) -> Typed:
        return Typed(kind, value)

    return make


ubyte, ushort, uint, ulong = typed("ubyte"), typed("ushort"), typed("uint"), typed("ulong")
symbol, timestamp = typed("symbol"), typed("timestamp")

_FIXED: Final[dict[int, tuple[str, str]]] = {
    0x50: ("ubyte", ">B"), 0x60: ("ushort", ">H"), 0x70: ("uint", ">I"), 0x52: ("uint", ">B"),
    0x80: ("ulong", ">Q"), 0x53: ("ulong", ">B"), 0x51: ("byte", ">b"), 0x61: ("short", ">h"),
    0x71: ("int", ">i"), 0x54: ("int", ">b"), 0x81: ("long", ">q"), 0x55: ("long", ">b"),
    0x72: ("float", ">f"), 0x82: ("double", ">d"), 0x73: ("char", ">I"), 0x83: ("timestamp", ">q"),
    0x56: ("boolean", ">?"),
}  # fmt: skip
_OPAQUE: Final = {0x74: ("decimal32", 4), 0x84: ("decimal64", 8), 0x94: ("decimal128", 16), 0x98: ("uuid", 16)}
_EMPTY: Final[dict[int, tuple[str, Any]]] = {
    0x40: ("null", None), 0x41: ("boolean", True), 0x42: ("boolean", False), 0x43: ("uint", 0), 0x44: ("ulong", 0),
    0x45: ("list", []),
}  # fmt: skip
_VARIABLE: Final = {
    0xA0: ("binary", 1), 0xB0: ("binary", 4), 0xA1: ("string", 1), 0xB1: ("string", 4),
    0xA3: ("symbol", 1), 0xB3: ("symbol", 4),
}  # fmt: skip
_COMPOUND: Final = {0xC0: ("list", 1), 0xD0: ("list", 4), 0xC1: ("map", 1), 0xD1: ("map", 4)}
_ARRAYS: Final = {0xE0: 1, 0xF0: 4}
_CODES: Final[dict[str, list[int]]] = {}
for _code, (_name, *_) in {**_FIXED, **_OPAQUE, **_EMPTY, **_VARIABLE, **_COMPOUND}.items():
    _CODES.setdefault(_name, []).append(_code)
_CODES["array"] = list(_ARRAYS)
USUAL: Final = {
    "uint": (0x43, 0x52, 0x70), "ulong": (0x44, 0x53, 0x80), "boolean": (0x41, 0x42), "list": (0x45, 0xC0, 0xD0),
}  # fmt: skip
"""The codes of a type in the order in which most clients try them, if that is not the shortest first."""


def type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case bytes():
            return "binary"
        case list():
            return "list"
        case dict():
            return "map"
        case Typed():
            return value.type
        case Array():
            return "array"
    raise TypeError(value)


class Encoder:
    def __init__(self, rng: Random | None = None) -> None:
        """Without `rng`, uses the shortest encoding of each value."""
        self._rng = rng

    def encode(self, value: Any) -> bytes:
        if isinstance(value, Described):
            return b"\0" + self.encode(value.descriptor) + self.encode(value.value)
        kind = type_of(value)
        plain = value.value if isinstance(value, Typed) else value
        codes = list(USUAL.get(kind, sorted(_CODES[kind])))
        if self._rng is not None:
            self._rng.shuffle(codes)
        for code in codes:
            body = self._body(code, plain)
            if body is not None:
                return bytes((code,)) + body
        raise ValueError(value)

    def _body(self, code: int, value: Any) -> bytes | None:
        """The bytes after the constructor; None if this encoding cannot express the value."""
        if code in _EMPTY:
            empty = _EMPTY[code][1]
            return b"" if value == empty and type(value) is type(empty) else None
        if code in _FIXED:
            try:
                return struct.pack(_FIXED[code][1], value)
            except struct.error:
                return None
        if code in _OPAQUE:
            return bytes(value)
        if code in _VARIABLE:
            data = value if isinstance(value, bytes) else value.encode()
            return _sized(_VARIABLE[code][1], None, data)
        if code in _COMPOUND:
            items = list(value) if isinstance(value, list) else [part for item in value.items() for part in item]
            return _sized(_COMPOUND[code][1], len(items), b"".join(map(self.encode, items)))
        return self._array(_ARRAYS[code], value)

    def _array(self, width: int, array: Array) -> bytes | None:
        codes = list(_CODES[array.type])
        if self._rng is not None:
            self._rng.shuffle(codes)
        for code in codes:
            bodies = [self._body(code, item) for item in array.values]
            if None not in bodies:
                content = bytes((code,)) + b"".join(body for body in bodies if body is not None)
                return _sized(width, len(bodies), content)
        raise ValueError(array)


def _sized(width: int, count: int | None, content: bytes) -> bytes | None:
    most = 256**width
    size = len(content) + (0 if count is None else width)
    if size >= most or (count or 0) >= most:
        return None
    counted = b"" if count is None else count.to_bytes(width, "big")
    return size.to_bytes(width, "big") + counted + content


def keyed(value: Any) -> Any:
    """The value as a key of a dict: keys of maps may be of any type."""
    return value if value.__hash__ is not None else repr(value)


def decode(data: bytes, at: int = 0) -> tuple[Any, int]:
    """The value at an offset, and the offset after it. Raises if there is none."""
    code, at = data[at], at + 1
    if code == 0:
        descriptor, at = decode(data, at)
        value, at = decode(data, at)
        return Described(descriptor, value), at
    return _decode_body(data, at, code)


def _decode_body(data: bytes, at: int, code: int) -> tuple[Any, int]:
    if code in _EMPTY:
        kind, value = _EMPTY[code]
        return (Typed(kind, 0) if kind in ("uint", "ulong") else [] if kind == "list" else value), at
    if code in _FIXED:
        kind, form = _FIXED[code]
        (value,) = struct.unpack_from(form, data, at)
        return (value if kind == "boolean" else Typed(kind, value)), at + struct.calcsize(form)
    if code in _OPAQUE:
        kind, size = _OPAQUE[code]
        return Typed(kind, _cut(data, at, at + size)), at + size
    width = 1 if code < 0xB0 or code in (0xC0, 0xC1, 0xE0) else 4
    size, at = int.from_bytes(_cut(data, at, at + width), "big"), at + width
    content = _cut(data, at, at + size)
    if code in _VARIABLE:
        kind = _VARIABLE[code][0]
        value = content if kind == "binary" else content.decode("utf-8" if kind == "string" else "ascii")
        return (Typed(kind, value) if kind == "symbol" else value), at + size
    count = int.from_bytes(content[:width], "big")
    return _decode_items(content, width, count, code), at + size


def _decode_items(content: bytes, at: int, count: int, code: int) -> Any:
    items = []
    if code in _ARRAYS:
        constructor, at = content[at], at + 1
        for _ in range(count):
            item, at = _decode_body(content, at, constructor)
            items.append(item.value if isinstance(item, Typed) else item)
        kind = {**_FIXED, **_OPAQUE, **_EMPTY, **_VARIABLE, **_COMPOUND}[constructor][0]
        assert at == len(content), "an array is longer than its elements"
        return Array(kind, tuple(items))
    for _ in range(count):
        item, at = decode(content, at)
        items.append(item)
    assert at == len(content), "a list or map is longer than its elements"
    if _COMPOUND[code][0] == "list":
        return items
    assert count % 2 == 0, "a map with a key and no value"
    return {keyed(key): value for key, value in zip(items[::2], items[1::2], strict=True)}


def _cut(data: bytes, at: int, end: int) -> bytes:
    assert end <= len(data), "a value goes on behind the end"
    return data[at:end]
