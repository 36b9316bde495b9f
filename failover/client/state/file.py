"""A client's state file: what is in it, and how it comes to be."""

import contextlib
import os
import sqlite3
from typing import Final

from failover.client.errors import StateError

APPLICATION: Final = 0x6F6E636C  # "oncl": tells our files from other people's, and from a router's
FORMAT: Final = 2
UNUSABLE: Final = "not to be used as a state file"
IN_MEMORY: Final = ":memory:"

TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS oncemesh_link (
        id INTEGER PRIMARY KEY, role TEXT NOT NULL,
        container TEXT NOT NULL, name TEXT NOT NULL, address TEXT NOT NULL, user TEXT NOT NULL,
        attached INTEGER NOT NULL DEFAULT 0, generation BLOB, epoch TEXT, next_number INTEGER NOT NULL DEFAULT 0,
        UNIQUE (role, container, name, address, user))""",
    """CREATE TABLE IF NOT EXISTS oncemesh_unsettled (
        link INTEGER NOT NULL REFERENCES oncemesh_link (id), tag BLOB NOT NULL, state INTEGER NOT NULL, message BLOB,
        PRIMARY KEY (link, tag))""",
)
MARKS: Final = (f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {FORMAT}")


def create(where: str) -> None:
    """Where there is none. Beside its place, so that a kill leaves no part of it there: one that has lost its bytes is
    as good as new to SQLite. A log that is left belongs to another file."""
    if os.path.isfile(where) and os.path.getsize(where) <= 1:
        raise StateError(where, f"{UNUSABLE}: damaged: it is empty; only if all is to be forgotten, remove it")
    if os.path.exists(where):
        return
    fresh = f"{where}.{os.getpid()}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{where}-wal")
    try:
        with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            for statement in ("BEGIN", *MARKS, *TABLES, "COMMIT"):
                connection.execute(statement)
        with contextlib.suppress(FileExistsError):  # another client was faster, and may hold its own by now
            os.link(fresh, where)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
