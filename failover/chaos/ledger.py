"""A client's own account of a run, in the database of its unsettled deliveries: a second account beside its delivery
log.

A subscriber writes a message into its account in the transaction of the message's acceptance. A publisher's store
numbers its messages; the account has only the outcomes that are no acceptance, and the longest pause between two
acceptances. If the publisher read an outcome just before a kill, the account may lack the outcome. The message then
counts as accepted, because a publisher that ends in order has got an outcome for each message.
"""

import contextlib
import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from failover.chaos.accounts import Published
from failover.client import Delivery, Outcome, SqliteStore

_TABLES = (
    "CREATE TABLE IF NOT EXISTS otherwise (number INTEGER PRIMARY KEY, outcome TEXT)",
    "CREATE TABLE IF NOT EXISTS received (place INTEGER PRIMARY KEY, publisher TEXT, number INTEGER)",
    "CREATE TABLE IF NOT EXISTS pause (ms INTEGER)",
)


class Ledger:
    """The account of one client. It uses the connection of the client's store, so the next write of the store also
    commits the entries of the account."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.counts = {"sent": 0, "accepted": 0, "received": 0}
        """The counts of the present life of the client."""
        self._execute = connection.execute
        self._accepted_at = math.inf
        self._pause_s = 0.0

    def sent(self, number: int, due: int) -> None:
        self.counts["sent"] += 1

    def told(self, number: int, due: int, outcome: Outcome) -> None:
        if outcome is Outcome.ACCEPTED:
            self.counts["accepted"] += 1
            self._pause()
        else:
            self._execute("INSERT OR REPLACE INTO otherwise VALUES (?, ?)", (number, str(outcome)))

    def _pause(self) -> None:
        now = time.monotonic()
        if now - self._accepted_at > self._pause_s:
            self._pause_s = now - self._accepted_at
            self._execute("INSERT INTO pause VALUES (?)", (round(self._pause_s * 1000),))
        self._accepted_at = now

    def received(self, delivery: Delivery) -> None:
        self.processed(delivery.body)

    def processed(self, message: bytes) -> None:
        """Count a message that the client has processed. `message` is the body."""
        publisher, number = parsed(message)
        self.counts["received"] += 1
        self._execute("INSERT INTO received (publisher, number) VALUES (?, ?)", (publisher, number))


def body(publisher: str, number: int, size: int) -> bytes:
    return f"{publisher} {number} ".encode().ljust(size, b".")


def parsed(message: bytes) -> tuple[str, int]:
    publisher, number, _ = message.split(b" ", 2)
    return publisher.decode(), int(number)


def open_database(path: Path) -> sqlite3.Connection:
    """Open the database so that writes do not wait for the disk. When the process is killed, the kernel already has all
    its writes."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    for table in _TABLES:
        connection.execute(table)
    return connection


def published(path: Path) -> Published:
    """Return a publisher's account over all its lives. No process of the publisher may be running."""
    with _reading(path) as execute:
        [sent] = execute("SELECT coalesce(max(next_number), 0) FROM oncemesh_link").fetchone()
        otherwise = {number for (number,) in execute("SELECT number FROM otherwise")}
        [pause_ms] = execute("SELECT coalesce(max(ms), 0) FROM pause").fetchone()
        tags = execute("SELECT tag FROM oncemesh_unsettled WHERE state = 0").fetchall()
    unknown = frozenset(int.from_bytes(tag, "big") for (tag,) in tags)
    return Published(sent, frozenset(otherwise), unknown, pause_ms)


def received(path: Path) -> dict[str, list[int]]:
    """Return a subscriber's account: for each publisher the numbers of its messages, in the order in which the
    subscriber accepted them."""
    found: dict[str, list[int]] = {}
    with _reading(path) as execute:
        for publisher, number in execute("SELECT publisher, number FROM received ORDER BY place"):
            found.setdefault(publisher, []).append(number)
    return found


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[Callable[[str], sqlite3.Cursor]]:
    with contextlib.closing(open_database(path)) as connection:
        # Create the tables of the store if they are missing, because the client has never begun.
        SqliteStore(connection)
        yield connection.execute
