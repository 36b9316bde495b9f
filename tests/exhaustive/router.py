"""One router of the model: a production node, or a dead one, and the shell's state for its clients' links.

An event is a plain tuple whose first item names a method here. Its effects leave through `Output`: frames for clients,
and for each router in contact one batch with all payloads of the event. The model makes and loses contacts; they
replace link state. The store survives a kill.
"""

from typing import Any

import attrs

from linkstate.mesh_actions import ContactLost, Loss, Replanned, Transmit
from tests.contacts import Contacts
from tests.deaf import Deaf
from tests.exhaustive.clients import Frame, Violation
from tests.exhaustive.link import Link
from tests.exhaustive.stand_ins import CLOCK, JOURNAL
from tests.plans import file
from tests.store import MemoryStore
from topic.actions import AnswerSubscriber, Detach, LinkAction
from topic.core import Topic
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import HomeStream
from topic.directory.entry import Lifetime, Role
from topic.edge.subscriber import LocalSubscriber
from topic.identity import Epoch, LinkIdentity
from topic.journal import Event
from topic.node import Happening, Node
from topic.settings import Settings

BOOT_WAIT = 10.0
NEVER = float("inf")
SETTINGS = Settings(
    window=4, redeliveries=1, join=NEVER, boot_wait=BOOT_WAIT, terminus=NEVER, grace=0.0, settle_delay=0.0, forget=NEVER
)
LIFETIME = Lifetime(timeout=300, policy="connection-close", durable=1)
SPAN = 1000.0
"""The seconds that pass when time passes. `NOTICED` seconds after the start of such a time, all routers notice which
clients are missing."""
NOTICED = 100.0
Ending = tuple[bytes, int, bool]
"""A link that has ended at a router: its name, the rank of its attach, and whether a message was accepted without
it."""
GROWN = (1, "operator")
"""The version of the plan of the grown mesh."""
CREDIT = 1000
ADDRESS = "topic/x"
BALANCED = attrs.evolve(SETTINGS, kinds=((ADDRESS, "balanced"),))


@attrs.frozen
class Facts:
    """The facts about a live router that events of others depend on."""

    subscribers: frozenset[str]
    """The container-ids of the subscribers in the router's directory, including subscribers without which it has
    accepted a message, and which it has yet to tell.
    """
    attaching: frozenset[str]
    """Container-ids of the subscribers whose attach here has no answer yet."""
    applied: frozenset[str]
    """Routers whose section it has."""
    awaited: frozenset[str]
    """Routers whose section it waits for before it answers publishers."""
    admits: bool
    """Whether it takes clients."""
    due: bool
    """Whether its clock is past a deadline."""


class Output:
    """The output of one event at a router."""

    def __init__(self) -> None:
        self.to_clients: list[tuple[int, int, Frame]] = []
        """(client, serial of its connection, frame), in order."""
        self.to_routers: dict[str, list[bytes]] = {}
        self.joined: list[str] = []
        """Container-ids of subscribers that were joined here."""
        self.expired: list[Ending] = []
        self.contacts: dict[str, int] = {}
        """Router in contact -> incarnation, for the routers that have joined the subscribers whose attach was
        answered."""


def container(client: int) -> str:
    return f"client {client}"


