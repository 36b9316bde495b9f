"""The entities for links of clients: publishers and subscribers here, orphans, and links for which no home waits any
more."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from router.amqp.format.values import StreamFigures
from router.edge.ends import ClientEnd
from router.entities import states
from router.entities.observed import ObservedRouter
from router.entities.table import OURS, Attribute, Entity, How, Metric, Type, Where
from topic.delivery.record import HomeStream
from topic.directory.entry import LinkEntry
from topic.edge.subscriber import LocalSubscriber
from topic.identity import CONTAINER, shown_address

L = TypeVar("L", HomeStream, LocalSubscriber, LinkEntry)


def _of_clients(links: Iterable[L]) -> Iterator[L]:
    """All links except the links of replica sets, which have entities of their own (`router.entities.replicas`)."""
    return (link for link in links if link.identity.container != CONTAINER)


def _carried(link: Any) -> StreamFigures | None:
    """The traffic of the connection of a client's link; None for a link without a connection here."""
    return link.link.connection.measure() if isinstance(link, ClientEnd) else None


def _blocked(at: ObservedRouter, stream: HomeStream) -> bool:
    return states.publisher_status(stream, at.node.topic.attaches.waiting) == "attached" and not stream.window.credit


PARTS: Final[tuple[Attribute[Any], ...]] = (
    Attribute("container", Type.TEXT, "the container-id of its client", lambda at, link: link.identity.container),
    Attribute("link", Type.TEXT, "the link name that its client chose", lambda at, link: link.identity.link),
    Attribute("address", Type.TEXT, "its address or pattern", lambda at, link: shown_address(link.identity.address)),
    Attribute("user", Type.TEXT, "its user, if the client has authenticated",
        lambda at, link: link.identity.user, may_lack=True),
)  # fmt: skip
"""Attributes of all links, keyed by name."""


def _named(says: str, read: Callable[[Any], str]) -> tuple[Attribute[Any], ...]:
    """The attributes `identity` and `name` of a link in `$management`. `read` returns the identity of the link."""
    return (
        Attribute("identity", Type.TEXT, says, lambda at, link: read(link), Where.MANAGEMENT),
        Attribute(
            "name", Type.TEXT, "container/link on address", lambda at, link: str(link.identity), Where.MANAGEMENT
        ),
        *PARTS,
    )


def _lifetime(where: Where) -> tuple[Attribute[Any], ...]:
    return (
        Attribute("timeout_s", Type.SECONDS, "how long homes wait for it while it is away",
            lambda at, link: link.lifetime.timeout, where),
        Attribute("durable", Type.NUMBER, "above 0 if routers remember the link after a restart",
            lambda at, link: link.lifetime.durable, Where.MANAGEMENT),
    )  # fmt: skip


PUBLISHER: Final = Entity[HomeStream](
    "publisher",
    "publishers whose home is this router, attached or suspended",
    lambda at: _of_clients(at.node.topic.home.streams.values()),
    (
        *_named("the name of the link in the mesh, 12 characters", lambda stream: stream.publisher.decode()),
        Attribute("status", Type.TEXT, "`attaching` (its attach is not answered yet), `attached`, or `suspended` "
            "(its client is away)", lambda at, stream: states.publisher_status(stream, at.node.topic.attaches.waiting),
            series=Metric("oncemesh_publishers", ("status",), How.BY_VALUE, states.PUBLISHER,
            "publishers whose home is this router")),
        Attribute("epoch", Type.TEXT, "the epoch of its attach", lambda at, stream: stream.label, Where.MANAGEMENT),
        *_lifetime(Where.MANAGEMENT),
        Attribute("received", Type.COUNT, "transfers received since it attached",
            lambda at, stream: stream.received),
        Attribute("unsettled", Type.NUMBER, "deliveries that are not settled",
            lambda at, stream: stream.window.unsettled, series=Metric("oncemesh_unsettled_deliveries", how=How.SUM,
            says="unsettled deliveries of publishers whose home is this router")),
        Attribute("bytes", Type.BYTES, "the size of its unsettled deliveries", lambda at, stream: stream.window.held),
        Attribute("credit", Type.NUMBER, "how many transfers it may send", lambda at, stream: stream.window.credit),
        Attribute("withheld", Type.NUMBER, "deliveries received and not forwarded: an older delivery has their key, "
            "the channel to a router is full, or an earlier delivery has expired and is not settled",
            lambda at, stream: len(stream.withheld), Where.MANAGEMENT),
        Attribute("blocked", Type.FLAG, "whether it is attached without credit", _blocked, Where.NOWHERE,
            Metric("qdr_links_blocked_total", how=How.SUM, says="attached publishers without credit")),
        Attribute("held_for", Type.TEXTS, "why it has no credit: subscribers or routers that its deliveries wait for, "
            "routers with too many bytes under way, or the publisher itself if it has to settle",
            lambda at, stream: at.survey.held.get(stream.publisher, []), Where.STATUS),
        Attribute("held_s", Type.SECONDS, "how long ago a status first showed the oldest of these waits",
            lambda at, stream: at.survey.held_s.get(stream.publisher.hex(), 0.0), Where.STATUS),
        Attribute("connection_bytes", Type.CARRIED, "bytes received on its whole connection; null if the kernel does "
            "not count them",
            lambda at, stream: carried.received if (carried := _carried(stream.link)) is not None else None,
            Where.STATUS),
        Attribute("answers", Type.FLAG, "whether its client answers echoes; if it does, only its answers "
            "prove that it is alive",
            lambda at, stream: stream.link is not None and stream.link.answers, Where.STATUS),
    ),
    status="publishers",
    managed=f"{OURS}publisher",
    columns=("received", "unsettled"),
)  # fmt: skip

