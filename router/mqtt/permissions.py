"""Decides what an MQTT client may publish and subscribe to. A refusal has a reason code, and words for the log."""

import logging
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, TypeVar

from router.edge.attach import LONGEST_ADDRESS, Refusal, why_no_address, why_several_kinds
from router.edge.guard import Guard
from router.edge.queue_address import address_inside
from router.edge.topics import durable_of, is_known_dynamic
from router.mesh.config import Limits
from router.mqtt.connection import MqttConnection
from router.mqtt.format.packets import AskedWill, FilterRequest, PublishPacket, ack
from router.mqtt.format.values import REFUSED, V3, V5, MqttError, PacketKind, Reason
from router.mqtt.presettled import PresettledPublisher
from router.mqtt.publisher import MqttPublisher
from router.mqtt.session import MqttSession
from router.mqtt.shared import is_shared, missing_sets, topic_filter_of
from router.mqtt.translation import to_amqp
from topic.node import Node
from topic.settings import is_under
from topic.wills.will import MOST_WILL

log = logging.getLogger("oncemesh.mqtt")

LONGEST_SHOWN: Final = 100
"""The highest number of characters of a topic that the log shows."""
MOST_LOOKED_AT: Final = 100
"""The highest number of topics among which the router looks for an idle one, when it needs room for a further topic."""
Publisher = TypeVar("Publisher", MqttPublisher, PresettledPublisher)


class Permissions:
    """The permissions at one router."""

    def __init__(self, node: Node, guard: Guard, prefixes: Sequence[str], limits: Limits) -> None:
        self._node = node
        self._guard = guard
        self._prefixes = tuple(prefixes)
        self._limits = limits

    def grant(
        self, connection: MqttConnection, session: MqttSession, filters: Iterable[FilterRequest]
    ) -> list[tuple[FilterRequest, int]]:
        """Answer one SUBSCRIBE: each filter with its granted QoS, or with the reason code of its refusal."""
        granted, fresh, kept = list[tuple[FilterRequest, int]](), set[str](), set[str]()
        durable = durable_of(self._node, connection.user)
        for asked in filters:
            qos = self._grant(connection, session, asked, len(fresh), durable + len(kept))
            granted.append((asked, qos))
            if qos < REFUSED and asked.filter not in session.subscribers:
                fresh.add(asked.filter)
            if qos < REFUSED and _begins_to_last(session, asked):
                kept.add(asked.filter)
        return granted

    def _grant(
        self, connection: MqttConnection, session: MqttSession, asked: FilterRequest, fresh: int, durable: int
    ) -> int:
        """The QoS that a subscription is granted, or the reason code of its refusal. `fresh`: the subscriptions that
        this SUBSCRIBE has granted already. `durable`: the number of durable subscriptions of the user."""
        why = self._why_not(connection, session, asked, fresh)
        if why is None and _begins_to_last(session, asked):
            why = self._cannot_be_kept(connection, durable)
        if why is None:
            return asked.qos
        reason, what = why
        log.warning("%s: a subscription to %r was refused: %s", session, asked.filter[:LONGEST_SHOWN], what)
        return reason

    def _why_not(
        self, connection: MqttConnection, session: MqttSession, asked: FilterRequest, fresh: int
    ) -> tuple[Reason, str] | None:
        """The reason for which the client may not have this subscription; None if it may. Raises MqttError if the
        request breaks MQTT."""
        address: str | None = asked.filter
        if is_shared(asked.filter):
            address = topic_filter_of(asked.filter)
            if asked.options.no_local:
                raise MqttError(Reason.PROTOCOL_ERROR, f"{asked.filter[:LONGEST_SHOWN]!r} is shared and has no-local")
        if address is None:
            return Reason.BAD_FILTER, "a shared subscription is $share/GROUP/FILTER, and the group has no + or #"
        if any(len(level) > 1 and ("+" in level or "#" in level) for level in address.split("/")):
            return Reason.BAD_FILTER, "a wildcard is only a part of a level, expected a whole level"
        if is_shared(asked.filter) and (what := missing_sets(self._node, asked.filter)):
            return Reason.NO_SHARED, what
        kind = self._node.topic.kinds.of(address)
        if asked.options.no_local and not kind.takes_filters:
            return Reason.IMPLEMENTATION, f"{address!r} is no topic: no-local is not supported there"
        if is_shared(asked.filter) and not kind.takes_filters:
            return Reason.IMPLEMENTATION, f"{address!r} is no topic: one of its subscribers gets each message anyway"
        if (known := session.subscribers.get(asked.filter)) is None:
            return self.refusal(connection, session, address, fresh, receives=True)
        # A new QoS or new options attach the link of the subscription again.
        if (known.qos, known.chosen) != (asked.qos, asked.options):
            return self._cannot_begin(connection)
        return None

    def refusal(
        self, connection: MqttConnection, session: MqttSession, address: str, fresh: int = 0, *, receives: bool
    ) -> tuple[Reason, str] | None:
        """The reason for which the client may not use this topic; None if it may. If the client has too many topics,
        the new one replaces an idle one."""
        if why := self._forbidden(connection, address, receives=receives):
            return why
        if why := self._cannot_begin(connection):
            return why
        if self._is_full(session, self._limits.links - fresh):
            what = f"the client has more than {self._limits.links} topics"
            return Reason.QUOTA, self._guard.exceed("links", str(session), what)
        return None

    def will_of(self, connection: MqttConnection, will: AskedWill) -> bytes:
        """The message of a will. Raises MqttError if the client may not publish it, or if it is too large."""
        if why := self._forbidden(connection, will.topic, receives=False):
            raise MqttError(*why)
        message = to_amqp(will.payload, will.qos, will.properties)
        if len(message) > MOST_WILL:
            what = f"the will has {len(message)} bytes, expected at most {MOST_WILL}"
            # Check the size here, because a CONNECT that is too large as a packet would get no answer.
            raise MqttError(Reason.QUOTA, what)
        if not self._node.wills.has_room(len(message)):
            raise MqttError(Reason.QUOTA, "the wills of this router's clients take all the memory for wills")
        return message

    def _forbidden(self, connection: MqttConnection, address: str, *, receives: bool) -> tuple[Reason, str] | None:
        """The reason for which a client may not use this topic: it does not exist, or the rules of the client's user do
        not allow it. None if the client may."""
        is_there = is_under(address, self._prefixes) or (not receives and is_known_dynamic(self._node, address))
        if not is_there or len(address) > LONGEST_ADDRESS:
            known = ", ".join(prefix + "…" for prefix in self._prefixes)
            reason = Reason.BAD_FILTER if receives else Reason.BAD_TOPIC
            return reason, f"no topic {address[:LONGEST_SHOWN]!r}: expected one of {known}"
        if what := why_no_address(address, receives=receives):
            return Reason.BAD_FILTER if receives else Reason.BAD_TOPIC, what
        if what := why_several_kinds(self._node.topic.kinds, address):
            return Reason.IMPLEMENTATION, what
        if receives and self._node.topic.kinds.of(address).in_sets:
            return Reason.IMPLEMENTATION, f"{address!r} is a queue, and clients of MQTT only publish to queues"
        try:
            address_inside(self._node, address, receives=receives)
        except Refusal as refusal:
            return Reason.BAD_TOPIC, str(refusal)
        try:
            self._guard.attaches(connection, address, receives=receives)
        except Refusal as refusal:
            return Reason.NOT_AUTHORIZED, str(refusal)
        return None

    def _is_full(self, session: MqttSession, most: int) -> bool:
        """Whether the session has `most` topics. An idle topic is ended first, if there is one, to make room."""
        if len(session.publishers) + len(session.presettled) + len(session.subscribers) < most:
            return False
        idle = _pop_idle(session.presettled) or _pop_idle(session.publishers)
        if idle is not None:
            idle.gone(self._node.now(), closed=True)
            self._node.perform()
        return idle is None

    def allow(self, connection: MqttConnection, address: str, *, receives: bool) -> bool:
        """Whether the rules of the client's user allow this link."""
        try:
            self._guard.attaches(connection, address, receives=receives)
        except Refusal:
            return False
        return True

    def _cannot_begin(self, connection: MqttConnection) -> tuple[Reason, str] | None:
        try:
            self._guard.begins(connection, self._node.now())
        except Refusal as refusal:
            return Reason.QUOTA, str(refusal)
        return None

    def _cannot_be_kept(self, connection: MqttConnection, durable: int) -> tuple[Reason, str] | None:
        try:
            self._guard.keeps(connection, durable)
        except Refusal as refusal:
            return Reason.QUOTA, str(refusal)
        return (Reason.QUOTA, self._node.unkept) if self._node.unkept else None


