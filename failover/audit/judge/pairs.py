"""Gathers the facts about each *pair* of a delivery and a subscriber: whether the subscriber was in an audience, and
the entries of the subscriber and its routers. Like `deliveries`, this module applies no rule.

Two sources show the audience of a delivery: the AUDIENCE entries of its home, and the spans in which, by JOINED
entries, subscribers were joined at this home.
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
"""The events by which an entry of a home shows that a subscriber is in the audience of a delivery: AUDIENCE, whose
entry lists the subscriber; or RECEIVED, if the home had joined the subscriber before it received the delivery."""


@attrs.frozen
class Pairs:
    """The facts about pairs. Each column has one element for each pair. As in `Deliveries`, a column that
    names an entry of a log has the number of the entry's row in the bucket."""

    groups: Groups
    """The rows about pairs, grouped by pair."""
    acceptances: "Acceptances"
    delivery: Ints
    subscriber: Ints
    """The subscriber, as an index into `names`."""
    names: Sequence[str]
    in_audience: Flags
    apart: Flags
    """Whether the delivery was accepted only without the subscriber. This is so if each home that had the subscriber in
    its audience and accepted the delivery logs that it accepted the delivery without the subscriber."""
    passed: Flags
    """Whether a router logs that the subscriber's filter does not let the delivery pass, and no router has sent the
    delivery to the subscriber since."""
    left_out: Ints
    """The last row in which a router logs that the subscriber's filter does not let the delivery pass; `NONE` if there
    is none. Routers may have sent the delivery to the subscriber before this row or after it."""
    meant_hlc: Ints
    own_count: Ints
    """How often the subscriber processed the delivery, by its own logs."""
    own_processed: Ints
    own_refused: Flags
    own_order: Ints
    edge_count: Ints
    """The number of the subscriber's acceptances in routers' logs, except acceptances from a map. `edges` is the number
    of these routers."""
    edges: Ints
    edge_stamp: Ints
    """The row of the subscriber's first acceptance in a router's log, in the order of hybrid clocks. An acceptance in
    the subscriber's unsettled map counts, too. `edge_accepted` is the same in the order of wall clocks."""
    edge_accepted: Ints
    edge_refused: Flags
    last_sent_hlc: Ints
    first_sent: Ints
    last_sent: Ints
    """`first_sent` and `last_sent`: the rows in which a router sent the delivery to the subscriber for the first and
    for the last time."""


def gather_pairs(facts: Facts, uses: Uses, stays: Sequence[Membership]) -> Pairs:
    names, rows, tells = list(facts.rows.strings), facts.rows, facts.flags_of
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
    """Finds the acceptances by homes that count for a subscriber.

    A delivery may have several acceptances. If a publisher has not read an answer, its next home answers again, or the
    same home does so in the next epoch. The later answer also covers subscribers that came after the first answer.
    """

    def __init__(self, facts: Facts, deliveries: Groups, pairs: Groups, delivery: Ints) -> None:
        self._facts, self._deliveries, self._pairs, self._delivery = facts, deliveries, pairs, delivery
        self.since = pairs.lowest(facts.flags_of(*MEANT), facts.epoch_hlc)
        """For each pair, the clock of the first epoch in which the audience has the subscriber; `BIG` if there is
        none."""

    def counting(self, accepted: Flags, pairs: Ints, plain: Flags) -> tuple[Ints, Ints]:
        """The acceptances that count for these pairs, as two columns: the pair, and the row of the acceptance.

        An acceptance does not count in three cases: the home logs that it accepted the delivery without the subscriber;
        the logged audience of the acceptance's epoch lacks the subscriber, and only a later epoch has an audience with
        the subscriber; or the subscriber is in `plain`, and the home logs no audience with it (protocol 10).
        """
        if not len(pairs):
            return pairs, pairs
        place, answers = self._deliveries.all_told(accepted, self._delivery[pairs])
        of, tells = pairs[place], self._facts.flags_of
        epoch, home, meant = self._facts.rows.epoch, self._facts.home, self._pairs.flagged_rows(tells(*MEANT))
        without = self._under(epoch, of, answers, *self._pairs.flagged_rows(tells(Event.APART)))
        told = self._under(epoch, self._delivery[of], answers, *self._deliveries.flagged_rows(tells(Event.AUDIENCE)))
        before = (self._facts.epoch_hlc[answers] < self.since[of]) & ~self._under(epoch, of, answers, *meant)
        unknown = plain[of] & ~self._under(home, of, answers, *meant)
        counts = ~without & ~(told & (before | unknown))
        return of[counts], answers[counts]

    def _under(self, column: Any, group: Ints, row: Ints, others: Ints, rows: Ints) -> Flags:
        """Flags each of the rows `row` for which one of the rows `rows` belongs to the same group and has the same
        value in `column`. `group` and `others` give the group of each element of `row` and of `rows`."""
        number = len(self._facts.rows.strings) + 1
        found: Flags = np.isin(group * number + column[row], others * number + column[rows])
        return found

    def apart(self) -> Flags:
        found = self._pairs.any(self._facts.flags_of(Event.APART))
        accepted = self._facts.at_home & self._facts.flags_of(Event.ACCEPTED) & self._facts.accepted
        found[self.counting(accepted, np.flatnonzero(found), np.zeros_like(found))[0]] = False
        return found


