"""The messages of one set as rows of its state (protocol 13.6, 14.13).

| row | key | value |
| --- | --- | --- |
| *about* | `m`, position | the id of its queue, its size, the digest of its body, and the end of its time if any |
| *body* | `m`, position, `b` | the message |

Each body follows the row about it. The digest of the state covers the rows about messages. These have the digests of
the bodies, so it covers the bodies, too.

These rows are made only when they are needed. In memory, a message has one of two forms:

*kept*
    memory has its position and its body;
*dropped*
    memory has its position, its size and the digest of its body, in columns. The disk of this router has the body.

In a queue, all dropped messages come before all kept ones.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from heapq import merge
from itertools import chain, compress, islice, repeat
from typing import Any, Final

import attrs
import msgpack

from topic.queues.operations import MOST, QueueId, read_id, unpack
from topic.queues.positions import POSITION_LENGTH, Run, position_key
from topic.raft.life import NO_LIFE

MESSAGE: Final = b"m"
"""The first byte of the keys of both rows of a message. The position follows."""
AFTER_MESSAGES: Final = MESSAGE + b"\xff"
"""A key that is greater than all keys of messages."""
BODY: Final = b"b"
"""The last byte of the key of a row with a body."""
DIGEST: Final = 16
"""The number of bytes of the digest of a body."""
SPARE: Final = 1024
"""The columns shrink when they have more removed messages than present ones, by more than this number."""
_ABOUT_LENGTH: Final = len(MESSAGE) + POSITION_LENGTH
_ROW_BYTES: Final = 100
"""An estimate of the bytes of the keys of both rows, and of the row about a message."""
_TYPES: Final = ((list, int, int, bytes), (list, int, int, bytes, int))
"""The types of the parts of a row about a message."""
_POSITIONS: Final = 1 << 64
_SIZES: Final = 1 << 32

Row = tuple[bytes, bytes]


def about_key(position: int) -> bytes:
    return MESSAGE + position_key(position)


def body_key(position: int) -> bytes:
    return MESSAGE + position_key(position) + BODY


def is_body(key: bytes) -> bool:
    """Whether a row with this key is the body of a message."""
    return len(key) == _ABOUT_LENGTH + len(BODY) and key.startswith(MESSAGE) and key.endswith(BODY)


def position_in(key: bytes) -> int | None:
    """The position in the key of a row about a message, or of a body; None for the key of another row."""
    is_of_message = key[:1] == MESSAGE and (len(key) == _ABOUT_LENGTH or is_body(key))
    return int.from_bytes(key[1:_ABOUT_LENGTH]) if is_of_message else None


def body_of(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """The key of the body that belongs to a row about a message, and the digest of the body. Raises ValueError if the
    row is malformed."""
    return key + BODY, _read(key, value)[3]


def message_about(key: bytes, value: bytes) -> tuple[int, int]:
    """The position and the size, in bytes, of the message that a row is about. Raises ValueError if the row is
    malformed."""
    position, _, size, _, _ = _read(key, value)
    return position, size


def body_digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=DIGEST).digest()


class DroppedMessages:
    """The dropped messages of one queue as columns, in the order of their positions."""

    __slots__ = ("_digests", "_left", "_positions", "_sizes", "_there")

    def __init__(self) -> None:
        self._positions = array("Q")
        self._sizes = array("I")
        self._digests = bytearray()
        """The digests of the bodies, one after the other, `DIGEST` bytes each."""
        self._there = bytearray()
        """One byte for each message: 1 if it is present, 0 if it is removed."""
        self._left = 0
        """The number of messages that are present in the columns."""

    def __len__(self) -> int:
        return self._left

    def __iter__(self) -> Iterator[int]:
        return compress(self._positions, self._there)

    def __reversed__(self) -> Iterator[int]:
        return compress(reversed(self._positions), reversed(self._there))

    def __contains__(self, position: int) -> bool:
        return bool(self._left) and self._place(position) is not None

    @property
    def first(self) -> int | None:
        return self._positions[self._there.find(1)] if self._left else None

    def within(self, first: int, last: int) -> Iterator[int]:
        """The positions of the messages from `first` to `last`, both included."""
        low, high = bisect_left(self._positions, first), bisect_left(self._positions, last + 1)
        return compress(self._positions[low:high], self._there[low:high])

    def append(self, position: int, size: int, digest: bytes) -> None:
        self._positions.append(position)
        self._sizes.append(size)
        self._digests += digest
        self._there.append(1)
        self._left += 1

    def get(self, position: int) -> tuple[int, bytes]:
        """The size and the digest of the message at this position, which must be present."""
        place = self._place(position)
        assert place is not None
        return self._sizes[place], bytes(self._digests[DIGEST * place : DIGEST * (place + 1)])

    def remove(self, position: int) -> tuple[int, bytes]:
        """Remove the message at this position, which must be present. Returns its size and digest."""
        found, place = self.get(position), self._place(position)
        assert place is not None
        self._there[place] = 0
        self._left -= 1
        if len(self._there) > 2 * self._left + SPARE:
            self._shrink()
        return found

    def _place(self, position: int) -> int | None:
        place = bisect_left(self._positions, position)
        is_there = place < len(self._positions) and self._positions[place] == position and self._there[place]
        return place if is_there else None

    def _shrink(self) -> None:
        there = self._there
        digests = (self._digests[DIGEST * place : DIGEST * (place + 1)] for place in compress(range(len(there)), there))
        self._digests = bytearray().join(digests)
        self._sizes = array("I", compress(self._sizes, there))
        self._positions = array("Q", compress(self._positions, there))
        self._there = bytearray(b"\1" * self._left)


class QueueRows(Mapping[int, bytes | None]):
    """The messages of one queue: maps each position to the body, in order. The value is None if the body is dropped."""

    __slots__ = ("dropped", "kept", "size")

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}
        self.dropped = DroppedMessages()
        self.size = 0
        """The sum of the sizes of all messages, in bytes."""

    def __len__(self) -> int:
        return len(self.kept) + len(self.dropped)

    def __iter__(self) -> Iterator[int]:
        return chain(self.dropped, self.kept)

    def __reversed__(self) -> Iterator[int]:
        return chain(reversed(self.kept), reversed(self.dropped))

    def __contains__(self, position: object) -> bool:
        return position in self.kept or (isinstance(position, int) and position in self.dropped)

    def __getitem__(self, position: int) -> bytes | None:
        body = self.kept.get(position)
        if body is None and position not in self.dropped:
            raise KeyError(position)
        return body

    @property
    def first(self) -> int | None:
        """The position of the oldest message; None if there is none."""
        found = self.dropped.first
        return found if found is not None else next(iter(self.kept), None)

    def after(self, first: int) -> Iterator[int]:
        """The positions of the queue's messages from position `first` on."""
        return chain(self.dropped.within(first, _POSITIONS), (position for position in self.kept if position >= first))

    def within(self, runs: Iterable[Run]) -> list[int]:
        """The positions in these runs at which the queue has a message."""
        kept, dropped = self.kept, self.dropped
        if not dropped:
            return [position for first, last in runs for position in range(first, last + 1) if position in kept]
        found: list[int] = []
        for first, last in runs:
            found += dropped.within(first, last)
            found += (position for position in range(first, last + 1) if position in kept)
        return found

    def about(self, position: int) -> tuple[int, bytes]:
        """The size and the digest of the message at this position, which must be present."""
        body = self.kept.get(position)
        return self.dropped.get(position) if body is None else (len(body), body_digest(body))

    def is_body(self, position: int, body: bytes) -> bool:
        """Whether `body` is the body of the message at this position, which must be present."""
        return self.about(position) == (len(body), body_digest(body))

    def drop(self, last: int, most: int) -> int:
        """Drop bodies from memory, from the first message up to position `last`, until `most` bytes are dropped.
        Returns the number of dropped bytes, which exceeds `most` by at most one body."""
        count = size = 0
        for position, body in self.kept.items():
            if position > last or size >= most:
                break
            self.dropped.append(position, len(body), body_digest(body))
            count += 1
            size += len(body)
        self.kept = dict(islice(self.kept.items(), count, None))
        return size


