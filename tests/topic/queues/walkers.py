"""Clients of a queue on random walks (`tests.topic.queues.walks`). They know only what real clients know
(docs/clients.md).

    client ── outbox ─▶ router    Each end reads when the walk says so, in order. If the connection breaks, what is not
    client ◀─ inbox ─── router    read yet is lost from some point on, and the router notices that later, or never.

A *lasting* client resumes at any router, with its unsettled map. A *plain* one begins afresh on each link. An end knows
a transfer by its handle: a disposition for a transfer that is settled already is ignored, as AMQP has it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.failures import unmarked
from tests.topic.queues.walk_bench import WalkStation
from topic.actions import (
    DELETED,
    EXPIRED,
    AnswerDeliveries,
    AnswerPublisher,
    AnswerSubscriber,
    Credit,
    Deliver,
    Detach,
    Echo,
    LinkAction,
    Redeliver,
    Resume,
    SettleSubscriber,
)
from topic.core import Topic
from topic.delivery.outcomes import GIVEN_BACK, DeliveryOutcome
from topic.delivery.record import HomeStream, Record
from topic.directory.entry import Lifetime
from topic.edge.subscriber import LocalSubscriber
from topic.identity import NOWHERE, Epoch, LinkIdentity, link_name

if TYPE_CHECKING:
    from tests.topic.queues.walks import Walk

ACCEPTED, REJECTED, RELEASED, MODIFIED = DeliveryOutcome
FINAL = ACCEPTED, REJECTED
MOST = 10
"""The credit of a consumer."""
TAGS = 3
"""The number of tags that a plain publisher uses again and again."""


class Link:
    """One attach of a client, and its connection."""

    def __init__(self, client: "Client", station: WalkStation) -> None:
        self.client, self.station = client, station
        self.inbox: deque[Callable[[], None]] = deque()
        self.outbox: deque[Callable[[], None]] = deque()
        self.is_open = True
        """Whether the link is open for its router."""
        self.is_left = False
        """The client has closed its socket."""
        self.is_answered = False
        """Whether the router has answered the attach."""
        self.is_attached = False
        """Whether the attach has reached the router."""
        self.is_doubted = False
        """Some router was out of contact with the link's router since the attach: it may consider a plain client
        gone."""
        self.handles: dict[Record, int] = {}
        self.records: dict[int, Record] = {}
        self._next = count()

    @property
    def topic(self) -> Topic:
        return self.station.node.topic

    @property
    def now(self) -> float:
        return self.station.bench.now

    def serve(self) -> None:
        """The router reads the next frame."""
        self.at_router(self.outbox.popleft())

    def read(self) -> None:
        """The client reads the next frame."""
        self.inbox.popleft()()

    def end(self, kept: int) -> None:
        """The router has died. Its client reads the first `kept` frames under way, and notices."""
        self.is_open = False
        for act in list(self.inbox)[:kept]:
            if self.client.link is self:
                act()
        if self.client.link is self:
            self.client.lose()

    def at_router(self, act: Callable[[], None]) -> None:
        """An act reaches the router, if the link is open there."""
        if self.is_open:
            self.station.node.now()
            act()
            self.station.node.pump()

    def say(self, act: Callable[..., None], *arguments: Any) -> None:
        self.outbox.append(partial(act, *arguments))

    def tell(self, act: Callable[..., None], *arguments: Any) -> None:
        self.inbox.append(partial(act, *arguments))

    def hear(self, action: LinkAction) -> None:
        """Do what the core asks."""
        if not self.is_open:
            return
        if isinstance(action, Detach):
            self.is_open = False
            self.tell(self.client.detached, action.condition, action.description)
        else:
            self.carry_out(action)

    def carry_out(self, action: LinkAction) -> None:
        raise NotImplementedError

    def break_off(self, kept: int) -> None:
        """The client is gone. Its router reads the first `kept` frames under way, and notices."""
        self.is_left = True
        self.outbox = deque([*list(self.outbox)[:kept], self._notice])

    def _notice(self) -> None:
        if self.is_attached:
            self.suspend()
        self.is_open = False

    def leave(self) -> None:
        """The client closes its link, and then its socket."""
        self.is_left = True
        self.say(self._close)

    def _close(self) -> None:
        if self.is_attached:
            self.close()
        self.is_open = False

    def suspend(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def keep(self, record: Record) -> int:
        assert record not in self.handles, f"{record.message!r} is twice on a link of {self.client.name}"
        handle = self.handles[record] = next(self._next)
        self.records[handle] = record
        return handle

    def drop(self, records: Iterable[Record]) -> list[int]:
        """The router settles these records. Returns the handles of those that were not settled before."""
        handles = [self.handles.pop(record) for record in records if record in self.handles]
        for handle in handles:
            del self.records[handle]
        return handles


class Client:
    """A publisher or a consumer. A lasting client never forgets what it has answered."""

    link: Any = None

    def __init__(self, walk: "Walk", name: str, address: str, lifetime: Lifetime) -> None:
        self.walk, self.name, self.lifetime = walk, name, lifetime
        self.is_lasting = lifetime.timeout > 0
        self.identity = LinkIdentity(name, "link", address)
        self.first = not self.is_lasting and walk.random.random() < 0.5
        """Whether it has receiver settle mode first."""
        self.epoch = NOWHERE
        """The epoch that it echoes."""
        self.unsettled: dict[bytes, int] = {}
        """The map, keyed by tag or key: the outcome, or 0."""
        self.texts: dict[bytes, bytes] = {}
        """The messages of the map."""
        self.said: dict[bytes, int] | None = None
        """The map of the attach on this link."""
        self.is_new = True
        """No router has answered any attach of it."""
        self.is_in = False
        """It has read the answer to the attach on this link."""
        self.is_gone = False
        """It never comes back."""
        self.seen_at = walk.now
        """When all routers last were in contact with the router of its answered link."""
        self.asleep_until = 0.0
        """It does not attach before this time."""
        self.may_be_over = False
        """The mesh may have ended its terminus: it was away for longer than its timeout."""

    def attach(self, router: str) -> None:
        self.said = dict(self.unsettled) if self.is_lasting and not self.is_new else None
        self.walk.note(f"{self.name} attaches at {router} with {self.said and [*self.texts.items()]}")
        self.link = self.open(self.walk.at(router))
        self.walk.links.append(self.link)

    def open(self, station: WalkStation) -> Link:
        raise NotImplementedError

    def lose(self) -> None:
        """Its connection breaks, or it leaves the connection."""
        self.walk.note(f"{self.name} has lost {self.link.station.name}")
        self.link.break_off(self.walk.random.randint(0, len(self.link.outbox)))
        self.left()

    def left(self) -> None:
        self.link, self.is_in = None, False
        if not self.is_lasting:
            self.walk.judge.loosen(self.in_doubt)
            self.begin_afresh()

    @property
    def in_doubt(self) -> list[bytes]:
        """Messages whose state is lost if the client has gone, if it is plain."""
        return [*self.texts.values()]

    def begin_afresh(self) -> None:
        self.unsettled.clear()
        self.texts.clear()
        self.is_new = True

    def detached(self, condition: str, description: str) -> None:
        self.walk.note(f"{self.name} is detached: {condition}, {description}")
        if description == DELETED:
            self.walk.expects(self.walk.is_doomed(self.identity), f"nobody deletes the queue of {self.name}")
        elif condition == EXPIRED and self.is_lasting:
            self.walk.expects(self.may_be_over, f"{self.name} was there, and its terminus has ended")
        if condition == EXPIRED:
            self.knows_of_its_end()
        self.left()

    def knows_of_its_end(self) -> None:
        """It answers the detach."""

    def finish(self) -> None:
        """Do all open work."""
        raise NotImplementedError

    def is_here(self) -> bool:
        """Whether the mesh knows it as attached."""
        return self.link is not None and self.link.is_open and self.link.is_answered


class PublisherLink(Link):
    client: "Publisher"
    stream: HomeStream
    owes_sign = False
    """Its client answers no echoes. Its machine acknowledges data of the router as long as the socket is open."""

    def attach(self, generation: bytes | None, seen: Epoch, unsettled: dict[bytes, int] | None) -> None:
        client = self.client
        goes_on = unsettled is not None and self.topic.generations.knows(link_name(client.identity), generation)
        if self.is_left and client.is_lasting and not goes_on:
            self.is_open = False  # its machine did not show that the client is there (protocol 7.8)
            return
        self.is_attached = True
        self.stream = self.topic.attach_publisher(
            client.identity, self, self.now, generation=generation, seen=seen, first=client.first,
            lifetime=client.lifetime, unsettled=unsettled,
        )  # fmt: skip

    def publish(self, handles: list[int], tags: list[bytes], texts: list[bytes]) -> None:
        records = self.topic.publish(self.stream, tags, texts, presettled=False)
        for handle, record in zip(handles, records, strict=True):
            self._keep(handle, record)

    def publish_again(self, handle: int, tag: bytes) -> None:
        record = self.topic.transferred_again(self.stream, tag)
        assert record is not None, "the router's map has named it"
        self._keep(handle, record)

    def _keep(self, handle: int, record: Record) -> None:
        self.records[handle], self.handles[record] = record, handle

    def settle(self, handles: list[int]) -> None:
        records = [self.records[handle] for handle in handles if handle in self.records]
        self.drop(records)
        if records:
            self.topic.settle(self.stream, records)

    def suspend(self) -> None:
        self.topic.suspend_publisher(self.stream, self, self.now)

    def close(self) -> None:
        self.topic.detach_publisher(self.stream, self.now)

    def acknowledge(self) -> None:
        self.owes_sign = False
        self.at_router(partial(self.alive, answered=False))

    def alive(self, *, answered: bool) -> None:
        self.topic.alive(self.stream, answered=answered)

    def carry_out(self, action: LinkAction) -> None:
        client = self.client
        match action:
            case AnswerPublisher():
                self.is_answered = True
                self.tell(client.attached, action.credit, action.generation, action.epoch, action.unsettled)
            case Credit():
                self.tell(client.credited, action.count)
            case Echo() if client.answers:
                self.tell(client.echo)
            case Echo():
                self.owes_sign = not self.is_left
            case AnswerDeliveries():
                handles = [self.handles[record] for record in action.records]
                self.tell(client.outcome, handles, action.outcome)
                if action.settle:
                    self.drop(action.records)
            case _:
                raise AssertionError(action)


class Publisher(Client):
    link: PublisherLink | None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.answers = self.walk.random.random() < 0.5
        """Whether it answers echoes."""
        self.generation: bytes | None = None
        self.credit = 0
        self.again: deque[tuple[bytes, bool]] = deque()
        """Deliveries to transfer again: the tag, and whether the router's map has it."""
        self.handles: dict[int, bytes] = {}
        self._number = 0
        self._handle = count()

    def open(self, station: WalkStation) -> PublisherLink:
        link = PublisherLink(self, station)
        link.say(link.attach, self.generation, self.epoch, self.said)
        return link

    def left(self) -> None:
        super().left()
        self.credit = 0
        self.again.clear()
        self.handles.clear()

    def begin_afresh(self) -> None:
        super().begin_afresh()
        self.generation = None
        if not self.is_lasting:
            self.epoch = NOWHERE

    def attached(self, credit: int, generation: bytes, epoch: Epoch, ours: dict[bytes, int] | None) -> None:
        if self.generation not in (None, generation):
            self.walk.expects(self.may_be_over, f"{self.name} was there, and its life has ended")
            self.begin_afresh()  # deliveries in doubt stay so
            self.lose()
            return
        self.credit, self.generation, self.is_new, self.is_in = credit, generation, False, True
        if self.is_lasting:
            self.epoch = epoch
        for tag, state in (self.said or {}).items():
            if state:
                self._forget(tag)
            else:
                self.again.append((tag, tag in (ours or {})))

    def _forget(self, tag: bytes) -> None:
        del self.unsettled[tag], self.texts[tag]

    def credited(self, count: int) -> None:
        self.credit += count

    def echo(self) -> None:
        if self.link is not None:
            self.link.say(partial(self.link.alive, answered=True))

    def outcome(self, handles: list[int], outcome: DeliveryOutcome) -> None:
        for handle in handles:
            tag = self.handles.get(handle)
            if tag is not None:
                self.walk.judge.told(self.texts[tag], outcome)
                self.unsettled[tag] = outcome
                if self.first:
                    del self.handles[handle]
                    self._forget(tag)

    # actions of the publisher

    def send(self, most: int) -> None:
        """Send some messages as credit allows: first the deliveries in doubt."""
        link, count = self.link, min(self.credit, most)
        if link is None or not self.is_in:
            return
        while self.again and count:
            tag, is_known = self.again.popleft()
            self.walk.note(f"{self.name} sends {self.texts[tag].decode()} again")
            handle = self._transfer(tag)
            if is_known:
                link.say(link.publish_again, handle, tag)
            else:
                link.say(link.publish, [handle], [tag], [self.texts[tag]])
            count -= 1
        tags = [] if self.walk.is_over or self.again else self._tags(count)
        if tags:
            link.say(link.publish, [self._transfer(tag) for tag in tags], tags, [self.texts[tag] for tag in tags])

    def _tags(self, count: int) -> list[bytes]:
        """Tags of up to `count` new messages. A plain publisher may use a tag again that it has settled."""
        tags: list[bytes] = []
        for _ in range(count):
            tag = b"%d" % (self._number % TAGS if not self.is_lasting else self._number)
            if tag in self.unsettled:
                break
            text = b"%s.%d" % (self.name.encode(), self._number) + self.walk.suffix()
            self._number += 1
            self.unsettled[tag], self.texts[tag] = 0, text
            self.walk.note(f"{self.name} sends {text.decode()} as {tag.decode()}")
            self.walk.judge.sent(text, self.walk.message(self, text))
            tags.append(tag)
        return tags

    def _transfer(self, tag: bytes) -> int:
        handle = next(self._handle)
        self.handles[handle] = tag
        self.credit -= 1
        return handle

    def finish(self) -> None:
        self.send(MOST)
        self.settle(MOST)

    def settle(self, most: int) -> None:
        """Settle some of the deliveries whose outcome it has read."""
        told = [handle for handle, tag in self.handles.items() if self.unsettled[tag]][:most]
        if self.link is not None and told:
            self.walk.note(f"{self.name} settles {[self.texts[self.handles[handle]].decode() for handle in told]}")
            for handle in told:
                self._forget(self.handles.pop(handle))
            self.link.say(self.link.settle, told)


