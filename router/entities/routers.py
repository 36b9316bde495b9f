"""The entities for this router, for its links to neighbours, and for the other routers as it sees them."""

import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Final

import psutil
import trio

from linkstate.clock import COUNTER_BITS
from linkstate.paths import Route
from linkstate.plan.plan import PlannedRouter
from router.amqp.format.values import StreamFigures
from router.entities.observed import ObservedRouter
from router.entities.table import OURS, Attribute, Entity, How, Metric, Type, Where
from router.events.kind import EventKind
from topic.settings import KINDS


@cache
def our_version() -> str:
    return version("oncemesh")


def _planned(at: ObservedRouter, name: str) -> PlannedRouter:
    return at.linkstate.plan.routers[name]


def _standing(at: ObservedRouter, name: str) -> str:
    return _planned(at, name).standing.name.lower()


def _about(at: ObservedRouter) -> Mapping[str, str]:
    return {"router": at.name, "mesh": at.topology.mesh, "version": our_version()}


def _ahead_s(at: ObservedRouter) -> float:
    return max(0.0, (at.node.topic.outlet.clock.read() >> COUNTER_BITS) / 1000 - time.time())


def _by_kind(totals: Mapping[str, int]) -> dict[str, int]:
    """The totals of all kinds of addresses. A kind without a total has 0."""
    return {kind: totals.get(kind, 0) for kind in KINDS}


Of = Callable[[ObservedRouter, ObservedRouter], Any]


def _fact(name: str, type_: Type, says: str, read: Of, series: Metric | None = None) -> Attribute[ObservedRouter]:
    return Attribute(name, type_, says, read, Where.STATUS, series)


def _measure(series: Metric, type_: Type, says: str, read: Of) -> Attribute[ObservedRouter]:
    """An attribute that only `/metrics` shows."""
    return Attribute(series.name.removeprefix("oncemesh_"), type_, says, read, Where.NOWHERE, series)


