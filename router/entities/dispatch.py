"""The types of qpid-dispatch, with the attributes that its tools read and that have a meaning here.

An attribute that this router does not count is missing, and `qdstat` leaves its column out. If `qdstat` needs the
attribute, it exists without a value. The meanings are as in qpid-dispatch 1.19's schema (`qdrouter.json`), except where
an attribute says otherwise.
"""

import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import psutil
import trio
from attrs import frozen

from router.edge.clients import ClientConnection
from router.edge.ends import ClientPublishingEnd, ClientSubscribingEnd
from router.entities.observed import ObservedRouter
from router.entities.routers import our_version, route_to
from router.entities.table import DISPATCH, Attribute, Entity, Metric, Type, Where
from router.mesh.config import AMQP_WS, HTTP, INTER, MQTT_WS, kind_of
from router.mesh.quantities import Address
from topic.directory.addresses import is_pattern
from topic.directory.entry import LinkEntry
from topic.identity import CONTAINER, egress_address, ingress_address, shown_address

AREA: Final = "0"
MOBILE: Final = "M0"
"""The beginning of the names of addresses that clients choose. The digit is qpid-dispatch's phase, which is always 0
here."""


VALUELESS: Final = "no value here"
"""The meaning that the table gives for an attribute that exists only for tools."""


def topological(router: str, address: str) -> str:
    """The address of one router's node, as clients of any router name it."""
    return f"_topo/{AREA}/{router}/{address}"


def _told(
    name: str, type_: Type, says: str, read: Callable[[ObservedRouter, Any], Any], series: str = ""
) -> Attribute[Any]:
    return Attribute(name, type_, says, read, Where.MANAGEMENT, Metric(series) if series else None)


def _fixed(name: str, value: Any) -> Attribute[Any]:
    """An attribute for tools, with the same value for all entities."""
    type_ = Type.TEXT if isinstance(value, str | None) else Type.NUMBER
    return _told(name, type_, f"always {value}" if value is not None else VALUELESS, lambda at, one: value)


def _addresses(at: ObservedRouter) -> dict[str, None]:
    """The addresses at which clients of any router publish or subscribe, as clients name them. Patterns
    are left out."""
    live = (entry.identity for entry in at.node.topic.directory.entries() if entry.live)
    named = (shown_address(one.address) for one in live if one.container != CONTAINER)
    return dict.fromkeys(address for address in named if not is_pattern(address))


def _links_count(at: ObservedRouter) -> int:
    return len(at.node.topic.home.streams) + len(at.node.topic.edge.subscribers)


def _connection_count(at: ObservedRouter) -> int:
    return len(at.clients.connections) + len(at.neighbours.connections)


def _default_distribution(at: ObservedRouter, _: ObservedRouter) -> str:
    is_default = any(not prefix for prefix, _ in at.topology.kinds)
    return at.node.topic.kinds.of("").distribution if is_default else "unavailable"


ASKED_BY_SKSTAT: Final = (
    "raIntervalSeconds", "raIntervalFluxSeconds", "remoteLsMaxAgeSeconds", "debugDumpFile", "saslConfigDir",
    "saslConfigName", "timestampsInUTC", "timestampFormat", "metadata", "dataConnectionCount",
    "tenantId",
)  # fmt: skip
"""Attributes of a router that `skstat` of skupper-router needs, and that mean nothing in this project."""

