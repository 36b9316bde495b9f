"""Judges each router's record of a delivery by comparing it with the log of the delivery's home.

A rule finds a violation only if the logs of the router, the home and the publisher cannot lack entries.
"""

import attrs
import numpy as np

from failover.audit.judge.deliveries import Deliveries, Records, outlived
from failover.audit.judge.kinds import Violating, concluded
from failover.audit.judge.publishers import Fates
from failover.audit.judge.uses import Uses
from failover.audit.mesh.case import Case
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import BIG, Facts, codes_of
from topic.journal import Event

FORGET_GRACE_US = 2_000_000
"""After a router could learn that a delivery was settled, it may take this long (in µs) to forget its record."""


@attrs.frozen
class RouterVerdicts:
    """The verdicts on records. Each column has one flag for each record."""

    violations: Violating
    unseen: Flags
    """Whether the delivery is settled, but the router's log ends without FORGOTTEN, and the rules find no violation."""


def judge_routers(facts: Facts, found: Records, of: Deliveries, fates: Fates, case: Case) -> RouterVerdicts:
    sure, edges = of.uses.sure[found.delivery], _Edges(facts, of.uses, case)
    kept = never_forgotten(facts, found, of, case)
    found_here = {
        "settled before accepted": settled_early(facts, found, of, case),
        "never forgotten": kept,
        "forwarded by nobody": found.groups.any(edges.forwarded_by_nobody()),
        "place disputed": found.groups.any(edges.misplaced()),
    }
    found_here = {kind: flags & sure for kind, flags in found_here.items()}
    violations, _ = concluded(found_here, lambda logs: fates.lacking(logs)[found.delivery])
    return RouterVerdicts(violations, _over(found, of) & ~kept)


def settled_early(facts: Facts, found: Records, of: Deliveries, case: Case) -> Flags:
    """Flags the records that a router settled too early: before every answer that a home gave the publisher, or without
    any answer.

    Deliveries that the publisher has abandoned, or has left for good, are left out. If the publisher's map lacked the
    delivery, a record without an answer is left out, too: the publisher may have settled the delivery before the home
    answered. But if all logs of the publisher are whole, the record is flagged, because these logs would show an
    answer.
    """
    delivery, settled = found.delivery, found.settled
    answered = of.answered[delivery]
    told = (of.told_accepted >= 0) | of.told_refused
    logged = np.isin(of.uses.publisher(), [name.encode() for name in case.whole])
    unanswered = (answered == NONE) & ~(told | (of.omitted & ~logged))[delivery]
    before = (settled >= 0) & (answered >= 0) & _was_before(facts, settled, answered)
    before[before] = _before_all(facts, found, of, np.flatnonzero(before))
    found_here: Flags = (settled >= 0) & ~of.abandoned[delivery] & (before | unanswered)
    found_here[found_here] = ~outlived(facts, found, of, case, np.flatnonzero(found_here))
    return found_here


def _before_all(facts: Facts, found: Records, of: Deliveries, records: Ints) -> Flags:
    """For each of `records`, whether its router settled the record before all answers of homes. A home and a zombie may
    both answer, and their hybrid clocks may disagree about which answer came first. So a record is flagged only if all
    answers are later."""
    answers = facts.at_home & facts.flags_of(Event.ACCEPTED)
    record, answer = of.groups.all_told(answers, found.delivery[records])
    late = ~_was_before(facts, found.settled[records[record]], answer)
    before: Flags = np.bincount(record[late], minlength=len(records)) == 0
    return before


def never_forgotten(facts: Facts, found: Records, of: Deliveries, case: Case) -> Flags:
    """Flags the records of settled deliveries that a router still holds at the end of its whole log, although it could
    learn of the settlement long enough before. Records that wait for a suspended subscriber are left out."""
    logs = [case.logs.get(log.name) for log in facts.rows.logs]
    stopped = np.array([log is not None and log.stopped and log.ordered for log in logs], np.bool_)[found.log]
    since = np.maximum(_ended(found, of), found.held_time)
    kept = _over(found, of) & stopped & ~found.awaited
    kept[kept] = _heard(facts, found, of, case, np.flatnonzero(kept), since)
    return kept


