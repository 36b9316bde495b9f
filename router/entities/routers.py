"""This router, its links to neighbours, and the other routers as it sees them."""

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
    """Of all kinds of addresses."""
    return {kind: totals.get(kind, 0) for kind in KINDS}


Of = Callable[[ObservedRouter, ObservedRouter], Any]


def _fact(name: str, type_: Type, says: str, read: Of, series: Metric | None = None) -> Attribute[ObservedRouter]:
    return Attribute(name, type_, says, read, Where.STATUS, series)


def _measure(series: Metric, type_: Type, says: str, read: Of) -> Attribute[ObservedRouter]:
    """That only `/metrics` has."""
    return Attribute(series.name.removeprefix("oncemesh_"), type_, says, read, Where.NOWHERE, series)


ROUTER: Final = Entity[ObservedRouter](
    "router",
    "this router; in `$status` this is at the top",
    lambda at: [at],
    (
        _fact("router", Type.TEXT, "its name", lambda at, _: at.name),
        _fact("mesh", Type.TEXT, "its mesh's name", lambda at, _: at.topology.mesh),
        _fact("incarnation", Type.NUMBER, "its start time in ms", lambda at, _: at.node.incarnation),
        _fact("pid", Type.NUMBER, "its process", lambda at, _: os.getpid()),
        _measure(Metric("oncemesh_info", ("router", "mesh", "version"), How.FACTS), Type.MAP,
            "which router it is; always 1", lambda at, _: _about(at)),
        _fact("state", Type.TEXT, "`booting`: it takes clients but accepts nothing yet; `ready`",
            lambda at, _: "ready" if at.node.topic.booted else "booting"),
        _measure(Metric("oncemesh_ready"), Type.FLAG, "whether `/readyz` says so", lambda at, _: not at.unready()),
        _fact("waiting_for", Type.TEXTS, "while booting: the routers whose sections have not arrived",
            lambda at, _: at.node.topic.boot.waiting_for),
        _fact("uptime_s", Type.SECONDS, "since it began", lambda at, _: round(at.uptime_s, 3)),
        _measure(Metric("oncemesh_loop_lag_seconds"), Type.SECONDS, "how late the loop wakes a timer: the largest of "
            "the last ten seconds, one look a second", lambda at, _: at.lag.most),
        _fact("clock.time", Type.SECONDS, "the router's clock, since 1970", lambda at, _: round(time.time(), 3)),
        _fact("clock.moved_s", Type.SECONDS, "by how much it was set since the router began",
            lambda at, _: round(time.time() - trio.current_time() - at.epoch, 3)),
        _fact("clock.behind_s", Type.SECONDS, "how far the fastest clock of another router is, or was, ahead",
            lambda at, _: round(_ahead_s(at), 3)),
        _fact("clock.refused", Type.COUNT, "how many clocks more than an hour ahead were ignored",
            lambda at, _: at.node.topic.outlet.clock.refused),
        _fact("rss_bytes", Type.BYTES, "its memory", lambda at, _: psutil.Process().memory_info().rss),
        _fact("connections", Type.NUMBER, "connections of clients", lambda at, _: len(at.clients.connections)),
        _fact("plan.digest", Type.TEXT, "equal for two routers with equal plans",
            lambda at, _: f"{at.linkstate.plan.digest:x}"),
        _fact("plan.routers", Type.MAP, "the routers of the mesh: `member` or `leaving`",
            lambda at, _: {name: _standing(at, name) for name in sorted(at.linkstate.plan.listed)}),
        _fact("attaches.waiting", Type.NUMBER, "attaches whose answers wait for other routers",
            lambda at, _: len(at.node.topic.attaches.waiting), Metric("oncemesh_attaches_waiting")),
        _fact("attaches.for", Type.TEXTS, "the routers that they wait for", lambda at, _: at.survey.attaches.routers),
        _fact("attaches.since_s", Type.SECONDS, "since a status first showed the oldest",
            lambda at, _: at.survey.attaches.since_s),
        _fact("message_bytes", Type.BYTES, "of the messages in these records", lambda at, _: at.survey.bytes),
        _fact("records", Type.NUMBERS, "records, by state", lambda at, _: at.survey.records),
        _measure(Metric("qdr_deliveries_ingress_total", ("kind",), How.KEYS), Type.COUNTS, "transfers from publishers "
            "that are at home here, by the kind of their address",
            lambda at, _: _by_kind(at.node.topic.records.received)),
        _measure(Metric("qdr_deliveries_egress_total", ("kind",), How.KEYS), Type.COUNTS, "transfers to subscribers "
            "here, repeated ones too, by the kind of their address",
            lambda at, _: _by_kind(at.node.topic.records.delivered)),
        _measure(Metric("qdr_accepted_deliveries_total", ("kind",), How.KEYS), Type.COUNTS, "transfers that "
            "subscribers here have accepted, by the kind of their address",
            lambda at, _: _by_kind(at.node.topic.records.accepted)),
        _fact("exceeded", Type.COUNTS, "how often each limit was exceeded (security.md, Limits), by its name",
            lambda at, _: dict(at.guard.exceeded), Metric("oncemesh_limit_exceeded_total", ("limit",), How.KEYS)),
        _measure(Metric("oncemesh_attaches_refused_total", ("condition",), How.KEYS), Type.COUNTS, "attaches of AMQP "
            "clients that were refused, by condition: `amqp:not-found` (no such address), `amqp:unauthorized-access` "
            "(not for this user), …", lambda at, _: at.guard.refused),
        _measure(Metric("oncemesh_events_total", ("kind",), How.KEYS), Type.COUNTS, "what has happened (management.md, "
            "Events), by kind. Failovers are `moved` (at the router where the link arrives) and `stolen` (where it "
            "was), resumes `attached`, expiries `expired`, contacts lost `contact-lost`",
            lambda at, _: {kind.value: at.events.counts.get(kind.value, 0) for kind in EventKind}),
        _measure(Metric("oncemesh_contacts_lost_total", ("cause",), How.KEYS), Type.COUNTS, "contacts with other "
            "routers that were lost, by cause (management.md, Events, has the causes)",
            lambda at, _: {cause.value: lost for cause, lost in at.linkstate.losses.items()}),
        _fact("disk.log", Type.TEXT, "why the delivery log cannot be written now, empty if it can (with `log.full: "
            "go-on`)", lambda at, _: at.log.why),
        _measure(Metric("oncemesh_log_failing"), Type.FLAG, "whether the delivery log cannot be written just now",
            lambda at, _: at.log.why != ""),
        _fact("disk.missing", Type.COUNT, "entries that the delivery log lacks so far", lambda at, _: at.log.missing,
            Metric("oncemesh_log_missing_entries_total")),
        _measure(Metric("oncemesh_log_written_bytes_total"), Type.CARRIED, "of the delivery log, by this process",
            lambda at, _: at.log.written),
        _fact("disk.store", Type.TEXT, "why `state.db` cannot be written, empty if it can",
            lambda at, _: at.node.unkept),
        _measure(Metric("oncemesh_store_failing"), Type.FLAG, "whether durable links cannot be kept",
            lambda at, _: at.node.unkept != ""),
    ),
)  # fmt: skip


