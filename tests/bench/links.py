"""`python -m tests.bench.links`: how long routers take to attach many links, and to take over the links of a dead
router.

On a mesh of three routers the given number of links, each with its own address, attach over 80 connections, spread
evenly; publishers and subscribers alternate. Then a router is killed. Its clients notice that at once, and attach with
empty maps at the other routers. The clients speak through the engine of `router.amqp`, all of them in this process.
"""

import argparse
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import trio

from router.amqp.connection import Connection
from router.amqp.format.values import EXPIRE_CONNECTION, ErrorCondition
from router.amqp.handler import Handler
from router.amqp.proton.link import Link
from router.amqp.transport import serve
from tests.bench.load import mesh

CONNECTIONS = 80
TIMEOUT_S = 60
LIMIT_S = 300.0


class Count:
    """A number with tasks that wait for it to change."""

    def __init__(self) -> None:
        self.now = 0
        self._changed = trio.Event()

    def add(self, change: int) -> None:
        self.now += change
        self._changed.set()

    async def until(self, condition: Callable[[int], bool]) -> None:
        while not condition(self.now):
            self._changed = trio.Event()
            await self._changed.wait()


class Crowd:
    """All clients, with the number of their links that routers have answered, and of their messages."""

    def __init__(self, addresses: Sequence[str], kind: "type[Client]") -> None:
        self.addresses = list(addresses)
        self.answered = Count()
        self.received = Count()
        self.refused: list[str] = []
        self._kind = kind

    async def run(self, number: int, links: range) -> None:
        """Run one client. When its connection has ended, it attaches at the next router."""
        fresh = True
        while True:
            client = self._kind(self, links, fresh=fresh)
            host, port = self.addresses[number % len(self.addresses)].rsplit(":", 1)
            connection = Connection(client, container=f"client {number}", server=False, idle_timeout=30.0)
            connection.open()
            try:
                stream = await trio.open_tcp_stream(host, int(port))
            except OSError:
                await trio.sleep(0.02)
            else:
                await serve(stream, connection)
                fresh = fresh and not client.answered


class Client(Handler):
    """One connection of publishers and subscribers in turn, each with its own address."""

    def __init__(self, crowd: Crowd, links: range, *, fresh: bool) -> None:
        self.answered = 0
        self.crowd = crowd
        self.links = links
        self._fresh = fresh

    def on_open(self, connection: Connection) -> None:
        unsettled: dict[bytes, int] | None = None if self._fresh else {}
        for number in self.links:
            attach = connection.sender if number % 2 else connection.receiver
            attach(
                f"link {number}", f"topic/{number}", rcv_settle_mode=1, unsettled=unsettled, timeout=TIMEOUT_S,
                expiry_policy=EXPIRE_CONNECTION,
            )  # fmt: skip

    def on_attached(self, link: Link) -> None:
        self.answered += 1
        self.crowd.answered.add(1)

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        self.crowd.refused.append(f"{link.name}: {condition}")

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        self.crowd.answered.add(-self.answered)


class Clock:
    """Seconds, and processor seconds of the routers, since the last look."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.processes = [psutil.Process(pid) for pid in pids]
        self._began, self._used = time.monotonic(), self._busy()

    def _busy(self) -> list[float]:
        return [sum(process.cpu_times()[:2]) for process in self.processes]

    def look(self) -> str:
        busy = self._busy()
        used = " + ".join(f"{now - before:.1f}" for now, before in zip(busy, self._used, strict=True))
        took = time.monotonic() - self._began
        self._began, self._used = time.monotonic(), busy
        return f"{took:6.1f} s, processor seconds of the routers {used}"


async def measure(routers: Mapping[str, Any], links: int) -> None:
    names = list(routers)
    crowd = Crowd([routers[name]["amqp"] for name in names], Client)
    pids = [routers[name]["pid"] for name in names]
    share = -(-links // CONNECTIONS)
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            clock = Clock(pids)
            for number in range(CONNECTIONS):
                nursery.start_soon(crowd.run, number, range(links)[number * share : (number + 1) * share])
            await crowd.answered.until(links.__eq__)
            print(f"{links} links attached:        {clock.look()}")
            clock = Clock(pids[:-1])
            os.kill(pids[-1], signal.SIGKILL)
            dead = crowd.addresses.pop()
            await crowd.answered.until(links.__gt__)
            await crowd.answered.until(links.__eq__)
            print(f"those at {names[-1]} attached again:   {clock.look()}   ({dead} was killed)")
            nursery.cancel_scope.cancel()
    for reason in crowd.refused[:3]:
        print(f"detached: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.links", description=__doc__)
    parser.add_argument("links", type=int, nargs="*", default=[6000, 12000])
    options = parser.parse_args()
    for links in options.links:
        with mesh("triangle") as routers:
            trio.run(measure, routers, links)
            for name, router in routers.items():
                told = (Path(router["log"]).parent / "router.log").read_text().splitlines()
                lost = [line for line in told if "contact" in line and ("lost" in line or "dropped" in line)]
                print(f"router {name} lost contacts: {len(lost)}")


if __name__ == "__main__":
    main()
