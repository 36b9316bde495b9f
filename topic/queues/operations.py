"""The operations on the queues of a replica set, and their answers, as bytes (protocol 13).

| operation | does | answers |
| --- | --- | --- |
| `Declare(name, settings)` | creates the queue | the id, also of a queue that has the same settings already |
| `Configure(name, id, former, settings)` | gives the queue other settings, in place of the former version | the id |
| `Delete(name, id)` | deletes the queue | the id |
| `Purge(name, id, position)` | takes messages up to this position out of the queue | the id, and how many it took |
| `Retry(name, id, address, runs)` | gives messages of the queue to the address they came from | the same |

An operation may be decided twice, because a router asks again if the answer is lost with a leader. In between others
may have changed the queue, and the second decision must not undo that. So all but `Declare` name a queue by its id.
`Configure` also names the version of the settings that it replaces, `Purge` the last position that it takes, and
`Retry` all positions: what came later stays. `Declare` names nothing: when it is answered, the queue is there, also if
somebody has deleted it since the first decision.

An operation is one msgpack array, [kind, name, …]; an answer is [life, index, life, index, count] or
[reason, why].
"""

import enum
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import msgpack

from topic.directory.addresses import is_misplaced, is_pattern
from topic.identity import INSIDE
from topic.queues.positions import Run, read_runs
from topic.settings import is_dynamic

MOST_NAME: Final = 255
"""Bytes of the name of a queue."""
MOST_WHY: Final = 2048
"""Bytes of the reason of a refusal."""
MOST: Final = 2**63 - 1
"""The greatest life, index or limit."""
MOST_BOUND: Final = 16
"""The most addresses that one queue is bound to."""
REDELIVERIES: Final = 20
"""How often a message may come back as failed before it is a dead letter, if the queue has no number of its own."""


@attrs.frozen(order=True, slots=True)
class QueueId:
    """Names one queue for ever, by the entry that declared it: a queue that is declared again after its deletion has
    another id. A version of the settings of a queue is named in the same way, by the entry that set them."""

    life: int
    """The life of the set in which that was decided."""
    index: int
    """The log index of the entry."""

    def __str__(self) -> str:
        return f"{self.life:x}-{self.index}"

    @classmethod
    def parse(cls, text: str) -> "QueueId":
        """The id that `str` has written so. Raises ValueError."""
        life, dash, index = text.partition("-")
        try:
            found = cls(int(life, 16), int(index))
        except ValueError:
            found = None
        if not dash or found is None or str(found) != text or not _is_count(found.life) or not _is_count(found.index):
            raise ValueError(f"{reprlib.repr(text)} is no id of a queue, expected one like 66a2f3c1b0001-57")
        return found


@attrs.frozen(slots=True)
class QueueSettings:
    """The settings of a queue. None: not set."""

    limit_messages: int | None = None
    """How many messages the queue has at most. It refuses all further messages."""
    limit_bytes: int | None = None
    """How many bytes of messages the queue has at most."""
    ttl_ms: int | None = None
    """How long a message is in the queue at most."""
    bind: tuple[str, ...] | None = None
    """The topics, or patterns of topics, whose messages go into the queue, too; in order."""
    dead_letter: str | None = None
    """The address that dead letters go to: messages that consumers reject, that have failed too often, or whose time is
    over."""
    redeliveries: int | None = None
    """How often a message may come back as failed. Once more, and it is a dead letter. Without `dead_letter` this has
    no effect."""
    single_active: bool | None = None
    """Only one of its consumers gets messages, until that consumer has ended."""

    @property
    def most_failed(self) -> int:
        """How often a message may come back as failed, if the queue has an address for dead letters."""
        return self.redeliveries if self.redeliveries is not None else REDELIVERIES

    def has_room(self, messages: int, size: int) -> bool:
        """Whether the queue may have so many messages, of so many bytes."""
        few = self.limit_messages is None or messages <= self.limit_messages
        return few and (self.limit_bytes is None or size <= self.limit_bytes)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "QueueSettings":
        """The settings by name. Raises ValueError if a name is unknown, or a value is wrong."""
        for name in values:
            if name not in _SETTINGS:
                known = ", ".join(_SETTINGS)
                raise ValueError(f"a queue has no setting {reprlib.repr(name)}, expected one of {known}")
        return cls(**{name: _SETTINGS[name](name, value) for name, value in values.items()})

    def values(self) -> dict[str, Any]:
        """The values that are set, by name, in a fixed order."""
        values = {name: value for name in _SETTINGS if (value := getattr(self, name)) is not None}
        return {name: [*value] if isinstance(value, tuple) else value for name, value in values.items()}

    def __str__(self) -> str:
        return ", ".join(_shown(name, value) for name, value in self.values().items()) or "no settings"


