"""A case: all that a worker needs to judge deliveries, apart from the deliveries themselves. It has logs, clients,
contacts and clocks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import attrs

from failover.audit.mesh.at_rest import AtRest
from failover.audit.mesh.attaches import SubscriberAttaches, find_attaches
from failover.audit.mesh.audiences import Membership, Period, memberships, periods
from failover.audit.mesh.clients import (
    CLOSING,
    FOREVER,
    KnownClients,
    Resumption,
    Span,
    find_clients,
    life_of,
    open_ends,
    open_windows,
    span,
)
from failover.audit.mesh.clocks import SKEW_US, Clocks, HybridTimeline, aligned, find_clocks
from failover.audit.mesh.contacts import (
    Hearing,
    all_remembered,
    begun_anew,
    departures,
    given_up,
    heard_endings,
    hearing,
    watched_spans,
)
from failover.audit.mesh.contents import Contents, find_contents, recovered_sets
from failover.audit.mesh.exchanges import disagreements
from failover.audit.mesh.lost_state import StateLoss, state_losses
from failover.audit.mesh.past import NO_PAST, Past
from failover.audit.mesh.presence import EndedLink, Parting, Partings, Presence, ended_in_use, partings, presences
from failover.audit.mesh.unheard import Acquaintance, acquaintance
from failover.audit.read.columns import unpack
from failover.audit.read.inventory import ControlRow, Inventory, Log
from topic.journal import Event


@attrs.frozen
class Case:
    logs: Mapping[str, Log]
    """The logs by name (source.incarnation)."""
    clients: KnownClients
    periods: Mapping[str, Sequence[Period]]
    """The periods of each subscriber (`mesh.audiences`)."""
    stays: Sequence[Membership]
    presences: Mapping[str, Presence]
    """The presence of each subscriber (`mesh.presence`)."""
    partings: Partings
    """The partings of each home and subscriber (`mesh.presence`)."""
    ended_in_use: Sequence[EndedLink]
    acquaintance: Acquaintance
    state_losses: Sequence[StateLoss]
    forgetful: frozenset[str]
    """The names of the logs of routers that started without the state store of their earlier incarnations."""
    hearing: Hearing
    attaches: SubscriberAttaches
    """All attaches of subscribers, as logs show them."""
    suspended: Mapping[str, frozenset[str]]
    """Maps each log to the subscribers whose links are suspended by the last entry about them in this log."""
    hybrid: HybridTimeline
    clocks: Clocks
    contents: Contents
    recovered: frozenset[str]
    """The names of the sets that an operator has recovered."""
    heard: Sequence[ControlRow]
    """EXPIRED entries that the audit adds: one for each router that can have learnt of the ending of a link from other
    routers. A router does not log such news itself."""
    watched: Mapping[str, Sequence[Span]]
    """Maps each router's open log to the spans, in µs of wall clock, in which another router's log shows every attach
    at this router. The mapping is empty if no log can have lost an attach, because the state stores kept the durable
    links."""
    since: int
    """The audit does not judge deliveries that began before this time (in µs of wall clock), because logs of that time
    are deleted. 0 if no log is deleted."""
    at_rest: AtRest = attrs.Factory(AtRest)
    """The content of the routers' stores; empty if a process uses the stores."""

    @cached_property
    def open_homes(self) -> list[str]:
        """The names of the routers' logs that may lack their end."""
        return [name for name, log in self.logs.items() if log.role == "router" and not log.whole]

    @cached_property
    def open_spans(self) -> dict[str, Span]:
        """Maps each router's open log to the span, in µs of wall clock, for which entries may be missing."""
        return {log.name: span(log, end) for log, end in open_ends(self.logs.values()).items()}

    @cached_property
    def unfinished(self) -> list[str]:
        """The names of all logs that may lack their end."""
        return [name for name, log in self.logs.items() if not log.whole]

    @cached_property
    def ends(self) -> dict[str, int]:
        """Maps each log with a gap (its writer could not write it for a while) to the place from which on the audit
        ignores its entries."""
        return _ends(self.logs.values())

    @cached_property
    def cut(self) -> frozenset[str]:
        """The names of the logs that lack their beginning."""
        return frozenset(log.name for log in self.logs.values() if log.begin)

    @cached_property
    def open_windows(self) -> list[Span]:
        return open_windows(self.logs.values())

    @cached_property
    def resumed(self) -> dict[str, Resumption]:
        """Maps each publisher that came back with its state file to its last resumption."""
        publishers = self.clients.publishers.values()
        return {client.name: client.resumed for client in publishers if client.resumed is not None}

    @cached_property
    def whole(self) -> frozenset[str]:
        """The publishers that have logs of their own, if all of these are whole."""
        return frozenset(client.name for client in self.clients.publishers.values() if client.logged)

    @cached_property
    def settling_first(self) -> frozenset[str]:
        """The publishers that have ever used receiver settle mode first."""
        return frozenset(client.name for client in self.clients.publishers.values() if client.settles_first)

    @cached_property
    def disordered(self) -> frozenset[str]:
        """The publishers for which hybrid clocks do not order the entries of different routers."""
        publishers = self.clients.publishers.values()
        return frozenset(client.name for client in publishers if client.far or client.is_disordered)


