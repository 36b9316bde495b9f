"""The edge for MQTT clients: which client has a session, at this router or at another one (docs/mqtt.md).

The mesh knows a client by its links alone. The directory has them at every router, and so shows whether a client that
connects has been here or elsewhere. The core decides the outcome of each delivery, not this module.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final, Protocol

from router.edge.clients import ClientEdge, Guest
from router.edge.guard import Guard
from router.edge.queue_address import address_inside
from router.mesh.config import Limits
from router.mqtt.aliases import MOST_ALIASES
from router.mqtt.away import Away, is_kept
from router.mqtt.connection import MqttConnection
from router.mqtt.ends import LASTING, LINK, LINK_QOS_1, elsewhere, is_over, living
from router.mqtt.format.packets import (
    AckPacket,
    AskedWill,
    ConnectPacket,
    DisconnectPacket,
    PublishPacket,
    SubscribePacket,
    UnsubscribePacket,
    connack,
    options_of,
)
from router.mqtt.format.values import REFUSED, V3, V5, MqttError, Reason
from router.mqtt.permissions import Permissions, overflow, refuse
from router.mqtt.presettled import PresettledPublisher
from router.mqtt.publisher import MqttPublisher
from router.mqtt.session import MqttSession
from router.mqtt.shared import address_for, missing_sets, subscriber_for, subscription_of, topic_filter_of
from topic.actions import EXPIRED, STOLEN, Detach
from topic.directory.entry import Index, LinkEntry, Role, Status
from topic.ends.nobody import end_link
from topic.identity import Epoch, LinkIdentity, is_of_sets, link_name, shown_address
from topic.node import Node
from topic.wills.will import NO_EXPIRY, Will

log = logging.getLogger("oncemesh.mqtt")

HEADROOM: Final = 64 * 1024
"""The highest number of bytes of a packet besides the bytes of the message in it."""
PATIENCE: Final = 8
"""If a client has more messages in flight than this many times the receive maximum, the router disconnects it. Some
clients that come back send more messages again than the maximum. With a factor of 1, the router would disconnect these
clients again and again."""
MOST_IDENTIFIERS: Final = 0xFFFF
NEVER: Final = 0xFFFF_FFFF
"""The session expiry interval that stands for a session without expiry, in seconds."""
LONGEST_CLIENT: Final = 256
"""The highest number of characters of a client identifier."""


class Entrance(Protocol):
    """Decides which clients this listener admits."""

    def user_of(self, packet: ConnectPacket) -> str:
        """The user of the client; empty if it is not authenticated. Raises MqttError if the client is not admitted."""


class MqttEdge:
    """The handler of all connections of MQTT at one router."""

    def __init__(
        self, node: Node, clients: ClientEdge, guard: Guard, prefixes: Sequence[str], limits: Limits, longest: int
    ) -> None:
        """`longest`: the longest time for which a session outlives its connection, in seconds."""
        self._node = node
        self._clients = clients
        self._guard = guard
        self._permissions = Permissions(node, guard, prefixes, limits)
        self._limits = limits
        self._longest = longest
        self._numbers = count(1)
        self.sessions: dict[tuple[str, str], MqttSession] = {}
        """The sessions at this router, keyed by user and client identifier."""
        self._of: dict[MqttConnection, MqttSession] = {}
        self._away = Away(self)
        self._at_first_word: dict[MqttConnection, Callable[[], None]] = {}
        """Calls that wait for the client's first packet. This packet shows that the client has read its CONNACK."""
        self.entrances: dict[MqttConnection, Entrance] = {}
        self._wills: dict[MqttConnection, Will] = {}

    # The methods from here on begin and end connections.

    def on_connect(self, connection: MqttConnection, packet: ConnectPacket) -> None:
        if "authentication-method" in packet.properties:
            raise MqttError(
                Reason.BAD_AUTHENTICATION, "the client asks for enhanced authentication, which is not supported"
            )
        client, told = self._name_of(packet)
        connection.user = self.entrances[connection].user_of(packet)
        will = self._permissions.will_of(connection, packet.will) if packet.will is not None else b""
        self._admit(connection)
        asked = 0 if packet.version == V5 or packet.clean else NEVER
        timeout = min(packet.properties.get("session-expiry-interval", asked), self._longest)
        session, present = self._session(client, connection, clean=packet.clean)
        self._of[connection], session.is_expected = session, present or packet.clean
        session.begin(connection, dict(packet.properties))
        connection.open(client, packet.keep_alive)
        told |= {
            "session-expiry-interval": timeout,
            "receive-maximum": self._receive_maximum,
            "maximum-packet-size": connection.max_packet,
            "topic-alias-maximum": MOST_ALIASES,
            "retain-available": 0,
            "shared-subscription-available": int(not missing_sets(self._node, "$share/a/b")),
        }
        connection.send(connack(packet.version, Reason.SUCCESS, present=present, told=told))
        self._end_earlier_wills(client, connection, continues=present)
        if packet.will is not None:
            self._keep_will(client, connection, packet.will, will)
        self._begin(session, connection, timeout, present=present)

    def _end_earlier_wills(self, client: str, connection: MqttConnection, *, continues: bool) -> None:
        """End the wills of the client's earlier connections, once it is certain that the client is here. From then on
        the earlier connections count as over, so each of their wills is published now or never."""
        wills = self._node.wills
        if not wills.is_known(client, connection.user):
            return

        def certain() -> None:
            if not connection.is_over:
                will = self._wills.get(connection)
                wills.connected(client, connection.user, will, self._node.now(), continues=continues)

        if connection.can_prove:
            connection.prove(certain)
        else:
            certain()

    def _keep_will(self, client: str, connection: MqttConnection, asked: AskedWill, message: bytes) -> None:
        address = address_inside(self._node, asked.topic, receives=False)
        delay = min(asked.properties.get("will-delay-interval", 0), self._longest)
        expiry = asked.properties.get("message-expiry-interval", NO_EXPIRY)
        self._wills[connection] = self._node.wills.keep(
            client, connection.user, address, message, delay, connection, presettled=not asked.qos, expiry=expiry
        )

    def _end_will(self, connection: MqttConnection, packet: DisconnectPacket | None, lasts: float) -> None:
        """End the will of a connection that is over. A normal DISCONNECT withdraws the will; otherwise the will is
        published after its delay (MQTT 5, 3.14.4). `lasts`: the seconds for which the client's session goes on."""
        if (will := self._wills.pop(connection, None)) is None:
            return
        if packet is not None and packet.reason == Reason.SUCCESS:
            self._node.wills.withdraw(will)
        else:
            self._node.wills.left(will, min(will.delay, lasts), self._node.now())

    def _name_of(self, packet: ConnectPacket) -> tuple[str, dict[str, object]]:
        if len(packet.client) > LONGEST_CLIENT:
            raise MqttError(Reason.BAD_CLIENT_ID, f"the client identifier has more than {LONGEST_CLIENT} characters")
        if is_of_sets(packet.client):
            raise MqttError(Reason.BAD_CLIENT_ID, f"only replica sets have the client identifier {packet.client}")
        if packet.client:
            return packet.client, {}
        if packet.version == V3 and not packet.clean:
            raise MqttError(Reason.BAD_CLIENT_ID, "a client without an identifier cannot have a lasting session")
        name = f"mqtt-{self._node.name}-{self._node.incarnation}-{next(self._numbers)}"
        return name, {"assigned-client-identifier": name}

    def _admit(self, connection: MqttConnection) -> None:
        if why := self._guard.opens(connection):
            raise MqttError(Reason.QUOTA, why)
        guest: Guest = connection.context
        guest.open()
        if not guest.admit():
            self._clients.leave(connection)
            raise MqttError(Reason.BUSY, "this router has as many clients as it may have", "connections")
        self._clients.enter(connection)

    def _session(self, client: str, connection: MqttConnection, *, clean: bool) -> tuple[MqttSession, bool]:
        """The client's session, and whether the client had it before, here or elsewhere."""
        self._away.expire(self._node.now() - self._longest)
        name = connection.user, client
        former = self.sessions.get(name)
        if former is not None and former.connection is not None:
            left = former.connection
            left.take_leave()
            self._end(left, None)
            left.leave(Reason.TAKEN_OVER, "the client has connected again")
            former = self.sessions.get(name)
        known = self._links_of(client, connection.user)
        live = [entry for entry in known if entry.live]
        clean = clean or is_over(known) or self._is_overdue(former, live)
        if former is not None and not clean and former.timeout and former.is_whole(known):
            former.resumes = True
            if not former.ends:
                self._away.discard(former)
            return former, True
        if former is not None:
            self._away.end(former)
        session = self.sessions[name] = MqttSession(self._node, client, connection.user, self)
        if not clean and live:
            session.take_over(live)
        return session, session.resumes

    def _is_overdue(self, session: MqttSession | None, links: Collection[LinkEntry]) -> bool:
        """Whether the client has been away for longer than its session may last, and has not been at another router
        meanwhile. The session must then not continue, even if the mesh still keeps some of its links: messages in doubt
        on the links that have ended would count as new messages."""
        if session is None or session.connection is not None:
            return False
        if self._away.since[session] + session.timeout >= self._node.now():
            return False
        return {entry.epoch for entry in links} <= {end.epoch for end in session.ends}

    def forget(self, session: MqttSession) -> None:
        if self._is_current(session) and session.connection is None:
            del self.sessions[session.user, session.client]

    def _is_current(self, session: MqttSession) -> bool:
        """Whether this session is still the present one of its client at this router."""
        return self.sessions.get((session.user, session.client)) is session

    def _links_of(self, client: str, user: str) -> list[LinkEntry]:
        """The client's links that outlive a connection and that the client has not closed, from the directory."""
        known = self._node.topic.directory.of_session((client, user))
        return [entry for entry in known if entry.status is not Status.CLOSED and entry.identity.link in LASTING]

    def _begin(self, session: MqttSession, connection: MqttConnection, timeout: int, *, present: bool) -> None:
        """Continue or end the client's former links once it is certain that the client is here, and nowhere else
        (7.8)."""
        known = self._links_of(session.client, session.user)
        if session.was_here:
            begin = partial(self._go_on, session, timeout)
        else:
            session.timeout = timeout
            begin = partial(self._take_over if present else self._end_links, session)
            if not known:
                return
        session.told = living(known) if session.resumes else {entry.index: entry.epoch for entry in known}
        wait = partial(connection.hold, begin) if connection.can_prove else begin
        if session.is_expected:
            wait()
        # Wait for the client's first packet.
        # If the client never reads the CONNACK, its next router needs these links unchanged.
        else:
            self._at_first_word[connection] = wait

    def on_first_word(self, connection: MqttConnection) -> None:
        if (begin := self._at_first_word.pop(connection, None)) is not None:
            begin()

    def _go_on(self, session: MqttSession, timeout: int) -> None:
        """Continue the session, because the client has come back to it at this router, and the CONNACK has said so."""
        known, connection = self._links_of(session.client, session.user), session.connection
        assert connection is not None
        if is_over(known):
            _expired_just_now(session, connection)
        # The session has continued at another router, which this router did not know when it sent the CONNACK.
        # So the router ends the connection. With its next CONNECT, the client can continue the session.
        elif not session.is_whole(known):
            connection.leave(Reason.ADMINISTRATIVE, "the session has continued at another router")
        else:
            log.info("%s continues its session at this router; no message comes twice", session)
            session.told, session.timeout = None, timeout
            session.take_over(others := elsewhere(known, session.ends))
            session.resume()
            self._take_over_links(session, connection, others)

    def _take_over(self, session: MqttSession) -> None:
        """Continue a session that the client had elsewhere, or here before this router restarted. The CONNACK has said
        so."""
        known, connection = self._links_of(session.client, session.user), session.connection
        told, session.told = session.told, None
        assert connection is not None and told is not None
        if is_over(known) or not told.keys() <= living(known).keys():
            _expired_just_now(session, connection)
            return
        routers = ", ".join(sorted({entry.router for entry in known}))
        log.warning("%s moved here from router %s: this router sends it all unsettled messages again", session, routers)
        session.free()
        self._take_over_links(session, connection, known)

    def _take_over_links(self, session: MqttSession, connection: MqttConnection, known: Collection[LinkEntry]) -> None:
        """Attach the client's former links here, so that they do not expire while the client is connected here. End
        each link that the rules no longer allow."""
        for entry in known:
            address, receives = shown_address(entry.identity.address), entry.role is Role.SUBSCRIBER
            # Stop if the connection or the link has ended while earlier links were attached.
            if connection.is_over or not entry.live:
                continue
            shared = subscription_of(address) if receives else None
            topic = topic_filter_of(shared) if shared is not None else address
            if not self._permissions.allow(connection, topic or "", receives=receives):
                end_link(self._node, entry)
            elif receives:
                name, options = shared or address, options_of(entry.options)
                subscriber = subscriber_for(session, self._node, name, entry.lifetime.durable, options, is_known=True)
                session.subscribers[name] = subscriber
                subscriber.subscribe(resumes=True)
            else:
                self._publisher(session, address, 1 if entry.identity.link == LINK_QOS_1 else 2).take_over()

    def _publisher(self, session: MqttSession, topic: str, qos: int) -> MqttPublisher:
        address = address_inside(self._node, topic, receives=False)
        end = MqttPublisher(session, self._node, address, first=qos == 1)
        return session.publishers.setdefault((topic, qos), end)

    def _end_links(self, session: MqttSession, told: Mapping[Index, Epoch] | None = None) -> None:
        """End the client's former links, because the client wants a new session, has missed messages, or came back too
        late. `told`: end only the links that still have these epochs; None: end all."""
        session.told = None
        for entry in self._links_of(session.client, session.user):
            # Skip a link with a later epoch: it was attached after the CONNACK, by a later session of the client.
            if told is None or told.get(entry.index) == entry.epoch:
                end_link(self._node, entry)

    def on_disconnect(self, connection: MqttConnection, packet: DisconnectPacket) -> None:
        """Change how long the session outlives its connection, as the client asks. If the session is to end, `on_close`
        ends it."""
        session, asked = self._of[connection], packet.properties.get("session-expiry-interval", 0)
        if asked and not session.timeout:
            why = "the client asks for a session expiry in its DISCONNECT, but its CONNECT had none"
            raise MqttError(Reason.PROTOCOL_ERROR, why)
        # If `told` is not None, do nothing.
        # The client's former links are not attached here yet, so no link can take the new time.
        if asked and session.told is None:
            session.last(min(asked, self._longest))

    def on_close(self, connection: MqttConnection, packet: DisconnectPacket | None) -> None:
        self.entrances.pop(connection, None)
        self._at_first_word.pop(connection, None)
        self._end(connection, packet)
        if connection.error is not None and connection.error.limit:
            self._guard.exceeded[connection.error.limit] += 1

    def _end(self, connection: MqttConnection, packet: DisconnectPacket | None) -> None:
        session = self._of.pop(connection, None)
        if session is None:
            return
        self._clients.leave(connection)
        told, wants_end = session.told, packet is not None and packet.properties.get("session-expiry-interval") == 0
        # Without proof that the client had come back, the time of its absence goes on.
        is_away = told is not None and session.was_here
        closed = wants_end or not session.timeout or not is_kept(session, connection, said_goodbye=packet is not None)
        self._end_will(connection, packet, 0 if closed else session.timeout)
        session.gone(self._node.now(), closed=closed)
        if told and packet is not None and (wants_end or not session.resumes):
            self._end_links(session, told)
        if not is_away:
            self._away.discard(session)
        if not closed:
            self._away.add(session, self._node.now())
        elif self._is_current(session):
            del self.sessions[session.user, session.client]
        self._node.perform()
        if closed:
            self._away.end(session)

    def link_detached(self, session: MqttSession, action: Detach) -> None:
        if self._is_current(session):
            del self.sessions[session.user, session.client]
        if session.connection is not None:
            reason = Reason.TAKEN_OVER if action.condition == STOLEN else Reason.ADMINISTRATIVE
            if action.condition == EXPIRED:
                log.warning("%s has missed messages: %s", session, action.description)
            session.connection.leave(reason, action.description)

    # The methods from here on handle what a client does.

    def on_publish(self, connection: MqttConnection, packet: PublishPacket) -> None:
        session, topic, index = self._of[connection], packet.topic, (packet.topic, packet.qos)
        if session.waiting_bytes > self._limits.window_bytes:
            overflow(session, packet)
            return
        if index not in session.publishers and index not in session.presettled:
            if (why := self._permissions.refusal(connection, session, topic, receives=False)) is not None:
                refuse(session, packet, *why)
                return
            if packet.qos:
                self._publisher(session, topic, packet.qos)
            else:
                address = address_inside(self._node, topic, receives=False)
                session.presettled[index] = PresettledPublisher(session, self._node, address)
        session.publish(packet, self._limits.max_message)
        if len(session.received) > PATIENCE * self._receive_maximum:
            what = f"the client sent more than {PATIENCE * self._receive_maximum} messages at once"
            raise MqttError(Reason.TOO_MANY, what, "unsettled")

    @property
    def _receive_maximum(self) -> int:
        return min(self._limits.window, MOST_IDENTIFIERS)

    def on_ack(self, connection: MqttConnection, packet: AckPacket) -> None:
        self._of[connection].acknowledge(packet)

    def on_subscribe(self, connection: MqttConnection, packet: SubscribePacket) -> None:
        session = self._of[connection]
        granted = self._permissions.grant(connection, session, packet.filters)
        subscribe = partial(session.subscribe, packet.identifier, granted)
        taken = (asked.filter for asked, qos in granted if qos < REFUSED)
        if connection.can_prove and any(self._is_elsewhere(session, name) for name in taken):
            connection.hold(subscribe)
        else:
            subscribe()

    def _is_elsewhere(self, session: MqttSession, address: str) -> bool:
        """Whether the client has this subscription at another router. The client may have gone back to that router by
        now (7.8)."""
        if address in session.subscribers:
            return False
        name = link_name(LinkIdentity(session.client, LINK, address_for(self._node, address), session.user))
        known = self._node.topic.directory.subscriber(name)
        return known is not None and known.live

    def on_unsubscribe(self, connection: MqttConnection, packet: UnsubscribePacket) -> None:
        self._of[connection].unsubscribe(packet.identifier, packet.filters, self._node.now())

    def on_batch(self, connection: MqttConnection) -> None:
        session = self._of.get(connection)
        if session is not None:
            session.batch()

    def waiting_bytes(self, connection: MqttConnection) -> int:
        """The bytes that the client has sent and that no link has transferred yet."""
        session = self._of.get(connection)
        return session.waiting_bytes if session is not None else 0


def _expired_just_now(session: MqttSession, connection: MqttConnection) -> None:
    """End the connection of a client whose session has expired while it connected. The next CONNACK
    tells the client."""
    session.told, session.is_expected = None, False
    connection.leave(Reason.ADMINISTRATIVE, "the session has expired just now")