ROUTER: Final = Entity[ObservedRouter](
    "router",
    "this router",
    lambda at: [at],
    (
        _told("identity", Type.TEXT, "`router/` and its name", lambda at, _: f"router/{at.name}"),
        _told("name", Type.TEXT, "the same", lambda at, _: f"router/{at.name}"),
        _told("id", Type.TEXT, "its name", lambda at, _: at.name),
        _fixed("mode", "interior"),
        _fixed("area", AREA),
        _told("version", Type.TEXT, "the version of oncemesh", lambda at, _: our_version()),
        _told("hostName", Type.TEXT, "the name of its host", lambda at, _: socket.gethostname()),
        _told("helloIntervalSeconds", Type.SECONDS, "`timing.hello`", lambda at, _: at.topology.timing.hello),
        _told("helloMaxAgeSeconds", Type.SECONDS, "`timing.dead`", lambda at, _: at.topology.timing.dead),
        _told("networkId", Type.TEXT, "the name of the mesh", lambda at, _: at.topology.mesh),
        *(_fixed(name, None) for name in ASKED_BY_SKSTAT),
        _told("defaultDistribution", Type.TEXT, "how messages are shared at addresses for which the topology has no "
            "prefix but the empty one: `multicast`, `balanced`, `closest`, or `unavailable`", _default_distribution),
        _fixed("workerThreads", 1),
        _told("uptimeSeconds", Type.SECONDS, "how long it has been running", lambda at, _: int(at.uptime_s)),
        _told("memoryUsage", Type.BYTES, "its address space", lambda at, _: psutil.Process().memory_info().vms),
        _told("residentMemoryUsage", Type.BYTES, "its resident memory",
            lambda at, _: psutil.Process().memory_info().rss),
        _told("addrCount", Type.NUMBER, "addresses with a publisher or subscriber at any router",
            lambda at, _: len(_addresses(at)), "qdr_addresses_total"),
        _told("linkCount", Type.NUMBER, "publishers and subscribers of this router, attached or suspended",
            lambda at, _: _links_count(at), "qdr_links_total"),
        _told("nodeCount", Type.NUMBER, "this router and all routers to which a path exists",
            lambda at, _: len(at.linkstate.routes) + 1, "qdr_routers_total"),
        _told("deliveriesIngress", Type.COUNT, "transfers from publishers whose home is this router",
            lambda at, _: at.node.topic.records.received.total()),
        _told("deliveriesEgress", Type.COUNT, "transfers to subscribers of this router, with repetitions",
            lambda at, _: at.node.topic.records.delivered.total()),
        _told("acceptedDeliveries", Type.COUNT, "transfers that subscribers of this router accepted",
            lambda at, _: at.node.topic.records.accepted.total()),
        _fixed("linkRouteCount", 0),
        _fixed("autoLinkCount", 0),
        _told("connectionCount", Type.NUMBER, "connections with clients and neighbours",
            lambda at, _: _connection_count(at), "qdr_connections_total"),
    ),
    managed=f"{DISPATCH}router",
)  # fmt: skip


def neighbour_identity(name: str) -> str:
    """The identity of the connection with a neighbour."""
    return f"router.{name}"


def _next_hop(at: ObservedRouter, name: str) -> str | None:
    if name == at.name:
        return "(self)"
    found = route_to(at, name)
    return found.next_hop if found is not None and name not in at.neighbours.connections else None


def _last_change(at: ObservedRouter, name: str) -> int | None:
    known = at.linkstate.neighbours.get(name)
    return int(time.time() - (trio.current_time() - known.since)) if known is not None else None


NODE: Final = Entity[str](
    "router.node",
    "this router and all routers to which a path exists",
    lambda at: [at.name, *at.linkstate.routes],
    (
        _told("identity", Type.TEXT, "`router.node/` and its name", lambda at, name: f"router.node/{name}"),
        _told("name", Type.TEXT, "the same", lambda at, name: f"router.node/{name}"),
        _told("id", Type.TEXT, "its name", lambda at, name: name),
        _fixed("protocolVersion", 1),
        _told("instance", Type.NUMBER, "its incarnation",
            lambda at, name: found.incarnation if (found := route_to(at, name)) else None),
        _fixed("linkState", None),
        _told("nextHop", Type.TEXT, "the neighbour to which messages for it go (`(self)` for this router, empty for a "
            "neighbour)", _next_hop),
        _fixed("validOrigins", None),
        _told("address", Type.TEXT, "the beginning of its nodes' addresses",
            lambda at, name: f"amqp:/_topo/{AREA}/{name}"),
        _told("routerLink", Type.TEXT, "the connection, if it is a neighbour",
            lambda at, name: neighbour_identity(name) if name in at.neighbours.connections else None),
        _told("cost", Type.NUMBER, "the sum of the costs on the path",
            lambda at, name: found.cost if (found := route_to(at, name)) else None),
        _told("lastTopoChange", Type.SECONDS, "if it is a neighbour, when its link came up or went down: seconds "
            "since 1970", _last_change),
    ),
    managed=f"{DISPATCH}router.node",
)  # fmt: skip


