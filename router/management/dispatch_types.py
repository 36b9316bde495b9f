"""The types of qpid-dispatch, with the attributes that its tools read, as far as they mean something here.

An attribute that is not counted here is missing, and `qdstat` leaves its column out; where `qdstat` cannot do without,
the attribute is there and has no value. The meanings are those of qpid-dispatch 1.19's schema (`qdrouter.json`);
docs/management.md tells where ours differ.
"""

import logging
import socket
import time
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from itertools import chain
from typing import Any, Final

import psutil
import trio
from attrs import frozen

from linkstate.paths import Route
from router.edge.clients import ClientConnection
from router.edge.ends import PublishingEnd, SubscribingEnd
from router.events.kind import EventKind, event
from router.management.entity import EntityType, ManagedRouter
from router.mesh.config import HTTP, INTER
from router.mesh.quantities import Address
from topic.directory.addresses import is_pattern
from topic.identity import LinkIdentity
from topic.settings import BALANCED, TOPIC

log = logging.getLogger("oncemesh.management")

PREFIX: Final = "org.apache.qpid.dispatch."
AREA: Final = "0"
MOBILE: Final = "M0"
"""Opens the names of addresses that clients choose; the figure is the phase, of which there is one."""
DISTRIBUTIONS: Final = {TOPIC: "multicast", BALANCED: "balanced"}
"""What qpid-dispatch calls the kinds of addresses."""
Kind = EntityType[Any]


def topological(router: str, address: str) -> str:
    """Of a node of one router, as its clients name it from anywhere."""
    return f"_topo/{AREA}/{router}/{address}"


def dispatch_types(at: ManagedRouter) -> Iterator[Kind]:
    yield _router(at)
    yield _node(at)
    yield _listener(at)
    yield _connector(at)
    yield _connection(at)
    yield _link(at)
    yield _address(at)


@cache
def _version() -> str:
    return version("oncemesh")


def _router(at: ManagedRouter) -> Kind:
    topic, timing = at.node.topic, at.topology.timing
    return EntityType[ManagedRouter](
        f"{PREFIX}router",
        {
            "identity": lambda _: f"router/{at.name}",
            "name": lambda _: f"router/{at.name}",
            "id": lambda _: at.name,
            "mode": lambda _: "interior",
            "area": lambda _: AREA,
            "version": lambda _: _version(),
            "hostName": lambda _: socket.gethostname(),
            "helloIntervalSeconds": lambda _: timing.hello,
            "helloMaxAgeSeconds": lambda _: timing.dead,
            "workerThreads": lambda _: 1,
            "uptimeSeconds": lambda _: int(trio.current_time() - at.started),
            "memoryUsage": lambda _: psutil.Process().memory_info().vms,
            "addrCount": lambda _: len(_addresses(at)),
            "linkCount": lambda _: len(topic.home.streams) + len(topic.edge.subscribers),
            "nodeCount": lambda _: len(at.linkstate.routes) + 1,
            "deliveriesIngress": lambda _: topic.records.received.total(),
            "deliveriesEgress": lambda _: topic.records.delivered.total(),
            "acceptedDeliveries": lambda _: topic.records.accepted.total(),
            "linkRouteCount": lambda _: 0,
            "autoLinkCount": lambda _: 0,
            "connectionCount": lambda _: len(at.clients.connections) + len(at.neighbours.connections),
        },
        lambda: [at],
    )


def _node(at: ManagedRouter) -> Kind:
    """Ourselves, and the routers that there is a path to."""
    neighbours = at.linkstate.neighbours

    def route(name: str) -> Route | None:
        return at.linkstate.routes.get(name)

    def next_hop(name: str) -> str | None:
        if name == at.name:
            return "(self)"
        found = route(name)
        return found.next_hop if found is not None and name not in at.neighbours.connections else None

    def last_change(name: str) -> int | None:
        known = neighbours.get(name)
        return int(time.time() - (trio.current_time() - known.since)) if known is not None else None

    return EntityType[str](
        f"{PREFIX}router.node",
        {
            "identity": lambda name: f"router.node/{name}",
            "name": lambda name: f"router.node/{name}",
            "id": lambda name: name,
            "protocolVersion": lambda _: 1,
            "instance": lambda name: found.incarnation if (found := route(name)) else None,
            "linkState": lambda _: None,
            "nextHop": next_hop,
            "validOrigins": lambda _: None,
            "address": lambda name: f"amqp:/_topo/{AREA}/{name}",
            "routerLink": lambda name: neighbour_identity(name) if name in at.neighbours.connections else None,
            "cost": lambda name: found.cost if (found := route(name)) else None,
            "lastTopoChange": last_change,
        },
        lambda: [at.name, *at.linkstate.routes],
    )


