"""The form of messages between replicas as bytes (protocol 13): one msgpack array, [set, life, sender, receiver, kind,
fields…].

A life is [clock, router]; [0, ""] is none. A member is [router, store]. An entry is [term, data] or [term, data,
voters, learners, ring, copies]. `decode` raises BreachError for bytes that no replica writes; the error names the wrong
field.
"""

import reprlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import attrs
import msgpack

from topic.errors import BreachError
from topic.raft import messages as say
from topic.raft.configuration import Configuration, Replica
from topic.raft.life import MOST, MOST_NAME, SetLife, read_life
from topic.raft.log import Entry, Snapshot
from topic.raft.messages import Body, Envelope

KINDS: Final[tuple[type[Any], ...]] = (
    say.Greeting,
    say.Propose,
    say.PreVote,
    say.PreVoted,
    say.Vote,
    say.Voted,
    say.Lead,
    say.Append,
    say.Stored,
    say.Lacking,
    say.Piece,
    say.Staged,
    say.Digest,
    say.Outdated,
    say.Resigned,
    say.StandNow,
    say.Distrust,
)
"""The kinds of messages. The index of a kind stands for it in the encoded bytes."""
_PACKER: Final = msgpack.Packer()
_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}


def encode(name: str, envelope: Envelope) -> bytes:
    """Encode a message of the set `name`."""
    body = envelope.body
    head = [name, envelope.life.parts, _packed(envelope.sender), _packed(envelope.receiver), _NUMBERS[type(body)]]
    count = len(head) + len(attrs.fields(type(body)))
    return b"".join((_PACKER.pack_array_header(count), *map(_PACKER.pack, head), _fields(body)))


@lru_cache(maxsize=1)
def _fields(body: Body) -> bytes:
    """The fields of a message for msgpack. A leader sends the same entries to each follower in turn, so they are packed
    only once."""
    fields = (getattr(body, field.name) for field in attrs.fields(type(body)))
    return b"".join(_PACKER.pack(_packed(field)) for field in fields)


def _packed(value: Any) -> Any:
    if isinstance(value, Replica):
        return [value.router, value.store]
    if isinstance(value, Configuration):
        return [_packed(part) for part in (value.voters, value.learners, value.ring, value.copies)]
    if isinstance(value, Entry):
        configuration = _packed(value.configuration) if value.configuration is not None else []
        return [value.term, value.data, *configuration]
    if isinstance(value, Snapshot):
        return [value.index, value.term, _packed(value.configuration)]
    if isinstance(value, tuple):
        return [_packed(one) for one in value]
    return value


def decode(data: bytes | memoryview) -> tuple[str, Envelope]:
    """Decode a message: the name of the set, and the content. Raises BreachError if the bytes are malformed."""
    try:
        parts = msgpack.unpackb(data, strict_map_key=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise BreachError(f"a message between replicas is no msgpack: {error}") from None
    if not isinstance(parts, list) or len(parts) < 5:
        raise BreachError("a message between replicas is no array of five parts or more")
    name, life, sender, receiver, number = parts[:5]
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(KINDS):
        raise BreachError(f"a message between replicas has the unknown kind {reprlib.repr(number)}")
    kind = KINDS[number]
    fields, values = attrs.fields(kind), parts[5:]
    if len(fields) != len(values):
        raise BreachError(f"message {kind.__name__} has {len(values)} fields, expected {len(fields)}")
    body: Body = kind(*(_READ[field.type](value, field.name) for field, value in zip(fields, values, strict=True)))
    return _text(name, "set"), Envelope(
        _life(life, "life"), _member(sender, "sender"), _member(receiver, "receiver"), body
    )


def _refuse(value: Any, name: str, expected: str) -> BreachError:
    return _wrong(name, f"expected {expected}, got {reprlib.repr(value)}")


def _wrong(name: str, why: str) -> BreachError:
    return BreachError(f'a message between replicas has a wrong field "{name}": {why}')


def _count(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
        raise _refuse(value, name, "a number from 0 to 2^63 - 1")
    return value


def _life(value: Any, name: str) -> SetLife:
    try:
        return read_life(value)
    except ValueError as error:
        raise _wrong(name, str(error)) from None


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise _refuse(value, name, "true or false")
    return value


def _bytes(value: Any, name: str) -> bytes:
    if not isinstance(value, bytes):
        raise _refuse(value, name, "bytes")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not 0 < len(value.encode()) <= MOST_NAME:
        raise _refuse(value, name, f"a text of 1 to {MOST_NAME} bytes")
    return value


def _list(value: Any, name: str, *counts: int) -> list[Any]:
    if not isinstance(value, list) or (counts and len(value) not in counts):
        raise _refuse(value, name, f"an array of {' or '.join(map(str, counts))} elements" if counts else "an array")
    return value


def _member(value: Any, name: str) -> Replica:
    router, store = _list(value, name, 2)
    if len(_bytes(store, name)) > MOST_NAME:
        raise _refuse(store, name, f"the id of a store, at most {MOST_NAME} bytes")
    return Replica(_text(router, name), store)


def _members(value: Any, name: str) -> tuple[Replica, ...]:
    members = tuple(_member(one, name) for one in _list(value, name))
    if len({member.router for member in members}) < len(members):
        raise _wrong(name, "it names a router twice")
    return members


def _routers(value: Any, name: str) -> tuple[str, ...]:
    routers = _texts(value, name)
    if len(set(routers)) < len(routers):
        raise _wrong(name, "it names a router twice")
    return routers


def _configuration(value: Any, name: str) -> Configuration:
    voters, learners, ring, copies = _list(value, name, 4)
    members = _members(voters, name), _members(learners, name)
    return Configuration(*members, _routers(ring, name), _routers(copies, name))


def _entry(value: Any, name: str) -> Entry:
    term, data, *members = _list(value, name, 2, 6)
    return Entry(_count(term, name), _bytes(data, name), _configuration(members, name) if members else None)


def _entries(value: Any, name: str) -> tuple[Entry, ...]:
    return tuple(_entry(one, name) for one in _list(value, name))


def _snapshot(value: Any, name: str) -> Snapshot:
    index, term, members = _list(value, name, 3)
    return Snapshot(_count(index, name), _count(term, name), _configuration(members, name))


def _texts(value: Any, name: str) -> tuple[str, ...]:
    return tuple(_text(one, name) for one in _list(value, name))


_READ: Final[dict[Any, Callable[[Any, str], Any]]] = {
    int: _count,
    bool: _flag,
    bytes: _bytes,
    Configuration: _configuration,
    Snapshot: _snapshot,
    tuple[Entry, ...]: _entries,
    tuple[str, ...]: _texts,
}
"""For each type of field, the function that reads such a field."""