class ConsumerLink(Link):
    client: "Consumer"
    subscriber: LocalSubscriber
    _limit = _sent = 0

    def __init__(self, client: "Consumer", station: WalkStation) -> None:
        super().__init__(client, station)
        self._given_back: dict[Record, tuple[bytes, bool]] = {}
        """Deliveries that the client has given back -> the message, and whether the delivery counts as failed."""

    def attach(self, seen: Epoch, unsettled: dict[bytes, int] | None) -> None:
        client = self.client
        self.is_attached = True
        self.subscriber = self.topic.attach_subscriber(
            client.identity, self, self.now, seen=seen, first=client.first, lifetime=client.lifetime,
            unsettled=unsettled,
        )  # fmt: skip

    def flow(self, limit: int) -> None:
        """The client takes this many transfers in all."""
        self._limit = limit
        self.topic.credit(self.subscriber, max(limit - self._sent, 0))

    def outcome(self, handle: int, outcome: DeliveryOutcome, settled: bool, final: bool, failed: bool) -> None:
        record = self.records.get(handle)
        if record is not None:
            if settled:
                self.drop([record])
            if outcome in GIVEN_BACK and record.message is not None:
                self._given_back[record] = unmarked(record.message)[0], failed
            self.topic.outcomes(self.subscriber, [record], outcome, final=final, failed=failed)

    def echoed(self) -> None:
        self.topic.echoed(self.subscriber)

    def told(self) -> None:
        """The client has answered the detach."""
        self.station.node.now()
        self.topic.ending_known(self.subscriber)
        self.station.node.pump()

    def suspend(self) -> None:
        self.topic.suspend_subscriber(self.subscriber, self, self.now)

    def close(self) -> None:
        self.topic.detach_subscriber(self.subscriber, self, self.now)

    def carry_out(self, action: LinkAction) -> None:
        client = self.client
        match action:
            case AnswerSubscriber():
                self.is_answered = True
                self.tell(client.attached, action.epoch, action.unsettled)
                self.station.node.later(self._take_first_credit)
            case Deliver():
                for record in action.records:
                    self._transfer(record, resumed=False)
            case Redeliver():
                self._settle([action.record], again=True)
                self._transfer(action.record, resumed=False)
            case Resume() if action.settled:
                self._count()
                self.tell(client.restated, None, action.record.key, action.state)
            case Resume() if action.state:
                self._count()
                self.tell(client.restated, self.keep(action.record), action.record.key, action.state)
            case Resume():
                self._transfer(action.record, resumed=True)
            case Echo():
                self.tell(client.echo)
            case SettleSubscriber():
                self._settle(action.records, again=False)
            case _:
                raise AssertionError(action)

    def _take_first_credit(self) -> None:
        if self.is_open:
            self.flow(self._limit)

    def _count(self) -> None:
        assert self._sent < self._limit, f"{self.client.name} is sent more than it takes"
        self._sent += 1

    def _transfer(self, record: Record, *, resumed: bool) -> None:
        assert record.message is not None, "a message is gone before its consumer has it"
        self._count()
        text, failures = unmarked(record.message)
        self.client.walk.judge.transferred(text, failures, self.client.walk.times_back(text))
        self.tell(self.client.delivered, self.keep(record), record.key, text, resumed)

    def _settle(self, records: list[Record], *, again: bool) -> None:
        for record in records:
            if (given_back := self._given_back.pop(record, None)) is not None:
                self.client.walk.judge.came_back(*given_back)
        for handle in self.drop(records):
            self.tell(self.client.settled, handle, again)