SUBSCRIBER: Final = Entity[LocalSubscriber](
    "subscriber",
    "subscribers that are attached or suspended here",
    lambda at: _of_clients(at.node.topic.edge.subscribers.values()),
    (
        *_named("the name of the link in the mesh, 12 characters", lambda one: one.name.decode()),
        Attribute("status", Type.TEXT, "`joining` (its attach is not answered yet), `attached`, or `suspended` (its "
            "client is away)",
            lambda at, one: states.subscriber_status(one), series=Metric("oncemesh_subscribers", ("status",),
            How.BY_VALUE, states.SUBSCRIBER, "subscribers here")),
        Attribute("epoch", Type.TEXT, "the epoch of its attach", lambda at, one: str(one.epoch), Where.MANAGEMENT),
        *_lifetime(Where.BOTH),
        Attribute("delivered", Type.COUNT, "transfers sent to it since it attached, with repetitions",
            lambda at, one: one.delivered),
        Attribute("accepted", Type.COUNT, "transfers that it accepted", lambda at, one: one.accepted),
        Attribute("unsettled", Type.NUMBER, "transfers without an outcome", lambda at, one: at.survey.sent[one],
            Where.STATUS),
        Attribute("queued", Type.NUMBER, "deliveries that wait for credit, behind a gate, or for the connection",
            lambda at, one: one.queued(), series=Metric("oncemesh_queued_deliveries", how=How.SUM,
            says="deliveries that wait for subscribers here")),
        Attribute("gated_publishers", Type.NUMBER, "publishers whose messages wait until older deliveries are settled",
            lambda at, one: len(one.gated), Where.MANAGEMENT),
        Attribute("credit", Type.NUMBER, "how many more transfers it takes", lambda at, one: one.credit),
        Attribute("connection_bytes", Type.CARRIED, "bytes sent on its whole connection and acknowledged; null if the "
            "kernel does not count them",
            lambda at, one: carried.sent if (carried := _carried(one.link)) is not None else None, Where.STATUS),
    ),
    status="subscribers",
    managed=f"{OURS}subscriber",
    columns=("delivered", "accepted", "unsettled", "queued", "credit"),
    spared=("credit", "accepted", "queued"),
)  # fmt: skip


def _orphans(at: ObservedRouter) -> Iterator[LinkEntry]:
    directory = at.node.topic.directory
    return _of_clients(entry for entry in directory.entries() if entry.lasts and not directory.in_contact(entry))


_FORMER: Final = Attribute[LinkEntry](
    "router", Type.TEXT, "the router of its last attach", lambda at, entry: entry.router
)

ORPHAN: Final = Entity[LinkEntry](
    "orphan",
    "publishers and subscribers with a timeout whose router is not in contact",
    _orphans,
    (
        *_named("its role and the name of the link in the mesh",
            lambda one: f"{one.role.name.lower()} {one.name.decode()}"),
        Attribute("role", Type.TEXT, "`publisher` or `subscriber`", lambda at, entry: entry.role.name.lower(),
            series=Metric("oncemesh_orphans", ("role",), How.BY_VALUE, states.ROLES, "links with a timeout whose "
            "router is not in contact with this one")),
        _FORMER,
        Attribute("epoch", Type.TEXT, "the epoch of its last attach",
            lambda at, entry: str(entry.epoch), Where.MANAGEMENT),
        *_lifetime(Where.BOTH),
    ),
    status="orphans",
    managed=f"{OURS}orphan",
)  # fmt: skip


def _lapsed(at: ObservedRouter) -> Iterator[LinkEntry]:
    directory = at.node.topic.directory
    lapsed = map(directory.subscriber, directory.lapsed)
    return _of_clients(entry for entry in lapsed if entry is not None and entry.lasts)


def _out_of_reach_s(at: ObservedRouter, entry: LinkEntry) -> float:
    topic = at.node.topic
    return round((topic.outlet.time_us - topic.directory.lapsed[entry.name]) / 1e6, 3)


LAPSED: Final = Entity[LinkEntry](
    "lapsed subscriber",
    "subscribers with a timeout for which this router no longer waits (protocol.md, 8, Apart). The list keeps a "
    "subscriber until the router of its last attach is back in contact without a restart, or until the subscriber "
    "attaches again. If a message is accepted without the subscriber meanwhile, its link ends",
    _lapsed,
    (
        *PARTS,
        _FORMER,
        Attribute("since_s", Type.SECONDS, "how long it has been out of reach", _out_of_reach_s,
            series=Metric("oncemesh_lapsed_subscribers", how=How.NUMBER, says="subscribers for which this router no "
            "longer waits (protocol.md, 8, Apart)")),
    ),
    status="lapsed",
)  # fmt: skip

UNTOLD: Final = Entity[LinkEntry](
    "untold subscriber",
    "subscribers whose links ended because a message was accepted without them, and whose clients do not know this "
    "yet. They may still be attached at a router out of contact",
    lambda at: (entry for entry in at.node.topic.directory.entries() if entry.is_untold),
    (*PARTS, Attribute("ending", Type.TEXT, "the text that its client will read", lambda at, entry: entry.ending)),
    status="untold",
)
