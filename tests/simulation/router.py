"""One router: the production cores, composed as `router.node` does, in virtual time.

    clients' links ─▶ Topic ─▶ Mesh ─▶ wires        what an event leads to is carried on before the next one, or,
                                                    by a busy router, after a few more

A paused router handles nothing; what reaches it meanwhile waits, as bytes do in its sockets. Its store outlives it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from linkstate.clock import COUNTER_BITS, HybridClock
from linkstate.events import ContactLost, ContactMade, Received, Transmit
from linkstate.mesh import Mesh
from tests.simulation.knobs import Knobs
from tests.simulation.link import Link
from tests.simulation.schedule import Schedule
from tests.simulation.wires import Body, Wire
from topic.actions import Action, DropContact, LinkAction, Note
from topic.core import Settings, Topic
from topic.directory import Entry, Role
from topic.errors import PeerError
from topic.journal import Block, Event
from topic.wire import Kind, decode

if TYPE_CHECKING:
    from tests.simulation.judge import Judge

START_US = 1_700_000_000_000_000
RESERVED_MS = 1000
"""How far ahead the store reserves the clock."""


class Silence(Block):
    """A delivery log that nobody reads, but for what the judge looks at, and for a trace."""

    __slots__ = ("decided", "forgotten", "listener")
    decided: Callable[[Sequence[bytes], str], None]
    forgotten: Callable[[Sequence[bytes]], None]
    listener: Callable[..., None]

    def append(self, event: Event, **columns: Any) -> None:
        if event is Event.ACCEPTED:
            self.decided(columns["keys"], columns["outcome"].name)
        elif event is Event.FORGOTTEN:
            self.forgotten(columns["keys"])
        if hasattr(self, "listener"):
            self.listener(event, **columns)


class Store:
    """What a router keeps on disk: entries of durable termini, and how far its clock may have gone."""

    def __init__(self) -> None:
        self.entries: dict[tuple[Role, bytes], Entry] = {}
        self.reserved = 0

    def save(self, changed: list[Entry], clock: int) -> None:
        for entry in changed:
            if entry.live and entry.lifetime.durable and entry.lifetime.timeout:
                self.entries[entry.role, entry.name] = entry
            else:
                self.entries.pop((entry.role, entry.name), None)
        if clock >= self.reserved:
            self.reserved = clock + (RESERVED_MS << COUNTER_BITS)


class Router:
    mesh: Mesh
    topic: Topic
    clock: HybridClock

    def __init__(self, name: str, schedule: Schedule, random: Random, knobs: Knobs) -> None:
        self.name = name
        self.schedule = schedule
        self.random = random
        self.knobs = knobs
        self.judge: Judge
        self.note: Callable[[str, str], None]
        self.names: tuple[str, ...] = ()
        self.wires: dict[str, Wire] = {}
        self.verbose = False
        self.alive = False
        self.paused = False
        self.incarnation = 0
        self.links: list[Link] = []
        self.store = Store()
        self.booted_at = 0.0
        self.sections: set[str] = set()
        """Routers whose section has come in this incarnation."""
        self.contact_numbers: dict[str, int] = {}
        """By router in contact: how many contacts with it this one has had."""
        self.heard: dict[str, int] = {}
        """How many payloads of the present contact with a router the topic core has dealt with."""
        self.lost_at: dict[str, float] = {}
        """When the last contact with a router ended, for either, in which its section had come, in this incarnation."""
        self._inbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._skew_us = int(random.uniform(-knobs.skew, knobs.skew) * 1e6)
        self._timer = inf

    # life

    def boot(self, *, store: bool) -> None:
        assert not self.alive
        former = self.incarnation
        self.alive = True
        self.paused = False
        self.incarnation = max(self.incarnation + 1, self._wall_us() // 1000)
        if not store:
            self.store = Store()
        self.clock = HybridClock(self.store.reserved)
        self.clock.advance(self._wall_us() // 1000)
        self.booted_at = now = self.schedule.now
        self.lost_at.clear()
        self.sections.clear()
        remembered = list(self.store.entries.values())
        self.note(self.name, f"boots as {self.incarnation}, knowing {len(remembered)}")
        knobs = self.knobs
        costs = {name: wire.cost for name, wire in self.wires.items()}
        self.mesh = Mesh(
            self.name, self.incarnation, self.names, costs, self.clock, hello=knobs.dead / 4, dead=knobs.dead
        )
        block = Silence(self.name, "router", self.incarnation)
        block.decided = partial(self.judge.decided, self)
        block.forgotten = partial(self.judge.memory.forgotten, self)
        settings = Settings(knobs.window, knobs.redeliveries, 2.0, knobs.boot_wait, float(max(knobs.timeouts)))
        self.topic = Topic(self.name, self.incarnation, self.names, self.clock, block, settings, now, remembered)
        if self.verbose:
            block.listener = self._note_event
        self.judge.memory.boots(self, former, store=store)
        self._timer = inf
        self._pump()
        for wire in self.wires.values():
            wire.seek()

    def kill(self, late: float) -> None:
        """Neighbours and clients notice after at most so many seconds."""
        if not self.alive:
            return
        for name in self.topic.directory.contacts:
            self.judge.routers[name].part_from(self)
        self.alive = False
        self.note(self.name, "is killed")
        self._inbox.clear()
        for wire in self.wires.values():
            wire.killed(self.name, self.random.random() * late)
        for link in list(self.links):
            link.router_died(late)
        self.links.clear()

    def pause(self) -> None:
        self.paused = True
        self.note(self.name, "pauses")

    def go_on(self) -> None:
        """Handle what came while it was paused, in order; its timer may be first or last."""
        if not self.paused:
            return
        self.paused = False
        self.note(self.name, f"goes on, with {len(self._inbox)} events waiting")
        inbox, self._inbox = self._inbox, []
        if self.random.random() < 0.5:
            self.handle(self._handle_timer)
        for event, arguments in inbox:
            self.handle(event, *arguments)
        self.handle(self._handle_timer)

    # events

    def handle(self, event: Callable[..., None], *arguments: Any) -> None:
        """Something reaches this router."""
        if not self.alive:
            return
        if self.paused:
            self._inbox.append((event, arguments))
            return
        self.topic.advance(self._wall_us())
        event(*arguments)
        self._perform()
        if self.random.random() < self.knobs.busy:
            self._save()
            self.schedule.after(self.random.random() * self.knobs.client_delay, self._flush, self.incarnation)
        else:
            self._pump()
        self.judge.watch(self)

    def _flush(self, incarnation: int) -> None:
        if self.incarnation == incarnation and self.alive and not self.paused:
            self._pump()
            self.judge.watch(self)

    def _handle_timer(self) -> None:
        now = self.schedule.now
        self.mesh.handle_timer(now)
        self.topic.handle_timer(now)

    def drop(self, router: str) -> None:
        """Take the other for lost, for no reason that it knows of."""
        if router in self.topic.directory.contacts:
            self.mesh.drop_contact(router, self.schedule.now)

    def _wake(self, incarnation: int, at: float) -> None:
        if incarnation == self.incarnation and at == self._timer:
            self._timer = inf
            self.handle(self._handle_timer)

    def _set_timer(self) -> None:
        deadline = min(self.mesh.deadline(), self.topic.deadline())
        if deadline < self._timer:
            self._timer = at = max(deadline, self.schedule.now)
            self.schedule.at(at, self._wake, self.incarnation, at)

    # the loop of `router.node`

    def _pump(self) -> None:
        topic, mesh = self.topic, self.mesh
        bodies: dict[str, list[Body]] = {}
        while True:
            if topic.out:
                self._perform()
            elif topic.context.outgoing:
                for targets, payload in topic.take_outgoing():
                    mesh.send(targets, payload, self.schedule.now)
            elif mesh.out:
                self._drain_mesh(bodies)
            else:
                break
        self._save()
        for neighbour, waiting in bodies.items():
            self.wires[neighbour].transmit(self.name, waiting)
        self._set_timer()

    def _save(self) -> None:
        """Before anybody learns of it."""
        unsaved = self.topic.directory.unsaved
        self.store.save(unsaved, self.clock.read())
        unsaved.clear()

    def _drain_mesh(self, bodies: dict[str, list[Body]]) -> None:
        actions, self.mesh.out[:] = self.mesh.out[:], []
        for action in actions:
            if isinstance(action, Transmit):
                bodies.setdefault(action.neighbour, []).append((action.link, action.body))
            elif isinstance(action, Received):
                self._receive_batch(action)
            elif isinstance(action, ContactMade):
                self.note(self.name, f"in contact with {action.router}")
                self.contact_numbers[action.router] = self.contact_numbers.get(action.router, 0) + 1
                self.heard[action.router] = 0
                self.topic.contact(action.router, action.incarnation, self.schedule.now)
            else:
                assert isinstance(action, ContactLost)
                self.note(self.name, f"loses {action.router}")
                other = self.judge.routers[action.router]
                self.part_from(other)
                other.part_from(self)
                self.judge.lost(self, action.router)
                self.topic.lost(action.router)

    def part_from(self, other: "Router") -> None:
        """The contact ends for one of the two: from now on nothing that happens at the other is told here."""
        if self.alive and other.alive and self.topic.directory.contacts.get(other.name) == other.incarnation:
            mutual = other.topic.directory.contacts.get(self.name) == self.incarnation
            if mutual and other.name in self.topic.directory.applied:
                self.lost_at[other.name] = self.schedule.now

    @property
    def has_booted(self) -> bool:
        """It has heard from all, or has waited for that as long as it should (protocol 8, Boot)."""
        waited = self.schedule.now >= self.booted_at + self.knobs.boot_wait
        return waited or len(self.sections) == len(self.names) - 1

    def _receive_batch(self, received: Received) -> None:
        if received.router not in self.topic.directory.contacts:
            return
        if self.verbose:
            for kind, *columns in decode(received.payload):
                self.note(self.name, f"<- {received.router} {Kind(kind).name} {columns!r:.300}")
        try:
            self.topic.receive(received.router, received.payload)
        except PeerError as error:
            raise AssertionError(f"{received.router} broke the protocol at {self.name}") from error
        self.heard[received.router] += 1

    def _perform(self) -> None:
        topic = self.topic
        while topic.out:
            actions, topic.out[:] = topic.out[:], []
            for action in actions:
                self._perform_one(action)

    def _perform_one(self, action: Action) -> None:
        if isinstance(action, DropContact):
            self.note(self.name, f"drops {action.router}: {action.reason}")
            self.mesh.drop_contact(action.router, self.schedule.now)
        elif isinstance(action, Note):
            if self.verbose:
                self.note(self.name, action.text)
        else:
            self._on_link(action)

    def _on_link(self, action: LinkAction) -> None:
        assert isinstance(action.link, Link), f"{type(action).__name__} for a link that is gone"
        action.link.perform(action)

    def _wall_us(self) -> int:
        return START_US + int(self.schedule.now * 1e6) + self._skew_us

    def _note_event(self, event: Event, **columns: Any) -> None:
        left_out = ("time_us", "hlc", "address", "generation", "tags")
        shown = [f"{name} {value}" for name, value in columns.items() if name not in left_out and value is not None]
        self.note(self.name, f"   {event.name} {', '.join(shown):.300}")
