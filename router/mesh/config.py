"""The configuration of a mesh: one frozen class for each part of the topology file, and the unit of every field.

router/mesh/topology.py reads the file. The configuration does not change after that, and a router has no other
configuration.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from router.mesh.quantities import Address
from router.mesh.reading import KEY
from topic.queues.moving.policy import PREFER, MovePolicy
from topic.settings import DAY_S, TOPIC, BackOff


@attrs.frozen
class RouterConfig:
    name: str
    amqp: Address
    """The listener for AMQP clients."""
    inter: Address | None = None
    """The listener for other routers. None: any free port, which the launcher chooses and publishes."""
    advertise: Address | None = None
    """The address at which clients find the router, if this is not `amqp`: a host's name, for example, or a forwarded
    port. If `amqp` listens at every address, the topology has to give `advertise`."""
    http: Address | None = None
    """The listener for metrics, health and the console; None: the router has none."""
    mqtt: Address | None = None
    """The listener for clients that speak MQTT; None: the router has none."""
    more: Mapping[str, Address] = attrs.Factory(dict)
    """Further listeners, keyed by the listener's name (`kind_of`)."""

    @property
    def told(self) -> Address:
        """The address at which clients find the router."""
        return self.advertise or self.amqp

    @property
    def dialled(self) -> Address | None:
        """The address at which neighbours find the router. If `inter` listens at every address, this address has the
        host at which clients find the router, and the port of `inter`."""
        if self.inter is None or not self.inter.is_anywhere:
            return self.inter
        return Address(self.told.host, self.inter.port)


@attrs.frozen
class LinkConfig:
    """A connection between two routers, dialled by the one with the lower name."""

    a: str
    b: str
    cost: int = 1
    address: Address | None = None
    """The address to dial, in place of the address of the router with the higher name; for example a forwarded port."""

    def other(self, name: str) -> str:
        assert name in (self.a, self.b)
        return self.b if name == self.a else self.a


@attrs.frozen
class AddressRule:
    prefix: str
    kind: str = TOPIC
    retry_after: float | None = None
    """For how many seconds a delivery rests after a subscriber has given it back (protocol 12.11). None: the delivery
    does not rest."""
    retry_factor: int | None = None
    """The factor by which the rest grows with each further return. None: the rest stays the same."""
    retry_most: float | None = None
    """The longest rest, in seconds. None: a day."""

    @property
    def pauses(self) -> BackOff | None:
        """The pauses of these settings; None if deliveries do not rest."""
        if self.retry_after is None:
            return None
        return BackOff(self.retry_after, self.retry_factor or 1, self.retry_most or DAY_S)


DISK, MEMORY = "disk", "memory"
SYNCS = (DISK, MEMORY)


@attrs.frozen
class NamedSet:
    """A replica set for the queues whose names begin with a prefix."""

    name: str
    prefix: str
    voters: tuple[str, ...]
    """The routers that have a replica of the set with a vote."""
    prefer: str | None = None
    """The voter that leads whenever it can; None: the first voter."""
    moves: str = PREFER
    """How the lead moves from one voter to another without a command (`topic.queues.moving.policy`)."""
    hold: float | None = None
    """If `moves` is `share`: the seconds for which a router leads before another voter takes its turn. None:
    `MovePolicy.hold_s`."""
    copies: tuple[str, ...] = attrs.field(default=(), metadata={KEY: "async"})
    """The routers that keep an asynchronous copy of the set: a replica without a vote."""

    @property
    def policy(self) -> MovePolicy:
        return MovePolicy(self.moves) if self.hold is None else MovePolicy(self.moves, self.hold)

    @property
    def ring(self) -> tuple[str, ...]:
        """The voters, the preferred one first."""
        return tuple(sorted(self.voters, key=lambda voter: voter != self.prefer))


@attrs.frozen
class Queues:
    """The replica sets of a mesh (protocol 13). The set of a queue is fixed for the life of the mesh."""

    sets: int = 8
    """The number of hashed sets. If a queue belongs to no named set, the hash of its name selects its hashed set."""
    replicas: int = 3
    """The number of replicas of each hashed set. By default, a mesh with fewer routers has one at each router."""
    sync: str = DISK
    """When a change of a set counts as stored: with `disk`, when the disk has it; with `memory`, when the kernel has
    it. A power cut loses what only the kernel has."""
    limit: int = 8 << 30
    """The highest number of bytes of messages that all queues of a set may have together. Each router of the set has
    all these bytes on its disk."""
    named: tuple[NamedSet, ...] = ()
    """The named sets, in the order in which their prefixes are tried."""


