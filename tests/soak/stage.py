"""One run: a mesh, its clients under load, a fault, and the end in which everything has to be delivered and forgotten.

The fault is a scenario's; see `scenarios`.
"""

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from signal import SIGCONT, SIGKILL, SIGSTOP

import attrs
import trio

from router.groups import leaves
from router.rundir import RunError
from tests.processes.mesh import eventually
from tests.soak.accounts import Fault, Tally, longest_pause, resumptions, tally
from tests.soak.clients import TaskPublisher, TaskSubscriber
from tests.soak.mesh import SoakMesh
from tests.soak.mortal import MortalPublisher, MortalSubscriber
from tests.soak.place import Place

PATIENCE_S = 40.0
"""For what must come to an end by itself; less than any terminus lives, whose expiry could hide that it does not."""


@attrs.frozen
class Lengths:
    """Of a run's parts, in seconds. From two numbers one between them is drawn."""

    before: tuple[float, float] = (0.5, 2.5)
    """The load, before the fault strikes."""
    away: tuple[float, float] = (0.0, 2.0)
    """For which what was killed stays away."""
    hung: float = 5.0
    """For which a router is stopped, a link cut."""
    after: float = 2.0
    """The load, once it flows again after the fault."""
    rate: float = 2000.0
    """Messages per second of all publishers together."""


class Stuck(Exception):
    """Something did not come to an end."""


@attrs.define
class Stage:
    """What a scenario may break."""

    mesh: SoakMesh
    random: Random
    lengths: Lengths
    publishers: Sequence[TaskPublisher | MortalPublisher]
    subscribers: Sequence[TaskSubscriber | MortalSubscriber]
    faults: list[Fault] = attrs.field(factory=list)
    forgotten: float | None = None
    """When all routers lost their memory of their links."""

    @property
    def home(self) -> str:
        """Of most publishers, to begin with."""
        return self.mesh.seats.publishers[0]

    @property
    def custodian(self) -> str:
        """Of most subscribers, to begin with."""
        return self.mesh.seats.subscribers[0]

    def draw(self, length: tuple[float, float]) -> float:
        return self.random.uniform(*length)

    async def kill(self, *routers: str) -> None:
        for router in routers:
            self.faults.append(Fault(router, time.monotonic()))
            self.mesh.signal(router, SIGKILL)
        for router in routers:
            await self.mesh.ending(router)

    async def kill_for_a_while(self, *routers: str) -> None:
        await self.kill(*routers)
        await trio.sleep(self.draw(self.lengths.away))
        await self.mesh.start_together(list(routers))

    async def hang(self, router: str) -> None:
        self.faults.append(Fault(router, time.monotonic()))
        self.mesh.signal(router, SIGSTOP)
        await trio.sleep(self.lengths.hung)
        self.mesh.signal(router, SIGCONT)

    async def until(self, what: str, probe: Callable[[], Awaitable[bool]]) -> None:
        try:
            await eventually(probe, PATIENCE_S)
        except trio.TooSlowError:
            raise await self.stuck(what) from None

    async def stuck(self, what: str) -> Stuck:
        """Keeps what routers say of themselves at that time."""
        for router in self.mesh.routers:
            path = self.mesh.directory.path / router / "stuck.json"
            try:
                path.write_text(json.dumps(await self.mesh.status(router), indent=1))
            except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
                path.write_text(f"no answer: {error!r}")
        return Stuck(what)

    async def publishers_attached(self, since: float) -> None:
        async def attached() -> bool:
            return all(publisher.attached[-1].at > since for publisher in self.publishers)

        await self.until("publishers are not attached again", attached)

    async def flowing(self) -> None:
        """Until every publisher has been told of an acceptance that came after this call."""
        since = time.monotonic()

        async def flows() -> bool:
            return all(publisher.flows(since) for publisher in self.publishers)

        await self.until("publishers are not told of acceptances", flows)


Strike = Callable[[Stage], Awaitable[None]]