def _ended(found: Records, of: Deliveries) -> Ints:
    """When each delivery was settled: the earlier one of the times in the logs of this router and of the home."""
    return np.minimum(found.settled_time, of.home_settled_time[found.delivery])


def _over(found: Records, of: Deliveries) -> Flags:
    over: Flags = (found.held_place > found.forgotten_place) & (_ended(found, of) != BIG)
    return over


def _heard(facts: Facts, found: Records, of: Deliveries, case: Case, records: Ints, since: Ints) -> Flags:
    """For each of `records`, whether a router held it for more than FORGET_GRACE_US after the time `since`, while it
    could learn from its contacts that the delivery was settled."""
    names, publisher = np.unique(of.uses.publisher()[found.delivery[records]], return_inverse=True)
    logs, heard = found.log[records], np.zeros(len(records), np.bool_)
    for log, of_publisher in np.unique(np.stack([logs, publisher], axis=1), axis=0).tolist():
        at = (logs == log) & (publisher == of_publisher)
        whose = facts.rows.logs[log].name, names[of_publisher].decode()
        for begun, till in case.hearing.get(whose, ()):
            heard[at] |= np.maximum(since[records[at]], begun) + FORGET_GRACE_US < till
    return heard


def _was_before(facts: Facts, settled: Ints, answered: Ints) -> Flags:
    """Whether each settlement came before the answer beside it.

    Hybrid clocks order the entries of one epoch. They do not order the entries of two epochs: the home of a later epoch
    learns of the earlier settlement from the publisher's map, and a map has no hybrid clock. Such entries are ordered
    by wall clock, if one host wrote them.
    """
    rows, host = facts.rows, facts.host
    one_home = facts.home[settled] == facts.home[answered]
    by_routers = one_home & (facts.epoch_hlc[settled] == facts.epoch_hlc[answered])
    by_wall = (host[settled] == host[answered]) & (host[settled] != NONE) & (rows.time[settled] < rows.time[answered])
    return np.where(by_routers, _precedes(facts, settled, answered), by_wall)


def _precedes(facts: Facts, one: Ints, other: Ints) -> Flags:
    """Whether each row of `one` was certainly written before the row of `other` beside it, by the hybrid clocks of
    routers. All rows must exist. If the hybrid clocks are equal, they order the rows only if one router wrote both."""
    hlc, place = facts.rows.hlc, facts.rows.place
    same = (facts.source[one] == facts.source[other]) & (place[one] < place[other])
    found: Flags = (hlc[one] < hlc[other]) | ((hlc[one] == hlc[other]) & same)
    return found


class _Edges:
    """Compares the deliveries that edges received with the entries of homes that sent them. A home writes such an entry
    before it sends the frame, so a whole log of the home has the entry."""

    def __init__(self, facts: Facts, uses: Uses, case: Case) -> None:
        self._facts = facts
        rows, number = facts.rows, len(facts.rows.strings) + 1
        received = facts.by_router & facts.flags_of(Event.RECEIVED)
        logs = [case.logs.get(name) for name in facts.homes]
        whole = np.array([*(log is not None and log.whole for log in logs), False], np.bool_)
        self._at = np.flatnonzero(received & ~facts.at_home & whole[facts.home])
        self._home_at = np.flatnonzero(received & facts.at_home)
        self._sent_at = np.flatnonzero(facts.by_router & facts.flags_of(Event.FORWARDED))
        self._stream = uses.of * number + rows.epoch
        self._number = number
        self._here = codes_of([log.source for log in rows.logs], rows.strings)[rows.log]

    def forwarded_by_nobody(self) -> Flags:
        """Flags the rows in which an edge received a delivery although, by the home's log, the home did not forward the
        delivery to this edge in this epoch."""
        sent = self._stream[self._sent_at] * self._number + self._facts.rows.peer[self._sent_at]
        got = self._stream[self._at] * self._number + self._here[self._at]
        return self._flagged(~np.isin(got, sent))

    def misplaced(self) -> Flags:
        """Flags the rows in which an edge has a delivery at another place in the publisher's order than its home has in
        the same epoch."""
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
