"""What is said of each (delivery, subscriber): whether it was in an audience, and what it and its routers tell.

Facts only, as in `deliveries`. What a home's AUDIENCE entries list is one source of who belongs to a delivery; the
stays of subscribers there, told by JOINED entries, are the other.
"""

import json
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from failover.audit.judge.uses import Uses
from failover.audit.mesh.audiences import Membership
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import Facts, Groups
from topic.journal import Event, LoggedOutcome


@attrs.frozen
class Pairs:
    """One element per pair. Rows are those of the bucket, as in `Deliveries`."""

    delivery: Ints
    subscriber: Ints
    """Index into `names`."""
    names: Sequence[str]
    in_audience: Flags
    apart: Flags
    """Every home that accepted it says that it did so without this subscriber."""
    meant_hlc: Ints
    own_count: Ints
    """How often the subscriber processed it, by its own word."""
    own_processed: Ints
    own_refused: Flags
    own_order: Ints
    edge_count: Ints
    """How many acceptances of it routers tell that were no map's, and how many routers do."""
    edges: Ints
    edge_stamp: Ints
    """The first acceptance of any kind, by hybrid clock, and by wall clock."""
    edge_accepted: Ints
    edge_refused: Flags
    last_sent_hlc: Ints
    edge_order: Ints


def gather_pairs(facts: Facts, uses: Uses, stays: Sequence[Membership]) -> Pairs:
    names = list(facts.rows.strings)
    at, subscriber = _tellings(facts, names, stays)
    ids = uses.of[at] * len(names) + subscriber
    distinct, pair = np.unique(ids, return_inverse=True)
    told = _Tellings(facts, at)
    answers = Groups(uses.of, len(uses.key)).distinct(facts.at_home & facts.tells(Event.ACCEPTED), facts.rows.epoch)
    return _pairs(told, Groups(pair.astype(np.int64), len(distinct)), distinct, names, answers)


class _Tellings:
    """The rows of a bucket, once for each subscriber that they are about."""

    def __init__(self, facts: Facts, at: Ints) -> None:
        self.at = at
        tells, accepted = facts.tells, facts.accepted
        answered = facts.by_router & tells(Event.OUTCOME)
        processed = facts.by_subscriber & tells(Event.PROCESSED)
        kept = facts.by_subscriber & tells(Event.KEPT)
        self.meant = tells(Event.AUDIENCE, Event.RECEIVED)[at]
        self.apart = tells(Event.APART)[at]
        self.epoch = facts.rows.epoch[at]
        self.processed = (processed & accepted)[at]
        self.kept = (kept & accepted)[at]
        self.own_refused = ((processed | kept) & (facts.rows.outcome > LoggedOutcome.ACCEPTED))[at]
        self.handed = (facts.by_subscriber & tells(Event.DELIVERED, Event.PROCESSED))[at]
        self.accepted = (answered & accepted)[at]
        self.accepted_on_link = (answered & accepted & (facts.rows.detail == NONE))[at]
        self.refused = (answered & ~accepted)[at]
        self.sent = (facts.by_router & tells(Event.DELIVERED))[at]
        rows = facts.rows
        self.hlc, self.place, self.time, self.log = (
            column[at] for column in (rows.hlc, rows.place, rows.time, rows.log)
        )
        self.source, self.host, self.incarnation = (
            column[at] for column in (facts.source, facts.host, facts.incarnation)
        )

    def rows(self, index: Ints) -> Ints:
        """Rows of the bucket by those of here."""
        return np.where(index >= 0, self.at[index], NONE) if len(self.at) else index


