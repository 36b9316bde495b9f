"""One router: its cores, and the loop that passes each core's output to the others (docs/architecture.md).

    clients' links ◀──▶ Topic ◀──▶ link state ◀──▶ neighbours
      inside ends ◀──╯                ▲
                    ReplicaSets ◀─────╯     if the mesh has queues

The router process, the simulation, the exhaustive search and the benches drive this same code. The contract between a
node and the shell that drives it:

1. Before an event the shell calls `now`, which tells the cores the wall clock, and returns the time for their calls.
2. The shell gives an event of a client to `topic`, and an event of a neighbour to link state.
3. It calls `perform` after every event of a client's link, before the next event. It also calls `save` then, if the
   client may hear of the event before the shell calls `pump`.
4. It calls `pump` after an event, or after a run of events. Only `pump` sends anything to other routers, and only when
   the state store has it: no other router may know anything that this router would not know after a restart. If the
   store cannot be written, the node goes on, and the shell refuses new durable links (`save`).
5. A pump gives changes and reads to `SetShell.keep`. The shell has its store do these in order, beside the loop. When a
   `Write`, a `ReadPiece` or a `ReadBodies` is done, it calls `stored`, `piece_read` or `bodies_read`, and then `pump`.
6. It calls `handle_timer` no later than `deadline()`, and then `pump`. Each `pump` may move the deadline.

The shell performs the topic core's actions on links of clients. For an end inside the router (`InsideEnd`,
`topic.ends.end`) the node calls the end itself.

All calls are synchronous. Nothing here reads a clock or awaits: the shell has the clocks and the store, and does the
I/O.
"""

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from linkstate.channel import BUDGET
from linkstate.clock import HybridClock
from linkstate.mesh import Mesh
from linkstate.mesh_actions import Action as MeshAction
from linkstate.mesh_actions import ContactLost, ContactMade, Full, Loss, Received, Replanned, Room, Transmit
from linkstate.plan.plan import Plan
from topic.actions import Action, ConsumerDrains, Consumes, Doubt, LinkAction, Note
from topic.core import Topic
from topic.directory.addresses import is_pattern
from topic.directory.entry import LinkEntry, Role
from topic.ends.end import InsideEnd
from topic.errors import BreachError, UnkeptError
from topic.identity import ingresses_of
from topic.journal import Block, Event
from topic.queues.actions import Answered, BodiesFound, Logged, PageFound, SetEvent, SetNote, Tell
from topic.queues.browsing.browsing import Browsing
from topic.queues.declaring.declarations import Declarations
from topic.queues.leader.leaders import LedSet, SetLeaders
from topic.queues.leader.log import Marking
from topic.queues.operations import Browse, Configure, Declare, Delete, MessagePage, Operation, QueueId
from topic.queues.sets import ReplicaSets
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, StoreChange, StoreRead, Write
from topic.queues.transactions.transactions import Transactions
from topic.queues.wire import SETS
from topic.settings import KINDS, TOPIC, Settings, is_under
from topic.wills.will import WILLS
from topic.wills.wills import Wills

BESIDE = b"\xc1"
"""The first byte of a payload from one shell to another, which the topic cores do not read. No batch begins with it,
because MessagePack does not use this byte."""
AT_ONCE = 64
"""The highest number of postponed acts that the node does in one turn of the loop."""
LOOK_S = 1.0
"""The node tells the cores the time at least once in this many seconds."""


Happening = ContactMade | ContactLost | Note | Replanned | SetEvent


class NodeMesh(Protocol):
    """The router's contacts and their channels: `linkstate.mesh.Mesh`, or a substitute in tests."""

    out: list[MeshAction]

    def cost_to(self, router: str) -> int | None:
        """The sum of the costs on the path to the router; None if there is no path."""

    def send(self, targets: Sequence[str], payload: bytes, now: float) -> None:
        """Send the payload to each of the targets that is in contact."""

    def drop_contact(self, router: str, now: float, cause: Loss, reason: str) -> None:
        """Declare the contact with a router lost."""

    def doubt(self, router: str, reason: str, now: float) -> None:
        """Check a router that owes an answer: declare the contact with it lost, unless data from it are under way."""

    def handle_timer(self, now: float) -> None: ...

    def deadline(self) -> float: ...