@attrs.frozen(slots=True)
class Declare:
    """Create a queue."""

    name: str
    settings: QueueSettings = QueueSettings()


@attrs.frozen(slots=True)
class Configure:
    """Give a queue other settings, in place of all that it has."""

    name: str
    id: QueueId
    former: QueueId
    """The version that is to be replaced. If the queue has another one, nothing changes."""
    settings: QueueSettings


@attrs.frozen(slots=True)
class Delete:
    """Delete a queue."""

    name: str
    id: QueueId


@attrs.frozen(slots=True)
class Purge:
    """Take all messages up to a position out of a queue. A message that a consumer has leaves the queue when the
    consumer gives it back."""

    name: str
    id: QueueId
    position: int


@attrs.frozen(slots=True)
class Retry:
    """Give messages of a queue that no consumer has to the address that they came from as dead letters (protocol
    14.12)."""

    name: str
    id: QueueId
    address: str
    runs: tuple[Run, ...]


Operation = Declare | Configure | Delete | Purge | Retry


@attrs.frozen(slots=True)
class Done:
    """The queue of this id is as the operation wants it."""

    id: QueueId
    version: QueueId
    """Of its settings."""
    count: int = 0
    """How many messages a `Purge` or a `Retry` has taken."""


class RefusedFor(enum.Enum):
    """Why an operation is refused."""

    DIFFERS = "differs"
    """A queue of this name has other settings."""
    CHANGED = "changed"
    """The settings were changed since the version that the operation names."""
    NOT_FOUND = "not found"
    """There is no queue of this name and id."""
    TOO_MANY = "too many"
    """The set has as many queues as it may have."""
    NO_SET = "no set"
    """No set may have a queue of this name, or another set has it."""
    MALFORMED = "malformed"
    """The bytes are no operation."""
    BUSY = "busy"
    """This router waits for too many answers."""
    NO_ANSWER = "no answer"
    """Nobody answered in time. The operation may be carried out all the same."""


@attrs.frozen(slots=True)
class Refused:
    """Nothing has changed, unless nobody answered in time."""

    reason: RefusedFor
    why: str


Answer = Done | Refused

_KINDS: Final[tuple[type[Any], ...]] = (Declare, Configure, Delete, Purge, Retry)
"""By the number that stands for each."""
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}


def encode(operation: Operation) -> bytes:
    """Raises ValueError if the name is too long, or no text."""
    _name(operation.name)
    return bytes(msgpack.packb([_NUMBERS[type(operation)], *pack(operation)]))


def decode(data: bytes) -> Operation:
    """Raises ValueError for bytes that `encode` does not write."""
    return read_operation(unpack(data, "an operation on queues"))


def read_operation(parts: list[Any]) -> Operation:
    """The operation that an array is. Raises ValueError."""
    kind: Any = parts[0] if parts else None
    if not _is_count(kind) or kind >= len(_KINDS):
        raise ValueError(f"an operation on queues has the unknown kind {reprlib.repr(kind)}")
    operation: Operation = read(_KINDS[kind], parts[1:])
    return operation


def pack(fields: Any) -> list[Any]:
    """The fields of an object, for msgpack."""
    return [_packed(value) for value in attrs.astuple(fields, recurse=False)]


def _packed(value: Any) -> Any:
    if isinstance(value, QueueId):
        return attrs.astuple(value)
    return value.values() if isinstance(value, QueueSettings) else value


def read(kind: type[Any], values: Any) -> Any:
    """The object of this class whose fields `pack` has packed. Raises ValueError."""
    fields = attrs.fields(kind)
    if not isinstance(values, list) or len(values) != len(fields):
        raise ValueError(f"{kind.__name__} is {reprlib.repr(values)}, expected {len(fields)} fields")
    return kind(*(_READ[field.type](value) for field, value in zip(fields, values, strict=True)))


def unpack(data: bytes, what: str) -> list[Any]:
    """The array that these bytes are. Raises ValueError, with `what` they should be."""
    try:
        parts = msgpack.unpackb(data, strict_map_key=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"{what} is no msgpack: {error}") from None
    if not isinstance(parts, list):
        raise ValueError(f"{what} is no array")
    return parts


def encode_answer(answer: Answer) -> bytes:
    if isinstance(answer, Done):
        return bytes(msgpack.packb((*attrs.astuple(answer.id), *attrs.astuple(answer.version), answer.count)))
    return bytes(msgpack.packb((answer.reason.value, _cut(answer.why))))


