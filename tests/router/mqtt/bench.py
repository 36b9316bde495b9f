"""MQTT clients at whole routers without sockets (`tests.fuzz.mesh`). They write packets by hand."""

from attrs import define, evolve, field

from router.amqp.format.errors import PeerFaultError
from router.edge.guard import Guard
from router.mesh.config import Limits
from router.mqtt.connection import MqttConnection
from router.mqtt.edge import HEADROOM, MqttEdge
from router.mqtt.format.fields import FieldReader
from router.mqtt.format.packets import ConnectPacket, PublishPacket, read_packet
from router.mqtt.format.values import V5, PacketKind
from router.security.rules import EVERYTHING, Rule
from tests.fuzz.mesh import LONGEST_S, MAX_MESSAGE, SETTINGS, FuzzMesh, FuzzRouter, Guest
from tests.router.mqtt import by_hand
from topic.settings import Settings

TOPIC = "topic/t"
OPENING_S = 5.0
NARROW = evolve(SETTINGS, window_bytes=SETTINGS.max_message)
"""Settings with which a publisher has credit for one message, and for more once the size of that one is known."""


class Anybody:
    def user_of(self, packet: ConnectPacket) -> str:
        return ""


@define
class Heard:
    """A packet of the router, other than PUBLISH."""

    kind: PacketKind
    body: bytes

    @property
    def identifier(self) -> int:
        return int.from_bytes(self.body[:2], "big")

    @property
    def reason(self) -> int:
        """The reason of an acknowledgement or a DISCONNECT."""
        at = 0 if self.kind is PacketKind.DISCONNECT else 2
        return self.body[at] if len(self.body) > at else 0


def split(data: bytes) -> tuple[int, bytes, bytes]:
    """The first byte of the first packet, its body, and the rest of the data."""
    reader = FieldReader(data[1:])
    size = reader.number()
    start = len(data) - len(reader.rest())
    return data[0], data[start : start + size], data[start + size :]


@define(eq=False)
class MqttGuest(Guest):
    """One MQTT connection."""

    router: FuzzRouter
    edge: MqttEdge
    version: int = V5
    messages: list[PublishPacket] = field(factory=list)
    heard: list[Heard] = field(factory=list)
    _buffer: bytes = b""
    connection: MqttConnection = field(init=False)  # type: ignore[assignment]  # in the place of one of AMQP
    acks: bool = True
    """Whether it answers messages."""
    is_here: bool = True
    """Its machine acknowledges data that it gets."""

    def __attrs_post_init__(self) -> None:
        self.connection = MqttConnection(self.edge, MAX_MESSAGE + HEADROOM, OPENING_S)
        self.connection.context = self
        self.connection.can_prove = True
        self.edge.entrances[self.connection] = Anybody()
        self.router.guests.append(self)

    def say(self, data: bytes) -> None:
        with self.router.mesh.acting(self.router):
            try:
                self.connection.receive(data, self.router.mesh.now)
            except PeerFaultError:
                assert self.connection.closed
        self.router.mesh.flow()

    def hears(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) > 1:
            first, body, self._buffer = split(self._buffer)
            if first >> 4 == PacketKind.PUBLISH:
                packet = read_packet(first, body, self.version)
                assert isinstance(packet, PublishPacket)
                self._takes(packet)
            else:
                self.heard.append(Heard(PacketKind(first >> 4), body))
                if self.heard[-1].kind is PacketKind.PUBREL and self.acks:
                    self._answers(PacketKind.PUBCOMP, self.heard[-1].identifier)

    def _takes(self, packet: PublishPacket) -> None:
        self.messages.append(packet)
        if packet.qos and self.acks:
            self._answers(PacketKind.PUBACK if packet.qos == 1 else PacketKind.PUBREC, packet.identifier)

    def _answers(self, kind: PacketKind, identifier: int) -> None:
        """Send an answer. The router reads it with its next input."""
        self.router.node.now()
        self.connection.receive(by_hand.ack(kind, identifier), self.router.mesh.now)

    def kinds(self) -> list[str]:
        """The names of the packets that it has got since the last call."""
        found = [heard.kind.name for heard in self.heard]
        self.heard.clear()
        return found

    def told(self, kind: PacketKind) -> list[tuple[int, int]]:
        """Identifiers and reasons of the packets of this kind."""
        return [(heard.identifier, heard.reason) for heard in self.heard if heard.kind is kind]

    @property
    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.messages]

    @property
    def is_present(self) -> bool:
        """Whether the router had its session."""
        (connack,) = [heard for heard in self.heard if heard.kind is PacketKind.CONNACK]
        return bool(connack.body[0])


