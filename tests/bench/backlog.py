"""`python -m tests.bench.backlog`: what a long queue costs the three routers that keep it.

One publisher fills a queue of `topologies/queues.yaml`, while nobody consumes. Then all routers are stopped and
started, and one consumer takes messages. The bench prints the memory of each router (RSS) and the size of its store on
the disk, the rate of messages, and the seconds from the start of the routers to the first message.

With `--pass N` a consumer holds one message of the queue, and does not settle it, while N messages pass through the
queue to another consumer (`amqpload.c`): memory and disk are to stay level.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Final

import psutil
import trio

from tests.bench.load import build
from tests.bench.queues import Broker, Case, Node, load
from tests.processes.clients import Clients, Subscriber, hold
from tests.processes.mesh import RunningMesh

MIB: Final = 1 << 20
QUEUE: Final = "queue/long"
LOOK_S: Final = 0.2
REST_S: Final = 3.0
"""Seconds in which earlier requests come to rest."""
ROUND: Final = 30_000
"""Messages that pass between two measurements."""


class Told:
    """Prints the progress of a number now and then."""

    def __init__(self, mesh: RunningMesh, what: str) -> None:
        self._mesh, self._what = mesh, what
        self._began = self._last = time.monotonic()

    def at(self, count: int, *, last: bool = False) -> None:
        now = time.monotonic()
        if last or now - self._last > 20:
            self._last = now
            rate = count / (now - self._began)
            print(f"{self._what} {count:,}: {rate:,.0f} a second, {memory(self._mesh)}", flush=True)


def memory(mesh: RunningMesh) -> str:
    found = [psutil.Process(mesh.pid(name)).memory_info().rss // MIB for name in mesh.routers]
    disk = [sum(path.stat().st_size for path in stores(mesh, name)) // MIB for name in mesh.routers]
    return f"{found} MiB of memory, {disk} MiB of disk"


def stores(mesh: RunningMesh, name: str) -> Iterator[Path]:
    return (mesh.directory.path / name).glob("queues.db*")


async def measured(mesh: RunningMesh, count: int, size: int, taken: int) -> None:
    await mesh.up()
    print(f"before: {memory(mesh)}", flush=True)
    async with trio.open_nursery() as nursery:
        clients = Clients(nursery)
        publisher = await clients.publisher(mesh.address("a"), QUEUE, "p")
        publisher.feed = repeat(bytes(size), count)
        told = Told(mesh, "enqueued")
        publisher.pump()
        while len(publisher.accepted) < count:
            await trio.sleep(LOOK_S)
            told.at(len(publisher.accepted))
        told.at(count, last=True)
        await trio.sleep(REST_S)
        print(f"at rest: {memory(mesh)}", flush=True)
        nursery.cancel_scope.cancel()
    for name in mesh.routers:
        await mesh.stop(name)
    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        for name in mesh.routers:
            nursery.start_soon(mesh.start, name)
    print(f"started: {time.monotonic() - began:.1f} s", flush=True)
    async with trio.open_nursery() as nursery:
        clients = Clients(nursery)
        consumer: Subscriber = await clients.subscriber(mesh.address("b"), QUEUE, "s", credit=500)
        await clients.until(lambda: bool(consumer.received))
        print(f"first message: {time.monotonic() - began:.1f} s, {memory(mesh)}", flush=True)
        told = Told(mesh, "consumed")
        while len(consumer.received) < min(taken, count):
            await trio.sleep(LOOK_S)
            told.at(len(consumer.received))
        told.at(len(consumer.received), last=True)
        nursery.cancel_scope.cancel()


async def passed(mesh: RunningMesh, count: int, size: int) -> None:
    """Let messages pass a message that a consumer holds."""
    await mesh.up()
    print(f"before: {memory(mesh)}", flush=True)
    nodes = {name: Node(str(mesh.address(name)), mesh.pid(name)) for name in mesh.routers}
    async with trio.open_nursery() as nursery:
        clients = Clients(nursery)
        holder = await clients.subscriber(mesh.address("b"), QUEUE, "holder", credit=1, respond=hold)
        holder.credit = 0  # no more than one message
        publisher = await clients.publisher(mesh.address("a"), QUEUE, "p")
        publisher.send(bytes(size))
        await clients.until(lambda: bool(holder.received) and bool(publisher.accepted))
        told = Told(mesh, "passed")
        for number in range(0, count, ROUND):
            case = Case("", min(ROUND, count - number))
            await trio.to_thread.run_sync(partial(load, Broker(nodes, "a", QUEUE), case, "c", "-s", str(size)))
            told.at(number + case.count)
        told.at(count, last=True)
        [delivery] = holder.received
        delivery.accept()
        await clients.until(lambda: bool(holder.settled))
        await trio.sleep(REST_S)
        print(f"at rest: {memory(mesh)}", flush=True)
        nursery.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.backlog", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=1_000_000, help="messages (default: %(default)s)")
    parser.add_argument("--size", type=int, default=1000, help="bytes of each (default: %(default)s)")
    parser.add_argument("--take", type=int, default=20_000, help="how many are consumed (default: %(default)s)")
    parser.add_argument("--pass", type=int, dest="passing", metavar="N", help="messages that pass by one that is held")
    asked = parser.parse_args()
    if asked.passing:
        build()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    with tempfile.TemporaryDirectory() as folder:
        mesh = RunningMesh("queues", Path(folder), {}, queues={"sets": 1, "replicas": 3})
        try:
            if asked.passing:
                trio.run(passed, mesh, asked.passing, asked.size)
            else:
                trio.run(measured, mesh, asked.count, asked.size, asked.take)
        finally:
            mesh.end()


if __name__ == "__main__":
    main()