def _pairs(told: _Tellings, groups: Groups, distinct: Ints, names: Sequence[str], answers: Ints) -> Pairs:
    """`answers`: how many homes accepted each delivery."""
    instant, delivery = (told.time, told.host), distinct // max(len(names), 1)
    return Pairs(
        delivery,
        distinct % max(len(names), 1),
        names,
        in_audience=groups.any(told.meant),
        apart=groups.distinct(told.apart, told.epoch) >= np.maximum(answers[delivery], 1),
        meant_hlc=groups.highest(told.meant, told.hlc),
        own_count=_own_count(told, groups),
        own_processed=told.rows(groups.first(told.processed, *instant)),
        own_refused=groups.any(told.own_refused),
        own_order=told.rows(groups.first(told.handed, told.incarnation, told.place)),
        edge_count=groups.count(told.accepted_on_link),
        edges=groups.distinct(told.accepted_on_link, told.log),
        edge_stamp=told.rows(groups.first(told.accepted, told.hlc, told.source, told.place)),
        edge_accepted=told.rows(groups.first(told.accepted, *instant)),
        edge_refused=groups.any(told.refused),
        last_sent_hlc=groups.highest(told.sent, told.hlc),
        edge_order=told.rows(groups.first(told.sent, told.hlc, told.place)),
    )


def _own_count(told: _Tellings, groups: Groups) -> Ints:
    """What the subscriber kept of an earlier life it processed then, whether or not that life could still write it
    down: what it processed in the same life or a later one was one more."""
    since = groups.lowest(told.kept, told.incarnation)
    last = groups.highest(told.processed, told.incarnation)
    least = np.where(groups.any(told.kept), np.where(last >= since, 2, 1), 0)
    return np.maximum(groups.count(told.processed), least)


def _tellings(facts: Facts, names: list[str], stays: Sequence[Membership]) -> tuple[Ints, Ints]:
    """(row, subscriber) for all that says something of a pair. Names that no row says are added to `names`."""
    named = facts.tells(Event.DELIVERED, Event.OUTCOME, Event.PROCESSED, Event.KEPT, Event.APART)
    at = np.flatnonzero(named & (facts.rows.subscriber != NONE))
    found = [(at, facts.rows.subscriber[at].astype(np.int64))]
    found += [*_listed(facts, names), *_joined(facts, names, stays)]
    rows, subscribers = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(subscribers)


def _listed(facts: Facts, names: list[str]) -> Iterator[tuple[Ints, Ints]]:
    """By the AUDIENCE entries: few differ."""
    codes = {text: code for code, text in enumerate(names)}
    at = np.flatnonzero(facts.tells(Event.AUDIENCE) & (facts.rows.detail != NONE))
    details, which = np.unique(facts.rows.detail[at], return_inverse=True)
    for index, detail in enumerate(details.tolist()):
        listed = [codes.setdefault(name, len(codes)) for name in audience_of(facts.rows.strings[detail])]
        rows = at[which == index]
        yield np.repeat(rows, len(listed)), np.tile(np.array(listed, np.int64), len(rows))
    names[:] = codes


def audience_of(detail: str) -> list[str]:
    """Empty if it is no list of names."""
    try:
        found = json.loads(detail)
    except ValueError:
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _joined(facts: Facts, names: list[str], stays: Sequence[Membership]) -> Iterator[tuple[Ints, Ints]]:
    """By who was joined, and not gated, where a home received it."""
    codes = {text: code for code, text in enumerate(names)}
    publishers = facts.rows.key.astype("S12")
    received = facts.at_home & facts.tells(Event.RECEIVED)
    here = {(log.source, log.incarnation): number for number, log in enumerate(facts.rows.logs)}
    by_log = {number: np.flatnonzero(received & (facts.rows.log == number)) for number in set(here.values())}
    for stay in stays:
        log, address = here.get((stay.source, stay.incarnation)), codes.get(stay.address, NONE)
        if log is None or not len(at := by_log[log]):
            continue
        place, at_address = facts.rows.place[at], facts.rows.address[at] == address
        within = at_address & (stay.since < place) & (place < stay.till) & (facts.rows.hlc[at] < stay.closed)
        for publisher, since, till in stay.gates:
            within &= ~((publishers[at] == publisher.encode()) & (since < place) & (place < till))
        rows = at[within]
        yield rows, np.full(len(rows), codes.setdefault(stay.subscriber, len(codes)), np.int64)
    names[:] = codes
