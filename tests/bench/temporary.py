"""`python -m tests.bench.temporary`: temporary queues come and go, and nothing is left of them.

Clients of proton, at all routers of the mesh `topologies/queues.yaml`, make temporary queues, each with a message
that is taken or left, and drop them. After each part the bench prints the memory of each router, rows and bytes of its
store, and links and queues in its status. It fails if a queue, a row of one or a link is left.
"""

import argparse
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psutil
import trio

from failover.client.management import Management
from router.queues.store import STORE
from tests.bench.declares import mesh_in
from tests.interop.temporary import make_and_drop
from tests.processes.mesh import RunningMesh, eventually

CLIENTS: Final = 32
MIB: Final = 1 << 20
OWN: Final = 1
"""The addresses of the bench itself: that of its answers."""
DISPATCH_ROUTER: Final = "org.apache.qpid.dispatch.router"


class Look:
    """What a router has."""

    def __init__(self, mesh: RunningMesh, router: str, status: Any, addresses: int) -> None:
        """`addresses`: with a link at any router, as far as this router knows."""
        process = psutil.Process(status["pid"])
        self.mib = process.memory_info().rss / MIB
        files = [*(mesh.directory.path / router).glob(STORE + "*")]
        with tempfile.TemporaryDirectory() as folder:  # the router locks its store
            for path in files:
                shutil.copy(path, folder)
            with closing(sqlite3.connect(Path(folder) / STORE)) as store:
                [(self.rows,)] = store.execute("SELECT count(*) FROM row")
                [(self.bodies,)] = store.execute("SELECT count(*) FROM body")
                [(self.entries,)] = store.execute("SELECT count(*) FROM entry")
        self.size = sum(path.stat().st_size for path in files)
        self.queues = len(status["queues"])
        self.links = len(status["publishers"]) + len(status["subscribers"])
        self.addresses = addresses

    def __str__(self) -> str:
        return (
            f"{self.mib:.1f} MiB of memory; store: {self.rows} rows, {self.bodies} bodies, "
            f"{self.entries} entries, {self.size / MIB:.1f} MiB; "
            f"{self.queues} queues, {self.links} links, {self.addresses} addresses"
        )


async def looks(mesh: RunningMesh) -> dict[str, Look]:
    statuses = {router: await mesh.status(router) for router in mesh.routers}
    found = {}
    async with Management([str(mesh.address(router)) for router in mesh.routers]) as management:
        for router in mesh.routers:
            [known] = await management.query(DISPATCH_ROUTER, ["addrCount"], router)
            found[router] = Look(mesh, router, statuses[router], known["addrCount"] - OWN)
    return found


async def come_and_go(mesh: RunningMesh, number: int) -> float:
    """Make and drop so many queues. Returns the seconds that this took."""
    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        for client in range(CLIENTS):
            address = str(mesh.address(mesh.routers[client % len(mesh.routers)]))
            nursery.start_soon(trio.to_thread.run_sync, make_and_drop, address, number // CLIENTS)
    return time.monotonic() - began


async def play(mesh: RunningMesh, parts: list[int]) -> None:
    for part in (CLIENTS, *parts):  # the first few open the ends of the sets
        took = await come_and_go(mesh, part)

        async def all_gone() -> bool:
            return not any(look.queues or look.bodies or look.links for look in (await looks(mesh)).values())

        await eventually(all_gone, 20)
        print(f"{part} queues in {took:.0f} s")
        for router, look in (await looks(mesh)).items():
            print(f"  {router}: {look}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, nargs="+", default=[1_000, 9_000], help="Queues of each part.")
    parts = parser.parse_args().parts
    with tempfile.TemporaryDirectory() as place, mesh_in(Path(place)) as mesh:
        trio.run(play, mesh, parts)


if __name__ == "__main__":
    main()