def _pop_idle(ends: dict[tuple[str, int], Publisher]) -> Publisher | None:
    """Remove and return an idle end; None if none of the least recently used ends is idle."""
    idle = next((index for index, end in islice(ends.items(), MOST_LOOKED_AT) if end.is_idle), None)
    return ends.pop(idle) if idle is not None else None


def _begins_to_last(session: MqttSession, asked: FilterRequest) -> bool:
    """Whether the subscription becomes durable by this request, and was not before."""
    known = session.subscribers.get(asked.filter)
    return session.timeout > 0 and asked.qos > 0 and (known is None or known.qos == 0)


def overflow(session: MqttSession, packet: PublishPacket) -> None:
    """Drop a message of QoS 0, because too many bytes of the client's messages wait already. Raises MqttError at QoS 1
    and 2."""
    why = f"{session.waiting_bytes} bytes of earlier messages are not accepted yet"
    if packet.qos:
        raise MqttError(Reason.QUOTA, why, "unsettled")
    log.warning("%s: a message of QoS 0 was dropped, because %s", session, why)


def refuse(session: MqttSession, packet: PublishPacket, reason: Reason, why: str) -> None:
    """Refuse a message that the client may not publish. Raises MqttError in MQTT 3.1.1, which can only disconnect."""
    connection = session.connection
    assert connection is not None
    if packet.qos and connection.version == V3:
        raise MqttError(reason, why)
    log.warning("%s: a message was refused: %s", session, why)
    if packet.qos:
        kind = PacketKind.PUBACK if packet.qos == 1 else PacketKind.PUBREC
        connection.send(ack(V5, kind, packet.identifier, reason, connection.told(why)))