def _own_count(facts: Facts, groups: Groups, processed: Flags, kept: Flags) -> Ints:
    """A lower bound for how often the subscriber processed each delivery.

    If the subscriber's state file names a delivery, an earlier life of the process has processed the delivery, even if
    no log of that life says so. If this life or a later one logs the delivery as processed, the subscriber has
    processed it at least twice.
    """
    since, last = groups.lowest(kept, facts.incarnation), groups.highest(processed, facts.incarnation)
    least = np.where(groups.any(kept), np.where(last >= since, 2, 1), 0)
    return np.maximum(groups.count(processed), least)


def _tellings(facts: Facts, names: list[str], stays: Sequence[Membership]) -> tuple[Ints, Ints]:
    """All entries about pairs, as two columns: the row, and the subscriber as an index into `names`. Subscribers that
    no row names are added to `names`."""
    named = facts.flags_of(Event.DELIVERED, Event.OUTCOME, Event.PROCESSED, Event.KEPT, Event.APART, Event.PASSED)
    at = np.flatnonzero(named & (facts.rows.subscriber != NONE))
    found = [(at, facts.rows.subscriber[at].astype(np.int64))]
    found += [*_listed(facts, names), *_joined(facts, names, stays)]
    rows, subscribers = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(subscribers)


def _listed(facts: Facts, names: list[str]) -> Iterator[tuple[Ints, Ints]]:
    """The pairs that AUDIENCE entries list. Most of these entries are equal, so each different text is parsed only
    once."""
    codes = {text: code for code, text in enumerate(names)}
    at = np.flatnonzero(facts.flags_of(Event.AUDIENCE) & (facts.rows.detail != NONE))
    details, which = np.unique(facts.rows.detail[at], return_inverse=True)
    for index, detail in enumerate(details.tolist()):
        listed = [codes.setdefault(name, len(codes)) for name in audience_of(facts.rows.strings[detail])]
        rows = at[which == index]
        yield np.repeat(rows, len(listed)), np.tile(np.array(listed, np.int64), len(rows))
    names[:] = codes


def audience_of(detail: str) -> list[str]:
    """The names in an AUDIENCE entry; empty if the text is not a list of names."""
    try:
        found = json.loads(detail)
    except ValueError:
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _joined(facts: Facts, names: list[str], stays: Sequence[Membership]) -> Iterator[tuple[Ints, Ints]]:
    """The pairs whose subscriber was joined at the home when the home received the delivery (a stay, `mesh.audiences`).
    A pair is left out if a gate held the subscriber back at that time."""
    codes = {text: code for code, text in enumerate(names)}
    publishers = facts.rows.key.astype("S12")
    received = facts.at_home & facts.flags_of(Event.RECEIVED)
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
