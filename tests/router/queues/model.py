"""A store of replica sets without a disk, and random changes for it that replicas could ask for."""

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from random import Random
from typing import Self

import attrs
import msgpack

from tests.set_store import apply
from topic.queues.bodies.message_rows import about_key, body_digest, body_key, is_body, position_in
from topic.queues.positions import position_of
from topic.queues.proposals import Enqueue, encode_proposal
from topic.queues.rows import Changes, PackedRows, piece_of, read_piece
from topic.queues.state import entry, messages_of
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, Renew, SetContent, StoreChange, Write
from topic.raft.configuration import Configuration, Replica
from topic.raft.log import NOTHING, Entry, Snapshot
from topic.raft.messages import Hard, Persist, StagedPiece, StoreContent

MEMBERS = [Replica(router, router.encode() * 8) for router in "abcd"]


def rows_of(position: int, body: bytes) -> list[tuple[bytes, bytes]]:
    """The row about a message, and the row of its body."""
    about = msgpack.packb((7, 1, len(body), body_digest(body)))
    return [(about_key(position), about), (body_key(position), body)]


@attrs.define
class ModelPart:
    store: bytes
    hard: Hard = attrs.Factory(Hard)
    snapshot: Snapshot = NOTHING
    rows: dict[bytes, bytes] = attrs.Factory(dict)
    entries: list[Entry] = attrs.Factory(list)
    staged: tuple[int, list[bytes]] = (0, [])
    """The snapshot that a leader sends: its index, and the pieces that have come."""

    @property
    def last(self) -> int:
        return self.snapshot.index + len(self.entries)

    @property
    def content(self) -> SetContent:
        rows = PackedRows(row for row in sorted(self.rows.items()) if not is_body(row[0]))
        return SetContent(self.store, StoreContent(self.hard, self.snapshot, tuple(self.entries)), rows)

    def persist(self, persist: Persist, changes: Changes | None) -> None:
        self.hard = persist.hard
        for piece in persist.pieces:
            if not piece.place:
                self.staged = piece.index, []
            assert self.staged[0] == piece.index and len(self.staged[1]) == piece.place
            self.staged[1].append(piece.data)
        if (snapshot := persist.snapshot) is not None:
            del self.entries[: snapshot.index - self.snapshot.index]
            self.snapshot = snapshot
            if changes is None:
                self.rows = dict(row for piece in self.staged[1] for row in read_piece(piece))
                self.staged = 0, []
            else:
                apply(self.rows, changes)
        self.entries[persist.first - self.snapshot.index - 1 :] = persist.entries


class ModelStore:
    def __init__(self, sets: Collection[str], new_store: Callable[[], bytes]) -> None:
        self.parts = {name: ModelPart(new_store()) for name in sets}

    def write(self, changes: Sequence[StoreChange]) -> None:
        for change in changes:
            part = self.parts[change.set]
            match change:
                case Write(persist=persist, changes=rows):
                    part.persist(persist, rows)
                case Renew(store=store):
                    self.parts[change.set] = ModelPart(store)

    def bodies(self, read: ReadBodies) -> FoundBodies:
        return [self.parts[read.set].rows.get(body_key(position)) for position in read.positions]

    def read(self, piece: ReadPiece) -> FoundPiece | None:
        part = self.parts[piece.set]
        if part.snapshot.index != piece.index:
            return None
        return piece_of(row for row in sorted(part.rows.items()) if row[0] > piece.after)

    def reopen(self) -> None:
        """The process ends. The next one knows no pieces of a leader's snapshot."""
        for part in self.parts.values():
            part.staged = 0, []

    @property
    def contents(self) -> dict[str, SetContent]:
        return {name: part.content for name, part in self.parts.items()}

    def copy(self) -> Self:
        return deepcopy(self)


