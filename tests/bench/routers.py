"""`python -m tests.bench.routers`: how many bytes the routers of a large mesh send each other, and how soon all routers
know a change.

    r00 ── r01 ── r02 ── …      each router is linked to the next one of a ring, and to the one √n further: it has
     ╰────────────╯             four neighbours, 1 ms away; no link is bounded

The nodes are the production's with all their layers, without I/O, in one process and in virtual time. After the start:
nothing happens for a while; a subscriber attaches; a link is lost, noticed by both its ends at once; a router dies, as
its neighbours notice at once. Bytes of a change are those of all links until all know of it, and a moment longer.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Final

import attrs
from rich.console import Console
from rich.table import Table

from linkstate.mesh_actions import ContactLost, ContactMade, Transmit
from linkstate.plan.plan import Plan
from router.garbage import collect_rarely
from tests.deaf import Deaf
from tests.plans import of
from tests.simulation.schedule import Schedule
from tests.store import MemoryStore
from topic.actions import AnswerSubscriber, LinkAction
from topic.directory.entry import Lifetime
from topic.identity import LinkIdentity
from topic.journal import Block
from topic.node import Happening, Node, boot
from topic.settings import Settings

LATENCY_S: Final = 0.001
STARTING_S: Final = 0.2
"""Seconds within which all routers are started."""
IDLE_S: Final = 20.0
REFRESH_S: Final = 10.0
"""The interval at which every router repeats its links, all at about the same time, as they started together."""
AFTER_S: Final = 0.1
"""Seconds after a change in which all its effects end."""
LASTING: Final = Lifetime(60, "connection-close")


def topology(count: int) -> Plan:
    names = [f"r{number:02}" for number in range(count)]
    far = round(math.sqrt(count))
    links = {(names[i], names[(i + step) % count]): 1 for i in range(count) for step in (1, far)}
    return of(names, links)


class Station(Deaf):
    """One router and its shell. Bodies for one neighbour and link travel together."""

    def __init__(self, network: "Network", name: str) -> None:
        self.network, self.name, self.alive = network, name, True
        self._bodies: dict[tuple[str, str], list[bytes]] = {}
        self._timer = math.inf
        block, store = Block(name, "router", 1), MemoryStore()
        incarnation = self.wall_us() // 1000
        self.mesh, topic = boot(
            name, incarnation, network.plan, block, Settings(), store, self, hello=0.2, max_payload=1 << 24
        )
        self.node = Node(self.mesh, topic, store, self)
        self.node.pump()

    def handle(self, event: Callable[..., None], *arguments: object) -> None:
        if self.alive:
            routes = self.mesh.routes
            self.node.now()
            event(*arguments)
            self.node.pump()
            if self.mesh.routes is not routes:
                self.network.routed_at = self.now()

    def receive(self, source: str, link: str, body: bytes) -> None:
        if self.mesh.neighbours[source].connected:
            self.mesh.receive(source, link, body, self.now())

    def up(self, neighbour: str) -> None:
        self.mesh.link_up(neighbour, self.now())

    def down(self, neighbour: str) -> None:
        self.mesh.link_down(neighbour, self.now())

    def _wake(self, at: float) -> None:
        if at == self._timer:
            self._timer = math.inf
            self.handle(self.node.handle_timer)

    # the shell's interface for the node

    def wall_us(self) -> int:
        return 1_700_000_000_000_000 + int(self.now() * 1e6)

    def now(self) -> float:
        return self.network.schedule.now

    def perform(self, action: LinkAction) -> None:
        self.network.answered += isinstance(action, AnswerSubscriber)

    def transmit(self, action: Transmit) -> None:
        self._bodies.setdefault((action.neighbour, action.lane), []).append(action.body)

    def flush(self) -> None:
        bodies, self._bodies = self._bodies, {}
        for (neighbour, link), joined in bodies.items():
            self.network.carry(self.name, neighbour, link, b"".join(joined))
        deadline = self.node.deadline()
        if deadline < self._timer:
            self._timer = at = max(deadline, self.now())
            self.network.schedule.at(at, self._wake, at)

    def note(self, happening: Happening) -> None:
        self.network.contacts += isinstance(happening, ContactMade) - isinstance(happening, ContactLost)


@attrs.frozen
class Cost:
    seconds: float
    bytes: int
    processor_s: float
    """Processor seconds of all routers together."""


class Network:
    def __init__(self, count: int) -> None:
        self.schedule = Schedule()
        self.plan = topology(count)
        self.stations: dict[str, Station] = {}
        self.contacts = self.answered = self.bytes = 0
        self.routed_at = 0.0

    def carry(self, here: str, there: str, link: str, body: bytes) -> None:
        self.bytes += len(body)
        station = self.stations[there]
        self.schedule.after(LATENCY_S, station.handle, station.receive, here, link, body)

    def _both(self, happens: Callable[[Station, str], None], a: str, b: str) -> None:
        for here, there in ((a, b), (b, a)):
            station = self.stations[here]
            station.handle(happens, station, there)

    def _cost(self, change: Callable[[], float]) -> Cost:
        """The cost of a change. `change` returns the time at which all routers know it."""
        began, before, used = self.schedule.now, self.bytes, time.process_time()
        known = change()
        self._run(AFTER_S)
        return Cost(known - began, self.bytes - before, time.process_time() - used)

    def _run(self, seconds: float) -> None:
        until = self.schedule.now + seconds
        while self.schedule.step(until):
            pass
        self.schedule.now = until

    def _until(self, condition: Callable[[], bool]) -> float:
        while not condition():
            assert self.schedule.step(math.inf)
        return self.schedule.now

    # the measurements

    def start(self) -> Cost:
        """Start all routers. The cost has the seconds from the last start until each is in contact with all, and takes
        messages.
        """
        return self._cost(self._started)

    def _started(self) -> float:
        dice, names = Random(1), list(self.plan.routers)
        for name in names:
            self.schedule.after(dice.random() * STARTING_S, self._boot, name)
        self._run(STARTING_S)
        for a, b in self.plan.links:
            self.schedule.after(LATENCY_S, self._both, Station.up, a, b)
        everybody = len(names) * (len(names) - 1)
        booted = [station.node.topic for station in self.stations.values()]
        return self._until(lambda: self.contacts == everybody and all(topic.booted for topic in booted)) - STARTING_S

    def _boot(self, name: str) -> None:
        self.stations[name] = Station(self, name)

    def idle(self) -> float:
        """Bytes a second on all links."""
        before = self.bytes
        self._run(IDLE_S)
        said = self.bytes - before
        self._run(REFRESH_S / 2)
        return said / IDLE_S

    def attach(self) -> Cost:
        def change() -> float:
            station = self.stations["r00"]
            station.node.now()
            identity = LinkIdentity("s", "link", "topic/x")
            station.node.topic.attach_subscriber(identity, "link", station.now(), lifetime=LASTING)
            station.node.pump()
            return self._until(lambda: self.answered == 1)

        return self._cost(change)

    def cut(self) -> Cost:
        def change() -> float:
            self._both(Station.down, "r00", "r01")
            self._run(AFTER_S)
            return self.routed_at

        return self._cost(change)

    def die(self) -> Cost:
        def change() -> float:
            *others, dead = self.plan.routers
            self.stations[dead].alive = False
            for neighbour in self.stations[dead].mesh.neighbours:
                station = self.stations[neighbour]
                station.handle(station.down, dead)
            return self._until(lambda: self.contacts == len(others) ** 2)  # the dead one's own are left

        return self._cost(change)


def measure(count: int) -> list[str]:
    network = Network(count)
    start, idle = network.start(), network.idle()
    each = start.bytes / 1024, start.processor_s * 1e3, idle / 1024
    happened = [f"{start.seconds:.2f} s", *(f"{of_all / count:,.1f}" for of_all in each)]
    for cost in (network.attach(), network.cut(), network.die()):
        happened += [f"{cost.seconds * 1e3:.0f} ms", f"{cost.bytes / 1024:,.1f}"]
    return happened


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.routers", description=__doc__)
    parser.add_argument("routers", type=int, nargs="*", default=[6, 12, 25, 50, 100])
    options = parser.parse_args()
    collect_rarely()
    acts = [column for act in ("attach", "link lost", "router lost") for column in (act, "KiB in all")]
    table = Table("routers", "all in contact", "KiB each", "processor ms each", "idle KiB/s each", *acts)
    for count in options.routers:
        table.add_row(f"{count}", *measure(count))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    main()
