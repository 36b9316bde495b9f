"""The AMQP edge: clients' links on one side, the topic core on the other (protocol sections 1, 2 and 5).

Attaches are checked here and answered when the core says so. Per delivery only two things are kept, the
engine's handle and the core's record, each by the other. Transfers, outcomes and settlements pass in
batches; nothing is decided here about any of them.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import ClassVar

from router.amqp.batches import Dispositions, ResumedTransfers, Transfers
from router.amqp.connection import Connection
from router.amqp.errors import NOT_IMPLEMENTED, PRECONDITION_FAILED
from router.amqp.handler import Handler
from router.amqp.link import Link
from router.amqp.values import (
    ACCEPTED,
    MODIFIED,
    RCV_FIRST,
    RECEIVED,
    ErrorCondition,
    Handle,
    OutcomeDetails,
)
from router.attach import (
    EPOCH,
    GENERATION,
    STATUS_ADDRESS,
    Refusal,
    address_in,
    begins_life,
    generation_of,
    identity_of,
    is_told,
    lifetime_of,
    seen_of,
    unsettled_of,
)
from router.config import AddressRule
from router.ends import PublisherLink, SubscriberLink, former_of
from router.status_node import StatusEnd, StatusNode
from topic.actions import (
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
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.edge.subscriber import LocalSubscriber
from topic.identity import LinkIdentity
from topic.node import Node

log = logging.getLogger("oncemesh.clients")

PARTIAL_ACCEPTANCE = "oncemesh:partial-acceptance"
"""In the `info` of a rejection's error, whose condition is a standard one: some decoders know no others."""
NOTHING = b"\x00\x53\x75\xa0\x00"
"""An empty data section, for resumed transfers without payload: some clients choke on transfers without any."""
OUTCOMES = {int(outcome): outcome for outcome in DeliveryOutcome}


