"""The operations on the queues of a replica set, and their answers, as bytes (protocol 13).

| operation | does | answers |
| --- | --- | --- |
| `Declare(name, settings)` | creates the queue | the id, also of a queue that has the same settings already |
| `Configure(name, id, former, settings)` | replaces the settings of the queue, if they have this version | the id |
| `Delete(name, id)` | deletes the queue | the id |
| `Purge(name, id, position)` | takes messages up to this position out of the queue | the id, and their number |
| `Retry(name, id, address, runs)` | moves messages back to the address they came from | the id, and their number |
| `Browse(name, first)` | changes nothing, and is not in the log | a `MessagePage` of messages from this position on |
| `Commit(name, router, number, …)` | carries out a transaction, once; the leader proposes a `Transact` for it | an id |

An operation may be decided twice, because a router sends its request again if the answer is lost with a leader. Other
operations on the queue may be decided in between, and the second decision must not undo these. So all but `Declare`
name a queue by its id. `Configure` also names the version of the settings that it replaces, `Purge` the last position
that it takes out, and `Retry` all positions, so later messages stay. `Commit` has a number, under which the state keeps
the first answer. `Declare` needs none of these: when it is answered, the queue exists, even if another client has
deleted the queue since the first decision.

An operation is one msgpack array, [kind, name, …]; an answer is [life, index, life, index, count], [reason, why] or
[messages, next].
"""

import enum
import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import attrs
import msgpack

from topic.delivery.outcomes import MOST_ANNOTATIONS
from topic.directory.addresses import is_misplaced, is_pattern
from topic.identity import INSIDE, KEY_LENGTH, NAME_LENGTH
from topic.queues.positions import Run, read_runs
from topic.raft.life import SetLife, read_life
from topic.settings import MOST_FACTOR, BackOff, is_dynamic

MOST_NAME: Final = 255
"""The highest number of bytes of the name of a queue."""
MOST_WHY: Final = 2048
"""The highest number of bytes of the text of a refusal."""
MOST: Final = 2**63 - 1
"""The greatest number that a log index or a limit may have."""
MOST_BOUND: Final = 16
"""The highest number of addresses to which one queue is bound."""
DAY_MS: Final = 86_400_000
_TIMES: Final[Mapping[str, int]] = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_SIZES: Final[Mapping[str, int]] = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
REDELIVERIES: Final = 20
"""How often a message may fail before it becomes a dead letter, if its queue does not set `redeliveries`."""


@attrs.frozen(order=True, slots=True, cache_hash=True)
class QueueId:
    """The permanent name of a queue: the log entry that declared it. If a queue is deleted and declared again, it gets
    another id. A version of a queue's settings is named in the same way, by the entry that set them."""

    life: SetLife
    """The life of the set in which the entry was decided."""
    index: int
    """The log index of the entry that declared the queue."""

    @property
    def parts(self) -> tuple[tuple[int, str], int]:
        """The parts of the id, for msgpack (`read_id`)."""
        return self.life.parts, self.index

    def __str__(self) -> str:
        return f"{self.life}-{self.index}"

    @classmethod
    def parse(cls, text: str) -> "QueueId":
        """Read an id that `str` has written as text. Raises ValueError."""
        life, _, index = text.rpartition("-")
        try:
            found = cls(SetLife.parse(life), int(index))
        except ValueError:
            found = None
        if found is None or str(found) != text or not _is_count(found.index):
            raise ValueError(f"{reprlib.repr(text)} is no id of a queue, expected one like 66a2f3c1b0001-a-57")
        return found


class Temporary(enum.StrEnum):
    """The lifetime policies of a temporary queue (AMQP 1.0 3.5.10 to 3.5.13): when it is deleted."""

    CLOSE = "close"
    """The queue is deleted with the link that has created it."""
    NO_LINKS = "no-links"
    """The queue is deleted when it has no links."""
    NO_MESSAGES = "no-messages"
    """The queue is deleted when the link that has created it is gone, and it has no messages."""
    NO_LINKS_OR_MESSAGES = "no-links-or-messages"
    """The queue is deleted when it has neither links nor messages."""


TEMPORARY: Final = "_temporary/"
"""Part of the name of each temporary queue. No message and no consumer declares a queue with such a name."""


def is_temporary(name: str) -> bool:
    return TEMPORARY in name


