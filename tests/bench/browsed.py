"""`python -m tests.bench.browsed`: a browser over many messages changes nothing.

The mesh is `topologies/queues.yaml` with one set. Publishers fill a queue; then a browser of proton reads all of it.
The bench compares before and after: what the leader tells of the set and of the queue, and each row and entry in the
store of each router. It prints how long the browser took, and fails if anything differs.
"""

import argparse
import hashlib
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import trio
from proton.reactor import Copy
from proton.utils import BlockingConnection

from router.queues.store import STORE
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, eventually
from tests.processes.test_queues import ONE_SET, roles

QUEUE: Final = "queue/browsed"
PUBLISHERS: Final = 4
TABLES: Final = ("row", "body", "entry")


def digest(mesh: RunningMesh, router: str) -> str:
    """A digest of what a router has of the set on its disk."""
    files = [*(mesh.directory.path / router).glob(STORE + "*")]
    found = hashlib.blake2b()
    with tempfile.TemporaryDirectory() as folder:  # the router locks its store
        for path in files:
            shutil.copy(path, folder)
        with closing(sqlite3.connect(Path(folder) / STORE)) as store:
            for table in TABLES:
                for row in store.execute(f"SELECT * FROM {table} ORDER BY key"):
                    found.update(repr(row).encode())
    return found.hexdigest()


async def known(mesh: RunningMesh) -> list[Any]:
    """What the leader tells of the set and its queue, but for ages, and the digests of all stores."""
    leader, _ = await roles(mesh)
    status = await mesh.status(leader)
    [queue] = status["queues"]
    told = [{name: value for name, value in one.items() if "oldest" not in name} for one in (*status["sets"], queue)]
    return [told, *[await trio.to_thread.run_sync(digest, mesh, router) for router in mesh.routers]]


def browse(address: str, number: int) -> float:
    """Browse so many messages. Returns the seconds that this took."""
    connection: Any = BlockingConnection(f"amqp://{address}", timeout=60)
    began = time.monotonic()
    receiver = connection.create_receiver(QUEUE, credit=1000, options=Copy())
    for _ in range(number):
        receiver.receive()
        if receiver.link.credit < 500:
            receiver.flow(500)
    took = time.monotonic() - began
    connection.close()
    return took


async def play(mesh: RunningMesh, number: int) -> None:
    async with trio.open_nursery() as nursery:
        clients = Clients(nursery)
        for name in range(PUBLISHERS):
            publisher = await clients.publisher(mesh.address("a"), QUEUE, f"p{name}")
            for one in range(number // PUBLISHERS):
                publisher.send(b"%d" % one)
                if one % 1000 == 999:
                    await clients.until(lambda one=one, publisher=publisher: len(publisher.accepted) > one)  # type: ignore[misc]
        nursery.cancel_scope.cancel()
    before: list[Any] = []

    async def is_at_rest() -> bool:
        nonlocal before
        former, before = before, await known(mesh)
        return former == before

    await eventually(is_at_rest)
    _, follower = await roles(mesh)
    took = await trio.to_thread.run_sync(browse, str(mesh.address(follower)), number)
    after = await known(mesh)
    print(f"{number} messages browsed in {took:.1f} s; before and after are {'alike' if after == before else 'unlike'}")
    assert after == before, (before[0], after[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    number = parser.parse_args().count
    with tempfile.TemporaryDirectory() as place:
        mesh = RunningMesh("queues", Path(place), {}, queues=ONE_SET)
        try:
            trio.run(mesh.up)
            trio.run(play, mesh, number)
        finally:
            mesh.end()


if __name__ == "__main__":
    main()
