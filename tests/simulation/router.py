"""One router: the production node, in virtual time.

    clients' links ─▶ Node ─▶ wires        the router performs the outputs of an event before the next one; a busy
                                           router, after a few more

A paused router handles nothing. Events that reach it wait, as bytes wait in its sockets. Its store outlives it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from linkstate.mesh import Mesh
from linkstate.mesh_actions import Loss
from linkstate.plan.plan import Plan, Standing
from tests.simulation.balanced import PREFIX
from tests.simulation.knobs import FORGET, Knobs
from tests.simulation.link import Link
from tests.simulation.queue_logs import OF_QUEUES
from tests.simulation.schedule import Schedule
from tests.simulation.shell import Shell, Watched
from tests.simulation.ttl import START_MS, expired
from tests.simulation.wires import Wire
from tests.store import MemoryStore
from topic.core import Topic
from topic.journal import BY_TTL, Block, Event
from topic.node import Node, boot
from topic.settings import Settings

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.sets import SetDisk, SetWorld

START_US = START_MS * 1000
DRAIN_S = 10.0
"""Seconds for which a router that leaves waits for its clients to attach elsewhere."""
MOST_STEP_US = 60_000_000
"""The most microseconds by which a fault sets a wall clock forward or back."""
SET_BACK_US = 100_000_000
"""The most microseconds by which a clock is set back, with a lost store."""


class Silence(Block):
    """A delivery log without files: the judge gets the events that it checks, and the trace its lines."""

    __slots__ = ("attached", "decided", "expired", "forgotten", "listener", "released")
    attached: Callable[[str], None]
    decided: Callable[[Sequence[bytes], str], None]
    expired: Callable[[Sequence[bytes]], None]
    forgotten: Callable[[Sequence[bytes]], None]
    released: Callable[[Sequence[bytes]], None]
    listener: Callable[..., None]

    def append(self, event: Event, **columns: Any) -> None:
        if event is Event.ACCEPTED and columns.get("detail") == BY_TTL:
            self.expired(columns["keys"])
        elif event is Event.ACCEPTED:
            self.decided(columns["keys"], columns["outcome"].name)
        elif event is Event.ATTACHED:
            self.attached(columns["epoch"])
        elif event is Event.FORGOTTEN:
            self.forgotten(columns["keys"])
        elif event is Event.AUDIENCE:
            self.released(columns["keys"])
        if hasattr(self, "listener"):
            self.listener(event, **columns)


class Router:
    journal: type[Silence] = Silence
    mesh: Mesh
    topic: Topic
    node: Node

    def __init__(self, name: str, schedule: Schedule, random: Random, knobs: Knobs) -> None:
        self.name = name
        self.schedule = schedule
        self.random = random
        self.knobs = knobs
        self.judge: Judge
        self.note: Callable[[str, str], None]
        self.names: tuple[str, ...] = ()
        self.file: Plan
        """The plan in its topology file."""
        self.wires: dict[str, Wire] = {}
        self.verbose = False
        self.alive = False
        self.paused = False
        self.incarnation = 0
        self.links: list[Link] = []
        self.sets: SetWorld | None = None
        self.disk: SetDisk | None = None
        """The disk of its replica sets, if the mesh has queues."""
        self.store = MemoryStore()
        self._copy = MemoryStore()
        """A copy of the store from some time ago."""
        self.booted_at = 0.0
        self.ended_at_once: set[bytes] = set()
        """Keys that the router has chosen for deliveries whose time was over when they came. The judge does not know
        them yet."""
        self.sections: set[str] = set()
        """Routers whose section has come in this incarnation."""
        self.contact_numbers: dict[str, int] = {}
        """Keyed by router in contact: the number of contacts with it so far."""
        self.parted_at: dict[str, float] = {}
        """Keyed by router: when this router last lost contact with it."""
        self.heard: dict[str, int] = {}
        """Keyed by router: how many payloads of the present contact the topic core has handled."""
        self.made_at: dict[str, float] = {}
        """Keyed by router: when the present contact began."""
        self.lost_at: dict[str, float] = {}
        """Keyed by router: when the first of the two ends lost the last contact in which the router's section had come.
        Only contacts of this incarnation count."""
        self.joining = False
        """It is new, and takes no clients before it has joined the mesh."""
        self.leaves_at = inf
        """When it leaves at last. It sends its clients away until then."""
        self._inbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._skew_us = int(random.uniform(-knobs.skew, knobs.skew) * 1e6)
        self.most_skew_us = abs(self._skew_us)
        """The most by which its clock ever differed from the true time, in either direction, while it kept its
        store."""
        self._timer = inf

    # life

    @property
    def admits(self) -> bool:
        """Whether clients can attach."""
        taken = not self.joining or self.topic.boot.has_joined
        return self.alive and not self.paused and self.leaves_at == inf and taken

    def boot(self, *, store: bool, joins: bool = False) -> None:
        assert not self.alive
        self.joining, self.leaves_at = joins, inf
        former = self.incarnation
        self.alive = True
        self.paused = False
        known = self._find_store(lost=not store)
        self.booted_at = self.schedule.now
        self.lost_at.clear()
        self.sections.clear()
        self.note(self.name, f"boots as {self.incarnation}, knowing {len(self.store.remembered)}")
        if self.sets is not None and former:
            self.sets.starts(self)
        self.node = self._node()
        self.judge.memory.boots(self, former, store=known)
        self._timer = inf
        self.node.pump()
        for wire in self.wires.values():
            wire.seek()

    def _find_store(self, *, lost: bool) -> bool:
        """Find the store as it was left, an older copy, or none. Returns whether it is as it was left. Without a store
        the clock may have been set back, too, and with it the incarnation."""
        knobs, dice = self.knobs, self.random
        if lost and knobs.set_back and dice.random() < knobs.set_back:
            self._skew_us -= int(dice.random() * SET_BACK_US)
            self.incarnation = 0
        self.incarnation = max(self.incarnation + 1, self.wall_us() // 1000)
        is_old = not lost and knobs.old_store > 0 and dice.random() < knobs.old_store
        if is_old:
            self.note(self.name, "its store is an older copy of itself")
        if lost or is_old:
            self.store = self._copy if is_old else MemoryStore()
        self._copy = self.store.copy()
        return not (lost or is_old)

    def _node(self) -> Node:
        knobs, shell = self.knobs, Shell(self)
        longest = float(max(knobs.timeouts))
        waits = 2.0, knobs.boot_wait, longest, FORGET
        settings = Settings(
            knobs.window,
            knobs.window_bytes,
            knobs.message,
            knobs.redeliveries,
            *waits,
            piece=knobs.piece,
            kinds=((PREFIX, "balanced"), (OF_QUEUES, "queue"), ("topic/", "topic")),
            pauses={PREFIX: knobs.back_off} if knobs.back_off is not None else {},
            dead=knobs.dead,
            grace=knobs.grace,
        )
        self.mesh, self.topic = boot(
            self.name, self.incarnation, self.file, self._log(), settings, self.store, shell,
            hello=knobs.dead / 4, max_payload=1 << 20, budget=knobs.budget,
            sets=self.sets.map.plans if self.sets is not None else (),
        )  # fmt: skip
        return Watched(self, shell, self.sets.port(self) if self.sets is not None else None)

    def _log(self) -> Silence:
        block = self.journal(self.name, "router", self.incarnation, host=self.name)
        block.attached = partial(self.judge.termini.decides, self)
        block.decided = partial(self.judge.decided, self)
        block.expired = partial(expired, self)
        block.forgotten = partial(self.judge.memory.forgotten, self)
        block.released = partial(self.judge.released, self)
        if self.verbose:
            block.listener = self._note_event
        return block

    def kill(self, late: float) -> None:
        """The process dies. Neighbours and clients notice after at most this many seconds."""
        if not self.alive:
            return
        for name in self.topic.directory.contacts:
            self.judge.routers[name].part_from(self)
        self.judge.queues.killed(self)
        self.alive = False
        self.note(self.name, "is killed")
        self._inbox.clear()
        if self.disk is not None:
            self.disk.crash()
        for wire in self.wires.values():
            wire.killed(self.name, self.random.random() * late)
        for link in list(self.links):
            link.router_died(late)
        self.links.clear()
        self._is_refused()

    def _is_refused(self) -> None:
        """Neighbours dial in vain. So they know, sooner or later, that this process is gone. They never do if its
        machine is gone, too."""
        dice = Random(f"{self.name} {self.incarnation} is gone")
        if self.knobs.grace and dice.random() < 0.7:
            for name in sorted(self.wires):
                neighbour = self.judge.routers[name]
                self.schedule.after(dice.random() * 2, neighbour.handle, neighbour.dials_in_vain, self)

    def dials_in_vain(self, neighbour: "Router") -> None:
        if not neighbour.alive:  # a paused router may do so long after it has dialled; else the next one answers
            self.topic.refused(neighbour.name)

    def pause(self) -> None:
        self.paused = True
        self.note(self.name, "pauses")

    def go_on(self) -> None:
        """Handle the events that came during the pause, in order. The timer may fire first or last."""
        if not self.paused:
            return
        self.paused = False
        self.note(self.name, f"goes on, with {len(self._inbox)} events waiting")
        inbox, self._inbox = self._inbox, []
        if self.random.random() < 0.5:
            self.handle(self.node.handle_timer)
        for event, arguments in inbox:
            self.handle(event, *arguments)
        self.handle(self.node.handle_timer)

    # events

    def handle(self, event: Callable[..., None], *arguments: Any) -> None:
        """An event reaches this router."""
        if not self.alive:
            return
        if self.paused:
            self._inbox.append((event, arguments))
            return
        if self.knobs.clocks and self.random.random() < self.knobs.clocks:
            self._skew_us += int(self.random.uniform(-MOST_STEP_US, MOST_STEP_US))
            self.most_skew_us = max(self.most_skew_us, abs(self._skew_us))
            self.note(self.name, f"its clock is set to {self._skew_us / 1e6:+.3f} s")
        if self.knobs.old_store and self.random.random() < 0.02:
            self._copy = self.store.copy()
        self.node.now()
        event(*arguments)
        self.node.perform()
        if self.random.random() < self.knobs.busy:
            self.node.save()
            self.schedule.after(self.random.random() * self.knobs.client_delay, self._flush, self.incarnation)
        else:
            self.node.pump()
        self.topic.check()
        self.judge.watch(self)
        if self.sets is not None:
            self.sets.watch(self)

    def _flush(self, incarnation: int) -> None:
        if self.incarnation == incarnation and self.alive and not self.paused:
            self.node.pump()
            self.topic.check()
            self.judge.watch(self)
            if self.sets is not None:
                self.sets.watch(self)

    def drop(self, router: str) -> None:
        """Drop the contact with the other router without a reason."""
        if router in self.topic.directory.contacts:
            self.mesh.drop_contact(router, self.schedule.now, Loss.SILENT, "a fault says so")

    def _wake(self, incarnation: int, at: float) -> None:
        if incarnation == self.incarnation and at == self._timer:
            self._timer = inf
            self.handle(self.node.handle_timer)

    def set_timer(self) -> None:
        """Plan the next timer event. Called as often as the node is pumped."""
        deadline = self.node.deadline()
        if deadline < self._timer:
            self._timer = at = max(deadline, self.schedule.now)
            self.schedule.at(at, self._wake, self.incarnation, at)

    # the plan, followed like in `router.plan`

    def replan(self, wanted: Plan, forced: Sequence[str]) -> None:
        """An operator gives the router another topology."""
        version = self.topic.outlet.clock.stamp(), self.name
        self.mesh.replan(self.mesh.plan.revised(wanted, version, forced), self.schedule.now)

    def planned(self) -> None:
        """The plan has changed."""
        self.schedule.after(0.0, self.handle, self._follow_plan)

    def _follow_plan(self) -> None:
        plan = self.mesh.plan
        if plan.is_out(self.name, self.incarnation):
            self.expelled()
            return
        if plan.routers[self.name].standing is Standing.LEAVING and self.leaves_at == inf:
            self.note(self.name, "is leaving")
            self.leaves_at = self.schedule.now + DRAIN_S
            for link in list(self.links):
                link.broken(0.01)
            self._leave_if_done()
        for name, wire in self.wires.items():
            if name in self.mesh.neighbours:
                wire.seek()
            else:
                wire.part(self.name)

    def expelled(self) -> None:
        """The router has been removed from the plan."""
        self.note(self.name, "has been removed, and ends")
        self.schedule.after(0.0, self.kill, 0.01)

    def _leave_if_done(self) -> None:
        directory = self.topic.directory
        ours = any(entry.live and directory.is_mine(entry) for entry in directory.entries())
        if self.schedule.now < self.leaves_at and (ours or self.topic.records.by_key):
            self.schedule.after(0.1, self.handle, self._leave_if_done)
        elif self.name in self.mesh.plan.listed:
            version = self.topic.outlet.clock.stamp(), self.name
            self.mesh.replan(self.mesh.plan.without(self.name, version), self.schedule.now)

    # contacts

    def makes_contact(self, router: str) -> None:
        self.contact_numbers[router] = self.contact_numbers.get(router, 0) + 1
        self.made_at[router] = self.schedule.now
        self.heard[router] = 0

    def loses_contact(self, router: str) -> None:
        self.judge.check(
            self.knobs.faults + self.knobs.changes != (), f"7 contacts: {self.name} loses {router} without a fault"
        )
        other = self.judge.routers[router]
        self.parted_at[router] = self.schedule.now
        self.part_from(other)
        other.part_from(self)
        self.judge.plain.lost(self, router)

    def part_from(self, other: "Router") -> None:
        """The contact ends at one of the two routers. From now on no event at the other one reaches this router."""
        if self.alive and other.alive and self.topic.directory.contacts.get(other.name) == other.incarnation:
            mutual = other.topic.directory.contacts.get(self.name) == self.incarnation
            if mutual and other.name in self.topic.directory.applied:
                self.lost_at[other.name] = self.schedule.now

    @property
    def had_contact(self) -> set[str]:
        """Routers in contact with this one, or that were until this very event: it may have sent to them before
        that."""
        parted = {router for router, at in self.parted_at.items() if at == self.schedule.now}
        return parted.union(self.topic.directory.contacts)

    @property
    def has_booted(self) -> bool:
        """Whether the router has the sections of all others, or has waited for them long enough (protocol 8, Boot)."""
        waited = self.schedule.now >= self.booted_at + self.knobs.boot_wait
        return waited or self.sections.issuperset(self.topic.directory.members.others)

    def wall_us(self) -> int:
        return START_US + int(self.schedule.now * 1e6) + self._skew_us

    def _note_event(self, event: Event, **columns: Any) -> None:
        left_out = ("time_us", "hlc", "address", "generation", "tags")
        shown = [f"{name} {value}" for name, value in columns.items() if name not in left_out and value is not None]
        self.note(self.name, f"   {event.name} {', '.join(shown):.300}")
