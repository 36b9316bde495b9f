"""The state store of one router: what has to outlive its process (protocol 3.3 and 8), in DIR/<router>/state.db.

Kept are the directory entries of durable termini, so that a mesh of which every router died still knows whom it has
to wait for, and how far the router's clock and incarnation have come, so that what it names after a restart is younger
than all that it named before. Never what a delivery carries.

What is written here survives the end of the process, however it came (`synchronous=NORMAL` with a write-ahead log); a
change counts as written when `save` returns. A file that is damaged or not this router's is refused: to start without
it would silently forget subscribers.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgpack

from linkstate.clock import COUNTER_BITS
from router.rundir import RunError
from topic.directory import Entry, unpack_entry
from topic.wire import is_entry

APPLICATION: Final = 0x6F6E6365  # "once": tells our files from other people's
FORMAT: Final = 1
AHEAD: Final = 1000 << COUNTER_BITS  # of the clock, one second: what is reserved at a time
WRITING: Final = "the router's state cannot be kept, so it ends"
MOST_MS: Final = 1 << 42  # of any time that is kept: the year 2109, and what contact numbers have room for

_TABLES: Final = (
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
    "CREATE TABLE router (mesh TEXT, name TEXT, incarnation INTEGER, clock INTEGER)",
    "CREATE TABLE entry (role INTEGER, name BLOB, packed BLOB NOT NULL, PRIMARY KEY (role, name)) WITHOUT ROWID",
)
_PUT: Final = "INSERT INTO entry VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET packed = excluded.packed"
_DELETE: Final = "DELETE FROM entry WHERE (role, name) = (?, ?)"


class StoreError(RunError):
    """The store cannot be used, with the reason."""


class StateStore:
    """Held by one process at a time. `remembered` are the entries that an earlier process left."""

    def __init__(self, path: Path, mesh: str, router: str) -> None:
        """Raises StoreError if the file is damaged, another router's or not to be used at all."""
        self.reserved = 0  # no clock reading of an earlier life is as high as this
        self._incarnation = 0
        self._path = path
        self.remembered: list[Entry] = []
        self.found = True  # the file was there
        with self._explained():
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            with self._explained():
                self._open(mesh, router)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, mesh: str, router: str) -> None:
        execute = self._connection.execute
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
            execute(f"PRAGMA {setting}")
        [damage] = execute("PRAGMA quick_check(1)").fetchone()
        if damage != "ok":
            raise self._refusal(f"damaged: {damage}")
        self.found = execute("SELECT 1 FROM sqlite_master").fetchone() is not None
        if not self.found:
            self._create(mesh, router)
        if execute("PRAGMA application_id").fetchone() != (APPLICATION,):
            raise self._refusal("a database, but not a router's")
        if execute("PRAGMA user_version").fetchone() != (FORMAT,):
            raise self._refusal(f"of another version of this program, expected format {FORMAT}")
        row = execute("SELECT mesh, name, incarnation, clock FROM router").fetchone()
        if row is None:
            raise self._refusal("damaged: it does not say whose it is")
        *owner, self._incarnation, self.reserved = row
        if owner != [mesh, router]:
            raise self._refusal(f"it belongs to router {owner[1]} of mesh {owner[0]}, expected {router} of {mesh}")
        self._check_time("incarnation", self._incarnation, MOST_MS)
        self._check_time("clock", self.reserved, MOST_MS << COUNTER_BITS)
        self.remembered += map(self._unpack, execute("SELECT role, name, packed FROM entry ORDER BY role, name"))

    def _check_time(self, what: str, value: Any, end: int) -> None:
        if type(value) is not int or not 0 <= value < end:
            raise self._refusal(f"damaged: its {what} is {value!r}")

    def _create(self, mesh: str, router: str) -> None:
        with self._transaction():
            for table in _TABLES:
                self._connection.execute(table)
            self._connection.execute("INSERT INTO router VALUES (?, ?, 0, 0)", (mesh, router))

    def _unpack(self, row: tuple[Any, Any, Any]) -> Entry:
        role, name, packed = row
        try:
            fields = msgpack.unpackb(packed)
        except (TypeError, ValueError, msgpack.UnpackException):
            fields = None
        if not is_entry(fields):
            raise self._refusal("damaged: an entry cannot be read")
        entry = unpack_entry(fields)
        if (entry.role, entry.name) != (role, name):
            raise self._refusal("damaged: an entry is not the one that it is kept as")
        return entry

    def begin(self, wall_ms: int) -> int:
        """The incarnation of this process: the time of its start, or what comes after the last one."""
        self._incarnation = max(wall_ms, self._incarnation + 1)
        with self._explained(WRITING), self._transaction():
            self._connection.execute("UPDATE router SET incarnation = ?", (self._incarnation,))
        return self._incarnation

    def save(self, changed: Iterable[Entry], clock: int) -> None:
        """Keep these entries as they are now, but forget those that do not outlive their routers; and see to it that a
        later life's clock starts behind this reading. All or nothing; to be called before anybody can learn of it."""
        with self._explained(WRITING), self._transaction():
            for entry in changed:
                if entry.lifetime.durable and entry.lifetime.timeout and (entry.live or entry.expired_life):
                    self._connection.execute(_PUT, (entry.role, entry.name, msgpack.packb(entry.pack())))
                else:
                    self._connection.execute(_DELETE, (entry.role, entry.name))
            if clock >= self.reserved:
                self.reserved = clock + AHEAD
                self._connection.execute("UPDATE router SET clock = ?", (self.reserved,))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        yield
        self._connection.execute("COMMIT")  # an error ends the process: SQLite then undoes what was begun

    @contextlib.contextmanager
    def _explained(self, what: str = "") -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {what}: {error}") if what else self._refusal(str(error)) from None

    def _refusal(self, reason: str) -> StoreError:
        return StoreError(
            f"{self._path}: not to be used as a router's state: {reason}. "
            "A router that starts without its state forgets its durable links"
        )

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
