"""A SQLite file of ours: created atomically, locked by one process, and checked for its kind and for damage before use.

A store describes its files with a `FileForm`, and uses a `SqliteFile`. There are two stores: a router's state
(`router/store.py`) and a client's state (`failover/client/state/store.py`). The store defines the tables, and the
messages that tell its user what is wrong with a file.

A new file gets its name only when it is complete, so a kill leaves no partial file under that name. An empty file is
refused, although SQLite would take it for a new one, because it has lost its bytes. A file of another program is
refused and not changed.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

from attrs import Factory, frozen

from router.disk.wal import gap

IN_MEMORY: Final = ":memory:"
PRIMARY: Final = 0xFF
DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
UNWRITTEN: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
EMPTY: Final = "damaged: it is empty"

Statement = tuple[str, tuple[Any, ...]]


class UnusableError(Exception):
    """A file cannot be used. `reason` has the cause, without the name of the file."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DamagedError(UnusableError):
    """A file of ours has lost or changed bytes that were written to it."""


@frozen
class FileForm:
    """The form of the files of one kind of store. `name` names that kind in the message about a file of another
    kind."""

    name: str
    application: int
    """SQLite's application_id, which distinguishes our files from files of other programs."""
    version: int
    tables: tuple[str, ...]
    settings: tuple[str, ...]
    """The pragmas that are set on each connection."""
    held: str
    """The text of the refusal of a file that another process has locked."""
    is_shared: bool
    """Whether several connections use the file, for example a connection of ours that merges the log. If not, SQLite
    locks other connections out, and needs no shared memory."""
    grows: Mapping[int, tuple[Statement, ...]] = Factory(dict)
    """Maps an earlier version to the statements that bring a file of that version to this version."""
    shape: tuple[str, ...] = ()
    """The pragmas that are set on a new file, before it has tables."""
    is_synced: bool = False
    """Whether each transaction is on the disk before the next one begins (`synchronous = FULL`). Then a write-ahead log
    with a gap is damaged."""

    @property
    def made_by(self) -> tuple[str, ...]:
        marks = f"PRAGMA application_id = {self.application}", f"PRAGMA user_version = {self.version}"
        return *marks, *self.tables


