"""The rules of the audit for each (delivery, subscriber).

A subscriber with logs of its own is judged by them, any other by its routers. Out of order is judged last, over all
deliveries of a publisher to a subscriber: see `ordering`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
import numpy as np

from failover.audit.audiences import Term
from failover.audit.case import Case
from failover.audit.checks import Judged, Spans, dated, within
from failover.audit.clocks import SKEW_US
from failover.audit.deliveries import Deliveries
from failover.audit.facts import Facts
from failover.audit.grouping import BIG, taken
from failover.audit.packing import NONE, Flags, Ints
from failover.audit.pairs import Pairs
from failover.audit.parties import Party, Span
from failover.audit.publishing import Order

UNORDERED_US = 1 << 60
"""More than any difference of times."""


@attrs.frozen
class JudgedPairs:
    """A flag for every kind of violation, and for what can not be known."""

    owed: Flags
    taken: Flags
    lost: Flags
    duplicated: Flags
    early: Flags
    overruled: Flags
    unasked: Flags
    unknown: Flags
    unplaced: Flags
    handed: Order
    """When the subscriber was handed it first, in the order of its log, or of the clock of its routers."""
    vague: Flags
    """Nothing is concluded."""
    timely: Flags
    """Certainly done with it before the publisher was answered."""
    own_doubted: Flags
    """Whether entries of the subscriber's own logs may be missing, or those of its routers."""
    router_doubted: Flags
    unowed: Mapping[str, Flags]
    """Processed, though not owed: by the reasons of `report.UNOWED`."""
    unprocessed: Mapping[str, Flags]
    """Owed, and not processed: by those of `report.UNPROCESSED`."""


class _Of:
    """What is needed of the delivery and the subscriber of each pair."""

    def __init__(self, facts: Facts, pairs: Pairs, of: Deliveries, judged: Judged, case: Case) -> None:
        self.facts, self.pairs, self.case = facts, pairs, case
        at = pairs.delivery
        self.judged, self.deliveries, self.at = judged, of, at
        self.accepted_time, self.accepted_hlc = judged.accepted_time[at], judged.accepted_hlc[at]
        self.begun_time, self.undated = of.begun_time[at], of.undated[at]
        self.received_hlc = np.where(of.received_hlc[at] != BIG, of.received_hlc[at], self.accepted_hlc)
        self.parties = [(code, case.parties.subscribers.get(name)) for code, name in enumerate(pairs.names)]
        self._order = np.argsort(pairs.subscriber, kind="stable")
        self._ends = np.cumsum(np.bincount(pairs.subscriber, minlength=len(pairs.names)))

    def pairs_of(self, code: int) -> Ints:
        start = self._ends[code - 1] if code else 0
        found: Ints = self._order[start : self._ends[code]]
        return found

    def flag(self, of: Callable[[Party], bool]) -> Flags:
        found = np.zeros(len(self.at), np.bool_)
        for code, party in self.parties:
            if party is not None and of(party):
                found[self.pairs_of(code)] = True
        return found

    def overlaps(self, of: Callable[[Party], Sequence[Span]], otherwise: Sequence[Span] = ()) -> Flags:
        """Whether the delivery was open while entries about the subscriber may have got lost. `otherwise` is for
        subscribers that nobody knows anything about."""
        spans: Spans = [
            (self.pairs_of(code), otherwise if party is None else of(party)) for code, party in self.parties
        ]
        known = (self.accepted_time != BIG) & (self.begun_time != BIG)
        found: Flags = within(spans, *dated(self.undated, self.begun_time, self.accepted_time)) & known
        return found