@attrs.frozen
class Timing:
    """The times of the protocol, in seconds."""

    hello: float = 0.2
    """The time between two HELLOs to a neighbour."""
    dead: float = 1.0
    """A neighbour that is silent for longer than this is lost."""
    idle: float = 2.0
    """The AMQP idle-timeout that the router announces to clients. The router disconnects a client that is silent for
    longer. The router itself sends so often that a client with the same timeout does not give up the router."""
    join: float = 2.0
    """A router that takes longer than this to join a subscriber, or to make other progress, is no longer in contact."""
    terminus: float = 60.0
    """The longest timeout that a client's terminus is granted."""
    forget: float = 86_400.0
    """How long routers keep the state of absent clients while some router is out of contact. The clients may be
    attached to that router, so the others do not let the state expire earlier."""
    boot_wait: float = 10.0
    """How long a booting router waits for a router that it cannot reach."""
    grace: float = 5.0
    """How long homes wait for the plain subscribers of a router out of contact, if its process may still live."""

    @property
    def neighbour_idle(self) -> float:
        """The AMQP idle-timeout between neighbours."""
        return max(self.idle, 2 * self.dead)


@attrs.frozen
class Limits:
    window: int = 1000
    """The highest number of unsettled deliveries of a publisher; the publisher gets this credit."""
    window_bytes: int = 8 << 20
    """The highest number of bytes of the messages of a publisher's unsettled deliveries."""
    max_message: int = 16 << 20
    """The highest number of bytes of a message."""
    max_frame: int = 64 << 10
    """The highest number of bytes of an AMQP frame."""
    redeliveries: int = 5
    """How many times a released or modified delivery is transferred again."""
    connections: int = 100_000
    """The highest number of connections of topic clients at one router. The router lowers this to the number of its
    file descriptors."""
    user_connections: int = 1000
    """The highest number of connections of topic clients that one authenticated user may have at one router."""
    user_durable: int = 1000
    """The highest number of durable links with a timeout that one user may have in the mesh."""
    sessions: int = 512
    """The highest number of sessions of a connection. An ended session counts until the AMQP engine has removed it."""
    links: int = 4096
    """The highest number of links of a connection. An ended link counts until the AMQP engine has removed it."""
    attaches: int = 500
    """The highest number of attaches of a connection per second. As many as `links` may come at once."""
    unsettled: int = 10_000
    """The highest number of entries of the unsettled map of an attach."""
    selectors: int = 4096
    """The highest number of steps that a router evaluates for one message in all selectors of one user, or of all
    anonymous clients together. Equal selectors count once. The router evaluates all of them in one turn. A single
    selector has a lower limit."""
    opening: float = 5.0
    """The seconds that a client has for each of three steps: its first bytes (`router.admission.GREETING`), TLS, and
    SASL with open."""
    anonymous_durable: int = 10_000
    """The highest number of durable links with a timeout that all anonymous clients may have in the mesh."""
    connection_bytes: int = 128 << 20
    """The highest number of bytes of messages from one connection that are incomplete or unsettled."""
    user_bytes: int = 512 << 20
    """The highest number of bytes of incomplete or unsettled messages from all connections of one user, or of all
    anonymous clients, at one router."""
    router_bytes: int = 1 << 30
    """The highest number of bytes of incomplete or unsettled messages from all connections at one router."""


COUNTED = (
    "connections",
    "user_connections",
    "user_durable",
    "anonymous_durable",
    "sessions",
    "links",
    "attaches",
    "unsettled",
    "selectors",
)
"""The keys of `limits` whose values are counts, not bytes or seconds."""


GO_ON = "go-on"
WHEN_FULL = (GO_ON, "stop")


@attrs.frozen
class LogSettings:
    """Settings for the delivery log of each router."""

    full: str = GO_ON
    """The reaction of a router that cannot write its log. With `go-on`, it goes on without the log: no message is lost,
    but the audit lacks evidence. With `stop`, it stops, and its clients go to other routers."""
    keep: float | None = None
    """A segment is kept for at least this many seconds after its last write."""
    size: int | None = None
    """The highest number of bytes of the segments of a router. They may exceed this by about 32 MiB for a moment,
    because only whole segments are deleted. Without `keep` and `size`, all segments are kept."""


AMQP, INTER, HTTP, MQTT, AMQP_WS, MQTT_WS = "amqp", "inter", "http", "mqtt", "amqp-ws", "mqtt-ws"
LISTENERS = (AMQP, INTER, HTTP, MQTT, AMQP_WS, MQTT_WS)
"""The kinds of listeners: for clients, for neighbours, for HTTP, for MQTT clients, and for clients that speak AMQP or
MQTT over WebSocket."""
ANY_ORIGIN = "*"
TLS_ONLY, IN_CLEAR = "tls", "in-clear"
FILES = "certificate", "key", "ca", "secret", "users", "rules"
"""The fields of `Security` that name a file."""


