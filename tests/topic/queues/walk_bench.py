"""A bench on which everything under way advances one by one, in any order (`tests.topic.queues.walks`).

A move is: a batch arrives, a disk does a write, a router notices that another one has ended, or what else the walk has
under way (`others`). Batches on a channel arrive in order while the contact lasts, and are lost with it.
"""

from collections.abc import Callable, Collection
from functools import partial
from random import Random

import attrs

from linkstate.mesh_actions import ContactLost
from tests.store import MemoryStore
from tests.topic.queues.bench import SET, WITH_QUEUES, QueueBench, QueueStation
from topic.core import Topic
from topic.node import Happening, SetPort
from topic.queues.set_map import SetPlan
from topic.queues.storing import FoundBodies, ReadBodies, StoreRead

FAR_SET = SetPlan("far", ("c", "d", "e"), "queue/far/")
"""Another set, whose queues have dead letters only."""
Move = Callable[[], None]


class WalkStation(QueueStation):
    bench: "WalkBench"

    def port(self, core: Topic) -> SetPort:
        self.read: list[tuple[ReadBodies, FoundBodies]] = []
        """Reads that the disk has done, and whose results the router has not got."""
        return super().port(core)

    def note(self, happening: Happening) -> None:
        super().note(happening)
        if isinstance(happening, ContactLost):
            self.bench.has_lost(self.name, happening.router)


class WalkBench(QueueBench):
    station = WalkStation
    stores: dict[str, MemoryStore]

    def __init__(self, routers: str, *, seed: int, compare_every: int, grace: float) -> None:
        self._incarnation = 1
        self._dice = Random(f"reads {seed}")
        self.reads = [0, 0]
        """Reads of bodies: how many were no longer needed, and how many counted."""
        settings = attrs.evolve(WITH_QUEUES, grace=grace)
        super().__init__(*routers, seed=seed, compare_every=compare_every, settings=settings, others=[FAR_SET])
        self.stores = {name: station.store for name, station in self.stations.items()}

    def at(self, router: str) -> WalkStation:
        station = self.stations[router]
        assert isinstance(station, WalkStation)
        return station

    def note(self, what: str) -> None:
        """Add a line to the trace."""

    def has_lost(self, here: str, there: str) -> None:
        """A router has lost the contact with another one."""

    # what is under way

    def others(self) -> list[Move]:
        """Further moves that are possible now."""
        return []

    def moves(self) -> list[Move]:
        """Moves that are possible now without a client or a fault."""
        moves: list[Move] = []
        for (here, there), queue in self._wires.items():
            if queue and (here, there) not in self._held and there in self.stations:
                moves.append(partial(self.step, here, there))
        for name in self.stations:
            if self.at(name).waiting and name not in self.hanging:
                moves.append(partial(self.write, name))
            if self.at(name).read:
                moves.append(partial(self.tell, name))
            if len(self.stations) < len(self.disks):
                moves += [partial(self.lose, name, gone) for gone in self.contacts(name) if gone not in self.stations]
        return moves + self.others()

    def go_on(self, most: int) -> None:
        """Make up to `most` moves, or fewer until all is at rest."""
        for _ in range(most):
            moves = self.moves()
            if not moves:
                return
            self.random.choice(moves)()

    def flow(self) -> None:
        for name in self.stations:
            self.collect(name)
        self.go_on(100_000)
        assert not self.moves(), "it does not come to rest"

    def step(self, here: str, there: str) -> None:
        payload = self._wires[here, there].popleft()
        if here in self.stations:
            ours, theirs = (self.stations[name].node.topic.outlet.clock for name in (there, here))
            ours.merge(theirs.read())
        self.stations[there].contacts.received(here, payload)
        self.collect(there)

    def write(self, name: str) -> None:
        """The disk does its oldest change or read. A read may come after later changes. Its router gets the result
        later."""
        station = self.at(name)
        change = station.waiting.pop(0)
        if isinstance(change, ReadBodies) and station.waiting and self._dice.random() < 0.5:
            station.waiting.insert(self._dice.randint(1, len(station.waiting)), change)
            return
        if isinstance(change, ReadBodies):
            station.read.append((change, self.disks[name].bodies(change)))
            return
        station.node.now()
        station.do(change)
        station.node.pump()

    def tell(self, name: str) -> None:
        """The router gets the result of its oldest read."""
        station = self.at(name)
        read, found = station.read.pop(0)
        self.reads[read.number in self.sets(name)._replicas[SET]._reading] += 1
        station.node.bodies_read(read, found)
        station.node.pump()

    # contacts

    def contacts(self, name: str) -> Collection[str]:
        """The routers with which it considers itself in contact."""
        return self.stations[name].node.topic.directory.contacts

    def is_whole(self, one: str, other: str) -> bool:
        """Whether both consider themselves in contact."""
        return other in self.contacts(one) and one in self.contacts(other)

    def lose(self, here: str, there: str) -> None:
        """One of the two notices the loss of the contact, unless it has already."""
        if there in self.contacts(here):
            super().lose(here, there)

    def meet(self, a: str, b: str) -> None:
        self.part(a, b)
        super().meet(a, b)

    # processes

    def stop(self, name: str) -> None:
        """The process ends. Its disk has done some of its first changes. The other routers notice later."""
        station = self.at(name)
        done = station.waiting[: self.random.randint(0, len(station.waiting))]
        self.disks[name].write([change for change in done if not isinstance(change, StoreRead)])
        del self.stations[name]
        self.names = tuple(self.stations)
        self.hanging.discard(name)

    def start(self, name: str, incarnation: int = 0) -> None:
        """Start the next process, with the stores of the former one, and without contacts."""
        for other in self.names:
            self._wires[other, name].clear()
            self._wires[name, other].clear()
            self.lose(other, name)
        self._incarnation += 1
        self.names = tuple(self.disks)  # the plan has all routers
        self.boot(name, incarnation or self._incarnation, self.stores[name])
        self.names = tuple(self.stations)
        self.collect(name)

    # time

    def wait(self, seconds: float, *routers: str) -> None:
        """Let everything due happen at its time, with its effects (`rest`)."""
        end = self.now + seconds
        while self.now < end:
            due = min((station.node.deadline() for station in self.stations.values()), default=end)
            self.now = min(end, max(due, self.now + 0.001))
            for name in [name for name, station in self.stations.items() if station.node.deadline() <= self.now]:
                self._time(name)
            self.rest()

    def rest(self) -> None:
        self.flow()
