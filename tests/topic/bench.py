"""A few nodes on a bench, without links between them: batches between them wait until a test lets them through.

Bench("a", "b")    all in contact, sections exchanged, booted
bench.flow()       everything that is under way arrives
bench.hold(a, b)   what a says to b stays under way from now on
"""

from collections import defaultdict, deque
from typing import Any

from linkstate.clock import HybridClock
from linkstate.events import Transmit
from tests.contacts import Contacts
from tests.store import MemoryStore
from topic.actions import (
    Action,
    AnswerDeliveries,
    AnswerPublisher,
    AnswerSubscriber,
    Credit,
    Deliver,
    Detach,
    DropContact,
    Echo,
    LinkAction,
    Note,
    Redeliver,
    Resume,
    SettleSubscriber,
)
from topic.blocks import read_blocks
from topic.core import Topic
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record, Stream
from topic.directory.entry import Lifetime
from topic.edge.subscriber import LocalSubscriber
from topic.identity import KeyMaker, LinkIdentity
from topic.journal import Block, Event
from topic.node import Breach, Happening, Node
from topic.settings import Settings
from topic.wire.segments import Segment, decode

NEWS = "topic/news"
LASTING = Lifetime(60, "connection-close", 1)
SETTINGS = Settings(window=10, redeliveries=2, join=2.0, boot_wait=10.0)


class Station:
    """The shell of one node on the bench, which sees all that it does."""

    def __init__(self, bench: "Bench", name: str, incarnation: int, store: MemoryStore) -> None:
        self.bench, self.name, self.store = bench, name, store
        self.contacts = Contacts(self.carry)
        self.journal = Block(name, "router", incarnation)
        clock, remembered = HybridClock(store.reserved), store.remembered
        core = Topic(name, incarnation, bench.names, clock, self.journal, bench.settings, bench.now, remembered)
        self.node = Node(self.contacts, core, store, self)

    def wall_us(self) -> int:
        """Later, whenever it is asked."""
        self.bench.wall_us += 1000
        return self.bench.wall_us

    def now(self) -> float:
        return self.bench.now

    def carry(self, router: str, payload: bytes) -> None:
        self.bench.carry(self.name, router, payload)

    def perform(self, action: LinkAction) -> None:
        self.bench.saw(self.name, action)
        if isinstance(action, Echo) and isinstance(action.link, Pen) and action.link.lively:
            self.bench.lively.append(action.link)
        if isinstance(action, Deliver):
            action.link.handed += [(record, record.message) for record in action.records]
        if isinstance(action, Resume):
            message = None if action.state else action.record.message
            action.link.resumed.append((message, action.state, action.settled))

    def transmit(self, action: Transmit) -> None:
        raise AssertionError("there are no neighbours, only contacts")

    def flush(self) -> None:
        """Batches wait on the bench."""

    def note(self, happening: Happening) -> None:
        assert not isinstance(happening, Breach), happening
        if isinstance(happening, DropContact | Note):
            self.bench.saw(self.name, happening)