@attrs.frozen(slots=True)
class QueueSettings:
    """The settings of a queue. None stands for a setting that is not set."""

    limit_messages: int | None = None
    """The highest number of messages in the queue. The queue refuses all further messages."""
    limit_bytes: int | None = None
    """The highest number of bytes of messages that the queue may have."""
    ttl_ms: int | None = None
    """The longest time, in milliseconds, for which a message stays in the queue."""
    bind: tuple[str, ...] | None = None
    """The topics and patterns to which the queue is bound, in order. It also gets the messages that are published
    there."""
    dead_letter: str | None = None
    """The address for dead letters: messages that consumers reject, that have failed too often, or whose time is
    over."""
    redeliveries: int | None = None
    """How often a message may fail before it becomes a dead letter. Without `dead_letter` this has no effect."""
    single_active: bool | None = None
    """Whether only one consumer gets messages, until that consumer has ended."""
    exclusive: bool | None = None
    """Whether the queue has only one consumer at a time. The link of any further consumer ends."""
    lock_ms: int | None = None
    """The time, in milliseconds, for which a consumer may have a message without an answer. Then the message comes
    back."""
    retry_after_ms: int | None = None
    """The pause, in milliseconds, before a message that has failed is given to a consumer again."""
    retry_factor: int | None = None
    """The factor by which the pause grows with each further failure. If not set, the pause stays the same."""
    retry_most_ms: int | None = None
    """The longest pause, in milliseconds. If not set, it is a day."""

    temporary: str | None = None
    """The lifetime policy of a temporary queue, one of `Temporary`."""
    held_by: str | None = None
    """The router whose link has created the temporary queue, and its incarnation, as long as this link exists."""

    def pause_s(self, failed: int) -> float:
        """The pause, in seconds, before a message that has failed this many times is given to a consumer again."""
        if self.retry_after_ms is None:
            return 0.0
        most_ms = self.retry_most_ms or DAY_MS
        return BackOff(self.retry_after_ms / 1000, self.retry_factor or 1, most_ms / 1000).pause(failed)

    @property
    def serves_one(self) -> bool:
        """Whether one consumer gets all messages."""
        return bool(self.single_active or self.exclusive)

    @property
    def most_failed(self) -> int:
        """How often a message may fail before it becomes a dead letter, if the queue has an address for dead
        letters."""
        return self.redeliveries if self.redeliveries is not None else REDELIVERIES

    def has_room(self, messages: int, size: int) -> bool:
        """Whether the limits allow the queue this number of messages with this many bytes in total."""
        few = self.limit_messages is None or messages <= self.limit_messages
        return few and (self.limit_bytes is None or size <= self.limit_bytes)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "QueueSettings":
        """Make settings from values by name. Raises ValueError if a name is unknown, or a value is wrong."""
        for name in values:
            if name not in _SETTINGS:
                known = ", ".join(_SETTINGS)
                raise ValueError(f"a queue has no setting {reprlib.repr(name)}, expected one of {known}")
        return cls(**{name: _SETTINGS[name](name, value) for name, value in values.items()})

    def values(self) -> dict[str, Any]:
        """The values that are set, keyed by name, in a fixed order."""
        values = {name: value for name in _SETTINGS if (value := getattr(self, name)) is not None}
        return {name: [*value] if isinstance(value, tuple) else value for name, value in values.items()}

    @property
    def conflict(self) -> str:
        """The reason for which these settings do not go together, in an operator's words; empty if they do. Only the
        router that an operator asks refuses settings for this reason; a set accepts them."""
        for name in ("retry_factor", "retry_most_ms"):
            if (value := getattr(self, name)) is not None and self.retry_after_ms is None:
                return f"{_shown(name, value)} has no effect without retry-after, expected both"
        if (self.retry_after_ms or 0) > (self.retry_most_ms or math.inf):
            least, most = (_shown(name, getattr(self, name)) for name in ("retry_after_ms", "retry_most_ms"))
            return f"{most} is below {least}, expected at least as much"
        return ""

    def __str__(self) -> str:
        return ", ".join(_shown(name, value) for name, value in self.values().items()) or "no settings"


@attrs.frozen(slots=True)
class Declare:
    """The request to create a queue."""

    name: str
    settings: QueueSettings = QueueSettings()


@attrs.frozen(slots=True)
class Configure:
    """The request to replace all settings of a queue."""

    name: str
    id: QueueId
    former: QueueId
    """The version of the settings that is replaced. If the queue has another version, the operation changes nothing."""
    settings: QueueSettings


@attrs.frozen(slots=True)
class Delete:
    """The request to delete a queue."""

    name: str
    id: QueueId


