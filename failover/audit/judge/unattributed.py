"""Finds accepted deliveries that a subscriber may have missed. No rule of `owed` says that the subscriber was owed
them. There are three kinds:

*Unaddressed*: the home's log has lost the audience of the delivery, so other logs have to show which subscribers were
owed the delivery.

*Without*: the subscriber was there, but the home accepted the delivery without it, because the home did not know the
subscriber or no longer awaited it. The delivery was not owed to the subscriber, but reports show it.

*Away*: like *without*, but the subscriber was gone for longer than its timeout.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from failover.audit.judge.deliveries import Deliveries, dated
from failover.audit.judge.pairs import Pairs
from failover.audit.judge.publishers import Fates
from failover.audit.judge.subscribers import SubscriberVerdicts
from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import Client, Span
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import BIG, Facts, taken

InVain = Counter[tuple[str | None, bool]]
"""Numbers of deliveries, counted by two keys: the last known home (None if unknown), and a flag. The flag is true if a
known subscriber did not get the delivery, and false if no router could observe its audience."""
Without = dict[tuple[str, str, str], "Missed"]
"""Maps each publisher, subscriber and home to the deliveries that the subscriber missed although it was there."""
Away = Counter[tuple[str, str]]
"""Maps each publisher and subscriber to the number of deliveries that the subscriber missed while it was away."""


@attrs.frozen(slots=True)
class Missed:
    """How many deliveries were missed, and the hybrid clocks at which the first and the last of them were accepted."""

    count: int
    first: int
    last: int

    def and_(self, other: "Missed | None") -> "Missed":
        if other is None:
            return self
        return Missed(self.count + other.count, min(self.first, other.first), max(self.last, other.last))


class Unattributed:
    """Looks through the accepted deliveries of a bucket, and the pairs that show which subscribers got them."""

    def __init__(self, facts: Facts, found: Deliveries, fates: Fates, pairs: Pairs, case: Case) -> None:
        self._facts, self._found, self._fates, self._pairs, self._case = facts, found, fates, pairs, case
        self._codes = {name: code for code, name in enumerate(pairs.names)}
        self._received_hlc = np.where(found.received_hlc != BIG, found.received_hlc, fates.accepted_hlc)

    def unaddressed(self, verdicts: SubscriberVerdicts) -> tuple[InVain, Flags]:
        """The number of accepted deliveries for which no home awaited any subscriber, and flags of them.

        All routers may have lost their stores at one time. If their logs of that time are whole, deliveries that were
        accepted after it are left out: the mesh had forgotten all subscribers, so it owed them nothing.
        """
        unheard = self._fates.unheard
        astray = (self._fates.is_accepted | unheard) & ~self._found.has_audience
        for lost in self._case.state_losses:
            if lost.whole:
                astray &= (self._fates.accepted_hlc < lost.at) | unheard
        at = np.flatnonzero(astray)
        counted, found = InVain(), np.zeros(len(astray), np.bool_)
        if len(at):
            served = self._served(self._pairs.in_audience | self._pairs.passed | (verdicts.taken & verdicts.timely))
            for name, client in self._case.clients.subscribers.items():
                possible = at[self._may_have_been_there(at, name, client)]
                in_vain = possible[~self._are(served, possible, name)]
                counted.update((home, True) for home in self._homes(in_vain))
                found[in_vain] = True
            unseen = at[self._unwatched(at)]
            counted.update((home, False) for home in self._homes(unseen))
            found[unseen] = True
        return counted, found

    def without(self, verdicts: SubscriberVerdicts) -> tuple[Without, Away]:
        """The numbers of missed deliveries: first of subscribers that were there, then of subscribers that were
        away."""
        without, away = Without(), Away()
        for name, at, there in self.missed(verdicts):
            away.update((publisher, name) for publisher in self._publishers(at[~there]))
            for publisher, home, found in self._by_home(at[there]):
                without[publisher, name, home] = found
        return without, away

    def missed(self, verdicts: SubscriberVerdicts) -> Iterator[tuple[str, Ints, Flags]]:
        """Yields each subscriber that routers had to know, the deliveries that it missed, and for each of these a flag:
        whether the subscriber was there.

        A delivery is missed if the subscriber was not owed it, did not get it, and had no filter that stopped it.
        """
        got = self._served(verdicts.owed | verdicts.taken | self._pairs.passed)
        for name, presence in self._case.presences.items():
            meant = self._fates.is_accepted & ~self._found.balanced
            meant &= self._found.has_audience | ~self._fates.home_doubted
            at = np.flatnonzero(meant & self._addressed(self._case.clients.subscribers[name].address))
            at = at[self._within(at, presence.known)]
            at = at[~self._are(got, at, name)]
            yield name, at, self._within(at, presence.there)

    def _within(self, at: Ints, spans: Sequence[Span]) -> Flags:
        """Flags the deliveries `at` that a router received after a span had begun, and that the home accepted before
        the same span ended. Spans are in hybrid clocks."""
        received, accepted = self._received_hlc[at], self._fates.accepted_hlc[at]
        found = np.zeros(len(at), np.bool_)
        for since, till in spans:
            found |= (since < received) & (accepted < till)
        return found

    def _publishers(self, deliveries: Ints) -> list[str]:
        return [name.decode() for name in self._found.uses.publisher()[deliveries].tolist()]

    def _by_home(self, deliveries: Ints) -> Iterator[tuple[str, str, Missed]]:
        """Yields publisher, home and missed deliveries. The home is the one that accepted the deliveries; "" if it is
        unknown."""
        rows, accepted = self._facts.rows, self._found.accepted[deliveries]
        homes = [*(log.name for log in rows.logs), ""]
        by = [homes[log] for log in taken(rows.log, accepted).tolist()]
        hlcs = self._fates.accepted_hlc[deliveries].tolist()
        groups: dict[tuple[str, str], list[int]] = {}
        for publisher, home, hlc in zip(self._publishers(deliveries), by, hlcs, strict=True):
            groups.setdefault((publisher, home), []).append(hlc)
        for (publisher, home), accepted_at in groups.items():
            yield publisher, home, Missed(len(accepted_at), min(accepted_at), max(accepted_at))

    def _addressed(self, address: str | None) -> Flags:
        return self._facts.rows.meets(self._found.address, address)

    def _served(self, flags: Flags) -> Ints:
        """The pairs in which the subscriber got or had to get the delivery, sorted. A number stands for each pair."""
        return np.sort(self._number(self._pairs.delivery[flags], self._pairs.subscriber[flags]))

    def _number(self, deliveries: Ints, subscriber: Ints | int) -> Ints:
        found: Ints = deliveries * (len(self._codes) + 1) + subscriber
        return found

    def _are(self, served: Ints, deliveries: Ints, name: str) -> Flags:
        """Flags the deliveries that form a pair of `served` with this subscriber. A binary search finds the pairs,
        because sorting for each of many subscribers would take too long."""
        numbers = self._number(deliveries, self._codes.get(name, len(self._codes)))
        found: Flags = np.searchsorted(served, numbers, side="right") > np.searchsorted(served, numbers, side="left")
        return found

    def _homes(self, deliveries: Ints) -> Iterator[str | None]:
        names = [*self._facts.homes, None]
        return (names[home] for home in self._found.last_home[deliveries].tolist())

    def _may_have_been_there(self, at: Ints, name: str, client: Client) -> Flags:
        """Flags the deliveries that were accepted while the subscriber may have been attached. Deliveries whose outcome
        no log shows are flagged, too."""
        hlc, time = self._fates.accepted_hlc[at], self._fates.accepted_time[at]
        begun, time = dated(self._found.undated[at], self._found.begun_time[at], time)
        found = np.zeros(len(at), np.bool_)
        for period in self._case.periods.get(name, ()):
            if not period.home:
                found |= (period.since <= hlc) & (hlc < period.ended)
        for since, till in client.present:
            found |= (since <= time) & (begun <= till) & (begun != BIG)
        return (found | self._fates.unheard[at]) & self._addressed(client.address)[at]

    def _unwatched(self, at: Ints) -> Flags:
        """Flags the deliveries whose audience no router could observe.

        Two conditions have to hold for a flag. First: the log of the home, or of a router that may be the home, has no
        clean end. Second: when the home accepted the delivery, no router with a whole log was in contact with the home.
        A router in contact logs which subscribers the home has joined.

        The second condition compares times of the two routers' wall clocks, which may differ. If the home died, this
        does not matter, because the other router loses the contact only after the death.
        """
        blind = np.zeros(len(at), np.bool_)
        first, last = self._found.first_home[at], self._found.last_home[at]
        time = self._fates.accepted_time[at]
        for name, spans in sorted(self._case.watched.items()):
            code = self._facts.home_code(name)
            may_be_home = (first == code) | (last == code) | (first == NONE)
            seen = np.zeros(len(at), np.bool_)
            for since, till in spans:
                seen |= (since <= time) & (time <= till)
            blind |= may_be_home & (~seen | self._found.undated[at])
        return blind
