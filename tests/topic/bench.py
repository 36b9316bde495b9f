"""A few nodes on a bench, without links between them: batches between them wait until a test lets them through.

Bench("a", "b")    all in contact, sections exchanged, booted
bench.flow()       everything that is under way arrives
bench.hold(a, b)   what a says to b stays under way from now on
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs

from linkstate.clock import HybridClock
from linkstate.mesh_actions import ContactLost, Loss, Replanned, Transmit
from linkstate.plan.plan import PlannedRouter, Standing
from tests.contacts import Contacts
from tests.deaf import Deaf
from tests.plans import file
from tests.store import MemoryStore
from tests.topic.clients import Pen, Reader
from topic.actions import LinkAction, Note
from topic.blocks import read_blocks
from topic.core import Topic
from topic.directory.entry import Lifetime
from topic.identity import LinkIdentity
from topic.journal import Block, Event
from topic.node import Happening, Node, SetPort
from topic.settings import Settings
from topic.wire.segments import Segment, decode

LASTING = Lifetime(60, "connection-close", 1)
SETTINGS = Settings(window=10, redeliveries=2, join=2.0, boot_wait=10.0, grace=0.0, settle_delay=0.0)
FORGETFUL = attrs.evolve(SETTINGS, forget=120.0)
"""The settings of a mesh in which no router waits that long."""


class Station(Deaf):
    """The shell of one node on the bench. The bench sees all its outputs."""

    def __init__(self, bench: "Bench", name: str, incarnation: int, store: MemoryStore) -> None:
        self.bench, self.name, self.store = bench, name, store
        self.contacts = Contacts(self.carry)
        self.journal = Block(name, "router", incarnation)
        clock, remembered = HybridClock(store.reserved), store.remembered
        begin = name, incarnation, bench.names, clock, self.journal, bench.settings, bench.now
        core = Topic(*begin, remembered, bench.configured)
        self.node = Node(self.contacts, core, store, self, self.port(core))

    def port(self, core: Topic) -> SetPort | None:
        """The node's replica sets. None if the mesh has no queues."""
        return None

    def wall_us(self) -> int:
        """The clock. It advances at each call."""
        self.bench.wall_us += 1000
        return self.bench.wall_us

    def now(self) -> float:
        return self.bench.now

    def carry(self, router: str, payload: bytes) -> None:
        self.bench.carry(self.name, router, payload)

    def perform(self, action: LinkAction) -> None:
        self.bench.saw(self.name, action)
        action.link.hear(action)

    def transmit(self, action: Transmit) -> None:
        raise AssertionError("there are no neighbours, only contacts")

    def flush(self) -> None:
        """Nothing to do: batches wait on the bench."""

    def note(self, happening: Happening) -> None:
        if isinstance(happening, ContactLost):
            assert happening.cause is not Loss.BROKEN, happening
            if happening.cause is Loss.LATE:
                self.bench.saw(self.name, happening)
        elif isinstance(happening, Note):
            self.bench.saw(self.name, happening)