@attrs.frozen(slots=True)
class Purge:
    """Remove all messages up to a position from a queue. A message that a consumer has leaves the queue only when the
    consumer gives it back."""

    name: str
    id: QueueId
    position: int


@attrs.frozen(slots=True)
class Retry:
    """Move dead letters in this queue back to the addresses that they came from, except messages that a consumer has
    (protocol 14.12)."""

    name: str
    id: QueueId
    address: str
    runs: tuple[Run, ...]


@attrs.frozen(slots=True)
class Browse:
    """Show the messages of a queue. The leader of the set answers alone; the request does not go into the log (protocol
    14.16)."""

    name: str
    first: int
    """The position of the first message on the page."""


class Post(NamedTuple):
    """Messages that a transaction puts into one queue, in order."""

    queue: str
    messages: tuple[bytes, ...]


class Retirement(NamedTuple):
    """Messages that a consumer takes out of one queue in a transaction."""

    queue: str
    consumer: bytes
    """The name of the consumer's link."""
    keys: tuple[bytes, ...]
    """The keys of the deliveries that have brought the messages."""
    rejected: bool
    """Whether the consumer rejects the messages. Otherwise it accepts them."""
    annotations: tuple[bytes, ...] = ()
    """The annotations that dead letters get from errors of the consumer, in the order of `keys`. Empty if the consumer
    has stated no error."""


@attrs.frozen(slots=True)
class Commit:
    """Carry out a transaction on queues of one set: all of it, or nothing. Only the leader of the set takes this, and
    proposes a `Transact` for it (protocol 14.20)."""

    name: str
    """The name of one of the queues that the transaction concerns. It shows the set."""
    router: str
    """The router to which the client of the transaction is connected."""
    incarnation: int
    number: int
    """The number of the transaction. No other transaction of this incarnation on this set has the same number."""
    floor: int
    """The router has the answers to all its transactions with lower numbers."""
    posts: tuple[Post, ...]
    """The messages that the transaction puts into queues: a `Post` for each queue."""
    retirements: tuple[Retirement, ...]


Operation = Declare | Configure | Delete | Purge | Retry | Browse | Commit


@attrs.frozen(slots=True)
class Done:
    """The answer to an operation that was carried out. `id` names the queue."""

    id: QueueId
    version: QueueId
    """The version of the queue's settings."""
    count: int = 0
    """The number of messages that a `Purge` has removed, or a `Retry` has moved."""


class RefusedFor(enum.Enum):
    """The reasons for which a set or router refuses an operation."""

    DIFFERS = "differs"
    """The queue already exists, with other settings."""
    CHANGED = "changed"
    """The settings have changed since the version that the operation names."""
    NOT_FOUND = "not found"
    """No queue has this name and id."""
    TOO_MANY = "too many"
    """The set already has as many queues, or bindings, as it may have."""
    NO_SET = "no set"
    """No set may have a queue of this name, or the queue belongs to another set."""
    MALFORMED = "malformed"
    """The bytes are not a valid operation."""
    ROLLED_BACK = "rolled back"
    """A transaction has no effect, and never will have one."""
    BUSY = "busy"
    """This router already waits for too many answers, or the leader is busy."""
    NO_ANSWER = "no answer"
    """No leader answered in time. The set may nevertheless carry the operation out."""


@attrs.frozen(slots=True)
class Refused:
    """The answer to an operation that was refused. Nothing has changed, except perhaps for `NO_ANSWER`."""

    reason: RefusedFor
    why: str


@attrs.frozen(slots=True)
class MessagePage:
    """Some messages of a queue, each in the form in which the next consumer would get it."""

    messages: tuple[tuple[int, bytes], ...]
    """The messages with their positions, in order. Empty if the queue has no more messages."""
    next: int
    """The position from which the next page of the queue's messages begins."""


Answer = Done | Refused
Reply = Answer | MessagePage
"""The answer to a request, by the set's log or by the leader alone."""

_KINDS: Final[tuple[type[Any], ...]] = (Declare, Configure, Delete, Purge, Retry, Browse, Commit)
"""The kinds of operations. The index of a kind stands for it in the encoded bytes."""
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}


def encode(operation: Operation) -> bytes:
    """Encode an operation. Raises ValueError if the queue's name is too long, or no text."""
    _name(operation.name)
    return bytes(msgpack.packb([_NUMBERS[type(operation)], *pack(operation)]))


