"""A store of replica sets that no process uses, read as evidence of the messages that a router had (protocol 13.5).

The files are copied, and only the copy is opened. `QueueStore` then shows what a router would find if it started now.
"""

import fcntl
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_bytes
from tempfile import TemporaryDirectory
from typing import Final

import msgpack

from router.disk.sqlite import SqliteFile, UnusableError
from router.queues.boot import boot_id
from router.queues.part import Part, read_part
from router.queues.store import FORM, SUFFIXES, QueueStore, QueueStoreError, Sync
from topic.queues.storing import SetContent

STORE_ID: Final = 16
"""The length of a store's identity, in bytes. The copy gets a random identity, which no real store has."""


def read_at_rest(path: Path) -> tuple[str, Mapping[str, SetContent]] | None:
    """The router of a store, and the content of each set. The content of a set is empty if the set's part is damaged,
    or lacks changes that the router has acknowledged. Returns None if a process uses the store, or if the store does
    not exist or cannot be read. Raises OSError."""
    if not path.exists() or _is_used(path):
        return None
    try:
        with _copy_of(path) as copy:
            mesh, router, sync, parts = _read(copy)
            names = [part.name for part in parts]
            with QueueStore(copy, mesh, router, names, Sync(sync), boot_id(), lambda: token_bytes(STORE_ID)) as store:
                return router, store.contents
    except (QueueStoreError, UnusableError, sqlite3.Error, ValueError, TypeError):
        return None


def numbers_at_rest(path: Path) -> dict[str, int]:
    """The number of the last change of each set, in a store that no process uses. Raises OSError. Raises UnusableError
    if the store is damaged."""
    with _copy_of(path) as copy:
        return {part.name: part.number for part in _read(copy)[-1]}


@contextmanager
def _copy_of(path: Path) -> Iterator[Path]:
    with TemporaryDirectory(prefix="oncemesh-at-rest-") as folder:
        copy = Path(folder) / path.name
        for suffix in SUFFIXES:
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        yield copy


def _is_used(path: Path) -> bool:
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _read(copy: Path) -> tuple[str, str, str, list[Part]]:
    """Read the mesh, the router, the kind of sync, and the parts of sets. The checksums of the parts are not verified.
    Raises UnusableError."""
    with closing(SqliteFile(copy, FORM)) as file:
        [(packed, _)] = file.connection.execute("SELECT * FROM store").fetchall()
        parts = file.connection.execute("SELECT key, packed FROM part").fetchall()
    mesh, router, _, _, sync, _ = msgpack.unpackb(packed)
    return mesh, router, sync, [read_part(*row)[0] for row in parts]