NOWHERE: Final = QueueId(NO_LIFE, 0)
NONE: Final = QueueRows()
"""The rows of a queue without messages. Many callers share this object, so it must stay empty."""


@attrs.define(slots=True)
class _Sent:
    """A message in the outbox of a set."""

    queue: QueueId
    body: bytes | None
    size: int
    digest: bytes
    """The digest of the body; set only if the body is dropped."""
    ends: int


class SentRows(Mapping[int, bytes | None]):
    """The messages in the outbox of a set: maps each position to the body, in the order in which the messages came
    there. The value is None if the body is dropped."""

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        self._sent: dict[int, _Sent] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def __iter__(self) -> Iterator[int]:
        return iter(self._sent)

    def __getitem__(self, position: int) -> bytes | None:
        return self._sent[position].body

    def about(self, position: int) -> tuple[int, bytes]:
        """The size and the digest of the message at this position, which must be present."""
        one = self._sent[position]
        return one.size, one.digest if one.body is None else body_digest(one.body)

    def is_body(self, position: int, body: bytes) -> bool:
        """Whether `body` is the body of the message at this position, which must be present."""
        return self.about(position) == (len(body), body_digest(body))

    def put(self, position: int, sent: _Sent) -> None:
        self._sent[position] = sent

    def pop(self, position: int) -> _Sent:
        return self._sent.pop(position)

    def get_sent(self, position: int) -> _Sent | None:
        return self._sent.get(position)

    def drop(self, last: int, most: int) -> int:
        """Drop bodies from memory as `QueueRows.drop` does, but in any order."""
        size = 0
        for position, one in self._sent.items():
            if size >= most:
                break
            if position <= last and one.body is not None:
                one.digest, one.body = body_digest(one.body), None
                size += one.size
        return size