ROUTER: Final = Entity[ObservedRouter](
    "router",
    "this router; in `$status` this is at the top",
    lambda at: [at],
    (
        _fact("router", Type.TEXT, "the name of this router", lambda at, _: at.name),
        _fact("mesh", Type.TEXT, "the name of its mesh", lambda at, _: at.topology.mesh),
        _fact("incarnation", Type.NUMBER, "when its process started: ms since 1970", lambda at, _: at.node.incarnation),
        _fact("pid", Type.NUMBER, "its process id", lambda at, _: os.getpid()),
        _measure(Metric("oncemesh_info", ("router", "mesh", "version"), How.FACTS), Type.MAP,
            "names the router; always 1", lambda at, _: _about(at)),
        _fact("state", Type.TEXT, "`booting` (it serves clients but accepts no message yet), or `ready`",
            lambda at, _: "ready" if at.node.topic.booted else "booting"),
        _measure(Metric("oncemesh_ready"), Type.FLAG, "whether `/readyz` answers 200", lambda at, _: not at.unready()),
        _fact("waiting_for", Type.TEXTS, "while it boots: the routers whose sections have not arrived",
            lambda at, _: at.node.topic.boot.waiting_for),
        _fact("uptime_s", Type.SECONDS, "how long it has been running", lambda at, _: round(at.uptime_s, 3)),
        _measure(Metric("oncemesh_loop_lag_seconds"), Type.SECONDS, "how late the event loop wakes a timer: the "
            "longest delay of the last ten seconds, measured once a second", lambda at, _: at.lag.most),
        _fact("clock.time", Type.SECONDS, "the time of the router's clock, since 1970",
            lambda at, _: round(time.time(), 3)),
        _fact("clock.moved_s", Type.SECONDS, "how far the clock was set since the router started",
            lambda at, _: round(time.time() - trio.current_time() - at.epoch, 3)),
        _fact("clock.behind_s", Type.SECONDS, "how far its wall clock is behind its hybrid clock, because "
            "another clock is or was ahead",
            lambda at, _: round(_ahead_s(at), 3)),
        _fact("clock.refused", Type.COUNT, "how often it ignored another clock that was too far ahead: an "
            "hour, for clients 10 s",
            lambda at, _: at.node.topic.outlet.clock.refused),
        _fact("rss_bytes", Type.BYTES, "its resident memory", lambda at, _: psutil.Process().memory_info().rss),
        _fact("connections", Type.NUMBER, "client connections", lambda at, _: len(at.clients.connections)),
        _fact("plan.digest", Type.TEXT, "a digest of the plan; routers with the same plan have the same digest",
            lambda at, _: f"{at.linkstate.plan.digest:x}"),
        _fact("plan.routers", Type.MAP, "for each router of the mesh: `member` or `leaving`",
            lambda at, _: {name: _standing(at, name) for name in sorted(at.linkstate.plan.listed)}),
        _fact("attaches.waiting", Type.NUMBER, "attaches whose answers wait for other routers",
            lambda at, _: len(at.node.topic.attaches.waiting), Metric("oncemesh_attaches_waiting")),
        _fact("attaches.for", Type.TEXTS, "the routers that these attaches wait for",
            lambda at, _: at.survey.attaches.routers),
        _fact("attaches.since_s", Type.SECONDS, "how long ago a status first showed the oldest of these attaches",
            lambda at, _: at.survey.attaches.since_s),
        _fact("message_bytes", Type.BYTES, "the size of all messages in its records", lambda at, _: at.survey.bytes),
        _fact("records", Type.NUMBERS, "the number of records by state", lambda at, _: at.survey.records),
        _measure(Metric("qdr_deliveries_ingress_total", ("kind",), How.KEYS), Type.COUNTS, "transfers from publishers "
            "whose home is this router, by the kind of the address",
            lambda at, _: _by_kind(at.node.topic.records.received)),
        _measure(Metric("qdr_deliveries_egress_total", ("kind",), How.KEYS), Type.COUNTS, "transfers to subscribers of "
            "this router, with repetitions, by the kind of the address",
            lambda at, _: _by_kind(at.node.topic.records.delivered)),
        _measure(Metric("qdr_accepted_deliveries_total", ("kind",), How.KEYS), Type.COUNTS, "transfers that "
            "subscribers of this router accepted, by the kind of the address",
            lambda at, _: _by_kind(at.node.topic.records.accepted)),
        _fact("exceeded", Type.COUNTS, "how often a limit was exceeded (security.md, Limits), by the name of the limit",
            lambda at, _: dict(at.guard.exceeded), Metric("oncemesh_limit_exceeded_total", ("limit",), How.KEYS)),
        _measure(Metric("oncemesh_attaches_refused_total", ("condition",), How.KEYS), Type.COUNTS, "refused attaches "
            "of AMQP clients, by condition, such as `amqp:not-found` (no such address) or `amqp:unauthorized-access` "
            "(forbidden to this user)", lambda at, _: at.guard.refused),
        _measure(Metric("oncemesh_events_total", ("kind",), How.KEYS), Type.COUNTS, "events by kind (management.md, "
            "Events). A failover is `moved` at the new router of the link and `stolen` at its former router; a "
            "resumption is `attached`",
            lambda at, _: {kind.value: at.events.counts.get(kind.value, 0) for kind in EventKind}),
        _measure(Metric("oncemesh_contacts_lost_total", ("cause",), How.KEYS), Type.COUNTS, "lost contacts with other "
            "routers, by cause (management.md, Events, lists the causes)",
            lambda at, _: {cause.value: lost for cause, lost in at.linkstate.losses.items()}),
        _fact("disk.log", Type.TEXT, "why the router cannot write its delivery log; empty if it can (with `log.full: "
            "go-on`)", lambda at, _: at.log.why),
        _measure(Metric("oncemesh_log_failing"), Type.FLAG, "whether the router cannot write its delivery log",
            lambda at, _: at.log.why != ""),
        _fact("disk.missing", Type.COUNT, "entries that are missing in the delivery log", lambda at, _: at.log.missing,
            Metric("oncemesh_log_missing_entries_total")),
        _measure(Metric("oncemesh_log_written_bytes_total"), Type.CARRIED, "bytes of the delivery log that this "
            "process wrote",
            lambda at, _: at.log.written),
        _fact("disk.store", Type.TEXT, "why the router cannot write `state.db`; empty if it can",
            lambda at, _: at.node.unkept),
        _fact("disk.queues", Type.TEXT, "why its replicas wait for room on the disk; empty if they do not",
            lambda at, _: at.replicas.why_full if at.replicas is not None else ""),
        _measure(Metric("oncemesh_replicas_waiting"), Type.FLAG, "whether its replicas wait for room on the disk",
            lambda at, _: at.replicas is not None and at.replicas.why_full != ""),
        _fact("disk.free_bytes", Type.BYTES, "what it may still write on the disk of its files; null if the system "
            "does not tell", lambda at, _: room.free if (room := at.room) is not None else None,
            Metric("oncemesh_disk_free_bytes")),
        _fact("disk.bytes", Type.BYTES, "the size of this disk",
            lambda at, _: room.whole if (room := at.room) is not None else None, Metric("oncemesh_disk_bytes")),
        _measure(Metric("oncemesh_store_failing"), Type.FLAG, "whether the router cannot store durable links",
            lambda at, _: at.node.unkept != ""),
    ),
)  # fmt: skip


