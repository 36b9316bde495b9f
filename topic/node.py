"""One router: its cores, and the loop that carries what each of them says to the other (docs/architecture.md).

    clients' links ◀──▶ Topic ◀──▶ link state ◀──▶ neighbours
      inside ends ◀──╯                ▲
                    ReplicaSets ◀─────╯     if the mesh has queues

The router process, the simulation, the exhaustive search and the benches drive this same code. The contract between a
node and the shell that drives it:

1. Before an event the shell calls `now`: that tells the cores the wall clock, and returns the time to call them with.
2. The shell gives an event to the core that it is for: what clients do to `topic`, what neighbours do to link state.
3. It calls `perform` after every event of a client's link, before the next one; and `save` as well, if the client may
   hear of that before `pump` is called.
4. It calls `pump` after an event, or after a run of them. Nothing leaves for another router before that, nor before
   it is in the store: nobody must know of what a router that dies now would not remember. Where the store cannot be
   written the node goes on with what it had; the shell refuses new durable links then (`save`).
5. What a pump gives to `SetShell.keep` the shell has its store do, in order and beside the loop, and says when a
   `Write`, a `ReadPiece` or a `ReadBodies` is done (`stored`, `piece_read`, `bodies_read`). Then it calls `pump`.
6. It calls `handle_timer` no later than `deadline()`, which may have moved whenever `pump` returns, and then `pump`.

The shell does what the topic core asks of clients' links. What it asks of an end inside the router (`InsideEnd`,
`topic.ends.end`) the node has that end do itself.

All of it is synchronous. Nothing here reads a clock or awaits: time, store and the ways out are the shell's.
"""

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import attrs

from linkstate.channel import BUDGET
from linkstate.clock import HybridClock
from linkstate.events import Action as MeshAction
from linkstate.events import ContactLost, ContactMade, Full, Loss, Received, Replanned, Room, Transmit
from linkstate.mesh import Mesh
from linkstate.plan.plan import Plan
from topic.actions import Action, Consumes, Doubt, LinkAction, Note
from topic.core import Topic
from topic.directory.entry import LinkEntry, Role
from topic.ends.end import InsideEnd
from topic.errors import BreachError, UnkeptError
from topic.identity import ingresses_of
from topic.journal import Block, Event
from topic.queues.actions import Answered, BodiesFound, Logged, SetEvent, SetNote, Tell
from topic.queues.leader.leaders import LedSet, SetLeaders
from topic.queues.leader.log import Marking
from topic.queues.operations import Configure, Declare, Operation, QueueId
from topic.queues.sets import ReplicaSets
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, StoreChange, StoreRead, Write
from topic.queues.wire import SETS
from topic.settings import KINDS, TOPIC, Settings

BESIDE = b"\xc1"
"""Begins what shells say to each other beside the topics, and no batch: MessagePack has no such byte."""
AT_ONCE = 64
"""Of what is put off, so much in one turn of the loop."""
LOOK_S = 1.0
"""The cores are told the time at least every so many seconds."""


Happening = ContactMade | ContactLost | Note | Replanned | SetEvent


class NodeMesh(Protocol):
    """Who is in contact, and a reliable way to talk to them: `linkstate.mesh.Mesh`, or what stands for it."""

    out: list[MeshAction]

    def send(self, targets: Sequence[str], payload: bytes, now: float) -> None:
        """Send to those of the targets that are in contact."""

    def drop_contact(self, router: str, now: float, cause: Loss, reason: str) -> None:
        """Declare the contact with a router lost."""

    def doubt(self, router: str, reason: str, now: float) -> None:
        """Declare the contact with a router lost, unless something of it is on its way."""

    def handle_timer(self, now: float) -> None: ...

    def deadline(self) -> float: ...


