"""A client's link as its router and its client have it: the shell's part of `router.clients`, with delays both ways.

    client ──FIFO──▶ router      each link has a connection of its own; what is under way when it breaks is gone
    client ◀──FIFO── router

The ends know deliveries by handles, as AMQP does. A disposition for a handle already settled is ignored.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from topic.actions import (
    AnswerDeliveries,
    AnswerPublisher,
    AnswerSubscriber,
    Credit,
    Deliver,
    Detach,
    LinkAction,
    Redeliver,
    SettleSubscriber,
)
from topic.record import Outcome, Record, Stream
from topic.subscriber import Subscriber

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.network import Contact
    from tests.simulation.publisher import Publisher
    from tests.simulation.router import Router
    from tests.simulation.subscriber import SubscriberClient

Sent = tuple[int, bytes, bytes, bool]
"""(handle, delivery-tag, message, settled)"""


class Link:
    """One connection with one link on it."""

    def __init__(self, router: "Router", client: "Client", number: int, first: bool) -> None:
        self.router = router
        self.client = client
        self.number = number
        self.first = first
        self.attached = False
        """The attach has reached the router."""
        self.broken = False
        """The connection is."""
        self.ended = False
        """The router's end is gone; the client may not know."""
        self.ended_at = 0.0
        self._arrival = [0.0, 0.0]
        router.links.append(self)
        client.opened.append(self)

    def __repr__(self) -> str:
        return f"{self.client.name}#{self.number}@{self.router.name}"

    # transport

    def to_router(self, action: Callable[..., None], *arguments: Any) -> None:
        self._send(0, self._at_router, action, *arguments)

    def to_client(self, action: Callable[..., None], *arguments: Any) -> None:
        self._send(1, self._at_client, action, *arguments)

    def _send(self, way: int, carry: Callable[..., None], *arguments: Any) -> None:
        router = self.router
        delay = router.random.random() * router.knobs.client_delay
        self._arrival[way] = at = max(self._arrival[way], router.schedule.now + delay)
        router.schedule.at(at, carry, *arguments)

    def _at_router(self, action: Callable[..., None], *arguments: Any) -> None:
        if self.broken or self.ended:
            return
        self.router.before_client()
        if not self.ended:
            action(*arguments)
            self.router.done()

    def _at_client(self, action: Callable[..., None], *arguments: Any) -> None:
        if not self.broken:
            action(self, *arguments)

    def router_died(self) -> None:
        if not self.broken:
            self.broken = True
            delay = self.router.random.random() * self.router.knobs.dead
            self.router.schedule.after(delay, self.client.lost, self)
        self.end()

    def vanish(self) -> None:
        """The client is gone; its router notices later."""
        if not self.broken:
            self.broken = True
            delay = self.router.random.random() * self.router.knobs.dead
            self.router.schedule.after(delay, self._noticed)

    def _noticed(self) -> None:
        if self.ended:
            return
        self.router.before_client()
        if self.attached and not self.ended:
            self.detach()
            self.router.done()
        self.end()

    # the router's end

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.ended_at = self.router.schedule.now
            if self in self.router.links:
                self.router.links.remove(self)

    def detach(self) -> None:
        """The closing detach arrives, or the connection's end is noticed."""
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

    def attach(self, generation: bytes | None) -> None:
        topic, now = self.router.topic, self.router.schedule.now
        self.attached = True
        self.router.note(self.router.name, f"attaches {self}")
        self.stream = topic.attach_publisher(self.client.identity, self, now, generation=generation, first=self.first)

    def detach(self) -> None:
        self.router.note(self.router.name, f"{self} is gone")
        self.end()
        self.router.topic.detach_publisher(self.stream)

    def transfers(self, sent: list[Sent]) -> None:
        """In runs of settled and unsettled ones."""
        start = 0
        while start < len(sent):
            settled = sent[start][3]
            end = next((i for i in range(start, len(sent)) if sent[i][3] != settled), len(sent))
            self._publish(sent[start:end], settled)
            start = end

    def _publish(self, sent: list[Sent], settled: bool) -> None:
        self.router.judge.published(self, [message for _, _, message, _ in sent])
        tags, messages = [tag for _, tag, _, _ in sent], [message for _, _, message, _ in sent]
        records = self.router.topic.publish(self.stream, tags, messages, presettled=settled)
        assert len(records) == len(sent)
        self.router.judge.withheld([record.message for record in records if record.n < 0])
        if not settled:
            for (handle, _, _, _), record in zip(sent, records, strict=True):
                self._records[handle] = record
                self._handles[record] = handle

    def settle(self, handles: list[int]) -> None:
        records = [self._records.pop(handle) for handle in handles if handle in self._records]
        for record in records:
            del self._handles[record]
        if records:
            self.router.topic.settle(self.stream, records)

    def carry_out(self, action: LinkAction) -> None:
        client = self.client
        if isinstance(action, AnswerPublisher):
            self.router.note(self.router.name, f"answers {self}")
            self.to_client(client.attached, action.credit, action.generation)
        elif isinstance(action, Credit):
            assert action.count > 0
            self.to_client(client.credited, action.count)
        else:
            assert isinstance(action, AnswerDeliveries)
            assert action.settle == self.first
            handles = [self._handles[record] for record in action.records]
            self.router.judge.answered(self, handles, action.outcome)
            self.to_client(client.outcome, handles, action.outcome)
            if action.settle:
                for record in action.records:
                    del self._records[self._handles.pop(record)]


