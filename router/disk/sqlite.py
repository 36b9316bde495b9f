"""A file of SQLite: made whole, held by one process, found to be ours and sound; or refused, with the reason.

A store says by a `FileForm` what its files are, and stands on a `SqliteFile`: a router's state (`router/store.py`), a
client's state (`failover/client/state/store.py`). It keeps the tables, and the words in which its user is told what is
wrong with a file.

A file comes to its place whole, so that a kill leaves no part of it there: one that has lost its bytes is as good as
new to SQLite, and is refused. A file of somebody else is left as it was.
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
    """A file cannot be used: `reason` says why, without its name."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DamagedError(UnusableError):
    """A file has not what was written to it, so it is nobody else's."""


@frozen
class FileForm:
    """What the files of one kind of store are. `name` is what they are called where a file is none of them."""

    name: str
    application: int
    """SQLite's application_id: tells our files from other people's."""
    version: int
    tables: tuple[str, ...]
    settings: tuple[str, ...]
    """Pragmas of the connection."""
    held: str
    """How a file is refused that another process holds."""
    is_shared: bool
    """Whether other connections use it, too, as one of ours that merges does. Else SQLite keeps them out, and does
    without shared memory."""
    grows: Mapping[int, tuple[Statement, ...]] = Factory(dict)
    """What makes a file of an earlier version one of this."""
    shape: tuple[str, ...] = ()
    """Pragmas of a new file, before it has tables."""
    is_synced: bool = False
    """Whether each transaction is on the disk before the next one begins (`synchronous = FULL`). Then a write-ahead log
    with a gap is damaged."""

    @property
    def made_by(self) -> tuple[str, ...]:
        marks = f"PRAGMA application_id = {self.application}", f"PRAGMA user_version = {self.version}"
        return *marks, *self.tables


class SqliteFile:
    """Held until it is closed. Any thread may use `connection`, one at a time."""

    def __init__(self, where: str | PathLike[str], form: FileForm, first: Iterable[Statement] = ()) -> None:
        """Where there is no file it makes one, with these `first` rows. Raises UnusableError."""
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
        """Beside its place. A log that is left belongs to another file."""
        if os.path.isfile(self._where) and os.path.getsize(self._where) <= 1:  # either is as good as new to SQLite
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
        except FileExistsError:  # another process was faster, and may hold its own by now
            pass
        except PermissionError:  # a file system without links
            os.replace(fresh, self._where)
        finally:
            fresh.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _hold(self) -> Iterator[None]:
        """The file, for this process alone, before SQLite opens it. SQLite's own lock would keep our other connections
        out, too."""
        with open(self._where, "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UnusableError(self._form.held) from None
            yield

    def _connect(self) -> sqlite3.Connection:
        if self._where == IN_MEMORY:
            return sqlite3.connect(IN_MEMORY, timeout=0, isolation_level=None, check_same_thread=False)
        there = f"{Path(self._where).absolute().as_uri()}?mode=rw"  # SQLite would put an empty file where there is none
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
            with self.transaction():  # which takes the lock, and keeps it
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
        """Before anything of it is changed."""
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
        """All that is done inside, or nothing. Raises sqlite3.Error."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # what went wrong first is told; SQLite may have done it
                self.connection.execute("ROLLBACK")
            raise

    def merge(self) -> None:
        """Merge the write-ahead log into the file, so that it is written from its beginning again. From any thread;
        changes may be written meanwhile. A disk that does not take it does so later, or the log grows."""
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect()) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raises what SQLite and the system say as UnusableError."""
        try:
            yield
        except sqlite3.Error as error:
            kind = DamagedError if primary(error) in DAMAGE else UnusableError
            raise kind(self.why(error)) from error
        except OSError as error:
            raise UnusableError(self._unwritable() or error.strerror or str(error)) from error
        except UnicodeError as error:  # damaged text is told so
            raise DamagedError(str(error)) from error

    def why(self, error: sqlite3.Error) -> str:
        if not self._form.is_shared and primary(error) == sqlite3.SQLITE_BUSY:
            return self._form.held
        return (primary(error) in UNWRITTEN and self._unwritable()) or str(error)

    def _unwritable(self) -> str:
        """Which of the file and its folder may not be written; empty if both may. SQLite needs both, and tells them
        apart from a broken disk by chance."""
        for path in (self._where, os.path.dirname(self._where) or "."):
            if os.path.exists(path) and not os.access(path, os.W_OK):
                return f"no permission to write {path}"
        return ""

    def close(self) -> None:
        self._held.close()


def primary(error: sqlite3.Error) -> int:
    """SQLite's result code without what says more of it; 0 of what Python's module says itself."""
    return getattr(error, "sqlite_errorcode", 0) & PRIMARY