def judge_pairs(facts: Facts, pairs: Pairs, of: Deliveries, judged: Judged, case: Case) -> JudgedPairs:
    each = _Of(facts, pairs, of, judged, case)
    own = each.flag(lambda party: bool(party.logs))
    edge_doubted = each.overlaps(lambda party: party.custody, case.open_windows)
    bridged = each.overlaps(lambda party: party.bridged)
    doubted = each.overlaps(lambda party: party.doubts, case.open_windows) | (bridged & edge_doubted)
    by_edge = pairs.edge_stamp >= 0
    count = np.where(own, np.maximum(pairs.own_count, bridged & by_edge), by_edge)
    refused = np.where(own, pairs.own_refused, pairs.edge_refused)
    duplicated = np.where(own, pairs.own_count > 1, _sent_again(facts, pairs))
    handed = _handed(facts, pairs, own)
    vague = ~of.lives.sure[each.at] | (judged.lives_doubted[each.at] & duplicated)
    vague |= each.undated & judged.is_accepted[each.at] & (of.accepted[each.at] == NONE)
    excused, forgotten = _excused(each), _forgotten(each)
    owed = pairs.in_audience & judged.is_accepted[each.at] & ~pairs.apart & ~excused & ~forgotten
    missing, got = owed & (count == 0), owed & (count > 0)
    lost = missing & ~refused & ~doubted & ~vague
    overruled = missing & refused & ~vague
    processed = np.where(own, pairs.own_processed, pairs.edge_accepted)
    unanswered = _before_any_answer(each, processed)
    unheard = judged.unheard[each.at] & pairs.in_audience & (refused | ~unanswered)
    early, proven = _early(each, processed, own, edge_doubted)
    unended = (each.accepted_time == BIG) & bool(case.unfinished)  # it may have lasted until the end of any log
    was_handed, invented = handed[1] != NONE, judged.invented[each.at]
    return JudgedPairs(
        owed,
        taken=count > 0,
        lost=lost,
        duplicated=duplicated & ~vague,
        early=got & early & ~vague,
        overruled=overruled,
        unasked=was_handed & invented & ~vague,
        unknown=(missing & ~refused & doubted) | (got & ~early & ~proven) | (vague & (owed | was_handed)) | unheard,
        unplaced=was_handed & (judged.position[1][each.at] == NONE) & ~invented,
        handed=handed,
        vague=vague,
        timely=(proven & ~early) | unanswered,
        own_doubted=doubted | bridged | unended,
        router_doubted=edge_doubted | unended,
        unowed=_unowed(each, (count > 0) & ~owed, excused),
        unprocessed=_by_reason(missing, ("lost", lost), ("refused", overruled), ("unknown", missing)),
    )


def _unowed(each: _Of, among: Flags, excused: Flags) -> dict[str, Flags]:
    """Why these were not owed to a subscriber that processed them."""
    judged, found, pairs, at = each.judged, each.deliveries, each.pairs, each.at
    return _by_reason(
        among,
        ("unpublished", judged.invented[at]),
        ("declined", ~judged.is_accepted[at] & (found.refused | found.told_refused)[at]),
        ("unanswered", ~judged.is_accepted[at]),
        ("unaddressed", ~pairs.in_audience & ~found.has_audience[at]),
        ("unlisted", ~pairs.in_audience),
        ("apart", pairs.apart),
        ("ended", excused),
        ("forgotten", among),
    )


def _by_reason(among: Flags, *reasons: tuple[str, Flags]) -> dict[str, Flags]:
    """Each of `among` by the first reason that holds for it; the last holds for all."""
    found = {}
    for name, holds in reasons:
        found[name] = among & holds
        among = among & ~holds
    return found


def _sent_again(facts: Facts, pairs: Pairs) -> Flags:
    """By its routers' logs: after it was accepted, or accepted more often than there are routers that tell it."""
    accepted = pairs.edge_stamp >= 0
    later = accepted & (pairs.last_sent_hlc > taken(facts.rows.hlc, pairs.edge_stamp))
    found: Flags = later | (pairs.edge_count > pairs.edges)
    return found


def _handed(facts: Facts, pairs: Pairs, own: Flags) -> Order:
    index = np.where(own, pairs.own_order, pairs.edge_order)
    major = np.where(own, taken(facts.incarnation, index), taken(facts.rows.hlc, index))
    return major, taken(facts.rows.place, index)


def _early(each: _Of, processed: Ints, own: Flags, edge_doubted: Flags) -> tuple[Flags, Flags]:
    """Whether the publisher was answered before the subscriber was done, and whether it is certain that it was not."""
    later, known = _edge_later(each)
    after, before = _clocks(each, processed)
    told_later = known & later & ~edge_doubted  # else it may be a later router that says so
    return told_later | (after & (own | ~edge_doubted)), (known & ~later) | before


