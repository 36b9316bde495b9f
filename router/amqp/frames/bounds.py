"""Limits the size of a peer's performatives, because proton keeps parts of them in memory.

Proton makes a node of some 70 bytes for each value in a field. It keeps the nodes of an open, begin or attach with the
connection, session or link, the nodes of an error with the link, and the nodes of a state with each delivery that a
disposition names.

The callers know what the fields mean.
"""

from collections.abc import Sequence
from math import inf
from typing import Any, Final

from router.amqp.format.codec import Described, decode, encode, skip
from router.amqp.format.errors import RESOURCE_LIMIT, AmqpError
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
    join_list,
    split_list,
)
from router.amqp.frames.forms import UNSETTLED, name_of, place

LARGE: Final = 1024
"""The highest number of bytes of a text of an error, of the info of an error, and of a delivery state other than
rejected."""
MOST_TOLD: Final = 64
"""The highest number of values in the info of an error, and in a delivery state other than rejected."""
MOST_VALUES: Final = {OPEN: 4096, BEGIN: 1024, ATTACH: 1024}
"""Performative -> the highest number of values in its fields. The unsettled map is not counted: it has its own limit
and does not reach proton. An open names the routers that a client may go to (`router.plan.alternates`), with nine
values for each."""
MOST_BYTES: Final = {BEGIN: 4096, ATTACH: 16 * 1024}
"""Performative -> the highest number of bytes of its fields. An open needs no limit here, because a connection has only
one; it may have many sessions and links."""

_DETAILS: Final = {
    DISPOSITION: place(DISPOSITION, "state"),
    **{code: place(code, "error") for code in (DETACH, END, CLOSE)},
}
"""Performative -> the place of its state or error."""
_REJECTED: Final = b"\x00\x53\x25"
_ERROR: Final = b"\x00\x53\x1d"
_FIRST: Final = {0x00: 1, 0xC0: 3, 0xC1: 3, 0xD0: 9, 0xD1: 9}
"""Constructor of a compound value -> the offset of its first element."""
_ARRAYS: Final = (0xE0, 0xF0)


def bounded(code: int, fields: list[bytes]) -> list[bytes]:
    """The fields of a performative, with an error cut to LARGE and MOST_TOLD; the same list if nothing is cut. Raises
    AmqpError if a state other than rejected is too large, or if the performative has too many values or bytes."""
    arrays = code not in (FLOW, TRANSFER) and _check_arrays(fields)
    if code in MOST_VALUES:
        counted = [field for at, field in enumerate(fields) if (code, at) != UNSETTLED]
        if sum(map(len, counted)) > MOST_BYTES.get(code, inf):
            raise AmqpError(RESOURCE_LIMIT, f"{name_of(code)} has more than {MOST_BYTES[code]} bytes")
        if _are_more(counted, MOST_VALUES[code], arrays=arrays):
            raise AmqpError(RESOURCE_LIMIT, f"{name_of(code)} has more than {MOST_VALUES[code]} values")
    at = _DETAILS.get(code, len(fields))
    if at >= len(fields) or not _is_large(fields[at], arrays=arrays):
        return fields
    detail = (_bounded_state if code == DISPOSITION else _bounded_error)(fields[at])
    return [*fields[:at], detail, *fields[at + 1 :]]


def _check_arrays(fields: list[bytes]) -> bool:
    """Whether the fields may contain arrays. Raises AmqpError if an array has too many elements that take no bytes:
    proton would allocate memory for each of them."""
    suspects = [field for field in fields if b"\xe0" in field or b"\xf0" in field]
    for field in suspects:
        decode(field)
    return bool(suspects)


def _is_large(detail: bytes, *, arrays: bool) -> bool:
    return len(detail) > LARGE or _are_more([detail], MOST_TOLD, arrays=arrays)


def _are_more(fields: Sequence[bytes], most: int, *, arrays: bool) -> bool:
    """Whether the fields have more than `most` values, nested ones included. `arrays`: whether the fields may have
    arrays; otherwise each value takes at least a byte."""
    if not arrays and sum(map(len, fields)) <= most:
        return False
    for field in fields:
        at = 0
        while at < len(field) and most >= 0:
            most -= _values_of(field, at) if field[at] in _ARRAYS else 1
            at = at + _FIRST[field[at]] if field[at] in _FIRST else skip(field, at)
    return most < 0


def _values_of(data: bytes, at: int) -> int:
    """The number of values in an array. If its elements are compound, the larger one of two numbers: the values in its
    elements, and the bytes of the array."""
    elements, end = decode(data, at)
    if elements and isinstance(elements[0], (list, dict, Described)):
        return max(end - at, sum(map(_values_in, elements)))
    return len(elements)


def _values_in(value: Any) -> int:
    """The number of values in this value, itself included."""
    match value:
        case list():
            return 1 + sum(map(_values_in, value))
        case dict():
            return 1 + sum(_values_in(part) for item in value.items() for part in item)
        case Described():
            return _values_in(value.descriptor) + _values_in(value.value)
    return 1


def _bounded_state(state: bytes) -> bytes:
    if not state.startswith(_REJECTED):
        what = f"a disposition of several deliveries has a state of more than {LARGE} bytes or {MOST_TOLD} values"
        raise AmqpError(RESOURCE_LIMIT, what)
    elements, _ = split_list(state, len(_REJECTED))
    return _REJECTED + join_list([_bounded_error(elements[0])] if elements else [])


def _bounded_error(error: bytes) -> bytes:
    """The error with its condition and description cut to LARGE, and with its info if the info is not too large."""
    if not error.startswith(b"\0"):
        return NULL
    _, at = decode(error, 1)
    elements, _ = split_list(error, at, 3)
    info = [NULL if _is_large(element, arrays=_check_arrays([element])) else element for element in elements[2:]]
    return _ERROR + join_list([*map(_cut, elements[:2]), *info])


def _cut(field: bytes) -> bytes:
    """A text cut to LARGE; null for a larger field that is no text."""
    if len(field) <= LARGE:
        return field
    text, _ = decode(field)
    if not isinstance(text, str):
        return NULL
    return encode(type(text)(text.encode()[:LARGE].decode(errors="ignore")))