def _name(at: ObservedRouter, name: str) -> str:
    return name


def _named(*more: Attribute[str]) -> tuple[Attribute[str], ...]:
    """What all have that are known by name."""
    return (
        Attribute("identity", Type.TEXT, "its name", _name, Where.MANAGEMENT),
        Attribute("name", Type.TEXT, "its name", _name, Where.MANAGEMENT),
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
    "routers that this one has a link to",
    lambda at: sorted(at.linkstate.neighbours),
    _named(
        Attribute("neighbour", Type.TEXT, "its name", _name, Where.STATUS),
        Attribute("up", Type.FLAG, "whether the link is up", lambda at, name: at.linkstate.neighbours[name].up,
            series=Metric("oncemesh_neighbour_up", ("neighbour",))),
        Attribute("cost", Type.NUMBER, "of the link", lambda at, name: at.linkstate.neighbours[name].cost,
            series=Metric("oncemesh_neighbour_cost", ("neighbour",))),
        Attribute("since_s", Type.SECONDS, "how long it is up, or down",
            lambda at, name: round(trio.current_time() - at.linkstate.neighbours[name].since, 3)),
        Attribute("messages_sent", Type.COUNT, "of AMQP, on the present connection; each may carry many deliveries",
            lambda at, name: _messages(at, name)[0], Where.MANAGEMENT),
        Attribute("messages_received", Type.COUNT, "the same, from it", lambda at, name: _messages(at, name)[1],
            Where.MANAGEMENT),
        _of_connection("bytes_sent", Type.CARRIED, "sent on the present connection and acknowledged by the neighbour's "
            "machine (Linux)", lambda seen: seen.sent, "oncemesh_neighbour_sent_bytes_total"),
        _of_connection("bytes_received", Type.CARRIED, "received on it", lambda seen: seen.received,
            "oncemesh_neighbour_received_bytes_total"),
        _of_connection("round_trip_s", Type.SECONDS, "as TCP measures it", lambda seen: seen.rtt_s,
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
    "routers that there is a path to",
    lambda at: sorted(at.linkstate.routes),
    (
        Attribute("router", Type.TEXT, "its name", _name, Where.STATUS),
        Attribute("next_hop", Type.TEXT, "the neighbour by which it is reached",
            lambda at, name: at.linkstate.routes[name].next_hop, Where.STATUS),
        Attribute("cost", Type.NUMBER, "of all links of the path", lambda at, name: at.linkstate.routes[name].cost,
            Where.STATUS),
        Attribute("contact", Type.FLAG, "whether this router is in contact with it", _is_in_contact, Where.STATUS),
    ),
    status="routes",
)  # fmt: skip

CONTACT: Final = Entity[str](
    "contact",
    "routers in contact",
    lambda at: at.node.topic.directory.contacts,
    _named(
        Attribute("incarnation", Type.NUMBER, "the time of its start in ms",
            lambda at, name: at.node.topic.directory.contacts.get(name)),
        Attribute("next_hop", Type.TEXT, "the neighbour by which it is reached",
            lambda at, name: route.next_hop if (route := route_to(at, name)) else None),
        Attribute("cost", Type.NUMBER, "of all links of the path",
            lambda at, name: route.cost if (route := route_to(at, name)) else None),
        Attribute("applied", Type.NUMBER, "the version of its section known here",
            lambda at, name: at.node.topic.directory.applied.get(name)),
        Attribute("acknowledged", Type.NUMBER, "the version of ours known there",
            lambda at, name: at.node.topic.directory.members.acked[name]),
    ),
    managed=f"{OURS}contact",
)  # fmt: skip


def is_there(at: ObservedRouter, name: str) -> bool:
    return name == at.name or name in at.linkstate.routes


PLAN_ROUTER: Final = Entity[str](
    "planRouter",
    "all routers of the plan (protocol.md, 11), members and those that are leaving",
    lambda at: sorted(at.linkstate.plan.listed),
    _named(
        Attribute("standing", Type.TEXT, "`member` or `leaving`", _standing),
        Attribute("amqp", Type.TEXT, "where clients connect to", lambda at, name: _planned(at, name).amqp or None),
        Attribute("inter", Type.TEXT, "where routers connect to", lambda at, name: _planned(at, name).inter or None),
        Attribute("neighbours", Type.NUMBERS, "the costs of its links",
            lambda at, name: at.linkstate.plan.costs_of(name)),
        Attribute("is_here", Type.FLAG, "whether it is this router", lambda at, name: name == at.name),
        Attribute("reachable", Type.FLAG, "whether there is a path to it, or it is this router", is_there),
        Attribute("in_contact", Type.FLAG, "whether this router is in contact with it", _is_in_contact),
        Attribute("contact", Type.FLAG, "whether this router is in contact with that other one",
            lambda at, name: _is_in_contact(at, name) if name != at.name else None, Where.NOWHERE,
            Metric("oncemesh_contact", ("peer",))),
    ),
    managed=f"{OURS}planRouter",
)  # fmt: skip
