"""The store of a router's replica sets, in DIR/<router>/queues.db (protocol 13.5): one file of SQLite for all sets.

A write is one transaction in the write-ahead log. It returns when the transaction is on the disk; then the mark beside
the file names it. A failed write is never tried again, because the kernel may have dropped the data, and may report
success the next time.

A store that may have lost acknowledged changes must not vote. So when the file is opened, each part that differs from
what was written gets another identity. Its former content is kept under another name:

| what is found | what gets another identity | how it is found |
| --- | --- | --- |
| no file, an empty one, a damaged page | the file: all sets | by SQLite |
| a gap in the write-ahead log | the file | `router/disk/wal.py`, before SQLite opens the file |
| a store that went on after this one | the file | the mark has the identity of another file |
| writes that were not synced, and the machine has started again | the file | the row of the store has the boot id |
| a row that is damaged, missing, or of another time | the set | checksums of the rows; the set's row has their sum |
| less than was acknowledged | the set | the mark has a higher number |

While the router runs, `scrub` reads all rows again, a few at a time: a replica whose row is found damaged begins anew
while the other replicas are whole.

One loss stays undetected: a power failure cuts the write-ahead log between two transactions, and destroys the mark as
well. A leader that remembers the acknowledgement notices this (`Distrust`). A file of another router, or of another
version of this program, is refused.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain, count, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import attrs
import msgpack

from router.disk.room import check_room
from router.disk.rows import is_whole, summed
from router.disk.sqlite import DamagedError, FileForm, SqliteFile, Statement, UnusableError
from router.mesh.errors import RunError
from router.queues.mark import Mark, MarkFile, read_mark
from router.queues.part import KEYED, PLACES, Part, Row, RowSums, keys_of, place_of, read_entry, read_part
from topic.queues.bodies.message_rows import (
    AFTER_MESSAGES,
    MESSAGE,
    about_key,
    body_key,
    is_body,
    message_about,
    position_in,
)
from topic.queues.copying.pieces import Section, SnapshotRuns, piece_of, read_piece, run_end, run_row, section_of
from topic.queues.positions import index_of, position_of, runs_of
from topic.queues.rows import Changes, PackedRows
from topic.queues.state import messages_of
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, Renew, SetContent, StoreChange, Write
from topic.raft.log import Entry, Snapshot
from topic.raft.messages import StagedPiece, StoreContent

MERGE: Final = 4 << 20
"""The bytes of changes after which the write-ahead log is merged into the file."""
CHANGED: Final = 3 * 4096
"""About how many bytes a transaction writes to the write-ahead log for each changed set, besides the change itself: a
few pages."""
LOOSE: Final = 1024
"""The number of free pages by which a file's free pages may exceed its used pages."""
VACUUM: Final = 1024
"""The highest number of free pages that one merge gives back to the file system."""
SCRUBBED: Final = {"entry": 4000, "row": 4000, "body": 4000, "piece": 64}
"""The highest number of rows of each table that one scrub reads. The tables are read in this order."""
IN_RUNS: Final = 20_000
"""The highest number of messages in the runs of one piece of a snapshot. A run is a row of messages with consecutive
positions."""
SCRUBBED_BYTES: Final = 16 << 20
"""About how many bytes one scrub reads. It may exceed this number by one row."""
STORE: Final = "queues.db"
"""The name of the file, in the folder of its router."""
SUFFIXES: Final = ("", "-wal", "-mark")
"""The suffixes by which the names of a store's files differ."""

