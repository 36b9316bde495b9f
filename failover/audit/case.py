"""What is known besides the deliveries (logs, parties, stays), as every worker needs it to judge them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import attrs

from failover.audit.amnesia import Forgetting, forgettings
from failover.audit.audiences import Membership, Term, memberships, terms
from failover.audit.clocks import Clocks, HybridClock, aligned, doubted, find_clocks
from failover.audit.endings import Ended, ended_in_use
from failover.audit.exchanges import disagreements
from failover.audit.faults import Chaos
from failover.audit.happenings import fault_instants
from failover.audit.hearing import Hearing, hearing
from failover.audit.inventory import ControlRow, Inventory, Log
from failover.audit.packing import unpack
from failover.audit.parties import CLOSING, Parties, Resumed, Span, find_parties, life_of, open_windows
from failover.audit.presence import Apart, Presence, partings, presences
from failover.audit.spreading import heard_endings
from failover.audit.witnesses import all_remembered, watched_spans
from topic.journal import Event


@attrs.frozen
class Case:
    logs: Mapping[str, Log]
    """By name: source.incarnation."""
    parties: Parties
    terms: Mapping[str, Sequence[Term]]
    """By subscriber."""
    stays: Sequence[Membership]
    presences: Mapping[str, Presence]
    """Of subscribers."""
    partings: Mapping[tuple[str, str], Sequence[Apart]]
    """By home and subscriber."""
    ended_in_use: Sequence[Ended]
    forgettings: Sequence[Forgetting]
    forgetful: frozenset[str]
    """Routers' logs that began without the state store of those before."""
    hearing: Hearing
    suspended: Mapping[str, frozenset[str]]
    """By log: the subscribers whose last entry about their link there is SUSPENDED."""
    hybrid: HybridClock
    clocks: Clocks
    turns: Counter[tuple[str, int]]
    """FENCED and STOLEN entries, by router and event."""
    instants: Sequence[tuple[str, int]]
    """Of faults, with what they were."""
    watched: Mapping[str, Sequence[Span]]
    """The routers at which somebody may have been unseen, and when not."""

    @cached_property
    def open_homes(self) -> list[str]:
        """Routers' logs that may lack their end."""
        return [name for name, log in self.logs.items() if log.role == "router" and not log.whole]

    @cached_property
    def unfinished(self) -> list[str]:
        """Logs that may lack their end."""
        return [name for name, log in self.logs.items() if not log.whole]

    @cached_property
    def open_windows(self) -> list[Span]:
        return open_windows(self.logs.values())

    @cached_property
    def resumed(self) -> dict[str, Resumed]:
        """By publisher."""
        publishers = self.parties.publishers.values()
        return {party.name: party.resumed for party in publishers if party.resumed is not None}

    @cached_property
    def whole(self) -> frozenset[str]:
        """Publishers whose own logs are."""
        return frozenset(party.name for party in self.parties.publishers.values() if party.logged)


def make_case(
    control: Sequence[ControlRow], inventory: Inventory, chaos: Chaos | None = None, some: Iterable[bytes] = ()
) -> Case:
    """From all that is about links and routers rather than deliveries; clocks are compared by `some` of these."""
    told = [row for row in control if row.event >= 0]
    clocks = find_clocks(told, inventory.logs)
    clocks = doubted(clocks, disagreements(aligned(unpack(some), clocks)), inventory.logs)
    rows, logs = clocks.align_rows(told), clocks.align_logs(inventory.logs)
    parties = find_parties(rows, logs)
    heard = heard_endings(rows, logs, parties.subscribers)
    for row in heard:
        parties.subscribers[row.subscriber or ""].closings.append((life_of(row), row.hlc, row.log_name))
    by_name, hybrid = {log.name: log for log in logs}, HybridClock(rows)
    known, publishing = (presences(rows, those, hybrid, by_name) for those in (parties.subscribers, parties.publishers))
    return Case(
        logs=by_name,
        parties=parties,
        terms=terms(rows, parties.subscribers),
        stays=memberships(rows, parties.subscribers),
        presences=known,
        partings=partings([*rows, *heard], parties.subscribers),
        ended_in_use=tuple(ended_in_use(rows, {**publishing, **known})),
        forgettings=forgettings(rows, logs),
        forgetful=frozenset(_forgetful(rows, logs)),
        hearing=hearing(rows, logs, parties.publishers.values()),
        suspended=_suspended(rows),
        hybrid=hybrid,
        clocks=clocks,
        turns=Counter((row.source, row.event) for row in rows if row.event in (Event.FENCED, Event.STOLEN)),
        instants=fault_instants(chaos, logs),
        watched={} if all_remembered(rows, logs) else watched_spans(rows, logs),
    )


def _forgetful(rows: Sequence[ControlRow], logs: Sequence[Log]) -> Iterator[str]:
    """The first start of a router forgets nothing."""
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
