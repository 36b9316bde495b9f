"""The changes and reads that a router's replicas give to its store, and the content that they get from the store when
the router starts (protocol 13.5).

The shell gives the store all changes of one pump together, in order. The store writes them in one transaction. Then the
shell calls `ReplicaSets.stored` for each `Write`. A read is done after all changes that were given before it, and
perhaps after some later ones.
"""

from collections.abc import Sequence
from typing import Protocol

import attrs

from topic.queues.rows import Changes, PackedRows
from topic.raft.messages import PIECE, Persist, StoreContent


@attrs.frozen(slots=True)
class SetContent:
    """The content of the store about one replica set."""

    store: bytes
    """The identity of this set's part of the store. If a part is lost or set aside, the part that replaces it gets
    another identity."""
    content: StoreContent
    rows: PackedRows
    """The rows of the state at the snapshot, in the order of their keys, without the bodies of messages."""


@attrs.frozen(slots=True)
class Write:
    """Write the changes `persist` of this set to the disk."""

    set: str
    persist: Persist
    changes: Changes | None = None
    """The rows that differ from the former snapshot, if this write has a snapshot that this replica made; otherwise
    None. If the write has a snapshot that the leader sent, the store makes the snapshot's rows from the pieces that it
    has stored, and from its own messages that precede the messages in the pieces (`topic.queues.copying.pieces`)."""


@attrs.frozen(slots=True)
class Renew:
    """Begin anew with an empty part for this set, with the identity `store`. The former part is void; the store keeps
    it under another name."""

    set: str
    store: bytes
    why: str


@attrs.frozen(slots=True)
class ReadPiece:
    """Read a piece of a set's snapshot, to send it to another router."""

    set: str
    index: int
    after: bytes
    """The key of the row after which the piece begins, in the order of the rows of a snapshot
    (`topic.queues.copying.pieces`). Empty if the piece begins with the first row."""
    size: int = PIECE
    """The number of bytes, about, that the piece is to have."""


@attrs.frozen(slots=True)
class ReadBodies:
    """Read the bodies of some of a set's messages from the store."""

    set: str
    number: int
    """The number of the read. It is unique at this router."""
    positions: Sequence[int]


StoreChange = Write | Renew
StoreRead = ReadPiece | ReadBodies
FoundPiece = tuple[bytes, bool]
"""The bytes of a piece, and whether it is the last piece."""
FoundBodies = Sequence[bytes | None]
"""The bodies of messages. A body is None if the store lacks it, or has other bytes than it wrote."""


class SetStore(Protocol):
    """The store of one router. The shell makes each call in a worker thread, only one at a time."""

    def write(self, changes: Sequence[StoreChange]) -> None:
        """Write all of the changes, or none. Returns when they are on the disk."""

    def read(self, piece: ReadPiece) -> FoundPiece | None:
        """Read a piece; None if the store no longer has the snapshot at this index."""

    def bodies(self, read: ReadBodies) -> FoundBodies:
        """Read the bodies of the messages at these positions. The order stays."""
