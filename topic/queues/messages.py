"""The messages in the queues of one set, and how their deliveries were answered (protocol 14.3).

A message is in its queue at a *position*: the log index of the entry that has enqueued it, and its place in the entry.
So all replicas have the same order. A delivery is enqueued once: its key is kept with its answer until its publisher
has settled it, also if the message is taken in the meantime, or the queue is deleted.
"""

from collections.abc import Sequence
from typing import Final

import msgpack

from topic.identity import KEY_LENGTH
from topic.queues.operations import QueueId, unpack
from topic.queues.proposals import MOST_PLACES
from topic.queues.rows import StateRows

MESSAGE, KEY = b"m", b"k"
"""The first byte of the key of the row of a message, and of a delivery. A position follows, or a delivery key."""
TAKEN, REFUSED = b"\x01", b"\x00"
"""The value of the row of a delivery."""
_POSITION: Final = 11
"""Bytes."""


def position_of(index: int, place: int) -> int:
    return index * MOST_PLACES + place


class QueuedMessages:
    """The messages of all queues of a set."""

    def __init__(self, rows: StateRows) -> None:
        """Read the messages that `rows` has, and keep all later ones there. Raises ValueError if a row is wrong."""
        self._rows = rows
        self._queues: dict[QueueId, dict[int, bytes]] = {}
        """By queue and position, in the order of the positions: the messages."""
        self._keys: dict[bytes, bytes] = {}
        """By delivery key: `TAKEN` or `REFUSED`."""
        for key, value in sorted(row for row in rows if row[0][:1] in (MESSAGE, KEY)):
            if key[:1] == KEY:
                self._keys[_delivery(key, value)] = value
            else:
                position, queue, message = _read(key, value)
                self._queues.setdefault(queue, {})[position] = message

    def of(self, queue: QueueId) -> dict[int, bytes]:
        """The messages of a queue by position, in order."""
        return self._queues.get(queue, {})

    @property
    def queues(self) -> set[QueueId]:
        """The queues that have had a message."""
        return {*self._queues}

    @property
    def unsettled(self) -> list[bytes]:
        """The keys of all deliveries that were answered, and that their publishers have not settled."""
        return [*self._keys]

    def enqueue(self, queue: QueueId | None, index: int, keys: Sequence[bytes], messages: Sequence[bytes]) -> set[int]:
        """Put messages into a queue; None: there is no such queue. Returns the places of those that were refused, now
        or before. Without keys a message that there is no queue for is dropped."""
        refused: set[int] = set()
        if not keys:
            for place, message in enumerate(messages):
                self._take(queue, position_of(index, place), message)
            return refused
        for place, (key, message) in enumerate(zip(keys, messages, strict=True)):
            known = self._keys.get(key)
            if known is None:
                known = self._take(queue, position_of(index, place), message)
                self._keys[key] = known
                self._rows.put(KEY + key, known)
            if known == REFUSED:
                refused.add(place)
        return refused

    def _take(self, queue: QueueId | None, position: int, message: bytes) -> bytes:
        if queue is None:
            return REFUSED
        self._queues.setdefault(queue, {})[position] = message
        self._rows.put(_key(position), msgpack.packb((queue.life, queue.index, message)))
        return TAKEN

    def settled(self, keys: Sequence[bytes]) -> None:
        """Forget deliveries. A message that was enqueued stays."""
        for key in keys:
            if self._keys.pop(key, None) is not None:
                self._rows.delete(KEY + key)

    def delete(self, queue: QueueId) -> None:
        """The queue is deleted, with all its messages."""
        for position in self._queues.pop(queue, {}):
            self._rows.delete(_key(position))

    def check(self) -> None:
        """Assert what holds whenever no proposal is being applied."""
        fresh = QueuedMessages(self._rows)
        assert (fresh._queues, fresh._keys) == (self._queues, self._keys), "the rows are not those of the messages"
        assert all([*queue] == sorted(queue) for queue in self._queues.values()), "a queue is out of order"


def _key(position: int) -> bytes:
    return MESSAGE + position.to_bytes(_POSITION)


def _delivery(key: bytes, value: bytes) -> bytes:
    """The delivery key of a row. Raises ValueError."""
    if len(key) != len(KEY) + KEY_LENGTH or value not in (TAKEN, REFUSED):
        raise ValueError("a row of the state of a set has an answer that is none")
    return key[len(KEY) :]


def _read(key: bytes, value: bytes) -> tuple[int, QueueId, bytes]:
    """Position, queue and message of a row. Raises ValueError."""
    parts = unpack(value, "a row of the state of a set")
    if [type(part) for part in parts] != [int, int, bytes] or len(key) != len(MESSAGE) + _POSITION:
        raise ValueError("a row of the state of a set has a message that is none")
    return int.from_bytes(key[len(MESSAGE) :]), QueueId(*parts[:2]), parts[2]