class Router(Deaf):
    def __init__(self, name: str, names: tuple[str, ...], joins: bool, balanced: bool) -> None:
        """`names`: the routers in its topology file. `balanced`: whether the address is balanced."""
        self.name = name
        self.settings = BALANCED if balanced else SETTINGS
        self.names = names
        self.admits = not joins
        """Whether it takes clients. A router that joins takes them once it has joined the mesh."""
        self.incarnation = 0
        self.seconds = 0.0
        """The router's clock, in seconds."""
        self.store = MemoryStore()
        self.links: dict[tuple[int, int], Link] = {}
        self.left: dict[tuple[int, int], Link] = {}
        """Links that the router has detached, and whose client has not confirmed that yet."""
        self.node: Node | None = None
        self.output = Output()
        """The output of the present event."""

    def handle(self, event: tuple[Any, ...], rank: int) -> Output:
        kind, *arguments = event
        CLOCK.rank, CLOCK.seconds = rank, self.seconds
        JOURNAL.rows.clear()
        getattr(self, f"on_{kind}")(*arguments)
        if self.node is not None:
            self.node.pump()
            self.admits = self.admits or self.node.topic.boot.has_joined
        output, self.output = self.output, Output()
        self._note(output)
        self._grant()
        return output

    @property
    def topic(self) -> Topic | None:
        return None if self.node is None else self.node.topic

    def facts(self) -> Facts | None:
        if self.topic is None:
            return None
        directory = self.topic.directory
        subscribers = [entry for entry in directory.entries() if entry.role is Role.SUBSCRIBER]
        names = frozenset(entry.identity.container for entry in subscribers if entry.live or entry.expired_life)
        ends = [link.end for link in self.links.values() if isinstance(link.end, LocalSubscriber)]
        attaching = frozenset(end.identity.container for end in ends if not end.answered)
        applied, awaited = frozenset(directory.applied), frozenset(self.topic.boot.waiting_for)
        return Facts(names, attaching, applied, awaited, self.admits, self._is_due(self.topic))

    def _is_due(self, topic: Topic) -> bool:
        """Whether a timer is due. If a timer's work changes nothing, the timer runs once more, a second later."""
        return self.seconds > 0 and topic.deadline() <= self.seconds + (self.seconds % SPAN == 0)

    # routers

    def on_start(self, with_store: bool) -> None:
        self.incarnation += 1
        if not with_store:
            self.store = MemoryStore()
        clock: Any = CLOCK
        journal: Any = JOURNAL
        self.contacts = Contacts(self.carry)
        members, remembered = file(self.names).merge(self.store.plan).members, self.store.remembered
        topic = Topic(self.name, self.incarnation, members, clock, journal, self.settings, self.seconds, remembered)
        self.node = Node(self.contacts, topic, self.store, self)

    def on_kill(self) -> None:
        self.node = None
        self.links.clear()
        self.left.clear()
        self.admits = True

    def on_replan(self, names: tuple[str, ...]) -> None:
        """The mesh has these routers now."""
        plan = file(self.names).merge(self.store.plan).revised(file(names), GROWN)
        self.contacts.out.append(Replanned(plan))

    def on_contact(self, router: str, incarnation: int) -> None:
        self.contacts.made(router, incarnation)

    def on_lost(self, router: str) -> None:
        self.contacts.lost(router)

    def on_receive(self, router: str, payloads: tuple[bytes, ...]) -> None:
        for payload in payloads:
            self.contacts.received(router, payload)

    def on_boot_wait(self) -> None:
        CLOCK.seconds += BOOT_WAIT
        self._node.handle_timer()

    # time

    def on_expire(self) -> None:
        """A span of time has passed. The router has noticed which clients are missing. It does what is due when it next
        looks."""
        begin = self.seconds - self.seconds % SPAN
        if self.node is not None:
            CLOCK.seconds = begin + NOTICED
            self.node.handle_timer()
            self.node.pump()
        CLOCK.seconds = self.seconds = begin + SPAN

    def on_look(self) -> None:
        CLOCK.seconds = self.seconds = max(self.seconds, self._core.deadline())
        self._node.handle_timer()

    @property
    def _node(self) -> Node:
        assert self.node is not None
        return self.node

    @property
    def _core(self) -> Topic:
        return self._node.topic

    # clients

    def on_publisher(
        self, client: int, serial: int, generation: bytes | None, seen: Epoch,
        unsettled: tuple[tuple[bytes, int], ...] | None, complete: bool,
    ) -> None:  # fmt: skip
        link = self.links[client, serial] = Link(client, serial)
        link.end = self._core.attach_publisher(
            identity_of(client), link, CLOCK.seconds, generation=generation, seen=seen, lifetime=LIFETIME,
            unsettled=None if unsettled is None else dict(unsettled), complete=complete,
        )  # fmt: skip
        if unsettled is not None and generation not in (None, link.end.generation):
            self.output.expired.append((link.end.publisher, seen.hlc, False))

    def on_subscriber(
        self, client: int, serial: int, generation: None, seen: Epoch,
        unsettled: tuple[tuple[bytes, int], ...] | None, complete: bool,
    ) -> None:  # fmt: skip
        link = self.links[client, serial] = Link(client, serial)
        link.end = self._core.attach_subscriber(
            identity_of(client), link, CLOCK.seconds, seen=seen, lifetime=LIFETIME,
            unsettled=None if unsettled is None else dict(unsettled), complete=complete,
        )  # fmt: skip

    def on_frame(self, client: int, serial: int, frame: Frame) -> None:
        """A frame arrives. It is ignored if the link was detached."""
        link = self.links.get((client, serial))
        if link is not None:
            kind, *rest = frame
            getattr(self, f"_hear_{kind}")(link, *rest)

    def on_left(self, client: int, serial: int, knows: bool) -> None:
        """The client has read a detach. It answers unless it has gone elsewhere."""
        link = self.left.pop((client, serial), None)
        if knows and link is not None and isinstance(link.end, LocalSubscriber):
            self._core.ending_known(link.end)

    def on_gone(self, client: int, serial: int) -> None:
        """The router notices the end of the connection."""
        link = self.links.pop((client, serial), None)
        if link is not None and isinstance(link.end, HomeStream):
            self._core.suspend_publisher(link.end, link, CLOCK.seconds)
        elif link is not None:
            self._core.suspend_subscriber(link.end, link, CLOCK.seconds)

    def _hear_transfer(self, link: Link, tag: bytes, message: bytes, resume: bool) -> None:
        if resume:
            record = self._core.transferred_again(link.end, tag)
            if record is None:
                raise Violation("resumed transfer", f"{message!r} is not known though our map listed it")
        else:
            (record,) = self._core.publish(link.end, [tag], [message], presettled=False)
        link.records[tag] = record

    def _hear_settle(self, link: Link, tag: bytes) -> None:
        self._core.settle(link.end, [link.records.pop(tag)])

    def _hear_outcome(self, link: Link, key: bytes, outcome: int) -> None:
        record = link.records.get(key)
        if record is not None:  # otherwise settled meanwhile
            self._core.outcomes(link.end, [record], DeliveryOutcome(outcome))

    def _hear_echo(self, link: Link) -> None:
        if isinstance(link.end, LocalSubscriber):
            self._core.echoed(link.end)
        else:
            self._core.alive(link.end)

    # the shell of the node

    def wall_us(self) -> int:
        return 0

    def now(self) -> float:
        return CLOCK.seconds

    def carry(self, router: str, payload: bytes) -> None:
        self.output.to_routers.setdefault(router, []).append(payload)

    def transmit(self, action: Transmit) -> None:
        raise AssertionError("there are no neighbours, only contacts")

    def flush(self) -> None:
        """Batches leave with the whole output."""

    def note(self, happening: Happening) -> None:
        if isinstance(happening, ContactLost) and happening.cause in (Loss.LATE, Loss.BROKEN):
            raise Violation("peer protocol", happening.reason)

    def perform(self, action: LinkAction) -> None:
        link: Link = action.link
        if self.links.get((link.client, link.serial)) is link:
            for frame in link.frames(action):
                self.output.to_clients.append((link.client, link.serial, frame))
            if isinstance(action, Detach):
                self.left[link.client, link.serial] = self.links.pop((link.client, link.serial))
        if isinstance(action, AnswerSubscriber):
            self.output.contacts = dict(self._core.directory.contacts)
            self._core.credit(link.end, CREDIT)
            self._node.perform()

    # the effects

    def _note(self, output: Output) -> None:
        """Note which subscribers were joined, and which links have ended."""
        for event, columns in JOURNAL.rows:
            if event is Event.JOINED and self.topic is not None:
                entry = self.topic.directory.subscriber(columns["subscriber"])
                if entry is not None:
                    output.joined.append(entry.identity.container)
            elif event is Event.EXPIRED:
                name = columns.get("subscriber") or columns["publisher"]
                rank, *_ = columns["epoch"].split(".")
                output.expired.append((name, int(rank), columns.get("detail") is not None))

    def _grant(self) -> None:
        """Subscribers renew their used credit at once."""
        for link in self.links.values():
            if isinstance(link.end, LocalSubscriber) and link.end.credit:
                link.end.credit = CREDIT


def identity_of(client: int) -> LinkIdentity:
    return LinkIdentity(container(client), "link", ADDRESS)