class Bench:
    station: ClassVar[type[Station]] = Station

    def __init__(
        self, *names: str, meet: bool = True, settings: Settings = SETTINGS, configured: Sequence[LinkIdentity] = ()
    ) -> None:
        """`configured`: the subscribers in the configuration of all routers."""
        self.now = 0.0
        self.wall_us = 1_700_000_000_000_000
        self.names = names
        self.settings = settings
        self.configured = configured
        self.stations: dict[str, Station] = {}
        self.actions: dict[str, list[LinkAction | ContactLost | Note]] = defaultdict(list)
        self.said: list[tuple[str, str, Segment]] = []
        self.lively: list[Pen] = []
        self._wires: dict[tuple[str, str], deque[bytes]] = defaultdict(deque)
        self._held: set[tuple[str, str]] = set()
        for name in names:
            self.boot(name)
        if meet:
            for i, a in enumerate(names):
                for b in names[i + 1 :]:
                    self.meet(a, b)
            self.flow()

    @property
    def cores(self) -> dict[str, Topic]:
        return {name: station.node.topic for name, station in self.stations.items()}

    def boot(self, name: str, incarnation: int = 1, store: MemoryStore | None = None) -> None:
        self.stations[name] = self.station(self, name, incarnation, store or MemoryStore())
        self.tick(name)

    def kill(self, name: str) -> None:
        """The router dies, and the others notice."""
        others = [other for other in self.names if other != name]
        self._drop(name, others)
        for other in others:
            if name in self.cores[other].directory.contacts:
                self.lose(other, name)
        self.flow()
        self._drop(name, others)  # what it has said since then, on wires that are held

    def _drop(self, name: str, others: list[str]) -> None:
        """Nothing is under way between the router and the others any more, whether they see each other or not."""
        for other in others:
            self._wires[other, name].clear()
            self._wires[name, other].clear()

    def meet(self, a: str, b: str) -> None:
        for here, there in ((a, b), (b, a)):
            self.stations[here].contacts.made(there, self.cores[there].directory.incarnation)
            self.collect(here)

    def part(self, a: str, b: str) -> None:
        """Both routers lose their contact, unless one has noticed already."""
        for here, there in ((a, b), (b, a)):
            self._wires[here, there].clear()
            if there in self.cores[here].directory.contacts:
                self.lose(here, there)

    def lose(self, here: str, there: str) -> None:
        """One of the two routers loses its contact."""
        self.stations[here].contacts.lost(there)
        self.collect(here)

    def replan(self, listed: str, leaving: str = "") -> None:
        """The plan lists these routers now, some of them as leaving, and all routers know it."""
        plan = file(listed)
        left = {name: PlannedRouter(standing=Standing.LEAVING) for name in leaving}
        plan = attrs.evolve(plan, routers={**plan.routers, **left})
        for name in listed:
            self.stations[name].contacts.out.append(Replanned(plan))
            self.collect(name)
        self.flow()

    def hold(self, here: str, there: str) -> None:
        self._held.add((here, there))

    def let_go(self) -> None:
        self._held.clear()
        self.flow()

    def flow(self) -> None:
        for name in self.names:
            self.collect(name)
        while wire := next((w for w, queue in self._wires.items() if queue and w not in self._held), None):
            self.step(*wire)
        while self.lively:
            self.lively.pop().answer_echo()

    def step(self, here: str, there: str) -> None:
        """Let the next batch arrive, held or not."""
        self.cores[there].outlet.clock.merge(self.cores[here].outlet.clock.read())
        self.stations[there].contacts.received(here, self._wires[here, there].popleft())
        self.collect(there)

    def carry(self, here: str, there: str, payload: bytes) -> None:
        self._wires[here, there].append(payload)
        self.said += [(here, there, Segment(segment[0])) for segment in decode(payload)]

    def saw(self, router: str, action: LinkAction | ContactLost | Note) -> None:
        self.actions[router].append(action)

    def under_way(self, here: str, there: str) -> int:
        """The number of batches under way."""
        return len(self._wires[here, there])

    def take_log(self, name: str) -> bytes:
        """The router's log since the last call."""
        journal = self.stations[name].journal
        data = journal.encode()
        journal.begin_next()
        return data

    def logged(self, name: str, event: Event) -> list[bytes]:
        """The keys of the deliveries for which the router logged this event, since its log was last taken."""
        blocks, _ = read_blocks(self.take_log(name))
        return [key for block in blocks for entry in block.entries() if entry.event is event for key in entry.keys]

    def ended(self, name: str) -> list[str | None]:
        """The subscribers whose end the router logged."""
        blocks, _ = read_blocks(self.take_log(name))
        entries = [entry for block in blocks for entry in block.entries()]
        return [entry.subscriber for entry in entries if entry.event is Event.EXPIRED]

    def tick(self, name: str) -> Topic:
        """The core of a router, prepared for an event."""
        self.stations[name].node.now()
        return self.cores[name]

    def collect(self, name: str) -> None:
        """Collect the outputs of the router and of its contacts."""
        self.stations[name].node.now()
        self.stations[name].node.pump()

    def time(self, seconds: float) -> None:
        self.now += seconds
        for name in self.names:
            self._time(name)

    def _time(self, name: str) -> None:
        self.stations[name].node.handle_timer()
        self.stations[name].node.pump()

    def wait(self, seconds: int, *routers: str) -> None:
        """Let this many seconds pass, in steps of a second, at all routers or only at these."""
        for _ in range(seconds):
            self.now += 1
            for name in routers or self.names:
                self._time(name)
            self.flow()

    # clients

    def publisher(self, router: str, name: str = "p", **options: Any) -> Pen:
        return Pen(self, router, name, **options)

    def subscriber(self, router: str, name: str = "s", *, credit: int = 100, **options: Any) -> Reader:
        return Reader(self, router, name, credit, **options)

    def records(self) -> dict[str, int]:
        return {name: len(core.records.by_key) for name, core in self.cores.items() if core.records.by_key}


def pen_at(bench: Bench, router: str, former: Pen | None = None, *, name: str = "p", **options: Any) -> Pen:
    generation = former.stream.generation if former is not None else None
    return bench.publisher(router, name, lifetime=LASTING, generation=generation, **options)


def reader_at(bench: Bench, router: str, name: str = "s", **options: Any) -> Reader:
    return bench.subscriber(router, name, lifetime=LASTING, **options)
