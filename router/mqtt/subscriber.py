"""A topic that an MQTT client is subscribed to: a subscriber's link, whose client knows packet identifiers only.

A transfer is a PUBLISH, at QoS 0 if the delivery is settled. PUBACK and PUBCOMP are the outcome *accepted*. PUBREC is
no outcome, because many clients hand a message to their application only when they read PUBREL. If PUBREC were the
outcome, and this router died before it sent PUBREL, no other router would send PUBREL, and the message would be lost.

The router answers PUBREC with PUBREL at once, and does not wait until the publisher settles. A client takes only a few
messages at a time. If some of them waited for one publisher, the messages of other publishers would have to wait behind
them, and the first publisher may itself wait for one of the others.

At this router the session resumes the link with a map, because it knows the keys of the deliveries. Another router does
not know the keys, and the client cannot tell them.

`Subacks` keeps the SUBACKs of a session that wait for subscriptions.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from attrs import define, field

from router.edge.ends import ClientSubscribingEnd
from router.edge.unfit import refuse_for
from router.mqtt.connection import MqttConnection
from router.mqtt.ends import LINK, EndHost, MqttEnd, identity_at
from router.mqtt.format.fields import text
from router.mqtt.format.packets import SubscriptionOptions
from router.mqtt.format.values import Reason
from router.mqtt.translation import MqttContent, from_amqp, is_topic
from topic.actions import AnswerSubscriber, Resume
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.directory.addresses import is_pattern
from topic.edge.filters import NoLocal
from topic.edge.subscriber import ROOM
from topic.node import Node

PLAIN: Final = SubscriptionOptions()
CREDIT: Final = 1000
"""The highest number of deliveries of one subscription for which the router has no answer of the client. Deliveries
that still wait for an identifier count, too."""
CREDIT_SETTLED: Final = 10_000
"""The highest number of deliveries of one subscription at QoS 0 between two writes to the client."""


@define(eq=False)
class SentMessage:
    """A message that was sent to the client under an identifier."""

    end: "MqttSubscriber | None"
    """The end of the subscription; None once the subscription is over."""
    identifier: int
    qos: int
    record: Record
    connection: MqttConnection | None
    """The connection on which the message was last sent."""
    released: bool = False
    """Whether the router has sent PUBREL for the message."""


class SendingHost(EndHost, Protocol):
    """The session, as its subscriptions see it."""

    def carry(self, end: "MqttSubscriber", record: Record, content: MqttContent) -> None:
        """Send the message under a free identifier, as soon as there is one."""

    def drop(self, end: "MqttSubscriber", record: Record) -> None:
        """Drop a message that still waits for an identifier."""

    def carry_again(self, outgoing: SentMessage, content: MqttContent) -> None:
        """Send a copy, unless the message was already sent on this connection. If a client gets a copy on the same
        connection, it answers twice, and the router would take the second answer for the answer to the next message
        with the same identifier."""

    def carry_settled(self, end: "MqttSubscriber", record: Record, content: MqttContent) -> None: ...

    def release(self, outgoing: SentMessage) -> None:
        """Release the message, because the subscription is over: the router expects no more answer for it."""

    def answered(self, end: "MqttSubscriber") -> None:
        """The subscription is established."""

    def refused(self, end: "MqttSubscriber", reason: Reason) -> None:
        """Note that the subscription cannot be established. The SUBACK has this reason code."""


class MqttSubscriber(MqttEnd, ClientSubscribingEnd):
    host: SendingHost
    most_unanswered = CREDIT
    most_unwritten = CREDIT_SETTLED

    def __init__(
        self, host: SendingHost, node: Node, address: str, qos: int, options: SubscriptionOptions = PLAIN
    ) -> None:
        identity = identity_at(host, LINK, address)
        ClientSubscribingEnd.__init__(
            self, node, identity, host.lifetime(qos), settles_first=qos == 1, sends_settled=not qos
        )
        self.host = host
        self.qos = qos
        """The QoS that was granted."""
        self.chosen = options
        self.options = options.packed
        self.told_of_each = {"subscription-identifier": options.identifier} if options.identifier else {}
        """The properties that each PUBLISH of this subscription has."""
        self._topic = None if is_pattern(address) else text(address)
        self.records: dict[bytes, SentMessage] = {}
        """The messages that were sent and not answered, keyed by delivery key. A key means the same at all routers; an
        identifier does not."""
        self.unsent: dict[Record, None] = {}
        """The deliveries that wait for a packet identifier."""
        self._answered: dict[bytes, DeliveryOutcome] = {}
        """The outcomes of deliveries that the client has answered and the publisher has not settled, keyed by delivery
        key."""
        self._outcomes: dict[DeliveryOutcome, list[Record]] = {}

    def topic_of(self, record: Record) -> bytes:
        """The encoded topic for the PUBLISH of this delivery."""
        return self._topic or text(self.address_of(record))

    def address_of(self, record: Record) -> str:
        """The address to which the message was published."""
        return record.stream.address

    # The methods from here on attach the link.

    def subscribe(self, *, resumes: bool) -> None:
        """Attach. If the subscription existed before (`resumes`), the map has all deliveries that the session knows."""
        answered = {key: int(outcome) for key, outcome in self._answered.items()}
        now, claim = self.node.now(), self.claim(answered | dict.fromkeys(self.records, 0) if resumes else None)
        self.lifetime = self.host.lifetime(self.qos)
        own = self.identity.container, self.identity.user
        self.attach(claim, now, wants=NoLocal(*own, None) if self.chosen.no_local else None)
        self.node.perform()

    def successor(self, qos: int, options: SubscriptionOptions) -> "MqttSubscriber":
        """A new end for another QoS or other options. The new end attaches with all deliveries of this end, and takes
        the link over; this end is then over. The link is not closed in between, because a terminus may end with its
        link."""
        other = self.another(qos, options)
        other.records, other._answered = self.records, self._answered
        for outgoing in other.records.values():
            outgoing.end = other
        self.is_detached = True
        self._drop_unsent()
        return other

    def another(self, qos: int, options: SubscriptionOptions) -> "MqttSubscriber":
        return MqttSubscriber(self.host, self.node, self.identity.address, qos, options)

    def gone(self, now: float, *, closed: bool) -> None:
        self._drop_unsent()
        if closed:
            for outgoing in self.records.values():
                outgoing.end = None
        self.leave(now, closed=closed)

    # The client's session calls the methods from here on.

    def answer(self, outgoing: SentMessage, outcome: DeliveryOutcome) -> None:
        """The client has given this answer. `go_on` passes the outcome to the core."""
        if self.records.pop(outgoing.record.key, None) is None:
            return
        self._answered[outgoing.record.key] = outcome
        self._outcomes.setdefault(outcome, []).append(outgoing.record)

    def go_on(self) -> None:
        """Pass the outcomes to the core, grant credit, and perform the core's actions."""
        outcomes, self._outcomes = self._outcomes, {}
        for outcome, records in outcomes.items():
            self.node.topic.outcomes(self.subscriber, records, outcome)
        self._grant()

    def _grant(self) -> None:
        if self.is_answered and not self.ended:
            most = self.most_unanswered if self.qos else self.most_unwritten
            self.node.topic.credit(self.subscriber, max(0, most - len(self.records) - len(self.unsent)))
        self.node.perform()

    @property
    def awaits_writing(self) -> bool:
        return self.is_answered and (
            self.subscriber.room < ROOM // 2 or self.subscriber.credit < self.most_unanswered // 2
        )

    def written(self) -> None:
        if not self.ended and self.is_answered:
            self.node.topic.room(self.subscriber, ROOM)
            self._grant()

    # The core calls the methods from here on.

    def begin(self, action: AnswerSubscriber) -> None:
        # The session itself knows the deliveries that the attach has named.
        self.named.clear()
        self.host.answered(self)
        self._grant()

    def forget(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._end(key)

    def ask(self) -> None:
        """Answer the core's echo at once. The answer of an AMQP client shows that the client has read all earlier
        frames. The session answers for an MQTT client, and has already read everything. The answer need not show more:
        an MQTT client never takes the key of a delivery to another router."""
        self.node.topic.echoed(self.subscriber)
        self.node.perform()

    def _end(self, key: bytes) -> None:
        """The delivery is settled, whether the client has answered it or not."""
        self._answered.pop(key, None)
        if (outgoing := self.records.pop(key, None)) is not None:
            self.host.release(outgoing)

    def redeliver(self, record: Record) -> None:
        self.deliver([record])

    def deliver(self, records: list[Record]) -> None:
        refused = []
        settled = not self.qos or records[0].presettled
        for record in records:
            assert record.message is not None
            content = from_amqp(record.message) if self._topic or is_topic(self.address_of(record)) else None
            if content is None:
                refused.append(record)
            elif settled:
                self.host.carry_settled(self, record, content)
            elif (outgoing := self.records.get(record.key)) is not None:
                outgoing.record = record
                self.host.carry_again(outgoing, content)
            else:
                self.host.carry(self, record, content)
        if refused:
            self.refuse(refused)

    def refuse(self, records: list[Record]) -> None:
        """Refuse deliveries that the client cannot receive."""
        refuse_for(self.node, self.subscriber, records, "the message is too large, or its body has no form in MQTT")

    def resume(self, action: Resume) -> None:
        key, outgoing = action.record.key, self.records.get(action.record.key)
        if action.settled:
            self._end(key)
        elif not action.state and outgoing is not None:
            self.deliver([action.record])
        # A delivery that does not wait for an answer any more was answered by the client since the attach.
        elif not action.state:
            outcome = self._answered.get(key, DeliveryOutcome.ACCEPTED)
            self.node.topic.outcomes(self.subscriber, [action.record], outcome)
            self.node.perform()

    def settle(self, records: Sequence[Record]) -> None:
        for record in records:
            if record in self.unsent:
                self.host.drop(self, record)
            else:
                self._end(record.key)

    def _drop_unsent(self) -> None:
        for record in list(self.unsent):
            self.host.drop(self, record)


@define(eq=False)
class WaitingSuback:
    """A SUBACK, which is sent when all routers in contact know its subscriptions (docs/mqtt.md)."""

    identifier: int
    reasons: list[int]
    places: "dict[MqttEnd, list[int]]" = field(factory=dict)
    """The places of each end's topic in `reasons`."""
    left: int = 1
    """The number of requested subscriptions that are not established yet, plus one while more are to be requested: the
    SUBACK must not leave before the last request."""

    def count_down(self) -> bool:
        """Count one event that the SUBACK waits for. Returns whether it was the last one."""
        self.left -= 1
        return not self.left


class Subacks:
    """The waiting SUBACKs of one session, keyed by the end that they wait for."""

    def __init__(self) -> None:
        self._of: dict[MqttEnd, list[WaitingSuback]] = {}

    def wait(self, end: MqttEnd, waiting: WaitingSuback, places: list[int]) -> None:
        """Let the SUBACK wait for the end, whose topic has these places in it."""
        waiting.left += 1
        waiting.places[end] = places
        self._of.setdefault(end, []).append(waiting)

    def hand_over(self, end: MqttEnd, successor: MqttEnd) -> None:
        """Let the SUBACKs that wait for `end` wait for `successor` instead."""
        self._of[successor] = self._of.pop(end, [])
        for waiting in self._of[successor]:
            waiting.places[successor] = waiting.places.pop(end)

    def refuse(self, end: MqttEnd, reason: Reason) -> None:
        """Write the reason code of the end's refusal into the SUBACKs that wait for it."""
        for waiting in self._of.get(end, ()):
            for place in waiting.places[end]:
                waiting.reasons[place] = reason

    def answered(self, end: MqttEnd) -> list[WaitingSuback]:
        """The end's subscription is established or over. Returns the SUBACKs that no longer wait for a subscription."""
        return [waiting for waiting in self._of.pop(end, ()) if waiting.count_down()]

    def clear(self) -> None:
        self._of.clear()