def _cut(why: str) -> str:
    return why.encode(errors="replace")[:MOST_WHY].decode(errors="ignore")


def decode_answer(data: bytes) -> Answer:
    """Raises ValueError for bytes that `encode_answer` does not write."""
    parts = unpack(data, "an answer about queues")
    if parts and isinstance(parts[0], int):
        if len(parts) != 5:
            raise ValueError(f"an answer about queues is {reprlib.repr(parts)}, expected two ids and a number")
        return Done(_id(parts[:2]), _id(parts[2:4]), _number(parts[4]))
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts) or len(parts[1].encode()) > MOST_WHY:
        raise ValueError(f"an answer about queues is {reprlib.repr(parts)}, expected an id, or a reason and its text")
    return Refused(RefusedFor(parts[0]), parts[1])


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value.encode()) <= MOST_NAME:
        raise ValueError(f"the name of a queue is {reprlib.repr(value)}, expected a text of 1 to {MOST_NAME} bytes")
    return value


def _id(value: Any) -> QueueId:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_is_count, value)):
        raise ValueError(f"the id of a queue is {reprlib.repr(value)}, expected a life and an index")
    return QueueId(*value)


def _number(value: Any) -> int:
    if not _is_count(value):
        raise ValueError(f"about a queue there is {reprlib.repr(value)}, expected a number from 0 to 2^63 - 1")
    assert isinstance(value, int)
    return value


def _settings(value: Any) -> QueueSettings:
    if not isinstance(value, dict):
        raise ValueError(f"the settings of a queue are {reprlib.repr(value)}, expected names and values")
    return QueueSettings.of(value)


def _limit(name: str, value: Any) -> int:
    if not _is_count(value) or not value:
        raise ValueError(f"{name} of a queue is {reprlib.repr(value)}, expected a number from 1 to 2^63 - 1")
    assert isinstance(value, int)
    return value


def _addresses(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not 0 < len(value) <= MOST_BOUND:
        raise ValueError(f"{name} of a queue is {reprlib.repr(value)}, expected 1 to {MOST_BOUND} addresses of topics")
    for address in value:
        if not isinstance(address, str) or not 0 < len(address.encode()) <= MOST_NAME:
            what = f"expected the address of a topic, 1 to {MOST_NAME} bytes"
            raise ValueError(f"{name} of a queue has {reprlib.repr(address)}, {what}")
        if address.startswith(INSIDE):
            raise ValueError(f'{name} of a queue has "{address}", an address inside a replica set, expected a topic')
        if is_misplaced(address):
            raise ValueError(f'{name} of a queue has "{address}", expected "#" as the last word only')
    return tuple(sorted(set(value)))


def _dead_letter(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value.encode()) <= MOST_NAME:
        raise ValueError(f"{name} of a queue is {reprlib.repr(value)}, expected an address of 1 to {MOST_NAME} bytes")
    if value.startswith(INSIDE):
        raise ValueError(
            f'{name} of a queue is "{value}", an address inside a replica set, expected that of a topic or a queue'
        )
    if is_pattern(value):
        raise ValueError(f'{name} of a queue is "{value}", which is a pattern, expected one address')
    if is_dynamic(value):
        raise ValueError(f'{name} of a queue is "{value}", which goes with its client, expected one that stays')
    return value


def _redeliveries(name: str, value: Any) -> int:
    if not _is_count(value):
        raise ValueError(f"{name} of a queue is {reprlib.repr(value)}, expected a number from 0 to 2^63 - 1")
    assert isinstance(value, int)
    return value


def _shown(name: str, value: Any) -> str:
    if value is True:
        return name
    return f"{name} {' '.join(value) if isinstance(value, list) else value}"


def _flag(name: str, value: Any) -> bool | None:
    """A flag that is not raised is not set."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} of a queue is {reprlib.repr(value)}, expected true or false")
    return value or None


def _runs(value: Any) -> tuple[Run, ...]:
    return tuple(read_runs(value, "an operation on queues"))


_SETTINGS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "limit_messages": _limit,
    "limit_bytes": _limit,
    "ttl_ms": _limit,
    "bind": _addresses,
    "dead_letter": _dead_letter,
    "redeliveries": _redeliveries,
    "single_active": _flag,
}
"""By name: reads the value of a setting, or raises ValueError."""
_READ: Final[dict[Any, Callable[[Any], Any]]] = {
    str: _name,
    QueueId: _id,
    QueueSettings: _settings,
    int: _number,
    tuple[Run, ...]: _runs,
}
"""By the type of a field."""
