"""Model MQTT clients. They remember only packet identifiers, as the standard says.

A client reads and writes packets on a `Line` when the walk lets it. When its connection has ended, it continues at any
router: it sends its unanswered packets again, before new ones (MQTT 5 4.4, 4.6).
"""

from collections import deque
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from router.mqtt.ends import LINK
from router.mqtt.format.packets import PublishPacket, read_packet
from router.mqtt.format.values import V5, PacketKind
from tests.fuzz.mesh import LONGEST_S
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import MqttGuest, split
from topic.directory.entry import LinkEntry, Role
from topic.identity import LinkIdentity, link_name

if TYPE_CHECKING:
    from tests.router.mqtt.roles import Reader, Writer
    from tests.router.mqtt.walk import MqttWalk

EXPIRY_S = 4
TOPICS = "topic/t", "topic/u"
OF_SUBSCRIPTIONS = PacketKind.PUBLISH, PacketKind.SUBACK
OF_THE_MESH = *OF_SUBSCRIPTIONS, PacketKind.PUBACK, PacketKind.PUBREC
"""Packets that a router sends when all routers know the link."""
OF_READERS = PacketKind.PUBREL, PacketKind.SUBACK, PacketKind.UNSUBACK


@frozen
class Said:
    """A message, as its writer knows it."""

    number: int
    topic: str
    identifier: int
    qos: int
    text: int
    """The number that the text contains: the message's own, or that of an earlier message with the same text."""

    @property
    def payload(self) -> bytes:
        return b"%d" % self.text

    @property
    def stream(self) -> tuple[str, int]:
        """What shares one order: each topic and QoS has its own (MQTT 5 4.6)."""
        return self.topic, self.qos


@define(eq=False)
class Line(MqttGuest):
    """One connection. Both of its directions take their time."""

    client: "Client" = field(kw_only=True)
    acks: bool = False
    nth: int = field(factory=count().__next__)
    """A later line has a higher number."""
    session: int = 0
    """The number of its client's session."""
    latest: dict[int, Said] = field(factory=dict)
    """Keyed by identifier: the last message of a writer in that session."""
    up: deque[bytes] = field(factory=deque)
    """Packets that the router has not read."""
    down: deque[tuple[int, bytes, int]] = field(factory=deque)
    """Packets that the client has not read, each with the number of its message, by the judge's account."""
    dead_since: float | None = None
    """When its router died. Packets that the router has sent may still be read."""
    was_apart: bool = False
    """Whether the router was out of contact with the router of the client's subscriptions when it let the client in."""
    is_elsewhere: bool = False
    """For its router, the client's session was elsewhere, or a part of it that a cut hides."""

    def hears(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) > 1:
            first, body, self._buffer = split(self._buffer)
            number = self.client.walk.judge.router_says(self, first, body)
            if first >> 4 == PacketKind.CONNACK:
                self.was_apart = self.client.walk.parts and not self._hears_of_client()
                self.is_elsewhere = self.client.walk.parts and not self.edge.sessions["", self.client.name].was_here
            if self.client.line is self:
                self.down.append((first, body, number))

    def read(self, most: int) -> None:
        """The router reads this many packets at once."""
        found = [self.up.popleft() for _ in range(min(most, len(self.up)))]
        for packet in found:
            self.client.walk.judge.router_reads(self, packet)
        self.say(b"".join(found))

    def _hears_of_client(self) -> bool:
        """Whether the line's router knows the client by the router that has the client's subscriptions, which it is in
        contact with at both ends, or has them itself. An earlier router of the client does not count if none has heard
        it since."""
        here, session = self.router.node.topic.directory, (self.client.name, "")
        directories = {name: router.node.topic.directory for name, router in self.router.mesh.routers.items()}
        known = [
            (entry.epoch, name, entry)
            for name, directory in directories.items()
            for entry in directory.of_session(session)
            if entry.role is Role.SUBSCRIBER
        ]
        latest = {entry.index: epoch for epoch, _, entry in sorted(known, key=itemgetter(0))}
        hears = {name for name, one in directories.items() if name in here.applied and here.router in one.contacts}
        hears.add(self.router.name)
        return any(
            entry.lasts and epoch == latest[entry.index] and directories[name].is_mine(entry)
            for epoch, name, entry in known
            if name in hears
        )

    def knows(self, client: "Client", topic: str, role: Role) -> LinkEntry | None:
        """The link's router's entry for the client's subscription, or for its publisher at QoS 2."""
        return self.router.node.topic.directory.entry((role, link_name(LinkIdentity(client.name, LINK, topic))))

    @property
    def is_dead(self) -> bool:
        """Whether its router has died."""
        return self.router.mesh.routers.get(self.router.name) is not self.router

    @property
    def is_over(self) -> bool:
        """Whether it is over for its client, who may not know."""
        return self.is_dead or self.connection.closed


