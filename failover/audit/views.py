"""Whether those who must know the same of a delivery tell the same: routers of each other, clients and routers.

An entry is written before what it tells of leaves. So what one log says that it was told stands in the log of the one
who told it, unless the end of that got lost: then nothing is concluded.
"""

import attrs
import numpy as np

from failover.audit.case import Case
from failover.audit.deliveries import Deliveries
from failover.audit.facts import Facts
from failover.audit.grouping import BIG, codes_of
from failover.audit.lives import Lives
from failover.audit.packing import NONE, Flags
from failover.audit.pair_checks import JudgedPairs
from failover.audit.pairs import Pairs
from failover.audit.records import Records
from topic.journal import Event

SECOND = "second"


@attrs.frozen
class Disputed:
    """One flag for every element of the deliveries, the pairs, the records."""

    settled_unasked: Flags
    unsent: Flags
    outcome_disputed: Flags
    unforwarded: Flags
    misplaced: Flags


def compare_views(
    facts: Facts, found: Deliveries, pairs: Pairs, judged: JudgedPairs, records: Records, case: Case
) -> Disputed:
    sure, of_pairs = found.lives.sure, found.lives.sure[pairs.delivery]
    edges = _Edges(facts, found.lives, case)
    return Disputed(
        settled_unasked=_settled_unasked(facts, found, records, case) & sure,
        unsent=_unsent(pairs, judged) & of_pairs,
        outcome_disputed=_outcome_disputed(pairs, judged, case) & of_pairs,
        unforwarded=records.groups.any(edges.unforwarded()[records.rows]) & sure[records.delivery],
        misplaced=records.groups.any(edges.misplaced()[records.rows]) & sure[records.delivery],
    )


def _settled_unasked(facts: Facts, found: Deliveries, records: Records, case: Case) -> Flags:
    """Its home says that the publisher settled it after an outcome; the publisher's logs are whole and tell of none. A
    home also settles what only a subscriber's map has named to it: of a life that has ended, whose publisher is told
    no outcome any more."""
    logged = np.isin(found.lives.publisher(), [name.encode() for name in case.whole])
    settled = (facts.at_home & facts.tells(Event.SETTLED))[records.rows]
    received = records.groups.any(facts.tells(Event.RECEIVED)[records.rows])
    told = np.zeros(len(found.lives.key), np.bool_)
    told[records.delivery[records.groups.any(settled) & received]] = True
    found_here: Flags = logged & told & (found.told_time == BIG) & (found.published >= 0)
    return found_here


def _unsent(pairs: Pairs, judged: JudgedPairs) -> Flags:
    """The subscriber was handed it, and no router says that it sent it there."""
    handed = (pairs.own_order >= 0) & ~judged.unasked  # what nobody published is not disputed besides
    unsent: Flags = handed & (pairs.last_sent_hlc == NONE) & ~judged.router_doubted
    return unsent


def _outcome_disputed(pairs: Pairs, judged: JudgedPairs, case: Case) -> Flags:
    """A router tells an acceptance that the subscriber does not, or only refusals where the subscriber accepted."""
    second = np.array([_answers(case, name) for name in pairs.names], np.bool_)[pairs.subscriber]
    told = pairs.edge_stamp >= 0
    invented = told & (pairs.own_count == 0) & ~judged.own_doubted & ~judged.lost
    ignored = ~told & pairs.edge_refused & (pairs.own_count > 0) & ~pairs.own_refused & ~judged.router_doubted
    found: Flags = second & (invented | ignored)
    return found


def _answers(case: Case, name: str) -> bool:
    """Whether it logs, and its router takes nothing for accepted before it says so."""
    party = case.parties.subscribers.get(name)
    return party is not None and bool(party.logs) and party.mode == SECOND


class _Edges:
    """What edges received, against what the homes say that they sent them."""

    def __init__(self, facts: Facts, lives: Lives, case: Case) -> None:
        self._facts = facts
        rows, number = facts.rows, len(facts.rows.strings) + 1
        received = facts.by_router & facts.tells(Event.RECEIVED)
        logs = [case.logs.get(name) for name in facts.homes]
        whole = np.array([*(log is not None and log.whole for log in logs), False], np.bool_)
        self._at = np.flatnonzero(received & ~facts.at_home & whole[facts.home])
        self._home_at = np.flatnonzero(received & facts.at_home)
        self._sent_at = np.flatnonzero(facts.by_router & facts.tells(Event.FORWARDED))
        self._stream = lives.of * number + rows.epoch
        self._number = number
        self._here = codes_of([log.source for log in rows.logs], rows.strings)[rows.log]

    def unforwarded(self) -> Flags:
        sent = self._stream[self._sent_at] * self._number + self._facts.rows.peer[self._sent_at]
        got = self._stream[self._at] * self._number + self._here[self._at]
        return self._flagged(~np.isin(got, sent))

    def misplaced(self) -> Flags:
        """At another place in the publisher's order than at home, in the same epoch."""
        n, home = self._facts.rows.n, self._home_at[self._facts.rows.n[self._home_at] >= 0]
        streams, place = np.unique(self._stream[home], return_inverse=True)
        if not len(streams):
            return self._flagged(np.zeros(len(self._at), np.bool_))
        index = np.minimum(np.searchsorted(streams, self._stream[self._at]), len(streams) - 1)
        known = (streams[index] == self._stream[self._at]) & (n[self._at] >= 0)
        length = int(n.max()) + 1
        return self._flagged(known & ~np.isin(index * length + n[self._at], place * length + n[home]))

    def _flagged(self, wrong: Flags) -> Flags:
        found = np.zeros(len(self._facts.rows), np.bool_)
        found[self._at[wrong]] = True
        return found
