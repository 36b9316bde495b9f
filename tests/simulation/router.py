"""One router: the production topic core in the shell's stead (as `router.node` and `router.clients` are)."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from linkstate.clock import HybridClock
from tests.simulation.knobs import Knobs
from tests.simulation.links import Link
from tests.simulation.network import Network
from tests.simulation.schedule import Schedule
from topic.actions import Action, DropContact, LinkAction, Note
from topic.core import Settings, Topic
from topic.journal import Block, Event
from topic.wire import Kind, decode

if TYPE_CHECKING:
    from tests.simulation.judge import Judge

START_US = 1_700_000_000_000_000


class Silence(Block):
    """A delivery log that nobody reads; entries are only looked at while a trace is printed."""

    __slots__ = ("listener",)

    def append(self, event: Event, **columns: Any) -> None:
        listener: Callable[..., None] | None = getattr(self, "listener", None)
        if listener is not None:
            listener(event, **columns)


class Router:
    topic: Topic
    clock: HybridClock

    def __init__(self, name: str, schedule: Schedule, random: Random, knobs: Knobs, network: Network) -> None:
        self.name = name
        self.schedule = schedule
        self.random = random
        self.knobs = knobs
        self.network = network
        self.judge: Judge
        self.note: Callable[[str, str], None]
        self.names: tuple[str, ...] = ()
        self.verbose = False
        self.alive = False
        self.incarnation = 0
        self.links: list[Link] = []
        self._skew_us = int(random.uniform(-knobs.skew, knobs.skew) * 1e6)
        self._timer = 0.0
        self._draining = False

    # life

    def boot(self) -> None:
        assert not self.alive
        self.alive = True
        self.incarnation = max(self.incarnation + 1, self._wall_us() // 1000)
        self.clock = HybridClock()
        self.clock.advance(self._wall_us() // 1000)
        self.note(self.name, f"boots as {self.incarnation}")
        knobs = self.knobs
        settings = Settings(knobs.window, knobs.redeliveries, 2.0, knobs.boot_wait)
        block = Silence(self.name, "router", self.incarnation)
        self.topic = Topic(self.name, self.incarnation, self.names, self.clock, block, settings, self.schedule.now)
        self._timer = 0.0
        self._drain()
        for other in self.names:
            if other != self.name:
                self.network.seek(self.name, other)

    def kill(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self.note(self.name, "is killed")
        self.network.killed(self.name)
        for link in list(self.links):
            link.router_died()
        self.links = []

    # events

    def tell(self) -> None:
        """The wall clock, before an event is handled."""
        self.topic.advance(self._wall_us())

    def before_client(self) -> None:
        """As in the shell, links have caught up before an event of one of them is handled."""
        self.tell()
        self._perform_all()

    def contact(self, router: str, incarnation: int) -> None:
        self.note(self.name, f"in contact with {router}")
        self.tell()
        self.topic.contact(router, incarnation, self.schedule.now)
        self._drain()

    def lost(self, router: str) -> None:
        self.note(self.name, f"loses {router}")
        self.judge.lost(self.name, router)
        self.tell()
        self.topic.lost(router)
        self._drain()

    def receive(self, router: str, payload: bytes) -> None:
        if router not in self.topic.directory.contacts:
            return
        self.tell()
        if self.verbose:
            self._note_batch(router, payload)
        self.topic.receive(router, payload)
        if self._lazy():
            self._set_timer()
        else:
            self._drain()

    def _note_batch(self, router: str, payload: bytes) -> None:
        for kind, *columns in decode(payload):
            self.note(self.name, f"<- {router} {Kind(kind).name} {columns!r:.300}")

    def done(self) -> None:
        """A client's event was handled: its links see the consequences at once, other routers maybe later."""
        if self._lazy():
            self._perform_all()
            self._set_timer()
        else:
            self._drain()

    def _lazy(self) -> bool:
        """Whether more events are handled before what follows from this one is carried out, as in a busy shell."""
        if self.random.random() < self.knobs.busy:
            self.schedule.after(self.random.random() * self.knobs.client_delay, self._pump, self.incarnation)
            return True
        return False

    def _pump(self, incarnation: int) -> None:
        if self.alive and self.incarnation == incarnation:
            self._drain()

    def _wake(self, timer: float) -> None:
        if self.alive and timer == self._timer:
            self._timer = 0.0
            self.tell()
            self.topic.handle_timer(self.schedule.now)
            self._drain()

    # the loop

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        try:
            self._drain_all(self.topic)
        finally:
            self._draining = False
        self._set_timer()

    def _drain_all(self, topic: Topic) -> None:
        while True:
            if topic.out:
                self._perform_all()
            elif topic.context.outgoing:
                for targets, payload in topic.take_outgoing():
                    assert self.name not in targets, "a router says nothing to itself"
                    for target in targets:
                        self.network.send(self.name, target, payload)
            else:
                break

    def _perform_all(self) -> None:
        topic = self.topic
        while topic.out:
            actions, topic.out[:] = topic.out[:], []
            for action in actions:
                self._perform(action)

    def _set_timer(self) -> None:
        deadline = self.topic.deadline()
        if deadline < 1e9 and deadline != self._timer:
            assert deadline > self.schedule.now, "a timer that does not advance spins"
            self._timer = deadline
            self.schedule.at(deadline, self._wake, deadline)

    def _perform(self, action: Action) -> None:
        if isinstance(action, DropContact):
            self.note(self.name, f"drops {action.router}: {action.reason}")
            self.network.drop(self.name, action.router)
        elif isinstance(action, Note):
            self.note(self.name, action.text)
        else:
            self._on_link(action)

    def _on_link(self, action: LinkAction) -> None:
        assert isinstance(action.link, Link), f"{type(action).__name__} for a link that is gone"
        action.link.perform(action)

    def _wall_us(self) -> int:
        return START_US + int(self.schedule.now * 1e6) + self._skew_us
