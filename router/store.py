"""The state store of one router: the state that has to outlive its process (protocol 3.3 and 8), in
DIR/<router>/state.db.

The store has the directory entries of durable termini, so that a mesh still awaits their clients after every router has
died. It also has the highest clock and incarnation, so that all epochs and incarnations after a restart are higher than
earlier ones. It never has the content of a delivery.

A change is written when `save` returns. It survives the end of the process, whatever the cause (`synchronous=NORMAL`
with a write-ahead log). `save` never waits for the disk. `merge` moves the write-ahead log into the file and waits for
the disk, so it runs in a thread.

A router refuses a file that is damaged, even in a single bit, or belongs to another router: without the file it would
silently forget subscribers. An empty file counts as damaged, because a new file appears with its whole content. Only
without any file does the router start without state.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgpack

from linkstate.clock import AHEAD
from linkstate.plan.plan import Plan, kept_plan_of
from router.disk.room import check_room
from router.disk.rows import is_whole, summed
from router.disk.sqlite import FileForm, SqliteFile, UnusableError, primary
from router.mesh.errors import RunError
from topic.directory.entry import LinkEntry, unpack_entry
from topic.errors import UnkeptError
from topic.wire.segments import is_entry

MERGE: Final = 250
"""The number of transactions after which the write-ahead log is merged. Each transaction takes some pages of 4 KiB in
the log."""
NO_PLAN: Final = Plan({}, {})
LATER: Final = (
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY),
    # Another program has the file open.
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED),
)
"""SQLite's primary result codes for errors that may pass, because they say nothing about the content of the file."""

_PLAN: Final = "CREATE TABLE plan (packed BLOB, sum INTEGER)"
_FIRST_PLAN: Final = ("INSERT INTO plan VALUES (?, ?)", summed(msgpack.packb(NO_PLAN.changed())))
_KEEP_PLAN: Final = "UPDATE plan SET (packed, sum) = (?, ?)"
_WITHOUT_PLAN: Final = 2
"""The last version of the file's format without a plan."""
_OWN: Final = "INSERT INTO router VALUES (?, ?, ?, ?, ?)"
_COUNT: Final = "UPDATE router SET (mesh, name, incarnation, clock, sum) = (?, ?, ?, ?, ?)"
_PUT: Final = "REPLACE INTO entry VALUES (?, ?, ?, ?)"
_CLEAR: Final = "DELETE FROM entry"
_DELETE: Final = "DELETE FROM entry WHERE (role, name) = (?, ?)"
FORM: Final = FileForm(
    name="a router's",
    application=0x6F6E6365,  # the bytes of "once", by which SQLite files of this kind are recognised
    version=3,
    tables=(
        "CREATE TABLE router (mesh TEXT, name TEXT, incarnation INTEGER, clock INTEGER, sum INTEGER)",
        """CREATE TABLE entry (role INTEGER, name BLOB, packed BLOB, sum INTEGER, PRIMARY KEY (role, name))
        WITHOUT ROWID""",
        _PLAN,
    ),
    settings=("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0"),
    held="locked: another running process uses it",
    is_shared=True,
    grows={_WITHOUT_PLAN: ((_PLAN, ()), _FIRST_PLAN)},
)


class StoreError(RunError):
    """The store cannot be used; the text has the reason."""