def _name(at: ObservedRouter, name: str) -> str:
    return name


def _named(*more: Attribute[str]) -> tuple[Attribute[str], ...]:
    """The attributes of entities whose identity is a router's name. The attributes in `more` follow."""
    return (
        Attribute("identity", Type.TEXT, "the router's name", _name, Where.MANAGEMENT),
        Attribute("name", Type.TEXT, "the router's name", _name, Where.MANAGEMENT),
        *more,
    )


def _figures(at: ObservedRouter, name: str) -> StreamFigures | None:
    connection = at.neighbours.connections.get(name)
    return connection.measure() if connection is not None else None


def _messages(at: ObservedRouter, name: str) -> tuple[int | None, int | None]:
    return at.neighbours.exchanged(name) or (None, None)


def _of_connection(
    name: str, type_: Type, says: str, read: Callable[[StreamFigures], float | None], series: str
) -> Attribute[str]:
    def measured(at: ObservedRouter, neighbour: str) -> float | None:
        return read(seen) if (seen := _figures(at, neighbour)) is not None else None

    return Attribute(name, type_, says, measured, Where.MANAGEMENT, Metric(series, ("neighbour",)))


NEIGHBOUR: Final = Entity[str](
    "neighbour",
    "routers to which this router has a link",
    lambda at: sorted(at.linkstate.neighbours),
    _named(
        Attribute("neighbour", Type.TEXT, "the router's name", _name, Where.STATUS),
        Attribute("up", Type.FLAG, "whether the link is up", lambda at, name: at.linkstate.neighbours[name].up,
            series=Metric("oncemesh_neighbour_up", ("neighbour",))),
        Attribute("cost", Type.NUMBER, "the cost of the link", lambda at, name: at.linkstate.neighbours[name].cost,
            series=Metric("oncemesh_neighbour_cost", ("neighbour",))),
        Attribute("since_s", Type.SECONDS, "how long the link has been up or down",
            lambda at, name: round(trio.current_time() - at.linkstate.neighbours[name].since, 3)),
        Attribute("messages_sent", Type.COUNT, "AMQP messages sent on the present connection; each may carry many "
            "deliveries",
            lambda at, name: _messages(at, name)[0], Where.MANAGEMENT),
        Attribute("messages_received", Type.COUNT, "AMQP messages received on the present connection",
            lambda at, name: _messages(at, name)[1],
            Where.MANAGEMENT),
        _of_connection("bytes_sent", Type.CARRIED, "bytes sent on the present connection and acknowledged by the "
            "neighbour's machine (on Linux)", lambda seen: seen.sent, "oncemesh_neighbour_sent_bytes_total"),
        _of_connection("bytes_received", Type.CARRIED, "bytes received on the present connection",
            lambda seen: seen.received,
            "oncemesh_neighbour_received_bytes_total"),
        _of_connection("round_trip_s", Type.SECONDS, "the round-trip time that TCP measures", lambda seen: seen.rtt_s,
            "oncemesh_neighbour_round_trip_seconds"),
    ),
    status="links",
    managed=f"{OURS}neighbour",
)  # fmt: skip


