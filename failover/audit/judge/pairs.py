"""What is said of each (delivery, subscriber): whether it was in an audience, and what it and its routers tell.

Facts only, as in `deliveries`. What a home's AUDIENCE entries list is one source of who belongs to a delivery; the
stays of subscribers there, told by JOINED entries, are the other.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from failover.audit.judge.uses import Uses
from failover.audit.mesh.audiences import Membership
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import Facts, Groups
from topic.journal import Event, LoggedOutcome

MEANT = (Event.AUDIENCE, Event.RECEIVED)
"""What a home tells of a subscriber that is to get it: that it is listed, or was joined then."""


@attrs.frozen
class Pairs:
    """One element per pair. Rows are those of the bucket, as in `Deliveries`."""

    groups: Groups
    """The rows that tell of pairs, and which pair each of them tells of."""
    acceptances: "Acceptances"
    delivery: Ints
    subscriber: Ints
    """Index into `names`."""
    names: Sequence[str]
    in_audience: Flags
    apart: Flags
    """Every home that accepted it for an audience with this subscriber says that it did so without it."""
    passed: Flags
    """A router says that the subscriber's filter leaves it out, and none has sent it since."""
    left_out: Ints
    """The row that says so last; it was sent before, maybe, or since."""
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
    first_sent: Ints
    last_sent: Ints
    """The rows."""


def gather_pairs(facts: Facts, uses: Uses, stays: Sequence[Membership]) -> Pairs:
    names, rows, tells = list(facts.rows.strings), facts.rows, facts.tells
    at, subscriber = _tellings(facts, names, stays)
    number = max(len(names), 1)
    distinct, pair = np.unique(uses.of[at] * number + subscriber, return_inverse=True)
    groups, delivery = Groups(pair.astype(np.int64), len(distinct), at), distinct // number
    acceptances = Acceptances(facts, Groups(uses.of, len(uses.key)), groups, delivery)
    meant, instant = tells(*MEANT), (rows.time, facts.host)
    processed, kept = (facts.by_subscriber & tells(event) for event in (Event.PROCESSED, Event.KEPT))
    answered, sent = (facts.by_router & tells(event) for event in (Event.OUTCOME, Event.DELIVERED))
    handed = facts.by_subscriber & tells(Event.DELIVERED, Event.PROCESSED)
    passed, last_sent_hlc = facts.by_router & tells(Event.PASSED), groups.highest(sent, rows.hlc)
    accepted_on_link = answered & facts.accepted & (rows.detail == NONE)
    return Pairs(
        groups,
        acceptances,
        delivery,
        distinct % number,
        names,
        in_audience=groups.any(meant),
        apart=acceptances.apart(),
        passed=groups.highest(passed, rows.hlc) > last_sent_hlc,
        left_out=groups.first(passed, -rows.hlc, -rows.place),
        meant_hlc=groups.highest(meant, rows.hlc),
        own_count=_own_count(facts, groups, processed & facts.accepted, kept & facts.accepted),
        own_processed=groups.first(processed & facts.accepted, *instant),
        own_refused=groups.any((processed | kept) & (rows.outcome > LoggedOutcome.ACCEPTED)),
        own_order=groups.first(handed, facts.incarnation, rows.place),
        edge_count=groups.count(accepted_on_link),
        edges=groups.distinct(accepted_on_link, rows.log),
        edge_stamp=groups.first(answered & facts.accepted, rows.hlc, facts.source, rows.place),
        edge_accepted=groups.first(answered & facts.accepted, *instant),
        edge_refused=groups.any(answered & ~facts.accepted),
        last_sent_hlc=last_sent_hlc,
        first_sent=groups.first(sent, rows.hlc, rows.place),
        last_sent=groups.first(sent, -rows.hlc, -rows.place),
    )


class Acceptances:
    """For whom the homes of deliveries accepted them. A publisher that has not read the answer is given another one by
    its next home, or under the next epoch of this one: for whom is there by then, which may be more."""

    def __init__(self, facts: Facts, deliveries: Groups, pairs: Groups, delivery: Ints) -> None:
        self._facts, self._deliveries, self._pairs, self._delivery = facts, deliveries, pairs, delivery
        self.since = pairs.lowest(facts.tells(*MEANT), facts.epoch_hlc)
        """By pair: the first epoch with the subscriber in its audience; `BIG` if there is none."""

    def counting(self, accepted: Flags, pairs: Ints, plain: Flags) -> tuple[Ints, Ints]:
        """Of these acceptances all that count for these pairs: the pair and the row. Not those that are said to be
        without the subscriber, nor those of an epoch whose audience is told without it, before the first with it; nor,
        if the subscriber is `plain`, those of a home that tells no audience with it (protocol 10)."""
        if not len(pairs):
            return pairs, pairs
        place, answers = self._deliveries.all_told(accepted, self._delivery[pairs])
        of, tells = pairs[place], self._facts.tells
        epoch, home, meant = self._facts.rows.epoch, self._facts.home, self._pairs.told(tells(*MEANT))
        without = self._under(epoch, of, answers, *self._pairs.told(tells(Event.APART)))
        told = self._under(epoch, self._delivery[of], answers, *self._deliveries.told(tells(Event.AUDIENCE)))
        before = (self._facts.epoch_hlc[answers] < self.since[of]) & ~self._under(epoch, of, answers, *meant)
        unknown = plain[of] & ~self._under(home, of, answers, *meant)
        counts = ~without & ~(told & (before | unknown))
        return of[counts], answers[counts]

    def _under(self, column: Any, group: Ints, row: Ints, others: Ints, rows: Ints) -> Flags:
        """Which of these groups, with the value of its row in the column, is among the others with theirs."""
        number = len(self._facts.rows.strings) + 1
        found: Flags = np.isin(group * number + column[row], others * number + column[rows])
        return found

    def apart(self) -> Flags:
        found = self._pairs.any(self._facts.tells(Event.APART))
        accepted = self._facts.at_home & self._facts.tells(Event.ACCEPTED) & self._facts.accepted
        found[self.counting(accepted, np.flatnonzero(found), np.zeros_like(found))[0]] = False
        return found


def _own_count(facts: Facts, groups: Groups, processed: Flags, kept: Flags) -> Ints:
    """What the subscriber kept of an earlier life it processed then, whether or not that life could still write it
    down: what it processed in the same life or a later one was one more."""
    since, last = groups.lowest(kept, facts.incarnation), groups.highest(processed, facts.incarnation)
    least = np.where(groups.any(kept), np.where(last >= since, 2, 1), 0)
    return np.maximum(groups.count(processed), least)


def _tellings(facts: Facts, names: list[str], stays: Sequence[Membership]) -> tuple[Ints, Ints]:
    """(row, subscriber) for all that says something of a pair. Names that no row says are added to `names`."""
    named = facts.tells(Event.DELIVERED, Event.OUTCOME, Event.PROCESSED, Event.KEPT, Event.APART, Event.PASSED)
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
        log = here.get((stay.source, stay.incarnation))
        if log is None or not len(at := by_log[log]):
            continue
        place, at_address = facts.rows.place[at], facts.rows.meets(facts.rows.address[at], stay.address)
        within = at_address & (stay.since < place) & (place < stay.till) & (facts.rows.hlc[at] < stay.closed)
        for publisher, since, till in stay.gates:
            within &= ~((publishers[at] == publisher.encode()) & (since < place) & (place < till))
        rows = at[within]
        yield rows, np.full(len(rows), codes.setdefault(stay.subscriber, len(codes)), np.int64)
    names[:] = codes
