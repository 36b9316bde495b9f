"""Decodes single fields of a peer's performatives for the tap (`tap`), and refuses invalid ones.

The callers know to which performative a field belongs.
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
_TRANSACTION: Final = b"txn-id"
_OUTCOMES: Final = b"\xe0" + bytes((len(_SYMBOLS) + 1, len(_NAMES))) + _SYMBOLS


def number_of(fields: list[bytes], place: int) -> int | None:
    value = decode(fields[place])[0] if place < len(fields) else None
    return value if type(value) is int else None


def first_of(terminus: bytes) -> bytes:
    """The encoded address of a source or target; null if the terminus has none."""
    _, at = decode(terminus, 1) if terminus != NULL else (None, 0)
    elements, _ = split_list(terminus, at, 1) if at else ([], 0)
    return elements[0] if elements else NULL


def transaction_in(state: bytes) -> bytes | None:
    """The name of the transaction in a delivery state (AMQP 1.0 4.5.8); empty if the state is malformed. None if the
    state is not transactional."""
    value = decode(state)[0]
    if not isinstance(value, Described) or value.descriptor not in (TRANSACTIONAL, "amqp:transactional-state:list"):
        return None
    names = value.value[:1] if isinstance(value.value, list) else []
    return names[0] if names and isinstance(names[0], bytes) else b""


def acquires(properties: bytes) -> bool:
    """Whether the link properties of a flow name a transaction: its credit is to acquire messages for the transaction
    (AMQP 1.0 4.4.3). Properties that are malformed name none."""
    if _TRANSACTION not in properties:
        return False
    try:
        told = decode(properties)[0]
    except AmqpError:
        return False
    return isinstance(told, dict) and told.get(_TRANSACTION.decode()) is not None


def check_name(encoded: bytes, what: str) -> str:
    """Decode a name; null is an empty name. Raises AmqpError if the name has a NUL: proton would cut the name there,
    and take it for another name. `what`: the field, for the error."""
    name = decode(encoded)[0] or ""
    if "\0" in name:
        raise AmqpError(INVALID_FIELD, f"{what} has a NUL character")
    return str(name)


def alias_of(name: str, number: int) -> str:
    """The name for a link in proton while proton has another link of this name. Proton never shows the part after a
    NUL."""
    return f"{name}\0{number}"


def with_outcomes(source: bytes) -> bytes:
    """The source with all outcomes that the router understands, and with released as default outcome (AMQP 1.0
    3.5.3)."""
    fields = performative.padded(performative.split_list(source, 3)[0], 10)
    fields[8:10] = _DEFAULT_OUTCOME, _OUTCOMES
    return source[:3] + performative.join_list(fields)