class Client:
    """A client that publishes, subscribes, or does both."""

    def __init__(self, walk: "MqttWalk", name: str, version: int) -> None:
        self.walk, self.name, self.version = walk, name, version
        self.writer: Writer | None = None
        self.reader: Reader | None = None
        self.line: Line | None = None
        self.is_let_in = False
        """Whether it has read the CONNACK."""
        self.away_since: float | None = 0.0
        self.unseen_since: float | None = 0.0
        """Since when the mesh may not know where the client is. A client that has read that its session continues, and
        nothing about its subscriptions yet, may be sent away: the mesh may just agree that they are over."""
        self._may_be_over = False
        """It came back after its session's lifetime to a router that continues the session. The session may be over on
        the other side of a cut, or at a router that was killed before it had said so."""
        self.sleeps_until = 0.0
        self.session = 0
        """The number of sessions that have ended before this one."""
        self.is_clean = False
        """Whether it asks for a clean start. It does until it is certain that a router has read this (docs/mqtt.md)."""

    @property
    def is_asleep(self) -> bool:
        return self.walk.now < self.sleeps_until

    @property
    def may_have_expired(self) -> bool:
        """Whether its session may have expired. In 3.1.1 a client does not say how long a session lasts."""
        lasts = EXPIRY_S if self.version == V5 else LONGEST_S
        return self._may_be_over or (self._unseen is not None and self.walk.now - self._unseen > lasts)

    @property
    def _unseen(self) -> float | None:
        since_death = self.line.dead_since if self.line is not None else None
        return since_death if self.unseen_since is None else self.unseen_since

    def __str__(self) -> str:
        return self.name

    def connect(self, router: str) -> None:
        assert self.line is None
        if self.is_clean:
            self._forget()
        self.walk.note(f"{self} connects to {router}")
        self.walk.judge.hearsay.connects(self, router)
        self.line = self.walk.line(self, router)
        self._is_of_session(self.line)
        found = {"session-expiry-interval": EXPIRY_S}
        self.tell(by_hand.connect(self.name, self.version, clean=self.is_clean, found=found))

    def _is_of_session(self, line: Line) -> None:
        line.session = self.session
        if self.writer is not None:
            line.latest = self.writer.latest

    def begin_anew(self) -> None:
        """Begin anew with the next connection. The client forgets its session."""
        self.cut()
        self.is_clean = True

    def _forget(self) -> None:
        self.walk.note(f"{self} has no session any more")
        self.session += 1
        self._may_be_over = False
        if self.writer is not None:
            self.writer.forget()
        if self.reader is not None:
            self.reader.forget()

    def say_goodbye(self) -> None:
        self.tell(by_hand.DISCONNECT)
        self.cut()

    def cut(self) -> None:
        """The connection is over for the client."""
        self.unseen_since = self.walk.now if self._unseen is None else self._unseen
        if self.line is not None:
            self.line.is_here = False
        self.line, self.is_let_in = None, False
        if self.away_since is None:
            self.away_since = self.walk.now

    def tell(self, packet: bytes) -> None:
        assert self.line is not None
        self.line.up.append(packet)

    def ack(self, kind: PacketKind, identifier: int) -> None:
        self.walk.note(f"{self} says {kind.name} {identifier}")
        self.tell(by_hand.ack(kind, identifier))

    def hear(self, most: int) -> None:
        """The client reads this many packets at once."""
        for _ in range(most):
            if self.line is None or not self.line.down:
                break
            first, body, number = self.line.down.popleft()
            self._hears(PacketKind(first >> 4), first, body, number)

    def _hears(self, kind: PacketKind, first: int, body: bytes, number: int) -> None:
        if kind is PacketKind.CONNACK:
            assert self.line is not None
            self.walk.note(f"{self} is let in at {self.line.router.name}, {'present' if body[0] else 'unknown'}")
            self._is_let_in(self.line, is_present=bool(body[0]))
        elif kind is PacketKind.DISCONNECT:
            self.walk.note(f"{self} is sent away")
            self.cut()
        else:
            self.is_clean = self.is_clean and kind not in OF_THE_MESH
            if kind in OF_SUBSCRIPTIONS:
                self.is_known()
            self._hears_of(kind, first, body, number)

    def is_known(self) -> None:
        """The mesh knows where the client is."""
        self.is_clean = False
        if self.unseen_since is not None:
            self._may_be_over = self.may_have_expired and (self.walk.parts or bool(self.walk.dead))
            self.unseen_since = None
            self.walk.judge.has_not_missed(self, are_all_told=False)

    def _hears_of(self, kind: PacketKind, first: int, body: bytes, number: int) -> None:
        """The client reads a message, or an answer."""
        if kind is PacketKind.PUBLISH:
            packet = read_packet(first, body, self.version)
            assert isinstance(packet, PublishPacket) and self.reader is not None
            self.reader.is_sent(packet, number)
        else:
            is_short = kind in (PacketKind.SUBACK, PacketKind.UNSUBACK)  # it answers for one topic
            reason = body[-1 if is_short else 2] if len(body) > 2 and (is_short or self.version == V5) else 0
            role = self.reader if kind in OF_READERS else self.writer
            assert role is not None
            role.hears(kind, int.from_bytes(body[:2], "big"), reason)

    def _is_let_in(self, line: Line, *, is_present: bool) -> None:
        assert not (is_present and self.is_clean), f"{self} is given a session that it has ended"
        if not is_present and not self.is_clean and (self.may_have_expired or line.was_apart):
            self._forget()
            self._is_of_session(line)
            self.walk.judge.begins_anew(line)
        self.walk.judge.is_at(line)
        self.is_let_in, self.away_since = True, None
        if is_present and self.reader is not None and self.walk.parts:
            self.walk.judge.hearsay.goes_on(self.reader, line.router.name)
        if not is_present:
            self.unseen_since = None
            self.walk.judge.has_not_missed(self, are_all_told=False)
        self._begins(is_present=is_present)

    def _begins(self, *, is_present: bool) -> None:
        if self.reader is not None:
            self.reader.begins(is_present=is_present)
        if self.writer is not None:
            self.writer.begins()