class SqliteFile:
    """An open file, locked by this process until `close`. Any thread may use `connection`, one thread at a time."""

    def __init__(self, where: str | PathLike[str], form: FileForm, first: Iterable[Statement] = ()) -> None:
        """Create the file with the rows of `first` if there is none, and open it. Raises UnusableError."""
        self._where = os.fspath(where)
        self._form = form
        with contextlib.ExitStack() as held, self.explained():
            if self._where != IN_MEMORY:
                self._create(first)
                held.enter_context(self._hold())
                if form.is_synced and (damage := gap(f"{self._where}-wal")):
                    raise DamagedError(damage)
            self.connection = held.enter_context(contextlib.closing(self._connect()))
            self._open()
            self._held = held.pop_all()

    def _create(self, first: Iterable[Statement]) -> None:
        """Create the file under another name, then link it to its own. A write-ahead log that is found belongs to an
        earlier file, so it is deleted."""
        # SQLite takes an empty file for a new one.
        if os.path.isfile(self._where) and os.path.getsize(self._where) <= 1:
            raise DamagedError(EMPTY)
        if os.path.exists(self._where):
            return
        fresh, log = Path(f"{self._where}.{os.getpid()}.new"), Path(f"{self._where}-wal")
        fresh.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
        try:
            with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
                shape = (f"PRAGMA {setting}" for setting in self._form.shape)
                for statement in (*shape, "BEGIN", *self._form.made_by):
                    connection.execute(statement)
                for statement, values in first:
                    connection.execute(statement, values)
                connection.execute("COMMIT")
            os.link(fresh, self._where)
        # Another process was faster. It may have locked its file by now.
        except FileExistsError:
            pass
        # The file system has no hard links.
        except PermissionError:
            os.replace(fresh, self._where)
        finally:
            fresh.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _hold(self) -> Iterator[None]:
        """Lock the file for this process before SQLite opens it. SQLite's own lock would also lock out our other
        connections."""
        with open(self._where, "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UnusableError(self._form.held) from None
            yield

    def _connect(self) -> sqlite3.Connection:
        if self._where == IN_MEMORY:
            return sqlite3.connect(IN_MEMORY, timeout=0, isolation_level=None, check_same_thread=False)
        # With `mode=rw`, SQLite does not create an empty file if there is none.
        there = f"{Path(self._where).absolute().as_uri()}?mode=rw"
        return sqlite3.connect(there, uri=True, timeout=0, isolation_level=None, check_same_thread=False)

    def _open(self) -> None:
        execute = self.connection.execute
        if self._where == IN_MEMORY:
            for statement in self._form.made_by:
                execute(statement)
        if self._form.is_shared:
            self._check()
        else:
            execute("PRAGMA locking_mode = EXCLUSIVE")
            # A transaction takes SQLite's lock, which the connection then keeps.
            with self.transaction():
                self._check()
        for setting in self._form.settings:
            execute(f"PRAGMA {setting}")
        [version] = execute("PRAGMA user_version").fetchone()
        if version != self._form.version:
            with self.transaction():
                for statement, values in self._form.grows[version]:
                    execute(statement, values)
                execute(f"PRAGMA user_version = {self._form.version}")

    def _check(self) -> None:
        """Check the kind, version and soundness of the file before anything in it is changed. Raises UnusableError."""
        execute, form = self.connection.execute, self._form
        if execute("PRAGMA application_id").fetchone() != (form.application,):
            raise UnusableError(f"a database, but not {form.name}")
        [version] = execute("PRAGMA user_version").fetchone()
        if version not in (form.version, *form.grows):
            found = f"written in format {version} by another version of this program"
            raise UnusableError(f"{found}, expected format {form.version}")
        [damage] = execute("PRAGMA quick_check(1)").fetchone()
        if damage != "ok":
            raise DamagedError(f"damaged: {damage}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction: commits on a normal exit of the block, rolls back on an exception. Raises sqlite3.Error."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            # The first error is the one to report. SQLite may have rolled back already.
            with contextlib.suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")
            raise

    def merge(self) -> None:
        """Merge the write-ahead log into the file, so that the log is written from its beginning again. Any thread may
        call this, also while changes are written. A failure is ignored: a later merge does the work, and until then the
        log grows."""
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect()) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Translate errors of SQLite and the system into UnusableError."""
        try:
            yield
        except sqlite3.Error as error:
            kind = DamagedError if primary(error) in DAMAGE else UnusableError
            raise kind(self.why(error)) from error
        except OSError as error:
            raise UnusableError(self._unwritable() or error.strerror or str(error)) from error
        # A text in the file is damaged.
        except UnicodeError as error:
            raise DamagedError(str(error)) from error

    def why(self, error: sqlite3.Error) -> str:
        if not self._form.is_shared and primary(error) == sqlite3.SQLITE_BUSY:
            return self._form.held
        return (primary(error) in UNWRITTEN and self._unwritable()) or str(error)

    def _unwritable(self) -> str:
        """If the file or its folder is not writable, returns a message that says so; otherwise an empty text. SQLite
        writes to both. Its own errors do not reliably tell a missing permission from a broken disk."""
        for path in (self._where, os.path.dirname(self._where) or "."):
            if os.path.exists(path) and not os.access(path, os.W_OK):
                return f"no permission to write {path}"
        return ""

    def close(self) -> None:
        self._held.close()


def primary(error: sqlite3.Error) -> int:
    """The primary result code of SQLite, without the extension; 0 for an error that Python's module raises itself."""
    return getattr(error, "sqlite_errorcode", 0) & PRIMARY
