"""The changes and reads that the replicas of a router give to its store, and the content that they get from it when the
router starts (protocol 13.5).

The shell gives the changes of a pump to the store together, in order. The store writes them in one transaction. Then
the shell calls `ReplicaSets.stored` for each `Write`. A read comes after all changes that were given before it, and
perhaps after later ones.
"""

from collections.abc import Sequence
from typing import Protocol

import attrs

from topic.queues.rows import Changes, PackedRows
from topic.raft.configuration import Replica
from topic.raft.messages import Persist, StoreContent


@attrs.frozen(slots=True)
class SetContent:
    """The store's content of one replica set."""

    store: bytes
    """The identity of this set's part of the store. A part that was lost or set aside gets another identity."""
    content: StoreContent
    rows: PackedRows
    """The rows of the state at the snapshot, without the bodies of messages, in the order of the keys."""


@attrs.frozen(slots=True)
class Write:
    """Write `persist` for this set."""

    set: str
    persist: Persist
    changes: Changes | None = None
    """If this replica made the snapshot: the rows that differ from the former snapshot. None if the leader sent the
    snapshot: then the store replaces all its rows by the rows of the pieces that it has put aside."""


@attrs.frozen(slots=True)
class Renew:
    """This set's part of the store is void: keep it under another name, and begin with an empty part with the identity
    `store`."""

    set: str
    store: bytes
    why: str


@attrs.frozen(slots=True)
class ReadPiece:
    """Read a piece of the snapshot of a set, for another router."""

    set: str
    to: Replica
    index: int
    place: int
    after: bytes
    """The key of the last row of the piece before; empty for the first piece."""


@attrs.frozen(slots=True)
class ReadBodies:
    """Read the bodies of messages of a set from the store."""

    set: str
    number: int
    """The number of the read, unique at this router."""
    positions: Sequence[int]


StoreChange = Write | Renew
StoreRead = ReadPiece | ReadBodies
FoundPiece = tuple[bytes, bool]
"""The bytes of a piece, and whether it is the last."""
FoundBodies = Sequence[bytes | None]
"""The bodies of messages. A body is None if the store lacks it, or has other bytes than were written."""


class SetStore(Protocol):
    """The store of one router. The shell makes each call in a worker thread, one at a time."""

    def write(self, changes: Sequence[StoreChange]) -> None:
        """Write all changes or none. Returns when they are on the disk."""

    def read(self, piece: ReadPiece) -> FoundPiece | None:
        """The piece; None if the snapshot is not at that index any more."""

    def bodies(self, read: ReadBodies) -> FoundBodies:
        """The bodies at these positions, in the same order."""
