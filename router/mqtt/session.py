"""The session of an MQTT client at this router: its topics, and the message that each packet identifier stands for.

While this router lives, a session here continues exactly where it was, because both ends know the identifiers. Another
router knows the client's links by the directory, but no identifiers (docs/mqtt.md has the consequences).
`router.mqtt.edge` decides who may have a session, and which requests are refused.
"""

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import Any, Protocol

from router.mqtt.aliases import ALIAS, SentAliases
from router.mqtt.connection import MqttConnection
from router.mqtt.ends import are_whole
from router.mqtt.format.fields import extended
from router.mqtt.format.packets import (
    AckPacket,
    FilterRequest,
    PublishPacket,
    SubscriptionOptions,
    ack,
    publish,
    suback,
)
from router.mqtt.format.values import REFUSED, V3, MqttError, PacketKind, Reason
from router.mqtt.identifiers import MOST_SENT, Identifiers
from router.mqtt.presettled import PresettledPublisher
from router.mqtt.publisher import MqttPublisher, ReceivedMessage
from router.mqtt.shared import subscriber_for
from router.mqtt.subscriber import MqttSubscriber, SentMessage, Subacks, WaitingSuback
from router.mqtt.translation import EXPIRY, MqttContent, read_again, to_amqp
from topic.actions import Detach
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.directory.entry import TOGETHER, Index, Lifetime, LinkEntry, Role
from topic.identity import Epoch
from topic.node import Node

log = logging.getLogger("oncemesh.mqtt")


class SessionKeeper(Protocol):
    """An object that keeps the sessions of this router: `router.mqtt.edge`."""

    def link_detached(self, session: "MqttSession", action: Detach) -> None:
        """The core has detached a link of this session. The session is at another router, or has ended without its
        client."""

    def forget(self, session: "MqttSession") -> None:
        """Forget the session, unless its client has connected again or has begun another session."""


