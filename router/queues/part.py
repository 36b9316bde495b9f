"""What a store has of one set, as rows.

| table | key | columns |
| --- | --- | --- |
| `part` | place of the set | all but entries and pieces: `Part.pack` |
| `entry` | place and index | term, data, members |
| `piece` | place, slot and number | data |

The row of a part is written with each change of it, and has the sum of its entries and pieces. So a page of the file
that is older than the others, or is another page, does not agree with the row, although each of its own rows is whole.
A state keeps its slot when it becomes the snapshot: nothing is copied.
"""

from array import array
from itertools import count
from typing import Any, Final

import attrs
import msgpack

from router.disk.rows import summed
from topic.raft.configuration import Configuration, Replica
from topic.raft.log import NOTHING, Entry, Snapshot
from topic.raft.messages import Hard

PLACE: Final = 48
"""Bits of an index: above them a key has the place of its set."""
PLACES: Final = 1 << 15
"""Sets that a store may have: a key has 63 bits."""
SLOT: Final = 32
"""Bits of the number of a piece: above them the key has the slot of its state."""

Row = tuple[Any, ...]


@attrs.frozen(slots=True)
class StoredState:
    """A state of a set, in pieces."""

    slot: int
    count: int = 0
    total: int = 0
    """Sum of the checksums of its rows."""


@attrs.define(slots=True)
class Part:
    """One set's part of the store."""

    file: bytes
    """The identity of the store's file."""
    place: int
    name: str
    store: bytes
    """Its identity."""
    number: int = 0
    """The number of its last change. It goes on when the part begins anew."""
    hard: Hard = attrs.Factory(Hard)
    snapshot: Snapshot = NOTHING
    state: StoredState | None = None
    """The state at the snapshot; None if that is nothing."""
    aside: dict[int, StoredState] = attrs.Factory(dict)
    """States that may become the snapshot, by index."""
    staged: int = 0
    """Index of the one of these that a leader sends; 0: there is none."""
    sums: "array[int]" = attrs.Factory(lambda: array("I"))
    """Checksums of the rows of the entries behind the snapshot."""
    total: int = 0
    """Their sum."""

    @property
    def last(self) -> int:
        return self.snapshot.index + len(self.sums)

    @property
    def keys(self) -> tuple[int, int]:
        """The first and the last that a row of this set may have, in each table."""
        return keys_of(self.place)

    def key(self, index: int) -> int:
        """The key of an entry."""
        assert 0 < index < 1 << PLACE, f"entry {index} of set {self.name}: expected an index below 2^{PLACE}"
        return (self.place << PLACE) + index

    def piece_key(self, state: StoredState, number: int) -> int:
        return (self.place << PLACE) + (state.slot << SLOT) + number

    def free_slot(self) -> int:
        used = {state.slot for state in self.states}
        return next(slot for slot in count() if slot not in used)

    @property
    def states(self) -> list[StoredState]:
        return [*self.aside.values(), *([] if self.state is None else [self.state])]

    def append(self, entry: Entry) -> Row:
        """The row of an entry that follows the last one."""
        members = None if entry.configuration is None else msgpack.packb(_packed(entry.configuration))
        row = summed(self.key(self.last + 1), entry.term, entry.data, members)
        self.sums.append(row[-1])
        self.total += row[-1]
        return row

    def has_entry(self, row: Row) -> bool:
        """Whether the row, which is whole, is one of the entries."""
        place = row[0] - self.key(self.snapshot.index + 1)
        return bool(0 <= place < len(self.sums) and self.sums[place] == row[-1])

    def truncate(self, first: int) -> None:
        """Remove the entries from this index on."""
        place = first - self.snapshot.index - 1
        assert 0 <= place <= len(self.sums), f"entry {first} of set {self.name}: the last one is {self.last}"
        self.total -= sum(self.sums[place:])
        del self.sums[place:]

    def compact(self, snapshot: Snapshot) -> None:
        """Let the state that was put aside for this index stand for the entries up to it."""
        gone = snapshot.index - self.snapshot.index
        self.total -= sum(self.sums[:gone])
        del self.sums[:gone]
        self.state = self.aside.pop(snapshot.index)
        self.snapshot = snapshot

    def row(self) -> Row:
        hard, snapshot = self.hard, self.snapshot
        vote = None if hard.vote is None else [hard.vote.router, hard.vote.store]
        packed = [
            *(self.file, self.name, self.store, self.number),
            [hard.life, hard.mapping, hard.begun, hard.term, vote],
            [snapshot.index, snapshot.term, _packed(snapshot.configuration)],
            None if self.state is None else attrs.astuple(self.state),
            [[index, *attrs.astuple(state)] for index, state in self.aside.items()],
            *(self.staged, len(self.sums), self.total),
        ]
        return summed(self.place, msgpack.packb(packed))


def keys_of(place: int) -> tuple[int, int]:
    return place << PLACE, ((place + 1) << PLACE) - 1


def read_part(place: int, packed: bytes) -> tuple[Part, int, int]:
    """The part that a whole row has, without its entries; how many these are, and the sum of their checksums."""
    file, name, store, number, hard, snapshot, state, aside, staged, entries, total = msgpack.unpackb(packed)
    life, mapping, begun, term, vote = hard
    index, index_term, members = snapshot
    part = Part(
        *(file, place, name, store, number),
        Hard(life, mapping, begun, term, None if vote is None else Replica(*vote)),
        Snapshot(index, index_term, _configuration(members)),
        None if state is None else StoredState(*state),
        {index: StoredState(*one) for index, *one in aside},
        staged,
    )
    return part, entries, total


def read_entry(row: Row) -> Entry:
    """The entry that a row has, which is whole."""
    _, term, data, members, _ = row
    return Entry(term, data, None if members is None else _configuration(msgpack.unpackb(members)))


def _packed(configuration: Configuration) -> list[Any]:
    members = (configuration.voters, configuration.learners)
    return [*([[one.router, one.store] for one in some] for some in members), list(configuration.ring)]


def _configuration(packed: list[Any]) -> Configuration:
    voters, learners, ring = packed
    return Configuration(tuple(Replica(*one) for one in voters), tuple(Replica(*one) for one in learners), tuple(ring))
