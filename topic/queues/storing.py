"""What the replicas of a router give to its store, and what they find there when the router starts (protocol 13.5).

The shell gives the changes of a pump to the store at once, in order. The store writes them in one transaction, and the
shell then says so: `ReplicaSets.stored` for each `Write`. A read comes behind all changes that were given before it,
and perhaps behind later ones.
"""

from collections.abc import Sequence
from typing import Protocol

import attrs

from topic.queues.rows import Changes, PackedRows
from topic.raft.configuration import Replica
from topic.raft.messages import Persist, StoreContent


@attrs.frozen(slots=True)
class SetContent:
    """What the store has of one replica set."""

    store: bytes
    """The identity of this set's part of the store. A part that was lost or set aside comes back with another one."""
    content: StoreContent
    rows: PackedRows
    """The state at the snapshot without the bodies of messages, in the order of the keys."""


@attrs.frozen(slots=True)
class Write:
    """Do what `persist` says for this set."""

    set: str
    persist: Persist
    changes: Changes | None = None
    """With a snapshot of this replica: how its rows differ from those of the former snapshot. With a snapshot of a
    leader, None: its rows are in the pieces that were put aside, and no other rows stay."""


@attrs.frozen(slots=True)
class Renew:
    """This set's part of the store is void: keep it under another name, and begin with an empty part, whose identity
    is `store`."""

    set: str
    store: bytes
    why: str


@attrs.frozen(slots=True)
class ReadPiece:
    """Read a piece of the snapshot of a set, which another router is to get."""

    set: str
    to: Replica
    index: int
    place: int
    after: bytes
    """The key of the last row of the piece before it; empty for the first piece."""


@attrs.frozen(slots=True)
class ReadBodies:
    """Read the bodies of messages in the state of a set, as the store has it."""

    set: str
    number: int
    """No other read of this router has it."""
    positions: Sequence[int]


StoreChange = Write | Renew
StoreRead = ReadPiece | ReadBodies
FoundPiece = tuple[bytes, bool]
"""The bytes of a piece, and whether it is the last."""
FoundBodies = Sequence[bytes | None]
"""The bodies of messages. None: the store has no such body, or not what was written."""


class SetStore(Protocol):
    """The store of one router, as the shell uses it: each call is made in a worker thread, one at a time."""

    def write(self, changes: Sequence[StoreChange]) -> None:
        """Keep all of this or nothing. Returns when it is on the disk."""

    def read(self, piece: ReadPiece) -> FoundPiece | None:
        """None if the snapshot is not at that index any more."""

    def bodies(self, read: ReadBodies) -> FoundBodies:
        """The bodies at these positions, in the same order."""