class MqttBench(FuzzMesh):
    """A mesh whose routers also speak MQTT."""

    is_slow = False
    """Whether payloads between routers, and acknowledgements of clients' machines, wait until they are brought."""

    def __init__(
        self, *names: str, limits: Limits | None = None, rule: Rule = EVERYTHING, settings: Settings = SETTINGS
    ) -> None:
        super().__init__(*names, settings=settings)
        self._limits, self.rule = limits or Limits(max_message=MAX_MESSAGE), rule
        self.edges = {name: self.edge(router) for name, router in self.routers.items()}

    def rule_of(self, user: str) -> Rule:
        return self.rule

    def edge(self, router: FuzzRouter) -> MqttEdge:
        guard = router.clients._guard = Guard(self, self._limits)  # one guard, as in a process
        return MqttEdge(router.node, router.clients, guard, ["topic/"], self._limits, LONGEST_S)

    def stranger(self, router: str, version: int = V5) -> MqttGuest:
        """A client that has sent nothing yet."""
        return MqttGuest(self.routers[router], self.edges[router], version)

    def client(
        self, router: str, client: str, *, clean: bool = True, expiry: int = 0, version: int = V5, acks: bool = True
    ) -> MqttGuest:
        guest = self.stranger(router, version)
        guest.acks = acks
        found = {"session-expiry-interval": expiry} if expiry else {}
        guest.say(by_hand.connect(client, version, clean=clean, found=found))
        assert guest.connection.opened
        return guest

    def reader(
        self, router: str, client: str = "reader", qos: int = 2, *, clean: bool = True, expiry: int = 0,
        version: int = V5, acks: bool = True,
    ) -> MqttGuest:  # fmt: skip
        guest = self.client(router, client, clean=clean, expiry=expiry, version=version, acks=acks)
        guest.say(by_hand.subscribe(1, [(TOPIC, qos)], version))
        assert "SUBACK" in guest.kinds()
        return guest

    def flow(self) -> None:
        """Let everything arrive, including acknowledgements of clients' machines."""
        if self.is_slow:
            while self.work():
                pass
            return
        super().flow()
        while asked := [guest for guest in self.mqtt_guests() if guest.connection.proofs and guest.is_here]:
            for guest in asked:
                self.prove(guest)
            super().flow()

    def flow_but(self, here: str, there: str) -> None:
        """Let everything arrive except the payloads from `here` to `there`."""
        moves = True
        while moves:
            moves = self.work()
            for wire in [wire for wire, said in self.wires.items() if said and wire != (here, there)]:
                self.bring(*wire)
                moves = True
            for guest in [guest for guest in self.mqtt_guests() if guest.connection.proofs and guest.is_here]:
                self.prove(guest)
                moves = True

    def prove(self, guest: MqttGuest) -> None:
        """The guest's machine acknowledges the data that it got."""
        proofs, guest.connection.proofs = guest.connection.proofs, {}
        for told in proofs:
            with self.acting(guest.router):
                try:
                    told()
                except PeerFaultError:
                    assert guest.connection.closed

    @property
    def ended(self) -> bool:
        """Whether the test has ended all guests."""
        return not any(router.guests for router in self.routers.values())

    def mqtt_guests(self) -> list[MqttGuest]:
        return [one for router in self.routers.values() for one in router.guests if isinstance(one, MqttGuest)]

    def finish(self, *guests: MqttGuest) -> None:
        """The guests leave, and nothing of them may be left."""
        for guest in guests:
            if guest in guest.router.guests:
                guest.leave()
        if self.routers.keys() == set(self.names):  # otherwise their sessions wait for the lost router
            self.check_forgotten()
        self.end()


def publish(guest: MqttGuest, payload: bytes, qos: int, identifier: int = 0, *, dup: bool = False) -> None:
    guest.say(by_hand.publish(TOPIC, payload, qos, identifier, guest.version, dup=dup))


def writes_too_early(bench: MqttBench, router: str) -> None:
    """A writer leaves the router before any other router knows the link for its message, `m`."""
    bench.is_slow = True
    writer = bench.client(router, "writer", expiry=5)
    publish(writer, b"m", 2, 1)
    writer.leave()
    bench.is_slow = False
    bench.flow()


def leave(bench: MqttBench, guest: MqttGuest, *, is_killed: bool) -> None:
    """The guest's connection is cut, or its router is killed."""
    if is_killed:
        bench.lose(guest.router.name)
    else:
        guest.leave()


def answer(reader: MqttGuest, message: PublishPacket) -> None:
    """Answer a message completely: at QoS 2 also the PUBREL."""
    for kind in (PacketKind.PUBACK,) if message.qos == 1 else (PacketKind.PUBREC, PacketKind.PUBCOMP):
        reader.say(by_hand.ack(kind, message.identifier))


def answer_all(reader: MqttGuest) -> None:
    for message in reader.messages:
        answer(reader, message)