_PART: Final = "REPLACE INTO part VALUES (?, ?, ?)"
_ENTRY: Final = "INSERT INTO entry VALUES (?, ?, ?, ?, ?)"
_ROW: Final = "INSERT INTO row VALUES (?, ?, ?)"
_NO_ROWS: Final = "DELETE FROM row WHERE key BETWEEN ? AND ? RETURNING sum"
_BODY: Final = "INSERT INTO body VALUES (?, ?, ?)"
_NO_BODIES: Final = "DELETE FROM body WHERE key BETWEEN ? AND ?"
_PIECE: Final = "INSERT INTO piece VALUES (?, ?, ?)"
_OWN: Final = "INSERT INTO store VALUES (?, ?)"
_OWN_ANEW: Final = "UPDATE store SET (packed, sum) = (?, ?)"
_INSERTS: Final = {"part": _PART, "entry": _ENTRY, "row": _ROW, "body": _BODY, "piece": _PIECE}
"""Maps each table of sets to the statement that inserts a row into it."""
FORM: Final = FileForm(
    name="a store of replica sets",
    application=0x6F6E6371,  # the bytes of "oncq", by which SQLite files of this kind are recognised
    version=9,
    tables=(
        "CREATE TABLE store (packed BLOB, sum INTEGER)",
        "CREATE TABLE part (key INTEGER PRIMARY KEY, packed BLOB, sum INTEGER)",
        "CREATE TABLE entry (key INTEGER PRIMARY KEY, term INTEGER, data BLOB, members BLOB, sum INTEGER)",
        "CREATE TABLE row (key BLOB PRIMARY KEY, value BLOB, sum INTEGER) WITHOUT ROWID",
        # The table keeps its rowids. Without them, SQLite would need an extra page for the end of each row of 1 kB.
        "CREATE TABLE body (key BLOB PRIMARY KEY, value BLOB, sum INTEGER)",
        "CREATE TABLE piece (key INTEGER PRIMARY KEY, data BLOB, sum INTEGER)",
    ),
    settings=(
        *("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 0"),
        f"journal_size_limit = {4 * MERGE}",
        # `secure_delete` is off: otherwise SQLite would write each freed page again.
        "secure_delete = OFF",
    ),
    held="locked: another running process uses it",
    is_shared=False,
    shape=("auto_vacuum = INCREMENTAL",),
    is_synced=True,
)


class Sync(Enum):
    """The condition under which a write counts as done."""

    DISK = "disk"
    """The disk has the write."""
    MEMORY = "memory"
    """The kernel has the write. It survives the end of the process, but not a crash of the machine."""


class QueueStoreError(RunError):
    """The store cannot be used, or has failed: the process has to end."""


class FullError(RunError):
    """The disk has no room. Nothing was written, so the same changes may be written later."""


@attrs.frozen
class _Owner:
    """The contents of the table `store`, which has one row."""

    mesh: str
    router: str
    file: bytes
    """The identity of the file."""
    boot: str
    """The boot id of the machine when the store was last opened."""
    sync: str
    is_closed: bool
    """Whether the store was closed in order, so that the disk has all of it."""

    def row(self) -> Row:
        return summed(msgpack.packb(attrs.astuple(self)))


