"""`python -m tests.bench.large`: attaches while large bodies pass a slow link, on `pair`.

    publisher - a ==so many bytes a second== b - subscriber

The bench prints how long the bodies take to arrive, and how long attaches take meanwhile, at a and at b in turn, each
with its own address: the median and the longest. Exit 1: one took more than `LONGEST_S` above the link's own latency
(two round trips), or a contact was lost.
"""

import gc
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

import trio

from failover.chaos.carrier import Impairment
from tests.processes.clients import Clients
from tests.processes.test_narrow_links import MEGABYTE, narrow_pair

LONGEST_S: Final = 0.2
CASES: Final = (
    ("20 MB/s", Impairment(rate=20 * MEGABYTE), 200, 1 << 20),
    ("2 MB/s", Impairment(rate=2 * MEGABYTE), 200, 1 << 20),
    ("20 MB/s, 0.2 s each way", Impairment(rate=20 * MEGABYTE, latency=0.2), 200, 1 << 20),
    ("8 MB/s", Impairment(rate=8 * MEGABYTE), 3, 15 << 20),
)
"""(name of a link, the link, number of bodies, bytes of a body)"""
PATIENCE_S: Final = 300.0
IN_FLIGHT: Final = 20
"""The most bodies that are not accepted yet."""


async def measured(link: Impairment, count: int, size: int) -> tuple[float, list[float]]:
    """The seconds until all bodies had arrived, and the seconds of each attach."""
    attaches: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery, narrow_pair(Path(folder), nursery, link) as mesh:
            clients = Clients(nursery)
            subscriber = await clients.subscriber(mesh.addresses["b"], "topic/x", credit=1000)
            publisher = await clients.publisher(mesh.addresses["a"], "topic/x")
            publisher.in_flight = 1
            publisher.feed = iter([bytes(size)] * count)
            began = trio.current_time()
            publisher.pump()
            while len(subscriber.received) < count:
                asked, at = trio.current_time(), "ab"[len(attaches) % 2]
                await clients.subscriber(mesh.addresses[at], f"topic/{len(attaches)}")
                attaches.append(trio.current_time() - asked)
                # Raise it step by step: the link is in this process, and stands still while much is written.
                publisher.in_flight = min(2 * publisher.in_flight, IN_FLIGHT)
                publisher.pump()
                with trio.move_on_after(0.2):
                    await clients.until(lambda: len(subscriber.received) >= count, PATIENCE_S)
            took = trio.current_time() - began
            await clients.until(lambda: len(publisher.accepted) == count, PATIENCE_S)
    return took, attaches


def main() -> int:
    gc.disable()  # hundreds of clients and the link share this process: a collection delays the link for 70 ms
    late = False
    print(f"{'link':<26}{'bodies':<14}{'all arrived':>12}{'attaches':>10}{'median':>10}{'longest':>10}", flush=True)
    for name, link, count, size in CASES:
        took, attaches = trio.run(measured, link, count, size)
        longest = max(attaches)
        late |= longest > LONGEST_S + 4 * link.latency
        bodies = f"{count} x {size >> 20} MiB"
        figures = f"{statistics.median(attaches):>9.3f}s{longest:>9.3f}s"
        print(f"{name:<26}{bodies:<14}{took:>11.1f}s{len(attaches):>10}{figures}", flush=True)
    return late


if __name__ == "__main__":
    sys.exit(main())
