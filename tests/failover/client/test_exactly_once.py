"""Publisher and subscribers over a mesh that cuts connections at arbitrary instants, and with lives cut short."""

import random
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import trio

from failover.client import Delivery, Outcome, Publisher, SqliteStore, Subscriber
from tests.failover.client.resuming_mesh import running_mesh

ROOT = Path(__file__).parents[3]
COUNT = 120
SUBSCRIBERS = 2


class Crash(Exception):
    """Of a client's process, as far as one process can show it."""


def publisher(urls: Sequence[str], store: SqliteStore | None = None) -> Publisher:
    return Publisher(urls, "topic/x", container="p", link="out", store=store)


def subscriber(urls: Sequence[str], number: int, credit: int, store: SqliteStore | None = None) -> Subscriber:
    return Subscriber(urls, "topic/x", container=f"s{number}", link="in", credit=credit, store=store)


@pytest.mark.parametrize("seed", range(12))
async def test_connections_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    bodies: list[list[bytes]] = [[] for _ in range(SUBSCRIBERS)]

    async def accept(delivery: Delivery) -> None:
        await delivery.accept()

    async def subscribe(number: int, credit: int, task_status: trio.TaskStatus[None]) -> None:
        async with subscriber(mesh.urls[number:], number, credit) as s, trio.open_nursery() as answers:
            task_status.started()
            async for delivery in s:
                bodies[number].append(delivery.body)
                answers.start_soon(accept, delivery)  # so that some are with the user when the link is lost
                if len(bodies[number]) >= COUNT and mesh.is_empty:
                    return

    async with running_mesh(seed, cuts=15) as mesh:
        mesh.urls += mesh.urls
        async with trio.open_nursery() as nursery:
            for number in range(SUBSCRIBERS):
                await nursery.start(subscribe, number, chance.randrange(1, 30))
            async with publisher(mesh.urls) as p:
                handles = [await p.send(b"%d" % n) for n in range(COUNT)]
                assert [await handle.outcome() for handle in handles] == [Outcome.ACCEPTED] * COUNT
            assert mesh.is_empty
            nursery.cancel_scope.cancel()
        assert mesh.cuts == 0
    assert bodies == [[b"%d" % n for n in range(COUNT)]] * SUBSCRIBERS


@pytest.mark.parametrize("seed", range(8))
async def test_clients_crash_too(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)

    async def subscribe(number: int, task_status: trio.TaskStatus[None]) -> None:
        """Lives of random length; what a life has processed is in its own transaction."""
        connection = sqlite3.connect(tmp_path / f"s{number}")
        connection.execute("CREATE TABLE done (body BLOB)")
        try:
            while True:
                connection.rollback()
                try:
                    await life(connection, number, chance.randrange(1, 30), task_status)
                except Crash:
                    task_status = trio.TASK_STATUS_IGNORED
        finally:
            connection.close()

    async def life(
        connection: sqlite3.Connection, number: int, length: int, task_status: trio.TaskStatus[None]
    ) -> None:
        async with subscriber(mesh.urls, number, 5, SqliteStore(connection)) as s:
            task_status.started()
            async for delivery in s:
                connection.execute("INSERT INTO done VALUES (?)", (delivery.body,))
                length -= 1
                if not length and chance.random() < 0.5:
                    raise Crash
                await delivery.accept()
                if not length:
                    raise Crash

    async def publish() -> None:
        """The number of a message is that of its tag, which the store has counted."""
        sent, accepted = 0, 0
        while sent < COUNT:
            try:
                with SqliteStore(tmp_path / "p") as store:
                    async with publisher(mesh.urls, store) as p:
                        length = chance.randrange(1, 40)
                        for n in range(p.sent, min(p.sent + length, COUNT)):
                            await p.send(b"%d" % n)
                        sent = p.sent
                        if sent < COUNT:
                            raise Crash
            except Crash:
                accepted += 1
        assert accepted

    async with running_mesh(seed, cuts=5) as mesh, trio.open_nursery() as nursery:
        for number in range(SUBSCRIBERS):
            await nursery.start(subscribe, number)
        await publish()
        assert mesh.is_empty
        nursery.cancel_scope.cancel()
    for number in range(SUBSCRIBERS):
        with sqlite3.connect(tmp_path / f"s{number}") as connection:
            bodies = connection.execute("SELECT body FROM done ORDER BY rowid").fetchall()
        assert bodies == [(b"%d" % n,) for n in range(COUNT)]


async def test_client_processes_are_killed(tmp_path: Path) -> None:
    count = 300

    def start(role: str) -> list[str]:
        return [sys.executable, "-m", "tests.failover.client.mortal", role, str(tmp_path), str(count), *mesh.urls]

    async def mortal(
        role: str, lives: Sequence[int], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Lives that end with so many steps of the mesh, and one that goes on to its end."""
        for steps in (*lives, None):
            async with trio.open_nursery() as nursery:
                process = await nursery.start(
                    partial(trio.run_process, start(role), stdout=subprocess.PIPE, cwd=ROOT, check=False)
                )
                if role == "subscriber":
                    await process.stdout.receive_some()
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                if steps is not None:
                    await mesh.steps(steps)
                    process.kill()
                else:
                    assert await process.wait() == 0

    async with running_mesh(0, cuts=0) as mesh, trio.open_nursery() as nursery:
        await nursery.start(mortal, "subscriber", [150, 100, 200])
        await mortal("publisher", [200, 100, 150])
        assert mesh.is_empty
        nursery.cancel_scope.cancel()
    with sqlite3.connect(tmp_path / "subscriber") as connection:
        bodies = connection.execute("SELECT body FROM done ORDER BY rowid").fetchall()
    assert bodies == [(b"%d" % n,) for n in range(count)]
