"""A client's link as its router and its client have it: the shell's part of `router.clients`, with delays both ways.

    client ──FIFO──▶ router      each link has a connection of its own; when it breaks, what is under way may still
    client ◀──FIFO── router      arrive, up to some point. Either end may believe in it much longer than the other.

The ends know deliveries by handles, as AMQP does. A disposition for a handle already settled is ignored.
"""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from failover.comparison import Step
from topic.actions import (
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
from topic.identity import Epoch
from topic.record import Outcome, Record, Stream
from topic.subscriber import Subscriber

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.publisher import Publisher
    from tests.simulation.router import Router
    from tests.simulation.subscriber import SubscriberClient

Sent = tuple[int, bytes, bytes, Step]
"""(handle, delivery-tag, message, as what it is sent: new, settled, resumed as a whole or aborted)"""


class Link:
    """One connection with one link on it."""

    def __init__(self, router: "Router", client: "Client", number: int, first: bool) -> None:
        self.router = router
        self.client = client
        self.number = number
        self.first = first
        self.attached = False
        """The attach has reached the router."""
        self.attached_at = 0.0
        self.answered = False
        """By the router."""
        self.closed = False
        """The client has sent a closing detach."""
        self.ended = False
        """The router's end is gone; the client may not know."""
        self.ended_at = 0.0
        self.epoch: Epoch | None = None
        self.echoed_hlc = client.seen
        self.away = 0.0
        """For how long the routers around had not seen the client when its attach came."""
        self._arrival = [0.0, 0.0]
        self._until = [inf, inf]
        router.links.append(self)
        client.opened.append(self)

    def __repr__(self) -> str:
        return f"{self.client.name}#{self.number}@{self.router.name}"

    def check(self, holds: bool, what: str) -> None:
        self.router.judge.check(holds, what)

    # transport

    def to_router(self, action: Callable[..., None], *arguments: Any) -> None:
        self._send(0, self._reach_router, action, *arguments)

    def to_client(self, action: Callable[..., None], *arguments: Any) -> None:
        self._send(1, self._reach_client, action, *arguments)

    def _send(self, way: int, carry: Callable[..., None], *arguments: Any) -> None:
        router = self.router
        delay = router.random.random() * router.knobs.client_delay
        self._arrival[way] = at = max(self._arrival[way], router.schedule.now + delay)
        router.schedule.at(at, carry, *arguments)

    def _reach_router(self, action: Callable[..., None], *arguments: Any) -> None:
        if self.router.schedule.now <= self._until[0] and not self.ended:
            self.router.handle(self._at_router, action, *arguments)

    def _at_router(self, action: Callable[..., None], *arguments: Any) -> None:
        if not self.ended:
            action(*arguments)

    def _reach_client(self, action: Callable[..., None], *arguments: Any) -> None:
        if self.router.schedule.now <= self._until[1]:
            action(self, *arguments)

    def _soon(self, late: float) -> float:
        return self.router.random.random() * late

    def router_died(self, late: float) -> None:
        if self.attached:
            self.lost()
        self.end()
        self._ends_at_client(late)

    def client_left(self, late: float) -> None:
        """The client is gone without a word; its router notices after at most so many seconds."""
        at = self._break(0) + self._soon(late)
        self.router.schedule.at(at, self.router.handle, self._noticed)

    def broken(self, late: float) -> None:
        """The connection breaks while both live, who both notice after at most so many seconds."""
        self.client_left(late)
        self._ends_at_client(late)

    def _ends_at_client(self, late: float) -> None:
        at = self._break(1) + self._soon(late)
        self.router.schedule.at(at, self.client.lost, self)

    def given_up(self) -> None:
        """The client hears nothing from its router and goes elsewhere."""
        if self.router.paused and self.client.link is self:
            self.client_left(0.01)
            self.client.lost(self)

    def _break(self, way: int) -> float:
        """Of what is under way that way, only what comes before the time returned arrives."""
        at = self.router.schedule.now + self.router.random.random() * self.router.knobs.client_delay
        self._until[way] = min(self._until[way], at)
        return at

    def _noticed(self) -> None:
        if not self.ended:
            if self.attached:
                self.router.note(self.router.name, f"{self} is gone")
                self.suspend()
            self.end()

    # the router's end

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.ended_at = self.router.schedule.now
            if self in self.router.links:
                self.router.links.remove(self)

    def close(self) -> None:
        """The closing detach arrives."""
        self.router.note(self.router.name, f"{self} closes")
        self.epoch = self.present_epoch()
        self.detach()
        self.end()

    def _arrived(self) -> None:
        self.away = self.router.judge.termini.away(self)
        self.attached = True
        self.attached_at = self.router.schedule.now
        self.router.note(self.router.name, f"attaches {self}")

    def _given(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self.router.judge.epoch_given(self)

    def present_epoch(self) -> Epoch:
        """An attach that had to wait has another one than it began with."""
        raise NotImplementedError

    def suspend(self) -> None:
        raise NotImplementedError

    def detach(self) -> None:
        raise NotImplementedError

    def perform(self, action: LinkAction) -> None:
        if self.ended:
            return
        if isinstance(action, Detach):
            self.router.note(self.router.name, f"detaches {self}: {action.description}")
            self.stolen()
            self.end()
            self.to_client(self.client.detached)
        else:
            self.carry_out(action)

    def lost(self) -> None:
        """Its router is no more."""

    def stolen(self) -> None:
        """The router detaches it, as it believes another to be the later one."""

    def carry_out(self, action: LinkAction) -> None:
        raise NotImplementedError


class PublisherLink(Link):
    client: "Publisher"
    stream: Stream

    def __init__(self, router: "Router", client: "Publisher", number: int, first: bool) -> None:
        super().__init__(router, client, number, first)
        self._records: dict[int, Record] = {}
        self._handles: dict[Record, int] = {}
        self._texts: dict[int, bytes] = {}

    def attach(self, generation: bytes | None, seen: int, unsettled: dict[bytes, int] | None) -> None:
        topic, now, client = self.router.topic, self.router.schedule.now, self.client
        self._arrived()
        self.stream = topic.attach_publisher(
            client.identity, self, now, generation=generation, seen=seen, first=self.first,
            lifetime=client.lifetime, unsettled=unsettled,
        )  # fmt: skip
        self._given(self.present_epoch())

    def present_epoch(self) -> Epoch:
        return self.stream.epoch

    def suspend(self) -> None:
        self.router.topic.suspend_publisher(self.stream, self, self.router.schedule.now)

    def detach(self) -> None:
        self.router.topic.detach_publisher(self.stream)

    def transfers(self, sent: list[Sent]) -> None:
        """In runs of new ones, settled or unsettled, and one by one of those that are resumed."""
        start = 0
        while start < len(sent):
            handle, tag, text, step = sent[start]
            end = start + 1
            if step in (Step.WHOLE, Step.ABORTED):
                self._resume(handle, tag, text, aborted=step is Step.ABORTED)
            else:
                end = next((i for i in range(start, len(sent)) if sent[i][3] is not step), len(sent))
                self._publish(sent[start:end], step is Step.SETTLED)
            start = end

    def _publish(self, sent: list[Sent], settled: bool) -> None:
        tags, texts = [tag for _, tag, _, _ in sent], [text for _, _, text, _ in sent]
        self.router.judge.published(self, texts)
        records = self.router.topic.publish(self.stream, tags, texts, presettled=settled)
        assert len(records) == len(sent)
        self.router.judge.withheld([record.message for record in records if record.n < 0])
        if not settled:
            for (handle, _, text, _), record in zip(sent, records, strict=True):
                self._keep(handle, text, record)

    def _resume(self, handle: int, tag: bytes, text: bytes, *, aborted: bool) -> None:
        if not aborted:
            self.router.judge.republished(self, text)
        record = self.router.topic.transferred_again(self.stream, tag, aborted=aborted)
        self.check(record is not None, f"7 resume: {text.decode()}, which the router listed, it ignores")
        assert record is not None
        if not aborted:
            self._keep(handle, text, record)

    def _keep(self, handle: int, text: bytes, record: Record) -> None:
        self._records[handle] = record
        self._handles[record] = handle
        self._texts[handle] = text

    def settle(self, handles: list[int]) -> None:
        records = [self._records.pop(handle) for handle in handles if handle in self._records]
        for record in records:
            del self._handles[record]
        if records:
            self.router.topic.settle(self.stream, records)

    def alive(self) -> None:
        self.router.topic.alive(self.stream)

    def carry_out(self, action: LinkAction) -> None:
        client = self.client
        if isinstance(action, AnswerPublisher):
            self.router.note(self.router.name, f"answers {self}: {action.unsettled}")
            self.check(not self.answered, "5 one answer: an attach is answered once")
            self.answered = True
            self._given(action.epoch)
            self.to_client(client.attached, action.credit, action.generation, action.epoch, action.unsettled)
        elif isinstance(action, Credit):
            assert action.count > 0
            self.to_client(client.credited, action.count)
        elif isinstance(action, Echo):
            self.to_client(client.echo)
        else:
            assert isinstance(action, AnswerDeliveries)
            self._answer(action)

    def _answer(self, action: AnswerDeliveries) -> None:
        assert action.settle == self.first
        known = all(record in self._handles for record in action.records)
        self.check(known, f"5 one outcome: {self} is told of what it has not transferred, or was told before")
        handles = [self._handles[record] for record in action.records]
        self.router.judge.answered(self, [self._texts[handle] for handle in handles], action.outcome)
        self.to_client(self.client.outcome, handles, action.outcome)
        if action.settle:
            for record in action.records:
                del self._records[self._handles.pop(record)]


class SubscriberLink(Link):
    client: "SubscriberClient"
    subscriber: Subscriber
    contacts: dict[str, object]
    """Those of its router when the attach reached it."""

    def __init__(
        self, router: "Router", client: "SubscriberClient", number: int, first: bool, sends_settled: bool
    ) -> None:
        super().__init__(router, client, number, first)
        self.sends_settled = sends_settled
        router.judge.readers[client.name].links.append(self)
        self._limit = 0
        self._sent = 0
        self._records: dict[int, Record] = {}
        self._handles: dict[Record, int] = {}

    def attach(self, seen: int, unsettled: dict[bytes, int] | None) -> None:
        topic, now, client = self.router.topic, self.router.schedule.now, self.client
        self._arrived()
        judge, here = self.router.judge, self.router
        judge.comes(self, unsettled)
        self.contacts = {name: judge.contact(here, name) for name in here.names}
        self.subscriber = topic.attach_subscriber(
            client.identity, self, now, seen=seen, first=self.first, sends_settled=self.sends_settled,
            lifetime=client.lifetime, unsettled=unsettled,
        )  # fmt: skip
        self._given(self.present_epoch())

    def present_epoch(self) -> Epoch:
        return self.subscriber.epoch

    def suspend(self) -> None:
        self.router.judge.gone(self)
        self.router.topic.suspend_subscriber(self.subscriber, self, self.router.schedule.now)

    def detach(self) -> None:
        self.router.judge.gone(self)
        self.router.topic.detach_subscriber(self.subscriber, self)

    def lost(self) -> None:
        self.router.judge.gone(self)

    def stolen(self) -> None:
        if self.router.knobs.skew and self.client.link is self:
            self.router.judge.gone(self)  # skewed clocks on two sides of a partition: an older attach looks later

    def flow(self, limit: int) -> None:
        """The client takes deliveries up to that many in all."""
        self._limit = max(self._limit, limit)
        self.router.topic.credit(self.subscriber, self._limit - self._sent)

    def echoed(self) -> None:
        self.router.topic.echoed(self.subscriber)

    def outcome(self, handle: int, outcome: Outcome, final: bool, settled: bool) -> None:
        record = self._records.get(handle)
        if record is None:
            return
        if settled:
            del self._records[handle], self._handles[record]
        self.router.topic.outcomes(self.subscriber, [record], outcome, final=final)

    def carry_out(self, action: LinkAction) -> None:
        if isinstance(action, AnswerSubscriber):
            self.router.note(self.router.name, f"answers {self}: {action.unsettled}")
            self.check(not self.answered, "5 one answer: an attach is answered once")
            self.answered = True
            self._given(action.epoch)
            self.router.judge.attached(self)
            self.to_client(self.client.attached, action.epoch, action.unsettled)
            self.flow(self._limit)
        elif isinstance(action, Deliver):
            for record in action.records:
                self._transfer(record, 0)
        elif isinstance(action, Redeliver):
            self._settle([action.record], again=True)
            assert action.delivery_count > 0
            self._transfer(action.record, action.delivery_count)
        elif isinstance(action, Resume):
            self._resume(action)
        elif isinstance(action, Echo):
            self.to_client(self.client.echo)
        else:
            assert isinstance(action, SettleSubscriber)
            self._settle(action.records)

    def _next(self, record: Record, settled: bool) -> int:
        self.check(self._sent < self._limit, f"6 credit: {self} is sent more than it takes")
        handle = self._sent
        self._sent += 1
        if not settled:
            self.check(record not in self._handles, f"1 exactly once: {record.message!r} twice on {self}")
            self._records[handle] = record
            self._handles[record] = handle
        return handle

    def _transfer(self, record: Record, attempts: int) -> None:
        self.check(record.message is not None, f"4 message: gone before {self} has it")
        assert record.message is not None
        settled = self.sends_settled or record.presettled
        handle = self._next(record, settled)
        self.router.judge.transferred(self, record, attempts)
        self.to_client(self.client.delivered, handle, record.key, record.message, settled, attempts, False)

    def _resume(self, action: Resume) -> None:
        """With resume=true: the state that both ends agree on, or the payload, unless that is settled meanwhile."""
        record, client = action.record, self.client
        handle = self._next(record, action.settled)
        self.router.judge.resumed(self, record, action.state, action.settled)
        if action.state or action.settled:
            self.to_client(client.restated, handle, record.key, action.state, action.settled)
        else:
            self.check(record.message is not None, f"4 message: gone before {self} has it")
            self.to_client(client.delivered, handle, record.key, record.message, False, 0, True)

    def _settle(self, records: list[Record], *, again: bool = False) -> None:
        handles = [handle for record in records if (handle := self._handles.pop(record, None)) is not None]
        for handle in handles:
            del self._records[handle]
        if handles:
            self.to_client(self.client.settled, handles, again)