class Consumer(Client):
    link: ConsumerLink | None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.handles: dict[int, bytes] = {}
        """Keyed by handle on this link: the keys of unsettled deliveries."""
        self._limit = 0
        self._had = 0
        self._settled: list[bytes] = []
        """Messages that it has settled on this link. Its router may not have read that."""
        self.is_silent = self.walk.random.random() < 0.2
        """Whether it echoes no epoch."""
        self.fussiness = self.walk.random.choice((0.05, 0.2, 0.7))
        """How often it gives a message back."""
        self.is_picky = True
        """Whether it rejects messages."""
        self.is_choosy = False
        """Whether it refuses some messages for good."""
        self._refused: dict[bytes, object] = {}
        """Message that it refuses for good on this link -> the term in which it said so."""

    def open(self, station: WalkStation) -> ConsumerLink:
        link = ConsumerLink(self, station)
        self._limit = self._had = 0
        link.say(link.attach, self.epoch if self.is_lasting and not self.is_silent else NOWHERE, self.said)
        return link

    def has(self, text: bytes) -> bool:
        """Whether it has the message, and has not given it back."""
        return any(one == text and self.unsettled[key] not in GIVEN_BACK for key, one in self.texts.items())

    @property
    def todo(self) -> list[bytes]:
        """The keys of deliveries that it has not answered."""
        return [key for key, state in self.unsettled.items() if not state]

    @property
    def in_doubt(self) -> list[bytes]:
        return [*super().in_doubt, *self._settled]

    @property
    def is_in_doubt(self) -> bool:
        """Whether other consumers may get its messages."""
        return self.may_be_over if self.is_lasting else self.link is None or self.link.is_doubted

    def left(self) -> None:
        super().left()
        self._settled.clear()
        self._refused.clear()
        self.handles.clear()
        for key in [key for key, state in self.unsettled.items() if state == RELEASED]:
            self._forget(key)

    def knows_of_its_end(self) -> None:
        assert self.link is not None
        if self.walk.stations.get(self.link.station.name) is self.link.station:
            self.link.told()

    # answers of its router

    def attached(self, epoch: Epoch, ours: dict[bytes, int] | None) -> None:
        self.epoch, self.is_new, self.is_in = epoch, False, True
        for key in self.said or ():
            if ours is None or key not in ours:
                self._forget(key)

    def delivered(self, handle: int, key: bytes, text: bytes, resumed: bool) -> None:
        self._had += 1
        self.handles[handle] = key
        known = self.unsettled.get(key)
        if known is None or (known in GIVEN_BACK and not resumed):
            self.walk.expects(not resumed, f"{text.decode()} is resumed at {self.name}, which has not named it")
            is_refused = text in self._refused and self._refused[text] == self.walk.led_in
            self.walk.expects(not is_refused, f"{text.decode()} comes to {self.name}, which has refused it for itself")
            self.walk.judge.handed(self, text)
            self.unsettled[key], self.texts[key] = 0, text
        else:
            self.walk.note(f"{text.decode()} is resumed at {self.name}")
            self.walk.expects(resumed, f"{text.decode()} comes to {self.name}, which has it")
            if known:
                self._state(handle, DeliveryOutcome(known))

    def restated(self, handle: int | None, key: bytes, state: int) -> None:
        """A resumed transfer without payload: both ends know the outcome, or it is settled (no handle)."""
        self._had += 1
        self.walk.expects(key in (self.said or {}), f"{self.name} has not named what is resumed")
        self.walk.note(f"{self.texts[key].decode()} is restated at {self.name}")
        if handle is None:
            self._forget(key)
        else:
            self.walk.expects(state == (self.said or {})[key], f"{self.name} has answered otherwise")
            self.handles[handle] = key

    def settled(self, handle: int, again: bool) -> None:
        key = self.handles.pop(handle, None)
        if key is not None and not (again and self.unsettled.get(key) not in GIVEN_BACK):
            self._forget(key)

    def _forget(self, key: bytes) -> None:
        """The delivery is settled, or was given back."""
        text, state = self.texts.pop(key), self.unsettled.pop(key)
        if state in FINAL and self.is_lasting:
            self.walk.judge.settled(self, text)

    def echo(self) -> None:
        if self.link is not None:
            self.link.say(self.link.echoed)

    # actions of the consumer

    def grant(self, credit: int) -> None:
        """Raise the credit to this number, unless there is more."""
        if self.link is not None and self._limit - self._had < credit:
            self._limit = self._had + credit
            self.link.say(self.link.flow, self._limit)

    def finish(self) -> None:
        self.grant(MOST)
        for key in self.todo:
            self.answer(key, ACCEPTED)

    def answer(self, key: bytes, outcome: DeliveryOutcome) -> None:
        """The application has finished with the message, attached or not. If the message is not transferred on this
        link yet, the outcome goes out in the consumer's map, or when the message is transferred."""
        self.walk.note(f"{self.name} answers {outcome.name} to {self.texts[key].decode()}")
        self.unsettled[key] = outcome
        if outcome in FINAL:
            self.walk.judge.processed(self, self.texts[key])
        handle = next((handle for handle, at in self.handles.items() if at == key), None)
        if handle is not None:
            self._state(handle, outcome)

    def _state(self, handle: int, outcome: DeliveryOutcome) -> None:
        assert self.link is not None
        is_final = outcome is MODIFIED and self.is_choosy
        has_failed = outcome is MODIFIED and self.walk.random.random() < 0.5
        text = self.texts[self.handles[handle]]
        self.walk.note(f"{text.decode()}: {self.name} {'has failed' * has_failed}{' for good' * is_final}")
        if is_final:
            self._refused[text] = self.walk.led_in
        self.link.say(self.link.outcome, handle, outcome, self.first, is_final, has_failed)
        if self.first:
            self._settled.append(self.texts[self.handles[handle]])
            self._forget(self.handles.pop(handle))