@attrs.frozen
class Cast:
    """Which clients take part, and as what."""

    address: str
    prefix: str
    """Of their names."""
    mortal: bool = False
    """Whether the first publisher and the first subscriber are processes of their own."""

    def places(self, mesh: SoakMesh, random: Random, role: str, seats: Sequence[str]) -> list[Place]:
        return [self._place(mesh, random, f"{self.prefix}{role}{n}", seat) for n, seat in enumerate(seats)]

    def _place(self, mesh: SoakMesh, random: Random, name: str, seat: str) -> Place:
        others = [router for router in mesh.routers if router != seat]
        random.shuffle(others)
        urls = tuple(f"amqp://{mesh.address(router)}" for router in (seat, *others))
        return Place(name, urls, self.address, mesh.directory.path / "clients" / name / "log")

    def publishers(self, mesh: SoakMesh, random: Random, rate: float) -> list[TaskPublisher | MortalPublisher]:
        first, *rest = self.places(mesh, random, "p", mesh.seats.publishers)
        each = rate / (1 + len(rest))
        leader = MortalPublisher(mesh.directory.path, first, each) if self.mortal else TaskPublisher(first, each)
        return [leader, *(TaskPublisher(place, each) for place in rest)]

    def subscribers(self, mesh: SoakMesh, random: Random) -> list[TaskSubscriber | MortalSubscriber]:
        first, *rest = self.places(mesh, random, "s", mesh.seats.subscribers)
        leader = MortalSubscriber(mesh.directory.path, first) if self.mortal else TaskSubscriber(first)
        return [leader, *map(TaskSubscriber, rest)]


@attrs.define
class Outcome:
    """What came of a run, by the clients' own accounts."""

    tally: Tally
    pause_s: float = 0.0
    """The longest time for which a publisher was told of no acceptance."""
    resumed_s: list[float] = attrs.field(factory=list)
    """For each publisher whose router was struck: until the next acceptance elsewhere."""
    error: str = ""

    @property
    def clean(self) -> bool:
        return self.tally.clean and not self.error


async def perform(mesh: SoakMesh, strike: Strike, cast: Cast, lengths: Lengths, random: Random) -> Outcome:
    """One run on a mesh that is up."""
    publishers, subscribers = cast.publishers(mesh, random, lengths.rate), cast.subscribers(mesh, random)
    stage = Stage(mesh, random, lengths, publishers, subscribers)
    error = ""
    try:
        await _play(stage, strike)
    except* (Stuck, ConnectionError, RunError, AssertionError) as group:
        error = "; ".join(f"{type(reason).__name__}: {reason}" for reason in leaves(group))
    return _outcome(stage, error)


async def _play(stage: Stage, strike: Strike) -> None:
    async with trio.open_nursery() as audience:
        for subscriber in stage.subscribers:
            await audience.start(subscriber.run)
        async with trio.open_nursery() as senders:
            for publisher in stage.publishers:
                await senders.start(publisher.run)
            await _load(stage, strike)
            for publisher in stage.publishers:
                publisher.finish()
            senders.cancel_scope.deadline = trio.current_time() + PATIENCE_S
        if senders.cancel_scope.cancelled_caught:
            raise await stage.stuck("publishers do not come to an end")
        await stage.until("deliveries are not forgotten", stage.mesh.quiet)
        audience.cancel_scope.cancel()


async def _load(stage: Stage, strike: Strike) -> None:
    await stage.flowing()
    await trio.sleep(stage.draw(stage.lengths.before))
    await strike(stage)
    await stage.flowing()
    await trio.sleep(stage.lengths.after)


def _outcome(stage: Stage, error: str) -> Outcome:
    published = [publisher.account for publisher in stage.publishers]
    received = [subscriber.account for subscriber in stage.subscribers]
    return Outcome(
        tally(published, received, stage.forgotten),
        max(map(longest_pause, published)),
        [seconds for account in published for seconds in resumptions(account, stage.faults)],
        error or _crashes(stage.mesh),
    )


def _crashes(mesh: SoakMesh) -> str:
    crashed = mesh.crashes()
    return f"router {', '.join(crashed)} crashed" if crashed else ""
