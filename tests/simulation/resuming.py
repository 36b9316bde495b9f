"""A small mesh whose clients lose their connections and come back with their unsettled maps.

Two routers that never fail, publishers and subscribers that resume at the router they were at: what `tests.simulation`
does not have, since its clients begin afresh. Everything is drawn from one seed; a step is one thing that happens.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from linkstate.clock import HybridClock
from topic.actions import (
    AnswerDeliveries,
    AnswerPublisher,
    AnswerSubscriber,
    Credit,
    Deliver,
    Detach,
    Echo,
    LinkAction,
    Resume,
    SettleSubscriber,
)
from topic.core import Settings, Topic
from topic.identity import LinkIdentity
from topic.journal import Block
from topic.record import Outcome, Record, Stream
from topic.subscriber import Subscriber

NAMES = ("a", "b")
TIMEOUT = 60.0
WINDOW = 4
ADDRESS = "topic/x"


class Connection:
    """One life of a link: what is under way in both directions, and the router's handles."""

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.to_router: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.to_client: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.records: dict[bytes, Record] = {}
        self.end: Any = None
        self.broken = False


class Client:
    def __init__(self, world: "World", name: str, router: str) -> None:
        self.world = world
        self.topic = world.topics[router]
        self.identity = LinkIdentity(name, "link", ADDRESS)
        self.connection: Connection | None = None
        self.answered = False
        self.attached_once = False

    def send(self, action: Callable[..., None], *arguments: Any) -> None:
        assert self.connection is not None
        self.connection.to_router.append((action, arguments))

    def attach(self) -> None:
        self.connection = Connection(self)
        self.answered = False
        self.send(self.router_attach, self.connection, self.map())

    def cut(self) -> None:
        """The connection breaks: what was under way is gone, and the router notices."""
        connection, self.connection = self.connection, None
        assert connection is not None
        connection.broken = True
        if connection.end is not None:
            self.router_lost(connection)

    def map(self) -> dict[bytes, int] | None:
        raise NotImplementedError

    def router_attach(self, connection: Connection, unsettled: dict[bytes, int] | None) -> None:
        raise NotImplementedError

    def router_lost(self, connection: Connection) -> None:
        raise NotImplementedError

    def perform(self, connection: Connection, action: LinkAction) -> None:
        raise NotImplementedError


class Publisher(Client):
    """Sends its messages in order, and settles what it has an outcome of."""

    def __init__(self, world: "World", name: str, router: str, messages: int) -> None:
        super().__init__(world, name, router)
        self.left = [b"%s.%d" % (name.encode(), number) for number in range(messages)]
        self.tags = [b"t%d" % i for i in range(WINDOW + world.random.choice((0, 1, 100)))]
        """Used again once the router knows that they are settled (AMQP 1.0 2.8.7: unsettled by neither end)."""
        self.taken: set[bytes] = set()
        self.unsettled: dict[bytes, int] = {}
        """Tag -> 0, or its outcome."""
        self.messages: dict[bytes, bytes] = {}
        self.generation: bytes | None = None
        self.credit = 0
        self.again: deque[tuple[bytes, bool]] = deque()
        """To be transferred before anything new: (tag, with resume=true)."""

    def map(self) -> dict[bytes, int] | None:
        return dict(self.unsettled) if self.attached_once else None

    def router_attach(self, connection: Connection, unsettled: dict[bytes, int] | None) -> None:
        now, generation = self.world.now, self.generation
        connection.end = self.topic.attach_publisher(
            self.identity, connection, now, generation=generation, timeout=TIMEOUT, unsettled=unsettled
        )

    def router_lost(self, connection: Connection) -> None:
        self.topic.suspend_publisher(connection.end, connection, self.world.now)

    def perform(self, connection: Connection, action: LinkAction) -> None:
        say = connection.to_client.append
        if isinstance(action, AnswerPublisher):
            say((self.attached, (action.generation, action.credit, action.unsettled)))
        elif isinstance(action, Credit):
            say((self.credited, (action.count,)))
        else:
            assert isinstance(action, AnswerDeliveries)
            for record in action.records:
                assert connection.records[record.tag] is record, "an outcome only after a transfer on this attach"
            say((self.outcome, ([record.tag for record in action.records], action.outcome)))

    def attached(self, generation: bytes, credit: int, ours: dict[bytes, int] | None) -> None:
        assert not self.attached_once or generation == self.generation, "it resumes the same life"
        self.answered = self.attached_once = True
        self.generation, self.credit = generation, credit
        self.again.clear()
        for tag, state in list(self.unsettled.items()):
            listed = ours is not None and tag in ours
            assert not (state and listed), "what the publisher knows of is left out"
            if state:
                del self.unsettled[tag]
            else:
                self.again.append((tag, listed))
        self.taken = set(self.unsettled)

    def credited(self, count: int) -> None:
        self.credit += count

    def outcome(self, tags: list[bytes], outcome: Outcome) -> None:
        for tag in tags:
            assert self.unsettled[tag] == 0, "one outcome"
            self.unsettled[tag] = outcome
            self.world.accepted(self.messages[tag])

    def act(self, random: Random) -> None:
        """Transfer what is to be resumed, or something new, or settle."""
        known = [tag for tag, state in self.unsettled.items() if state]
        if not self.answered:
            return
        if self.credit and self.again:
            tag, resumed = self.again.popleft()
            self.transfer(tag, resumed)
        elif self.credit and self.left and len(self.taken) < len(self.tags) and random.random() < 0.6:
            tag = next(tag for tag in self.tags if tag not in self.taken)
            self.taken.add(tag)
            self.unsettled[tag] = 0
            self.messages[tag] = self.left.pop(0)
            self.transfer(tag, False)
        elif known:
            tag = random.choice(known)
            del self.unsettled[tag]
            self.send(self.router_settle, self.connection, tag)

    def transfer(self, tag: bytes, resumed: bool) -> None:
        self.credit -= 1
        assert self.credit >= 0
        self.send(self.router_transfer, self.connection, tag, self.messages[tag], resumed)

    def router_transfer(self, connection: Connection, tag: bytes, message: bytes, resumed: bool) -> None:
        stream: Stream = connection.end
        if resumed:
            record = self.topic.transferred_again(stream, tag, aborted=False)
            assert record is not None
        else:
            (record,) = self.topic.publish(stream, [tag], [message], presettled=False)
        connection.records[tag] = record

    def router_settle(self, connection: Connection, tag: bytes) -> None:
        self.taken.discard(tag)
        self.topic.settle(connection.end, [connection.records.pop(tag)])