def _before_any_answer(each: _Of, processed: Ints) -> Flags:
    """Whether it was processed before its publisher, whose log breaks off after that, can have been answered."""
    since = each.judged.unheard_since[each.at]
    by = taken(each.facts.rows.time, processed) + _slack(each, processed, each.deliveries.published[each.at])
    found: Flags = (processed >= 0) & (since != NONE) & (by <= since)
    return found


def _slack(each: _Of, one: Ints, other: Ints) -> Ints:
    """By how much the wall clocks may differ that these rows were written by, in µs."""
    host, undated = each.facts.host, each.facts.rows.undated
    unordered = taken(undated, one, False) | taken(undated, other, False)
    one_clock = (taken(host, one) == taken(host, other)) & (taken(host, one) != NONE)
    return np.where(unordered, UNORDERED_US, np.where(one_clock, 0, SKEW_US))


def _edge_later(each: _Of) -> tuple[Flags, Flags]:
    """Whether the subscriber's acceptance came to its router after the home had accepted, and whether that is known."""
    rows, source = each.facts.rows, each.facts.source
    edge, home = each.pairs.edge_stamp, each.deliveries.accepted[each.at]
    known = (edge >= 0) & (home >= 0)
    hlc, at_home = taken(rows.hlc, edge), taken(rows.hlc, home)
    elsewhere = taken(source, edge) != taken(source, home)
    behind = taken(rows.place, edge) > taken(rows.place, home)
    return (hlc > at_home) | ((hlc == at_home) & (elsewhere | behind)), known


def _clocks(each: _Of, processed: Ints) -> tuple[Flags, Flags]:
    """Whether by wall clocks it was processed certainly after, and certainly before, the publisher knew: by its own
    log, or else when its home told it."""
    time = each.facts.rows.time
    told, home = each.deliveries.told_accepted[each.at], each.deliveries.accepted_first[each.at]
    answer = np.where(told >= 0, told, home)
    known = (processed >= 0) & (answer >= 0)
    slack = _slack(each, processed, answer)
    later = taken(time, processed) - taken(time, answer)
    return known & (later > slack), known & (later <= -slack)


def _excused(each: _Of) -> Flags:
    """Whether the subscriber was gone for good, as far as this delivery's home is concerned, before the delivery was
    accepted. The home's JOINED rows tell in which of its lives the subscriber was owed the delivery; without any there,
    its attaches do."""
    found = np.zeros(len(each.at), np.bool_)
    for code, _ in each.parties:
        pairs = each.pairs_of(code)
        listed = each.case.terms.get(each.pairs.names[code], ()) if len(pairs) else ()
        here, relieved = _in_terms(each, pairs, (term for term in listed if term.home))
        anywhere = _in_terms(each, pairs, (term for term in listed if not term.home))[1]
        found[pairs] = np.where(here, relieved, anywhere)
    return found


def _in_terms(each: _Of, pairs: Ints, terms: Iterable[Term]) -> tuple[Flags, Flags]:
    """Whether any of these applies to the delivery, and whether any that does had ended when it was accepted."""
    applies, relieved = np.zeros(len(pairs), np.bool_), np.zeros(len(pairs), np.bool_)
    received, accepted = each.received_hlc[pairs], each.accepted_hlc[pairs]
    at, found = each.at[pairs], each.deliveries
    homes = found.first_home[at], found.last_home[at], taken(each.facts.home, found.accepted[at])
    for term in terms:
        within_it = (term.since < received) & (received <= term.till) & (received != BIG)
        if term.home:
            home = each.facts.home_code(term.home)
            within_it &= np.logical_or.reduce([each_home == home for each_home in homes])
        applies |= within_it
        relieved |= within_it & (term.ended <= accepted) & (accepted != BIG)
    return applies, relieved


def _forgotten(each: _Of) -> Flags:
    """Whether the mesh forgot the subscriber after it had last been meant to get this, and before it was accepted."""
    found = np.zeros(len(each.at), np.bool_)
    meant, accepted = each.pairs.meant_hlc, each.accepted_hlc
    for forgetting in each.case.forgettings:
        found |= (meant >= 0) & (meant < forgetting.at) & (accepted >= forgetting.at) & (accepted != BIG)
    return found