class SubscriberLink(Link):
    client: "SubscriberClient"
    subscriber: Subscriber
    contacts: "dict[str, Contact | None]"
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

    def attach(self) -> None:
        topic, now = self.router.topic, self.router.schedule.now
        self.attached = True
        self.router.note(self.router.name, f"attaches {self}")
        network, here = self.router.network, self.router.name
        self.contacts = {name: network.contact(here, name) for name in self.router.names}
        self.subscriber = topic.attach_subscriber(
            self.client.identity, self, now, first=self.first, sends_settled=self.sends_settled
        )

    def detach(self) -> None:
        self.router.note(self.router.name, f"{self} is gone")
        self.router.judge.closed(self)
        self.end()
        self.router.topic.detach_subscriber(self.subscriber, self)

    def stolen(self) -> None:
        if self.router.knobs.skew and self.client.link is self:
            self.router.judge.closed(self)  # skewed clocks on two sides of a partition: an older attach looks later

    def flow(self, limit: int) -> None:
        """The client takes deliveries up to that many in all."""
        self._limit = max(self._limit, limit)
        self.router.topic.credit(self.subscriber, self._limit - self._sent)

    def outcome(self, handle: int, outcome: Outcome, final: bool, settled: bool) -> None:
        record = self._records.get(handle)
        if record is None:
            return
        if settled:
            del self._records[handle], self._handles[record]
        self.router.topic.outcomes(self.subscriber, [record], outcome, final=final)

    def carry_out(self, action: LinkAction) -> None:
        if isinstance(action, AnswerSubscriber):
            self.router.note(self.router.name, f"answers {self}")
            self.router.judge.attached(self)
            self.to_client(self.client.attached)
            self.flow(self._limit)
        elif isinstance(action, Deliver):
            for record in action.records:
                self._transfer(record, 0)
        elif isinstance(action, Redeliver):
            self._settle([action.record])
            assert action.delivery_count > 0
            self._transfer(action.record, action.delivery_count)
        else:
            assert isinstance(action, SettleSubscriber)
            self._settle(action.records)

    def _transfer(self, record: Record, attempts: int) -> None:
        assert record.message is not None, "there is a message as long as somebody may need it"
        assert self._sent < self._limit, "no more is sent than the subscriber takes"
        handle = self._sent
        self._sent += 1
        settled = self.sends_settled or record.presettled
        if not settled:
            assert record not in self._handles, "not twice on one link while unsettled"
            self._records[handle] = record
            self._handles[record] = handle
        self.router.judge.transferred(self, record, attempts)
        self.to_client(self.client.delivered, handle, record.key, record.message, settled, attempts)

    def _settle(self, records: list[Record]) -> None:
        handles = [handle for record in records if (handle := self._handles.pop(record, None)) is not None]
        for handle in handles:
            del self._records[handle]
        if handles:
            self.to_client(self.client.settled, handles)
