"""One set's part of a store, as rows.

| table | key | columns |
| --- | --- | --- |
| `part` | place of the set | all but entries, rows and pieces: `Part.row` |
| `entry` | place and index | term, data, members: an entry of the log, or one before it that has bodies of the state |
| `row` | place and key | value: a row of the state at the snapshot, other than the body of a message |
| `body` | place and key | value: the body of a message at the snapshot that no row of `entry` has |
| `piece` | place and number | a piece of a leader's snapshot, until all of them are there |

The store writes the row of a part with each change of the part. This row has the sums of the checksums of the part's
entries, rows and pieces. So the store notices a page of the file that is older than the other pages, or stands in the
place of another page, although each row of the page is whole. The row of the part has only the number of the bodies,
and of the entries before the log. The rows about messages have the digests of the bodies.

The body of a message is written once, with the entry that has enqueued the message. When the snapshot passes the entry,
the store keeps the entry as long as the state has at least one of its messages. When these messages are less than a
quarter of the entry's bytes, each of them gets a row of `body`, and the store deletes the entry. So a message that no
consumer takes keeps only few bytes of other messages on the disk.
"""

from array import array
from typing import Any, Final

import attrs
import msgpack

from router.disk.rows import summed
from topic.raft.configuration import Configuration, Replica
from topic.raft.life import read_life
from topic.raft.log import NOTHING, Entry, Snapshot
from topic.raft.messages import Hard

PLACE: Final = 48
"""The low bits of a key, which hold the index of an entry. The bits above them hold the place of the set."""
PLACES: Final = 1 << 15
"""The highest number of sets of a store, because a key has only 63 bits."""
_PREFIX: Final = 2
"""The bytes at the beginning of the key of a state's row that have the place of the set."""

KEYED: Final = ("row", "body")
"""The tables whose keys are bytes."""

Row = tuple[Any, ...]


@attrs.define(slots=True)
class RowSums:
    """The number of a set's rows in a table, and the sum of their checksums."""

    count: int = 0
    total: int = 0

    def add(self, checksum: int) -> None:
        self.count += 1
        self.total += checksum

    def remove(self, checksum: int) -> None:
        self.count -= 1
        self.total -= checksum


