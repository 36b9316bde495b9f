"""The configuration of a mesh: one frozen class per part of the topology file, every field with its unit.

Reading the file is router/mesh/topology.py's work. Nothing here changes after it was read, and a router knows of
its configuration only what stands here.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

from router.mesh.quantities import Address
from topic.settings import TOPIC


@attrs.frozen
class RouterConfig:
    name: str
    amqp: Address
    """Listener for clients."""
    inter: Address | None = None
    """Listener for other routers; None = any free port, chosen and published by the launcher."""
    advertise: Address | None = None
    """Where clients find it, if not at `amqp`: a host's name, a forwarded port, or `amqp` is every address."""
    http: Address | None = None
    """Listener for metrics, health and the console; None = there is none."""
    mqtt: Address | None = None
    """Listener for clients that speak MQTT; None = there is none."""

    @property
    def told(self) -> Address:
        """Where clients find it."""
        return self.advertise or self.amqp

    @property
    def dialled(self) -> Address | None:
        """Where neighbours find it: one that listens anywhere, at the host that clients are told."""
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
    """Dialled instead of the higher-named router, for example through a forwarded port."""

    def other(self, name: str) -> str:
        assert name in (self.a, self.b)
        return self.b if name == self.a else self.a


@attrs.frozen
class AddressRule:
    prefix: str
    kind: str = TOPIC


DISK, MEMORY = "disk", "memory"
SYNCS = (DISK, MEMORY)


@attrs.frozen
class NamedSet:
    """A replica set for the queues whose names begin with a prefix."""

    name: str
    prefix: str
    voters: tuple[str, ...]
    """Routers that have its replicas."""
    prefer: str | None = None
    """The voter that leads if it can; None: the first."""

    @property
    def ring(self) -> tuple[str, ...]:
        """The voters, the preferred one first."""
        return tuple(sorted(self.voters, key=lambda voter: voter != self.prefer))


@attrs.frozen
class Queues:
    """The replica sets of a mesh (protocol 13). Which set has which queue is fixed for the life of the mesh."""

    sets: int = 8
    """Hashed sets: a queue that is in no named set belongs to the hashed set of its name."""
    replicas: int = 3
    """Of each hashed set; by default each router has one in a mesh of fewer routers."""
    sync: str = DISK
    """When a change counts as stored: when it is on the `disk`, or when the kernel has it in `memory`, which a
    power cut empties."""
    limit: int = 8 << 30
    """Bytes of messages that the queues of a set may have together. Each of its routers has them on its disk."""
    named: tuple[NamedSet, ...] = ()
    """In the order in which their prefixes are tried."""


@attrs.frozen
class Timing:
    """All in seconds."""

    hello: float = 0.2
    """Between two HELLOs to a neighbour."""
    dead: float = 1.0
    """A neighbour that was silent for longer is lost."""
    idle: float = 2.0
    """AMQP idle-timeout, announced to clients and kept towards them."""
    join: float = 2.0
    """A router that has not joined a subscriber by then, nor got on with anything else, is no longer in contact."""
    terminus: float = 60.0
    """The longest timeout that a client's terminus is granted."""
    forget: float = 86_400.0
    """How long routers keep what they hold for clients out of sight, while one is missing that may have them."""
    boot_wait: float = 10.0
    """How long a booting router waits for a router that it cannot reach."""
    grace: float = 5.0
    """How long plain subscribers of a router out of contact are waited for, if its process may still be there."""

    @property
    def neighbour_idle(self) -> float:
        """AMQP idle-timeout, between neighbours."""
        return max(self.idle, 2 * self.dead)


@attrs.frozen
class Limits:
    window: int = 1000
    """Unsettled deliveries per publisher: its credit."""
    window_bytes: int = 8 << 20
    """The same in bytes of their messages."""
    max_message: int = 16 << 20
    """Bytes of one message."""
    max_frame: int = 64 << 10
    """Bytes of one AMQP frame."""
    redeliveries: int = 5
    """How often a released or modified delivery is transferred anew."""
    connections: int = 100_000
    """Of clients at topics, at one router; as many as it has descriptors for at most."""
    user_connections: int = 1000
    """The same of one user, who has proven who he is."""
    user_durable: int = 1000
    """Durable links with a timeout of one user, in the mesh."""
    sessions: int = 512
    """Of one connection, with those that wait to be forgotten."""
    links: int = 4096
    """The same."""
    attaches: int = 500
    """A second, of one connection; and `links` of them at once."""
    unsettled: int = 10_000
    """Entries of the unsettled map of an attach."""
    selectors: int = 4096
    """Steps of the different selectors of one user, or of all who have not proven who they are, at one router: all are
    asked about each message in one turn. Any one alone has fewer."""
    opening: float = 5.0
    """Seconds for a client's first bytes (`router.admission.GREETING`), for TLS, and for SASL and open."""
    anonymous_durable: int = 10_000
    """Durable links with a timeout of all who have not proven who they are, in the mesh."""
    connection_bytes: int = 128 << 20
    """Of messages that have come from one connection, in part or unsettled."""
    user_bytes: int = 512 << 20
    """The same of one user's connections, or of all who have not proven who they are, at one router."""
    router_bytes: int = 1 << 30
    """The same of all, at one router."""


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
"""Keys of `limits` whose values are numbers of something."""