class Reader(Client):
    """Processes every message once, remembers that it has until the router settles."""

    def __init__(self, world: "World", name: str, router: str) -> None:
        super().__init__(world, name, router)
        self.unsettled: dict[bytes, int] = {}
        self.todo: dict[bytes, bytes] = {}
        """Transferred and not processed: key -> message."""
        self.processed: list[bytes] = []
        self.stated: set[bytes] = set()
        """What the map of this attach said to be accepted."""
        self.arrived: set[bytes] = set()
        """Transferred on this connection: only of these can an outcome be sent."""
        self.limit = 0

    def map(self) -> dict[bytes, int] | None:
        self.stated = {key for key, state in self.unsettled.items() if state}
        self.arrived.clear()
        return dict(self.unsettled) if self.attached_once else None

    def router_attach(self, connection: Connection, unsettled: dict[bytes, int] | None) -> None:
        connection.end = self.topic.attach_subscriber(
            self.identity, connection, self.world.now, timeout=TIMEOUT, unsettled=unsettled
        )

    def router_lost(self, connection: Connection) -> None:
        self.topic.suspend_subscriber(connection.end, connection, self.world.now)

    def perform(self, connection: Connection, action: LinkAction) -> None:
        say = connection.to_client.append
        if isinstance(action, AnswerSubscriber):
            say((self.attached, (action.unsettled,)))
            self.topic.credit(connection.end, 0)
        elif isinstance(action, Deliver):
            for record in action.records:
                assert record.message is not None and record.key not in connection.records
                connection.records[record.key] = record
                say((self.delivered, (record.key, record.message, False)))
        elif isinstance(action, Resume):
            self.resume(connection, action)
        elif isinstance(action, Echo):
            say((self.echo, ()))
        else:
            assert isinstance(action, SettleSubscriber)
            for record in action.records:
                if connection.records.pop(record.key, None) is not None:
                    say((self.settled, (record.key,)))

    @staticmethod
    def resume(connection: Connection, action: Resume) -> None:
        client = connection.client
        assert isinstance(client, Reader)
        key, say = action.record.key, connection.to_client.append
        if not action.settled:
            connection.records[key] = action.record
        if action.settled or action.state:
            say((client.restated, (key, action.settled)))
        else:
            say((client.delivered, (key, action.record.message, True)))

    def attached(self, ours: dict[bytes, int] | None) -> None:
        if self.attached_once:
            assert ours is not None, "a map is answered with a map"
            for key in [key for key in self.unsettled if key not in ours]:
                assert self.unsettled[key], "nothing is settled that was not processed"
                self.settled(key)
        self.answered = self.attached_once = True
        self.todo = {key: message for key, message in self.todo.items() if key in self.unsettled}
        self.limit = 0

    def delivered(self, key: bytes, message: bytes, resumed: bool) -> None:
        assert resumed == (key in self.unsettled), "what the map named comes with resume=true, and nothing else does"
        assert key not in self.stated, "what the map said to be accepted is never sent again"
        self.limit -= 1
        self.arrived.add(key)
        if self.unsettled.get(key):  # processed since the map was sent: the payload is not looked at
            self.send(self.router_outcome, self.connection, key)
        else:
            self.unsettled[key] = 0
            self.todo[key] = message

    def restated(self, key: bytes, settled: bool) -> None:
        """A resumed transfer without payload."""
        assert self.unsettled[key] or settled, "only what was processed is not transferred again"
        self.limit -= 1
        if settled:
            self.settled(key)

    def settled(self, key: bytes) -> None:
        self.stated.discard(key)
        self.unsettled.pop(key, None)
        self.todo.pop(key, None)

    def echo(self) -> None:
        self.send(self.router_echoed, self.connection)

    def act(self, random: Random) -> None:
        """Process the oldest, or take more."""
        if not self.answered:
            return
        if self.todo and random.random() < 0.6:
            key, message = next(iter(self.todo.items()))
            del self.todo[key]
            self.processed.append(message)
            self.unsettled[key] = Outcome.ACCEPTED
            if key in self.arrived:
                self.send(self.router_outcome, self.connection, key)
        elif self.limit < 3:
            self.limit += 1
            self.send(self.router_credit, self.connection)

    def router_credit(self, connection: Connection) -> None:
        subscriber: Subscriber = connection.end
        self.topic.credit(subscriber, subscriber.credit + 1)  # as it stands once all actions are performed

    def router_outcome(self, connection: Connection, key: bytes) -> None:
        record = connection.records.get(key)
        if record is not None:
            self.topic.outcomes(connection.end, [record], Outcome.ACCEPTED)

    def router_echoed(self, connection: Connection) -> None:
        self.topic.echoed(connection.end)


