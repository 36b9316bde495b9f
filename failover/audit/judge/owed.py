"""Finds the deliveries that each subscriber is owed, and the reasons for which it processed more or fewer deliveries.

A subscriber is owed a delivery that was accepted while the subscriber was in the audience of the delivery's home. A
delivery is not owed in these cases:

1. The home logs that it accepted the delivery without the subscriber.
2. The delivery is for a balanced address, so it is for only one of the subscribers.
3. The subscriber's own router logs that the subscriber's filter does not let the delivery pass.
4. The delivery was accepted after the subscriber's link had ended for that home, or after the whole mesh had started
   without its state stores.
5. A later home accepted the delivery, and cannot have known of the subscriber.
"""

from collections.abc import Iterable

import numpy as np

from failover.audit.judge.kinds import SHARED
from failover.audit.judge.testimony import Testimony
from failover.audit.mesh.audiences import Period
from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import Client, Span
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import BIG


class Owed:
    """Finds the deliveries that subscribers are owed. Each result is a column of flags, with one flag for each pair of
    a delivery and a subscriber."""

    def __init__(self, each: Testimony, timely: Flags) -> None:
        """`timely`: flags the pairs in which the subscriber certainly answered the delivery before the publisher read
        an answer."""
        self._each, self._ended = each, ended(each)
        accepted = each.fates.is_accepted[each.at]
        listed: Flags = each.pairs.in_audience & accepted & ~each.pairs.apart & ~each.pairs.passed
        listed &= ~self._ended & ~each.unmeant & ~_forgotten(each) & ~each.deliveries.balanced[each.at]
        self._ended |= _unreachable(each, listed & ~(each.taken & timely))
        listed &= ~self._ended
        self._unheard = _unheard(each, listed & ~(each.taken & timely))
        self.flags: Flags = listed & ~self._unheard
        self.missing: Flags = self.flags & ~each.taken
        self.got: Flags = self.flags & each.taken

    def unowed(self) -> dict[str, Flags]:
        """Flags the pairs whose delivery the subscriber processed although it was not owed the delivery. Returns
        separate flags for each reason in `kinds.UNOWED`."""
        each, at = self._each, self._each.at
        accepted, found = each.fates.is_accepted[at], each.deliveries
        return by_reason(
            each.taken & ~self.flags,
            ("unpublished", each.fates.invented[at]),
            ("declined", ~accepted & (found.refused | found.told_refused)[at]),
            ("unanswered", ~accepted),
            (SHARED, found.balanced[at]),
            ("unaddressed", ~each.pairs.in_audience & ~found.has_audience[at]),
            ("unlisted", ~each.pairs.in_audience | each.unmeant | self._unheard),
            ("passed", each.pairs.passed),
            ("apart", each.pairs.apart),
            ("ended", self._ended),
            ("forgotten", np.ones(len(at), np.bool_)),
        )


def by_reason(among: Flags, *reasons: tuple[str, Flags]) -> dict[str, Flags]:
    """Splits the flagged elements of `among` by reason. Each element counts for the first of these reasons that applies
    to it."""
    found = {}
    for name, holds in reasons:
        found[name] = among & holds
        among = among & ~holds
    return found


def ended(each: Testimony) -> Flags:
    """Flags the pairs in which the subscriber's link had ended, for the delivery's home, before the delivery was
    accepted.

    The home owed the delivery to one life of the subscriber. The home's JOINED rows show this life. But if the home
    received the delivery before it joined the subscriber, the home knew the subscriber from other routers. Then the
    attaches of the subscriber show the life.
    """
    found = np.zeros(len(each.at), np.bool_)
    for code, _ in each.clients:
        pairs = each.pairs_of(code)
        listed = each.case.periods.get(each.pairs.names[code], ()) if len(pairs) else ()
        here, relieved, joined = _in_periods(each, pairs, (period for period in listed if period.home))
        anywhere = _in_periods(each, pairs, (period for period in listed if not period.home))[1]
        found[pairs] = np.where(here & joined, relieved, anywhere | (here & relieved))
    return found


