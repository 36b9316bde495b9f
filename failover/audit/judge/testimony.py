"""The evidence for the verdicts on subscribers. For each pair of a delivery and a subscriber it has the facts from the
logs that decide, and says which entries these logs may lack.

If a subscriber has logs of its own, these decide. Otherwise the logs of its routers decide.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from failover.audit.judge.deliveries import Deliveries, Spans, dated, within
from failover.audit.judge.kinds import EDGE, LINK, OWN
from failover.audit.judge.pairs import Pairs
from failover.audit.judge.publishers import Fates
from failover.audit.judge.sequence import Order
from failover.audit.mesh.attaches import UNKNOWN
from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import Client, Span
from failover.audit.mesh.clocks import SKEW_US
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import BIG, Facts, Groups, taken
from topic.journal import Event

UNORDERED_US = 1 << 60
"""A number of µs that is larger than the difference of any two times."""


class Testimony:
    """The evidence about pairs. Each column has one element for each pair. `at`: the delivery of each pair."""

    def __init__(self, facts: Facts, pairs: Pairs, of: Deliveries, fates: Fates, case: Case) -> None:
        self.facts, self.pairs, self.case = facts, pairs, case
        self.fates, self.deliveries, self.at = fates, of, pairs.delivery
        at = pairs.delivery
        self.begun_time, self.undated = of.begun_time[at], of.undated[at]
        self.clients = [(code, case.clients.subscribers.get(name)) for code, name in enumerate(pairs.names)]
        self._order = np.argsort(pairs.subscriber, kind="stable")
        self._ends = np.cumsum(np.bincount(pairs.subscriber, minlength=len(pairs.names)))
        self.accepted, self.accepted_first, self.unmeant = self._acceptances()
        """`accepted` and `accepted_first`: the row of the first acceptance by a home, in the order of hybrid clocks and
        of wall clocks. An acceptance without the subscriber counts only if every acceptance is without the subscriber.
        Otherwise it may be the acceptance of a zombie, while the next home awaited the subscriber.

        `unmeant`: whether every acceptance is from an epoch before the subscriber was in any audience; or, for a plain
        subscriber, from a home that did not know the subscriber.
        """
        hlc, time = taken(facts.rows.hlc, self.accepted), taken(facts.rows.time, self.accepted_first)
        self.accepted_hlc = np.where(self.accepted != NONE, hlc, fates.accepted_hlc[at])
        self.accepted_time = np.where(self.accepted_first != NONE, time, fates.accepted_time[at])
        """The time at which the delivery was first accepted. If no home logs this, the time at which its publisher read
        *accepted*."""
        self.acceptor = taken(facts.home, self.accepted)
        self.received_hlc = np.where(of.received_hlc[at] != BIG, of.received_hlc[at], self.accepted_hlc)

        self.own = self._flag(lambda client: bool(client.logs))
        """Whether the subscriber's own logs decide which deliveries it processed."""
        self.edge_doubted = self._overlaps(lambda client: client.custody, case.open_windows)
        """Whether entries of the subscriber's routers may be missing."""
        self.link_doubted = self._overlaps(lambda client: client.unseen, case.open_windows)
        self.link_doubted |= self._overlaps(lambda client: client.unmet) & ~self._joined()
        """Whether entries about the end of the subscriber's link, or about the routers that knew it, may be missing."""
        self.bridged = self._overlaps(lambda client: client.bridged)
        self.doubted = self._overlaps(lambda client: client.doubts, case.open_windows)
        self.doubted |= self.bridged & self.edge_doubted  # routers' logs may lack the entries that this log has lost
        by_edge = pairs.edge_stamp >= 0
        count = np.where(self.own, np.maximum(pairs.own_count, self.bridged & by_edge), by_edge)
        self.taken: Flags = count > 0
        """Whether the subscriber processed the delivery."""
        self.refused: Flags = np.where(self.own, pairs.own_refused, pairs.edge_refused)
        self.processed: Ints = np.where(self.own, pairs.own_processed, pairs.edge_accepted)
        """The first row in which the subscriber processed the delivery."""
        self.handed = self._handed()
        self.disordered = self._flag(lambda client: not client.logs and client.is_read_in_disorder)

    def _acceptances(self) -> tuple[Ints, Ints, Flags]:
        facts, pairs, of, rows = self.facts, self.pairs, self.deliveries, self.facts.rows
        found = of.accepted[self.at], of.accepted_first[self.at]
        accepted = facts.at_home & facts.flags_of(Event.ACCEPTED) & facts.accepted
        earliest = of.groups.lowest(accepted, facts.epoch_hlc)[self.at]
        again = pairs.in_audience & (earliest < pairs.acceptances.since)
        apart = pairs.groups.any(facts.flags_of(Event.APART)) & ~pairs.apart
        several = of.groups.distinct(facts.at_home & facts.flags_of(Event.RECEIVED, Event.ACCEPTED), facts.home) > 1
        plain = pairs.in_audience & several[self.at] & self._flag(lambda client: not client.timeout_s)
        pair, answers = pairs.acceptances.counting(accepted, np.flatnonzero(again | apart | plain), plain)
        groups, each_row = Groups(pair, len(self.at), answers), np.ones(len(rows), np.bool_)
        by_hlc = groups.first(each_row, rows.hlc, facts.source, rows.place)
        by_wall = groups.first(each_row, rows.time, facts.host)
        first = np.where(by_hlc != NONE, by_hlc, found[0]), np.where(by_wall != NONE, by_wall, found[1])
        return *first, (again | (plain & (found[0] != NONE))) & (by_hlc == NONE)

    @cached_property
    def taken_over_hlc(self) -> Ints:
        """The hybrid clock at which the home that accepted the delivery first received it; `BIG` if this home's log
        does not show this."""
        facts, number = self.facts, len(self.facts.homes) + 1
        rows = np.flatnonzero(facts.at_home & facts.flags_of(Event.RECEIVED))
        told, of = np.unique(self.deliveries.uses.of[rows] * number + facts.home[rows] + 1, return_inverse=True)
        first = np.full(len(told) + 1, BIG, np.int64)
        np.minimum.at(first, of, facts.rows.hlc[rows])
        asked = self.at * number + self.acceptor + 1
        place = np.searchsorted(told, asked)
        is_told = (self.acceptor != NONE) & (np.append(told, NONE)[place] == asked)
        return np.where(is_told, first[place], BIG)

    def lacking(self, logs: str) -> Flags:
        """Flags the pairs about which these logs may lack an entry. `logs`: one of the groups in `kinds`."""
        known = {OWN: self.doubted, EDGE: self.edge_doubted, LINK: self.link_doubted}
        return known[logs] if logs in known else self.fates.lacking(logs)[self.at]

    def lacking_of_any(self, logs: str) -> Flags:
        """Flags the deliveries about which these logs may lack an entry, for any subscriber."""
        if logs not in (OWN, EDGE, LINK):
            return self.fates.lacking(logs)
        found: Flags = np.bincount(self.at[self.lacking(logs)], minlength=len(self.deliveries.balanced)) > 0
        return found

    @property
    def was_handed(self) -> Flags:
        found: Flags = self.handed[1] != NONE
        return found

    def pairs_of(self, code: int) -> Ints:
        start = self._ends[code - 1] if code else 0
        found: Ints = self._order[start : self._ends[code]]
        return found

    def slack(self, one: Ints, other: Ints) -> Ints:
        """The largest possible difference, in µs, between the wall clocks of these two rows."""
        host, undated = self.facts.host, self.facts.rows.undated
        unordered = taken(undated, one, False) | taken(undated, other, False)
        one_clock = (taken(host, one) == taken(host, other)) & (taken(host, one) != NONE)
        return np.where(unordered, UNORDERED_US, np.where(one_clock, 0, SKEW_US))

    def is_put_right(self, one: Ints, other: Ints) -> Flags:
        """Flags the pairs of rows whose times are comparable only after the audit has corrected a clock."""
        ahead_us = np.array([self.case.clocks.ahead_us.get(log.name, 0) for log in self.facts.rows.logs], np.int64)
        by_one, by_other = (taken(ahead_us, taken(self.facts.rows.log, row), 0) for row in (one, other))
        found: Flags = by_one != by_other
        return found

    def _handed(self) -> Order:
        """The place at which the subscriber first got the delivery.

        If the subscriber has a log, this is a place in its own log. Otherwise it is the place at which its routers sent
        the delivery, in the order of the subscriber's attaches. The attaches decide because no clock orders what two
        routers out of contact send to one client.
        """
        rows, pairs, life = self.facts.rows, self.pairs, sent_under(self.facts, self.case)
        sent = pairs.groups.first(life != NONE, life, rows.place)
        index = np.where(self.own, pairs.own_order, sent)
        major = np.where(self.own, taken(self.facts.incarnation, index), taken(life, index))
        return major, taken(rows.place, index)

    def _joined(self) -> Flags:
        """Flags the pairs whose home joined the subscriber before it accepted the delivery. The home's log must show
        this for the subscriber's attach of that time."""
        found = np.zeros(len(self.at), np.bool_)
        for code, client in self.clients if self.case.open_spans else ():
            pairs = self.pairs_of(code)
            if client is None or not len(pairs):
                continue
            hlc, opened = self.accepted_hlc[pairs], np.array([0, *sorted(at for _, at, _ in client.lives)], np.int64)
            current = opened[np.searchsorted(opened, hlc, side="right") - 1]
            for period in (period for period in self.case.periods.get(client.name, ()) if period.home):
                there = self.acceptor[pairs] == self.facts.home_code(period.home)
                found[pairs] |= there & (current <= period.since) & (period.since < hlc) & (hlc < period.ended)
        return found

    def _flag(self, of: Callable[[Client], bool]) -> Flags:
        found = np.zeros(len(self.at), np.bool_)
        for code, client in self.clients:
            if client is not None and of(client):
                found[self.pairs_of(code)] = True
        return found

    def _overlaps(self, of: Callable[[Client], Sequence[Span]], otherwise: Sequence[Span] = ()) -> Flags:
        """Flags the pairs in which the delivery was under way while entries about the subscriber may have been lost.
        `of`: a function that takes a subscriber and returns these spans. `otherwise`: the spans that apply to
        subscribers that no control row names."""
        spans: Spans = [
            (self.pairs_of(code), otherwise if client is None else of(client)) for code, client in self.clients
        ]
        known = (self.accepted_time != BIG) & (self.begun_time != BIG)
        found: Flags = within(spans, *dated(self.undated, self.begun_time, self.accepted_time)) & known
        return found


