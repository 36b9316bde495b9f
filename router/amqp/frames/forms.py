"""Rewrites unusual encodings in a peer's performatives to the forms that proton reads, and refuses wrong types.

In AMQP a descriptor may be a symbol, or a number of any width, and a frame may have an extended header (1.0 1.5,
2.3.1). Proton does not know the descriptor of a state or a terminus if it is a symbol. It treats a field of a wrong
type as left out. It takes the values after a nested described value for parts of that value.

The callers know what the fields mean. The tables are not formatted (`fmt: skip`), so that the fields of a performative
stay in one row, as AMQP lists them.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from router.amqp.format.codec import Described, decode
from router.amqp.format.errors import DECODE_ERROR, INVALID_FIELD, NOT_IMPLEMENTED, AmqpError
from router.amqp.format.performative import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    NULL,
    OPEN,
    TRANSFER,
    split_list,
)


class Kind(NamedTuple):
    """The type of a field: its name for error texts, and the constructors of its values."""

    expected: str
    constructors: bytes


_STRING: Final = Kind("a string", b"\xa1\xb1")
_SYMBOL: Final = Kind("a symbol", b"\xa3\xb3")
_SYMBOLS: Final = Kind("symbols", b"\xa3\xb3\xe0\xf0")
_BINARY: Final = Kind("binary", b"\xa0\xb0")
_UINT: Final = Kind("a uint", b"\x43\x52\x70")
_USHORT: Final = Kind("a ushort", b"\x60")
_UBYTE: Final = Kind("a ubyte", b"\x50")
_ULONG: Final = Kind("a ulong", b"\x44\x53\x80")
_BOOLEAN: Final = Kind("a boolean", b"\x41\x42\x56")
_MAP: Final = Kind("a map", b"\xc1\xd1")
_DESCRIBED: Final = Kind("a described value", b"\0")

Fields = Mapping[str, Kind]

_PERFORMATIVES: Final[Mapping[int, tuple[str, Fields, tuple[int, ...]]]] = {
    OPEN: ("an open", {
        "container-id": _STRING, "hostname": _STRING, "max-frame-size": _UINT, "channel-max": _USHORT,
        "idle-time-out": _UINT, "outgoing-locales": _SYMBOLS, "incoming-locales": _SYMBOLS,
        "offered-capabilities": _SYMBOLS, "desired-capabilities": _SYMBOLS, "properties": _MAP,
    }, (0,)),
    BEGIN: ("a begin", {
        "remote-channel": _USHORT, "next-outgoing-id": _UINT, "incoming-window": _UINT, "outgoing-window": _UINT,
        "handle-max": _UINT, "offered-capabilities": _SYMBOLS, "desired-capabilities": _SYMBOLS, "properties": _MAP,
    }, (1, 2, 3)),
    ATTACH: ("an attach", {
        "name": _STRING, "handle": _UINT, "role": _BOOLEAN, "snd-settle-mode": _UBYTE, "rcv-settle-mode": _UBYTE,
        "source": _DESCRIBED, "target": _DESCRIBED, "unsettled": _MAP, "incomplete-unsettled": _BOOLEAN,
        "initial-delivery-count": _UINT, "max-message-size": _ULONG, "offered-capabilities": _SYMBOLS,
        "desired-capabilities": _SYMBOLS, "properties": _MAP,
    }, (0, 1, 2)),
    FLOW: ("a flow", {
        "next-incoming-id": _UINT, "incoming-window": _UINT, "next-outgoing-id": _UINT, "outgoing-window": _UINT,
        "handle": _UINT, "delivery-count": _UINT, "link-credit": _UINT, "available": _UINT, "drain": _BOOLEAN,
        "echo": _BOOLEAN, "properties": _MAP,
    }, (1, 2, 3)),
    TRANSFER: ("a transfer", {
        "handle": _UINT, "delivery-id": _UINT, "delivery-tag": _BINARY, "message-format": _UINT, "settled": _BOOLEAN,
        "more": _BOOLEAN, "rcv-settle-mode": _UBYTE, "state": _DESCRIBED, "resume": _BOOLEAN, "aborted": _BOOLEAN,
        "batchable": _BOOLEAN,
    }, (0,)),
    DISPOSITION: ("a disposition", {
        "role": _BOOLEAN, "first": _UINT, "last": _UINT, "settled": _BOOLEAN, "state": _DESCRIBED,
        "batchable": _BOOLEAN,
    }, (0, 1)),
    DETACH: ("a detach", {"handle": _UINT, "closed": _BOOLEAN, "error": _DESCRIBED}, (0,)),
    END: ("an end", {"error": _DESCRIBED}, ()),
    CLOSE: ("a close", {"error": _DESCRIBED}, ()),
}  # fmt: skip
"""Performative -> its name for error texts, its fields in order, and the places of its mandatory fields."""
_TERMINUS: Final[Fields] = {
    "address": _STRING, "durable": _UINT, "expiry-policy": _SYMBOL, "timeout": _UINT, "dynamic": _BOOLEAN,
    "dynamic-node-properties": _MAP,
}  # fmt: skip
_SOURCE: Final[Fields] = {
    **_TERMINUS, "distribution-mode": _SYMBOL, "filter": _MAP, "default-outcome": _DESCRIBED, "outcomes": _SYMBOLS,
    "capabilities": _SYMBOLS,
}  # fmt: skip
_TARGET: Final[Fields] = {**_TERMINUS, "capabilities": _SYMBOLS}
_TERMINI: Final[Mapping[int, tuple[str, Fields]]] = {
    0x28: ("a source", _SOURCE), 0x29: ("a target", _TARGET), 0x30: ("a coordinator", {"capabilities": _SYMBOLS}),
}  # fmt: skip
_NAMES: Final = {
    "amqp:received:list": 0x23, "amqp:accepted:list": 0x24, "amqp:rejected:list": 0x25, "amqp:released:list": 0x26,
    "amqp:modified:list": 0x27, "amqp:source:list": 0x28, "amqp:target:list": 0x29, "amqp:coordinator:list": 0x30,
    "amqp:declared:list": 0x33, "amqp:transactional-state:list": 0x34, "amqp:error:list": 0x1D,
}  # fmt: skip
_PLACES: Final = {
    code: tuple(at for at, kind in enumerate(kinds.values()) if kind is _DESCRIBED)
    for code, (_, kinds, _) in _PERFORMATIVES.items()
}
"""Performative -> the places of the fields that are described values."""


def name_of(code: int) -> str:
    """The name of a performative, for error texts."""
    return _PERFORMATIVES[code][0]


def place(code: int, field: str) -> int:
    """The place of a field in its performative."""
    return list(_PERFORMATIVES[code][1]).index(field)


DELIVERY_ID, DELIVERY_TAG, MESSAGE_FORMAT, MORE, STATE, RESUME = (
    place(TRANSFER, field) for field in ("delivery-id", "delivery-tag", "message-format", "more", "state", "resume")
)
"""The places of some fields in a transfer."""
UNSETTLED: Final = ATTACH, place(ATTACH, "unsettled")
_UNREAD: Final = (UNSETTLED, (FLOW, place(FLOW, "properties")))
"""The fields with maps that proton does not read."""


def usual(code: int, fields: list[bytes]) -> list[bytes]:
    """The fields of a performative in the forms that proton reads; the same list if nothing changes. Raises AmqpError
    if a mandatory field is missing, or a field has a wrong type or an unknown descriptor."""
    what, kinds, needed = _PERFORMATIVES[code]
    _check(what, fields, kinds, needed)
    made = fields
    for at in _PLACES[code]:
        if at < len(fields) and fields[at] != NULL:
            name, field = list(kinds)[at], fields[at]
            found = _described(f"the {name} of {what}", field)
            if code == ATTACH:
                _check_terminus(found)
            if found is not field:
                made = [*made[:at], found, *made[at + 1 :]]
    return made


def check_nesting(code: int, fields: list[bytes]) -> None:
    """Check that no field that proton reads has a described value within a described value. Raises AmqpError if one
    has."""
    what, kinds, _ = _PERFORMATIVES[code]
    for at, (field, (name, kind)) in enumerate(zip(fields, kinds.items(), strict=False)):
        is_read = kind in (_MAP, _DESCRIBED) and (code, at) not in _UNREAD
        if is_read and field.count(0) > 1 and _is_nested(decode(field)[0]):
            why = "has a described value directly within a described value, expected one descriptor for a value"
            raise AmqpError(NOT_IMPLEMENTED, f"the {name} of {what} {why}")


def _is_nested(value: Any) -> bool:
    match value:
        case Described():
            return isinstance(value.value, Described) or _is_nested(value.value)
        case dict():
            return any(map(_is_nested, (*value, *value.values())))
        case list() | tuple():
            return any(map(_is_nested, value))
    return False


def _check(what: str, fields: list[bytes], kinds: Fields, needed: tuple[int, ...] = ()) -> None:
    for at in needed:
        if at >= len(fields) or fields[at] == NULL:
            raise AmqpError(INVALID_FIELD, f"{what} lacks its {list(kinds)[at]}")
    for field, (name, kind) in zip(fields, kinds.items(), strict=False):
        if field[0] not in kind.constructors and field != NULL:
            raise AmqpError(DECODE_ERROR, f"the {name} of {what} is not {kind.expected}")


def _described(what: str, field: bytes) -> bytes:
    """The described value, with its descriptor as a number of one byte. Raises AmqpError if the descriptor is
    unknown."""
    if field.startswith(b"\0\x53"):
        return field
    descriptor, at = decode(field, 1)
    code = _NAMES.get(descriptor) if isinstance(descriptor, str) else descriptor
    if type(code) is not int or not 0 <= code < 256:
        raise AmqpError(NOT_IMPLEMENTED, f"{what} has the unknown descriptor {descriptor!r}")
    return b"\0\x53" + bytes((code,)) + field[at:]


def _check_terminus(terminus: bytes) -> None:
    found = _TERMINI.get(terminus[2])
    if found is None:
        raise AmqpError(INVALID_FIELD, f"the terminus has the unknown code {terminus[2]:#x}")
    what, kinds = found
    _check(what, split_list(terminus, 3)[0], kinds)
