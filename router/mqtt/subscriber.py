"""A topic that an MQTT client is subscribed to: a subscriber's link, whose client knows packet identifiers only.

A transfer is a PUBLISH, at QoS 0 if the delivery is settled. PUBACK, or PUBCOMP, is the outcome *accepted*: many a
client hands a message on when it reads PUBREL, and one that reads none here, as this router has died, would never do so
elsewhere. PUBREL answers PUBREC at once and waits for no publisher: clients take few messages at once. One that waited
with all of them until their publisher settles would hold up others, for whom that publisher may wait. The session is
what resumes the link, at this router: its map has the keys. At another router nobody has them.

`Subacks` has the SUBACKs that wait for subscriptions, of all of a session.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from attrs import define

from router.edge.ends import ClientSubscribingEnd
from router.edge.unfit import refuse_for
from router.mqtt.connection import MqttConnection
from router.mqtt.ends import LINK, EndHost, MqttEnd, identity_at
from router.mqtt.format.fields import text
from router.mqtt.message import MqttContent, from_amqp, is_topic
from topic.actions import AnswerSubscriber, Resume
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.directory.addresses import is_pattern
from topic.edge.subscriber import ROOM
from topic.node import Node

CREDIT: Final = 1000
"""Deliveries that a subscription may have that its client has not answered, be it that they wait for an identifier."""
CREDIT_SETTLED: Final = 10_000
"""The same at QoS 0, between two writes."""


@define(eq=False)
class SentMessage:
    """What was sent to the client under an identifier."""

    end: "MqttSubscriber | None"
    """None once the subscription is over."""
    identifier: int
    qos: int
    record: Record
    connection: MqttConnection | None
    """On which it was sent last."""
    released: bool = False
    """PUBREL was sent."""


class SendingHost(EndHost, Protocol):
    """The session, as its subscriptions see it."""

    def carry(self, end: "MqttSubscriber", record: Record, content: MqttContent) -> None:
        """Send it under a free identifier; as soon as there is one."""

    def drop(self, end: "MqttSubscriber", record: Record) -> None:
        """Of what waits for one."""

    def carry_again(self, outgoing: SentMessage, content: MqttContent) -> None:
        """Send a copy; on another connection than the message was. On the same one it would be answered twice, and the
        second answer be taken for that to what has the identifier next."""

    def carry_settled(self, end: "MqttSubscriber", record: Record, content: MqttContent) -> None: ...

    def let_go(self, outgoing: SentMessage) -> None:
        """Nothing is expected of the client any more."""

    def answered(self, end: "MqttSubscriber") -> None:
        """The subscription holds."""


class MqttSubscriber(MqttEnd, ClientSubscribingEnd):
    host: SendingHost

    def __init__(self, host: SendingHost, node: Node, address: str, qos: int) -> None:
        identity = identity_at(host, LINK, address)
        ClientSubscribingEnd.__init__(
            self, node, identity, host.lifetime(qos), settles_first=qos == 1, sends_settled=not qos
        )
        self.host = host
        self.qos = qos
        """Granted."""
        self._topic = None if is_pattern(address) else text(address)
        self.records: dict[bytes, SentMessage] = {}
        """By key: sent, and not answered. On other routers the key means the same, an identifier nothing."""
        self.unsent: dict[Record, None] = {}
        """What waits for an identifier."""
        self._answered: dict[bytes, DeliveryOutcome] = {}
        """By key: what the client has answered, and its publisher has not settled."""
        self._outcomes: dict[DeliveryOutcome, list[Record]] = {}

    def topic_of(self, record: Record) -> bytes:
        """As PUBLISH has it."""
        return self._topic or text(record.stream.address)

    # attaching

    def subscribe(self, *, resumes: bool) -> None:
        """Attach. If the subscription was there before, its map has all that the session knows of it."""
        answered = {key: int(outcome) for key, outcome in self._answered.items()}
        now, claim = self.node.now(), self.claim(answered | dict.fromkeys(self.records, 0) if resumes else None)
        self.lifetime = self.host.lifetime(self.qos)
        self.attach(claim, now)
        self.node.perform()

    def successor(self, qos: int) -> "MqttSubscriber":
        """For another QoS: it is to attach with all that is under way, and takes the link from this one, which is over.
        So the terminus goes on, also one that would end with its link."""
        other = MqttSubscriber(self.host, self.node, self.identity.address, qos)
        other.records, other._answered = self.records, self._answered
        for outgoing in other.records.values():
            outgoing.end = other
        self.is_detached = True
        self._drop_unsent()
        return other

    def gone(self, now: float, *, closed: bool) -> None:
        self._drop_unsent()
        if closed:
            for outgoing in self.records.values():
                outgoing.end = None
        self.leave(now, closed=closed)

    # what the client does

    def answer(self, outgoing: SentMessage, outcome: DeliveryOutcome) -> None:
        """It is told to the core with `go_on`."""
        if self.records.pop(outgoing.record.key, None) is None:
            return
        self._answered[outgoing.record.key] = outcome
        self._outcomes.setdefault(outcome, []).append(outgoing.record)

    def go_on(self) -> None:
        """What comes of it is performed."""
        outcomes, self._outcomes = self._outcomes, {}
        for outcome, records in outcomes.items():
            self.node.topic.outcomes(self.subscriber, records, outcome)
        self._grant()

    def _grant(self) -> None:
        if self.is_answered and not self.ended:
            most = CREDIT if self.qos else CREDIT_SETTLED
            self.node.topic.credit(self.subscriber, max(0, most - len(self.records) - len(self.unsent)))
        self.node.perform()

    @property
    def awaits_writing(self) -> bool:
        return self.is_answered and (self.subscriber.room < ROOM // 2 or self.subscriber.credit < CREDIT // 2)

    def written(self) -> None:
        if not self.ended and self.is_answered:
            self.node.topic.room(self.subscriber, ROOM)
            self._grant()

    # what the core asks

    def begin(self, action: AnswerSubscriber) -> None:
        self.named.clear()  # the session knows what that was
        self.host.answered(self)
        self._grant()

    def forget(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._end(key)

    def ask(self) -> None:
        """The session has read all of it; the client brings no keys elsewhere."""
        self.node.topic.echoed(self.subscriber)
        self.node.perform()

    def _end(self, key: bytes) -> None:
        """The delivery is settled: also where the client has not answered."""
        self._answered.pop(key, None)
        if (outgoing := self.records.pop(key, None)) is not None:
            self.host.let_go(outgoing)

    def redeliver(self, record: Record) -> None:
        self.deliver([record])

    def deliver(self, records: list[Record]) -> None:
        refused = []
        settled = not self.qos or records[0].presettled
        for record in records:
            assert record.message is not None
            content = from_amqp(record.message) if self._topic or is_topic(record.stream.address) else None
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
        """The client cannot be given these."""
        refuse_for(self.node, self.subscriber, records, "the message is too large, or its body has no form in MQTT")

    def resume(self, action: Resume) -> None:
        key, outgoing = action.record.key, self.records.get(action.record.key)
        if action.settled:
            self._end(key)
        elif not action.state and outgoing is not None:
            self.deliver([action.record])
        elif not action.state:  # it has answered since
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
    """It is said when all routers in contact know of its subscriptions (docs/mqtt.md)."""

    identifier: int
    reasons: list[int]
    left: int = 1
    """Subscriptions that do not hold yet, and one while not all are asked for."""

    def less(self) -> bool:
        """It waits for one thing less. Whether that was the last."""
        self.left -= 1
        return not self.left


class Subacks:
    """Of one session, by the ends that they wait for."""

    def __init__(self) -> None:
        self._of: dict[MqttEnd, list[WaitingSuback]] = {}

    def wait(self, end: MqttEnd, waiting: WaitingSuback) -> None:
        waiting.left += 1
        self._of.setdefault(end, []).append(waiting)

    def hand_over(self, end: MqttEnd, successor: MqttEnd) -> None:
        """What waits for one waits for the other."""
        self._of[successor] = self._of.pop(end, [])

    def answered(self, end: MqttEnd) -> list[WaitingSuback]:
        """It holds, or is over. Returns those that wait for nothing more."""
        return [waiting for waiting in self._of.pop(end, ()) if waiting.less()]

    def clear(self) -> None:
        self._of.clear()