class MessageRows:
    """The messages in all queues of one set, and in its outbox."""

    def __init__(self) -> None:
        self.queues: dict[QueueId, QueueRows] = {}
        """The messages of each queue that has any."""
        self.sent = SentRows()
        """The messages in the outbox of the set."""
        self.expiring: dict[int, tuple[QueueId, int]] = {}
        """Maps the position of each message that expires to the message's queue, and to the end of its time to live
        (`Enqueue.expires`)."""
        self.size = 0
        """The sum of the sizes of all messages, in bytes."""
        self._count = 0
        """The number of all messages, in queues and outbox."""
        self.kept_size = 0
        """The bytes of the bodies that are in memory."""
        self.changed = 0
        """An estimate of the bytes that were put or deleted since the changes were last taken."""
        self._fresh: dict[int, QueueId] = {}
        """The messages that have come since the changes were last taken, and still exist: position -> queue."""
        self._gone: dict[int, bytes] = {}
        """The messages that existed when the changes were last taken, and are gone: position -> the value of the row
        about the message."""
        self._last_read = -1
        """The position of the message that was read last."""
        self._id_read: list[Any] = []
        """The parts of `_queue_read`, as the row has them."""
        self._queue_read = NOWHERE
        """The queue of the message that was read last."""
        self._rows_read = NONE
        """The rows of `_queue_read`."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        """The rows about all messages, in the order of their keys."""
        of_queues = (zip(rows, repeat(queue)) for queue, rows in self.queues.items())
        of_outbox = ((position, one.queue) for position, one in sorted(self.sent._sent.items(), key=lambda one: one[0]))
        of_all = merge(*of_queues, of_outbox, key=lambda one: one[0])
        return ((about_key(position), self._about(queue, position)) for position, queue in of_all)

    def read(self, key: bytes, value: bytes) -> None:
        """Read a row about a message whose body is on the disk. The rows must be read in the order of their positions.
        Raises ValueError if the row is malformed or out of order."""
        position, id_, size, digest, ends = _read(key, value)
        if position <= self._last_read:
            raise ValueError("a row of the state of a set has a message out of order")
        self._last_read = position
        if id_ != self._id_read:
            self._id_read, self._queue_read = id_, read_id(id_)
            self._rows_read = self.queues.setdefault(self._queue_read, QueueRows())
        queue, rows = self._queue_read, self._rows_read
        rows.dropped.append(position, size, digest)
        rows.size += size
        self.size += size
        self._count += 1
        if ends:
            self.expiring[position] = queue, ends

    def put(self, queue: QueueId, position: int, body: bytes, ends: int) -> None:
        """Add a message, whose position is higher than all others. `ends`: when its time ends, as in
        `Enqueue.expires`."""
        rows = self.queues.get(queue) or self.queues.setdefault(queue, QueueRows())
        rows.kept[position] = body
        size = len(body)
        rows.size += size
        self.size += size
        self._count += 1
        self.kept_size += size
        self.changed += size + _ROW_BYTES
        self._fresh[position] = queue
        if ends:
            self.expiring[position] = queue, ends

    def delete(self, queue: QueueId, position: int) -> None:
        """Delete a message that is in a queue."""
        rows = self.queues[queue]
        body = rows.kept.get(position)
        if position in self._fresh:
            del self._fresh[position]
        else:
            self._gone[position] = self._about(queue, position)
        if body is not None:
            del rows.kept[position]
            size = len(body)
            self.kept_size -= size
        else:
            size, _ = rows.dropped.remove(position)
        rows.size -= size
        self.size -= size
        self._count -= 1
        self.changed += _ROW_BYTES
        self.expiring.pop(position, None)
        if not rows:
            del self.queues[queue]

    def find(self, positions: Collection[int]) -> Iterator[tuple[QueueId, int]]:
        """The queue and the position of each of these messages that is in a queue (not in the outbox)."""
        for queue, rows in [*self.queues.items()] if positions else ():
            few, many = sorted((positions, rows), key=len)
            for position in [position for position in few if position in many]:
                yield queue, position

    def send(self, queue: QueueId, position: int) -> None:
        """Move a message from its queue into the outbox."""
        rows = self.queues[queue]
        body = rows.kept.pop(position, None)
        size, digest = rows.dropped.remove(position) if body is None else (len(body), b"")
        rows.size -= size
        _, ends = self.expiring.pop(position, (queue, 0))
        self.sent.put(position, _Sent(queue, body, size, digest, ends))
        if not rows:
            del self.queues[queue]

    def delete_sent(self, position: int) -> None:
        """Delete a message that is in the outbox."""
        if position in self._fresh:
            del self._fresh[position]
        else:
            self._gone[position] = self._about(NOWHERE, position)
        one = self.sent.pop(position)
        self.kept_size -= one.size if one.body is not None else 0
        self.size -= one.size
        self._count -= 1
        self.changed += _ROW_BYTES

    def drop(self, last: int, most: int) -> None:
        """Drop from memory about `most` bytes of bodies, of messages up to position `last`. The disk must have these
        bodies."""
        assert not self._fresh or next(iter(self._fresh)) > last, "a message is dropped that no disk has"
        for rows in self.queues.values():
            if most <= 0:
                break
            if (first := next(iter(rows.kept), None)) is not None and first <= last:
                size = rows.drop(last, most)
                self.kept_size -= size
                most -= size
        self.kept_size -= self.sent.drop(last, most)

    def _about(self, queue: QueueId, position: int) -> bytes:
        """The value of the row about a message, which must be present."""
        sent = self.sent.get_sent(position)
        if sent is not None:
            queue, ends, about = sent.queue, sent.ends, self.sent.about(position)
        else:
            _, ends = self.expiring.get(position, (queue, 0))
            about = self.queues[queue].about(position)
        parts = *queue.parts, *about
        return bytes(msgpack.packb((*parts, ends) if ends else parts))

    # The methods from here on are about changes.

    def changes(self) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        """Yields key, former value and present value of each row about a message that has changed since the changes
        were last taken."""
        for position, value in self._gone.items():
            yield about_key(position), value, None
        for position, queue in self._fresh.items():
            yield about_key(position), None, self._about(queue, position)

    def take_bodies(self) -> dict[bytes, bytes | None]:
        """Take the changes of bodies since the last call. The changes of the rows about the same messages count as
        taken, too."""
        found: dict[bytes, bytes | None] = {body_key(position): None for position in self._gone}
        for position, queue in self._fresh.items():
            body = self.sent[position] if position in self.sent else self.queues[queue].kept[position]
            assert body is not None, "a body is dropped that no disk has"
            found[body_key(position)] = body
        self._gone, self._fresh, self.changed = {}, {}, 0
        return found

    def check(self) -> None:
        """Assert the invariants that hold between two operations."""
        for queue, rows in self.queues.items():
            assert rows and [*rows] == sorted(rows), f"queue {queue} is out of order, or empty"
            assert rows.size == sum(rows.about(position)[0] for position in rows)
        there: list[QueueRows | SentRows] = [*self.queues.values(), self.sent]
        assert self.size == sum(rows.about(position)[0] for rows in there for position in rows)
        assert self._count == sum(map(len, there))
        assert self.kept_size == sum(len(body) for rows in there for body in rows.values() if body is not None)
        kept = {position for rows in there for position, body in rows.items() if body is not None}
        assert self._fresh.keys() <= kept, "a message came, and is neither kept nor gone"


def _read(key: bytes, value: bytes) -> tuple[int, list[Any], int, bytes, int]:
    """Read the values of a row about a message: position, parts of the queue's id, size, digest of the body, and the
    end of its time (0 for none). Raises ValueError if the row is malformed."""
    parts = unpack(value, "a row of the state of a set")
    if len(key) != _ABOUT_LENGTH or tuple(map(type, parts)) not in _TYPES:
        raise ValueError("a row of the state of a set has a message that is none")
    life, index, size, digest, ends = parts if len(parts) == 5 else (*parts, 0)
    position = int.from_bytes(key[1:])
    if not (position < _POSITIONS and 0 <= size < _SIZES and len(digest) == DIGEST and 0 <= ends <= MOST):
        raise ValueError("a row of the state of a set has a message of a position, size, digest or time that is none")
    return position, [life, index], size, digest, ends
