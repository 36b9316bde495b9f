"""Decodes a message into a mapping from the names of its sections (AMQP 1.0 3.2) to their contents, and encodes a
message from it. People and programs read and write the mapping.

The header and the properties are mappings from the names of their fields; annotations, application-properties and
footer are maps. The body is `data` (bytes, of all data sections), `sequence` (a list of lists) or `value`. Times are in
milliseconds, as in AMQP.

Messages on their way through the mesh stay encoded (`message`) and do not come here.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from router.amqp.format.codec import Described, Symbol, Timestamp, encode, ubyte, uint, ulong
from router.amqp.format.errors import DECODE_ERROR, AmqpError
from router.amqp.format.message import sections_of

HEADER: Final = 0x70
NAMES: Final = {
    HEADER: "header",
    0x71: "delivery-annotations",
    0x72: "message-annotations",
    0x73: "properties",
    0x74: "application-properties",
    0x75: "data",
    0x76: "sequence",
    0x77: "value",
    0x78: "footer",
}
"""The names of the sections, keyed by descriptor, in the order of the sections in a message."""
BODIES: Final = ("data", "sequence", "value")


class FieldKind(NamedTuple):
    """The type of a field. `expected`: its description in error texts. `fits`: checks a value. `typed`: converts a
    value to the type that `encode` needs."""

    expected: str
    fits: Callable[[Any], bool]
    typed: Callable[[Any], Any]


def _whole(most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_symbol(value: Any) -> bool:
    return isinstance(value, str) and value.isascii()


_BOOLEAN: Final = FieldKind("true or false", lambda value: isinstance(value, bool), bool)
_UBYTE: Final = FieldKind("a number from 0 to 255", _whole(2**8 - 1), ubyte)
_UINT: Final = FieldKind("a number from 0 to 4294967295", _whole(2**32 - 1), uint)
_TIME: Final = FieldKind("milliseconds since 1970", _whole(2**63 - 1), Timestamp)
_TEXT: Final = FieldKind("a text", _is_text, str)
_SYMBOL: Final = FieldKind("a text of ASCII characters", _is_symbol, Symbol)
_BINARY: Final = FieldKind(
    "a text or binary",
    lambda value: isinstance(value, str | bytes),
    lambda value: value.encode() if isinstance(value, str) else value,
)
_ID: Final = FieldKind(
    "a text, a number or binary",
    lambda value: isinstance(value, str | bytes) or _whole(2**64 - 1)(value),
    lambda value: value if isinstance(value, str | bytes) else ulong(value),
)

FIELDS: Final[Mapping[str, Mapping[str, FieldKind]]] = {
    "header": {
        "durable": _BOOLEAN,
        "priority": _UBYTE,
        "ttl": _UINT,
        "first-acquirer": _BOOLEAN,
        "delivery-count": _UINT,
    },
    "properties": {
        "message-id": _ID,
        "user-id": _BINARY,
        "to": _TEXT,
        "subject": _TEXT,
        "reply-to": _TEXT,
        "correlation-id": _ID,
        "content-type": _SYMBOL,
        "content-encoding": _SYMBOL,
        "absolute-expiry-time": _TIME,
        "creation-time": _TIME,
        "group-id": _TEXT,
        "group-sequence": _UINT,
        "reply-to-group-id": _TEXT,
    },
}
"""The fields of the header and of the properties, in their order (3.2.1, 3.2.4)."""
SYMBOLIC: Final = ("delivery-annotations", "message-annotations", "footer")
"""The sections whose keys are symbols."""


def read_message(message: bytes) -> dict[str, Any]:
    """Decode a message. Raises AmqpError if it is malformed."""
    found: dict[str, Any] = {}
    for code, value in sections_of(message):
        name = NAMES.get(code) if isinstance(code, int) else None
        if name is None:
            raise AmqpError(DECODE_ERROR, f"AMQP messages have no section {code!r}")
        if name in FIELDS:
            fields = zip(FIELDS[name], value if isinstance(value, list) else (), strict=False)
            found[name] = {field: item for field, item in fields if item is not None}
        elif name == "data":
            found[name] = found.get(name, b"") + (value if isinstance(value, bytes) else b"")
        elif name == "sequence":
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    return found


def write_message(sections: Mapping[str, Any]) -> bytes:
    """Encode a message. Raises ValueError for the first wrong field or value, with what was expected."""
    encoded = b""
    for code, name in NAMES.items():
        if name in sections:
            values = sections[name] if name == "sequence" else [_typed(name, sections[name])]
            encoded += b"".join(_encoded(name, Described(code, value)) for value in values)
    return encoded


def not_text(error: UnicodeEncodeError) -> str:
    """The error text for a text that cannot be encoded. Python represents input bytes that are no text by special
    characters (surrogates), which no encoding can write."""
    encoding, expected = ("ASCII", "ASCII characters") if error.encoding == "ascii" else ("UTF-8", "a text")
    return f"{error.object[error.start : error.end]!r} is not {encoding}, expected {expected}"


def _encoded(name: str, section: Described) -> bytes:
    try:
        return encode(section)
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} cannot be sent as AMQP: {not_text(error)}") from None
    except OverflowError:
        raise ValueError(f"{name} cannot be sent as AMQP: an integer is not from -2^63 to 2^63 - 1") from None
    except RecursionError:
        raise ValueError(f"{name} cannot be sent as AMQP: lists or maps are nested too deeply") from None
    except TypeError as error:
        raise ValueError(f"{name} cannot be sent as AMQP: {error}") from None


def _typed(name: str, value: Any) -> Any:
    if name in BODIES:
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f'"{name}" is {value!r}, expected a JSON object of names and values')
    if name in FIELDS:
        return _fields(name, value)
    if name == "application-properties" and any(isinstance(item, list | Mapping) for item in value.values()):
        raise ValueError(f"{name}: a value is a list or map, expected simple values only")
    return {Symbol(key) if name in SYMBOLIC else key: item for key, item in value.items()}


def _fields(section: str, given: Mapping[str, Any]) -> list[Any]:
    kinds = FIELDS[section]
    for name, value in given.items():
        if name not in kinds:
            raise ValueError(f'{section} has no "{name}", expected {", ".join(kinds)}')
        if not kinds[name].fits(value):
            raise ValueError(f"{name} is {value!r}, expected {kinds[name].expected}")
    return [kind.typed(given[name]) if name in given else None for name, kind in kinds.items()]