def sent_under(facts: Facts, case: Case) -> Ints:
    """The attach of the subscriber at the time of each row in which a router sent a delivery to a subscriber without a
    log. An attach is given by the hybrid clock in its epoch; if no log names the attach, the hybrid clock of the row
    stands for it. `NONE` for all other rows."""
    rows, clients = facts.rows, case.clients.subscribers
    own = np.array([*(bool(name in clients and clients[name].logs) for name in rows.strings), False], np.bool_)
    sent = facts.by_router & facts.flags_of(Event.DELIVERED) & ~own[rows.subscriber]
    at, number, found = np.flatnonzero(sent), len(rows.strings) + 1, np.where(sent, rows.hlc, NONE)
    links, link = np.unique(rows.log[at].astype(np.int64) * number + rows.subscriber[at] + 1, return_inverse=True)
    at, ends = at[np.argsort(link, kind="stable")], np.cumsum(np.bincount(link, minlength=len(links)))
    for one, since, till in zip(links.tolist(), [0, *ends[:-1]], ends.tolist(), strict=False):
        these, (log, subscriber) = at[since:till], divmod(one, number)
        name = rows.strings[subscriber - 1] if subscriber else ""
        if attaches := case.attaches.told.get((rows.logs[log].name, name), ()):
            lives = np.array([UNKNOWN[0], *(life for _, (life, _) in attaches)], np.int64)
            under = lives[np.searchsorted([place for place, _ in attaches], rows.place[these])]
            found[these] = np.where(under != UNKNOWN[0], under, found[these])
    return found
