"""Clients that ask anything of queues: transactions, dynamic nodes, browsers, drains and delivery times, in frames that
are well formed but make no sense, and a few damaged ones (protocol 14.15 to 14.21).

    publisher - a ~~~ b - subscriber      the good pair of a topic
    publisher, mover - a ~~~ b - reader   a good pair of a queue, and a client that moves messages in transactions

Three routers have the replicas of one set. Each has a disk that finishes at once.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import attrs

from router.amqp.format import codec
from router.amqp.format.message import HEADER as HEADER_SECTION
from router.amqp.format.message import MESSAGE_ANNOTATIONS, VALUE, data_message
from router.amqp.format.values import LIFETIME_POLICY, SELECTOR
from router.edge.ttl import left_ms
from router.queues.replicas import RouterReplicas
from tests.fuzz.clients import LINKS, STATES, Talk, visit
from tests.fuzz.mesh import LISTENS, LONGEST_S, SETTINGS, FuzzMesh, FuzzRouter, GoodClient, Guest
from tests.fuzz.mutation import damaged
from tests.router.amqp.frames import (
    ATTACH,
    BEGIN,
    COORDINATOR,
    DISPOSITION,
    FLOW,
    HEADER,
    OPEN,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    Raw,
    Symbol,
    frame,
)
from tests.set_store import MemorySets, StoreNames
from tests.store import MemoryStore
from topic.core import Topic
from topic.identity import ingresses_of, is_of_sets
from topic.node import SetPort
from topic.properties import DELIVERY_TIME
from topic.queues.actions import Answered, BodiesFound
from topic.queues.operations import Temporary
from topic.queues.set_map import SetMap, SetPlan
from topic.queues.sets import ReplicaSets
from topic.queues.storing import ReadBodies, ReadPiece, StoreChange, StoreRead, Write
from topic.raft.limits import RaftLimits
from topic.settings import QUEUE

SET: Final = "q0"
WITH_QUEUES: Final = attrs.evolve(SETTINGS, kinds=(("queue/", QUEUE),))
ELECTED_S: Final = 5
STEP_S: Final = 0.1
"""The longest step of time, in seconds. It is shorter than the time between two candidates."""
GOOD, MOVED = "queue/good", "queue/moved"
QUEUES: Final = ("queue/f0", "queue/f1")
ACCEPTED, DECLARED, TRANSACTIONAL = 0x24, 0x33, 0x34
DECLARE, DISCHARGE = 0x31, 0x32
LAST = (Temporary.NO_MESSAGES, Temporary.NO_LINKS_OR_MESSAGES)
"""A temporary queue with one of these policies stays as long as it has messages."""
CLIENTS_S: Final = 8
"""Seconds after which nothing may be left of clients that have gone."""


class QueueRouter(RouterReplicas, FuzzRouter):
    """A router with a replica of the set. Marks messages as real routers do."""

    mesh: "QueueMesh"

    def __init__(self, mesh: "QueueMesh", name: str, incarnation: int = 1, store: MemoryStore | None = None) -> None:
        self.waiting: list[StoreChange | StoreRead] = []
        FuzzRouter.__init__(self, mesh, name, incarnation, store)

    def port(self, topic: Topic) -> SetPort:  # type: ignore[override]
        mesh = self.mesh
        sets = ReplicaSets(
            self.name,
            mesh.set_map,
            sorted(mesh.names),
            mesh.disks[self.name].contents,
            RaftLimits(),
            mesh.random.random,
            topic.outlet.clock.stamp,
            mesh.new_store,
            mesh.now,
            left_ms=left_ms,
        )
        return SetPort(sets, self)

    def keep(self, changes: Sequence[StoreChange | StoreRead]) -> None:
        self.waiting += changes

    def answered(self, answered: Answered) -> None:
        raise AssertionError("no operator asks anything")

    def found(self, found: BodiesFound) -> None:
        raise AssertionError("no operator asks anything")

    def write(self) -> bool:
        wrote, waiting, self.waiting = super().write(), self.waiting, []
        disk = self.mesh.disks[self.name]
        for change in waiting:
            if isinstance(change, ReadPiece):
                self.node.piece_read(change, disk.read(change))
            elif isinstance(change, ReadBodies):
                self.node.bodies_read(change, disk.bodies(change))
            else:
                disk.write([change])
                if isinstance(change, Write):
                    self.node.stored(change)
        if waiting:
            self.node.pump()
        return wrote or bool(waiting)

    @property
    def sets(self) -> ReplicaSets:
        assert self.node.sets is not None
        return self.node.sets

    def propose(self) -> bool:
        """Let a leader propose what waits for the next entry. Returns whether there was something."""
        waiting = [led for led in self.node.led.values() if led.deadline < float("inf")]
        for led in waiting:
            led.propose_now()
        if waiting:
            self.node.pump()
        return bool(waiting)


class Mover(Guest):
    """A client that puts messages into a queue, each in a transaction of its own, in frames written by hand."""

    def __init__(self, router: FuzzRouter) -> None:
        super().__init__(router)
        self._heard = b""
        self._told: dict[int, Any] = {}
        """The latest state that the router has told of each delivery."""
        self._next = 0
        ends = (Described(COORDINATOR), Described(TARGET, MOVED))
        attaches = b"".join(
            frame(ATTACH, f"m{handle}", handle, False, None, None, Described(SOURCE), end, None, None, 0)
            for handle, end in enumerate(ends)
        )
        self.begins = HEADER + frame(OPEN, "mover") + frame(BEGIN, None, 0, 1000, 1000) + attaches

    def hears(self, data: bytes) -> None:
        self._heard = (self._heard + data).removeprefix(HEADER)
        while len(self._heard) >= 8 and len(self._heard) >= (size := int.from_bytes(self._heard[:4])):
            said, self._heard = self._heard[8:size], self._heard[size:]
            performative, _ = codec.decode(said) if said else (codec.Described(0, []), 0)
            if performative.descriptor == DISPOSITION:
                fields: list[Any] = [*performative.value, None, None]
                first, last, state = fields[1], fields[2], fields[4]
                self._told |= dict.fromkeys(range(first, (first if last is None else last) + 1), state)

    def _transfer(self, handle: int, message: bytes, state: Any = None) -> Any:
        """Transfer a message. Returns the state that the router tells of it."""
        number, self._next = self._next, self._next + 1
        self.say(frame(TRANSFER, handle, number, b"%d" % number, 0, False, False, None, state, payload=message))
        return self._told[number]

    def move(self, number: int) -> None:
        """Put a message into the queue, and commit."""
        declared = self._transfer(0, value_message(DECLARE, []))
        [name] = declared.value
        within = self._transfer(1, data_message(b"%d" % number), Described(TRANSACTIONAL, name))
        over = self._transfer(0, value_message(DISCHARGE, [name, False]))
        descriptors = [state.descriptor for state in (declared, within, over)]
        assert descriptors == [DECLARED, TRANSACTIONAL, ACCEPTED], descriptors


def value_message(code: int, fields: Any) -> bytes:
    """A message whose body is a described value."""
    return codec.encode(codec.Described(VALUE, codec.Described(code, fields)))


class QueueMesh(FuzzMesh):
    routers: dict[str, QueueRouter]  # type: ignore[assignment]

    def __init__(self, *names: str) -> None:
        self.random = Random(0)
        self.set_map = SetMap([SetPlan(SET, names)])
        self.new_store = StoreNames()
        self.disks = {name: MemorySets(self.new_store.parts(self.set_map.plans)) for name in names}
        self.configured = ingresses_of(SET)
        self._good_queue: tuple[GoodClient, Any, GoodClient, GoodClient, Mover] | None = None
        super().__init__(*names, settings=WITH_QUEUES)
        self.time(ELECTED_S)
        assert [name for name in names if SET in self.routers[name].sets.led], "nobody leads"
        writer, reader, moved = (
            self._good(router, name) for router, name in (("a", "writer"), ("b", "reader"), ("b", "moved"))
        )
        writes = writer.engine.sender("writes", GOOD)
        for client, queue in ((reader, GOOD), (moved, MOVED)):
            client.engine.receiver(LISTENS, queue).flow(10)
        mover = Mover(self.routers["a"])
        self.routers["a"].guests.append(mover)
        mover.say(mover.begins)
        self._good_queue = writer, writes, reader, moved, mover
        self.check()

    def make(self, name: str) -> QueueRouter:
        return QueueRouter(self, name)

    def fill(self, queue: str, count: int) -> None:
        """Put messages into a queue."""
        client = self._good("c", f"fills {queue}")
        sender = client.engine.sender("fills", queue)
        self.flow()
        for number in range(count):
            sender.send(b"%d" % number, data_message(b"%d" % number), settled=True)
            self.flow()
        client.leave()
        client.engine.release()

    def work(self) -> bool:
        return super().work() or any(router.propose() for router in self.routers.values())

    def time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            super().time(min(STEP_S, end - self.now))

    def check(self) -> None:
        """Check that the good clients are served, as soon as a router leads."""
        super().check()
        if self._good_queue is None:
            return
        writer, writes, reader, moved, mover = self._good_queue
        for _ in range(ELECTED_S):
            if any(router.sets.led for router in self.routers.values()):
                break
            self.time(1.0)
        number = len(reader.numbers)
        writes.send(b"%d" % number, data_message(b"%d" % number))
        mover.move(number)
        self.flow()
        assert reader.numbers == moved.numbers == [*range(number + 1)], "a good reader has not got it"
        assert writer.accepted == number + 1, "the good writer was not told accepted"

    def check_forgotten(self) -> None:
        """Check that nothing is left of clients that have gone, but for what they have put into queues."""
        self.time(3 * LONGEST_S + CLIENTS_S)
        own = {"good subscriber", "good publisher", "writer", "reader", "moved", "mover"}
        for router in self.routers.values():
            topic, node = router.node.topic, router.node
            left = [
                entry
                for entry in topic.directory.entries()
                if entry.identity.container not in own and not is_of_sets(entry.identity.container) and entry.live
            ]
            assert not left, f"router {router.name} still has {left}"
            assert not topic.edge.drains._draining, "a drain is left"
            transactions, browsing, declarations = node.transactions, node._browsing, node._declarations
            assert transactions is not None and browsing is not None and declarations is not None
            assert not (transactions._open or transactions._of or transactions._waiting or transactions._deciding)
            assert not (browsing._waiting or browsing._asked or browsing._resting)
            assert not (declarations._asked or declarations._following)
            state = router.sets.state(SET)
            empty = [queue.name for queue in state.temporary.values() if not state.messages.of(queue.id)]
            others = [queue.name for queue in state.temporary.values() if queue.settings.temporary not in LAST]
            assert not (empty or others), f"router {router.name} still has {empty or others}"
            assert not state.messages.reserved.count, "a message is still kept for a consumer"
        assert len({router.sets.state(SET).rows.digest for router in self.routers.values()}) == 1


class QueueTalk(Talk):
    """The frames of one client that uses queues."""

    def __init__(self, rng: Random, mesh: QueueMesh, guest: Guest) -> None:
        super().__init__(rng, mesh, guest)
        self._queues = mesh
        self._coordinates: set[int] = set()
        """The handles of links to the coordinator."""
        self._names: list[Any] = [b"there is none"]
        """The names of transactions that were open at some time."""
        self._prepared: list[bytes] = []
        """What the next acts say."""

    def beginning(self) -> bytes:
        """Mostly also the attaches of a client that is about to use transactions."""
        if self._rng.random() < 0.3:
            return super().beginning()
        ends = (Described(COORDINATOR), Described(TARGET, QUEUES[0]), Described(SOURCE, QUEUES[0]))
        said = [super().beginning()]
        for handle, (end, name) in enumerate(zip(ends, LINKS, strict=True)):
            receives = end.code == SOURCE
            termini = (end, Described(TARGET)) if receives else (Described(SOURCE), end)
            said.append(frame(ATTACH, name, handle, receives, None, None, *termini, None, None, 0))
            self._links[handle] = name, receives
        self._coordinates.add(0)
        said.append(frame(FLOW, 0, 1000, 0, 1000, 2, 0, 5))
        # The router takes transfers only when it has answered the begin, so the next act says nothing.
        self._prepared = [b"", self._transfer_on(0, value_message(DECLARE, []), settled=False)]
        return b"".join(said)

    def act(self) -> bytes:
        if not self._prepared:
            return super().act()
        return self._prepared.pop(0)

    def _transfer_on(self, handle: int, message: bytes, state: Any = None, *, settled: bool, **more: bool) -> bytes:
        number, self._next = self._next, self._next + 1
        is_cut, aborted = more.get("is_cut", False), more.get("aborted", False)
        fields = (self._tag(), 0, settled, is_cut, None, state, self._rng.random() < 0.05, aborted)
        return frame(TRANSFER, handle, number, *fields, payload=message)

    def _transaction(self) -> Any:
        """The name of an open transaction of any connection, of one that is over, or something else."""
        rng = self._rng
        nodes = (router.node for router in self._queues.routers.values())
        known = [one for node in nodes if node.transactions is not None for one in node.transactions._open.values()]
        own = [one.id for one in known if one.connection is self._guest.connection]
        self._names = [*self._names, *(one.id for one in known)][-20:]
        if own and rng.random() < 0.7:
            return rng.choice(own)
        if rng.random() < 0.9:
            return rng.choice(self._names)
        return rng.choice((None, b"", b"x" * 2000, 7, "text", [b"x"], {}, Symbol("x"), rng.randbytes(12)))

    def _state(self) -> Any:
        rng = self._rng
        if rng.random() < 0.4:
            return super()._state()
        odd: tuple[Any, ...] = (None, Described(rng.choice(STATES), "text", {}), 7, [])
        outcome = super()._state() if rng.random() < 0.7 else rng.choice(odd)
        fields = rng.choice(((self._transaction(), outcome),) * 9 + ((), (self._transaction(),), (outcome,)))
        return Described(rng.choice((TRANSACTIONAL,) * 20 + (DECLARED,)), *fields)

    def _map(self) -> Any:
        return super()._map() if self._rng.random() < 0.1 else None

    def _terminus(self, code: int) -> Any:
        rng = self._rng
        if rng.random() < 0.25 and code == TARGET:
            capabilities = rng.choice((None,) * 10 + (Symbol("amqp:local-transactions"), Symbol("amqp:nothing"), 7))
            return Described(COORDINATOR, capabilities)
        address = rng.choice(QUEUES * 6 + ("topic/f0", "queue/#", "queue/", "queue/" + "x" * 300, "", None))
        lasting = rng.choice((0, 0, 1, 2)), Symbol(rng.choice(("session-end", "link-detach", "never")))
        timeout, is_dynamic = rng.choice((0, 0, 2, 5)), rng.random() < 0.2
        properties = self._node_properties() if rng.random() < (0.9 if is_dynamic else 0.05) else None
        fields = (None if is_dynamic and rng.random() < 0.9 else address, *lasting, timeout, is_dynamic, properties)
        capabilities = Symbol(rng.choice(("queue", "queue", "temporary-queue", "topic"))) if is_dynamic else None
        if code == TARGET:
            return Described(TARGET, *fields, capabilities)
        mode = Symbol(rng.choice(("copy", "copy", "move", "neither"))) if rng.random() < 0.4 else None
        selector = Raw(codec.encode(codec.Described(codec.Symbol(SELECTOR), "a = 1 OR 1 = 1")))
        filters = {Symbol("s"): selector} if rng.random() < 0.1 else None
        default = super()._state() if rng.random() < 0.2 else None
        return Described(SOURCE, *fields, mode, filters, default, None, capabilities)

    def _node_properties(self) -> Any:
        """A lifetime policy, or something else in its place."""
        rng = self._rng
        policy = Described(rng.choice((0x2B, 0x2C, 0x2D, 0x2E)))
        odd: tuple[Any, ...] = (
            None,
            7,
            "delete-on-close",
            [],
            Described(0x2F),
            Described(0x24),
            Described(0x2B, "field", 7),
        )
        properties = {Symbol(LIFETIME_POLICY): policy if rng.random() < 0.7 else rng.choice(odd)}
        return properties if rng.random() < 0.98 else rng.choice((7, {"a text": policy}, {Symbol("x"): policy}))

    def _attach(self) -> bytes:
        known = {*self._links}
        said = super()._attach()
        for handle in {*self._links} - known:
            self._coordinates.discard(handle)
            if bytes((0x53, COORDINATOR)) in said:
                self._coordinates.add(handle)
        return said

    def _message(self, handle: int) -> bytes:
        """A message for the coordinator, or one with any delivery time."""
        rng = self._rng
        if handle in self._coordinates:
            name = self._transaction()
            asked = value_message(DECLARE, rng.choice(([], [], [None], [b"global"], [7], {}, None)))
            if rng.random() < 0.6:
                fields = rng.choice(([name, False], [name], [name, True], [name, "text"], [], [False, name], 7))
                asked = value_message(DISCHARGE, fields) if not isinstance(name, Symbol) else data_message(b"x")
            return damaged(rng, asked) if rng.random() < 0.1 else asked
        message = data_message(rng.randbytes(rng.choice((0, 3, 3000))))
        if rng.random() < 0.3:
            message = codec.encode(codec.Described(MESSAGE_ANNOTATIONS, self._annotations())) + message
        if rng.random() < 0.2:
            header = [True, None, codec.uint(rng.choice((0, 1, 500, 2**32 - 1))), None, None]
            message = codec.encode(codec.Described(HEADER_SECTION, header)) + message
        return damaged(rng, message) if rng.random() < 0.03 else message

    def _annotations(self) -> dict[Any, Any]:
        rng = self._rng
        now_ms = self._queues.wall_us // 1000
        near = now_ms + rng.choice((-10_000, -1, 0, 1, 300, 2000, 86_400_000, 2**60))
        odd: tuple[Any, ...] = (
            None,
            "soon",
            b"x",
            1.5,
            [now_ms],
            {},
            True,
            -1,
            0,
            2**63 - 1,
            -(2**63),
            codec.Described(7, near),
        )
        value = codec.Timestamp(near) if rng.random() < 0.4 else near if rng.random() < 0.5 else rng.choice(odd)
        name = codec.Symbol(DELIVERY_TIME) if rng.random() < 0.9 else DELIVERY_TIME
        return {name: value}

    def _transfer(self) -> bytes:
        rng = self._rng
        senders = [handle for handle, (_, receives) in self._links.items() if not receives]
        if not senders:
            return self._attach()
        to_coordinators = [handle for handle in senders if handle in self._coordinates]
        handle = rng.choice(to_coordinators if to_coordinators and rng.random() < 0.3 else senders)
        state = self._state() if rng.random() < (0.05 if handle in self._coordinates else 0.4) else None
        odd = {"is_cut": rng.random() < 0.03, "aborted": rng.random() < 0.03}
        return self._transfer_on(handle, self._message(handle), state, settled=rng.random() < 0.15, **odd)

    def _disposition(self) -> bytes:
        if self._rng.random() < 0.3:
            return super()._disposition()
        first = self._rng.randrange(3)
        last = first + self._rng.choice((0, 0, 1))
        return frame(DISPOSITION, True, first, last, self._rng.random() < 0.6, self._state())

    def _flow(self) -> bytes:
        rng = self._rng
        link = (self._handle(), 0, rng.choice((1, 1, 5, 100, 2**32 - 1)) if rng.random() < 0.9 else 0)
        properties = {Symbol("txn-id"): self._transaction()} if rng.random() < 0.1 else None
        drains, echoes = rng.random() < 0.4, rng.random() < 0.3
        return frame(FLOW, self._next, 1000, 0, rng.choice((1000, 1)), *link, None, drains, echoes, properties)


def queues(rng: Random) -> None:
    """A few clients use queues at the same time, in any way."""
    mesh = QueueMesh("a", "b", "c")
    for queue in QUEUES:
        mesh.fill(queue, rng.randrange(6))
    share = rng.choice((0.0, 0.0, 0.02))

    def bend(said: bytes) -> bytes:
        return damaged(rng, said) if rng.random() < share else said

    visit(rng, mesh, bend, QueueTalk)
    mesh.check()
    mesh.meet()
    mesh.check_forgotten()
    mesh.end()
