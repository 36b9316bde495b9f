"""A store of replica sets without a disk, and random changes for it that replicas could ask for."""

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from random import Random
from typing import Self

import attrs
import msgpack

from tests.set_store import apply, sent_behind, with_pieces
from topic.queues.bodies.message_rows import about_key, body_digest, body_key, is_body, position_in
from topic.queues.copying.pieces import piece_of, read_piece, run_row
from topic.queues.positions import MOST_PLACES, index_of, position_of, runs_of
from topic.queues.proposals import Enqueue, encode_proposal
from topic.queues.rows import Changes, PackedRows
from topic.queues.state import entry, messages_of
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, Renew, SetContent, StoreChange, Write
from topic.raft.configuration import Configuration, Replica
from topic.raft.life import SetLife
from topic.raft.log import NOTHING, Entry, Snapshot
from topic.raft.messages import NO_PIECES, Hard, Persist, StagedPiece, StoreContent

MEMBERS = [Replica(router, router.encode() * 8) for router in "abcd"]


def rows_of(position: int, body: bytes) -> list[tuple[bytes, bytes]]:
    """The row about a message, and the row of its body."""
    about = msgpack.packb(((7, "a"), 1, len(body), body_digest(body)))
    return [(about_key(position), about), (body_key(position), body)]


@attrs.define
class ModelPart:
    store: bytes
    hard: Hard = attrs.Factory(Hard)
    snapshot: Snapshot = NOTHING
    rows: dict[bytes, bytes] = attrs.Factory(dict)
    entries: list[Entry] = attrs.Factory(list)
    staged: list[tuple[int, bytes]] = attrs.Factory(list)
    """The pieces of the snapshot that a leader sends, and of earlier ones, each with the index of its snapshot."""

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
                self.staged.clear()
            assert len(self.staged) == piece.place
            self.staged += [(piece.index, piece.data)] if piece.index else []
        if (snapshot := persist.snapshot) is not None:
            del self.entries[: snapshot.index - self.snapshot.index]
            self.snapshot = snapshot
            if changes is None:
                self.rows = with_pieces(self.rows, self.staged)
                self.staged.clear()
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
        return piece_of(sent_behind(part.rows, piece.after))

    def reopen(self) -> None:
        """The process ends. The next one knows no pieces of a leader's snapshot."""
        for part in self.parts.values():
            part.staged.clear()

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
        ends = [b"", *(key for key in part.rows if position_in(key) is None or is_body(key))]
        return ReadPiece(name, index, self.random.choice(ends))

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
            return Entry(term, entry(SetLife(term + 1, "a"), encode_proposal(Enqueue("queue", (), (), messages))))
        return Entry(term, self._bytes())

    def _bytes(self) -> bytes:
        return self.random.randbytes(self.random.choice((0, 10, 100, 1000, 5000)))

    def _members(self) -> Configuration:
        some = self.random.sample(MEMBERS, self.random.randint(1, 4))
        return Configuration(tuple(some[:3]), tuple(some[3:]), copies=tuple(one.router for one in some[3:]))

    def _append(self, name: str, part: ModelPart) -> list[StoreChange]:
        return [self._write(name, part.hard, part.last + 1, self._entries(part.hard.term, 5))]

    def _truncate(self, name: str, part: ModelPart) -> list[StoreChange]:
        first = self.random.randint(part.snapshot.index + 1, part.last + 1)
        hard = attrs.evolve(part.hard, term=part.hard.term + 1, vote=None)
        return [self._write(name, hard, first, self._entries(hard.term, 3))]

    def _elect(self, name: str, part: ModelPart) -> list[StoreChange]:
        vote = self.random.choice([None, *MEMBERS])
        life = part.hard.life or SetLife(self.random.randint(1, 1 << 62), "a")
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
        """A leader's snapshot begins, continues, gives way to a later one, is complete, or is of no use any more. It is
        later than what is decided here."""
        random, index = self.random, part.staged[-1][0] if part.staged else 0
        if part.staged and random.random() < 0.05:
            return [self._write(name, part.hard, part.last + 1, (), [NO_PIECES])]
        place = len(part.staged)
        if index <= part.snapshot.index or random.random() < 0.1:
            index, place = random.randint(part.snapshot.index + 1, part.last + 10), 0
        elif random.random() < 0.2:
            index += random.randint(0, 5)
        former = [row for _, piece in part.staged[:place] for row in read_piece(piece)]
        positions = [at for key, _ in former if not is_body(key) and (at := position_in(key)) is not None]
        keys = [key for one, piece in part.staged[:place] if one == index for key, _ in read_piece(piece)]
        messages: list[tuple[bytes, bytes]] = []
        if not any(position_in(key) is None for key in keys):  # messages come first
            messages = self._messages(part, max(positions, default=position_of(random.randint(1, index), 0)), index)
        if random.random() < 0.5:
            rows = messages or self._others()
            return [self._write(name, part.hard, part.last + 1, (), [StagedPiece(index, place, piece_of(rows)[0])])]
        positions += [at for key, _ in messages if not is_body(key) and (at := position_in(key)) is not None]
        first = min(positions, default=position_of(index + 1, 0))
        own = [at for key in part.rows if not is_body(key) and (at := position_in(key)) is not None and at < first]
        there = sorted(self._some_messages(sorted(own)) + self._some_messages(positions))
        rows = [*messages, *map(run_row, runs_of(there)), *self._others()]
        snapshot = Snapshot(index, part.hard.term, self._members())
        piece = StagedPiece(index, place, piece_of(rows)[0])
        return [self._write(name, part.hard, index + 1, (), [piece], snapshot)]

    def _messages(self, part: ModelPart, behind: int, index: int) -> list[tuple[bytes, bytes]]:
        """Messages behind this position, of entries up to this index. No snapshot has another body for one of them."""
        rows: list[tuple[bytes, bytes]] = []
        for _ in range(self.random.randint(0, 3)):
            behind += self.random.choice((1, 1, 2, MOST_PLACES))
            if part.snapshot.index < index_of(behind) <= index:
                rows += rows_of(behind, self._bytes())
            elif (body := part.rows.get(body_key(behind))) is not None:
                rows += rows_of(behind, body)
        return rows

    def _others(self) -> list[tuple[bytes, bytes]]:
        """Rows that are of no message. All keys of a snapshot differ."""
        self._number += 1
        return [(b"%d-%d" % (self._number, one), self._row()[1]) for one in range(self.random.randint(0, 3))]
