"""Whole routers without sockets in one process, and a pair of good clients.

    publisher - a ~~~ b - subscriber        ~~~ contacts by hand; perhaps a third router, c

Each has a node, the edge for AMQP clients and their connections. Time is virtual. Guests send bytes.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations

from linkstate.clock import HybridClock
from linkstate.mesh_actions import ContactLost, Loss, Transmit
from router.amqp.batches import Dispositions, Transfers
from router.amqp.connection import Connection
from router.amqp.format.errors import AmqpError
from router.amqp.format.message import body_of, data_message
from router.amqp.format.values import ACCEPTED
from router.amqp.handler import Handler
from router.amqp.proton.link import Link
from router.edge.clients import ClientEdge
from router.edge.guard import Guard
from router.edge.topics import Topics
from router.management.node import Callers
from router.mesh.config import AddressRule, Limits
from router.security.rules import Rules
from tests.contacts import Contacts
from tests.deaf import Deaf
from tests.store import MemoryStore
from topic.actions import LinkAction
from topic.core import Topic
from topic.identity import LinkIdentity
from topic.journal import Block
from topic.node import Happening, Node, SetPort
from topic.settings import Settings

LONGEST_S = 5
SETTINGS = Settings(window=20, terminus=LONGEST_S, forget=60.0, boot_wait=3.0, join=100.0)
MAX_FRAME = 4096
MAX_MESSAGE = 10_000
GOOD, LISTENS = "topic/good", "listens"


class Guest:
    """The router's end of one client's connection."""

    def __init__(self, router: "FuzzRouter") -> None:
        self.router = router
        self.connection = Connection(
            router.clients, container="fuzz", server=True, max_frame=MAX_FRAME, max_message=MAX_MESSAGE
        )
        self.connection.context = self

    def open(self) -> None:
        """Nothing to do: the guest keeps its place."""

    def admit(self) -> bool:
        return True

    def say(self, data: bytes) -> None:
        with self.router.mesh.acting(self.router):
            try:
                self.connection.receive(data, self.router.mesh.now)
            except AmqpError:
                assert self.connection.closed
        self.router.mesh.flow()

    def hears(self, data: bytes) -> None:
        """The guest gets bytes from the router."""

    def acknowledges(self) -> bool:
        """Whether the client's machine has acknowledged something that the router asked for (protocol 6.6). It may be
        silent.
        """
        return False

    def leave(self) -> None:
        with self.router.mesh.acting(self.router):
            self.connection.receive_eof()
        self.router.mesh.flow()
        self.router.guests.remove(self)
        with self.router.mesh.acting(self.router):
            self.connection.release()


class GoodClient(Guest, Handler):
    """A client that uses the engine, sends numbers, and accepts all deliveries."""

    def __init__(self, router: "FuzzRouter", container: str) -> None:
        super().__init__(router)
        self.engine = Connection(self, container=container, server=False)
        self.engine.open()
        self.accepted = 0
        self.numbers: list[int] = []

    def hears(self, data: bytes) -> None:
        self.engine.receive(data, self.router.mesh.now)

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        self.numbers += [int(body_of(message)) for message in transfers.messages]
        link.update_many(transfers.handles, ACCEPTED)
        link.flow(len(transfers.handles))

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        self.accepted += 0 if link.name == LISTENS else dispositions.states.count(ACCEPTED)
        link.settle_many(dispositions.handles)


class FuzzRouter(Deaf):
    """The shell of one node."""

    def __init__(self, mesh: "FuzzMesh", name: str, incarnation: int = 1, store: MemoryStore | None = None) -> None:
        self.mesh, self.name, self.incarnation = mesh, name, incarnation
        self.store = store if store is not None else MemoryStore()
        self.guests: list[Guest] = []
        self.contacts = Contacts(partial(mesh.carry, name))
        self.journal = Block(name, "router", incarnation)
        self.clock, known = HybridClock(self.store.reserved), self.store.remembered
        configured = mesh.configured
        topic = Topic(
            name, incarnation, mesh.names, self.clock, self.journal, mesh.settings, mesh.now, known, configured
        )
        self.node = Node(self.contacts, topic, self.store, self, self.port(topic))
        self.guard = Guard(Rules({}, mesh.limits, mesh.names), mesh.limits)
        others = (AddressRule(prefix, kind) for prefix, kind in mesh.settings.kinds)
        addresses = AddressRule("topic/"), *others
        topics = Topics(self.node, addresses, MAX_MESSAGE, LONGEST_S, self.guard, Callers())
        self.clients = ClientEdge(self.node, topics, self.guard)

    def port(self, topic: Topic) -> SetPort | None:
        """The replica sets of the node that is about to be made; None if the mesh has no queues."""
        return None

    def now(self) -> float:
        return self.mesh.now

    def wall_us(self) -> int:
        self.mesh.wall_us += 10
        return self.mesh.wall_us

    def perform(self, action: LinkAction) -> None:
        self.clients.perform(action)

    def transmit(self, action: Transmit) -> None:
        raise AssertionError("there are no neighbours, only contacts")

    def flush(self) -> None:
        """Nothing to do: batches wait on the wires."""

    def note(self, happening: Happening) -> None:
        if isinstance(happening, ContactLost) and happening.cause is Loss.BROKEN:
            self.mesh.breaches.append((self.name, happening.router))

    def write(self) -> bool:
        """Write to clients. Returns whether there was something to write."""
        wrote = False
        for guest in list(self.guests):
            if data := guest.connection.data_to_send():
                wrote = True
                self.clients.written(guest.connection)
                guest.hears(data)
            wrote = guest.acknowledges() or wrote
            if isinstance(guest, GoodClient) and (said := guest.engine.data_to_send()):
                wrote = True
                self.node.now()
                guest.connection.receive(said, self.mesh.now)
        return wrote


class FuzzMesh:
    configured: Sequence[LinkIdentity] = ()
    """The links that a router knows from its configuration."""

    def __init__(
        self, *names: str, bend: Callable[[str, bytes], bytes] = lambda _, payload: payload, liar: str = "",
        settings: Settings = SETTINGS, limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        """`bend`: changes the payloads from a router, its first argument, to others, once all routers are in contact.
        The `liar` may come to any end."""
        self.now, self.wall_us, self.names = 0.0, 1_700_000_000_000_000, names
        self.settings, self.limits = settings, limits
        self.breaches: list[tuple[str, str]] = []
        self._liar = liar
        self._bend: Callable[[str, bytes], bytes] = lambda _, payload: payload
        self.wires: dict[tuple[str, str], deque[tuple[int, bytes]]] = {
            (a, b): deque() for a in names for b in names if a != b
        }
        """Keyed by sender and receiver: payloads under way, each with the sender's clock."""
        self._parted: set[frozenset[str]] = set()
        self.routers = {name: self.make(name) for name in names}
        for here, there in combinations(names, 2):
            self._meet(here, there)
        self.flow()
        self.subscriber, self.publisher = self._good("b", "good subscriber"), self._good("a", "good publisher")
        self.subscriber.engine.receiver(LISTENS, GOOD, rcv_settle_mode=1).flow(10)
        self.speaks = self.publisher.engine.sender("speaks", GOOD, rcv_settle_mode=1)
        self.flow()
        self.sent = 0
        self.check()
        self._bend = bend

    def make(self, name: str) -> FuzzRouter:
        return FuzzRouter(self, name)

    def guest(self, router: str) -> Guest:
        guest = Guest(self.routers[router])
        self.routers[router].guests.append(guest)
        return guest

    def _good(self, router: str, container: str) -> GoodClient:
        guest = GoodClient(self.routers[router], container)
        self.routers[router].guests.append(guest)
        return guest

    @contextmanager
    def acting(self, router: FuzzRouter) -> Iterator[None]:
        """Run an event at a router. If the liar fails in it, the liar ends."""
        try:
            router.node.now()
            yield
        except Exception:
            if router.name != self._liar:
                raise
            if router.name in self.routers:
                self.lose(router.name)

    # contacts

    def carry(self, here: str, there: str, payload: bytes) -> None:
        if frozenset((here, there)) not in self._parted:
            self.wires[here, there].append((self.routers[here].clock.read(), self._bend(here, payload)))

    def _meet(self, here: str, there: str) -> None:
        self.routers[here].contacts.made(there, self.routers[there].incarnation)
        self.routers[there].contacts.made(here, self.routers[here].incarnation)

    def _part(self, here: str, there: str) -> None:
        """`here` has dropped the contact, or has ended: the other router notices."""
        self.wires[here, there].clear()
        self.wires[there, here].clear()
        self._parted.add(frozenset((here, there)))
        if there in self.routers and here in self.routers[there].node.topic.directory.contacts:
            self.routers[there].contacts.lost(here)

    def part(self, here: str, there: str) -> None:
        """End the contact of two routers, or make it again."""
        if frozenset((here, there)) in self._parted:
            self._parted.discard(frozenset((here, there)))
            self._meet(here, there)
        else:
            self.routers[here].contacts.lost(there)
            self._part(here, there)
        self.flow()

    def meet(self) -> None:
        """Bring all routers into contact again."""
        for here, there in sorted(map(sorted, self._parted)):
            self.part(here, there)

    def lose(self, name: str) -> None:
        """End the router."""
        del self.routers[name]
        for other in self.routers:
            if frozenset((name, other)) not in self._parted:
                self._part(name, other)
        self.flow()

    # time

    def flow(self) -> None:
        """Let all payloads arrive, until no router has anything to send."""
        while self.work() or any(self.wires.values()):
            for here, there in self.wires:
                self.bring(here, there)

    def work(self) -> bool:
        """Run all routers, and write to clients, without payloads between routers. Returns whether anything
        happened."""
        moves = False
        for router in list(self.routers.values()):
            with self.acting(router):
                router.node.pump()
                moves = router.write() or moves
        while self.breaches:
            self._part(*self.breaches.pop())
            moves = True
        return moves

    def bring(self, here: str, there: str, most: int = sys.maxsize) -> None:
        """Bring payloads from one router to another, at most this many."""
        wire = self.wires[here, there]
        for _ in range(min(most, len(wire))):
            clock, payload = wire.popleft()
            self.routers[there].clock.merge(clock)
            self.routers[there].contacts.received(here, payload)

    def time(self, seconds: float) -> None:
        self.now += seconds
        self.wall_us += round(seconds * 1e6)
        for router in list(self.routers.values()):
            with self.acting(router):
                router.node.handle_timer()
        self.flow()

    # what must hold

    def check(self) -> None:
        """Check that the good pair is served."""
        self.speaks.send(b"%d" % self.sent, data_message(b"%d" % self.sent))
        self.sent += 1
        self.flow()
        assert self.subscriber.numbers == list(range(self.sent)), "the good subscriber has not got it"
        assert self.publisher.accepted == self.sent, "the good publisher was not told accepted"

    def check_forgotten(self) -> None:
        """Check that nothing is left of the other clients, which are gone: once their termini are over, and later
        clients have come and gone.
        """
        for _ in range(3 * LONGEST_S):
            self.time(1.0)
        for name in self.names:
            passing = self._good(name, f"passing {name}")
            passing.engine.receiver("passes", GOOD).detach()
            self.flow()
            passing.leave()
            passing.engine.release()
        for router in self.routers.values():
            topic = router.node.topic
            left = [entry for entry in topic.directory.entries() if entry.identity.address != GOOD]
            assert not left, f"router {router.name} still has {left}"
            assert not topic.records.by_key, f"router {router.name} still has records"

    def end(self) -> None:
        for router in self.routers.values():
            for guest in list(router.guests):
                guest.leave()
                if isinstance(guest, GoodClient):
                    guest.engine.release()
            assert (router.guard.held.held, router.guard.held.sharers) == (0, 0), "who has gone has nothing held"
