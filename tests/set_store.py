"""A store of a router's replicas in memory (`topic.queues.storing.SetStore`), with the rules of a real one."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from topic.queues.bodies.message_rows import body_key, is_body, position_in
from topic.queues.copying.pieces import Section, SnapshotRuns, order_of, piece_of, read_piece, run_row, section_of
from topic.queues.positions import runs_of
from topic.queues.rows import Changes, PackedRows, Row
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, Renew, SetContent, StoreChange
from topic.raft.log import NOTHING, Entry, Snapshot
from topic.raft.messages import Hard, Persist, StoreContent


def apply(rows: dict[bytes, bytes], changes: Changes) -> None:
    """Apply changes to the rows of a store."""
    for key, value in changes.items():
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value


def sent_behind(rows: Mapping[bytes, bytes], after: bytes) -> Iterator[Row]:
    """The rows of a snapshot that a leader sends after this key."""
    there = [at for key in rows if not is_body(key) and (at := position_in(key)) is not None]
    all_rows = [*rows.items(), *map(run_row, runs_of(sorted(there)))]
    behind = order_of(after)
    return (row for row in sorted(all_rows, key=lambda row: order_of(row[0])) if order_of(row[0]) > behind)


def with_pieces(rows: Mapping[bytes, bytes], pieces: Iterable[tuple[int, bytes]]) -> dict[bytes, bytes]:
    """The rows of a leader's snapshot, made when all of its pieces are there. `rows`: the rows of the former state.
    `pieces`: each with the index of its snapshot."""
    found = [(index, *row) for index, piece in pieces for row in read_piece(piece)]
    last = found[-1][0] if found else 0
    messages = {key: value for _, key, value in found if section_of(key) is Section.MESSAGES}
    own = {key: value for key, value in rows.items() if section_of(key) is Section.MESSAGES}
    first = min(messages, default=b"n")
    own = {key: value for key, value in own.items() if key < first}
    runs = SnapshotRuns()
    for index, key, value in found:
        if index == last and section_of(key) is Section.RUNS:
            runs.add(key, value)
    has = runs.reader()
    there = {key: value for key, value in sorted((own | messages).items()) if has(key)}
    others = {key: value for index, key, value in found if index == last and section_of(key) is Section.OTHERS}
    return there | others


class SetPart:
    """The part of one set in the store."""

    def __init__(self, store: bytes) -> None:
        self.store = store
        self.hard = Hard()
        self.snapshot: Snapshot = NOTHING
        self.rows: dict[bytes, bytes] = {}
        self.pieces: list[tuple[int, bytes]] = []
        """The pieces of the snapshot that a leader sends, and of earlier snapshots. Each has the index of its
        snapshot."""
        self.entries: list[Entry] = []
        self.number = 0
        """The number of changes so far, which the mark beside the store also has."""

    @property
    def content(self) -> SetContent:
        rows = PackedRows(row for row in sorted(self.rows.items()) if not is_body(row[0]))
        return SetContent(self.store, StoreContent(self.hard, self.snapshot, tuple(self.entries)), rows)

    def has(self, index: int, entry: Entry) -> bool:
        place = index - self.snapshot.index
        return place <= 0 or self.entries[place - 1 : place] == [entry]

    def copy(self) -> "SetPart":
        copy = SetPart(self.store)
        copy.hard, copy.snapshot = self.hard, self.snapshot
        copy.rows, copy.pieces, copy.entries = dict(self.rows), list(self.pieces), list(self.entries)
        copy.number = self.number
        return copy

    def write(self, persist: Persist, changes: Changes | None) -> None:
        self.hard = persist.hard
        for piece in persist.pieces:
            self.pieces = self.pieces if piece.place else []
            assert len(self.pieces) == piece.place, "a piece is put aside out of order"
            self.pieces += [(piece.index, piece.data)] if piece.index else []
        if persist.snapshot is not None:
            del self.entries[: persist.snapshot.index - self.snapshot.index]
            self.snapshot = persist.snapshot
            if changes is None:
                self.rows = with_pieces(self.rows, self.pieces)
                self.pieces = []
            else:
                apply(self.rows, changes)
        place = persist.first - self.snapshot.index - 1
        assert 0 <= place <= len(self.entries), "there is a gap in the log"
        self.entries[place:] = persist.entries


class MemorySets:
    """The parts of all sets."""

    def __init__(self, parts: dict[str, SetPart]) -> None:
        self.parts = parts
        self.former: list[SetPart] = []
        """The parts that were set aside. No store deletes a part."""

    @property
    def contents(self) -> dict[str, SetContent]:
        return {name: part.content for name, part in self.parts.items()}

    def copy(self) -> "MemorySets":
        return MemorySets({name: part.copy() for name, part in self.parts.items()})

    def changed_since(self, earlier: "MemorySets") -> list[str]:
        """The sets that have changed since the store was as `earlier`."""
        return [name for name, part in self.parts.items() if part.number > earlier.parts[name].number]

    def put_back(self, earlier: "MemorySets", new_store: Callable[[], bytes]) -> "MemorySets":
        """Replace this store by an earlier one. The mark shows which sets lack changes: their parts begin anew."""
        found = earlier.copy()
        for name in self.changed_since(earlier):
            self._begin_anew(found, name, new_store())
        return found

    def _begin_anew(self, found: "MemorySets", name: str, store: bytes) -> None:
        part = SetPart(store)
        part.number = self.parts[name].number + 1
        found.former.append(found.parts[name])
        found.parts[name] = part

    def write(self, changes: Sequence[StoreChange]) -> None:
        for change in changes:
            self.parts[change.set].number += 1
            if isinstance(change, Renew):
                self._begin_anew(self, change.set, change.store)
            else:
                self.parts[change.set].write(change.persist, change.changes)

    def bodies(self, read: ReadBodies) -> FoundBodies:
        return [self.parts[read.set].rows.get(body_key(position)) for position in read.positions]

    def read(self, piece: ReadPiece) -> FoundPiece | None:
        part = self.parts[piece.set]
        if part.snapshot.index != piece.index:
            return None
        return piece_of(sent_behind(part.rows, piece.after), piece.size)


@attrs.define
class StoreNames:
    """Makes identities that no store has had."""

    count: int = 0

    def __call__(self) -> bytes:
        self.count += 1
        return f"store {self.count}".encode()

    def parts(self, sets: Collection[str]) -> dict[str, SetPart]:
        """Make empty parts."""
        return {name: SetPart(self()) for name in sets}