def _listener(at: ManagedRouter) -> Kind:
    topology = at.topology
    security, limits, timing = topology.security, topology.limits, topology.timing

    def listeners() -> Iterable[tuple[str, Address]]:
        return [(role, address) for router, role, address in topology.listeners() if router == at.name]

    return EntityType[tuple[str, Address]](
        f"{PREFIX}listener",
        {
            "identity": lambda listener: f"listener/{listener[0]}",
            "name": lambda listener: f"listener/{listener[0]}",
            "host": lambda listener: listener[1].host,
            "port": lambda listener: str(listener[1].port),
            "role": lambda listener: "inter-router" if listener[0] == INTER else "normal",
            "http": lambda listener: listener[0] == HTTP,
            "authenticatePeer": lambda listener: not security.admits_anybody(listener[0], listener[1].host),
            "requireSsl": lambda _: security.tls,
            "maxFrameSize": lambda _: limits.max_frame,
            "idleTimeoutSeconds": lambda _: timing.idle,
        },
        listeners,
    )


def _connector(at: ManagedRouter) -> Kind:
    return EntityType[tuple[str, Address]](
        f"{PREFIX}connector",
        {
            "identity": lambda connector: f"connector/{connector[0]}",
            "name": lambda connector: f"connector/{connector[0]}",
            "host": lambda connector: connector[1].host,
            "port": lambda connector: str(connector[1].port),
            "role": lambda _: "inter-router",
            "cost": lambda connector: at.linkstate.neighbours[connector[0]].cost,
            "connectionStatus": lambda connector: (
                "SUCCESS" if connector[0] in at.neighbours.connections else "CONNECTING"
            ),
        },
        lambda: [(name, Address.parse(address)) for name, address in at.linkstate.plan.dialled_by(at.name).items()],
    )


@frozen
class Peer:
    """The other end of a connection: a client, or a neighbour that has a name."""

    connection: ClientConnection
    identity: str
    neighbour: str = ""


def neighbour_identity(name: str) -> str:
    """Of the connection with a neighbour."""
    return f"router.{name}"


def _peers(at: ManagedRouter) -> Iterator[Peer]:
    for connection, arrival in at.clients.connections.items():
        yield Peer(connection, str(arrival.number))
    for name, connection in at.neighbours.connections.items():
        yield Peer(connection, neighbour_identity(name), name)


def _connection(at: ManagedRouter) -> Kind:
    neighbours, arrivals = at.linkstate.neighbours, at.clients.connections

    def since(peer: Peer) -> float:
        if peer.neighbour:
            return neighbours[peer.neighbour].since
        arrival = arrivals.get(peer.connection)
        return arrival.at if arrival is not None else trio.current_time()

    def delete(peer: Peer) -> None:
        origin, container = peer.connection.origin, peer.connection.remote_container
        told = event(EventKind.CLOSED, origin=origin, container=container)
        log.info("connection of %s (%s) is closed by management", origin, container, extra=told)
        peer.connection.close("amqp:connection:forced", "closed by management")
        peer.connection.wake()

    return EntityType[Peer](
        f"{PREFIX}connection",
        {
            "identity": lambda peer: peer.identity,
            "name": lambda peer: f"connection/{peer.identity}",
            "adminStatus": lambda peer: "deleted" if peer.connection.closing else "enabled",
            "operStatus": lambda peer: "closing" if peer.connection.closing else "up",
            "protocol": lambda peer: peer.connection.protocol,
            "container": lambda peer: peer.connection.remote_container,
            "opened": lambda peer: peer.connection.opened,
            "host": lambda peer: peer.connection.address,
            "dir": lambda peer: "out" if peer.neighbour > at.name else "in",
            "role": lambda peer: "inter-router" if peer.neighbour else "normal",
            "isAuthenticated": lambda peer: peer.connection.user != "",
            "isEncrypted": lambda peer: peer.connection.cipher is not None,
            "sasl": lambda peer: peer.connection.mechanism,
            "user": lambda peer: peer.connection.user,
            "ssl": lambda peer: peer.connection.cipher is not None,
            "sslProto": lambda peer: peer.connection.cipher[1] if peer.connection.cipher else None,
            "sslCipher": lambda peer: peer.connection.cipher[0] if peer.connection.cipher else None,
            "tenant": lambda _: None,
            "uptimeSeconds": lambda peer: int(trio.current_time() - since(peer)),
            "properties": lambda peer: {
                key: value for key, value in peer.connection.remote_properties.items() if isinstance(value, str)
            },
        },
        lambda: _peers(at),
        delete,
    )