class NodeStore(Protocol):
    """What outlives the router: `router.store`, or what stands for it."""

    reserved: int
    """No reading of the clock in an earlier life was as high."""

    @property
    def found(self) -> bool:
        """Whether there was an earlier life that the store knows of."""

    @property
    def remembered(self) -> Sequence[LinkEntry]:
        """What the earlier lives left."""

    @property
    def plan(self) -> Plan:
        """What the earlier lives knew to have changed in the plan."""

    def save(self, changed: Iterable[LinkEntry], clock: int, plan: Plan | None = None, *, whole: bool = False) -> None:
        """Keep these entries if they outlive their router (`LinkEntry.outlives_router`), else forget them; the plan, if
        one is given; and reserve the clock behind this reading. `whole`: forget all other entries. Written when it
        returns, all or nothing; raises `UnkeptError`."""


class NodeShell(Protocol):
    """What drives the node, and has its time and its ways out."""

    def wall_us(self) -> int:
        """Microseconds since the epoch."""

    def now(self) -> float:
        """Seconds, never going back."""

    def perform(self, action: LinkAction) -> None:
        """Do on a client's link what the topic core asks."""

    def transmit(self, action: Transmit) -> None:
        """Queue a body for a neighbour; dropped if there is no transport to it just now."""

    def flush(self) -> None:
        """Let what was queued leave: what it says is written down."""

    def note(self, happening: Happening) -> None:
        """Note in the log what is about to be acted on."""

    def told(self, router: str, payload: bytes) -> None:
        """Take what another router's shell says (`Node.tell`). Raises BreachError if it cannot be meant."""


class SetShell(Marking, Protocol):
    """What a node has for its replica sets, if the mesh has queues."""

    def keep(self, changes: Sequence[StoreChange | StoreRead]) -> None:
        """Give these to the store of the sets, behind all that it was given before. It does not wait for the disk."""

    def answered(self, answered: Answered) -> None:
        """Take the answer to a request (`Node.ask`)."""

    def found(self, found: BodiesFound) -> None:
        """Take the answer to a read that no end in this router has asked for (`ReplicaSets.read`)."""


@attrs.frozen(slots=True)
class SetPort:
    """The replica sets of a router, and their shell."""

    sets: ReplicaSets
    shell: SetShell


