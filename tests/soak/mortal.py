"""A client of a soak that is a process of its own, to be killed: both the program and its handle.

    python -m tests.soak.mortal publisher|subscriber FOLDER NAME ADDRESS LOG RATE URL...

It keeps its account in FOLDER/NAME.db, the tables of its unsettled deliveries beside it: a subscriber writes down a
message in the transaction of its acceptance. It tells every attachment on its output and finishes on SIGTERM.
"""

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs
import trio

from failover.chaos.ledger import open_database
from failover.chaos.load import Pace, publish, subscribe
from failover.client import Outcome, SqliteStore
from tests.soak.accounts import Attachment, Published, Received
from tests.soak.place import Place

ROOT = Path(__file__).parents[2]
GOODBYE_S = 5.0
TABLES = (
    "CREATE TABLE IF NOT EXISTS sent (number INTEGER PRIMARY KEY, at REAL)",
    "CREATE TABLE IF NOT EXISTS told (number INTEGER PRIMARY KEY, outcome TEXT, at REAL)",
    "CREATE TABLE IF NOT EXISTS received (place INTEGER PRIMARY KEY, publisher TEXT, number INTEGER)",
)


class Ledger:
    """On the connection of the client's store, so that its entries are committed with the store's next write."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def sent(self, number: int) -> None:
        self._execute("INSERT INTO sent VALUES (?, ?)", (number, time.monotonic()))

    def told(self, number: int, outcome: Outcome) -> None:
        self._execute("INSERT OR IGNORE INTO told VALUES (?, ?, ?)", (number, str(outcome), time.monotonic()))

    def received(self, publisher: str, number: int) -> None:
        self._execute("INSERT INTO received (publisher, number) VALUES (?, ?)", (publisher, number))


def tell(attachment: Attachment) -> None:
    print(json.dumps(attrs.asdict(attachment)), flush=True)


async def main(role: str, folder: str, rate: str, place: Place) -> None:
    connection = open_database(Path(folder) / f"{place.name}.db", TABLES)
    store, ledger, finish = SqliteStore(connection), Ledger(connection), trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(_finish_on_signal, finish)
        if role == "publisher":
            pace = Pace(float(rate), store.load("publisher", place.identity).next_number)
            async with place.publisher(store, tell) as publisher:
                await publish(publisher, place.name, ledger, pace, finish)
        else:
            async with place.subscriber(store, tell) as subscriber, trio.open_nursery() as receiving:
                receiving.start_soon(subscribe, subscriber, ledger)
                await finish.wait()
                receiving.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    connection.commit()


async def _finish_on_signal(finish: trio.Event, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            finish.set()


class Mortal:
    """A client's process, seen from the harness. The next life begins when it is told to come back."""

    def __init__(self, role: Literal["publisher", "subscriber"], folder: Path, place: Place, rate: float) -> None:
        self.attached: list[Attachment] = []
        self.database = folder / f"{place.name}.db"
        arguments = (role, folder, place.name, place.address, place.log, rate, *place.urls)
        self._command = [sys.executable, "-m", "tests.soak.mortal", *map(str, arguments)]
        self._process: trio.Process | None = None
        self._killed = False
        self._wanted = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Until it ends by itself, or is cancelled."""
        while True:
            self._wanted, self._killed = trio.Event(), False
            code = await self._live(task_status)
            if not self._killed:
                assert code == 0, f"a client's process ended with exit status {code}"
                return
            await self._wanted.wait()

    async def _live(self, task_status: trio.TaskStatus[None]) -> int:
        process = self._process = await trio.lowlevel.open_process(self._command, cwd=ROOT, stdout=subprocess.PIPE)
        try:
            await self._listen(process, task_status)
            return await process.wait()
        finally:
            with trio.CancelScope(shield=True):
                process.terminate()
                with trio.move_on_after(GOODBYE_S):
                    await process.wait()
                process.kill()
                await process.wait()

    async def _listen(self, process: trio.Process, task_status: trio.TaskStatus[None]) -> None:
        assert process.stdout is not None
        unread = b""
        async for data in process.stdout:
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                if not self.attached:
                    task_status.started()
                self.attached.append(Attachment(**json.loads(line)))

    def leave(self) -> None:
        assert self._process is not None
        self._killed = True
        self._process.kill()

    def come_back(self) -> None:
        self._wanted.set()

    def finish(self) -> None:
        assert self._process is not None
        self._process.terminate()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            yield connection


class MortalPublisher(Mortal):
    def __init__(self, folder: Path, place: Place, rate: float) -> None:
        super().__init__("publisher", folder, place, rate)
        self._place = place

    def flows(self, since: float) -> bool:
        """Whether something was accepted after this time."""
        with self._reading() as connection:
            return bool(connection.execute("SELECT 1 FROM told WHERE at > ? LIMIT 1", (since,)).fetchone())

    @property
    def account(self) -> Published:
        """What was told just before a kill may have been noted nowhere. It counts as accepted, the stricter guess: who
        ended in order left nothing unanswered."""
        account = Published(self._place.name, attached=self.attached)
        with self._reading() as connection:
            sent = dict(connection.execute("SELECT number, at FROM sent").fetchall())
            rows = connection.execute("SELECT number, outcome, at FROM told").fetchall()
        told = {number: (outcome, at) for number, outcome, at in rows}
        sent_at, accepted_at = 0.0, 0.0
        for number in range(1 + max([*sent, *told], default=-1)):
            sent_at = sent.get(number, sent_at)
            outcome, accepted_at = told.get(number, (Outcome.ACCEPTED, accepted_at))
            account.sent_at.append(sent_at)
            if outcome == Outcome.ACCEPTED:
                account.accepted.append((number, accepted_at))
            else:
                account.otherwise[number] = outcome
        return account


class MortalSubscriber(Mortal):
    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__("subscriber", folder, place, 0)
        self._place = place

    @property
    def account(self) -> Received:
        account = Received(self._place.name, attached=self.attached)
        with self._reading() as connection:
            for publisher, number in connection.execute("SELECT publisher, number FROM received ORDER BY place"):
                account.numbers.setdefault(publisher, []).append(number)
        return account


if __name__ == "__main__":
    role, folder, name, address, log, rate, *urls = sys.argv[1:]
    trio.run(main, role, folder, rate, Place(name, tuple(urls), address, Path(log)))