def decode(data: bytes) -> Operation:
    """Decode an operation. Raises ValueError for bytes that `encode` does not write."""
    return read_operation(unpack(data, "an operation on queues"))


def read_operation(parts: list[Any]) -> Operation:
    """Read the operation in a decoded array. Raises ValueError if the array is malformed."""
    kind: Any = parts[0] if parts else None
    if not _is_count(kind) or kind >= len(_KINDS):
        raise ValueError(f"an operation on queues has the unknown kind {reprlib.repr(kind)}")
    operation: Operation = read(_KINDS[kind], parts[1:])
    return operation


def pack(fields: Any) -> list[Any]:
    """The fields of an object as a list, for msgpack."""
    return [_packed(value) for value in attrs.astuple(fields, recurse=False)]


def _packed(value: Any) -> Any:
    if isinstance(value, QueueId):
        return value.parts
    return value.values() if isinstance(value, QueueSettings) else value


def read(kind: type[Any], values: Any) -> Any:
    """Make an object of class `kind` from the fields that `pack` has listed. Raises ValueError if they are
    malformed."""
    fields = attrs.fields(kind)
    if not isinstance(values, list) or len(values) != len(fields):
        raise ValueError(f"{kind.__name__} is {reprlib.repr(values)}, expected {len(fields)} fields")
    return kind(*(_READ[field.type](value) for field, value in zip(fields, values, strict=True)))


def unpack(data: bytes, what: str) -> list[Any]:
    """Decode an array. Raises ValueError if the bytes are no array; the error text says `what` they should be."""
    try:
        parts = msgpack.unpackb(data, strict_map_key=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"{what} is no msgpack: {error}") from None
    if not isinstance(parts, list):
        raise ValueError(f"{what} is no array")
    return parts


def encode_answer(answer: Reply) -> bytes:
    if isinstance(answer, Done):
        return bytes(msgpack.packb((*answer.id.parts, *answer.version.parts, answer.count)))
    if isinstance(answer, MessagePage):
        return bytes(msgpack.packb((answer.messages, answer.next)))
    return bytes(msgpack.packb((answer.reason.value, _cut(answer.why))))


def _cut(why: str) -> str:
    return why.encode(errors="replace")[:MOST_WHY].decode(errors="ignore")


def decode_answer(data: bytes) -> Reply:
    """Decode an answer. Raises ValueError for bytes that `encode_answer` does not write."""
    parts = unpack(data, "an answer about queues")
    if len(parts) > 2:
        if len(parts) != 5:
            raise ValueError(f"an answer about queues is {reprlib.repr(parts)}, expected two ids and a number")
        return Done(read_id(parts[:2]), read_id(parts[2:4]), _number(parts[4]))
    if len(parts) == 2 and isinstance(parts[0], list):
        return MessagePage(tuple(map(_shown_message, parts[0])), _number(parts[1]))
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts) or len(parts[1].encode()) > MOST_WHY:
        raise ValueError(f"an answer about queues is {reprlib.repr(parts)}, expected an id, or a reason and its text")
    return Refused(RefusedFor(parts[0]), parts[1])


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value.encode()) <= MOST_NAME:
        raise ValueError(f"the name of a queue is {reprlib.repr(value)}, expected a text of 1 to {MOST_NAME} bytes")
    return value


def read_id(value: Any) -> QueueId:
    """Read an id from its parts, as msgpack has unpacked them. Raises ValueError."""
    if not isinstance(value, list) or len(value) != 2 or not _is_count(value[1]):
        raise ValueError(f"the id of a queue is {reprlib.repr(value)}, expected a life and an index")
    return QueueId(read_life(value[0]), value[1])


def _number(value: Any) -> int:
    if not _is_count(value):
        raise ValueError(f"about a queue there is {reprlib.repr(value)}, expected a number from 0 to 2^63 - 1")
    assert isinstance(value, int)
    return value


def _shown_message(value: Any) -> tuple[int, bytes]:
    if not isinstance(value, list) or len(value) != 2 or not _is_count(value[0]) or not isinstance(value[1], bytes):
        raise ValueError(f"a page of a queue has {reprlib.repr(value)}, expected a position and a message")
    return value[0], value[1]


def _settings(value: Any) -> QueueSettings:
    if not isinstance(value, dict):
        raise ValueError(f"the settings of a queue are {reprlib.repr(value)}, expected names and values")
    return QueueSettings.of(value)


def _limit(name: str, value: Any) -> int:
    if not _is_count(value) or not value:
        raise ValueError(f"{name} of a queue is {reprlib.repr(value)}, expected a number from 1 to 2^63 - 1")
    assert isinstance(value, int)
    return value