class World:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.now = 0.0
        self.topics = {name: self._topic(name) for name in NAMES}
        for here, there in (NAMES, NAMES[::-1]):
            self.topics[here].contact(there, NAMES.index(there) + 1, 0.0)
        self.pump()
        self.readers = [Reader(self, f"r{i}", random.choice(NAMES)) for i in range(random.randint(1, 3))]
        self.publishers = [
            Publisher(self, f"p{i}", random.choice(NAMES), random.randint(1, 12)) for i in range(random.randint(1, 2))
        ]
        self.clients: list[Publisher | Reader] = [*self.readers, *self.publishers]
        self.cuts = random.choice((0.0, 0.01, 0.05, 0.2))

    def _topic(self, name: str) -> Topic:
        incarnation = NAMES.index(name) + 1
        clock, block = HybridClock(), Block(name, "router", incarnation)
        return Topic(name, incarnation, NAMES, clock, block, Settings(window=WINDOW), 0.0)

    def accepted(self, message: bytes) -> None:
        for reader in self.readers:
            assert message in reader.processed, f"2 accepted too early: {message!r} at {reader.identity}"

    def run(self) -> None:
        for reader in self.readers:  # before anything is published: everybody is promised everything
            reader.attach()
        for _ in range(100):
            self.step(cuts=0.0, clients=self.readers)
        for _ in range(self.random.choice((50, 300, 1000))):
            self.step(self.cuts, self.clients)
        for _ in range(4000):
            self.step(0.0, self.clients)
        self.check()

    def step(self, cuts: float, clients: list[Any]) -> None:
        client = self.random.choice(clients)
        connection = client.connection
        if connection is None:
            client.attach()
        elif self.random.random() < cuts:
            client.cut()
        else:
            self.move(client, connection)
        self.pump()

    def move(self, client: Publisher | Reader, connection: Connection) -> None:
        way = self.random.randrange(3)
        if way == 0 and connection.to_router:
            action, arguments = connection.to_router.popleft()
            action(*arguments)
        elif way == 1 and connection.to_client:
            action, arguments = connection.to_client.popleft()
            action(*arguments)
        elif way == 2:
            client.act(self.random)

    def pump(self) -> None:
        busy = True
        while busy:
            busy = False
            for name, topic in self.topics.items():
                while topic.out:
                    busy = True
                    action = topic.out.pop(0)
                    connection = action.link  # type: ignore[union-attr]
                    if not connection.broken and not isinstance(action, Detach):
                        connection.client.perform(connection, action)
                for targets, payload in topic.take_outgoing():
                    busy = True
                    for target in targets:
                        self.topics[target].receive(name, payload)

    def check(self) -> None:
        sent = {publisher.identity.container: publisher for publisher in self.publishers}
        for publisher in self.publishers:
            assert not publisher.left and not publisher.unsettled, "5 liveness: everything is accepted and settled"
        for reader in self.readers:
            for name in sent:
                mine = [int(m.split(b".")[1]) for m in reader.processed if m.startswith(name.encode() + b".")]
                assert mine == list(range(len(mine))), f"1 exactly once, in order: {mine}"
            assert not reader.unsettled, "4 unsettled maps are empty"
            everything = sum(1 for m in reader.processed)
            assert everything == len(set(reader.processed))
        total = {len(reader.processed) for reader in self.readers}
        assert len(total) == 1, "everybody got everything"
        for topic in self.topics.values():
            assert not topic.context.records, f"4 leak: {topic.context.records}"
            assert not any(subscriber.unknowing for subscriber in topic.edge.subscribers.values())
