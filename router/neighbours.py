"""The transports to neighbouring routers: one AMQP connection for each link (architecture: between routers).

The router with the lower name dials. Each side opens with its router id as container-id; the neighbour is up when both
have opened. From then on both send bodies, on a lane for link state and a lane for channels. Bodies that are ready at
the same time travel together as one body. A connection gets only as many bodies as it is about to write. The other
bodies wait in the outbox, which sends link state before the frames of channels. `linkstate` knows the content of
bodies. Two routers with different wire versions refuse to connect, so the mesh has no link between them (protocol 3).

In a closed mesh a neighbour proves its name before it opens (`router.security`). In an open mesh no router can prove
its name. So a newer connection replaces a neighbour's connection only if the older connection is silent. Otherwise any
stranger could take the neighbour's place. A refused peer learns nothing of the mesh.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import trio

from linkstate.chunks import CHUNK, Buffer
from linkstate.frames import PeerError as BrokenFrame
from linkstate.mesh import Mesh
from linkstate.mesh_actions import CHANNEL, LINKSTATE, Transmit
from linkstate.outbox import Outbox
from router.amqp.body_connection import BodyConnection
from router.amqp.connection import Connection
from router.amqp.format.errors import AmqpError
from router.amqp.format.values import ErrorCondition
from router.amqp.handler import Handler
from router.amqp.proton.link import Link
from router.events.kind import EventKind, event
from router.groups import leaves
from router.mesh.quantities import Address, format_duration
from topic.node import Node

log = logging.getLogger("oncemesh.neighbours")

LANES: Final = (LINKSTATE, CHANNEL)
HELD_BYTES = 512 * 1024
"""The highest number of bytes of bodies that the connection holds before it passes them to the writer. The writer may
hold as many again."""
BEHIND_BYTES = 128 * 1024
"""Replaces HELD_BYTES while the connection is behind, that is, while the stream does not take written bytes at once.
This limit is lower, because new link state has to wait until all held bytes are written."""
JOINED_BYTES = CHUNK
"""The highest number of bytes of bodies that travel as one; a longer body travels alone. The limit has two reasons. The
neighbour reads joined bodies only when all of them have arrived, so a short answer would have to wait for the chunk of
a long message that is joined behind it. And `linkstate.channel.Budget`, which measures the connection in bodies, must
not count two chunks as one."""
MESH = "oncemesh:mesh"
WIRE = "oncemesh:wire"
VERSION = 27
"""The version of all messages between routers (`linkstate.frames`, `topic.wire`, `topic.raft.wire`,
`topic.queues.wire`); every change raises it. Routers of the first version do not send a version."""
REMOVED = "oncemesh:removed"
"""The condition of the close that tells a router that the mesh has removed it while it was out of reach."""
RETRY_FIRST_S = 0.02
RETRY_MOST_S = 1.0


class Transport:
    """One connection with a neighbour, and the bodies that wait until the connection has room for them."""

    __slots__ = ("connection", "held", "name", "outbox", "received", "sent", "up")

    def __init__(self, connection: BodyConnection, name: str) -> None:
        self.connection = connection
        self.name = name
        """The name of the neighbour."""
        self.outbox = Outbox()
        self.held = 0
        """The bytes of bodies that the connection has taken and not written yet."""
        self.up = False
        self.sent = self.received = 0
        """The numbers of sent and received bodies. Bodies that are joined into one count as one."""

    def fill(self) -> bool:
        """Give the connection as many bodies as it has room for. Returns whether it has bodies that are not written
        yet."""
        room = BEHIND_BYTES if self.connection.is_behind else HELD_BYTES
        while self.held < room and (taken := self.outbox.take(JOINED_BYTES)):
            lane, bodies = taken
            self.held += sum(map(len, bodies))
            self.sent += 1
            self.connection.send(LANES.index(lane), bodies)
        return self.held > 0


class Removable(Protocol):
    """The part of `router.plan.departure` that this module uses. It decides when this router ends."""

    def removed(self) -> None:
        """A neighbour says that the mesh has removed this router."""


class Neighbours(Handler):
    """Handles the connections with all neighbours, dialled and accepted."""

    def __init__(self, node: Node, linkstate: Mesh, mesh: str, departure: Removable, *, closed: bool) -> None:
        """`mesh`: the name of this mesh. Routers of other meshes are refused. `closed`: neighbours have to prove their
        names."""
        self.node = node
        self._departure = departure
        self._linkstate = linkstate
        self._mesh = mesh
        self._closed = closed
        self._up: dict[str, Transport] = {}
        self._touched: dict[Transport, None] = {}
        self.parting: set[Connection] = set()
        """Connections with former neighbours. They are kept until their last bytes are written."""
        self._versions: dict[str, object] = {}
        """Neighbour -> its wire version, if this differs from ours."""

    @property
    def properties(self) -> dict[str, Any]:
        """The properties in the open of a connection with a neighbour."""
        return {MESH: self._mesh, WIRE: VERSION}

    @property
    def connections(self) -> dict[str, Connection]:
        """Neighbour -> connection, for links that are up."""
        return {name: transport.connection for name, transport in self._up.items()}

    def exchanged(self, name: str) -> tuple[int, int] | None:
        """The numbers of bodies sent to a neighbour and received from it, on the current connection. None without a
        connection."""
        transport = self._up.get(name)
        return (transport.sent, transport.received) if transport is not None else None

    # The methods from here on are about connections.

    def on_open(self, connection: Connection) -> None:
        name, mesh = connection.remote_container, connection.remote_properties.get(MESH)
        if mesh != self._mesh:
            self._refuse(connection, f"the router belongs to mesh {mesh!r}, expected mesh {self._mesh!r}")
        elif name in self._linkstate.plan.routers and name not in self._linkstate.plan.listed:
            self._refuse(connection, f"router {name!r} was removed from the mesh", REMOVED)
        elif name not in self._linkstate.neighbours:
            self._refuse(connection, f"router {name!r} is not a neighbour of {self.node.name!r}")
        elif self._closed and connection.user != name:
            self._refuse(connection, f"the router authenticated as {connection.user!r}, but its open names it {name!r}")
        elif (version := connection.remote_properties.get(WIRE, 1)) != VERSION:
            self._differ(connection, name, version)
        else:
            assert isinstance(connection, BodyConnection)
            self._come_up(Transport(connection, name))

    def _refuse(self, connection: Connection, why: str, condition: str = "amqp:not-allowed") -> None:
        told = event(EventKind.REFUSED, origin=connection.origin, why=why)
        log.warning("connection of %s refused: %s", connection.origin, why, extra=told)
        connection.context = None
        connection.refuse(condition, "only routers of the mesh may connect to this listener")

    def _differ(self, connection: Connection, name: str, version: object) -> None:
        """Refuse a neighbour with another wire version, because a router must not pass on or believe messages that it
        may not understand. Both routers log the difference, once for each version."""
        if self._versions.get(name) != version:
            log.error(
                "router %s speaks wire version %.20s, this router %d: they cannot be linked", name, version, VERSION
            )
        self._versions[name] = version
        connection.context = None
        connection.close("amqp:not-allowed", f"this router speaks wire version {VERSION}")

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        transport: Transport | None = connection.context
        connection.context = None
        self.parting.discard(connection)
        if transport is not None and condition is not None and condition.name == REMOVED:
            self._departure.removed()
        if transport is not None and self._up.get(transport.name) is transport:
            self._down(transport)

    def _down(self, transport: Transport) -> None:
        down = event(EventKind.NEIGHBOUR_DOWN, neighbour=transport.name)
        log.info("link to router %s is down", transport.name, extra=down)
        del self._up[transport.name]
        transport.up = False
        self._linkstate.link_down(transport.name, self.node.now())
        self.node.pump()

    def _come_up(self, transport: Transport) -> None:
        older = self._up.get(transport.name)
        if older is not None and not self._closed and self._linkstate.neighbours[transport.name].heard:
            self._refuse(
                transport.connection, f"router {transport.name!r} already has a live connection to this router"
            )
            return
        # The neighbour has made a new connection before this router noticed the loss of the old one.
        if older is not None:
            self._down(older)
            older.connection.close("amqp:connection:forced", "a newer connection replaced this one")
            older.connection.wake()
        transport.connection.context = transport
        transport.connection.open()
        transport.up = True
        self._up[transport.name] = transport
        self._versions.pop(transport.name, None)
        up = event(EventKind.NEIGHBOUR_UP, neighbour=transport.name)
        log.info("link to router %s is up", transport.name, extra=up)
        self._linkstate.link_up(transport.name, self.node.now())
        self.node.pump()

    def on_attach(self, link: Link) -> None:
        link.refuse("amqp:not-allowed", "only routers of the mesh may connect to this listener")

    # The methods from here on receive data.

    def bytes_received(self, connection: Connection) -> bool:
        """Bytes came from the peer, perhaps only a part of a body. If the peer is a neighbour, they show that it lives.
        Returns False if the peer has not opened as a neighbour."""
        transport: Transport | None = connection.context
        if transport is not None and self._counts(transport) and connection.last_received is not None:
            self._linkstate.bytes_received(transport.name, connection.last_received)
        return transport is not None

    def _counts(self, transport: Transport) -> bool:
        """Whether the router handles the bodies of this peer: the peer is up, and is a neighbour. One read may bring
        several bodies. If one of them removes the peer from the plan, the router ignores the later ones, although
        `follow` closes the transport only after the whole read."""
        return transport.up and transport.name in self._linkstate.neighbours

    def on_body(self, connection: BodyConnection, lane: int, body: Buffer) -> None:
        transport: Transport | None = connection.context
        now = connection.last_received
        if transport is None or now is None or not self._counts(transport):
            return
        transport.received += 1
        try:
            self._linkstate.receive(transport.name, LANES[lane], body, now)
        except (BrokenFrame, ValueError) as error:
            raise AmqpError("amqp:decode-error", f"router {transport.name}: {error}") from error

    # The methods from here on send bodies.

    def transmit(self, action: Transmit) -> None:
        transport = self._up.get(action.neighbour)
        if transport is not None:
            transport.outbox.put(action.lane, action.body)
            self._touched[transport] = None

    def flush(self) -> None:
        """Fill the connections of all neighbours that have new bodies, and wake them to write."""
        touched, self._touched = self._touched, {}
        for transport in touched:
            if transport.up:
                transport.fill()
                transport.connection.wake()

    def written(self, connection: Connection) -> None:
        """The connection is about to write all bodies that it held, so give it more."""
        transport: Transport | None = connection.context
        if transport is not None and transport.up:
            transport.held = 0
            if transport.fill():
                connection.wake()

    def follow(self) -> None:
        """Close the links that the plan no longer has, once all their bodies are written."""
        for name in [name for name in self._up if name not in self._linkstate.neighbours]:
            transport = self._up.pop(name)
            transport.fill()
            transport.up = False
            self.parting.add(transport.connection)
            transport.connection.close("amqp:connection:forced", "the router is no longer a neighbour")
            transport.connection.wake()

    def close(self) -> None:
        for transport in list(self._up.values()):
            transport.connection.close("amqp:connection:forced", "the router stops")
            transport.connection.wake()


async def keep_dialling(
    neighbour: str, address: Address, patience: float, visit: Callable[[trio.SocketStream, str], Awaitable[None]]
) -> None:
    """Keep a connection to a neighbour. After a failed attempt, the pause doubles up to RETRY_MOST_S. A connection that
    lasts for less than RETRY_MOST_S counts as a failed attempt. An attempt ends after `patience` seconds, because the
    kernel would try for minutes while a cable is out. Until a connection succeeds, each reason of a failure is logged
    only once, even if two reasons alternate."""
    wait = RETRY_FIRST_S
    told: set[str] = set()
    while True:
        try:
            with trio.fail_after(patience):
                stream = await trio.open_tcp_stream(address.host, address.port)
        except (OSError, trio.TooSlowError) as error:
            if (why := _reason(error, patience)) not in told:
                log.info("cannot reach router %s at %s: %s", neighbour, address, why)
                told.add(why)
        else:
            began = trio.current_time()
            told.clear()
            async with stream:
                await visit(stream, neighbour)
            if trio.current_time() - began > RETRY_MOST_S:
                wait = RETRY_FIRST_S
        await trio.sleep(wait)
        wait = min(2 * wait, RETRY_MOST_S)


def _reason(error: OSError | trio.TooSlowError, patience: float) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"no answer within {format_duration(patience)}"
    last = [*leaves(error.__cause__ or error)][-1]
    # An error number of 0 or below stands for an unknown host name.
    if isinstance(last, OSError) and last.errno is not None and last.errno > 0:
        return os.strerror(last.errno)
    return getattr(last, "strerror", None) or str(last)