def route_to(at: ObservedRouter, name: str) -> Route | None:
    return at.linkstate.routes.get(name)


def _is_in_contact(at: ObservedRouter, name: str) -> bool:
    return name in at.node.topic.directory.contacts


ROUTE: Final = Entity[str](
    "route",
    "routers to which a path exists",
    lambda at: sorted(at.linkstate.routes),
    (
        Attribute("router", Type.TEXT, "the router's name", _name, Where.STATUS),
        Attribute("next_hop", Type.TEXT, "the neighbour to which this router sends messages for the other router",
            lambda at, name: at.linkstate.routes[name].next_hop, Where.STATUS),
        Attribute("cost", Type.NUMBER, "the sum of the costs on the path",
            lambda at, name: at.linkstate.routes[name].cost,
            Where.STATUS),
        Attribute("contact", Type.FLAG, "whether this router is in contact with the other router",
            _is_in_contact, Where.STATUS),
    ),
    status="routes",
)  # fmt: skip

CONTACT: Final = Entity[str](
    "contact",
    "routers that are in contact with this router",
    lambda at: at.node.topic.directory.contacts,
    _named(
        Attribute("incarnation", Type.NUMBER, "when the router's process started: ms since 1970",
            lambda at, name: at.node.topic.directory.contacts.get(name)),
        Attribute("next_hop", Type.TEXT, "the neighbour to which this router sends messages for the other router",
            lambda at, name: route.next_hop if (route := route_to(at, name)) else None),
        Attribute("cost", Type.NUMBER, "the sum of the costs on the path",
            lambda at, name: route.cost if (route := route_to(at, name)) else None),
        Attribute("applied", Type.NUMBER, "the version of the other router's section that this router has applied",
            lambda at, name: at.node.topic.directory.applied.get(name)),
        Attribute("acknowledged", Type.NUMBER, "the version of this router's section that the other router has "
            "acknowledged",
            lambda at, name: at.node.topic.directory.members.acked[name]),
    ),
    managed=f"{OURS}contact",
)  # fmt: skip


def is_there(at: ObservedRouter, name: str) -> bool:
    return name == at.name or name in at.linkstate.routes


PLAN_ROUTER: Final = Entity[str](
    "planRouter",
    "all routers of the plan (protocol.md, 11), members and leaving ones",
    lambda at: sorted(at.linkstate.plan.listed),
    _named(
        Attribute("standing", Type.TEXT, "`member` or `leaving`", _standing),
        Attribute("amqp", Type.TEXT, "the address at which it listens for clients",
            lambda at, name: _planned(at, name).amqp or None),
        Attribute("inter", Type.TEXT, "the address at which it listens for neighbours",
            lambda at, name: _planned(at, name).inter or None),
        Attribute("neighbours", Type.NUMBERS, "the costs of its links, by neighbour",
            lambda at, name: at.linkstate.plan.costs_of(name)),
        Attribute("is_here", Type.FLAG, "whether it is this router", lambda at, name: name == at.name),
        Attribute("reachable", Type.FLAG, "whether it is this router or a path to it exists", is_there),
        Attribute("in_contact", Type.FLAG, "whether this router is in contact with the other router", _is_in_contact),
        Attribute("contact", Type.FLAG, "whether this router is in contact with the other router",
            lambda at, name: _is_in_contact(at, name) if name != at.name else None, Where.NOWHERE,
            Metric("oncemesh_contact", ("peer",))),
    ),
    managed=f"{OURS}planRouter",
)  # fmt: skip