class QueueStore:
    """A `SetStore`, held by one process. Any thread may use it, but only one at a time."""

    def __init__(
        self,
        path: Path,
        mesh: str,
        router: str,
        sets: Collection[str],
        sync: Sync,
        boot_id: str,
        new_store: Callable[[], bytes],
    ) -> None:
        """`new_store` returns a random identity for a new store of a set. Raises QueueStoreError if the file is another
        router's, or cannot be used."""
        self.notes: list[str] = []
        """Sentences for the log about parts that were set aside."""
        self.contents: dict[str, SetContent] = {}
        """The content of each set when the store was opened. It costs memory: the caller empties it when the replicas
        have begun.
        """
        self._path = path
        self._new_store = new_store
        self._owner = _Owner(mesh, router, b"", boot_id, sync.value, is_closed=False)
        self._parts: dict[str, Part] = {}
        """All parts in the file. Some may belong to sets that the topology no longer has."""
        self._unmerged = 0
        self._scrubbed: tuple[str, Any] = ("entry", -1)
        """The table and the key of the last row that was scrubbed."""
        self._is_sound = True
        with self._explained():
            try:
                self._open(sets)
            except DamagedError as error:
                begin = f"{path}: all replica sets begin anew here, and the former file is set aside: {error.reason}"
                self.notes.append(f"{begin}. {self._set_aside()}")
                self._open(sets)
        if sync is Sync.MEMORY:
            self._connection.execute("PRAGMA synchronous = OFF")

    # The methods from here on open the store.

    def _open(self, sets: Collection[str]) -> None:
        """Open the file. Raises UnusableError and OSError."""
        self._parts.clear()
        self._owner = attrs.evolve(self._owner, file=self._new_store())
        left = [f"{self._path}{suffix}" for suffix in SUFFIXES if os.path.exists(f"{self._path}{suffix}")]
        if left and not self._path.exists():
            raise DamagedError(f"it is missing, but {left[0]} is there")
        self._file = SqliteFile(self._path, FORM, [(_OWN, self._owner.row())])
        self._connection = self._file.connection
        try:
            with self._file.explained():
                # Read texts as `bytes`.
                # The tables have no texts, so a damaged value gives a wrong checksum instead of a decoding error.
                self._connection.text_factory = bytes
                mark = read_mark(self._mark_path)
                self._check_owner(mark)
                with self._file.transaction():
                    self._load(sets, mark.numbers if mark is not None else {})
                    self._connection.execute(_OWN_ANEW, self._owner.row())
                # Write the content to the disk before a replica acts on it.
                self._checkpoint("TRUNCATE")
                _sync_folder(self._path.parent)
                self._mark_file = MarkFile(self._mark_path)
                self._write_mark()
        except BaseException:
            self._file.close()
            raise

    @property
    def _mark_path(self) -> Path:
        return Path(f"{self._path}-mark")

    def _check_owner(self, mark: Mark | None) -> None:
        execute = self._connection.execute
        made = [sql.encode() for sql in FORM.tables]
        if [sql for (sql,) in execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL ORDER BY rowid")] != made:
            raise DamagedError("damaged: its tables are not those that were made")
        rows = execute("SELECT * FROM store").fetchall()
        if len(rows) != 1 or not is_whole(rows[0]):
            raise DamagedError("damaged: its owner does not match its checksum")
        found, owner = _Owner(*msgpack.unpackb(rows[0][0])), self._owner
        if (found.mesh, found.router) != (owner.mesh, owner.router):
            expected = f"{owner.router} of {owner.mesh}"
            raise UnusableError(f"it belongs to router {found.router} of mesh {found.mesh}, expected {expected}")
        if mark is not None and mark.file != found.file:
            raise DamagedError("an earlier one: another file was used since")
        if found.sync == Sync.MEMORY.value and not found.is_closed and found.boot != owner.boot:
            raise DamagedError("not on the disk: the machine has started again, and `sync: memory` was set")
        self._owner = attrs.evolve(owner, file=found.file)

    def _load(self, sets: Collection[str], marked: Mapping[str, int]) -> None:
        """Read all parts. A set of `sets` begins with an empty part if its part is missing, or differs from what was
        written."""
        entries: dict[str, tuple[int, int]] = {}
        for row in self._connection.execute("SELECT * FROM part"):
            if is_whole(row):
                part, *expected = read_part(*row[:2])
                if part.file != self._owner.file:
                    raise DamagedError("damaged: it has a row of another file")
                self._parts[part.name] = part
                entries[part.name] = expected[0], expected[1]
        self._put_lost_aside()
        places = (place for place in count() if place not in {part.place for part in self._parts.values()})
        for name in sets:
            if name not in self._parts:
                if name in marked:
                    self.notes.append(f"{self._path}: replica set {name} begins anew here, because its row is lost")
                self._begin(Part(self._owner.file, next(places), name, self._new_store(), marked.get(name, 0)))
                continue
            part = self._parts[name]
            try:
                if part.number < marked.get(name, 0):
                    newest = f"its newest change in the file has number {part.number}"
                    raise DamagedError(f"{newest}, expected number {marked[name]} or a later one")
                self._read(part, *entries[name])
            except DamagedError as error:
                part.number = max(part.number, marked.get(name, 0))
                self._renew(part, self._new_store(), error.reason)

    def _put_lost_aside(self) -> None:
        """Set aside the rows of sets whose own row is damaged or missing."""
        known = {part.place for part in self._parts.values()}
        for place in sorted({place for table in _INSERTS for place in self._places(table)} - known):
            kept = self._keep(place, f"place-{place}")
            self._delete_all(place)
            self.notes.append(f"{self._path}: the row of a replica set does not match its checksum. {kept}")

    def _places(self, table: str) -> Iterator[int]:
        """The places of the sets that have rows in the table."""
        last = _first_key(table)
        while row := self._connection.execute(
            f"SELECT key FROM {table} WHERE key > ? ORDER BY key LIMIT 1", (last,)
        ).fetchone():
            place = place_of(table, row[0])
            if place >= PLACES:
                raise DamagedError(f"damaged: table {table} has a row of no set")
            yield place
            last = keys_of(table, place)[1]

    def _read(self, part: Part, entries: int, total: int) -> None:
        """Read the rows of this part. Raises DamagedError if they differ from what was written."""
        read: list[Entry] = []
        first, last = part.key(part.snapshot.index + 1), keys_of("entry", part.place)[1]
        for index, row in enumerate(self._select("entry", first, last), part.snapshot.index + 1):
            if not is_whole(row) or row[0] != part.key(index):
                raise DamagedError(f"the row of entry {index} is missing, or does not match its checksum")
            read.append(read_entry(row))
            part.sums.append(row[-1])
            part.total += row[-1]
        if (len(read), part.total) != (entries, total):
            raise DamagedError(f"there are {len(read)} entries, expected {entries}, or some are of another time")
        rows = PackedRows(self._read_rows(part))
        for what, table, keys, expected in (
            ("bodies", "body", keys_of("body", part.place), part.bodies),
            ("entries with bodies", "entry", (part.key(1), first - 1), part.kept),
        ):
            count = f"SELECT count(*) FROM {table} WHERE key BETWEEN ? AND ?"
            [there] = self._connection.execute(count, keys).fetchone()
            if there != expected:
                raise DamagedError(f"its state has {there} {what}, expected {expected}")
        # Delete the pieces, because the new replica does not know what they contain.
        if part.pieces.count:
            self._drop_pieces(part)
            self._put(part)
        self.contents[part.name] = SetContent(part.store, StoreContent(part.hard, part.snapshot, tuple(read)), rows)

    def _read_rows(self, part: Part) -> Iterator[tuple[bytes, bytes]]:
        found, prefix = RowSums(), len(part.row_key(b""))
        for row in self._select("row", *keys_of("row", part.place)):
            if not is_whole(row):
                raise DamagedError("a row of its state does not match its checksum")
            found.add(row[-1])
            yield row[0][prefix:], row[1]
        if found != part.rows:
            raise DamagedError(f"its state has {found.count} rows, expected {part.rows.count}, or some of another time")

    def _select(self, table: str, first: Any, last: Any) -> Iterator[Row]:
        """The rows with these keys, in the order of the keys."""
        found = self._connection.execute(f"SELECT * FROM {table} WHERE key BETWEEN ? AND ? ORDER BY key", (first, last))
        return iter(found)

    # The methods from here on are about parts of sets.

    def _begin(self, part: Part) -> None:
        """Add an empty part."""
        self._parts[part.name] = part
        self._put(part)
        self.contents[part.name] = SetContent(part.store, StoreContent(), PackedRows())

    def _renew(self, part: Part, store: bytes, why: str) -> None:
        """Keep the rows of this part in a file of their own, and begin with an empty part."""
        kept = self._keep(part.place, quote(part.name, safe=""))
        self._delete_all(part.place)
        self._begin(Part(part.file, part.place, part.name, store, part.number))
        self.notes.append(f"{self._path}: replica set {part.name} begins anew here, because {why}. {kept}")

    def _keep(self, place: int, name: str) -> str:
        """Copy all rows of a set into a file of their own, unchanged. Returns a sentence with the file's path."""
        former = _free(Path(f"{self._path}.{name}"))
        SqliteFile(former, FORM, self._copied(place)).close()
        return f"Its former content is kept in {former}"

    def _copied(self, place: int) -> Iterator[Statement]:
        yield _OWN, self._owner.row()
        for table, insert in _INSERTS.items():
            yield from ((insert, row) for row in self._select(table, *keys_of(table, place)))

    def _delete_all(self, place: int) -> None:
        for table in _INSERTS:
            self._delete(table, *keys_of(table, place))

    def _put(self, part: Part) -> None:
        part.number += 1
        self._connection.execute(_PART, part.row())

    # The methods from here on write changes.

    def write(self, changes: Sequence[StoreChange]) -> None:
        """Write all these changes or none, in this order. Returns when they are on the disk.

        Raises FullError before it writes, if the disk has no room. Raises QueueStoreError if the write fails: this
        store then writes nothing any more."""
        if not self._is_sound:
            raise QueueStoreError(f"{self._path}: the store of replica sets has failed before, so it writes nothing")
        size = sum(map(self._written, changes))
        try:
            # Demand the room twice, because each change is written to the write-ahead log and to the file.
            check_room(self._path, size=2 * size)
        except OSError as error:
            raise FullError(f"{self._path}: replica sets cannot be stored: {error.strerror}") from None
        self._is_sound = False
        try:
            with self._file.transaction():
                changed = {change.set: self._parts[change.set] for change in changes}
                for change in changes:
                    self._do(self._parts[change.set], change)
                for name in changed:
                    self._put(self._parts[name])
            self._write_mark()
        except (sqlite3.Error, OSError, UnusableError) as error:
            raise QueueStoreError(f"{self._path}: replica sets cannot be stored: {error}") from error
        self._is_sound = True
        self._unmerged += size + CHANGED * len(changed)

    def _written(self, change: StoreChange) -> int:
        """About how many bytes the change writes. A body is not counted if the log still has the entry that brought it,
        because such a body is not written again."""
        size = size_of(change)
        if isinstance(change, Write) and change.changes:
            part = self._parts[change.set]
            there = range(part.snapshot.index + 1, part.last + 1)
            bodies = ((key, value) for key, value in change.changes.items() if value is not None and is_body(key))
            size -= sum(len(value) for key, value in bodies if index_of(position_in(key) or 0) in there)
        return size

    def _do(self, part: Part, change: StoreChange) -> None:
        match change:
            case Write():
                self._persist(part, change)
            case Renew(store=store, why=why):
                self._put(part)
                self._renew(part, store, why)

    def _persist(self, part: Part, write: Write) -> None:
        persist = write.persist
        part.hard = persist.hard
        for piece in persist.pieces:
            self._put_aside(part, piece)
        if persist.snapshot is not None:
            self._move_snapshot(part, persist.snapshot, write.changes)
        if persist.first <= part.last:
            self._delete("entry", part.key(persist.first), part.key(part.last))
        part.truncate(persist.first)
        self._connection.executemany(_ENTRY, map(part.append, persist.entries))

    def _move_snapshot(self, part: Part, snapshot: Snapshot, changes: Changes | None) -> None:
        """Replace the entries up to a later index by rows of the state. `changes`: as in `Write`."""
        passed = range(part.snapshot.index + 1, min(part.last, snapshot.index) + 1)
        part.compact(snapshot)
        if changes is None:
            self._delete("entry", part.key(passed.start), part.key(snapshot.index))
            self._restore(part)
            return
        kept = self._change_rows(part, changes, passed)
        part.kept += len(kept)
        for before, following in pairwise((passed.start - 1, *sorted(kept), passed.stop)):
            if following - before > 1:
                self._delete("entry", part.key(before + 1), part.key(following - 1))

    def _change_rows(self, part: Part, changes: Changes, passed: range) -> set[int]:
        """Change the rows of the state. `passed`: the indices of the entries in the file that the snapshot passes.
        Returns the indices of the entries among them that have bodies of the state."""
        fresh: list[Row] = []
        kept: set[int] = set()
        gone: dict[str, list[int]] = {table: [] for table in KEYED}
        for key, value in changes.items():
            position = position_in(key)
            if position is None or (value is not None and index_of(position) not in passed):
                self._change_row(part, key, value)
            elif value is None:
                gone["body" if is_body(key) else "row"].append(position)
            elif is_body(key):
                kept.add(index_of(position))
            else:
                fresh.append(summed(part.row_key(key), value))
        self._connection.executemany(_ROW, fresh)
        for row in fresh:
            part.rows.add(row[-1])
        for first, last in runs_of(sorted(gone["row"])):
            self._delete_rows(part, about_key(first), about_key(last))
        for first, last in runs_of(sorted(gone["body"])):
            self._delete_bodies(part, body_key(first), body_key(last))
        for index in sorted({index_of(position) for position in gone["body"]}):
            if index not in passed:
                self._thin_out(part, index)
        return kept

    def _change_row(self, part: Part, key: bytes, value: bytes | None) -> None:
        (self._delete_bodies if is_body(key) else self._delete_rows)(part, key, key)
        if value is not None:
            self._add_row(part, key, value)

    def _delete_rows(self, part: Part, first: bytes, last: bytes) -> None:
        self._delete_keys(part, part.row_key(first), part.row_key(last))

    def _delete_keys(self, part: Part, first: bytes, last: bytes) -> None:
        found = self._connection.execute(_NO_ROWS, (first, last))
        for (checksum,) in found.fetchall():
            part.rows.remove(checksum)

    def _delete_bodies(self, part: Part, first: bytes, last: bytes) -> None:
        part.bodies -= self._connection.execute(_NO_BODIES, (part.row_key(first), part.row_key(last))).rowcount

    def _thin_out(self, part: Part, index: int) -> None:
        """Reduce an entry before the log, after messages of the entry are gone. If the state has no other messages of
        the entry, delete the entry. If it has few others, give each a row of its own in `body`, and delete the entry.
        If the entry or a row about its messages is damaged, the entry stays, and a later read of its bodies reports the
        damage."""
        first, following = position_of(index, 0), position_of(index + 1, 0)
        rows = [*self._select("row", *(part.row_key(about_key(at)) for at in (first, following - 1)))]
        size = self._connection.execute("SELECT length(data) FROM entry WHERE key = ?", (part.key(index),)).fetchone()
        if size is None or not all(map(is_whole, rows)):
            return
        left = dict(message_about(key.removeprefix(part.row_key(b"")), about) for key, about, _ in rows)
        messages = self._messages_of(part, index) if left and 4 * sum(left.values()) < size[0] else ()
        if not left or messages:
            self._delete("entry", part.key(index), part.key(index))
            part.kept -= 1
            for position in left:
                self._add_row(part, body_key(position), messages[position - first])

    def _add_row(self, part: Part, key: bytes, value: bytes) -> None:
        row = summed(part.row_key(key), value)
        if is_body(key):
            self._connection.execute(_BODY, row)
            part.bodies += 1
        else:
            self._connection.execute(_ROW, row)
            part.rows.add(row[-1])

    def _put_aside(self, part: Part, piece: StagedPiece) -> None:
        """Store a piece of a leader's snapshot in the file (`StagedPiece`)."""
        if not piece.place:
            self._drop_pieces(part)
        if not piece.index:
            return
        assert part.pieces.count == piece.place, "a piece is missing"
        if piece.index != part.staged[0]:
            part.staged = piece.index, piece.place
        row = summed(part.piece_key(piece.place), piece.data)
        self._connection.execute(_PIECE, row)
        part.pieces.add(row[-1])

    def _restore(self, part: Part) -> None:
        """Replace the state by the leader's snapshot. The rows of the snapshot come from the stored pieces. The leader
        has sent no messages that the replica had already: these are before the first message in the pieces, and stay. A
        piece that has no rows cannot be read. It is skipped, because the replica cannot read it either, and begins
        anew."""
        runs, others = self._tail(part)
        lowest, highest = keys_of("row", part.place)
        self._delete_keys(part, lowest, part.row_key(MESSAGE))
        self._delete_keys(part, part.row_key(AFTER_MESSAGES), highest)
        for key, value in others:
            self._add_row(part, key, value)
        self._delete_gone(part, runs)
        has = runs.reader()
        for key, value in self._staged(part):
            if has(key):
                self._add_row(part, key, value)
        self._drop_pieces(part)

    def _tail(self, part: Part) -> tuple[SnapshotRuns, list[tuple[bytes, bytes]]]:
        """The end of the snapshot that the leader has sent last: the runs, and the other rows. They are in the last
        pieces, after the messages."""
        tail: list[list[tuple[bytes, bytes]]] = []
        for number in range(part.pieces.count - 1, part.staged[1] - 1, -1):
            tail.append(self._piece(part, number))
            if tail[-1] and section_of(tail[-1][0][0]) is Section.MESSAGES:
                break
        runs, others = SnapshotRuns(), list[tuple[bytes, bytes]]()
        for key, value in chain.from_iterable(reversed(tail)):
            match section_of(key):
                case Section.RUNS:
                    with contextlib.suppress(ValueError):
                        runs.add(key, value)
                case Section.OTHERS:
                    others.append((key, value))
        return runs, others

    def _staged(self, part: Part) -> Iterator[tuple[bytes, bytes]]:
        """The rows about messages in the stored pieces."""
        rows = chain.from_iterable(self._piece(part, number) for number in range(part.pieces.count))
        return ((key, value) for key, value in rows if section_of(key) is Section.MESSAGES)

    def _piece(self, part: Part, number: int) -> list[tuple[bytes, bytes]]:
        """The rows of a stored piece; empty if it cannot be read. Raises DamagedError if the piece is missing or
        damaged."""
        found = self._connection.execute("SELECT * FROM piece WHERE key = ?", (part.piece_key(number),)).fetchone()
        if found is None or not is_whole(found):
            raise DamagedError("a piece of a leader's snapshot does not match its checksum")
        try:
            return read_piece(found[1])
        except ValueError:
            return []

    def _delete_gone(self, part: Part, runs: SnapshotRuns) -> None:
        """Delete all messages that the leader's snapshot lacks, and all messages that are in its pieces."""
        first = next((key for key, _ in self._staged(part)), AFTER_MESSAGES)
        has = runs.reader()
        keys = self._message_keys(part, part.row_key(MESSAGE))
        gone = [position_in(key) or 0 for key in keys if key >= first or not has(key)]
        for run in runs_of(gone):
            self._delete_rows(part, *map(about_key, run))
            self._delete_bodies(part, *map(body_key, run))
        for index in sorted({index_of(position) for position in gone}):
            self._thin_out(part, index)

    def _message_keys(self, part: Part, low: bytes, most: int = -1) -> Iterator[bytes]:
        """The keys of the rows about messages that follow the key `low`. If `most` is not negative, at most this
        many."""
        select = "SELECT key FROM row WHERE key > ? AND key < ? ORDER BY key LIMIT ?"
        found = self._connection.execute(select, (low, part.row_key(AFTER_MESSAGES), most)).fetchall()
        return (key.removeprefix(part.row_key(b"")) for (key,) in found)

    def _drop_pieces(self, part: Part) -> None:
        self._delete("piece", *keys_of("piece", part.place))
        part.pieces, part.staged = RowSums(), (0, 0)

    def _delete(self, table: str, first: Any, last: Any) -> None:
        self._connection.execute(f"DELETE FROM {table} WHERE key BETWEEN ? AND ?", (first, last))

    def _write_mark(self) -> None:
        numbers = {name: part.number for name, part in self._parts.items()}
        self._mark_file.write(Mark(self._owner.file, numbers))

    def read(self, piece: ReadPiece) -> FoundPiece | None:
        """Read a piece of the snapshot; None if the snapshot is not at that index any more.

        Raises QueueStoreError if a row is damaged."""
        part = self._parts[piece.set]
        if part.snapshot.index != piece.index:
            return None
        with self._explained(), self._file.explained():
            return piece_of(self._rows_behind(part, piece.after), piece.size)

    def _rows_behind(self, part: Part, after: bytes) -> Iterator[tuple[bytes, bytes] | None]:
        """Yield the rows of the snapshot that follow the key `after`, in the order of `order_of`. A None in place of a
        row ends the piece."""
        section = section_of(after)
        if section is Section.MESSAGES:
            messages: dict[int, Sequence[bytes]] = {}
            for key, value in self._rows_between(part, part.row_key(after or MESSAGE), part.row_key(AFTER_MESSAGES)):
                yield key, value
                if (position := position_in(key)) is not None:
                    yield self._row_of_body(part, position, messages)
        if section is not Section.OTHERS:
            yield from self._run_rows(part, run_end(after) if section is Section.RUNS else -1)
            after = b""
        yield from self._rows_between(part, part.row_key(after), part.row_key(MESSAGE))
        yield from self._rows_between(part, part.row_key(max(after, AFTER_MESSAGES)), keys_of("row", part.place)[1])

    def _rows_between(self, part: Part, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        select = "SELECT * FROM row WHERE key > ? AND key < ? ORDER BY key"
        for row in self._connection.execute(select, (low, high)):
            if not is_whole(row):
                raise DamagedError(f"a row of the state of set {part.name} does not match its checksum")
            yield row[0].removeprefix(part.row_key(b"")), row[1]

    def _run_rows(self, part: Part, behind: int) -> Iterator[tuple[bytes, bytes] | None]:
        """Yield rows with the runs of the snapshot's messages after the position `behind`. It takes time to find the
        runs, so one piece has the runs of at most `IN_RUNS` messages. A None in place of a row ends the piece."""
        low = part.row_key(body_key(behind) if behind >= 0 else MESSAGE)
        found = [position_in(key) or 0 for key in self._message_keys(part, low, IN_RUNS)]
        yield from map(run_row, runs_of(found))
        if len(found) == IN_RUNS:
            yield None

    def _row_of_body(self, part: Part, position: int, messages: dict[int, Sequence[bytes]]) -> tuple[bytes, bytes]:
        body = self._body(part, position, messages)
        if body is None:
            raise DamagedError(f"the body of a message of set {part.name} is missing, or does not match its checksum")
        return body_key(position), body

    def bodies(self, read: ReadBodies) -> FoundBodies:
        """The bodies at these positions, in the same order. Raises QueueStoreError if the file is damaged."""
        part, messages = self._parts[read.set], dict[int, Sequence[bytes]]()
        with self._explained(), self._file.explained():
            return [self._body(part, position, messages) for position in read.positions]

    def _body(self, part: Part, position: int, messages: dict[int, Sequence[bytes]]) -> bytes | None:
        """The body of a message of the state; None if the body is missing or damaged. `messages` is the caller's cache:
        the messages of the entry that was read last, keyed by the entry's index. One entry is enough, because the
        caller reads the positions in order."""
        index = index_of(position)
        if index not in messages:
            messages.clear()
            messages[index] = self._messages_of(part, index)
        if messages[index]:
            place = position - position_of(index, 0)
            return messages[index][place] if place < len(messages[index]) else None
        row = self._connection.execute(
            "SELECT * FROM body WHERE key = ?", (part.row_key(body_key(position)),)
        ).fetchone()
        return row[1] if row is not None and is_whole(row) else None

    def _messages_of(self, part: Part, index: int) -> Sequence[bytes]:
        """The messages of an entry before the log, by their places; empty if the entry is missing or damaged."""
        if not 0 < index <= part.snapshot.index:
            return ()
        row = self._connection.execute("SELECT * FROM entry WHERE key = ?", (part.key(index),)).fetchone()
        return messages_of(read_entry(row).data) if row is not None and is_whole(row) else ()

    # The methods from here on merge the write-ahead log.

    @property
    def is_to_be_merged(self) -> bool:
        return self._unmerged >= MERGE

    def merge(self) -> None:
        """Merge the write-ahead log into the file, so that the log is written from its start again, and give free pages
        back. Raises QueueStoreError: this store then writes nothing any more."""
        self._is_sound = False
        try:
            self._shrink()
            self._checkpoint("PASSIVE")
        except sqlite3.Error as error:
            raise QueueStoreError(f"{self._path}: the log of the replica sets cannot be merged: {error}") from error
        self._is_sound = True
        self._unmerged = 0

    def _shrink(self) -> None:
        execute = self._connection.execute
        [free], [pages] = execute("PRAGMA freelist_count").fetchone(), execute("PRAGMA page_count").fetchone()
        if free > LOOSE + (pages - free):
            self._connection.executescript(
                f"PRAGMA incremental_vacuum({VACUUM})"
                # Use `executescript`, which does all steps of the statement.
                # `execute` does only one, and each step frees one page.
            )

    def _checkpoint(self, mode: str) -> None:
        self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    # The methods from here on scrub the file.

    def scrub(self) -> dict[str, str]:
        """Read the next rows; after the last row, begin at the first again. Returns the reason for each set with a
        damaged row. Raises QueueStoreError if the file itself is damaged."""
        table, last = self._scrubbed
        of_place = {part.place: part for part in self._parts.values()}
        found: dict[str, str] = {}
        count = size = 0
        with self._explained(), self._file.explained():
            select = f"SELECT * FROM {table} WHERE key > ? ORDER BY key LIMIT ?"
            for row in self._connection.execute(select, (last, SCRUBBED[table])):
                part = of_place.get(place_of(table, row[0]))
                if part is not None and not (is_whole(row) and (table != "entry" or part.has_entry(row))):
                    found[part.name] = f"a scrub found a damaged row of table {table}"
                last, count = row[0], count + 1
                size += sum(len(column) for column in row if isinstance(column, bytes))
                if size >= SCRUBBED_BYTES:
                    break
        if count == SCRUBBED[table] or size >= SCRUBBED_BYTES:
            self._scrubbed = table, last
        else:
            tables = [*SCRUBBED]
            following = tables[(tables.index(table) + 1) % len(tables)]
            self._scrubbed = following, _first_key(following)
        return found

    # The methods from here on end the use of the store.

    def close(self) -> None:
        """Close the store in order, if nothing has failed. Raises QueueStoreError if closing fails."""
        try:
            if self._is_sound:
                self._is_sound = False
                self._connection.execute("PRAGMA synchronous = FULL")
                with self._file.transaction():
                    self._connection.execute(_OWN_ANEW, attrs.evolve(self._owner, is_closed=True).row())
                self._checkpoint("TRUNCATE")
        except sqlite3.Error as error:
            raise QueueStoreError(f"{self._path}: the store of replica sets cannot be closed: {error}") from error
        finally:
            self._mark_file.close()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (UnusableError, OSError) as error:
            why = _told(error)
            raise QueueStoreError(f"{self._path}: the router cannot use this store of replica sets: {why}") from error

    def _set_aside(self) -> str:
        """Keep the file with its log and its mark under another name. Returns its path. The file is renamed first, as a
        log without its file is worth less than a file without a log."""
        former = _free(self._path)
        for suffix in SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{self._path}{suffix}", f"{former}{suffix}")
        _sync_folder(self._path.parent)
        return f"It is kept as {former}"


def size_of(change: StoreChange) -> int:
    """The bytes of the change, about."""
    match change:
        case Write(persist=persist, changes=changes):
            rows = sum(len(key) + len(value or b"") for key, value in changes.items()) if changes else 0
            return rows + sum(entry.size for entry in persist.entries) + sum(len(one.data) for one in persist.pieces)
        case Renew():
            return 0


def _first_key(table: str) -> Any:
    """A value that is less than every key of the table."""
    return b"" if table in KEYED else -1


def _free(path: Path) -> Path:
    """A path beside this one that no file has yet."""
    names = (Path(f"{path}.former-{number}") for number in count(1))
    return next(name for name in names if not any(os.path.exists(f"{name}{suffix}") for suffix in SUFFIXES))


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the disk has the names of new files."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _told(error: UnusableError | OSError) -> str:
    return error.reason if isinstance(error, UnusableError) else error.strerror or str(error)
