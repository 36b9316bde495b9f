"""`python -m tests.bench.memory`: how much memory routers need for messages that their subscribers do not take.

Each case has publishers at a and one subscriber at c of a line of three. The subscriber grants no credit, or grants all
and does not read. The publishers send as credit allows, until no more comes. The bench samples the RSS ten times a
second, and prints the highest of each router, in MiB.
"""

import argparse
import time
from collections.abc import Mapping
from functools import partial
from itertools import product, repeat
from typing import Any

import psutil
import trio

from router.mesh.quantities import Address
from tests.bench.load import mesh
from tests.processes.clients import Clients, Publisher, hold
from tests.processes.deaf import Deaf

QUIET_LOOKS = 20
LIMIT_S = 20.0
LOOK_S = 0.1
MIB = 1 << 20


class Watch:
    """The highest RSS of each router since the start of the watch."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self.highest = dict.fromkeys(pids, 0)

    async def look(self) -> None:
        while True:
            for name, process in self._processes.items():
                self.highest[name] = max(self.highest[name], process.memory_info().rss)
            await trio.sleep(LOOK_S)

    def __str__(self) -> str:
        return ", ".join(f"{name} {rss / MIB:.0f}" for name, rss in self.highest.items())


async def stalled(routers: Mapping[str, Any], publishers: int, size: int, count: int, *, credit: int) -> str:
    """The highest RSS, and how many messages the publishers have sent."""
    addresses = {name: Address.parse(router["amqp"]) for name, router in routers.items()}
    watch = Watch({name: router["pid"] for name, router in routers.items()})
    async with trio.open_nursery() as nursery:
        clients = Clients(nursery)
        at = addresses["c"]
        stream = Deaf(await trio.open_tcp_stream(at.host, at.port))
        client = await clients.over(stream, "subscriber")
        subscriber = client.subscriber("topic/x", credit=credit, respond=hold)
        await clients.until(lambda: subscriber.attached)
        if credit:
            stream.deafen()
        nursery.start_soon(watch.look)
        feeds = [
            await feeding(clients, addresses["a"], "topic/x", f"p{n}", size, count // publishers)
            for n in range(publishers)
        ]
        await quiet(feeds, watch)
        nursery.cancel_scope.cancel()
    return f"{watch}; sent {sum(publisher.sent for publisher in feeds)} of {count}"


async def feeding(clients: Clients, at: Address, topic: str, name: str, size: int, count: int) -> Publisher:
    publisher = await clients.publisher(at, topic, name)
    publisher.feed = repeat(bytes(size), count)
    publisher.pump()
    return publisher


async def quiet(publishers: list[Publisher], watch: Watch) -> None:
    """Wait until for a while nothing was sent and no router has grown. Counts samples instead of time, as this process
    may be busy.
    """
    seen, quiet, began = (-1, -1), 0, time.monotonic()
    while quiet < QUIET_LOOKS and time.monotonic() - began < LIMIT_S:
        now = (
            sum(publisher.sent - publisher.link.unsent for publisher in publishers),
            sum(watch.highest.values()) // MIB,
        )
        seen, quiet = now, quiet + 1 if now == seen else 0
        await trio.sleep(LOOK_S)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory", description=__doc__)
    parser.add_argument("--share", type=int, default=1, help="send only one in so many messages")
    parser.add_argument("--only", default="", help="only cases whose title contains this")
    options = parser.parse_args()
    for (size, count), publishers, credit in product(((1, 1000), (15, 300)), (1, 4), (0, 100_000)):
        count //= options.share
        title = f"{count} x {size} MiB, {publishers} publishers, {'does not read' if credit else 'grants no credit'}"
        if options.only in title:
            with mesh("line") as routers:
                told = trio.run(partial(stalled, routers, publishers, size * MIB, count, credit=credit))
                print(title, told, sep=": ", flush=True)


if __name__ == "__main__":
    main()
