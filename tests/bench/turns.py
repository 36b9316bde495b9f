"""`python -m tests.bench.turns`: how long a router does not serve its sockets while clients ask for its status.

Router a of `triangle` has the given number of links. A *turn* is the work of its loop between two waits for input. The
bench prints its longest turns alone, and while ten clients in a process of their own ask for `$status` with unlimited
credit. Exit 1: beside them a turn took more than `LONGEST_S`.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

import trio

from router.amqp.batches import Transfers
from router.amqp.proton.link import Link
from router.amqp.transport import serve
from router.mesh.quantities import Address
from tests.processes.clients import Client, Clients
from tests.processes.mesh import RunningMesh

LONGEST_S: Final = 0.05
ASKERS: Final = 10
CREDIT: Final = (1 << 31) - 1
CONNECTIONS: Final = 50
WHILE_S: Final = 10.0
BESIDE: Final = "asked by ten"

Span = tuple[float, float]
"""A time span: its begin and end. For a turn: its begin and its length. By the clock that all processes share."""


class Asker(Client):
    """A client that discards its reports."""

    def __init__(self, container: str, stream: trio.abc.Stream) -> None:
        super().__init__(container, stream)
        self.told = trio.Event()

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        self.told.set()


def ask(address: Address, everybody: Event) -> None:
    """Runs the ten clients in their process. `everybody` is set once each has had a report."""

    async def asking() -> None:
        askers: list[Asker] = []
        async with trio.open_nursery() as nursery:
            for number in range(ASKERS):
                stream = await trio.open_tcp_stream(address.host, address.port)
                asker = Asker(f"asker {number}", stream)
                asker.connection.open()
                asker.subscriber("$status", credit=CREDIT)
                nursery.start_soon(serve, stream, asker.connection)
                askers.append(asker)
            for asker in askers:
                await asker.told.wait()
            everybody.set()

    trio.run(asking)


async def measured(mesh: RunningMesh, links: int) -> dict[str, Span]:
    await mesh.up()
    async with trio.open_nursery() as nursery:
        clients = Clients(nursery)
        connected = [await clients.connect(mesh.address("a"), f"client {number}") for number in range(CONNECTIONS)]
        held = [connected[number % CONNECTIONS].subscriber(f"topic/{number}") for number in range(links)]
        await clients.until(lambda: all(subscriber.attached for subscriber in held))
        spans = {"alone": await _span()}
        context = multiprocessing.get_context("spawn")
        everybody = context.Event()
        process = context.Process(target=ask, args=(mesh.address("a"), everybody), daemon=True)
        process.start()
        try:
            assert await trio.to_thread.run_sync(everybody.wait, 60)
            spans[BESIDE] = await _span()
            assert process.is_alive(), "nobody asked any more"
        finally:
            process.kill()
            process.join()
        nursery.cancel_scope.cancel()
    await mesh.stop("a")
    return spans


async def _span() -> Span:
    began = time.monotonic()
    await trio.sleep(WHILE_S)
    return began, time.monotonic()


def compare(links: int) -> bool:
    """Whether all turns beside the ten were short."""
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "tests.bench.timed_router", folder)
        mesh = RunningMesh("triangle", Path(folder), {}, command)
        try:
            spans = trio.run(measured, mesh, links)
        finally:
            mesh.end()
        turns = json.loads((Path(folder) / "a.json").read_text())
    assert turns, "to start takes longer than that"
    found = {name: _longest(turns, span) for name, span in spans.items()}
    for name, longest in found.items():
        shown = ", ".join(f"{1000 * took:.1f}" for took in longest[:5])
        print(f"{links:>6} links, {name:<13} the longest turns in ms: {shown or 'none that counts'}", flush=True)
    return max(found[BESIDE], default=0.0) <= LONGEST_S


def _longest(turns: list[Span], span: Span) -> list[float]:
    """The lengths of the turns that began in the span, the longest first."""
    since, until = span
    return sorted((took for began, took in turns if since <= began < until), reverse=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.turns", description=__doc__)
    parser.add_argument("links", type=int, nargs="*", default=[0, 2000])
    late = [links for links in parser.parse_args().links if not compare(links)]
    return bool(late)


if __name__ == "__main__":
    sys.exit(main())
