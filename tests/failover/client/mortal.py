"""A client in a process of its own, for tests that kill it. Arguments: role, folder, count, URLs.

The publisher goes on with the number that its store has come to, until COUNT messages were accepted. The subscriber
writes every body into a table, in the transaction of its acceptance, for ever.
"""

import sqlite3
import sys
from pathlib import Path

import trio

from failover.client import Outcome, Publisher, SqliteStore, Subscriber


async def publish(folder: Path, count: int, urls: list[str]) -> None:
    with SqliteStore(folder / "publisher") as store:
        async with Publisher(urls, "topic/x", container="p", link="out", store=store) as p:
            handles = list(p.resumed)
            while (number := p.sent) < count:
                handles.append(await p.send(b"%d" % number))
            for handle in handles:
                assert await handle.outcome() is Outcome.ACCEPTED


async def subscribe(folder: Path, count: int, urls: list[str]) -> None:
    connection = sqlite3.connect(folder / "subscriber")
    connection.execute("CREATE TABLE IF NOT EXISTS done (body BLOB)")
    async with Subscriber(urls, "topic/x", container="s", link="in", store=SqliteStore(connection)) as s:
        print("attached", flush=True)
        async for delivery in s:
            connection.execute("INSERT INTO done VALUES (?)", (delivery.body,))
            await delivery.accept()


if __name__ == "__main__":
    role, folder, count, *urls = sys.argv[1:]
    trio.run(publish if role == "publisher" else subscribe, Path(folder), int(count), urls)