def _listeners(at: ObservedRouter) -> Iterable[tuple[str, Address]]:
    return [(role, address) for router, role, address in at.topology.listeners() if router == at.name]


LISTENER: Final = Entity[tuple[str, Address]](
    "listener",
    "listeners of the topology",
    _listeners,
    (
        _told("identity", Type.TEXT, "`listener/` and its name in the topology", lambda at, one: f"listener/{one[0]}"),
        _told("name", Type.TEXT, "the same", lambda at, one: f"listener/{one[0]}"),
        _told("host", Type.TEXT, "where it listens", lambda at, one: one[1].host),
        _told("port", Type.TEXT, "where it listens", lambda at, one: str(one[1].port)),
        _told("role", Type.TEXT, "`inter-router` or `normal`",
            lambda at, one: "inter-router" if kind_of(one[0]) == INTER else "normal"),
        _told("http", Type.FLAG, "whether it serves browsers: `http`, and the listeners for WebSocket",
            lambda at, one: kind_of(one[0]) in (HTTP, AMQP_WS, MQTT_WS)),
        _told("authenticatePeer", Type.FLAG, "whether a peer has to authenticate",
            lambda at, one: not at.topology.security.admits_anybody(one[0], one[1].host)),
        _told("requireSsl", Type.FLAG, "whether it needs TLS", lambda at, one: at.topology.security.tls),
        _told("maxFrameSize", Type.BYTES, "`limits.max_frame`", lambda at, one: at.topology.limits.max_frame),
        _told("idleTimeoutSeconds", Type.SECONDS, "`timing.idle`", lambda at, one: at.topology.timing.idle),
    ),
    managed=f"{DISPATCH}listener",
)  # fmt: skip

CONNECTOR: Final = Entity[tuple[str, Address]](
    "connector",
    "neighbours that this router dials",
    lambda at: [(name, Address.parse(address)) for name, address in at.linkstate.plan.dialled_by(at.name).items()],
    (
        _told("identity", Type.TEXT, "`connector/` and the neighbour's name", lambda at, one: f"connector/{one[0]}"),
        _told("name", Type.TEXT, "the same", lambda at, one: f"connector/{one[0]}"),
        _told("host", Type.TEXT, "where it dials", lambda at, one: one[1].host),
        _told("port", Type.TEXT, "where it dials", lambda at, one: str(one[1].port)),
        _fixed("role", "inter-router"),
        _told("cost", Type.NUMBER, "the cost of the link", lambda at, one: at.linkstate.neighbours[one[0]].cost),
        _told("connectionStatus", Type.TEXT, "`SUCCESS` or `CONNECTING`",
            lambda at, one: "SUCCESS" if one[0] in at.neighbours.connections else "CONNECTING"),
    ),
    managed=f"{DISPATCH}connector",
)  # fmt: skip


@frozen
class Peer:
    """The name of the other end of a connection: a client, or a neighbour."""

    connection: ClientConnection
    identity: str
    neighbour: str = ""


def _peers(at: ObservedRouter) -> Iterator[Peer]:
    for connection, arrival in at.clients.connections.items():
        yield Peer(connection, str(arrival.number))
    for name, connection in at.neighbours.connections.items():
        yield Peer(connection, neighbour_identity(name), name)


def _properties(peer: Peer) -> Iterable[tuple[str, Any]]:
    return peer.connection.remote_properties.items()


def _connected_s(at: ObservedRouter, peer: Peer) -> int:
    now = trio.current_time()
    if peer.neighbour:
        return int(now - at.linkstate.neighbours[peer.neighbour].since)
    arrival = at.clients.connections.get(peer.connection)
    return int(now - arrival.at) if arrival is not None else 0