def make_case(
    control: Sequence[ControlRow], inventory: Inventory, some: Iterable[bytes] = (), past: Past = NO_PAST
) -> Case:
    """Build the case from the rows about links and routers.

    `some`: packed rows of some deliveries, by which clocks are compared. `past`: the facts from rows before `control`
    that the audit has forgotten.
    """
    ends, begins = _ends(inventory.logs), {log.name: log.begin for log in inventory.logs}
    told = [
        row
        for row in control
        if row.event >= 0 and begins.get(row.log_name, 0) <= row.place < ends.get(row.log_name, FOREVER)
    ]
    parts = list(some)
    clocks = find_clocks(
        told, inventory.logs, past.clocks, lambda clocks: disagreements(aligned(unpack(parts), clocks))
    )
    rows, logs = clocks.align_rows(told), clocks.align_logs(inventory.logs)
    clients = find_clients(rows, logs, past.clients)
    for client in (*clients.publishers.values(), *clients.subscribers.values()):
        client.far |= clocks.differ(custodian for _, _, custodian in client.lives)
    heard = heard_endings(rows, logs, clients.subscribers, past.heard)
    for client, ending in begun_anew(rows, clients.subscribers.values()):
        client.closings.append(ending)
    heard += departures(rows, logs, clients.subscribers)
    lapsed = list(given_up(rows, clients.subscribers.values()))
    for row in [*heard, *lapsed]:
        clients.subscribers[row.subscriber or ""].closings.append((life_of(row), row.hlc, row.log_name))
    contents = find_contents(rows)
    earliest = {(source, incarnation) for source, (incarnation, _) in inventory.kept.items()}
    by_name, hybrid = {log.name: log for log in logs}, HybridTimeline(rows)
    known, publishing = (presences(rows, those, hybrid, by_name) for those in (clients.subscribers, clients.publishers))
    return Case(
        logs=by_name,
        clients=clients,
        periods=periods(rows, clients.subscribers),
        stays=memberships([*rows, *lapsed], clients.subscribers),
        presences=known,
        partings=_partings(past, partings([*rows, *heard, *lapsed], clients.subscribers)),
        ended_in_use=tuple(dict.fromkeys([*past.ended_in_use, *ended_in_use(rows, {**publishing, **known})])),
        acquaintance=acquaintance(rows, logs, past.told),
        state_losses=state_losses(rows, logs),
        forgetful=frozenset(_forgetful(rows, logs)),
        hearing=hearing(rows, logs, clients.publishers.values()),
        attaches=find_attaches(rows),
        suspended=_suspended(rows),
        hybrid=hybrid,
        clocks=clocks,
        contents=contents,
        recovered=recovered_sets(contents),
        heard=heard,
        since=max((_began(log) for log in logs if (log.source, log.incarnation) in earliest), default=0),
        watched={} if all_remembered(rows, logs) else watched_spans(rows, logs),
    )


def _partings(past: Past, found: Partings) -> dict[tuple[str, str], list[Parting]]:
    known = {whose: list(ended) for whose, ended in past.partings.items()}
    for whose, told in found.items():
        known.setdefault(whose, []).extend(parting for parting in told if parting.till >= past.till)
    return known


def _ends(logs: Iterable[Log]) -> dict[str, int]:
    return {log.name: log.gap.place for log in logs if log.gap is not None}


def _began(log: Log) -> int:
    return log.first_time + SKEW_US if log.ordered else FOREVER


def _forgetful(rows: Sequence[ControlRow], logs: Sequence[Log]) -> Iterator[str]:
    """The logs of routers that started without their state store. The first start of a router does not count, because
    it forgets nothing."""
    first: dict[str, int] = {}
    for log in logs:
        first[log.source] = min(log.incarnation, first.get(log.source, log.incarnation))
    for row in rows:
        found_nothing = row.event == Event.KEPT and row.role == "router" and row.details.get("found") is False
        if found_nothing and row.incarnation > first.get(row.source, row.incarnation):
            yield row.log_name


def _suspended(rows: Sequence[ControlRow]) -> dict[str, frozenset[str]]:
    events = (Event.ATTACHED, Event.SUSPENDED, Event.STOLEN, *CLOSING)
    last: dict[tuple[str, str], int] = {}
    for row in sorted(rows, key=lambda row: row.place):
        if row.subscriber is not None and row.event in events:
            last[row.log_name, row.subscriber] = row.event
    found: dict[str, set[str]] = {}
    for (log, subscriber), event in last.items():
        if event == Event.SUSPENDED:
            found.setdefault(log, set()).add(subscriber)
    return {log: frozenset(names) for log, names in found.items()}