class Node:
    """The cores of one router incarnation."""

    def __init__(
        self, mesh: NodeMesh, topic: Topic, store: NodeStore, shell: NodeShell, sets: SetPort | None = None
    ) -> None:
        """Just booted, with what `store` remembers. `sets`: None if the mesh has no queues."""
        self.mesh = mesh
        self.topic = topic
        self._port = sets
        self._leaders = SetLeaders(self, sets.sets, sets.shell) if sets is not None else None
        self._changes: list[StoreChange | StoreRead] = []
        """What the store of the sets is to be given with the end of this pump."""
        self._store = store
        self._shell = shell
        self._look = shell.now() + LOOK_S
        self.unkept = ""
        """Why the store is behind; empty if it is not."""
        self._plan: Plan | None = None
        """What has come of it, if the store does not have it yet."""
        self._later: dict[Callable[[], None], None] = {}
        self._put_off: deque[Callable[[], None]] = deque()
        self._performs = False
        self._tell_what_was_kept()

    @property
    def name(self) -> str:
        return self.topic.directory.router

    @property
    def incarnation(self) -> int:
        return self.topic.directory.incarnation

    def _tell_what_was_kept(self) -> None:
        """In the delivery log: whether the state store was there, and which subscribers it had."""
        trace = self.topic.outlet.trace
        trace(Event.KEPT, detail=json.dumps({"found": self._store.found}))
        for entry in self._store.remembered:
            if entry.role is Role.SUBSCRIBER and entry.live:
                trace(Event.KEPT, subscriber=entry.name, address=entry.identity.address, epoch=str(entry.epoch))

    # time

    def now(self) -> float:
        """The time for an event that is about to be handled. Tells the cores the wall clock as well."""
        self.topic.advance(self._shell.wall_us())
        return self._shell.now()

    def handle_timer(self) -> None:
        now = self.now()
        self._look = now + LOOK_S
        self._go_on()
        if self.unkept:
            self._catch_up()
        self.mesh.handle_timer(now)
        self.topic.handle_timer(now)
        if self._port is not None:
            self._port.sets.handle_timer(now)
        if self._leaders is not None:
            self._leaders.handle_timer(now)

    def deadline(self) -> float:
        if self._put_off:
            return self._shell.now()
        due = min(self.mesh.deadline(), self.topic.deadline(), self._look)
        if self._port is not None and self._leaders is not None:
            due = min(due, self._port.sets.deadline(), self._leaders.deadline)
        return due

    def put_off(self, acts: Iterable[Callable[[], None]]) -> None:
        """What nobody waits for, and there may be thousands of, as when a connection is over with all its links. Some
        of it is done now, if nothing waits before it, the rest with the timer: others are heard in between."""
        is_first = not self._put_off
        self._put_off.extend(acts)
        if is_first:
            self._go_on()

    def _go_on(self) -> None:
        for _ in range(min(AT_ONCE, len(self._put_off))):
            self._put_off.popleft()()

    def stop(self) -> None:
        """The shell is about to end."""
        self.now()
        while self._put_off:
            self._go_on()
        self.topic.stop()

    # the loop

    def pump(self) -> None:
        """Carry actions and batches to where they belong until the cores have nothing more to say."""
        now = self._shell.now()
        topic, mesh = self.topic, self.mesh
        while True:
            if topic.out:
                self.perform()
            elif self._later:
                act = next(iter(self._later))
                del self._later[act]
                act()
            elif batches := topic.take_outgoing(now):
                for targets, payload in batches:
                    mesh.send(targets, payload, now)
            elif mesh.out:
                self._drain_mesh(now)
            elif self._port is not None and self._port.sets.has_work:
                self._drain_sets(self._port, now)
            elif not topic.go_on():
                break
        self.save()
        if self._port is not None and self._changes:
            changes, self._changes = self._changes, []
            self._port.shell.keep(changes)
        self._shell.flush()

    def save(self) -> bool:
        """Write down what has changed. Whether the store has it: one that could not be written is behind until it has
        been written anew, which is tried with every look."""
        unsaved, clock = self.topic.directory.unsaved, self.topic.outlet.clock.read()
        if not self.unkept and (unsaved or self._plan or clock >= self._store.reserved):
            try:
                self._store.save(unsaved, clock, self._plan)
                self._plan = None
            except UnkeptError as error:
                self.unkept = str(error)
                self._shell.note(Note(f"{self.unkept}; the router refuses new durable links until it can store them"))
        unsaved.clear()
        return not self.unkept

    def _catch_up(self) -> None:
        try:
            self._store.save(self.topic.directory.entries(), self.topic.outlet.clock.read(), self._plan, whole=True)
        except UnkeptError as error:
            self.unkept = str(error)
        else:
            self._plan = None
            self.unkept = ""
            self._shell.note(Note("the router's state can be stored again"))

    def perform(self) -> None:
        """Carry out the topic core's actions so far, in the order in which it has asked for them. If one of these is an
        event for the core in turn, what comes of that is carried out when it has its turn, and not by this call."""
        if self._performs:
            return
        out, self._performs = self.topic.out, True
        try:
            while out:
                actions, out[:] = out[:], []
                for action in actions:
                    self._perform(action)
        finally:
            self._performs = False

    def later(self, act: Callable[[], None]) -> None:
        """What a link does once all is done that the cores have asked for, if it is still there then: once, however
        often it has said so."""
        self._later[act] = None

    def _perform(self, action: Action) -> None:
        if isinstance(action, Doubt):
            self.mesh.doubt(action.router, action.reason, self._shell.now())
        elif isinstance(action, Note):
            self._shell.note(action)
        elif isinstance(action, Consumes):
            if self._leaders is not None:
                self._leaders.consumes(action.address)
        elif isinstance(action.link, InsideEnd):
            action.link.perform(action)
        else:
            self._shell.perform(action)

    def _drain_mesh(self, now: float) -> None:
        actions, self.mesh.out[:] = self.mesh.out[:], []
        for action in actions:
            if isinstance(action, Transmit):
                self._shell.transmit(action)
            elif isinstance(action, Received):
                self.receive(action, now)
            elif isinstance(action, Full):
                if action.router in self.topic.directory.contacts:  # else it was over with a breach
                    self.topic.home.publishing.full(action.router)
            elif isinstance(action, Room):
                self.topic.home.publishing.room(action.router)
            elif isinstance(action, ContactMade):
                self._shell.note(action)
                self.topic.contact(action.router, action.incarnation, now)
                if self._port is not None:
                    self._port.sets.contact(action.router, now)
            elif isinstance(action, Replanned):
                self._plan = action.plan
                self.topic.peers.follow(action.plan)
                if self._port is not None:
                    self._port.sets.follow(sorted(action.plan.members))
                self._shell.note(action)
            elif action.router in self.topic.directory.contacts:  # else it was over with a breach
                self._shell.note(action)
                self._lost(action.router, now)

    def _lost(self, router: str, now: float) -> None:
        self.topic.lost(router, now)
        if self._port is not None:
            self._port.sets.lost(router, now)

    def tell(self, router: str, payload: bytes) -> None:
        """Say to the shell of a router in contact what is no business of topics; in order, with the next pump."""
        self.mesh.send((router,), BESIDE + payload, self._shell.now())

    def receive(self, received: Received, now: float) -> None:
        """Give the topic core a batch from a router in contact. After one that breaks the protocol none is taken."""
        if received.router not in self.topic.directory.contacts:
            return
        try:
            if received.payload.startswith(BESIDE):
                self._shell.told(received.router, received.payload[len(BESIDE) :])
            elif received.payload.startswith(SETS):
                if self._port is not None:  # else the other router's topology has queues, and this one's does not
                    self._port.sets.receive(received.router, received.payload, now)
            else:
                self.topic.receive(received.router, received.payload)
        except BreachError as error:
            reason = f"router {received.router} broke the protocol: {error}"
            self._shell.note(ContactLost(received.router, Loss.BROKEN, reason))
            self.mesh.drop_contact(received.router, now, Loss.BROKEN, reason)
            self._lost(received.router, now)

    # replica sets

    @property
    def sets(self) -> ReplicaSets | None:
        """None if the mesh has no queues."""
        return self._port.sets if self._port is not None else None

    @property
    def led(self) -> Mapping[str, LedSet]:
        """The sets that this router leads, by name."""
        return self._leaders.led if self._leaders is not None else {}

    def ask(self, operation: Operation) -> int:
        """Have an operation on queues carried out. Returns the number of the request: its `SetShell.answered` comes
        with a pump, within `RaftLimits.tried` seconds. Raises ValueError if the name is too long, or no text, if the
        mesh has no queues, if a queue is to be bound to what is no topic, or if dead letters are to go where nothing
        takes them."""
        if self._port is None:
            raise ValueError("the topology of this mesh has no queues: expected a part queues")
        if isinstance(operation, Declare | Configure):
            for address in operation.settings.bind or ():
                self._check_topic(address)
            if operation.settings.dead_letter is not None:
                self._check_takes(operation.settings.dead_letter, operation.name, self._port.sets)
        return self._port.sets.ask(operation, self.now())

    def _check_takes(self, address: str, queue: str, sets: ReplicaSets) -> None:
        """Raises ValueError if dead letters of the queue cannot go to this address."""
        what = f'dead letters of "{queue}" cannot go to "{address}"'
        if address == queue:
            raise ValueError(f"{what}, which is the queue itself")
        self._check_known(address, what, KINDS)
        if self.topic.kinds.of(address).in_sets and sets.set_map.plan_of(address) is None:
            known = ", ".join(prefix + "…" for prefix in sets.set_map.prefixes)
            raise ValueError(f"{what}: no replica set has a queue of this name, expected {known}")

    def _check_known(self, address: str, what: str, of: Collection[str]) -> None:
        """Raises ValueError for an address that no client could attach to."""
        kinds = self.topic.settings.kinds
        if kinds and not address.startswith(tuple(prefix for prefix, _ in kinds)):
            known = ", ".join(prefix + "…" for prefix, kind in kinds if kind in of)
            raise ValueError(f"{what}, expected an address of {known}")

    def read(self, set_: str, queue: QueueId, positions: Sequence[int]) -> int:
        """Have the bodies of messages read that are not in memory. Returns the number of the read: its `SetShell.found`
        comes with a pump, when the disk has done it."""
        assert self._port is not None
        self.now()
        return self._port.sets.read(set_, queue, positions)

    def _check_topic(self, address: str) -> None:
        """Raises ValueError for an address of another kind, or that no client could attach to."""
        self._check_known(address, f'a queue cannot be bound to "{address}"', (TOPIC,))
        kind = self.topic.kinds.of(address).name
        if kind != TOPIC:
            raise ValueError(f'a queue cannot be bound to "{address}", which is of kind {kind}, expected a topic')

    def stored(self, write: Write) -> None:
        """The store of the sets has done this write, and all before it."""
        assert self._port is not None
        self._port.sets.stored(write, self.now())

    def piece_read(self, piece: ReadPiece, found: FoundPiece | None) -> None:
        """The store of the sets has read this piece. None: the snapshot is at another index by now."""
        assert self._port is not None
        self._port.sets.piece_read(piece, found, self.now())

    def bodies_read(self, read: ReadBodies, found: FoundBodies) -> None:
        """The store of the sets has read these bodies."""
        assert self._port is not None
        self._port.sets.bodies_read(read, found, self.now())

    def damaged(self, name: str, why: str) -> None:
        """The store has found that its part of a set is not what was written."""
        assert self._port is not None
        self._port.sets.damaged(name, why)

    def _drain_sets(self, port: SetPort, now: float) -> None:
        port.sets.flush(now)
        out, port.sets.out[:] = port.sets.out[:], []
        for action in out:
            if isinstance(action, Logged):
                self.topic.outlet.trace(action.event, **action.columns)
            elif isinstance(action, Tell):
                self.mesh.send((action.router,), action.payload, now)
            elif isinstance(action, Answered):
                port.shell.answered(action)
            elif isinstance(action, BodiesFound):
                if self._leaders is None or not self._leaders.found(action):
                    port.shell.found(action)
            elif isinstance(action, SetNote):
                self._shell.note(Note(action.text))
            elif isinstance(action, SetEvent):
                self._shell.note(action)
            else:
                self._changes.append(action)
        if self._leaders is not None:
            self._leaders.follow(now)


def boot(
    name: str,
    incarnation: int,
    file: Plan,
    journal: Block,
    settings: Settings,
    store: NodeStore,
    shell: NodeShell,
    *,
    hello: float,
    max_payload: int,
    budget: int = BUDGET,
    sets: Iterable[str] = (),
) -> tuple[Mesh, Topic]:
    """The cores of a router that starts now, by what its topology file says, and what it knows to have changed in that
    since. Its clock begins where the store reserved it, so that what it names is
    younger than all that it named before. `sets`: the replica sets of the mesh."""
    clock = HybridClock(store.reserved)
    clock.advance(shell.wall_us() // 1000)
    plan = file.merge(store.plan)
    mesh = Mesh(name, incarnation, plan, clock, hello=hello, dead=settings.dead, max_payload=max_payload, budget=budget)
    started, configured = shell.now(), [identity for name in sets for identity in ingresses_of(name)]
    return mesh, Topic(name, incarnation, plan.listed, clock, journal, settings, started, store.remembered, configured)