def _in_periods(each: Testimony, pairs: Ints, periods: Iterable[Period]) -> tuple[Flags, Flags, Flags]:
    """Returns three flags for each pair: whether any of these periods (`mesh.audiences.Period`) applies to the
    delivery; whether a period that applies had ended when the delivery was accepted; whether a period at a home of the
    delivery had begun when the delivery was received.

    A period at the home that accepted the delivery applies if the period overlaps the time from the receipt at this
    home to the acceptance. Any other period applies if a router first received the delivery in the period.
    """
    applies, relieved, begun = (np.zeros(len(pairs), np.bool_) for _ in range(3))
    received, accepted = each.received_hlc[pairs], each.accepted_hlc[pairs]
    at, found = each.at[pairs], each.deliveries
    acceptor, taken_over = each.acceptor[pairs], each.taken_over_hlc[pairs]
    homes = found.first_home[at], found.last_home[at], acceptor
    for period in periods:
        within_it = (period.since < received) & (received <= period.till) & (received != BIG)
        if period.home:
            home = each.facts.home_code(period.home)
            within_it &= np.logical_or.reduce([each_home == home for each_home in homes])
            begun |= within_it
            by_it = (acceptor == home) & (taken_over != BIG)
            within_it = np.where(by_it, (period.since < accepted) & (taken_over <= period.till), within_it)
        applies |= within_it
        relieved |= within_it & (period.ended <= accepted) & (accepted != BIG)
    return applies, relieved, begun


def _unreachable(each: Testimony, suspect: Flags) -> Flags:
    """Flags the pairs whose subscriber has no timeout, and whose link had ended when the delivery was accepted.

    A subscriber that attaches anew begins another life of its link. The life that counts here is the latest one in
    which a home awaited the subscriber for this delivery. Either the home that accepted the delivery had learnt of the
    end of this life, or no router had the link any more.
    """
    found = np.zeros(len(each.at), np.bool_)
    for code, client in each.clients:
        pairs = each.pairs_of(code)
        pairs = pairs[suspect[pairs]]
        if client is None or client.timeout_s or not client.lives or not len(pairs):
            continue
        meant, accepted = each.pairs.meant_hlc[pairs], each.accepted_hlc[pairs]
        lives = np.array([0, *sorted(life for life, _, _ in client.lives)], np.int64)
        current = lives[np.searchsorted(lives, np.maximum(meant, 0), side="right") - 1]
        for life, at, where in client.closings:
            there = (each.acceptor[pairs] == each.facts.home_code(where)) if where else np.True_
            found[pairs] |= (current == life) & (meant < at) & (at <= accepted) & there
    return found


def _forgotten(each: Testimony) -> Flags:
    """Flags the pairs whose subscriber the mesh forgot after the subscriber was last in an audience of the delivery,
    and before the acceptance."""
    found = np.zeros(len(each.at), np.bool_)
    meant, accepted = each.pairs.meant_hlc, each.accepted_hlc
    for lost in each.case.state_losses:
        found |= (meant >= 0) & (meant < lost.at) & (accepted >= lost.at) & (accepted != BIG)
    return found


def _unheard(each: Testimony, suspect: Flags) -> Flags:
    """Flags the pairs of `suspect` in which the home did not have to know the subscriber when it accepted the delivery.
    If a router's log lacks its end, the contacts are unknown, and no pair is flagged."""
    found = np.zeros(len(each.at), np.bool_)
    suspect = suspect & ~each.link_doubted
    if not suspect.any():
        return found
    for code, client in each.clients:
        pairs = each.pairs_of(code)
        pairs = pairs[suspect[pairs] & (each.acceptor[pairs] != NONE)]
        if client is not None:
            for home in np.unique(each.acceptor[pairs]).tolist():
                these = pairs[each.acceptor[pairs] == home]
                accepted, knew = each.accepted_hlc[these], np.zeros(len(these), np.bool_)
                for since, till in _known(each.case, client, each.facts.homes[home]):
                    knew |= (since <= accepted) & (accepted < till)
                found[these] = ~knew
    return found


def _known(case: Case, client: Client, home: str) -> list[Span]:
    """The spans in which the home surely knew the subscriber. Either news of the subscriber must have arrived before,
    or the home logged that it joined the subscriber."""
    joined = [(period.since, period.ended) for period in case.periods.get(client.name, ()) if period.home == home]
    return case.acquaintance.spans(client, home) + joined