@attrs.define(slots=True)
class Part:
    """One set's part of the store."""

    file: bytes
    """The identity of the file of this store."""
    place: int
    name: str
    store: bytes
    """The identity of the store of this set, which tells the other replicas when the set's part has begun anew."""
    number: int = 0
    """The number of the last change of this set. It goes on rising when the part begins anew."""
    hard: Hard = attrs.Factory(Hard)
    snapshot: Snapshot = NOTHING
    rows: RowSums = attrs.Factory(RowSums)
    """The rows of the state at the snapshot, without the bodies."""
    bodies: int = 0
    """The number of bodies of the snapshot that have a row of their own, in the table `body`."""
    kept: int = 0
    """The number of entries before the log that have bodies of the snapshot."""
    pieces: RowSums = attrs.Factory(RowSums)
    """The rows of the table `piece`: pieces of the snapshot that a leader sends. Pieces of earlier snapshots may come
    before them."""
    staged: tuple[int, int] = (0, 0)
    """The index of the snapshot that the leader sends, and the number of its first piece. The store keeps these numbers
    only in memory, because the next process does not use the stored pieces."""
    sums: "array[int]" = attrs.Factory(lambda: array("I"))
    """The checksums of the rows of all entries that follow the snapshot."""
    total: int = 0
    """The sum of the checksums in `sums`."""

    @property
    def last(self) -> int:
        return self.snapshot.index + len(self.sums)

    def key(self, index: int) -> int:
        """The key of an entry."""
        assert 0 < index < 1 << PLACE, f"entry {index} of set {self.name}: expected an index below 2^{PLACE}"
        return (self.place << PLACE) + index

    def row_key(self, key: bytes) -> bytes:
        """The key of a row of the state."""
        return _prefix(self.place) + key

    def piece_key(self, number: int) -> int:
        return (self.place << PLACE) + number

    def append(self, entry: Entry) -> Row:
        """Add an entry after the last one. Returns its row."""
        members = None if entry.configuration is None else msgpack.packb(_packed(entry.configuration))
        row = summed(self.key(self.last + 1), entry.term, entry.data, members)
        self.sums.append(row[-1])
        self.total += row[-1]
        return row

    def has_entry(self, row: Row) -> bool:
        """Whether this row, which is undamaged, is one of the part's entries. Always true for an entry before the log:
        it is kept only for its bodies, and the part has no sum of it."""
        place = row[0] - self.key(self.snapshot.index + 1)
        return place < 0 or bool(place < len(self.sums) and self.sums[place] == row[-1])

    def truncate(self, first: int) -> None:
        """Remove the entries from this index on."""
        place = first - self.snapshot.index - 1
        assert 0 <= place <= len(self.sums), f"entry {first} of set {self.name}: the last one is {self.last}"
        self.total -= sum(self.sums[place:])
        del self.sums[place:]

    def compact(self, snapshot: Snapshot) -> None:
        """Replace the entries up to the snapshot's index by the rows of the state."""
        gone = snapshot.index - self.snapshot.index
        self.total -= sum(self.sums[:gone])
        del self.sums[:gone]
        self.snapshot = snapshot

    def row(self) -> Row:
        hard, snapshot = self.hard, self.snapshot
        vote = None if hard.vote is None else [hard.vote.router, hard.vote.store]
        packed = [
            *(self.file, self.name, self.store, self.number),
            [hard.life.parts, hard.mapping, hard.begun, hard.term, vote],
            [snapshot.index, snapshot.term, _packed(snapshot.configuration)],
            *(attrs.astuple(self.rows), self.bodies, self.kept, attrs.astuple(self.pieces)),
            *(len(self.sums), self.total),
        ]
        return summed(self.place, msgpack.packb(packed))


def keys_of(table: str, place: int) -> tuple[Any, Any]:
    """The least and the greatest key of this set's rows in a table."""
    if table == "part":
        return place, place
    if table in KEYED:
        return _prefix(place), _prefix(place + 1)
    return place << PLACE, ((place + 1) << PLACE) - 1


def place_of(table: str, key: Any) -> int:
    """The number of the set to which the row with this key belongs. The table `part` has this number for each set."""
    if table in KEYED:
        return int.from_bytes(key[:_PREFIX])
    return int(key) if table == "part" else int(key) >> PLACE


def _prefix(place: int) -> bytes:
    return place.to_bytes(_PREFIX)


def read_part(place: int, packed: bytes) -> tuple[Part, int, int]:
    """Unpack the part from a whole row, without its entries. Returns also the number of entries, and the sum of their
    checksums."""
    file, name, store, number, hard, snapshot, rows, bodies, kept, pieces, entries, total = msgpack.unpackb(packed)
    life, mapping, begun, term, vote = hard
    index, index_term, members = snapshot
    part = Part(
        *(file, place, name, store, number),
        Hard(read_life(life), mapping, begun, term, None if vote is None else Replica(*vote)),
        Snapshot(index, index_term, _configuration(members)),
        RowSums(*rows),
        bodies,
        kept,
        RowSums(*pieces),
    )
    return part, entries, total


def read_entry(row: Row) -> Entry:
    """Unpack the entry from a whole row."""
    _, term, data, members, _ = row
    return Entry(term, data, None if members is None else _configuration(msgpack.unpackb(members)))


def _packed(configuration: Configuration) -> list[Any]:
    members = [[[one.router, one.store] for one in some] for some in (configuration.voters, configuration.learners)]
    return [*members, list(configuration.ring), list(configuration.copies)]


def _configuration(packed: list[Any]) -> Configuration:
    voters, learners = (tuple(Replica(*one) for one in some) for some in packed[:2])
    ring, copies = map(tuple, packed[2:])
    return Configuration(voters, learners, ring, copies)
