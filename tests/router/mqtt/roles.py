"""The roles of model MQTT clients: a writer publishes, a reader hands on the messages that it gets."""

from router.mqtt.format.packets import PublishPacket
from router.mqtt.format.values import REFUSED, V5, PacketKind, Reason
from tests.router.mqtt import by_hand
from tests.router.mqtt.sessions import TOPICS, Client, Line, Said

IDENTIFIERS = 6
"""The number of identifiers of a writer. Each is used again at once."""
SUBSCRIBED_BY = 100
"""The first identifier of packets other than PUBLISH."""


class Writer:
    """Publishes numbers."""

    def __init__(self, client: Client, qos: int, first: int) -> None:
        self.client, self.qos = client, qos
        client.writer = self
        self.open: dict[int, Said] = {}
        """Keyed by identifier, in the order in which they were sent."""
        self.latest: dict[int, Said] = {}
        """Keyed by identifier: the last message sent with it."""
        self.known: set[int] = set()
        """Identifiers of messages that have a PUBREC."""
        self._told: dict[int, Line | None] = {}
        """Keyed by identifier: the line on which the PUBREC came."""
        self._unclear: set[tuple[int, int]] = set()
        """(identifier, text) of messages that were settled elsewhere than where their PUBREC came from. The mesh may
        not know this, and take an equal message for them (docs/mqtt.md)."""
        self._next = first

    def __str__(self) -> str:
        return self.client.name

    @property
    def free(self) -> list[int]:
        return [number for number in range(1, IDENTIFIERS + 1) if number not in self.open]

    def publish(self, topic: str) -> None:
        self._next += 1
        self._publish(Said(self._next, topic, self.free[0], self.qos, self._next))

    def publish_equal(self, former: Said) -> None:
        """Publish another message with the same text."""
        if (self.free[0], former.text) in self._unclear:
            return self.publish(former.topic)
        self._next += 1
        self._publish(Said(self._next, former.topic, self.free[0], self.qos, former.text))

    def _publish(self, said: Said) -> None:
        self.open[said.identifier] = self.latest[said.identifier] = said
        self.client.walk.judge.published(self, said)
        self._send(said)

    def publish_once(self, topic: str) -> None:
        """Publish at QoS 0: the message has no identifier, and is not sent again."""
        self._next += 1
        said = Said(self._next, topic, 0, 0, self._next)
        self.client.walk.judge.published(self, said)
        self._send(said)

    def _send(self, said: Said, *, dup: bool = False) -> None:
        equal = f", which says {said.text}," if said.text != said.number else ""
        what = f"{said.number}{equal} to {said.topic} {f'as {said.identifier}' if said.qos else 'at QoS 0'}"
        self.client.walk.note(f"{self} publishes {what}{', a copy' if dup else ''}")
        version = self.client.version
        self.client.tell(by_hand.publish(said.topic, said.payload, said.qos, said.identifier, version, dup=dup))

    def forget(self) -> None:
        """Forget the session. Open messages stay in doubt."""
        self.client.walk.judge.doubt(self.open.values())
        self.open.clear()
        self.known.clear()
        self._told.clear()
        self.latest = {}

    def begins(self) -> None:
        for said in self.open.values():
            if said.identifier in self.known:
                self.client.ack(PacketKind.PUBREL, said.identifier)
            else:
                self._send(said, dup=True)

    def hears(self, kind: PacketKind, identifier: int, reason: int) -> None:
        if kind is not PacketKind.PUBCOMP and reason >= REFUSED:
            self._is_refused(identifier, reason)
        elif kind is PacketKind.PUBREC:
            self.known.add(identifier)
            self._told.setdefault(identifier, self.client.line)
            self.client.ack(PacketKind.PUBREL, identifier)
        elif identifier in self.open and (kind is PacketKind.PUBACK or identifier in self.known):
            assert kind is (PacketKind.PUBCOMP if self.qos == 2 else PacketKind.PUBACK)
            self.known.discard(identifier)
            said = self.open.pop(identifier)
            told, line = self._told.pop(identifier, None), self.client.line
            if told is not None and line is not None and not self.client.walk.judge.has_stayed(told, line):
                self._unclear.add((identifier, said.text))

    def _is_refused(self, identifier: int, reason: int) -> None:
        """The message is over: its identifier may be used again (MQTT 5 4.3.3). A repeated refusal counts once."""
        said = self.latest[identifier]
        assert self.client.walk.judge.may_be_refused(said), f"{self} is refused {said.number}: {reason:#x}"
        self.client.walk.note(f"{self} is refused {said.number}")
        if self.open.get(identifier) is said:
            del self.open[identifier]
            self.known.discard(identifier)
            self._told.pop(identifier, None)


