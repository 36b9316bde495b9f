"""What a client of a run knows itself, kept in the database of its unsettled deliveries: a second account beside its
delivery log.

A subscriber writes down a message in the transaction of its acceptance. A publisher's messages are numbered by its
store; only outcomes that are no acceptance are written down. What was told just before a kill may have been noted
nowhere: it counts as accepted, for a publisher that ended in order left nothing unanswered.
"""

import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from failover.client import Outcome

_TABLES = (
    "CREATE TABLE IF NOT EXISTS otherwise (number INTEGER PRIMARY KEY, outcome TEXT)",
    "CREATE TABLE IF NOT EXISTS received (place INTEGER PRIMARY KEY, publisher TEXT, number INTEGER)",
)
_SENT = "SELECT coalesce(max(next_number), 0) FROM oncemesh_link"
_UNKNOWN = "SELECT count(*) FROM oncemesh_unsettled WHERE state = 0"
_OTHERWISE = "SELECT count(*) FROM otherwise"
_RECEIVED = "SELECT count(*), count(DISTINCT publisher || ' ' || number) FROM received"
_OVERTAKEN = """SELECT count(*) FROM (
    SELECT number, max(number) OVER (PARTITION BY publisher ORDER BY first ROWS UNBOUNDED PRECEDING) AS highest
    FROM (SELECT publisher, number, min(place) AS first FROM received GROUP BY publisher, number))
    WHERE number < highest"""


class Ledger:
    """On the connection of the client's store, so that its entries are committed with the store's next write."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.counts = {"sent": 0, "accepted": 0, "received": 0}
        """Of this life."""
        self._execute = connection.execute

    def sent(self, number: int) -> None:
        self.counts["sent"] += 1

    def told(self, number: int, outcome: Outcome) -> None:
        if outcome is Outcome.ACCEPTED:
            self.counts["accepted"] += 1
        else:
            self._execute("INSERT OR REPLACE INTO otherwise VALUES (?, ?)", (number, str(outcome)))

    def received(self, publisher: str, number: int) -> None:
        self.counts["received"] += 1
        self._execute("INSERT INTO received (publisher, number) VALUES (?, ?)", (publisher, number))


def open_database(path: Path) -> sqlite3.Connection:
    """What a killed process has written is not lost, so nobody need wait for the disk."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    for table in _TABLES:
        connection.execute(table)
    return connection


def account(path: Path, role: str) -> Mapping[str, int]:
    """The whole of a client's account over all its lives, when none is running."""
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(path)) as connection:
        execute = connection.execute
        if role == "publisher":
            [sent], [unknown], [otherwise] = (execute(one).fetchone() for one in (_SENT, _UNKNOWN, _OTHERWISE))
            return {"sent": sent, "accepted": sent - unknown - otherwise, "otherwise": otherwise, "unknown": unknown}
        received, distinct = execute(_RECEIVED).fetchone()
        [overtaken] = execute(_OVERTAKEN).fetchone()
        return {"received": received, "doubled": received - distinct, "overtaken": overtaken}