GO_ON = "go-on"
WHEN_FULL = (GO_ON, "stop")


@attrs.frozen
class LogSettings:
    """Of the delivery log of each router."""

    full: str = GO_ON
    """What a router does whose log cannot be written: `go-on` without it, or `stop`, and its clients go elsewhere. The
    log is evidence, a mesh is there to deliver, and the audit takes nothing for proved that was not logged."""
    keep: float | None = None
    """Seconds for which a segment is kept at least, after it was last written to."""
    size: int | None = None
    """Bytes that the segments of a router take at most; as they go whole, some 32 MiB more for a moment. Where neither
    is said, all are kept: evidence is deleted only if that is asked for."""


AMQP, INTER, HTTP, MQTT = "amqp", "inter", "http", "mqtt"
"""The listeners of a router: for clients, for its neighbours, for who looks at it, and for clients of MQTT."""
TLS_ONLY, IN_CLEAR = "tls", "in-clear"
FILES = "certificate", "key", "ca", "secret", "users", "rules"
"""What of `Security` names a file."""


@attrs.frozen
class Security:
    """Who may come in: docs/security.md. Files are named from the topology's folder; `{router}` stands for the router's
    name."""

    certificate: str | None = None
    """Of the router, with those between it and the CA; its common name is the router's. Given with `key` and `ca`:
    then both listeners speak TLS only."""
    key: str | None = None
    ca: str | None = None
    """Who vouches for routers and for clients that show a certificate."""
    secret: str | None = None
    """What only routers of the mesh know: they prove it to each other."""
    users: str | None = None
    """Clients by name: `oncemesh user add`."""
    plain: str = TLS_ONLY
    """Where clients may say their passwords plainly."""
    open: tuple[str, ...] = ()
    """Listeners that let strangers in. Others do on loopback only, and those for clients only where there are no
    users."""
    rules: str | None = None
    """Who may do what: `router.security.rules`."""

    @property
    def tls(self) -> bool:
        return self.certificate is not None

    @property
    def closes_mesh(self) -> bool:
        """Whether neighbours prove who they are."""
        return self.tls or self.secret is not None

    def hears_passwords(self, host: str) -> bool:
        """Whether one may be said plainly to who listens at this host."""
        return self.tls or self.plain == IN_CLEAR or is_loopback(host)

    def admits_anybody(self, listener: str, host: str) -> bool:
        """Whether it lets strangers in where it listens at this host."""
        if listener == INTER:
            return not self.closes_mesh
        return listener in self.open or (self.users is None and is_loopback(host))


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
    """None: the mesh has no queues."""
    base: Path = attrs.field(default=attrs.Factory(lambda topology: topology.path.parent, takes_self=True))
    """The folder from which files are named."""

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """What addresses begin with, and the name of the kind of these addresses."""
        return tuple((rule.prefix, rule.kind) for rule in self.addresses)

    def file(self, name: str, router: str) -> Path:
        """One that `security` names, as it is for that router."""
        return self.base / name.replace("{router}", router)

    @property
    def spans_hosts(self) -> bool:
        """Whether neighbours dial its routers at several hosts."""
        found = {router.dialled.host for router in self.routers.values() if router.dialled is not None}
        return len({host for host in found if not is_loopback(host)}) > 1

    def listeners(self) -> Iterator[tuple[str, str, Address]]:
        """Router, listener, and where it listens."""
        for name, config in self.routers.items():
            yield name, AMQP, config.amqp
            yield name, INTER, config.inter or Address(config.amqp.host, 0)
            if config.http is not None:
                yield name, HTTP, config.http
            if config.mqtt is not None:
                yield name, MQTT, config.mqtt

    def openings(self, *routers: str) -> Iterator[str]:
        """Where these routers let in who comes from another host, or he can listen: sentences for people."""
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
        """Neighbour -> cost of the link to it."""
        return {link.other(name): link.cost for link in self.links_of(name)}

    def dialled_by(self, name: str) -> dict[str, Address | None]:
        """Neighbour -> the address `name` dials it at, None where that is not known before the launch."""
        neighbours = {link.b: link for link in self.links_of(name) if link.a == name}
        return {peer: link.address or self.routers[peer].dialled for peer, link in neighbours.items()}