class Bench:
    def __init__(self, *names: str, meet: bool = True, settings: Settings = SETTINGS) -> None:
        self.now = 0.0
        self.wall_us = 1_700_000_000_000_000
        self.names = names
        self.settings = settings
        self.stations: dict[str, Station] = {}
        self.actions: dict[str, list[Action]] = defaultdict(list)
        self.said: list[tuple[str, str, Segment]] = []
        self.lively: list[Pen] = []
        self._wires: dict[tuple[str, str], deque[bytes]] = defaultdict(deque)
        self._held: set[tuple[str, str]] = set()
        for name in names:
            self.boot(name)
        if meet:
            for i, a in enumerate(names):
                for b in names[i + 1 :]:
                    self.meet(a, b)
            self.flow()

    @property
    def cores(self) -> dict[str, Topic]:
        return {name: station.node.topic for name, station in self.stations.items()}

    def boot(self, name: str, incarnation: int = 1, store: MemoryStore | None = None) -> None:
        self.stations[name] = Station(self, name, incarnation, store or MemoryStore())
        self.tick(name)

    def kill(self, name: str) -> None:
        """It is gone; the others notice."""
        for other in self.names:
            if other != name and name in self.cores[other].directory.contacts:
                self._wires[other, name].clear()
                self._wires[name, other].clear()
                self.lose(other, name)
        self.flow()

    def meet(self, a: str, b: str) -> None:
        for here, there in ((a, b), (b, a)):
            self.stations[here].contacts.made(there, self.cores[there].directory.incarnation)
            self.collect(here)

    def part(self, a: str, b: str) -> None:
        """Unless one of them has noticed already."""
        for here, there in ((a, b), (b, a)):
            self._wires[here, there].clear()
            if there in self.cores[here].directory.contacts:
                self.lose(here, there)

    def lose(self, here: str, there: str) -> None:
        """One of the two notices."""
        self.stations[here].contacts.lost(there)
        self.collect(here)

    def hold(self, here: str, there: str) -> None:
        self._held.add((here, there))

    def let_go(self) -> None:
        self._held.clear()
        self.flow()

    def flow(self) -> None:
        for name in self.names:
            self.collect(name)
        while wire := next((w for w, queue in self._wires.items() if queue and w not in self._held), None):
            self.step(*wire)
        while self.lively:
            self.lively.pop().answer_echo()

    def step(self, here: str, there: str) -> None:
        """The next batch arrives, held or not."""
        self.cores[there].outlet.clock.merge(self.cores[here].outlet.clock.read())
        self.stations[there].contacts.received(here, self._wires[here, there].popleft())
        self.collect(there)

    def carry(self, here: str, there: str, payload: bytes) -> None:
        self._wires[here, there].append(payload)
        self.said += [(here, there, Segment(segment[0])) for segment in decode(payload)]

    def saw(self, router: str, action: Action) -> None:
        self.actions[router].append(action)

    def under_way(self, here: str, there: str) -> int:
        """Batches."""
        return len(self._wires[here, there])

    def take_log(self, name: str) -> bytes:
        """What the router has logged since it was last asked for."""
        journal = self.stations[name].journal
        data = journal.encode()
        journal.begin_next()
        return data

    def logged(self, name: str, event: Event) -> list[bytes]:
        """The deliveries that the router logged this of since it was last asked for anything in its log."""
        blocks, _ = read_blocks(self.take_log(name))
        return [key for block in blocks for entry in block.entries() if entry.event is event for key in entry.keys]

    def ended(self, name: str) -> list[str | None]:
        """The subscribers whose end the router logged."""
        blocks, _ = read_blocks(self.take_log(name))
        entries = [entry for block in blocks for entry in block.entries()]
        return [entry.subscriber for entry in entries if entry.event is Event.EXPIRED]

    def tick(self, name: str) -> Topic:
        """A core that is about to be told of an event."""
        self.stations[name].node.now()
        return self.cores[name]

    def collect(self, name: str) -> None:
        """What has come of it, and of what its contacts are about to tell it."""
        self.stations[name].node.now()
        self.stations[name].node.pump()

    def time(self, seconds: float) -> None:
        self.now += seconds
        for name in self.names:
            self._time(name)

    def _time(self, name: str) -> None:
        self.stations[name].node.handle_timer()
        self.stations[name].node.pump()

    def wait(self, seconds: int, *routers: str) -> None:
        """So long, in steps of a second, for all routers or for these only."""
        for _ in range(seconds):
            self.now += 1
            for name in routers or self.names:
                self._time(name)
            self.flow()

    # clients

    def publisher(self, router: str, name: str = "p", **options: Any) -> "Pen":
        return Pen(self, router, name, **options)

    def subscriber(self, router: str, name: str = "s", *, credit: int = 100, **options: Any) -> "Reader":
        return Reader(self, router, name, credit, **options)

    def records(self) -> dict[str, int]:
        return {name: len(core.records.by_key) for name, core in self.cores.items() if core.records.by_key}


