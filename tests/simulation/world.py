"""A whole mesh from one seed: turmoil, then calm, and checks all along (protocol 9).

    publishers ─▶ router ══contacts══ router ─▶ subscribers       everything in one thread, in virtual time
                    ╚══════ router ══════╝

`run` raises `Violation`, or whatever assertion of a core failed; the seed is the whole bug report.
"""

from random import Random

from tests.simulation.client import Client
from tests.simulation.judge import Judge, Reader
from tests.simulation.knobs import Knobs, draw
from tests.simulation.network import Network
from tests.simulation.publisher import Publisher
from tests.simulation.quiescence import check_quiescence
from tests.simulation.router import Router
from tests.simulation.schedule import Schedule
from tests.simulation.subscriber import SubscriberClient

CALM = 600.0
"""Virtual seconds for everything to come to rest after the faults."""


class World:
    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.knobs: Knobs = draw(self.random)
        self.schedule = Schedule()
        self.trace: list[tuple[float, str, str]] = []
        self.verbose = trace
        self.network = Network(self.schedule, self.random, self.knobs)
        self.judge = Judge(self.network, self.knobs.redeliveries, self.note)
        self.routers = self._make_routers()
        self.publishers = [Publisher(*self._client(f"p{i}")) for i in range(self.knobs.publishers)]
        self.subscribers = [SubscriberClient(*self._client(f"s{i}")) for i in range(self.knobs.subscribers)]
        self.clients: list[Client] = [*self.publishers, *self.subscribers]
        for subscriber in self.subscribers:
            self.judge.readers[subscriber.name] = Reader(subscriber.identity.address, subscriber.sends_settled)
        self._unstarted = self.random.choice(list(self.routers)) if self.knobs.never_started else None

    def note(self, who: str, what: str) -> None:
        self.trace.append((self.schedule.now, who, what))

    def _make_routers(self) -> dict[str, Router]:
        names = tuple("abcdef"[: self.knobs.routers])
        routers = self.network.routers
        for name in names:
            router = routers[name] = Router(name, self.schedule, self.random, self.knobs, self.network)
            router.judge = self.judge
            router.note = self.note
            router.names = names
            router.verbose = self.verbose
        return routers

    def _client(self, name: str) -> tuple[object, ...]:
        address = f"topic/{self.random.randrange(self.knobs.addresses)}"
        return name, address, self.routers, self.schedule, self.random, self.knobs, self.judge, self.note

    # the run

    def run(self) -> None:
        for router in self.routers.values():
            if router.name != self._unstarted:
                self.schedule.after(self.random.random() * 0.5, self._start, router)
        for client in self.clients:
            client.later(client.attach)
            client.restless()
        self._plan_faults()
        self._run_until(self.knobs.turmoil)
        self._calm_down()
        self._run_until(self.schedule.now + CALM)
        check_quiescence(self)

    def _run_until(self, until: float) -> None:
        while self.schedule.step(until):
            pass
        self.schedule.now = until

    def _start(self, router: Router) -> None:
        if not router.alive:
            router.boot()

    def _plan_faults(self) -> None:
        knobs = self.knobs
        for times, fault in (
            (knobs.kills, self._kill), (knobs.partitions, self._partition),
            (knobs.flaps, self._flap), (knobs.slowdowns, self._slow),
        ):  # fmt: skip
            for _ in range(times):
                self.schedule.at(self.random.random() * knobs.turmoil, fault)

    def _calm_down(self) -> None:
        self.note("world", "the faults stop")
        self.network.heal()
        for router in self.routers.values():
            if router.name != self._unstarted:
                self._start(router)
        for client in self.clients:
            client.calm = True
        for subscriber in self.subscribers:
            subscriber.calm_down()

    # faults

    def _kill(self) -> None:
        router = self.random.choice(list(self.routers.values()))
        router.kill()
        if router.name != self._unstarted and self.random.random() < 0.7:
            self.schedule.after(self.random.random() * 3, self._start, router)

    def _partition(self) -> None:
        groups = {name: self.random.randrange(2) for name in self.routers}
        self.note("world", f"partition {groups}")
        self.network.partition(groups)
        self.schedule.after(self.random.random() * 3, self.network.heal)

    def _flap(self) -> None:
        pairs = self.network.pairs()
        if pairs:
            here, there = self.random.choice(pairs)
            self.note("world", f"{here} takes {there} for lost")
            self.network.drop(here, there)

    def _slow(self) -> None:
        name = self.random.choice(list(self.routers))
        factor = self.random.choice((5.0, 20.0))
        self.note("world", f"{name} is {factor:g} times slower")
        self.network.slow(name, factor)
