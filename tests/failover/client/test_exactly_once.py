"""Publisher and subscribers over a mesh that cuts connections at arbitrary instants, and with lives cut short."""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
import trio

from failover.client import Delivery, Outcome, Publisher, SqliteStore, Subscriber
from tests.failover.client.real_routers import real_routers

COUNT = 120
SUBSCRIBERS = 2


def open_store(path: Path) -> sqlite3.Connection:
    """What a killed process has written is not lost, so nobody need wait for the disk."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


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

    async with real_routers("pair", seed=seed) as mesh:
        mesh.urls += mesh.urls
        async with trio.open_nursery() as nursery:
            for number in range(SUBSCRIBERS):
                await nursery.start(subscribe, number, chance.randrange(1, 30))
            async with publisher(mesh.urls) as p:
                mesh.cuts = 15
                handles = [await p.send(b"%d" % n) for n in range(COUNT)]
                assert [await handle.outcome() for handle in handles] == [Outcome.ACCEPTED] * COUNT
                await mesh.emptied()  # of a publisher that is gone nobody can say that it has settled
            nursery.cancel_scope.cancel()
        assert mesh.cuts == 0
    assert bodies == [[b"%d" % n for n in range(COUNT)]] * SUBSCRIBERS


@pytest.mark.parametrize("seed", range(8))
async def test_clients_crash_too(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)

    async def subscribe(number: int, task_status: trio.TaskStatus[None]) -> None:
        """Lives of random length; what a life has processed is in its own transaction."""
        connection = open_store(tmp_path / f"s{number}")
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
            async for first in s:
                deliveries = [first, *s.here(chance.randrange(3))]
                for delivery in deliveries:
                    connection.execute("INSERT INTO done VALUES (?)", (delivery.body,))
                length -= len(deliveries)
                if length <= 0 and chance.random() < 0.5:
                    raise Crash
                await s.accept_all(deliveries)
                if length <= 0:
                    raise Crash

    async def publish() -> None:
        """The number of a message is that of its tag, which the store has counted."""
        sent, accepted = 0, 0
        while sent < COUNT:
            try:
                with closing(open_store(tmp_path / "p")) as connection:
                    async with publisher(mesh.urls, SqliteStore(connection)) as p:
                        length = chance.randrange(1, 40)
                        mesh.cuts += 1
                        numbers = range(p.sent, min(p.sent + length, COUNT))
                        first, *_ = [await p.send(b"%d" % n) for n in numbers]
                        await first.outcome()
                        sent = p.sent
                        if sent < COUNT:
                            raise Crash
                        await mesh.emptied()
            except Crash:
                accepted += 1
        assert accepted

    async with real_routers("pair", seed=seed) as mesh, trio.open_nursery() as nursery:
        for number in range(SUBSCRIBERS):
            await nursery.start(subscribe, number)
        await publish()
        nursery.cancel_scope.cancel()
    for number in range(SUBSCRIBERS):
        with sqlite3.connect(tmp_path / f"s{number}") as connection:
            bodies = connection.execute("SELECT body FROM done ORDER BY rowid").fetchall()
        assert bodies == [(b"%d" % n,) for n in range(COUNT)]