class NodeStore(Protocol):
    """The state store, which outlives the router's process: `router.store`, or a substitute in tests."""

    reserved: int
    """A value above all clock values of the router's earlier incarnations."""

    @property
    def found(self) -> bool:
        """Whether the store has a state that an earlier incarnation has saved."""

    @property
    def remembered(self) -> Sequence[LinkEntry]:
        """The link entries in the state store, which earlier incarnations have saved."""

    @property
    def plan(self) -> Plan:
        """The changes of the plan that earlier incarnations have saved."""

    def save(self, changed: Iterable[LinkEntry], clock: int, plan: Plan | None = None, *, whole: bool = False) -> None:
        """Save each of these entries if its link outlives its router (`LinkEntry.outlives_router`); otherwise forget
        it.

        The store also saves the plan, if given, and reserves clock values beyond this reading. `whole`: the store
        forgets all other entries. When this method returns, everything is on disk. Raises `UnkeptError` if nothing is.
        """


class NodeShell(Protocol):
    """The shell that drives a node: it has the clocks and does the I/O."""

    def wall_us(self) -> int:
        """The wall clock, in microseconds since the epoch."""

    def now(self) -> float:
        """A monotonic clock, in seconds."""

    def perform(self, action: LinkAction) -> None:
        """Perform an action of the topic core on a client's link."""

    def transmit(self, action: Transmit) -> None:
        """Queue a body for a neighbour. The shell drops it if it has no connection to the neighbour at present."""

    def flush(self) -> None:
        """Send the queued bodies. The state store now has all facts that these bodies tell."""

    def note(self, happening: Happening) -> None:
        """Write a line about this event into the router's log, before the node acts on it."""

    def receive_from_shell(self, router: str, payload: bytes) -> None:
        """Take a payload that another router's shell has sent by `Node.send_to_shell`. Raises BreachError if it is
        malformed."""


class SetShell(Marking, Protocol):
    """The shell of a node's replica sets, if the mesh has queues."""

    def keep(self, changes: Sequence[StoreChange | StoreRead]) -> None:
        """Give these changes and reads to the store of the sets, after all earlier ones. This call does not wait for
        the disk."""

    def answered(self, answered: Answered) -> None:
        """Take the answer to a request that `Node.ask` has started."""

    def found(self, found: BodiesFound) -> None:
        """Take the result of a read (`ReplicaSets.read`), unless an end inside this router has asked for it."""


@attrs.frozen(slots=True)
class SetPort:
    """The replica sets of a router, and their shell."""

    sets: ReplicaSets
    shell: SetShell


