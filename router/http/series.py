"""The series of `/metrics`: a table of what they mean, and where each is read (docs/monitoring.md has them, too).

Names begin as skupper-router's do where they mean what they mean there, else with `oncemesh`. Labels name what the
topology names, a state, a limit or an event, and never what a client chose: so a router has as many series whatever
comes to it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from attrs import frozen

from router.amqp.format.values import StreamFigures
from router.edge.report import PLACEHOLDER, STATES, UNCONFIRMED
from router.events.kind import EventKind
from router.http.census import Census
from router.http.watched import WatchedRouter
from router.management.dispatch_types import PREFIX as DISPATCH
from router.management.entity import OURS
from topic.directory.entry import Role
from topic.settings import KINDS

GAUGE, COUNTER = "gauge", "counter"
PUBLISHERS: Final = ("attaching", "attached", "suspended")
SUBSCRIBERS: Final = ("joining", "attached", "suspended")
ROLES: Final = tuple(role.name.lower() for role in Role)


@frozen
class MetricSeries:
    kind: str
    text: str
    labels: tuple[str, ...] = ()


SERIES: Final = {
    "oncemesh_info": MetricSeries(GAUGE, "Which router it is; always 1.", ("router", "mesh", "version")),
    "oncemesh_ready": MetricSeries(GAUGE, "1 if /readyz says so."),
    "oncemesh_loop_lag_seconds": MetricSeries(GAUGE, "How late the loop comes, at most in 10 s."),
    "qdr_connections_total": MetricSeries(GAUGE, "Connections of clients and neighbours."),
    "qdr_links_total": MetricSeries(GAUGE, "Publishers and subscribers here, suspended ones too."),
    "qdr_addresses_total": MetricSeries(GAUGE, "Addresses with a publisher or subscriber in the mesh."),
    "qdr_routers_total": MetricSeries(GAUGE, "Routers that there is a path to, and this one."),
    "oncemesh_limit_exceeded_total": MetricSeries(COUNTER, "How often a limit was exceeded.", ("limit",)),
    "oncemesh_attaches_refused_total": MetricSeries(COUNTER, "Attaches of clients, by condition.", ("condition",)),
    "oncemesh_events_total": MetricSeries(COUNTER, "What has happened, by kind (docs/management.md).", ("kind",)),
    "qdr_deliveries_ingress_total": MetricSeries(COUNTER, "Transfers from publishers.", ("kind",)),
    "qdr_deliveries_egress_total": MetricSeries(COUNTER, "Transfers to subscribers, repeated ones too.", ("kind",)),
    "qdr_accepted_deliveries_total": MetricSeries(COUNTER, "Transfers that subscribers have accepted.", ("kind",)),
    "oncemesh_records": MetricSeries(GAUGE, "Deliveries that the router holds a record of.", ("state",)),
    "oncemesh_message_bytes": MetricSeries(GAUGE, "Of messages that the router holds."),
    "oncemesh_oldest_in_doubt_seconds": MetricSeries(GAUGE, "How long a delivery has been seen in doubt, at most."),
    "oncemesh_unsettled_deliveries": MetricSeries(GAUGE, "Of publishers at home here."),
    "oncemesh_queued_deliveries": MetricSeries(GAUGE, "Deliveries that wait for subscribers here."),
    "oncemesh_publishers": MetricSeries(GAUGE, "Publishers at home here.", ("status",)),
    "oncemesh_subscribers": MetricSeries(GAUGE, "Subscribers attached or suspended here.", ("status",)),
    "qdr_links_blocked_total": MetricSeries(GAUGE, "Attached publishers without credit."),
    "oncemesh_attaches_waiting": MetricSeries(GAUGE, "Attaches that are not answered yet."),
    "oncemesh_orphans": MetricSeries(GAUGE, "Lasting links of routers out of contact.", ("role",)),
    "oncemesh_lapsed_subscribers": MetricSeries(GAUGE, "Subscribers that nobody waits for here any more."),
    "oncemesh_contact": MetricSeries(GAUGE, "1 if in contact with the router.", ("peer",)),
    "oncemesh_contacts_lost_total": MetricSeries(COUNTER, "Contacts with other routers that were lost.", ("cause",)),
    "oncemesh_neighbour_up": MetricSeries(GAUGE, "1 if the link to the neighbour is up.", ("neighbour",)),
    "oncemesh_neighbour_cost": MetricSeries(GAUGE, "Of the link to the neighbour.", ("neighbour",)),
    "oncemesh_neighbour_sent_bytes_total": MetricSeries(COUNTER, "On this connection, acknowledged.", ("neighbour",)),
    "oncemesh_neighbour_received_bytes_total": MetricSeries(COUNTER, "On this connection.", ("neighbour",)),
    "oncemesh_neighbour_round_trip_seconds": MetricSeries(GAUGE, "As TCP measures it.", ("neighbour",)),
    "oncemesh_log_written_bytes_total": MetricSeries(COUNTER, "Of the delivery log, by this process."),
    "oncemesh_log_missing_entries_total": MetricSeries(COUNTER, "Entries that could not be written."),
    "oncemesh_log_failing": MetricSeries(GAUGE, "1 if the delivery log cannot be written."),
    "oncemesh_store_failing": MetricSeries(GAUGE, "1 if durable links cannot be kept."),
}

Values = Iterable[tuple[tuple[str, ...], float]]
"""Of each label, and what is measured."""
Readings = dict[str, Callable[[], Values]]


def _one(value: Callable[[], float]) -> Callable[[], Values]:
    """Of a series without labels."""
    return lambda: [((), float(value()))]


def _by(names: Iterable[str], counts: Callable[[], Mapping[str, int]]) -> Callable[[], Values]:
    """All of these, also those of which there are none."""
    known = tuple(names)

    def read() -> Values:
        found = counts()
        return [((name,), float(found.get(name, 0))) for name in known]

    return read


def _by_kind(totals: Mapping[str, int]) -> Values:
    """Of all kinds of addresses."""
    return [((kind,), float(totals.get(kind, 0))) for kind in KINDS]


def readings(at: WatchedRouter, census: Census) -> Readings:
    """Where each series is read, in the order of the table."""
    found = _of_the_router(at) | _of_deliveries(at, census) | _of_clients(at, census) | _of_links(at) | _of_the_disk(at)
    return {name: found[name] for name in SERIES}


def _of_the_router(at: WatchedRouter) -> Readings:
    says = at.management.types[f"{DISPATCH}router"].attributes
    about = (at.managed.name, at.managed.topology.mesh, says["version"](at.managed))
    return {
        "oncemesh_info": lambda: [(about, 1.0)],
        "oncemesh_ready": _one(lambda: not at.unready()),
        "oncemesh_loop_lag_seconds": _one(lambda: at.lag.most),
        "qdr_connections_total": _one(lambda: says["connectionCount"](at.managed)),
        "qdr_links_total": _one(lambda: says["linkCount"](at.managed)),
        "qdr_addresses_total": _one(lambda: says["addrCount"](at.managed)),
        "qdr_routers_total": _one(lambda: says["nodeCount"](at.managed)),
        "oncemesh_limit_exceeded_total": _by(sorted(at.guard.exceeded), lambda: at.guard.exceeded),
        "oncemesh_attaches_refused_total": lambda: [((name,), float(n)) for name, n in at.guard.refused.items()],
        "oncemesh_events_total": _by((kind.value for kind in EventKind), lambda: at.managed.events.counts),
    }


def _of_deliveries(at: WatchedRouter, census: Census) -> Readings:
    totals = at.managed.node.topic.records
    return {
        "qdr_deliveries_ingress_total": lambda: _by_kind(totals.received),
        "qdr_deliveries_egress_total": lambda: _by_kind(totals.delivered),
        "qdr_accepted_deliveries_total": lambda: _by_kind(totals.accepted),
        "oncemesh_records": _by((PLACEHOLDER, UNCONFIRMED, *STATES.values()), lambda: census.records),
        "oncemesh_message_bytes": _one(lambda: census.bytes),
        "oncemesh_oldest_in_doubt_seconds": _one(lambda: census.oldest_s),
        "oncemesh_unsettled_deliveries": _one(lambda: census.unsettled),
        "oncemesh_queued_deliveries": _one(lambda: census.queued),
    }


def _of_clients(at: WatchedRouter, census: Census) -> Readings:
    topic = at.managed.node.topic
    directory = topic.directory

    def orphans() -> dict[str, int]:
        found = dict.fromkeys(ROLES, 0)
        for entry in directory.entries():
            if entry.lasts and not directory.in_contact(entry):
                found[entry.role.name.lower()] += 1
        return found

    return {
        "oncemesh_publishers": _by(PUBLISHERS, lambda: census.publishers),
        "oncemesh_subscribers": _by(SUBSCRIBERS, lambda: census.subscribers),
        "qdr_links_blocked_total": _one(lambda: census.blocked),
        "oncemesh_attaches_waiting": _one(lambda: len(topic.attaches.waiting)),
        "oncemesh_orphans": _by(ROLES, orphans),
        "oncemesh_lapsed_subscribers": _one(lambda: len(directory.lapsed)),
    }


def _of_links(at: WatchedRouter) -> Readings:
    router = at.managed
    contacts, planned = at.management.types[f"{OURS}contact"], at.management.types[f"{OURS}planRouter"]

    def in_contact() -> Values:
        there = set(contacts.entities())
        return [((name,), float(name in there)) for name in planned.entities() if name != router.name]

    def measured(of: Callable[[StreamFigures], float]) -> Callable[[], Values]:
        def read() -> Values:
            for name, connection in sorted(router.neighbours.connections.items()):
                if (figures := connection.measure()) is not None:
                    yield (name,), of(figures)

        return read

    def links(of: Callable[[Any], float]) -> Callable[[], Values]:
        return lambda: [((name,), float(of(link))) for name, link in sorted(router.linkstate.neighbours.items())]

    return {
        "oncemesh_contact": in_contact,
        "oncemesh_contacts_lost_total": lambda: [((cause.value,), n) for cause, n in router.linkstate.losses.items()],
        "oncemesh_neighbour_up": links(lambda link: link.up),
        "oncemesh_neighbour_cost": links(lambda link: link.cost),
        "oncemesh_neighbour_sent_bytes_total": measured(lambda figures: figures.sent),
        "oncemesh_neighbour_received_bytes_total": measured(lambda figures: figures.received),
        "oncemesh_neighbour_round_trip_seconds": measured(lambda figures: figures.rtt_s),
    }


def _of_the_disk(at: WatchedRouter) -> Readings:
    return {
        "oncemesh_log_written_bytes_total": _one(lambda: at.log.written),
        "oncemesh_log_missing_entries_total": _one(lambda: at.log.missing),
        "oncemesh_log_failing": _one(lambda: at.log.why != ""),
        "oncemesh_store_failing": _one(lambda: at.managed.node.unkept != ""),
    }
