"""`python -m tests.bench.growth`: what one link costs the nodes of a mesh, as the number of links grows.

The nodes are the production's, without I/O, in one process: processor microseconds per link, of all nodes together. The
links, publishers and subscribers in turn or subscribers alone, come in bursts of 50, as a connection brings them.
"""

import argparse
import gc
import sys
import time
from collections import deque
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from linkstate.clock import HybridClock
from linkstate.mesh_actions import Transmit
from router.garbage import collect_rarely
from tests.contacts import Contacts
from tests.deaf import Deaf
from tests.store import MemoryStore
from topic.actions import AnswerPublisher, AnswerSubscriber, LinkAction
from topic.core import Topic
from topic.delivery.record import HomeStream
from topic.directory.entry import Lifetime
from topic.edge.subscriber import LocalSubscriber
from topic.identity import LinkIdentity
from topic.journal import Block
from topic.node import Happening, Node
from topic.settings import Settings

BURST = 50
LASTING = Lifetime(60, "connection-close")
ACTS = ("attach", "suspend", "move", "look", "lose", "meet", "close")


class Station(Deaf):
    """The shell of one node. It only counts answered attaches."""

    def __init__(self, mesh: "Mesh", name: str, names: tuple[str, ...]) -> None:
        self.mesh, self.name, self.answered = mesh, name, 0
        self.contacts = Contacts(lambda router, payload: mesh.wires[name, router].append(payload))
        topic = Topic(name, 1, names, HybridClock(0), Block(name, "router", 1), Settings(), 0.0)
        self.node = Node(self.contacts, topic, MemoryStore(), self)

    def wall_us(self) -> int:
        self.mesh.wall_us += 10
        return self.mesh.wall_us

    def now(self) -> float:
        return self.mesh.now

    def perform(self, action: LinkAction) -> None:
        self.answered += isinstance(action, AnswerPublisher | AnswerSubscriber)

    def transmit(self, action: Transmit) -> None:
        raise AssertionError("there are no neighbours, only contacts")

    def flush(self) -> None:
        """Nothing to do: batches wait on the wires."""

    def note(self, happening: Happening) -> None:
        """Events are ignored."""


class Mesh:
    """Nodes in contact with each other, and links that attach, move and close."""

    def __init__(self, routers: int, links: int, *, own: bool) -> None:
        """`own`: each link has its own address, and half of the links are publishers. Otherwise all are subscribers of
        one address.
        """
        self.wall_us, self.now, self.own = 1_700_000_000_000_000, 0.0, own
        names = tuple("abcdefgh"[:routers])
        self.wires: dict[tuple[str, str], deque[bytes]] = {(a, b): deque() for a in names for b in names if a != b}
        self.stations = [Station(self, name, names) for name in names]
        self.links: list[tuple[Station, HomeStream | LocalSubscriber] | None] = [None] * links
        for a, b in self.wires:
            self._station(a).contacts.made(b, 1)
        self._flow()

    def _station(self, name: str) -> Station:
        return self.stations["abcdefgh".index(name)]

    def _flow(self) -> None:
        for station in self.stations:
            station.node.now()
            station.node.pump()
        while any(self.wires.values()):
            for (here, there), wire in self.wires.items():
                station = self._station(there)
                while wire:
                    station.contacts.received(here, wire.popleft())
                station.node.now()
                station.node.pump()

    def _each(self, act: Callable[[int], Station]) -> None:
        for number in range(len(self.links)):
            node = act(number).node
            node.perform()
            node.deadline()
            if number % BURST == BURST - 1:
                self._flow()
        self._flow()

    def _attach_at(self, number: int, place: int) -> Station:
        station, before = self.stations[place % len(self.stations)], self.links[number]
        identity = LinkIdentity(f"client {number}", "link", f"topic/{number if self.own else 0}")
        station.node.now()
        topic, unsettled = station.node.topic, None if before is None else dict[bytes, int]()
        if self.own and number % 2:
            generation = before[1].generation if before is not None and isinstance(before[1], HomeStream) else None
            end: HomeStream | LocalSubscriber = topic.attach_publisher(
                identity, number, self.now, lifetime=LASTING, unsettled=unsettled, generation=generation
            )
        else:
            end = topic.attach_subscriber(identity, number, self.now, lifetime=LASTING, unsettled=unsettled)
        self.links[number] = station, end
        return station

    def _end_of(self, number: int) -> tuple[Station, HomeStream | LocalSubscriber]:
        link = self.links[number]
        assert link is not None
        link[0].node.now()
        return link

    # the measured acts

    def attach(self) -> None:
        self._each(lambda number: self._attach_at(number, number))

    def move(self) -> None:
        """Each client moves to the next router, with its map."""
        self._each(lambda number: self._attach_at(number, number + 1))

    def suspend(self) -> None:
        def act(number: int) -> Station:
            station, end = self._end_of(number)
            if isinstance(end, HomeStream):
                station.node.topic.suspend_publisher(end, end.link, self.now)
            else:
                station.node.topic.suspend_subscriber(end, end.link, self.now)
            return station

        self._each(act)

    def close(self) -> None:
        def act(number: int) -> Station:
            station, end = self._end_of(number)
            if isinstance(end, HomeStream):
                station.node.topic.detach_publisher(end, self.now)
            else:
                station.node.topic.detach_subscriber(end, end.link, self.now)
            return station

        self._each(act)

    def look(self) -> None:
        """A second passes, in which every router looks twice for missing clients."""
        for _ in range(2):
            self.now += 0.5
            for station in self.stations:
                station.node.handle_timer()
        self._flow()

    def lose(self) -> None:
        """The last router loses its contacts."""
        self._last(lambda station, other: station.contacts.lost(other))

    def meet(self) -> None:
        """The last router makes its contacts again, and all sections are exchanged."""
        self._last(lambda station, other: station.contacts.made(other, 1))

    def _last(self, happens: Callable[[Station, str], None]) -> None:
        *others, last = self.stations
        for station in others:
            happens(station, last.name)
            happens(last, station.name)
        self._flow()


def measure(routers: int, links: int, *, own: bool) -> list[float]:
    """Microseconds per link, for each act."""
    gc.collect()
    mesh, costs = Mesh(routers, links, own=own), list[float]()
    for act in ACTS:
        began = time.process_time()
        getattr(mesh, act)()
        costs.append((time.process_time() - began) / links * 1e6)
    assert sum(station.answered for station in mesh.stations) == 2 * links, "every attach is answered"
    assert not any(list(station.node.topic.directory.entries()) for station in mesh.stations), "nothing is left"
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("links", type=int, nargs="*", default=[1000, 4000, 16000])
    options = parser.parse_args()
    collect_rarely()
    table = Table("routers", "links", "addresses", *ACTS, title="processor µs per link, of all routers together")
    for routers in (1, 3):
        for own in (True, False):
            for links in options.links:
                costs = measure(routers, links, own=own)
                addresses = "one each" if own else "one for all"
                table.add_row(str(routers), f"{links:,}", addresses, *(f"{cost:.1f}" for cost in costs))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    main()