class Node:
    """The cores of one router incarnation, and the loop that connects them."""

    def __init__(
        self, mesh: NodeMesh, topic: Topic, store: NodeStore, shell: NodeShell, sets: SetPort | None = None
    ) -> None:
        """Make the node of a router that has just started, with the content of `store`. `sets`: None if the mesh has no
        queues."""
        self.mesh = mesh
        self.topic = topic
        topic.home.balancing.paths = mesh
        self._port = sets
        self._leaders = SetLeaders(self, sets.sets, sets.shell) if sets is not None else None
        self._browsing = Browsing(sets.sets) if sets is not None else None
        self._transactions = self._make_transactions(sets.sets) if sets is not None else None
        self._declarations = Declarations(sets.sets) if sets is not None else None
        self._changes: list[StoreChange | StoreRead] = []
        """The changes and reads that the node gives to the store of the sets at the end of this pump."""
        self._store = store
        self._shell = shell
        self._look = shell.now() + LOOK_S
        self.unkept = ""
        """The reason why the state store lacks the latest changes; empty if it has them."""
        self._plan: Plan | None = None
        """The changed plan, until the store has it; None if the store has it."""
        self.wills = Wills(self)
        self._later: dict[Callable[[], None], None] = {}
        self._put_off: deque[Callable[[], None]] = deque()
        self._performs = False
        self._tell_what_was_kept()

    def _make_transactions(self, sets: ReplicaSets) -> Transactions:
        return Transactions(self.name, self.incarnation, sets, self.topic.settings.max_message)

    @property
    def name(self) -> str:
        return self.topic.directory.router

    @property
    def incarnation(self) -> int:
        return self.topic.directory.incarnation

    def _tell_what_was_kept(self) -> None:
        """Write into the delivery log whether there was a state store, and the subscribers that it had."""
        trace = self.topic.outlet.trace
        trace(Event.KEPT, detail=json.dumps({"found": self._store.found}))
        for entry in self._store.remembered:
            if entry.role is Role.SUBSCRIBER and entry.live:
                trace(Event.KEPT, subscriber=entry.name, address=entry.identity.address, epoch=str(entry.epoch))

    # The methods from here on are about time.

    def now(self) -> float:
        """Returns the time for the next event, in seconds of the shell's clock. Also tells the cores the wall clock."""
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
        self.wills.handle_timer(now)
        if self._port is not None:
            self._port.sets.handle_timer(now)
        if self._leaders is not None:
            self._leaders.handle_timer(now)
        if self._browsing is not None:
            self._browsing.look(now)
            self._flush_browsing()
        if self._transactions is not None:
            self._transactions.look(now)
            self._flush_transactions()

    def deadline(self) -> float:
        if self._put_off:
            return self._shell.now()
        due = min(self.mesh.deadline(), self.topic.deadline(), self.wills.deadline(), self._look)
        if self._port is not None and self._leaders is not None:
            due = min(due, self._port.sets.deadline(), self._leaders.deadline)
        return due

    def put_off(self, acts: Iterable[Callable[[], None]]) -> None:
        """Postpone acts whose result no client or router awaits. They may be thousands, for example the ends of all
        links of a closed connection.

        If no act is postponed yet, the first ones are done at once. The timer does the others, a few at a time, so that
        the loop handles other events in between.
        """
        is_first = not self._put_off
        self._put_off.extend(acts)
        if is_first:
            self._go_on()

    def _go_on(self) -> None:
        for _ in range(min(AT_ONCE, len(self._put_off))):
            self._put_off.popleft()()

    def stop(self) -> None:
        """Do all postponed acts, and write the last log entry, because the shell is about to end."""
        self.now()
        while self._put_off:
            self._go_on()
        self.topic.stop()

    # The methods from here on are the loop of the pump.

    def pump(self) -> None:
        """Pass all actions and batches on to their targets, until no core has more output."""
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
            elif not topic.forward_withheld():
                break
        self.save()
        if self._port is not None and self._changes:
            changes, self._changes = self._changes, []
            self._port.shell.keep(changes)
        self._shell.flush()

    def save(self) -> bool:
        """Write the changes to the state store. Returns whether the store has them. If the store could not be written,
        the node tries to write all of it again every `LOOK_S` seconds."""
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
        """Perform the topic core's actions in order. An action may cause another event, which calls this method again.
        The inner call then returns at once, and the outer call performs the new actions."""
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
        """Call `act` after all actions of the topic core are performed. If a link asks for the same act several times
        before, the act is called once. The link may have ended by then."""
        self._later[act] = None

    def _perform(self, action: Action) -> None:
        if isinstance(action, Doubt):
            self.mesh.doubt(action.router, action.reason, self._shell.now())
        elif isinstance(action, Note):
            self._shell.note(action)
        elif isinstance(action, Consumes):
            if self._leaders is not None:
                self._leaders.consumes(action.address)
        elif isinstance(action, ConsumerDrains):
            if self._leaders is not None:
                self._leaders.drains(action)
            else:
                self.topic.given(action.asked)
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
                # If the router broke the protocol, the directory has ended the contact already.
                if action.router in self.topic.directory.contacts:
                    self.topic.home.publishing.full(action.router)
            elif isinstance(action, Room):
                self.topic.home.publishing.room(action.router)
            elif isinstance(action, ContactMade):
                self._shell.note(action)
                self.topic.contact(action.router, action.incarnation, now)
                self.wills.contact(action.router, action.incarnation, now)
                if self._port is not None:
                    self._port.sets.contact(action.router, now)
            elif isinstance(action, Replanned):
                self._plan = action.plan
                self.topic.peers.follow(action.plan)
                self.wills.follow(action.plan.listed, now)
                if self._port is not None:
                    self._port.sets.follow(sorted(action.plan.members))
                self._shell.note(action)
            elif action.router in self.topic.directory.contacts:
                # If the router broke the protocol, the directory has ended the contact already.
                self._shell.note(action)
                self._lost(action.router, now)

    def _lost(self, router: str, now: float) -> None:
        incarnation = self.topic.directory.contacts[router]
        self.topic.contact_lost(router, now)
        self.wills.contact_lost(router, incarnation, now)
        if self._port is not None:
            self._port.sets.contact_lost(router, now)

    def send_to_shell(self, router: str, payload: bytes) -> None:
        """Send a payload to the shell of a router in contact. The topic cores do not read it. It keeps its order, and
        leaves with the next pump."""
        self.mesh.send((router,), BESIDE + payload, self._shell.now())

    def send_about_wills(self, routers: Collection[str], payload: bytes) -> None:
        """Send a payload about wills to these routers, in order with all other payloads."""
        self.mesh.send(tuple(routers), payload, self._shell.now())

    def waits_for(self, router: str) -> bool:
        """Whether this router waits for a router out of contact, and would stop waiting if it knew that the other
        router's process is gone."""
        return self.topic.grace.waits_for(router) or self.wills.waits_for(router)

    def refused(self, router: str) -> None:
        """A neighbour out of contact refuses connections, so its process is gone (8, Lost router)."""
        now = self.now()
        self.topic.refused(router)
        self.wills.refused(router, now)

    def receive(self, received: Received, now: float) -> None:
        """Pass on a payload from a router in contact. If the payload breaks the protocol, drop the contact."""
        if received.router not in self.topic.directory.contacts:
            return
        try:
            if received.payload.startswith(BESIDE):
                self._shell.receive_from_shell(received.router, received.payload[len(BESIDE) :])
            elif received.payload.startswith(WILLS):
                self.wills.receive(received.router, received.payload, now)
            elif received.payload.startswith(SETS):
                if self._port is not None:  # a router whose topology has no queues has no port for sets
                    self._port.sets.receive(received.router, received.payload, now)
            else:
                self.topic.receive(received.router, received.payload)
        except BreachError as error:
            reason = f"router {received.router} broke the protocol: {error}"
            self._shell.note(ContactLost(received.router, Loss.BROKEN, reason))
            self.mesh.drop_contact(received.router, now, Loss.BROKEN, reason)
            self._lost(received.router, now)

    # The methods from here on are about replica sets.

    @property
    def sets(self) -> ReplicaSets | None:
        """The replica sets; None if the mesh has no queues."""
        return self._port.sets if self._port is not None else None

    @property
    def led(self) -> Mapping[str, LedSet]:
        """The sets that this router leads, by name."""
        return self._leaders.led if self._leaders is not None else {}

    def ask(self, operation: Operation) -> int:
        """Start an operation on queues. Returns the number of the request. Its answer comes with a pump
        (`SetShell.answered`), within `RaftLimits.tried` seconds.

        Raises ValueError in these cases: the mesh has no queues; the name is too long, no text, or of no
        queue; a queue is to be bound to an address that is no topic; dead letters are to go to an address that takes
        none.
        """
        if self._port is None:
            raise ValueError("the topology of this mesh has no queues: expected a part queues")
        if isinstance(operation, Declare):
            self._check_queue(operation.name, self._port.sets)
        if isinstance(operation, Declare | Configure):
            for address in operation.settings.bind or ():
                self._check_topic(address)
            if operation.settings.dead_letter is not None:
                self._check_takes(operation.settings.dead_letter, operation.name, self._port.sets)
        return self._port.sets.ask(operation, self.now())

    def _check_queue(self, name: str, sets: ReplicaSets) -> None:
        """Raises ValueError if the name belongs to a replica set, but the address is no queue."""
        prefixes, kind = tuple(prefix for prefix, _ in self.topic.settings.kinds), self.topic.kinds.of(name)
        if prefixes and sets.set_map.plan_of(name) is not None and not (kind.in_sets and is_under(name, prefixes)):
            raise ValueError(f'"{name}" is of kind {kind.name}, expected the name of a queue')

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
        """Raises ValueError if no client could attach to the address."""
        kinds = self.topic.settings.kinds
        if kinds and not is_under(address, tuple(prefix for prefix, _ in kinds)):
            known = ", ".join(prefix + "…" for prefix, kind in kinds if kind in of)
            raise ValueError(f"{what}, expected an address of {known}")

    def browse(self, end: Any, asked: Browse, *, rests: bool = False) -> None:
        """Get a page of the messages of a queue, for a client that browses. `end`: the end of the client's link. The
        shell gets the page as a `Browsed` action. `rests`: the client has seen all messages, so the node asks for the
        page only at its next look."""
        assert self._browsing is not None
        if rests:
            self._browsing.rest(end, asked)
        else:
            self._browsing.browse(end, asked)
            self.later(self._flush_browsing)

    def declare(self, end: Any, asked: Declare) -> None:
        """Declare a queue for a client. `end`: the end of the client's link. The shell gets the answer as a `Declared`
        action."""
        assert self._declarations is not None
        self._declarations.declare(end, asked, self.now())

    def follow(self, asked: Delete | Configure) -> None:
        """Delete or configure a queue although the client that asked for it is gone. The router repeats the request
        until a leader has answered."""
        assert self._declarations is not None
        self._declarations.follow(asked, self.now())

    def _declared(self, answered: Answered, now: float) -> bool:
        """Handle the answer to a request. Returns whether `declare` or `follow` has made it."""
        declarations = self._declarations
        if declarations is None or not declarations.has(answered.number):
            return False
        for declared in declarations.answered(answered.number, answered.answer, now):
            self._shell.perform(declared)
        return True

    def _browsed(self, number: int, page: MessagePage | None) -> bool:
        """Handle the answer to a request. Returns whether the request was made for a client that browses."""
        browsed = self._browsing.answered(number, page) if self._browsing is not None else None
        if browsed is not None:
            self._shell.perform(browsed)
        return browsed is not None

    def _flush_browsing(self) -> None:
        for browsed in self._browsing.flush(self.now()) if self._browsing is not None else ():
            self._shell.perform(browsed)

    @property
    def transactions(self) -> Transactions | None:
        """The open transactions of clients; None if the mesh has no queues. An end that reports an event to them then
        calls `transacts`."""
        return self._transactions

    def transacts(self) -> None:
        """There was an event of a transaction. The next pump passes on its outputs."""
        self.later(self._flush_transactions)

    def _has_decided(self, answered: Answered) -> bool:
        """A request is answered. Returns whether a transaction had made it."""
        transactions = self._transactions
        return transactions is not None and transactions.answered(answered.number, answered.answer)

    def _flush_transactions(self) -> None:
        for action in self._transactions.flush(self.now()) if self._transactions is not None else ():
            self._shell.perform(action)

    def read(self, set_: str, queue: QueueId, positions: Sequence[int]) -> int:
        """Start a read of message bodies that are not in memory. Returns the number of the read. When the disk has read
        the bodies, a pump brings them (`SetShell.found`)."""
        assert self._port is not None
        self.now()
        return self._port.sets.read(set_, queue, positions)

    def _check_topic(self, address: str) -> None:
        """Raises ValueError if the address is no topic, or no client could attach to it."""
        self._check_known(address, f'a queue cannot be bound to "{address}"', (TOPIC,))
        kind = self.topic.kinds.of(address).name
        if kind != TOPIC:
            raise ValueError(f'a queue cannot be bound to "{address}", which is of kind {kind}, expected a topic')
        other = self.topic.kinds.other_within(address) if is_pattern(address) else None
        if other is not None:
            kind = self.topic.kinds.of(other).name
            raise ValueError(
                f'a queue cannot be bound to "{address}", which also covers addresses of kind {kind} ("{other}…"), '
                "expected topics"
            )

    def stored(self, write: Write) -> None:
        """Handle the end of a write: the store of the sets has done this write and all earlier ones."""
        assert self._port is not None
        self._port.sets.stored(write, self.now())

    def piece_read(self, piece: ReadPiece, found: FoundPiece | None) -> None:
        """Take a piece of a snapshot that the store of the sets has read. `found`: None if the snapshot is meanwhile at
        another index."""
        assert self._port is not None
        self._port.sets.piece_read(piece, found, self.now())

    def bodies_read(self, read: ReadBodies, found: FoundBodies) -> None:
        """Take message bodies that the store of the sets has read."""
        assert self._port is not None
        self._port.sets.bodies_read(read, found, self.now())

    def damaged(self, name: str, why: str) -> None:
        """Handle the store's report that its data of a set differ from the data that it wrote."""
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
                number = action.number
                if not (self._browsed(number, None) or self._has_decided(action) or self._declared(action, now)):
                    port.shell.answered(action)
            elif isinstance(action, PageFound):
                self._browsed(action.number, action.page)
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
        self._flush_browsing()
        self._flush_transactions()


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
    """Make the node of a router that starts now.

    The router's plan is its topology file with the changes that its store has. Its clock begins at the value that its
    store has reserved, so that its epochs are above all epochs that it has given before. `sets`: the names of the
    mesh's replica sets.
    """
    clock = HybridClock(store.reserved)
    clock.advance(shell.wall_us() // 1000)
    plan = file.merge(store.plan)
    mesh = Mesh(name, incarnation, plan, clock, hello=hello, dead=settings.dead, max_payload=max_payload, budget=budget)
    started, configured = shell.now(), [identity for name in sets for identity in ingresses_of(name)]
    return mesh, Topic(name, incarnation, plan.listed, clock, journal, settings, started, store.remembered, configured)
