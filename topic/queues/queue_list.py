"""The declared queues of one replica set: the state that its log of operations leads to (protocol 13).

`apply` is total: any bytes, in any order, give an answer, and the same bytes give the same state at each replica. It
reads no clock and no hash of a text. The digest is a running sum over all queues, so it takes the same time whatever
their number.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import msgpack

from topic.queues.operations import (
    MOST,
    Answer,
    Configure,
    Declare,
    Delete,
    Done,
    QueueId,
    QueueSettings,
    Refused,
    RefusedFor,
    decode,
    pack,
    read,
    unpack,
)

MOST_QUEUES: Final = 65_536
"""Of one set. All replicas have to have the same."""
PIECE: Final = 64 * 1024
"""Bytes of a piece of the state, about: a piece ends with the queue that passes this."""
MOST_PIECE: Final = PIECE + 1024
MOST_STATE: Final = 64 << 20
"""Bytes of all pieces of a state together: more than so many queues of the longest names take."""
_LIFE: Final = 8
"""Bytes in which an entry begins with the life of its leader."""
_DIGEST: Final = 16
"""Bytes."""


@attrs.frozen(slots=True)
class Queue:
    """A queue that is declared."""

    name: str
    id: QueueId
    version: QueueId
    """Of the settings."""
    settings: QueueSettings

    @property
    def packed(self) -> bytes:
        return bytes(msgpack.packb(pack(self)))

    @property
    def digest(self) -> int:
        return int.from_bytes(hashlib.blake2b(self.packed, digest_size=_DIGEST).digest())


def entry(life: int, operation: bytes) -> bytes:
    """What the leader of this life proposes for an operation."""
    return life.to_bytes(_LIFE) + operation


class QueueList:
    """The queues of one set, by name."""

    def __init__(self, queues: Sequence[Queue] = ()) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self._sum = sum(queue.digest for queue in queues)

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        """In the order in which they were declared."""
        return iter(self._queues.values())

    def get(self, name: str) -> Queue | None:
        return self._queues.get(name)

    @property
    def digest(self) -> bytes:
        return (self._sum % 256**_DIGEST).to_bytes(_DIGEST)

    def copy(self) -> "QueueList":
        """The same state, which later operations do not change."""
        copy = QueueList()
        copy._queues, copy._sum = dict(self._queues), self._sum
        return copy

    # operations

    def apply(self, index: int, data: bytes) -> Answer:
        """Carry out the operation of the log entry at this index."""
        life = int.from_bytes(data[:_LIFE])
        try:
            operation = decode(data[_LIFE:])
        except ValueError as error:
            return Refused(RefusedFor.MALFORMED, str(error))
        if life > MOST:
            return Refused(RefusedFor.MALFORMED, f"an operation on queues is of life {life}, expected {MOST} at most")
        if isinstance(operation, Declare):
            return self._declare(operation, QueueId(life, index))
        return self._change(operation, QueueId(life, index))

    def _declare(self, operation: Declare, fresh: QueueId) -> Answer:
        known = self._queues.get(operation.name)
        if known is None and len(self._queues) >= MOST_QUEUES:
            return Refused(RefusedFor.TOO_MANY, f"this set has {MOST_QUEUES} queues, which is the most")
        if known is None:
            self._put(Queue(operation.name, fresh, fresh, operation.settings))
            return Done(fresh, fresh)
        if known.settings == operation.settings:
            return Done(known.id, known.version)
        return Refused(
            RefusedFor.DIFFERS, f'queue "{known.name}" exists with {known.settings}, expected {operation.settings}'
        )

    def _change(self, operation: Configure | Delete, fresh: QueueId) -> Answer:
        known = self._queues.get(operation.name)
        if known is None:
            return Refused(RefusedFor.NOT_FOUND, f'there is no queue "{operation.name}"')
        if known.id != operation.id:
            why = f'queue "{known.name}" has the id {known.id}, expected {operation.id}: it was declared anew'
            return Refused(RefusedFor.NOT_FOUND, why)
        if isinstance(operation, Configure):
            return self._configure(known, operation, fresh)
        self._sum -= known.digest
        del self._queues[known.name]
        return Done(known.id, known.version)

    def _configure(self, known: Queue, operation: Configure, fresh: QueueId) -> Answer:
        if known.settings == operation.settings:
            return Done(known.id, known.version)
        if known.version != operation.former:
            what = f"has {known.settings} (version {known.version})"
            return Refused(RefusedFor.CHANGED, f'queue "{known.name}" was changed meanwhile: it {what}')
        self._sum -= known.digest
        self._put(attrs.evolve(known, settings=operation.settings, version=fresh))
        return Done(known.id, fresh)

    def _put(self, queue: Queue) -> None:
        self._queues[queue.name] = queue
        self._sum += queue.digest

    # snapshots

    def pieces(self) -> tuple[bytes, ...]:
        """The state as bytes: at least one piece, and none longer than `MOST_PIECE`."""
        pieces: list[bytes] = []
        rows: list[bytes] = []
        size = 0
        for queue in self:
            rows.append(queue.packed)
            size += len(rows[-1])
            if size >= PIECE:
                pieces.append(_join(rows))
                rows, size = [], 0
        return (*pieces, _join(rows)) if rows or not pieces else tuple(pieces)

    @classmethod
    def restore(cls, pieces: Sequence[bytes]) -> "QueueList":
        """The state that `pieces` was made of; of no piece, an empty one. Raises ValueError for bytes that are no
        state."""
        queues = [queue for piece in pieces for queue in _rows(piece)]
        if len({queue.name for queue in queues}) < len(queues):
            raise ValueError("the state of a set has two queues of one name")
        if len(queues) > MOST_QUEUES:
            raise ValueError(f"the state of a set has {len(queues)} queues, expected {MOST_QUEUES} at most")
        return cls(queues)

    def check(self) -> None:
        """Assert what holds whenever no operation is being applied."""
        assert self._sum == sum(queue.digest for queue in self), "the digest is not that of the queues"
        assert len(self) <= MOST_QUEUES


def _join(rows: Sequence[bytes]) -> bytes:
    return bytes(msgpack.Packer().pack_array_header(len(rows))) + b"".join(rows)


def _rows(piece: bytes) -> list[Queue]:
    return [read(Queue, row) for row in unpack(piece, "a piece of the state of a set")]
