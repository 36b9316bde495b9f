"""What is known besides the deliveries (logs, parties, stays), as every worker needs it to judge them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import attrs

from failover.audit.amnesia import Forgetting, forgettings
from failover.audit.audiences import Membership, Term, closed_at, memberships, terms
from failover.audit.clocks import Clocks, HybridClock, find_clocks
from failover.audit.faults import Chaos
from failover.audit.happenings import fault_instants
from failover.audit.inventory import ControlRow, Inventory, Log
from failover.audit.parties import CLOSING, FOREVER, Parties, Resumed, Span, find_parties, open_windows
from failover.audit.witnesses import all_remembered, watched_spans
from topic.journal import Event


@attrs.frozen(slots=True)
class Cut:
    """From when to when a subscriber had expired at a home though its attach lived, or was forgotten there."""

    subscriber: str
    home: str
    since: int
    till: int


@attrs.frozen
class Case:
    logs: Mapping[str, Log]
    """By name: source.incarnation."""
    parties: Parties
    terms: Mapping[str, Sequence[Term]]
    """By subscriber."""
    stays: Sequence[Membership]
    cuts: Sequence[Cut]
    forgettings: Sequence[Forgetting]
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
        """Routers' logs without a clean end."""
        return [name for name, log in self.logs.items() if log.role == "router" and not log.stopped]

    @cached_property
    def unfinished(self) -> list[str]:
        """Logs without a clean end."""
        return [name for name, log in self.logs.items() if not log.stopped]

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


def make_case(control: Sequence[ControlRow], inventory: Inventory, chaos: Chaos | None = None) -> Case:
    """From all that is about links and routers rather than deliveries."""
    told = [row for row in control if row.event >= 0]
    clocks = find_clocks(told, inventory.logs)
    rows, logs = clocks.align_rows(told), clocks.align_logs(inventory.logs)
    parties = find_parties(rows, logs)
    found_terms = terms(rows, parties.subscribers)
    forgotten = forgettings(rows, logs)
    return Case(
        logs={log.name: log for log in logs},
        parties=parties,
        terms=found_terms,
        stays=memberships(rows, parties.subscribers),
        cuts=[*_expired(found_terms), *_forgotten(parties, found_terms, forgotten)],
        forgettings=forgotten,
        suspended=_suspended(rows),
        hybrid=HybridClock(rows),
        clocks=clocks,
        turns=Counter((row.source, row.event) for row in rows if row.event in (Event.FENCED, Event.STOLEN)),
        instants=fault_instants(chaos, logs),
        watched={} if all_remembered(rows, logs) else watched_spans(rows, logs),
    )


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


def _expired(found: Mapping[str, Sequence[Term]]) -> Iterator[Cut]:
    for name, listed in found.items():
        yield from (Cut(name, term.home, term.ended, term.till) for term in listed if term.rejoined)


def _forgotten(parties: Parties, found: Mapping[str, Sequence[Term]], forgotten: Sequence[Forgetting]) -> Iterator[Cut]:
    """Subscribers that had been attached, at the homes that did not know it, until these joined them."""
    for forgetting in forgotten:
        for name, party in parties.subscribers.items():
            lives = [life for life, opened, _ in party.lives if opened < forgetting.at]
            if not lives or closed_at(party, max(lives)) < forgetting.at:
                continue
            for home in forgetting.homes:
                joined = [term.since for term in found[name] if term.home == home]
                yield Cut(name, home, forgetting.at, min(joined, default=FOREVER))