class ClientEdge(Handler):
    """The handler of all connections of clients."""

    status: StatusNode

    def __init__(self, node: Node, addresses: Sequence[AddressRule], max_message: int, longest: float) -> None:
        """`longest` is the longest timeout, in seconds, that a terminus is granted."""
        self.node = node
        self.topic = node.topic
        self.connections: set[Connection] = set()
        self._prefixes = tuple(rule.prefix for rule in addresses)
        self._max_message = max_message
        self._longest = int(longest)

    # connections

    def on_open(self, connection: Connection) -> None:
        self.connections.add(connection)
        connection.open()

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        self.connections.discard(connection)
        for link in connection.links:
            self._gone(link, closed=False)

    # links

    def on_attach(self, link: Link) -> None:
        if begins_life(link) and link.connection.can_prove:  # it may be late, and its client have gone elsewhere
            link.connection.prove(partial(self._attach, link))
        else:
            self._attach(link)

    def _attach(self, link: Link) -> None:
        if link.ended:
            return
        try:
            if link.is_sender and address_in(link.remote_source) == STATUS_ADDRESS:
                link.context = self.status.attach(link)
            else:
                attach = self._attach_subscriber if link.is_sender else self._attach_publisher
                attach(link, identity_of(link, self._prefixes))
        except Refusal as refusal:
            link.refuse(refusal.condition, str(refusal))
        self.node.perform()

    def _attach_subscriber(self, link: Link, identity: LinkIdentity) -> None:
        now, lifetime, seen = self.node.now(), lifetime_of(link, self._longest), seen_of(link)
        unsettled, complete = unsettled_of(link), not link.remote_incomplete_unsettled
        former = former_of(link, identity, self.topic.directory)
        assert former is None or isinstance(former, SubscriberLink)
        subscriber = link.context = SubscriberLink(link, lifetime, former)
        if former is not None:
            seen, complete = former.epoch.hlc, not former.subscriber.incomplete
            unsettled = subscriber.unsettled()
        else:
            subscriber.named = unsettled or {}
        subscriber.subscriber = self.topic.attach_subscriber(
            identity,
            subscriber,
            now,
            seen=seen,
            first=link.remote_rcv_settle_mode == RCV_FIRST,
            sends_settled=subscriber.sends_settled,
            lifetime=lifetime,
            unsettled=unsettled,
            complete=complete,
            told=is_told(link),
        )
        subscriber.epoch = subscriber.subscriber.epoch

    def _attach_publisher(self, link: Link, identity: LinkIdentity) -> None:
        now, lifetime, seen = self.node.now(), lifetime_of(link, self._longest), seen_of(link)
        unsettled, complete = unsettled_of(link), not link.remote_incomplete_unsettled
        generation = generation_of(link)
        former = former_of(link, identity, self.topic.directory)
        assert former is None or isinstance(former, PublisherLink)
        publisher = link.context = PublisherLink(link, lifetime, self.node, former)
        if former is not None:
            seen, complete = former.epoch.hlc, not former.stream.incomplete
            generation, unsettled = former.stream.generation, publisher.unsettled()
        publisher.stream = self.topic.attach_publisher(
            identity,
            publisher,
            now,
            generation=generation,
            seen=seen,
            first=link.remote_rcv_settle_mode == RCV_FIRST,
            lifetime=lifetime,
            unsettled=unsettled,
            complete=complete,
        )

    def on_attached(self, link: Link) -> None:
        raise AssertionError("the client edge attaches nothing itself")

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        if condition is not None:
            container = link.connection.remote_container
            log.warning("client %s: link %s: %s: %s", container, link.name, condition.name, condition.description)
        self._gone(link, closed=closed)
        self.node.perform()

    def _gone(self, link: Link, *, closed: bool) -> None:
        """A closing detach ends the terminus, any other end of the link suspends it, if it asked for a timeout."""
        now = self.node.now()
        end = link.context
        if closed or isinstance(end, StatusEnd) or (end is not None and not end.lifetime.timeout):
            link.context = None  # else it is kept for a re-attach
        if isinstance(end, PublisherLink):
            if closed:
                self.topic.detach_publisher(end.stream)
            else:
                self.topic.suspend_publisher(end.stream, end, now)
        elif isinstance(end, SubscriberLink):
            if closed:
                self.topic.detach_subscriber(end.subscriber, end)
            else:
                end.forget_unsent(link.unsent)
                self.topic.suspend_subscriber(end.subscriber, end, now)

    def on_credit(self, link: Link) -> None:
        end = link.context
        if isinstance(end, SubscriberLink):
            self.topic.credit(end.subscriber, link.credit)
            self.node.perform()
            if link.draining and end.subscriber.answered:
                link.drained()
                self.topic.credit(end.subscriber, 0)
        elif isinstance(end, StatusEnd):
            end.on_credit()

    # deliveries: hot

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        publisher: PublisherLink = link.context
        if True in transfers.settled:
            self._publish_runs(publisher, transfers.handles, transfers.tags, transfers.messages, transfers.settled)
        else:
            self._publish(publisher, transfers.handles, transfers.tags, transfers.messages)
        self.node.perform()

    def _publish(
        self, publisher: PublisherLink, deliveries: list[Handle], tags: list[bytes], messages: list[bytes]
    ) -> None:
        records = self.topic.publish(publisher.stream, tags, messages, presettled=False)
        publisher.records.update(zip(deliveries, records, strict=True))
        publisher.handles.update(zip(records, deliveries, strict=True))

    def _publish_runs(
        self,
        publisher: PublisherLink,
        deliveries: list[Handle],
        tags: list[bytes],
        messages: list[bytes],
        settled: list[bool],
    ) -> None:
        """Settled and unsettled transfers on one link, in their order."""
        start = 0
        while start < len(settled):
            presettled = settled[start]
            end = next((i for i in range(start, len(settled)) if settled[i] != presettled), len(settled))
            run = slice(start, end)
            if presettled:
                self.topic.publish(publisher.stream, tags[run], messages[run], presettled=True)
            else:
                self._publish(publisher, deliveries[run], tags[run], messages[run])
            start = end

    def on_resumed(self, link: Link, resumed: ResumedTransfers) -> None:
        """What our map listed is known; a client that got a null map sends what is new to us. The rest is ignored."""
        publisher: PublisherLink = link.context
        if publisher.stream.reply is None:
            whole = [row[:4] for row in resumed if not row[5]]
            _ignore(link, list(compress(resumed.handles, resumed.aborted)))
            if whole:
                self.on_transfers(link, Transfers(*map(list, zip(*whole, strict=True))))
            return
        for handle, tag, _, is_settled, _, is_aborted in resumed:
            record = self.topic.transferred_again(publisher.stream, tag, aborted=is_settled or is_aborted)
            if record is None:
                _ignore(link, [handle])
            elif handle is not None:
                publisher.records[handle] = record
                publisher.handles[record] = handle
        self.node.perform()

    def on_echo(self, link: Link) -> None:
        end = link.context
        if isinstance(end, SubscriberLink):
            self.topic.echoed(end.subscriber)
        elif isinstance(end, PublisherLink):
            end.signs.answered()
        self.node.perform()

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        end = link.context
        if isinstance(end, SubscriberLink):
            self._outcomes(end, dispositions.handles, dispositions.states, dispositions.settled)
        elif isinstance(end, PublisherLink):
            self._settlements(end, dispositions.handles, dispositions.settled)
        self.node.perform()

    def _settlements(self, publisher: PublisherLink, deliveries: list[Handle], settled: list[bool]) -> None:
        handles = deliveries if False not in settled else [d for d, s in zip(deliveries, settled, strict=True) if s]
        records = [publisher.records.pop(handle) for handle in handles]
        for record in records:
            del publisher.handles[record]
        publisher.link.settle_many(handles)
        if records:
            self.topic.settle(publisher.stream, records)

    def _outcomes(self, end: SubscriberLink, deliveries: list[Handle], states: list[int], settled: list[bool]) -> None:
        """Outcomes in runs of the same state, so that the order of redeliveries is that of the client's."""
        if end.again:  # what has become of these is looked at when the core resumes them
            known = [handle in end.records for handle in deliveries]
            deliveries, states, settled = (list(compress(column, known)) for column in (deliveries, states, settled))
        if max(states, default=0) > MODIFIED:
            end.link.connection.expel(end.link, NOT_IMPLEMENTED, "transactions are not supported")
            return
        records = [end.records[handle] for handle in deliveries]
        gone = [record for record, is_settled in zip(records, settled, strict=True) if is_settled]
        modified = self._modified(end.link, deliveries, records, states) if MODIFIED in states else {}
        if gone:
            end.settle(gone)
        if states.count(ACCEPTED) == len(states):
            self.topic.outcomes(end.subscriber, records, DeliveryOutcome.ACCEPTED)
            return
        for record, details in modified.items():
            end.modify(record, details)
        for record, state, is_settled in zip(records, states, settled, strict=True):
            if state in (0, RECEIVED) and not is_settled:
                continue
            outcome = OUTCOMES.get(state, DeliveryOutcome.RELEASED)  # settled without an outcome: our default-outcome
            final = state == MODIFIED and modified[record].undeliverable
            self.topic.outcomes(end.subscriber, [record], outcome, final=final)

    @staticmethod
    def _modified(
        link: Link, deliveries: list[Handle], records: list[Record], states: list[int]
    ) -> dict[Record, OutcomeDetails]:
        """The details of these outcomes, while the handles are valid."""
        rows = zip(records, deliveries, states, strict=True)
        return {record: link.remote_outcome(handle) for record, handle, state in rows if state == MODIFIED}

    # what the core asks

    def perform(self, action: LinkAction) -> None:
        end: PublisherLink | SubscriberLink = action.link
        link = end.link
        if not link.ended:
            self._PERFORM[type(action)](self, end, action)
            link.connection.wake()

    def _deliver(self, end: SubscriberLink, action: Deliver) -> None:
        send, records, handles = end.link.send, end.records, end.handles
        if end.sends_settled or action.records[0].presettled:
            for record in action.records:
                assert record.message is not None
                send(record.key, record.message, True)
            return
        for record in action.records:
            assert record.message is not None
            handle = send(record.key, record.message)
            records[handle] = record
            handles[record] = handle

    def _redeliver(self, end: SubscriberLink, action: Redeliver) -> None:
        record = action.record
        end.settle([record])
        handle = end.link.send(record.key, end.message_again(record), end.sends_settled)
        if handle is not None:
            end.records[handle] = record
            end.handles[record] = handle

    def _resume(self, end: SubscriberLink, action: Resume) -> None:
        record = action.record
        in_hand = end.again.pop(record.key, None)
        if in_hand is not None:
            self._take_up(end, action, in_hand)
            return
        end.named.pop(record.key, None)
        aborted = action.settled and not action.state
        message = NOTHING if action.state or aborted else record.message
        assert message is not None
        handle = end.link.send(record.key, message, action.settled, resume=True, state=action.state, aborted=aborted)
        if handle is not None:
            end.records[handle] = record
            end.handles[record] = handle

    def _take_up(self, end: SubscriberLink, action: Resume, handle: Handle) -> None:
        """What a client has in hand that attached again is not transferred again, and so takes no credit."""
        state, settled = end.link.remote_state(handle)
        if action.settled:
            end.link.settle(handle)
        else:
            end.records[handle] = action.record
            end.handles[action.record] = handle
            if settled or state != action.state:
                self._outcomes(end, [handle], [state], [settled])
        self.topic.credit(end.subscriber, end.subscriber.credit + 1)

    def _echo(self, end: PublisherLink | SubscriberLink, action: Echo) -> None:
        if isinstance(end, PublisherLink):
            end.signs.ask()
        else:
            end.link.echo()

    def _settle_subscriber(self, end: SubscriberLink, action: SettleSubscriber) -> None:
        end.settle(action.records)
        if end.modified:
            for record in action.records:
                end.modified.pop(record, None)

    def _answer_deliveries(self, end: PublisherLink, action: AnswerDeliveries) -> None:
        handles = [end.handles[record] for record in action.records]
        if action.outcome is DeliveryOutcome.ACCEPTED:
            end.link.update_many(handles, ACCEPTED, action.settle)
            if action.alone:
                end.alone += action.alone
                end.link.answer_echo()  # unasked: a router that is lost can be asked no more
        else:
            for handle in handles:
                info = {PARTIAL_ACCEPTANCE: action.description}
                end.link.reject(handle, PRECONDITION_FAILED, action.description, action.settle, info=info)
        if action.settle:
            for handle, record in zip(handles, action.records, strict=True):
                del end.handles[record], end.records[handle]

    def _credit(self, end: PublisherLink, action: Credit) -> None:
        end.link.flow(action.count)

    def _answer_publisher(self, end: PublisherLink, action: AnswerPublisher) -> None:
        properties: dict[str, str | bytes] = {EPOCH: str(action.epoch), GENERATION: action.generation}
        again, end.again = end.again, {}
        if end.former is not None and end.former.generation != action.generation:  # its life has ended meanwhile
            end.link.settle_many(again)
            again = {}
        self._answer(end, action.unsettled if end.former is None else None, properties, self._max_message)
        end.former = None
        end.link.flow(action.credit - len(again))
        end.signs.begin()
        if again:
            self._publish_again(end, again)

    def _publish_again(self, publisher: PublisherLink, again: dict[Handle, Record]) -> None:
        """What a client has transferred that attached again, it does not transfer again: we do, in its place."""
        messages = [record.message for record in again.values() if record.message is not None]
        assert len(messages) == len(again), "what its publisher has not settled is not forgotten"
        self._publish(publisher, list(again), [record.tag for record in again.values()], messages)
        settled = [handle for handle in again if publisher.link.remote_state(handle)[1]]
        self._settlements(publisher, settled, [True] * len(settled))
        self.node.perform()

    def _answer_subscriber(self, end: SubscriberLink, action: AnswerSubscriber) -> None:
        self._answer(end, end.agree(action.unsettled), {EPOCH: str(action.epoch)}, None)
        self.on_credit(end.link)

    @staticmethod
    def _answer(
        end: PublisherLink | SubscriberLink,
        unsettled: dict[bytes, int] | None,
        properties: dict[str, str | bytes],
        max_message: int | None,
    ) -> None:
        end.link.answer(
            durable=end.lifetime.durable,
            expiry_policy=end.lifetime.policy,
            timeout=end.lifetime.timeout,
            max_message_size=max_message,
            properties=properties,
            unsettled=unsettled,
        )

    def _detach(self, end: PublisherLink | SubscriberLink, action: Detach) -> None:
        answered = None
        if isinstance(end, SubscriberLink) and action.condition == EXPIRED:
            answered = partial(self._told, end.subscriber)
        end.link.context = None
        end.link.detach(action.condition, action.description, answered=answered)

    def _told(self, subscriber: LocalSubscriber) -> None:
        """Its client knows that its link has ended without its doing (protocol 8, Apart)."""
        self.node.now()
        self.topic.told(subscriber)
        self.node.perform()

    _PERFORM: ClassVar[dict[type[LinkAction], Callable[..., None]]] = {
        Deliver: _deliver,
        Redeliver: _redeliver,
        Resume: _resume,
        Echo: _echo,
        SettleSubscriber: _settle_subscriber,
        AnswerDeliveries: _answer_deliveries,
        Credit: _credit,
        AnswerPublisher: _answer_publisher,
        AnswerSubscriber: _answer_subscriber,
        Detach: _detach,
    }

    def close(self, condition: str, description: str) -> None:
        """Close every client's connection; their links end without closing detaches."""
        for connection in list(self.connections):
            connection.close(condition, description)
            connection.wake()


def _ignore(link: Link, deliveries: list[Handle]) -> None:
    """Transfers that resume what is unknown here (AMQP 1.0 2.7.5), or end it: they are gone, and took no credit."""
    link.settle_many([delivery for delivery in deliveries if delivery is not None])
    if deliveries:
        link.flow(len(deliveries))