class Drawing:
    """Random changes that replicas may ask for."""

    def __init__(self, seed: int | str, *, renews: bool = True) -> None:
        self.random = Random(seed)
        self._renews = renews
        self._number = 0

    def changes(self, model: ModelStore) -> list[StoreChange]:
        """Draw one transaction, and apply it to the model."""
        drawn: list[StoreChange] = []
        most = self.random.choice((1, 1, 2, 5))
        while len(drawn) < most:
            some = self._some(self.random.choice([*model.parts]), model)
            drawn += some
            model.write(some)
        return drawn

    def piece(self, model: ModelStore) -> ReadPiece | None:
        """A piece that a leader may want to send."""
        found = [(name, part) for name, part in model.parts.items() if part.rows]
        if not found:
            return None
        name, part = self.random.choice(found)
        index = part.snapshot.index - self.random.choice((0, 0, 1))
        return ReadPiece(name, MEMBERS[1], index, 0, self.random.choice([b"", *part.rows]))

    def read(self, model: ModelStore) -> ReadBodies:
        """Some bodies, most of which the store has."""
        self._number += 1
        name, part = self.random.choice([*model.parts.items()])
        there = [at for key in part.rows if is_body(key) and (at := position_in(key)) is not None]
        positions = (
            self.random.sample([*there, 1, position_of(1, 99), position_of(part.last + 1, 0)], 3) if there else [5]
        )
        return ReadBodies(name, self._number, positions)

    def _some(self, name: str, model: ModelStore) -> list[StoreChange]:
        part, random = model.parts[name], self.random
        kinds = [self._append, self._append, self._append, self._truncate, self._elect, self._compact, self._stage]
        if self._renews and random.random() < 0.05:
            return [Renew(name, random.randbytes(8), "an operator wants it")]
        return random.choice(kinds)(name, part)

    def _write(
        self,
        name: str,
        hard: Hard,
        first: int,
        entries: Sequence[Entry] = (),
        pieces: Sequence[StagedPiece] = (),
        snapshot: Snapshot | None = None,
        changes: Changes | None = None,
    ) -> Write:
        self._number += 1
        return Write(name, Persist(self._number, hard, tuple(pieces), snapshot, first, tuple(entries)), changes)

    def _entries(self, term: int, most: int) -> list[Entry]:
        return [self._entry(term) for _ in range(self.random.randint(0, most))]

    def _entry(self, term: int) -> Entry:
        kind = self.random.random()
        if kind < 0.1:
            return Entry(term, b"", self._members())
        if kind < 0.5:
            messages = [self._bytes() for _ in range(self.random.choice((1, 2, 5, 20)))]
            return Entry(term, entry(term, encode_proposal(Enqueue("queue", (), (), messages))))
        return Entry(term, self._bytes())

    def _bytes(self) -> bytes:
        return self.random.randbytes(self.random.choice((0, 10, 100, 1000, 5000)))

    def _members(self) -> Configuration:
        some = self.random.sample(MEMBERS, self.random.randint(1, 4))
        return Configuration(tuple(some[:3]), tuple(some[3:]))

    def _append(self, name: str, part: ModelPart) -> list[StoreChange]:
        return [self._write(name, part.hard, part.last + 1, self._entries(part.hard.term, 5))]

    def _truncate(self, name: str, part: ModelPart) -> list[StoreChange]:
        first = self.random.randint(part.snapshot.index + 1, part.last + 1)
        hard = attrs.evolve(part.hard, term=part.hard.term + 1, vote=None)
        return [self._write(name, hard, first, self._entries(hard.term, 3))]

    def _elect(self, name: str, part: ModelPart) -> list[StoreChange]:
        vote = self.random.choice([None, *MEMBERS])
        life = part.hard.life or self.random.randint(1, 1 << 62)
        hard = Hard(life, b"mapping", self.random.random() < 0.8, part.hard.term + 1, vote)
        return [self._write(name, hard, part.last + 1)]

    def _compact(self, name: str, part: ModelPart) -> list[StoreChange]:
        """A state becomes the snapshot."""
        if not part.entries:
            return []
        index = self.random.randint(part.snapshot.index + 1, part.last)
        snapshot = Snapshot(index, part.hard.term, self._members())
        entries, changes = self._entries(part.hard.term, 2), self._changes(part, index)
        return [self._write(name, part.hard, part.last + 1, entries, (), snapshot, changes)]

    def _changes(self, part: ModelPart, index: int) -> Changes:
        """Drop some rows, add some, and change some; an absent row may be dropped, too. Messages of the entries up to
        this index are new, or have come and gone."""
        found: dict[bytes, bytes | None] = dict(self._row() for _ in range(self.random.randint(0, 5)))
        others = [key for key in part.rows if position_in(key) is None]
        found |= dict.fromkeys(self.random.sample([*others, b"none"], self.random.randint(0, len(others) + 1)))
        there = [at for key in part.rows if not is_body(key) and (at := position_in(key)) is not None]
        gone = self._some_messages(there)
        for place, one in enumerate(part.entries[: index - part.snapshot.index], part.snapshot.index + 1):
            messages = {position_of(place, number): body for number, body in enumerate(messages_of(one.data))}
            stay = {*self._some_messages([*messages])}
            gone += [at for at in messages if at not in stay]
            for at in stay:
                found.update(rows_of(at, messages[at]))
        for at in gone:
            found |= {about_key(at): None, body_key(at): None}
        return found

    def _some_messages(self, positions: list[int]) -> list[int]:
        """All of these positions, none, the first ones, or some."""
        random = self.random
        count = random.choice((0, len(positions), random.randint(0, len(positions))))
        return positions[:count] if random.random() < 0.5 else random.sample(positions, count)

    def _row(self) -> tuple[bytes, bytes]:
        return b"%d" % self.random.randrange(50), self.random.randbytes(self.random.choice((1, 100, 9000)))

    def _stage(self, name: str, part: ModelPart) -> list[StoreChange]:
        """A leader's snapshot begins, continues or is complete. It is later than what is decided here."""
        index, pieces = part.staged
        if index <= part.snapshot.index or self.random.random() < 0.2:
            index = self.random.randint(part.snapshot.index + 1, part.last + 10)
            return [self._write(name, part.hard, part.last + 1, (), [StagedPiece(index, 0, self._piece())])]
        piece = StagedPiece(index, len(pieces), self._piece())
        if self.random.random() < 0.5:
            return [self._write(name, part.hard, part.last + 1, (), [piece])]
        snapshot = Snapshot(index, part.hard.term, self._members())
        return [self._write(name, part.hard, index + 1, (), [piece], snapshot)]

    def _piece(self) -> bytes:
        """A piece. All keys of a snapshot differ."""
        self._number += 1
        rows = [(b"%d-%d" % (self._number, one), self._row()[1]) for one in range(self.random.randint(0, 3))]
        for at in range(first := position_of(1, 8 * self._number), first + self.random.randint(0, 3)):
            rows += rows_of(at, self._bytes())
        return piece_of(rows)[0]