def _factor(name: str, value: Any) -> int:
    if not _is_count(value) or not 1 <= value <= MOST_FACTOR:
        raise ValueError(f"{name} of a queue is {reprlib.repr(value)}, expected a number from 1 to {MOST_FACTOR}")
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
    """The setting as an operator writes it in the options of `oncemesh queue`."""
    word = name.removesuffix("_ms").replace("_", "-")
    if value is True:
        return word
    if name.endswith("_ms") or name == "limit_bytes":
        units = _TIMES if name.endswith("_ms") else _SIZES
        unit = max((unit for unit in units if not value % units[unit]), key=units.__getitem__)
        value = f"{value // units[unit]}{unit}"
    return f"{word} {' '.join(value) if isinstance(value, list) else value}"


def _flag(name: str, value: Any) -> bool | None:
    """Read the value of a setting that is either true or not set."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} of a queue is {reprlib.repr(value)}, expected true or false")
    return value or None


def _holder(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value.encode()) <= MOST_NAME:
        raise ValueError(f"{name} of a queue is {reprlib.repr(value)}, expected a router and its incarnation")
    return value


def _runs(value: Any) -> tuple[Run, ...]:
    return tuple(read_runs(value, "an operation on queues"))


def _posts(value: Any) -> tuple[Post, ...]:
    """Read the posts of a `Commit`. A queue has at most one post, and each post has at least one message."""
    if not isinstance(value, list) or not all(isinstance(one, list) and len(one) == 2 for one in value):
        raise ValueError(f"a transaction has the posts {reprlib.repr(value)}, expected queues with their messages")
    for _, messages in value:
        if not isinstance(messages, list) or not messages or not all(type(one) is bytes for one in messages):
            raise ValueError("a transaction posts messages that are none")
    posts = tuple(Post(_name(queue), tuple(messages)) for queue, messages in value)
    if len({post.queue for post in posts}) < len(posts):
        raise ValueError("a transaction names a queue twice")
    return posts


def _retirements(value: Any) -> tuple[Retirement, ...]:
    if not isinstance(value, list) or not all(isinstance(one, list) and len(one) == 5 for one in value):
        raise ValueError(f"a transaction has the retirements {reprlib.repr(value)}, expected five fields for each")
    for _, consumer, keys, rejected, annotations in value:
        if not isinstance(keys, list) or not keys or not all(_is_bytes(key, KEY_LENGTH) for key in keys):
            raise ValueError("a transaction retires deliveries that are none")
        if not _is_bytes(consumer, NAME_LENGTH) or not isinstance(rejected, bool):
            raise ValueError(f"a transaction has the consumer {reprlib.repr(consumer)}, expected {NAME_LENGTH} bytes")
        if not isinstance(annotations, list) or not all(map(_is_annotation, annotations)):
            raise ValueError(f"a transaction has annotations, expected {MOST_ANNOTATIONS} bytes for each at most")
        if annotations and len(annotations) != len(keys):
            raise ValueError(f"a transaction has {len(annotations)} annotations for {len(keys)} deliveries")
    return tuple(Retirement(_name(one[0]), one[1], tuple(one[2]), one[3], tuple(one[4])) for one in value)


def _is_annotation(value: Any) -> bool:
    return type(value) is bytes and len(value) <= MOST_ANNOTATIONS


def _is_bytes(value: Any, length: int) -> bool:
    return type(value) is bytes and len(value) == length


_SETTINGS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "limit_messages": _limit,
    "limit_bytes": _limit,
    "ttl_ms": _limit,
    "bind": _addresses,
    "dead_letter": _dead_letter,
    "redeliveries": _redeliveries,
    "single_active": _flag,
    "exclusive": _flag,
    "lock_ms": _limit,
    "retry_after_ms": _limit,
    "retry_factor": _factor,
    "retry_most_ms": _limit,
    "temporary": lambda name, value: str(Temporary(value)),
    "held_by": _holder,
}
"""Maps each setting to the function that reads its value. The function raises ValueError if the value is wrong."""
_READ: Final[dict[Any, Callable[[Any], Any]]] = {
    str: _name,
    QueueId: read_id,
    QueueSettings: _settings,
    int: _number,
    tuple[Run, ...]: _runs,
    tuple[Post, ...]: _posts,
    tuple[Retirement, ...]: _retirements,
}
"""Maps each type of field to the function that reads a field of this type."""