CONNECTION: Final = Entity[Peer](
    "connection",
    "connections with clients (by number) and with neighbours (`router.b`); `DELETE` closes one",
    _peers,
    (
        _told("identity", Type.TEXT, "a number, or `router.` and the neighbour's name", lambda at, peer: peer.identity),
        _told("name", Type.TEXT, "`connection/` and its identity", lambda at, peer: f"connection/{peer.identity}"),
        _told("adminStatus", Type.TEXT, "`enabled`, or `deleted` while it closes",
            lambda at, peer: "deleted" if peer.connection.closing else "enabled"),
        _told("operStatus", Type.TEXT, "`up` or `closing`",
            lambda at, peer: "closing" if peer.connection.closing else "up"),
        _told("protocol", Type.TEXT, "AMQP or MQTT, with its version", lambda at, peer: peer.connection.protocol),
        _told("container", Type.TEXT, "the peer's container-id", lambda at, peer: peer.connection.remote_container),
        _told("opened", Type.FLAG, "whether both ends have opened it", lambda at, peer: peer.connection.opened),
        _told("host", Type.TEXT, "the address of the peer", lambda at, peer: peer.connection.address),
        _told("dir", Type.TEXT, "`in` or `out`", lambda at, peer: "out" if peer.neighbour > at.name else "in"),
        _told("role", Type.TEXT, "`inter-router` or `normal`",
            lambda at, peer: "inter-router" if peer.neighbour else "normal"),
        _told("isAuthenticated", Type.FLAG, "whether the peer has authenticated",
            lambda at, peer: peer.connection.user != ""),
        _told("isEncrypted", Type.FLAG, "whether it has TLS", lambda at, peer: peer.connection.cipher is not None),
        _told("sasl", Type.TEXT, "the SASL mechanism", lambda at, peer: peer.connection.mechanism),
        _told("user", Type.TEXT, "the peer's user name", lambda at, peer: peer.connection.user),
        _told("ssl", Type.FLAG, "whether it has TLS", lambda at, peer: peer.connection.cipher is not None),
        _told("sslProto", Type.TEXT, "the version of TLS",
            lambda at, peer: peer.connection.cipher[1] if peer.connection.cipher else None),
        _told("sslCipher", Type.TEXT, "the cipher of TLS",
            lambda at, peer: peer.connection.cipher[0] if peer.connection.cipher else None),
        _fixed("tenant", None),
        _told("uptimeSeconds", Type.SECONDS, "how long it has existed", _connected_s),
        _told("properties", Type.MAP, "the text properties of the peer's open",
            lambda at, peer: {key: said for key, said in _properties(peer) if isinstance(said, str)}),
    ),
    managed=f"{DISPATCH}connection",
)  # fmt: skip

End = ClientPublishingEnd[Any] | ClientSubscribingEnd


def _ends(at: ObservedRouter) -> Iterator[End]:
    """The ends of clients' links at topics, without the suspended ones."""
    topic = at.node.topic
    links = chain((s.link for s in topic.home.streams.values()), (s.link for s in topic.edge.subscribers.values()))
    return (end for end in links if isinstance(end, ClientPublishingEnd | ClientSubscribingEnd))


def _direction(end: End) -> str:
    return "in" if isinstance(end, ClientPublishingEnd) else "out"


def _name_of(end: End) -> bytes:
    return end.stream.publisher if isinstance(end, ClientPublishingEnd) else end.subscriber.name


def _connection_of(at: ObservedRouter, end: End) -> str | None:
    arrivals = at.clients.connections
    arrival = next((arrivals[c] for c in (end.link.connection,) if c in arrivals), None)
    return str(arrival.number) if arrival is not None else None


def _capacity(at: ObservedRouter, end: End) -> int:
    if isinstance(end, ClientPublishingEnd):
        return at.topology.limits.window
    return end.subscriber.credit + len(end.records)