class Reader:
    """Hands each message on. At QoS 2 it does so when the message comes if it is `eager`, else when it cannot come
    again.
    """

    def __init__(self, client: Client, qos: int, *, eager: bool) -> None:
        self.client, self.qos = client, qos
        client.reader = self
        self.wanted = dict.fromkeys(TOPICS, qos)
        """The QoS of its subscriptions; 0: no subscription."""
        self.confirmed: dict[str, int] = {}
        """The QoS that routers have confirmed."""
        self.asked: dict[int, tuple[str, int]] = {}
        """Keyed by identifier: requests without an answer."""
        self.left: Line | None = None
        """The line on which it has read that it is unsubscribed, without a request since."""
        self.refused: set[int] = set()
        """The texts that it has refused."""
        self._count = SUBSCRIBED_BY
        self._eager = eager
        self._held: dict[int, tuple[int, Line]] = {}
        """Keyed by identifier: messages that it has answered with PUBREC, and whose PUBREL has not come."""

    def __str__(self) -> str:
        return self.client.name

    def refuses(self, text: int) -> bool:
        """Whether it refuses the text. It does so always, or never."""
        return self.client.walk.are_refusing and self.client.version == V5 and (text + len(self.client.name)) % 4 == 0

    def begins(self, *, is_present: bool) -> None:
        if not is_present:
            self._held.clear()
            self.client.walk.judge.is_unknown(self)
        self.asked.clear()
        for topic, qos in self.wanted.items():
            if self.confirmed.get(topic, 0) != qos:
                self._ask(topic, qos)

    def forget(self) -> None:
        """Its subscriptions are over. It subscribes anew when it is let in."""
        self.confirmed.clear()
        self.asked.clear()
        self._held.clear()
        self.left = None
        self.client.walk.judge.has_ended(self)

    def change(self, topic: str, qos: int) -> None:
        """Ask for another QoS, or for none with 0."""
        self.wanted[topic] = qos
        self.client.walk.judge.wants(self, topic, qos)
        self._ask(topic, qos)

    def _ask(self, topic: str, qos: int) -> None:
        client = self.client
        client.walk.note(f"{self} {f'subscribes to {topic} at QoS {qos}' if qos else f'unsubscribes from {topic}'}")
        client.walk.judge.asks(self, topic, qos)
        self._count, self.left = self._count + 1, None
        self.asked[self._count] = topic, qos
        if qos:
            client.tell(by_hand.subscribe(self._count, [(topic, qos)], client.version))
        else:
            client.tell(by_hand.unsubscribe(self._count, [topic], client.version))

    def is_sent(self, packet: PublishPacket, number: int) -> None:
        client, line = self.client, self.client.line
        assert line is not None
        identifier = packet.identifier
        client.walk.note(f"{self} is sent {number} as {identifier}{', a copy' if packet.dup else ''}")
        if packet.qos and self.refuses(int(packet.payload)):
            client.walk.note(f"{self} refuses {number}")
            self.refused.add(int(packet.payload))
            kind = PacketKind.PUBACK if packet.qos == 1 else PacketKind.PUBREC
            client.tell(by_hand.ack(kind, identifier, Reason.IMPLEMENTATION))
            return
        if packet.qos == 0:
            client.walk.judge.handed_on(self, number, line)
            return
        if packet.qos == 1:
            client.walk.judge.handed_on(self, number, line)
            client.ack(PacketKind.PUBACK, identifier)
            return
        if identifier not in self._held:  # otherwise it has come before (MQTT 5 4.3.3)
            self._held[identifier] = number, line
            if self._eager:
                client.walk.judge.handed_on(self, number, line)
        client.ack(PacketKind.PUBREC, identifier)

    def hears(self, kind: PacketKind, identifier: int, reason: int) -> None:
        if kind is not PacketKind.PUBREL:
            topic, qos = self.asked.pop(identifier)
            is_repeated = not qos and reason == Reason.NO_SUBSCRIPTION
            assert reason == qos or is_repeated, f"{self} is told {reason:#x} for QoS {qos} of {topic}"
            self.confirmed[topic] = qos
            self.left = None if qos else self.client.line
            return
        held = self._held.pop(identifier, None)
        if held is not None and not self._eager:
            self.client.walk.judge.handed_on(self, *held)
        self.client.ack(PacketKind.PUBCOMP, identifier)