@attrs.frozen
class Security:
    """Access control: docs/security.md. File names are relative to the topology's folder; `{router}` stands for the
    router's name."""

    certificate: str | None = None
    """The router's certificate, with the certificates between it and the CA; its common name is the router's name. It
    needs `key` and `ca`. Then all listeners speak only TLS."""
    key: str | None = None
    ca: str | None = None
    """The CA of the certificates of routers and clients."""
    secret: str | None = None
    """A secret of the routers, with which they prove to each other that they belong to the mesh."""
    users: str | None = None
    """The file with the users and their password verifiers (`oncemesh user add`)."""
    plain: str = TLS_ONLY
    """The places where clients may send their passwords without TLS."""
    open: tuple[str, ...] = ()
    """The kinds of listeners that let in anonymous clients from any host. A listener of another kind lets anonymous
    clients in only if it listens on loopback and the topology has no `users`."""
    rules: str | None = None
    """The file of permissions: `router.security.rules`."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may connect to a WebSocket listener, such as `https://shop.example.org`, or `*` for
    all. Empty: pages of the listener's host."""

    @property
    def tls(self) -> bool:
        return self.certificate is not None

    @property
    def closes_mesh(self) -> bool:
        """Whether neighbours have to prove who they are."""
        return self.tls or self.secret is not None

    def hears_passwords(self, host: str) -> bool:
        """Whether a client may send a password in plain text to a listener at this host."""
        return self.tls or self.plain == IN_CLEAR or is_loopback(host)

    def admits_anybody(self, listener: str, host: str) -> bool:
        """Whether a listener at this host lets anonymous clients in."""
        kind = kind_of(listener)
        if kind == INTER:
            return not self.closes_mesh
        return kind in self.open or (self.users is None and is_loopback(host))


def listener_name(kind: str, index: int) -> str:
    """The name of a router's listener. The first listener of a kind has the name of its kind, such as `amqp`; the
    second has the name `amqp[1]`, and so on."""
    return f"{kind}[{index}]" if index else kind


def kind_of(listener: str) -> str:
    """The kind of the listener with this name."""
    return listener.partition("[")[0]


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.[0-9]{1,3}){3}", host) is not None


@attrs.frozen
class Topology:
    mesh: str
    routers: dict[str, RouterConfig]
    links: tuple[LinkConfig, ...]
    addresses: tuple[AddressRule, ...]
    timing: Timing
    limits: Limits
    log: LogSettings
    path: Path
    security: Security = Security()
    queues: Queues | None = None
    """The replica sets. None: the mesh has no queues."""
    base: Path = attrs.field(default=attrs.Factory(lambda topology: topology.path.parent, takes_self=True))
    """The folder to which file names in the topology are relative."""

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a prefix of addresses and the kind of these addresses."""
        return tuple((rule.prefix, rule.kind) for rule in self.addresses)

    def file(self, name: str, router: str) -> Path:
        """The path of a file that `security` names, for this router."""
        return self.base / name.replace("{router}", router)

    @property
    def spans_hosts(self) -> bool:
        """Whether neighbours dial the routers of the mesh at more than one host."""
        found = {router.dialled.host for router in self.routers.values() if router.dialled is not None}
        return len({host for host in found if not is_loopback(host)}) > 1

    def listeners(self) -> Iterator[tuple[str, str, Address]]:
        """Yield router, listener, and the address where it listens."""
        for name, config in self.routers.items():
            yield name, AMQP, config.amqp
            yield name, INTER, config.inter or Address(config.amqp.host, 0)
            if config.http is not None:
                yield name, HTTP, config.http
            if config.mqtt is not None:
                yield name, MQTT, config.mqtt
            yield from ((name, listener, address) for listener, address in config.more.items())

    def openings(self, *routers: str) -> Iterator[str]:
        """Yield sentences for users. They name the listeners of these routers that let in anonymous clients from other
        hosts, or are not encrypted."""
        for name, listener, address in self.listeners():
            if name in routers and not is_loopback(address.host):
                what = f"{listener} of router {name} at {address.host}"
                if self.security.admits_anybody(listener, address.host):
                    yield f"{what} is open to everybody"
                if not self.security.tls:
                    yield f"{what} is not encrypted"

    def links_of(self, name: str) -> Iterator[LinkConfig]:
        assert name in self.routers
        return (link for link in self.links if name in (link.a, link.b))

    def costs_of(self, name: str) -> dict[str, int]:
        """Neighbour -> the cost of the link to it."""
        return {link.other(name): link.cost for link in self.links_of(name)}

    def dialled_by(self, name: str) -> dict[str, Address | None]:
        """Neighbour -> the address at which the router `name` dials it. None stands for an address that is known only
        after the launch."""
        neighbours = {link.b: link for link in self.links_of(name) if link.a == name}
        return {peer: link.address or self.routers[peer].dialled for peer, link in neighbours.items()}
