"""The messages in the queues of one set, and how their deliveries were answered (protocol 14.3).

A message is in its queue at a *position*: the log index of the entry that has enqueued it, and its place in the entry.
So all replicas have the same order. A delivery is enqueued once: its key is kept with its answer until its publisher
has settled it, also if the message is taken in the meantime, or the queue is deleted.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final

import attrs
import msgpack

from topic.identity import KEY_LENGTH, Epoch
from topic.queues.operations import QueueId, unpack
from topic.queues.proposals import MOST_PLACES, Enqueue
from topic.queues.rows import StateRows

MESSAGE, KEY = b"m", b"k"
"""The first byte of the key of the row of a message, and of a delivery. A position follows, or a delivery key."""
_POSITION: Final = 11
"""Bytes."""


def position_of(index: int, place: int) -> int:
    return index * MOST_PLACES + place


@attrs.frozen(slots=True)
class Answered:
    """How a delivery was answered."""

    taken: bool
    """Else it was refused: there was no queue."""
    attach: Epoch
    """Of the publisher, when the delivery was forwarded last."""
    place: int
    """Of the delivery in the publisher's order, on that attach."""

    def is_for(self, attach: Epoch, place: int) -> bool:
        """Whether what comes with the same key is the same delivery. On the same attach, a later one is another: the
        publisher has used the tag again, so it has settled the former delivery, and the leader has not read of that. On
        another attach it is the same: a home tells of all that was settled before the attach."""
        return attach != self.attach or place <= self.place

    @property
    def row(self) -> bytes:
        """The value of the row of the delivery."""
        return bytes(msgpack.packb((self.taken, *self.attach, self.place)))


class QueuedMessages:
    """The messages of all queues of a set."""

    def __init__(self, rows: StateRows) -> None:
        """Read the messages that `rows` has, and keep all later ones there. Raises ValueError if a row is wrong."""
        self._rows = rows
        self._queues: dict[QueueId, dict[int, bytes]] = {}
        """By queue and position, in the order of the positions: the messages."""
        self._answers: dict[bytes, Answered] = {}
        """By delivery key."""
        for key, value in sorted(row for row in rows if row[0][:1] in (MESSAGE, KEY)):
            if key[:1] == KEY:
                self._answers[key[1:]] = _answered(key, value)
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
        return [*self._answers]

    def enqueue(self, queue: QueueId | None, index: int, asked: Enqueue) -> set[int]:
        """Put messages into a queue; None: there is no such queue. Returns the numbers of those that were refused, now
        or before. Without keys a message that there is no queue for is dropped."""
        refused: set[int] = set()
        if not asked.keys:
            for number, message in enumerate(asked.messages):
                self._take(queue, position_of(index, number), message)
            return refused
        given = chain.from_iterable(run.each() for run in asked.given)
        for number, (key, (attach, place), message) in enumerate(zip(asked.keys, given, asked.messages, strict=True)):
            known = self._answers.get(key)
            if known is not None and known.is_for(attach, place):
                is_taken = known.taken
            else:
                is_taken, known = self._take(queue, position_of(index, number), message), None
            if known is None or known.attach < attach:
                self._answers[key] = answered = Answered(is_taken, attach, place)
                self._rows.put(KEY + key, answered.row)
            if not is_taken:
                refused.add(number)
        return refused

    def _take(self, queue: QueueId | None, position: int, message: bytes) -> bool:
        if queue is None:
            return False
        self._queues.setdefault(queue, {})[position] = message
        self._rows.put(_key(position), msgpack.packb((queue.life, queue.index, message)))
        return True

    def settled(self, keys: Sequence[bytes]) -> None:
        """Forget deliveries. A message that was enqueued stays."""
        for key in keys:
            if self._answers.pop(key, None) is not None:
                self._rows.delete(KEY + key)

    def delete(self, queue: QueueId) -> None:
        """The queue is deleted, with all its messages."""
        for position in self._queues.pop(queue, {}):
            self._rows.delete(_key(position))

    def check(self) -> None:
        """Assert what holds whenever no proposal is being applied."""
        fresh = QueuedMessages(self._rows)
        assert fresh._queues == self._queues, "the rows are not those of the messages"
        assert fresh._answers == self._answers, "the rows are not those of the answers"
        assert all([*queue] == sorted(queue) for queue in self._queues.values()), "a queue is out of order"


def _key(position: int) -> bytes:
    return MESSAGE + position.to_bytes(_POSITION)


def _answered(key: bytes, value: bytes) -> Answered:
    """What a row says of a delivery. Raises ValueError."""
    parts = unpack(value, "a row of the state of a set")
    if [type(part) for part in parts] != [bool, int, str, int, int] or len(key) != len(KEY) + KEY_LENGTH:
        raise ValueError("a row of the state of a set has an answer that is none")
    return Answered(parts[0], Epoch(*parts[1:4]), parts[4])


def _read(key: bytes, value: bytes) -> tuple[int, QueueId, bytes]:
    """Position, queue and message of a row. Raises ValueError."""
    parts = unpack(value, "a row of the state of a set")
    if [type(part) for part in parts] != [int, int, bytes] or len(key) != len(MESSAGE) + _POSITION:
        raise ValueError("a row of the state of a set has a message that is none")
    return int.from_bytes(key[len(MESSAGE) :]), QueueId(*parts[:2]), parts[2]
