"""The store of the replicas of a router in memory (`topic.queues.storing.SetStore`), with the rules of a real one."""

from collections.abc import Collection, Sequence

import attrs

from topic.queues.storing import PutAside, ReadPiece, Renew, SetContent, StoreChange
from topic.raft.log import NOTHING, Entry, Snapshot
from topic.raft.messages import Hard, Persist, StoreContent


class SetPart:
    """What the store has of one set."""

    def __init__(self, store: bytes) -> None:
        self.store = store
        self.hard = Hard()
        self.snapshot: Snapshot = NOTHING
        self.state: tuple[bytes, ...] = ()
        self.aside: dict[int, list[bytes]] = {}
        """Pieces of states that may become the snapshot, by index."""
        self.entries: list[Entry] = []

    @property
    def content(self) -> SetContent:
        return SetContent(self.store, StoreContent(self.hard, self.snapshot, tuple(self.entries)), self.state)

    def has(self, index: int, entry: Entry) -> bool:
        place = index - self.snapshot.index
        return place <= 0 or self.entries[place - 1 : place] == [entry]

    def copy(self) -> "SetPart":
        copy = SetPart(self.store)
        copy.hard, copy.snapshot, copy.state = self.hard, self.snapshot, self.state
        copy.aside = {index: list(pieces) for index, pieces in self.aside.items()}
        copy.entries = list(self.entries)
        return copy

    def write(self, persist: Persist) -> None:
        self.hard = persist.hard
        for piece in persist.pieces:
            self.aside = self.aside if piece.place else {piece.index: []}
            assert len(self.aside[piece.index]) == piece.place, "a piece is put aside out of order"
            self.aside[piece.index].append(piece.data)
        if persist.snapshot is not None:
            del self.entries[: persist.snapshot.index - self.snapshot.index]
            self.snapshot, self.state = persist.snapshot, tuple(self.aside.pop(persist.snapshot.index))
        place = persist.first - self.snapshot.index - 1
        assert 0 <= place <= len(self.entries), "there is a gap in the log"
        self.entries[place:] = persist.entries

    def put_aside(self, change: PutAside) -> None:
        self.aside = {index: pieces for index, pieces in self.aside.items() if index > change.index}
        self.aside[change.index] = list(change.pieces)


class MemorySets:
    """The parts of all sets."""

    def __init__(self, parts: dict[str, SetPart]) -> None:
        self.parts = parts
        self.former: list[SetPart] = []
        """Parts that were set aside: no store deletes one."""

    @property
    def contents(self) -> dict[str, SetContent]:
        return {name: part.content for name, part in self.parts.items()}

    def copy(self) -> "MemorySets":
        return MemorySets({name: part.copy() for name, part in self.parts.items()})

    def write(self, changes: Sequence[StoreChange]) -> None:
        for change in changes:
            if isinstance(change, Renew):
                self.former.append(self.parts[change.set])
                self.parts[change.set] = SetPart(change.store)
            elif isinstance(change, PutAside):
                self.parts[change.set].put_aside(change)
            else:
                self.parts[change.set].write(change.persist)

    def read(self, piece: ReadPiece) -> tuple[bytes, bool] | None:
        part = self.parts[piece.set]
        if part.snapshot.index != piece.index:
            return None
        return part.state[piece.place], piece.place + 1 == len(part.state)


@attrs.define
class StoreNames:
    """Identities that no store has had."""

    count: int = 0

    def __call__(self) -> bytes:
        self.count += 1
        return f"store {self.count}".encode()

    def parts(self, sets: Collection[str]) -> dict[str, SetPart]:
        """Empty parts."""
        return {name: SetPart(self()) for name in sets}