LINK: Final = Entity[End](
    "router.link",
    "attached publishers (`in`) and subscribers (`out`) of topics",
    _ends,
    (
        _told("identity", Type.TEXT, "its direction and the name of the link in the mesh",
            lambda at, end: f"{_direction(end)}/{_name_of(end).decode()}"),
        _told("name", Type.TEXT, "the link name that its client chose", lambda at, end: end.link.name),
        _fixed("adminStatus", "enabled"),
        _told("operStatus", Type.TEXT, "`up` or `down`", lambda at, end: "down" if end.link.ended else "up"),
        _told("linkName", Type.TEXT, "the link name that its client chose", lambda at, end: end.link.name),
        _fixed("linkType", "endpoint"),
        _told("linkDir", Type.TEXT, "`in` or `out`", lambda at, end: _direction(end)),
        _told("connectionId", Type.TEXT, "the identity of its connection", _connection_of),
        _fixed("peer", None),
        _told("owningAddr", Type.TEXT, "its address", lambda at, end: MOBILE + shown_address(end.identity.address)),
        _told("capacity", Type.NUMBER, "a publisher's window, or a subscriber's unsettled deliveries and credit "
            "together",
            _capacity),
        _told("undeliveredCount", Type.NUMBER, "deliveries that wait for the subscriber",
            lambda at, end: 0 if isinstance(end, ClientPublishingEnd) else end.subscriber.queued()),
        _told("unsettledCount", Type.NUMBER, "deliveries that are not settled",
            lambda at, end: end.stream.window.unsettled if isinstance(end, ClientPublishingEnd) else len(end.records)),
        _told("deliveryCount", Type.COUNT, "transfers since the link attached",
            lambda at, end: end.stream.received if isinstance(end, ClientPublishingEnd) else end.subscriber.delivered),
        _fixed("presettledCount", None),
        _told("acceptedCount", Type.COUNT, "transfers that the subscriber accepted",
            lambda at, end: None if isinstance(end, ClientPublishingEnd) else end.subscriber.accepted),
        _fixed("rejectedCount", None),
        _fixed("releasedCount", None),
        _fixed("modifiedCount", None),
    ),
    managed=f"{DISPATCH}router.link",
)  # fmt: skip


def _inside(at: ObservedRouter, address: str, ends: Callable[[str, str], str]) -> str:
    """The address inside the mesh for the links of clients to `address`. For a queue this is its `ingress_address` or
    `egress_address`, as `ends` returns it."""
    sets = at.node.sets
    if sets is None or not at.node.topic.kinds.of(address).in_sets:
        return address
    plan = sets.set_map.plan_of(address)
    return ends(plan.name, address) if plan is not None else address


def _subscribers(at: ObservedRouter, address: str) -> Collection[LinkEntry]:
    return at.node.topic.directory.subscribers(_inside(at, address, egress_address))


def _locals(at: ObservedRouter, address: str) -> int:
    return sum(map(at.node.topic.directory.is_mine, _subscribers(at, address)))


def _remotes(at: ObservedRouter, address: str) -> Sequence[str]:
    return at.node.topic.directory.audience(_inside(at, address, egress_address)).routers


def _taken(at: ObservedRouter, address: str) -> int:
    streams = at.node.topic.home.streams.at(_inside(at, address, ingress_address))
    return sum(stream.received for stream in streams)


def _given(at: ObservedRouter, address: str) -> int:
    here = (at.node.topic.edge.subscribers.get(entry.name) for entry in _subscribers(at, address))
    return sum(subscriber.delivered for subscriber in here if subscriber is not None)


def _mobile(at: ObservedRouter, address: str) -> str:
    return MOBILE + address


ADDRESS: Final = Entity[str](
    "router.address",
    "addresses with a publisher or subscriber at any router; the subscribers of a pattern count at each address that "
    "it covers",
    _addresses,
    (
        _told("identity", Type.TEXT, "`M0` and the address", _mobile),
        _told("name", Type.TEXT, "the same", _mobile),
        _told("key", Type.TEXT, "the same", _mobile),
        _told("distribution", Type.TEXT, "`balanced`, `closest` or `multicast`",
            lambda at, address: at.node.topic.kinds.of(address).distribution),
        _fixed("inProcess", 0),
        _told("subscriberCount", Type.NUMBER, "subscribers of this router", _locals),
        _told("remoteCount", Type.NUMBER, "other routers with subscribers",
            lambda at, address: len(_remotes(at, address))),
        _fixed("containerCount", 0),
        _told("remoteHostRouters", Type.TEXTS, "other routers with subscribers",
            _remotes),
        _told("deliveriesIngress", Type.COUNT, "transfers from the present publishers of this router", _taken),
        _told("deliveriesEgress", Type.COUNT, "transfers to the present subscribers of this router", _given),
        _fixed("deliveriesTransit", 0),
        _fixed("deliveriesToContainer", 0),
        _fixed("deliveriesFromContainer", 0),
    ),
    managed=f"{DISPATCH}router.address",
)  # fmt: skip
