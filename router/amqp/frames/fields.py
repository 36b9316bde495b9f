"""Fields of a peer's performatives: those that the tap (`tap`) has to look into, and what is refused in them.

Pure. Never here: which field of which performative it is.
"""

from typing import Final

from router.amqp.format import performative
from router.amqp.format.codec import Described, decode
from router.amqp.format.errors import INVALID_FIELD, AmqpError
from router.amqp.format.performative import NULL, split_list
from router.amqp.format.values import TRANSACTIONAL

_DEFAULT_OUTCOME: Final = b"\x00\x53\x26\x45"
_NAMES: Final = [f"amqp:{name}:list".encode() for name in ("accepted", "rejected", "released", "modified")]
_SYMBOLS: Final = b"\xa3" + b"".join(bytes((len(name),)) + name for name in _NAMES)
_OUTCOMES: Final = b"\xe0" + bytes((len(_SYMBOLS) + 1, len(_NAMES))) + _SYMBOLS


def number_of(fields: list[bytes], place: int) -> int | None:
    value = decode(fields[place])[0] if place < len(fields) else None
    return value if type(value) is int else None


def first_of(terminus: bytes) -> bytes:
    """A source's or target's address; null if it has none, as a coordinator."""
    _, at = decode(terminus, 1) if terminus != NULL else (None, 0)
    elements, _ = split_list(terminus, at, 1) if at else ([], 0)
    return elements[0] if elements else NULL


def is_transactional(state: bytes) -> bool:
    """Of a delivery state (AMQP 1.0 4.5.5)."""
    value = decode(state)[0]
    return isinstance(value, Described) and value.descriptor in (TRANSACTIONAL, "amqp:transactional-state:list")


def check_name(encoded: bytes, what: str) -> str:
    """Proton would cut it off at a NUL, and take it for another one. Null is an empty one."""
    name = decode(encoded)[0] or ""
    if "\0" in name:
        raise AmqpError(INVALID_FIELD, f"{what} has a NUL character")
    return str(name)


def alias_of(name: str, number: int) -> str:
    """As proton is to know a link if it knows another one of this name: it tells nobody what is behind a NUL."""
    return f"{name}\0{number}"


def with_outcomes(source: bytes) -> bytes:
    """A source that says which outcomes are understood here: all; its default is released (AMQP 1.0 3.5.3)."""
    fields = performative.padded(performative.split_list(source, 3)[0], 10)
    fields[8:10] = _DEFAULT_OUTCOME, _OUTCOMES
    return source[:3] + performative.join_list(fields)
