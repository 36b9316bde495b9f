"""A whole mesh from one seed: turmoil, then calm, and checks all along (protocol 9).

    publishers ─▶ router ══wire══ router ─▶ subscribers       everything in one thread, in virtual time
                    ╚═════ router ═════╝

`run` raises `Violation`, or the failed assertion of a core. The seed is the whole bug report.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from random import Random
from typing import Any
from unittest.mock import patch

import attrs

from linkstate import chunks
from tests.simulation.balanced import PREFIX
from tests.simulation.client import Client
from tests.simulation.faults import Faults
from tests.simulation.judge import Judge
from tests.simulation.knobs import Knobs, draw
from tests.simulation.membership import Membership
from tests.simulation.odd import weaken
from tests.simulation.parties import Violation
from tests.simulation.publisher import Publisher
from tests.simulation.queues import QueueWorld
from tests.simulation.quiescence import check_quiescence
from tests.simulation.router import Router
from tests.simulation.schedule import Schedule
from tests.simulation.sets import SetWorld
from tests.simulation.subscriber import SubscriberClient
from tests.simulation.wildcards import draw_address, draw_subscription
from tests.simulation.wires import Wire

CALM = 400.0
SLOW_CALM = 1200.0
"""Virtual seconds after the faults in which the mesh has to come to rest. If links carry few bytes a second, their
queues take minutes (seed 34129855)."""
MOST_STEPS = 200_000
MOST_A_SECOND = 10_000
"""The most steps in a virtual second. Twins take the link from each other as long as there are faults; that is not the
mesh's fault.
"""
LOOK = 1.0
"""Virtual seconds between checks whether the mesh is at rest."""


class Enough(Exception):
    """The run has reached the time at which it was to end."""


class World:
    router: type[Router] = Router
    publisher: type[Publisher] = Publisher
    subscriber: type[SubscriberClient] = SubscriberClient

    def __init__(
        self, seed: int, *, trace: bool = False, odd: Collection[str] = (), knobs: Mapping[str, Any] | None = None
    ) -> None:
        """`odd`: the names of the oddities to add, instead of drawn ones. `knobs`: values that replace drawn ones; then
        there are no oddities."""
        self.seed = seed
        self.ends = math.inf
        """The virtual second at which the run ends even if the mesh is not at rest."""
        self.random = Random(seed)
        drawn = draw(self.random)
        self.knobs: Knobs = weaken(drawn, Random(f"odd {seed}"), odd) if knobs is None else attrs.evolve(drawn, **knobs)
        self.schedule = Schedule()
        self.trace: list[tuple[float, str, str]] = []
        self.verbose = trace
        self.routers: dict[str, Router] = {}
        self.judge = Judge(self.schedule, self.routers, self.knobs, self.note)
        self._make_routers()
        self.wires = self._make_wires()
        self.sets = SetWorld(self) if self.knobs.sets else None
        self.queues = QueueWorld(self) if self.knobs.queues else None
        self.membership = Membership(self)
        for router in self.routers.values():
            router.file = self.membership.file()
        last = self.membership.wanted[-1]  # the other routers stay connected
        self.unstarted = last if self.knobs.never_started else None
        self.publishers = [self.publisher(*self._client(f"p{i}")) for i in range(self.knobs.publishers)]
        self.subscribers = [self.subscriber(*self._client(f"s{i}")) for i in range(self.knobs.subscribers)]
        if self.knobs.shared:
            for which in range(2):
                self._share(self.publishers[which::2], self.subscribers[which::2], f"container {which}")
        if self.knobs.twins:
            self.publishers.append(self.publisher(*self._client("tp")))
            self.subscribers.append(self.subscriber(*self._client("ts")))
            self.publishers[-1].go_by_the_name_of(self.publishers[0])
            self.subscribers[-1].go_by_the_name_of(self.subscribers[0])
        self.clients: list[Client] = [*self.publishers, *self.subscribers]
        if self.queues is not None:
            self.queues.add(self.clients)
        for subscriber in self.subscribers:
            self.judge.add_reader(subscriber)
        for client in self.clients:
            self.judge.termini.add(client, publisher=isinstance(client, Publisher))
        if self.knobs.twins:
            self.judge.share_name(self.publishers[0], self.publishers[-1])
            self.judge.share_name(self.subscribers[0], self.subscribers[-1])
        self.faults = Faults(self)

    def note(self, who: str, what: str) -> None:
        if self.verbose:
            self.trace.append((self.schedule.now, who, what))

    def _make_routers(self) -> None:
        names = tuple("abcdefghijk"[: self.knobs.routers + self.knobs.reserve])
        for name in names:
            router = self.routers[name] = self.router(name, self.schedule, self.random, self.knobs)
            router.judge = self.judge
            router.note = self.note
            router.names = names
            router.verbose = self.verbose

    def _make_wires(self) -> list[Wire]:
        """Make a random tree of links, and a few more links."""
        names = list(self.routers)
        pairs = [(self.random.choice(names[:i]), names[i]) for i in range(1, len(names))]
        others = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if (a, b) not in pairs]
        pairs += self.random.sample(others, min(self.knobs.links, len(others)))
        wires: list[Wire] = []
        for a, b in pairs:
            cost = self.random.choice((1, 1, 3))
            wire = Wire((a, b), cost, self.routers, self.schedule, self.random, self.knobs)
            self.routers[a].wires[b] = self.routers[b].wires[a] = wire
            wires.append(wire)
        return wires

    def _client(self, name: str) -> tuple[object, ...]:
        patterns = self.knobs.wildcards
        if self.queues is not None:
            address = self.queues.address(name)
        elif not patterns:
            prefix = PREFIX if self.knobs.balanced else "topic/"
            address = f"{prefix}{self.random.randrange(self.knobs.addresses)}"
        elif name.startswith("s"):
            address = draw_subscription(self.random, patterns)
        else:
            address = draw_address(self.random)
        return name, address, self.routers, self.schedule, self.random, self.knobs, self.judge, self.note

    def _share(self, publishers: Sequence[Client], subscribers: Sequence[Client], container: str) -> None:
        """Give all these clients one connection. Links of the two directions may have the same names."""
        together = [*publishers, *subscribers]
        for clients in (publishers, subscribers):
            for number, client in enumerate(clients):
                client.identity = attrs.evolve(client.identity, container=container, link=f"link {number}")
        for client in together:
            client.together = together

    # the run

    def run(self) -> None:
        fuller = nullcontext() if self.queues is None else self.queues.smaller()
        quicker = nullcontext() if self.sets is None else self.sets.quicker()
        with patch.object(chunks, "CHUNK", self.knobs.chunk), fuller, quicker, suppress(Enough):
            self._run()

    def _run(self) -> None:
        for router in self.routers.values():
            self.schedule.after(self.random.random() * 0.2, self.faults.start, router)
        for client in self.clients:
            client.later(client.attach)
            client.restless()
        self.faults.plan()
        self.membership.plan()
        if self.sets is not None:
            self.sets.plan()
        if self.queues is not None:
            self.queues.plan()
        self._run_until(self.knobs.turmoil)
        self.faults.stop()
        if self.sets is not None:
            self.sets.plan_last()
        if self.knobs.changes:
            self.membership.tidy()
        for client in self.clients:
            client.calm = True
            if client.is_twin:
                client.quit()
        for subscriber in self.subscribers:
            subscriber.calm_down()
        if self.queues is not None:
            self.queues.calm_down()
        self._come_to_rest()

    def _come_to_rest(self) -> None:
        until = self.schedule.now + (CALM if self.knobs.rate == math.inf else SLOW_CALM)
        while True:
            self._run_until(self.schedule.now + LOOK)
            try:
                check_quiescence(self)
            except Violation:
                if self.schedule.now >= until:
                    raise
            else:
                return

    def _run_until(self, until: float) -> None:
        while self.schedule.step(min(until, self.ends)):
            most = MOST_STEPS + MOST_A_SECOND * self.schedule.now
            self.judge.check(self.schedule.steps < most, "5 liveness: the mesh is busy with itself")
        if until > self.ends:
            raise Enough
        self.schedule.now = until
