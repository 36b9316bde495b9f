"""What proton would keep of a peer's performative, as far as there is room for it.

Proton makes a node of some 70 bytes for each value in a field, and keeps those of an open, a begin or an attach as long
as what that begins, those of an error with the link, and those of a state, with the text of its error, with each
delivery of the disposition's range.

Pure. Never here: what the fields mean.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

from router.amqp.format.codec import Described, Symbol, decode, encode, skip
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

LARGE: Final = 1024
"""Bytes of an error's info, and of a disposition's state."""
MOST_VALUES: Final = {BEGIN: 1024, ATTACH: 1024, OPEN: 4096}
"""Without an unsettled map, which has a limit of its own and is not proton's. An open names all routers of a mesh."""
LONGEST_TEXT: Final = 4096
"""Bytes, of the error of a state."""

_UNSETTLED: Final = (ATTACH, 7)
_DETAILS: Final = {DISPOSITION: 4, DETACH: 2, END: 0, CLOSE: 0}
"""By performative: the place of its state, or its error."""
_REJECTED: Final = b"\x00\x53\x25"
_TEXT, _INFO = 1, 2
"""Their places in an error."""
_FIRST: Final = {0x00: 1, 0xC0: 3, 0xC1: 3, 0xD0: 9, 0xD1: 9}
"""By constructor of what has values in it: where the first of them begins."""
_ARRAYS: Final = (0xE0, 0xF0)


def bounded(code: int, fields: list[bytes]) -> list[bytes]:
    """The fields of a performative, its error without an info that is large, that of a state with no more text than
    there is room for; the same list if there is nothing to be left out. Raises AmqpError at any other state that is
    large, at too many values, and at arrays whose elements take no bytes."""
    if code not in (FLOW, TRANSFER):
        _check_arrays(fields)
    if code in MOST_VALUES:
        _check_count([field for place, field in enumerate(fields) if (code, place) != _UNSETTLED], MOST_VALUES[code])
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


def _check_count(fields: Sequence[bytes], most: int) -> None:
    """However the values lie in each other."""
    left = most
    if sum(map(len, fields)) <= left:
        return
    for field in fields:
        at = 0
        while at < len(field) and left >= 0:
            left -= _values_of(field, at) if field[at] in _ARRAYS else 1
            at = at + _FIRST[field[at]] if field[at] in _FIRST else skip(field, at)
    if left < 0:
        raise AmqpError(RESOURCE_LIMIT, f"more than {most} values in an open, a begin or an attach")


def _values_of(data: bytes, at: int) -> int:
    """Of an array: its elements, or as many as it has bytes, if there are values in these."""
    elements, end = decode(data, at)
    return end - at if elements and isinstance(elements[0], (list, dict, Described)) else len(elements)


def _bounded_state(state: bytes) -> bytes:
    if not state.startswith(_REJECTED):
        raise AmqpError(RESOURCE_LIMIT, f"a state of more than {LARGE} bytes for all deliveries of a range")
    elements, _ = split_list(state, len(_REJECTED))
    return _REJECTED + join_list([_bounded_error(elements[0], LONGEST_TEXT)] if elements else [])


def _bounded_error(error: bytes, longest: float = inf) -> bytes:
    if not error.startswith(b"\0"):
        return NULL
    _, at = decode(error, 1)
    elements, _ = split_list(error, at)
    if len(elements) > _TEXT and len(elements[_TEXT]) > longest:
        elements[_TEXT] = _cut(elements[_TEXT])
    is_large = len(elements) > _INFO and len(elements[_INFO]) > LARGE
    return error[:at] + join_list(elements[: _INFO if is_large else _INFO + 1])


def _cut(text: bytes) -> bytes:
    """As much of it as is kept, if it is a text, and a sign that there was more."""
    value, _ = decode(text)
    if not isinstance(value, str) or isinstance(value, Symbol):
        return NULL
    return encode(value.encode()[:LONGEST_TEXT].decode(errors="ignore") + "…")