class Pen:
    """A publisher at work."""

    stream: Stream

    def __init__(
        self, bench: Bench, router: str, name: str, *, address: str = NEWS, lively: bool = True, **options: Any
    ) -> None:
        """A `lively` one answers echoes by itself."""
        self.bench, self.router, self.name, self.lively = bench, router, name, lively
        self.sent: dict[bytes, Record] = {}
        identity = LinkIdentity(name, "out", address)
        self.stream = bench.tick(router).attach_publisher(identity, self, bench.now, **options)
        bench.flow()

    def send(self, *messages: bytes, tags: list[bytes] | None = None, presettled: bool = False) -> None:
        tags = tags or list(messages)
        core = self.bench.tick(self.router)
        records = core.publish(self.stream, tags, list(messages), presettled=presettled)
        self.sent.update(zip(messages, records, strict=True))
        self.bench.flow()

    @property
    def map(self) -> dict[bytes, int] | None:
        """Our unsettled map in the answer to its attach."""
        (answer,) = self.mine(AnswerPublisher)
        unsettled: dict[bytes, int] | None = answer.unsettled
        return unsettled

    def send_again(self, *tags: bytes) -> None:
        """With resume=true."""
        for tag in tags:
            record = self.bench.tick(self.router).transferred_again(self.stream, tag, aborted=False)
            assert record is not None and record.message is not None
            self.sent[record.message] = record
            self.bench.flow()

    def answer_echo(self) -> None:
        assert self.mine(Echo), "it was asked"
        self.bench.tick(self.router).alive(self.stream)
        self.bench.flow()

    def acknowledge(self) -> None:
        """Its machine does; it answers no echoes."""
        assert self.mine(Echo), "it was asked"
        self.bench.tick(self.router).alive(self.stream, answered=False)
        self.bench.flow()

    def settle(self, *messages: bytes) -> None:
        self.bench.tick(self.router).settle(self.stream, [self.sent[message] for message in messages])
        self.bench.flow()

    def close(self) -> None:
        self.bench.tick(self.router).detach_publisher(self.stream, self.bench.now)
        self.bench.flow()

    def mine(self, kind: type[Any]) -> list[Any]:
        return [a for a in self.bench.actions[self.router] if isinstance(a, kind) and a.link is self]

    @property
    def outcomes(self) -> dict[bytes, DeliveryOutcome]:
        return {record.tag: answer.outcome for answer in self.mine(AnswerDeliveries) for record in answer.records}

    @property
    def credit(self) -> int:
        return sum(action.count for action in self.mine(Credit))


class Reader:
    """A subscriber at work."""

    end: LocalSubscriber

    def __init__(
        self, bench: Bench, router: str, name: str, credit: int, *, address: str = NEWS, **options: Any
    ) -> None:
        self.bench, self.router, self.name = bench, router, name
        self.handed: list[tuple[Record, bytes | None]] = []
        self.resumed: list[tuple[bytes | None, int, bool]] = []
        """Transferred with resume=true: (message if it has one, state, settled)."""
        identity = LinkIdentity(name, "in", address)
        self.end = bench.tick(router).attach_subscriber(identity, self, bench.now, **options)
        bench.flow()
        if credit:
            self.grant(credit)

    def answer_detach(self) -> None:
        """It has read that its link has ended without its doing."""
        assert self.mine(Detach), "it was detached"
        self.bench.tick(self.router).told(self.end)
        self.bench.flow()

    def grant(self, credit: int) -> None:
        self.bench.tick(self.router).credit(self.end, credit)
        self.bench.flow()

    def answer(self, outcome: DeliveryOutcome, *messages: bytes, final: bool = False) -> None:
        records = list(dict.fromkeys(record for record, message in self.handed if message in messages))
        assert len(records) == len(messages), "answers what was delivered"
        self.bench.tick(self.router).outcomes(self.end, records, outcome, final=final)
        self.bench.flow()

    def accept(self, *messages: bytes) -> None:
        self.answer(DeliveryOutcome.ACCEPTED, *messages)

    def answer_echo(self) -> None:
        self.bench.tick(self.router).echoed(self.end)
        self.bench.flow()

    def close(self) -> None:
        self.bench.tick(self.router).detach_subscriber(self.end, self, self.bench.now)
        self.bench.flow()

    def mine(self, kind: type[Any]) -> list[Any]:
        return [a for a in self.bench.actions[self.router] if isinstance(a, kind) and a.link is self]

    @property
    def map(self) -> dict[bytes, int] | None:
        """Our unsettled map in the answer to its attach."""
        (answer,) = self.mine(AnswerSubscriber)
        unsettled: dict[bytes, int] | None = answer.unsettled
        return unsettled

    @property
    def answered(self) -> bool:
        return bool(self.mine(AnswerSubscriber))

    @property
    def delivered(self) -> list[bytes | None]:
        return [message for _, message in self.handed]

    @property
    def redelivered(self) -> list[int]:
        return [action.attempts for action in self.mine(Redeliver)]

    @property
    def settled(self) -> list[Record]:
        return [record for action in self.mine(SettleSubscriber) for record in action.records]

    @property
    def settled_messages(self) -> list[bytes | None]:
        """As they were delivered."""
        messages = dict(self.handed)
        return [messages[record] for record in self.settled]


def key_of(pen: Pen, tag: bytes) -> bytes:
    return KeyMaker(pen.stream.publisher, pen.stream.generation).key(tag)


def pen_at(bench: Bench, router: str, former: Pen | None = None, *, name: str = "p", **options: Any) -> Pen:
    generation = former.stream.generation if former is not None else None
    return bench.publisher(router, name, lifetime=LASTING, generation=generation, **options)


def reader_at(bench: Bench, router: str, name: str = "s", **options: Any) -> Reader:
    return bench.subscriber(router, name, lifetime=LASTING, **options)
