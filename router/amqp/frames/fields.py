"""Fields of a peer's performatives: those that the tap (`tap`) has to look into, and what is refused in them.

Pure. Never here: which field of which performative it is.
"""

from typing import Final

from router.amqp.format import performative
from router.amqp.format.codec import Described, decode, skip
from router.amqp.format.errors import INVALID_FIELD, RESOURCE_LIMIT, AmqpError
from router.amqp.format.performative import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    NULL,
    TRANSFER,
    join_list,
    split_list,
)

_DEFAULT_OUTCOME: Final = b"\x00\x53\x26\x45"
_NAMES: Final = [f"amqp:{name}:list".encode() for name in ("accepted", "rejected", "released", "modified")]
_SYMBOLS: Final = b"\xa3" + b"".join(bytes((len(name),)) + name for name in _NAMES)
_OUTCOMES: Final = b"\xe0" + bytes((len(_SYMBOLS) + 1, len(_NAMES))) + _SYMBOLS

LARGE: Final = 1024
"""Bytes of an error's info, and of a disposition's state, which is kept for each delivery of its range. Proton keeps a
node of some 70 bytes for each value in them."""
MOST_VALUES: Final = 1024
"""Of an attach, or a begin: what is not in its unsettled map, which has a limit of its own and is not proton's."""
_UNSETTLED: Final = (ATTACH, 7)
_INTO: Final = {0x00: 1, 0xC0: 3, 0xC1: 3, 0xD0: 9, 0xD1: 9}
"""By constructor of what has values in it: where the first of them is. Of an array `_ARRAYS`."""
_ARRAYS: Final = {0xE0: 4, 0xF0: 10}
_DETAILS: Final = {DISPOSITION: 4, DETACH: 2, END: 0, CLOSE: 0}
"""Where a performative has a state, or an error."""
_REJECTED: Final = b"\x00\x53\x25"
_INFO: Final = 2


def number_of(fields: list[bytes], place: int) -> int | None:
    value = decode(fields[place])[0] if place < len(fields) else None
    return value if type(value) is int else None


def bounded(code: int, fields: list[bytes]) -> list[bytes]:
    """The fields of a performative, its error without an info that is large; the same list if there is none. Raises
    AmqpError at any other state that is, at too many values, and at arrays whose elements take no bytes."""
    if code not in (FLOW, TRANSFER):
        _check_arrays(fields)
    if code in (BEGIN, ATTACH):
        _check_count([field for place, field in enumerate(fields) if (code, place) != _UNSETTLED])
    place = _DETAILS.get(code, len(fields))
    if place >= len(fields) or len(fields[place]) <= LARGE:
        return fields
    detail = (_bounded_state if code == DISPOSITION else _bounded_error)(fields[place])
    return [*fields[:place], detail, *fields[place + 1 :]]


def _check_arrays(fields: list[bytes]) -> None:
    """Elements of an array may take no bytes, and proton makes room for all that it counts."""
    for field in fields:
        if b"\xe0" in field or b"\xf0" in field:
            decode(field)


def _check_count(fields: list[bytes]) -> None:
    """Of the values that are kept with a link or a session, however they lie in each other."""
    left = MOST_VALUES
    if sum(map(len, fields)) <= left:
        return
    for field in fields:
        at = 0
        while at < len(field) and left >= 0:
            left -= _values_of(field, at) if field[at] in _ARRAYS else 1
            at = at + _INTO[field[at]] if field[at] in _INTO else skip(field, at)
    if left < 0:
        raise AmqpError(RESOURCE_LIMIT, f"more than {MOST_VALUES} values in an attach or a begin")


def _values_of(data: bytes, at: int) -> int:
    """Of an array: its elements, or as many as it has bytes, if there are values in them."""
    first = at + _ARRAYS[data[at]]
    is_plain = 0x40 <= data[first - 1] < 0xC0
    width = (_ARRAYS[data[at]] - 2) // 2
    return int.from_bytes(data[first - 1 - width : first - 1], "big") if is_plain else skip(data, at) - at


def _bounded_state(state: bytes) -> bytes:
    if not state.startswith(_REJECTED):
        raise AmqpError(RESOURCE_LIMIT, f"a state of more than {LARGE} bytes for all deliveries of a range")
    elements, _ = split_list(state, len(_REJECTED))
    return _REJECTED + join_list([_bounded_error(elements[0])] if elements else [])


def _bounded_error(error: bytes) -> bytes:
    if not error.startswith(b"\0"):
        return NULL
    _, at = decode(error, 1)
    elements, _ = split_list(error, at)
    is_large = len(elements) > _INFO and len(elements[_INFO]) > LARGE
    return error[:at] + join_list(elements[: _INFO if is_large else _INFO + 1])


def first_of(terminus: bytes) -> bytes:
    """A source's or target's address; null if it has none, as a coordinator."""
    _, at = decode(terminus, 1) if terminus != NULL else (None, 0)
    elements, _ = split_list(terminus, at, 1) if at else ([], 0)
    return elements[0] if elements else NULL


def is_transactional(state: bytes) -> bool:
    """Of a delivery state (AMQP 1.0 4.5.5)."""
    value = decode(state)[0]
    return isinstance(value, Described) and value.descriptor in (0x34, "amqp:transactional-state:list")


def check_name(encoded: bytes, what: str) -> None:
    """Proton would cut it off at a NUL, and take it for another one."""
    name = decode(encoded)[0]
    if isinstance(name, str) and "\0" in name:
        raise AmqpError(INVALID_FIELD, f"{what} with a NUL")


def with_outcomes(source: bytes) -> bytes:
    """A source that says which outcomes are understood here: all; its default is released (AMQP 1.0 3.5.3)."""
    fields = performative.padded(performative.split_list(source, 3)[0], 10)
    fields[8:10] = _DEFAULT_OUTCOME, _OUTCOMES
    return source[:3] + performative.join_list(fields)