class StateStore:
    """A store, held by one process at a time. `remembered` has the entries that an earlier process left."""

    def __init__(self, path: Path, mesh: str, router: str) -> None:
        """Open the store, or create it. Raises StoreError if the file is damaged, belongs to another router, or cannot
        be used."""
        # No epoch of this process or an earlier one has a clock above this value. The store has the value, too.
        self.reserved = 0
        self._incarnation = 0
        self._unmerged = 0
        self._path = path
        self._owner = mesh, router
        self.found = path.exists()
        with self._explained():
            self._file = SqliteFile(path, FORM, [(_OWN, self._counters()), _FIRST_PLAN])
        self._connection = self._file.connection
        try:
            with self._explained(), self._file.explained():
                self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        execute = self._connection.execute
        self._read_counters(execute("SELECT * FROM router").fetchall())
        self.plan = self._read_plan(execute("SELECT * FROM plan").fetchall())
        entries = map(self._read_entry, execute("SELECT * FROM entry ORDER BY role, name"))
        self.remembered = list(filter(None, entries))

    def _read_counters(self, rows: list[tuple[Any, ...]]) -> None:
        if len(rows) != 1 or not is_whole(rows[0]):
            raise UnusableError("damaged: the stored owner, incarnation or clock does not match its checksum")
        mesh, name, self._incarnation, self.reserved, _ = rows[0]
        if (mesh, name) != self._owner:
            expected = "{1} of {0}".format(*self._owner)
            raise UnusableError(f"it belongs to router {name} of mesh {mesh}, expected {expected}")

    def _read_plan(self, rows: list[tuple[Any, ...]]) -> Plan:
        if len(rows) != 1 or not is_whole(rows[0]):
            raise UnusableError("damaged: the stored plan of the mesh does not match its checksum")
        try:
            return kept_plan_of(msgpack.unpackb(rows[0][0]))
        except ValueError as error:
            raise UnusableError(f"the stored plan of the mesh cannot be read: {error}") from None

    def _read_entry(self, row: tuple[Any, ...]) -> LinkEntry | None:
        """Unpack a stored entry. Returns None if the entry is malformed: a former version of this program stored
        entries from other routers without checking them."""
        if not is_whole(row):
            raise UnusableError("damaged: a stored link does not match its checksum")
        entry = msgpack.unpackb(row[2])
        return unpack_entry(entry) if is_entry(entry) else None

    def _counters(self) -> tuple[Any, ...]:
        return summed(*self._owner, self._incarnation, self.reserved)

    def begin(self, wall_ms: int) -> int:
        """Begin an incarnation, and return it: the wall time in ms, but at least one more than the last incarnation."""
        self._incarnation = max(wall_ms, self._incarnation + 1)
        try:
            with self._file.transaction():
                self._connection.execute(_COUNT, self._counters())
        except sqlite3.Error as error:
            raise StoreError(self._unkept(error)) from None
        return self._incarnation

    def save(self, changed: Iterable[LinkEntry], clock: int, plan: Plan | None = None, *, whole: bool = False) -> None:
        """Store the entries of `changed`, the plan if it is given, and a clock value above which every later
        incarnation starts. An entry of `changed` that must not outlive its router is deleted. If `whole`, delete all
        other entries of the store, too. The store takes all of this or nothing. The caller calls this before any client
        or router can learn of the change. Raises UnkeptError if the disk does not take the change, or if another
        program holds the file."""
        reserved = self.reserved
        try:
            check_room(self._path)
            with self._file.transaction():
                self._save(changed, clock, whole=whole)
                if plan is not None:
                    self._connection.execute(_KEEP_PLAN, summed(msgpack.packb(plan.changed())))
            self._unmerged += 1
        except OSError as error:
            raise UnkeptError(self._unkept(str(error.strerror))) from None
        except sqlite3.Error as error:
            self.reserved = reserved
            if primary(error) not in LATER:
                raise StoreError(self._unkept(error)) from None
            raise UnkeptError(self._unkept(error)) from None

    @property
    def is_to_be_merged(self) -> bool:
        return self._unmerged >= MERGE

    def merge(self) -> None:
        """Merge the write-ahead log into the file (`SqliteFile.merge`). Any thread may call this."""
        self._unmerged = 0
        self._file.merge()

    def _save(self, changed: Iterable[LinkEntry], clock: int, *, whole: bool) -> None:
        if whole:
            self._connection.execute(_CLEAR)
        for entry in changed:
            if entry.outlives_router:
                self._connection.execute(_PUT, summed(int(entry.role), entry.name, msgpack.packb(entry.pack())))
            elif not whole:
                self._connection.execute(_DELETE, (entry.role, entry.name))
        if clock >= self.reserved:
            self.reserved = clock + AHEAD
            self._connection.execute(_COUNT, self._counters())

    def _unkept(self, error: sqlite3.Error | str) -> str:
        return f"{self._path}: the router's state cannot be stored: {error}"

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except UnusableError as error:
            raise StoreError(
                f"{self._path}: the router cannot use this state: {error.reason}. If you move the file away, the "
                "router starts without it and forgets its durable links"
            ) from None

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def set_aside(path: Path) -> None:
    """Rename the files of an earlier router of the same name, so that a new router begins without them."""
    for suffix in ("", "-wal"):
        left = Path(f"{path}{suffix}")
        if left.exists():
            left.replace(f"{left}.former")
