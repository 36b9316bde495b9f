"""Deliveries, accepted for all that is known, that cannot be laid at anybody's door by their audience: it got lost, or
did not count.

*Unaddressed*: the audience got lost with the log of its home, so who was owed it has to be told from elsewhere. *Cut
off*: accepted while a subscriber that lived on had expired in the view of the home, or was forgotten: owed to nobody,
but to be seen.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from failover.audit.case import Case, Cut
from failover.audit.checks import Judged
from failover.audit.deliveries import Deliveries
from failover.audit.facts import Facts
from failover.audit.grouping import BIG
from failover.audit.packing import NONE, Flags, Ints
from failover.audit.pair_checks import JudgedPairs
from failover.audit.pairs import Pairs
from failover.audit.parties import Party

InVain = Counter[tuple[str | None, bool]]
"""By the last home that is known, and whether it is a known subscriber that did not get it: how many."""


class Astray:
    """The accepted deliveries of a bucket, and which pairs of them are served."""

    def __init__(self, facts: Facts, found: Deliveries, judged: Judged, pairs: Pairs, case: Case) -> None:
        self._facts, self._found, self._judged, self._pairs, self._case = facts, found, judged, pairs, case
        self._codes = {name: code for code, name in enumerate(pairs.names)}
        self._address = [*facts.rows.strings, None]
        self._received_hlc = np.where(found.received_hlc != BIG, found.received_hlc, judged.accepted_hlc)

    def unaddressed(self, judged_pairs: JudgedPairs) -> tuple[InVain, Flags]:
        """Counted, and by delivery. Not if everybody was forgotten before, by routers whose logs are whole."""
        unheard = self._judged.unheard
        astray = (self._judged.is_accepted | unheard) & ~self._found.has_audience
        for forgetting in self._case.forgettings:
            if forgetting.whole:
                astray &= (self._judged.accepted_hlc < forgetting.at) | unheard
        at = np.flatnonzero(astray)
        counted, found = InVain(), np.zeros(len(astray), np.bool_)
        if len(at):
            served = self._served(self._pairs.in_audience | (judged_pairs.taken & judged_pairs.timely))
            for name, party in self._case.parties.subscribers.items():
                possible = at[self._may_have_been_there(at, name, party)]
                in_vain = possible[~self._are(served, possible, name)]
                counted.update((home, True) for home in self._homes(in_vain))
                found[in_vain] = True
            unseen = at[self._unwatched(at)]
            counted.update((home, False) for home in self._homes(unseen))
            found[unseen] = True
        return counted, found

    def cut_off(self, judged_pairs: JudgedPairs) -> Counter[tuple[str, str]]:
        """How many, by publisher and subscriber."""
        cuts: dict[tuple[str, str | None], list[Cut]] = {}
        for cut in self._case.cuts:
            address = self._case.parties.subscribers[cut.subscriber].address
            cuts.setdefault((cut.home, address), []).append(cut)
        got = self._served(judged_pairs.owed | judged_pairs.taken) if cuts else np.empty(0, np.int64)
        missed: dict[str, set[int]] = {}
        for (home, address), listed in cuts.items():
            at = np.flatnonzero(self._accepted_at(home) & self._addressed(address))
            accepted, received = self._judged.accepted_hlc[at], self._received_hlc[at]
            for cut in listed:
                during = at[(cut.since <= accepted) & (received <= cut.till)]
                in_vain = during[~self._are(got, during, cut.subscriber)]
                missed.setdefault(cut.subscriber, set()).update(in_vain.tolist())
        publishers = self._found.lives.publisher()
        return Counter(
            (publishers[delivery].decode(), subscriber) for subscriber, found in missed.items() for delivery in found
        )

    def _accepted_at(self, home: str) -> Flags:
        code = self._facts.home_code(home)
        found: Flags = self._judged.is_accepted & ((self._found.first_home == code) | (self._found.last_home == code))
        return found

    def _addressed(self, address: str | None) -> Flags:
        code = self._address.index(address) if address in self._address[:-1] else len(self._address)
        found: Flags = self._found.address == code
        return found

    def _served(self, flags: Flags) -> Ints:
        """Numbers of the pairs for which it is true, in order."""
        return np.sort(self._number(self._pairs.delivery[flags], self._pairs.subscriber[flags]))

    def _number(self, deliveries: Ints, subscriber: Ints | int) -> Ints:
        found: Ints = deliveries * (len(self._codes) + 1) + subscriber
        return found

    def _are(self, served: Ints, deliveries: Ints, name: str) -> Flags:
        """Asked for each of many cuts, so it must not cost a sort."""
        numbers = self._number(deliveries, self._codes.get(name, len(self._codes)))
        found: Flags = np.searchsorted(served, numbers, side="right") > np.searchsorted(served, numbers, side="left")
        return found

    def _homes(self, deliveries: Ints) -> Iterator[str | None]:
        names = [*self._facts.homes, None]
        return (names[home] for home in self._found.last_home[deliveries].tolist())

    def _may_have_been_there(self, at: Ints, name: str, party: Party) -> Flags:
        """Whether any attach of the subscriber had begun and not ended when the delivery was accepted, if it is known
        when that was."""
        hlc, time = self._judged.accepted_hlc[at], self._judged.accepted_time[at]
        begun = self._found.begun_time[at]
        found = np.zeros(len(at), np.bool_)
        for term in self._case.terms.get(name, ()):
            if not term.home:
                found |= (term.since <= hlc) & (hlc < term.ended)
        for since, till in party.present:
            found |= (since <= time) & (begun <= till) & (begun != BIG)
        return (found | self._judged.unheard[at]) & self._addressed(party.address)[at]

    def _unwatched(self, at: Ints) -> Flags:
        """Whether the delivery's home, or any that may have been it, had a log without a clean end, and no router with
        a whole one saw who was joined there. The home's wall clock and its witness's may differ; contact is lost later
        than the router, so this is of no consequence for a router that died."""
        blind = np.zeros(len(at), np.bool_)
        first, last = self._found.first_home[at], self._found.last_home[at]
        time = self._judged.accepted_time[at]
        for name, spans in sorted(self._case.watched.items()):
            code = self._facts.home_code(name)
            may_be_home = (first == code) | (last == code) | (first == NONE)
            seen = np.zeros(len(at), np.bool_)
            for since, till in spans:
                seen |= (since <= time) & (time <= till)
            blind |= may_be_home & ~seen
        return blind
