"""`python -m tests.bench.drained`: how long a consumer of a queue waits for the answer to a drain.

The mesh is `topologies/queues.yaml` with one set. A consumer of proton at one router gives credit and drains, again and
again. In each case:

empty, full     nothing happens; the queue has no message, or a message for each drain
moves           the lead of the set moves between the other two routers, again and again; a message for each drain
leader killed   the leader is killed, another router is elected; each kill again with a new mesh of processes
nobody leads    both other routers are killed, so nobody can lead

The bench prints the number of drains, and the median and the longest wait. It fails if a wait is longer than `LIMIT_S`.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import trio
from proton import Message
from proton.utils import BlockingConnection

from tests.forks import COMMAND_LINE
from tests.processes.mesh import RunningMesh
from tests.processes.test_queues import ONE_SET, roles

LIMIT_S: Final = 0.1
LASTS_S: Final = 5.0
"""How long the consumer drains in each case."""
QUEUE: Final = "queue/drained"


class Drainer:
    """A consumer that drains, in a thread."""

    def __init__(self, address: str) -> None:
        self._connection: Any = BlockingConnection(f"amqp://{address}")
        self._receiver: Any = self._connection.create_receiver(QUEUE, credit=0)
        self.took: list[float] = []

    def drain(self, until: float) -> None:
        """Give credit for a message and drain, again and again."""
        link = self._receiver.link
        while time.monotonic() < until:
            began = time.monotonic()
            link.drain(1)
            self._connection.wait(lambda: not link.credit, timeout=10)
            self.took.append(time.monotonic() - began)
            while self._receiver.fetcher.has_message:
                self._receiver.receive()
                self._receiver.accept()
            time.sleep(0.005)

    def close(self) -> None:
        self._connection.close()


def fill(address: str, number: int) -> None:
    connection: Any = BlockingConnection(f"amqp://{address}")
    sender = connection.create_sender(QUEUE)
    for _ in range(number):
        sender.send(Message(b"x"))
    connection.close()


async def moves(mesh: RunningMesh, at: str) -> None:
    """Move the lead to and fro between the other routers."""
    others = [router for router in mesh.routers if router != at]
    command = [*COMMAND_LINE, "queue", "move", "q0"]
    while True:
        for router in others:
            move = [*command, router, "--run-dir", str(mesh.directory.path)]
            await trio.run_process(move, capture_stdout=True, check=False)


async def case(name: str, mesh: RunningMesh, kills: int) -> list[float]:
    leader, _ = await roles(mesh)
    at = next(router for router in mesh.routers if router != leader)
    if name in ("full", "moves"):
        await trio.to_thread.run_sync(fill, str(mesh.address(leader)), 600)
    took: list[float] = []
    for _ in range(kills if name == "leader killed" else 1):
        leader, _ = await roles(mesh)
        at = next(router for router in mesh.routers if router != leader)
        drainer = Drainer(str(mesh.address(at)))
        killed = {"leader killed": [leader], "nobody leads": [one for one in mesh.routers if one != at]}.get(name, [])
        async with trio.open_nursery() as nursery:
            if name == "moves":
                nursery.start_soon(moves, mesh, at)
            nursery.start_soon(_kill, mesh, killed)
            await trio.to_thread.run_sync(drainer.drain, time.monotonic() + LASTS_S)
            nursery.cancel_scope.cancel()
        took += drainer.took
        drainer.close()
        for router in killed:
            await mesh.ending(router)
            await mesh.start(router)
    return took


async def _kill(mesh: RunningMesh, routers: list[str]) -> None:
    await trio.sleep(0.3)
    for router in routers:
        mesh.signal(router, SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    kills = parser.parse_args().kills
    longest = 0.0
    for name in ("empty", "full", "moves", "leader killed", "nobody leads"):
        with tempfile.TemporaryDirectory() as place:
            mesh = RunningMesh("queues", Path(place), {}, queues=ONE_SET)
            try:
                trio.run(mesh.up)
                took = trio.run(case, name, mesh, kills)
            finally:
                mesh.end()
        middle, most = statistics.median(took), max(took)
        longest = max(longest, most)
        print(f"{name}: {len(took)} drains, median {1e3 * middle:.1f} ms, longest {1e3 * most:.1f} ms", flush=True)
    assert longest <= LIMIT_S, "a drain was answered too late"


if __name__ == "__main__":
    main()