End = PublishingEnd | SubscribingEnd


def _ends(at: ManagedRouter) -> Iterator[End]:
    """Of links at topics, but for the suspended."""
    topic = at.node.topic
    links = chain((s.link for s in topic.home.streams.values()), (s.link for s in topic.edge.subscribers.values()))
    return (end for end in links if end is not None)


def _link(at: ManagedRouter) -> Kind:
    arrivals, window = at.clients.connections, at.topology.limits.window

    def connection_of(end: End) -> str | None:
        arrival = next((arrivals[c] for c in (end.link.connection,) if c in arrivals), None)
        return str(arrival.number) if arrival is not None else None

    def unsettled(end: End) -> int:
        return end.stream.window.unsettled if isinstance(end, PublishingEnd) else len(end.records)

    return EntityType[End](
        f"{PREFIX}router.link",
        {
            "identity": lambda end: f"{_direction(end)}/{_name(end).decode()}",
            "name": lambda end: end.link.name,
            "adminStatus": lambda _: "enabled",
            "operStatus": lambda end: "down" if end.link.ended else "up",
            "linkName": lambda end: end.link.name,
            "linkType": lambda _: "endpoint",
            "linkDir": lambda end: _direction(end),
            "connectionId": connection_of,
            "peer": lambda _: None,
            "owningAddr": lambda end: MOBILE + end.identity.address,
            "capacity": lambda end: (
                window if isinstance(end, PublishingEnd) else end.subscriber.credit + len(end.records)
            ),
            "undeliveredCount": lambda end: 0 if isinstance(end, PublishingEnd) else end.subscriber.queued(),
            "unsettledCount": unsettled,
            "deliveryCount": lambda end: (
                end.stream.received if isinstance(end, PublishingEnd) else end.subscriber.delivered
            ),
            "presettledCount": lambda _: None,
            "acceptedCount": lambda end: None if isinstance(end, PublishingEnd) else end.subscriber.accepted,
            "rejectedCount": lambda _: None,
            "releasedCount": lambda _: None,
            "modifiedCount": lambda _: None,
        },
        lambda: _ends(at),
    )


def _direction(end: End) -> str:
    return "in" if isinstance(end, PublishingEnd) else "out"


def _name(end: End) -> bytes:
    return end.stream.publisher if isinstance(end, PublishingEnd) else end.subscriber.name


def _addresses(at: ManagedRouter) -> dict[str, None]:
    """Those that have a publisher or subscriber somewhere, but for patterns."""
    live = (entry.identity.address for entry in at.node.topic.directory.entries() if entry.live)
    return dict.fromkeys(address for address in live if not is_pattern(address))


def _address(at: ManagedRouter) -> Kind:
    topic = at.node.topic

    def locals_of(address: str) -> list[LinkIdentity]:
        return [entry.identity for entry in topic.directory.subscribers(address) if topic.directory.is_mine(entry)]

    def given(address: str) -> int:
        here = (topic.edge.subscribers.get(entry.name) for entry in topic.directory.subscribers(address))
        return sum(subscriber.delivered for subscriber in here if subscriber is not None)

    return EntityType[str](
        f"{PREFIX}router.address",
        {
            "identity": lambda address: MOBILE + address,
            "name": lambda address: MOBILE + address,
            "key": lambda address: MOBILE + address,
            "distribution": lambda address: DISTRIBUTIONS[topic.kinds.of(address).name],
            "inProcess": lambda _: 0,
            "subscriberCount": lambda address: len(locals_of(address)),
            "remoteCount": lambda address: len(topic.directory.audience(address).routers),
            "containerCount": lambda _: 0,
            "remoteHostRouters": lambda address: topic.directory.audience(address).routers,
            "deliveriesIngress": lambda address: sum(s.received for s in topic.home.streams.at(address)),
            "deliveriesEgress": given,
            "deliveriesTransit": lambda _: 0,
            "deliveriesToContainer": lambda _: 0,
            "deliveriesFromContainer": lambda _: 0,
        },
        lambda: _addresses(at),
    )
