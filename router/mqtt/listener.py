"""The listeners `mqtt` and `mqtt-ws` of a router: admits clients as the AMQP listener does
(docs/mqtt.md, docs/security.md).

`router.process` imports it only if the router has such a listener.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol

import trio
from attrs import frozen

from router.admission import Handler, Visitor
from router.amqp import tcp
from router.amqp.format.errors import TOO_MANY
from router.edge.guard import Guard
from router.entities.observed import ObservedRouter
from router.mqtt.connection import MqttConnection
from router.mqtt.edge import HEADROOM, MqttEdge
from router.mqtt.format.packets import ConnectPacket
from router.mqtt.format.values import MqttError, Reason
from router.security.attempts import Guesses
from router.security.doors import Doors, LetIn, told

log = logging.getLogger("oncemesh.mqtt")

BACKLOG: Final = 1 << 20
"""The highest number of bytes of a client's messages that may wait. If a client has more, the router reads from it more
slowly."""
UNSENT: Final = 20_000
"""The highest number of packets that may wait until the client reads them. If there are more, the router reads from it
more slowly, too."""
PATIENCE_S: Final = 1.0
"""The longest time, in seconds, for which one read waits until fewer bytes or packets wait. After this time the router
has to read, because the waiting messages may need a later packet of the client."""
LOOK_S: Final = 0.01

Turn = Callable[[], Awaitable[None]]


class Driver(Protocol):
    """An object that drives connections: `router.process`."""

    async def drive(
        self,
        stream: trio.abc.Stream,
        connection: MqttConnection,
        after_input: Callable[[], None],
        peer: str,
        before_output: Callable[[], None],
        turn: Turn,
    ) -> None:
        """Drive the connection until it is over. Each read waits for its `turn`."""


@frozen
class Door:
    """How a client has connected. `user_of` decides by this, and by the CONNECT, which user the client is."""

    certified: str
    """The user that the client's certificate names; empty if none."""
    guesses: Guesses
    """The password attempts of this connection. They are limited for each client address."""
    doors: Doors
    passwords: bool
    """Whether this listener accepts passwords."""
    anybody: bool
    """Whether this listener admits clients without authentication."""

    def user_of(self, packet: ConnectPacket) -> str:
        if packet.user is not None and self.passwords:
            if not self.guesses.may_check():
                raise MqttError(Reason.BUSY, TOO_MANY)
            password = (packet.password or b"").decode(errors="replace")
            if not self.doors.proves(packet.user, password):
                self.guesses.was_wrong()
                raise MqttError(
                    Reason.BAD_PASSWORD, f"the user {packet.user[:64]!r} is unknown, or the password is wrong"
                )
            return packet.user
        if self.certified:
            return self.certified
        if not self.anybody:
            raise MqttError(Reason.NOT_AUTHORIZED, "clients have to authenticate at this listener")
        return ""


class MqttListener:
    """The MQTT listeners of one router, whose clients share the sessions."""

    def __init__(self, at: ObservedRouter, guard: Guard, doors: Doors, turn: Turn, driver: Driver) -> None:
        topology = at.topology
        limits = topology.limits
        prefixes = [rule.prefix for rule in topology.addresses]
        self.edge = MqttEdge(at.node, at.clients, guard, prefixes, limits, int(topology.timing.terminus))
        self._at = at
        self._limits = limits
        self._doors = doors
        self._turn = turn
        self._driver = driver
        self._boot = trio.Lock()
        self._security = topology.security

    def handler(self, host: str, let_in: LetIn, *, anybody: bool) -> Handler:
        """The handler of clients at a listener at this host. `let_in`: lets a client's stream in. `anybody`: the
        listener admits clients without authentication."""
        security = self._security
        has_passwords = security.users is not None or security.secret is not None
        passwords = has_passwords and security.hears_passwords(host)

        def door(certified: str, guesses: Guesses) -> Door:
            return Door(certified, guesses, self._doors, passwords, anybody)

        return partial(self._serve, let_in, door)

    async def _serve(
        self, let_in: LetIn, door: Callable[[str, Guesses], Door], below: trio.SocketStream, visitor: Visitor
    ) -> None:
        with told(str(visitor)):
            stream, certified, guesses = await let_in(tcp.prompt(below))
            if not await self._boots(below):
                return
            connection = MqttConnection(self.edge, self._limits.max_message + HEADROOM, self._limits.opening)
            connection.context = visitor
            self.edge.entrances[connection] = door(certified, guesses)

            async def turn() -> None:
                tcp.acknowledge(below)
                await self._slow_down(connection)
                await self._turn()
                if not connection.opened:
                    await guesses.turn()

            written = partial(self._at.clients.written, connection)
            await self._driver.drive(stream, connection, self._at.node.pump, str(visitor), written, turn)

    async def _boots(self, below: trio.SocketStream) -> bool:
        """Wait until this router has booted, and knows the links that clients have at other routers: a CONNACK has to
        say whether the client has a session (docs/mqtt.md). Returns False if the client has disconnected meanwhile. The
        caller then drops the CONNECT, because the client may have connected again, and the old CONNECT would end the
        newer connection."""
        boot = self._at.node.topic.boot
        if not boot.waiting_for:
            return True
        # One waiting client looks at intervals whether the router has booted. The others wait for it.
        async with self._boot:
            while boot.waiting_for:
                await trio.sleep(LOOK_S)
        kernel = tcp.kernel_of(below)
        return kernel is None or kernel.is_open()

    async def _slow_down(self, connection: MqttConnection) -> None:
        """Read more slowly from a client that publishes faster than the mesh accepts, or that does not read its
        answers."""
        until = trio.current_time() + PATIENCE_S
        while self._has_enough(connection) and trio.current_time() < until:
            await trio.sleep(LOOK_S)

    def _has_enough(self, connection: MqttConnection) -> bool:
        return self.edge.waiting_bytes(connection) > BACKLOG or connection.unsent > UNSENT