class MqttSession:
    def __init__(self, node: Node, client: str, user: str, keeper: SessionKeeper) -> None:
        self.client, self.user, self.timeout = client, user, 0
        self.is_expected = False
        """Whether the client counts on this session: it has read a CONNACK about the session, or has asked for a new
        session. If a router has made the session and the client has not read that CONNACK, the client may still count
        on its former session."""
        self.resumes = False
        self.told: dict[Index, Epoch] | None = None
        """The links that the session had when the client connected, as the CONNACK reported them. They continue or end
        once it is certain that the client is here. None: no link waits for that."""
        self.connection: MqttConnection | None = None
        self.was_left, self.waiting_bytes = False, 0
        self.publishers: dict[tuple[str, int], MqttPublisher] = {}
        """The publishers for QoS 1 and 2, keyed by topic and QoS. The least recently used one is first."""
        self.presettled: dict[tuple[str, int], PresettledPublisher] = {}
        """The publishers for QoS 0, keyed by topic and 0. Publishers of a former connection are among them as long as
        messages of them still wait."""
        self.subscribers: dict[str, MqttSubscriber] = {}
        self.received: dict[int, ReceivedMessage] = {}
        """The client's messages that are not over, keyed by packet identifier."""
        self.sent: dict[int, SentMessage] = {}
        """The messages that the router has sent, keyed by packet identifier."""
        self._node = node
        self._keeper = keeper
        self._quota, self._largest = MOST_SENT, 0
        self._identifiers = Identifiers()
        self._unsent: OrderedDict[tuple[MqttSubscriber, Record], None] = OrderedDict()
        self._touched: dict[MqttPublisher | PresettledPublisher | MqttSubscriber, None] = {}
        self._subacks = Subacks()

    def __str__(self) -> str:
        return f"client {self.client!r}"

    def begin(self, connection: MqttConnection, asked: dict[str, Any]) -> None:
        """The client has connected. `asked`: the properties of its CONNECT."""
        self.connection = connection
        self.presettled = {index: end for index, end in self.presettled.items() if end.comes_back()}
        self._quota = min(MOST_SENT, asked.get("receive-maximum", MOST_SENT))
        self._largest = asked.get("maximum-packet-size", 0)
        connection.gives_reasons = bool(asked.get("request-problem-information", 1))
        connection.aliases = SentAliases(asked.get("topic-alias-maximum", 0))

    @property
    def was_here(self) -> bool:
        """Whether the session has links or messages here that can continue."""
        return bool(self.publishers or self.subscribers or self.sent)

    def take_over(self, known: Sequence[LinkEntry]) -> None:
        """Continue these links, which the client had at another router."""
        self.resumes = True
        if any(entry.role is Role.SUBSCRIBER and entry.lifetime.durable == 2 for entry in known):
            self._identifiers.may_be_held()

    def free(self) -> None:
        """Send PUBREL for each identifier that the client may hold from another router."""
        for number in self._identifiers.to_be_let_go():
            self._say(PacketKind.PUBREL, number)

    def resume(self) -> None:
        """Continue all messages and links that were in progress."""
        self.free()
        for outgoing in list(self.sent.values()):
            if outgoing.released:
                self._say(PacketKind.PUBREL, outgoing.identifier)
            # The identifier is free, because a client sends no PUBACK for a message of its former connection.
            elif outgoing.end is None and outgoing.qos == 1:
                self._forget(outgoing.identifier)
            elif outgoing.end is None:
                self.release(outgoing)
        for subscriber in list(self.subscribers.values()):
            subscriber.subscribe(resumes=True)
        for publisher in list(self.publishers.values()):
            publisher.resume()

    def last(self, timeout: int) -> None:
        """Let the session outlive its connection for another time, in seconds. Its links attach again, because the time
        of a link belongs to its attach."""
        if timeout == self.timeout:
            return
        self.timeout = timeout
        for subscriber in list(self.subscribers.values()):
            subscriber.leave(self._node.now(), closed=False)
            subscriber.subscribe(resumes=True)
        for publisher in list(self.publishers.values()):
            publisher.resume()

    def is_whole(self, known: Collection[LinkEntry]) -> bool:
        """Whether the client's identifiers still stand for the messages that this router knows under them. The
        directory shows this: the client must not have continued its links elsewhere."""
        return are_whole(known, self.ends)

    @property
    def ends(self) -> list[MqttPublisher | MqttSubscriber]:
        """The ends of the session's links that outlive a connection."""
        return [*self.publishers.values(), *self.subscribers.values()]

    def lifetime(self, durable: int) -> Lifetime:
        """The lifetime of a link. The `durable` field of a subscription's lifetime is its QoS, because other routers
        read this field."""
        return Lifetime(self.timeout, TOGETHER, durable) if self.timeout else Lifetime()

    def gone(self, now: float, *, closed: bool) -> None:
        self.was_left, self.connection = self.connection is not None and self.connection.closing, None
        self.told = None
        self._subacks.clear()
        self._touched.clear()
        for incoming in self.received.values():
            incoming.is_read = False
        for end in (*self.ends, *self.presettled.values()):
            end.gone(now, closed=closed)
        self.received = {number: one for number, one in self.received.items() if one.record is not None}

    def link_detached(self, action: Detach) -> None:
        self._keeper.link_detached(self, action)

    # The methods from here on take messages from the client.

    def publish(self, packet: PublishPacket, most: int) -> None:
        """Take a PUBLISH for which there is an end. A message has at most `most` bytes. Raises MqttError if it is
        larger."""
        index, expiry, until_ms = (packet.topic, packet.qos), packet.properties.get(EXPIRY), None
        if expiry is not None:
            until_ms = self._node.topic.outlet.time_us // 1000 + 1000 * expiry
        message = to_amqp(packet.payload, packet.qos, packet.properties, until_ms)
        if len(message) > most:
            why = f"the message has {len(message)} bytes, expected at most {most}"
            raise MqttError(Reason.TOO_LARGE, why, "max_message")
        until = inf if expiry is None else self._node.now() + expiry
        if not packet.qos:
            # Move the link to the end, because the most recently used one is the last.
            once = self.presettled[index] = self.presettled.pop(index)
            once.take(message, until)
            self._touched[once] = None
        elif not self._is_known(packet):
            end = self.publishers[index] = self.publishers.pop(index)
            same = message if until_ms is None else to_amqp(packet.payload, packet.qos, packet.properties)
            # Make the tag from the bytes without the expiry: a copy of the message expires at another time.
            tag = end.tag(packet.identifier, same)
            incoming = ReceivedMessage(end, packet.identifier, packet.qos, packet.dup, tag, message, until, until_ms)
            self.received[packet.identifier] = incoming
            end.take(incoming)
            self._touched[end] = None

    def _is_known(self, packet: PublishPacket) -> bool:
        """Whether the packet is a copy of a message in progress. If the packet is another message with the same
        identifier, the client no longer knows the old message, which is then released."""
        known = self.received.get(packet.identifier)
        if known is None:
            return False
        message = to_amqp(packet.payload, packet.qos, packet.properties, known.until_ms)
        if known.qos == packet.qos and known.message == message and known.end.topic == packet.topic:
            known.is_read = True
            if known.outcome is not None:
                self.answer(known, *known.outcome)
                if known.released:
                    self._release(known)
            elif known.told:
                self._say(PacketKind.PUBREC, packet.identifier)
            return True
        del self.received[packet.identifier]
        self._release(known)
        return False

    def _release(self, incoming: ReceivedMessage) -> None:
        incoming.end.release(incoming)
        self._touched[incoming.end] = None

    def free_identifiers(self, released: Iterable[ReceivedMessage]) -> None:
        """Free the identifiers of messages that the mesh has settled, and send the client PUBCOMP for each. PUBCOMP
        must not come before the mesh has settled. Otherwise the client could publish an equal message under the same
        identifier, lose its connection, and send a copy of this new message to another router. That router would take
        it for a copy of the old one."""
        for incoming in released:
            if self.received.get(incoming.identifier) is incoming:
                del self.received[incoming.identifier]
                # Skip a message that the client has not sent on this connection.
                # The client first sends PUBREL, and then gets its PUBCOMP.
                if incoming.is_read:
                    self._say(PacketKind.PUBCOMP, incoming.identifier)

    def answer(self, incoming: ReceivedMessage, accepted: bool, why: str) -> None:
        """Send the client the outcome. MQTT 3.1.1 has one acknowledgement for every outcome (3.1.1 3.3.5)."""
        connection = self.connection
        # A client that is away gets the outcome when it is back.
        if connection is None:
            return
        if not incoming.is_read:
            incoming.outcome = accepted, why
            return
        incoming.outcome = None
        if not accepted:
            log.warning("%s: a message to %s was not accepted: %s", self, incoming.end.topic, why)
        refused = 0 if accepted or connection.version == V3 else Reason.IMPLEMENTATION
        if incoming.qos == 1:
            self.received.pop(incoming.identifier, None)
            connection.send(
                ack(connection.version, PacketKind.PUBACK, incoming.identifier, refused, connection.told(why))
            )
            return
        if refused:
            self.received.pop(incoming.identifier, None)
            incoming.released = True
        connection.send(ack(connection.version, PacketKind.PUBREC, incoming.identifier, refused, connection.told(why)))

    # The methods from here on handle the client's answers.

    def acknowledge(self, packet: AckPacket) -> None:
        number = packet.identifier
        match packet.kind:
            case PacketKind.PUBREL:
                if (incoming := self.received.get(number)) is not None and incoming.qos == 2:
                    incoming.is_read = True
                    self._release(incoming)
                else:
                    self._say(PacketKind.PUBCOMP, number, 0 if self.resumes else Reason.ID_NOT_FOUND)
            case PacketKind.PUBREC:
                self._received(number, packet.reason)
            case PacketKind.PUBACK:
                if (outgoing := self.sent.get(number)) is not None and outgoing.qos == 1:
                    self._answered(outgoing, packet.reason)
                    self._forget(number)
            case PacketKind.PUBCOMP if not self._identifiers.release(number):
                if (outgoing := self.sent.get(number)) is not None and outgoing.released:
                    # The reason code does not matter: even with "not found", the client has had the message.
                    self._answered(outgoing, 0)
                    self._forget(number)

    def _received(self, number: int, reason: int) -> None:
        outgoing = self.sent.get(number)
        if outgoing is None or outgoing.qos != 2:
            self._say(PacketKind.PUBREL, number, Reason.ID_NOT_FOUND)
            return
        if reason >= REFUSED and not outgoing.released:
            self._answered(outgoing, reason)
            self._forget(number)
        else:
            outgoing.released = True
            self._say(PacketKind.PUBREL, number)

    def _answered(self, outgoing: SentMessage, reason: int) -> None:
        if outgoing.end is not None:
            outgoing.end.answer(outgoing, DeliveryOutcome.REJECTED if reason >= REFUSED else DeliveryOutcome.ACCEPTED)
            self._touched[outgoing.end] = None

    def batch(self) -> None:
        """Continue the links that the packets of the last read concern."""
        touched, self._touched = self._touched, {}
        for end in touched:
            end.go_on()
        while self._unsent and self._has_place and self.connection is not None:
            end, record = next(iter(self._unsent))
            self.drop(end, record)
            assert record.message is not None
            self._carry(end, record, read_again(record.message))

    # The methods from here on send messages to the client.

    @property
    def _has_place(self) -> bool:
        return len(self.sent) < self._quota and bool(self._identifiers)

    def carry(self, end: MqttSubscriber, record: Record, content: MqttContent) -> None:
        if self._unsent or not self._has_place:
            end.unsent[record] = self._unsent[end, record] = None
        else:
            self._carry(end, record, content)

    def drop(self, end: MqttSubscriber, record: Record) -> None:
        del end.unsent[record], self._unsent[end, record]

    def _carry(self, end: MqttSubscriber, record: Record, content: MqttContent) -> None:
        number, qos = self._identifiers.take(), min(end.qos, content.qos)
        if not self._send(end, record, content, qos, number):
            self._identifiers.give_back(number)
            end.refuse([record])
            return
        self.sent[number] = end.records[record.key] = SentMessage(end, number, qos, record, self.connection)

    def carry_again(self, outgoing: SentMessage, content: MqttContent) -> None:
        assert outgoing.end is not None
        if not outgoing.released and outgoing.connection is not self.connection:
            outgoing.connection = self.connection
            self._send(outgoing.end, outgoing.record, content, outgoing.qos, outgoing.identifier, dup=True)

    def carry_settled(self, end: MqttSubscriber, record: Record, content: MqttContent) -> None:
        if not self._send(end, record, content, 0, 0):
            end.refuse([record])

    def _send(
        self, end: MqttSubscriber, record: Record, content: MqttContent, qos: int, number: int, *, dup: bool = False
    ) -> bool:
        """Send a message. Returns False if the packet is larger than the client accepts."""
        connection, topic = self.connection, end.topic_of(record)
        assert connection is not None
        aliases, shown, more = connection.aliases, topic, end.told_of_each
        if content.until_ms is not None:
            more = more | content.expiry_at(self._node.topic.outlet.time_us // 1000)
        if alias := aliases.alias_of(topic):
            shown, more = aliases.shown(topic), more | {ALIAS: alias}
        found = b"" if connection.version == V3 else extended(content.properties, more) if more else content.properties
        packet = publish(shown, content.payload, qos, number, found, dup=dup)
        if 0 < self._largest < len(packet):
            return False
        if alias:
            aliases.was_sent(topic, alias)
        connection.send(packet)
        return True

    def _forget(self, number: int) -> None:
        del self.sent[number]
        self._identifiers.give_back(number)

    def release(self, outgoing: SentMessage) -> None:
        # The identifier stays in use, because a PUBACK of QoS 1 may be under way.
        outgoing.end = None
        if outgoing.qos == 2 and not outgoing.released:
            outgoing.released = True
            self._say(PacketKind.PUBREL, outgoing.identifier)

    # The methods from here on are about subscriptions.

    def subscribe(self, identifier: int, granted: Sequence[tuple[FilterRequest, int]]) -> None:
        """Subscribe to topics, each with its granted QoS, or with a reason code of at least 0x80 if it was refused."""
        waiting = WaitingSuback(identifier, [reason for _, reason in granted])
        # If a SUBSCRIBE names a topic twice, the last one counts.
        last = {asked.filter: (qos, asked.options) for asked, qos in granted if qos < REFUSED}
        places: dict[str, list[int]] = {address: [] for address in last}
        for place, (asked, qos) in enumerate(granted):
            if qos < REFUSED:
                places[asked.filter].append(place)
        for address, (qos, options) in last.items():
            self._subscribe(address, qos, options, waiting, places[address])
        if waiting.count_down():
            self._say_suback(waiting)

    def _subscribe(
        self, address: str, qos: int, options: SubscriptionOptions, waiting: WaitingSuback, places: list[int]
    ) -> None:
        end = self.subscribers.get(address)
        if end is not None and (end.qos, end.chosen) == (qos, options):
            if not end.is_answered:
                self._subacks.wait(end, waiting, places)
            return
        if end is None:
            new = subscriber_for(self, self._node, address, qos, options)
        else:
            new = end.successor(qos, options)
        self.subscribers[address] = new
        if end is not None:
            self._subacks.hand_over(end, new)
        self._subacks.wait(new, waiting, places)
        new.subscribe(resumes=end is not None)

    def answered(self, end: MqttSubscriber) -> None:
        for waiting in self._subacks.answered(end):
            self._say_suback(waiting)

    def refused(self, end: MqttSubscriber, reason: Reason) -> None:
        self.subscribers = {name: one for name, one in self.subscribers.items() if one is not end}
        self._subacks.refuse(end, reason)
        self.answered(end)

    def _say_suback(self, waiting: WaitingSuback) -> None:
        if (connection := self.connection) is not None:
            connection.send(suback(connection.version, PacketKind.SUBACK, waiting.identifier, waiting.reasons))

    def unsubscribe(self, identifier: int, filters: Sequence[str], now: float) -> None:
        connection, reasons = self.connection, []
        assert connection is not None
        for address in filters:
            end = self.subscribers.pop(address, None)
            reasons.append(Reason.NO_SUBSCRIPTION if end is None else Reason.SUCCESS)
            if end is not None:
                end.gone(now, closed=True)
                self.answered(end)
        self._node.perform()
        connection.send(suback(connection.version, PacketKind.UNSUBACK, identifier, reasons))

    def _say(self, kind: PacketKind, identifier: int, reason: int = 0) -> None:
        if self.connection is not None:
            self.connection.send(ack(self.connection.version, kind, identifier, reason))
