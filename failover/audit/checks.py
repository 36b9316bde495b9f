"""The rules of the audit for deliveries as such, and for the records of routers.

A rule that fires is a violation only if the entry it misses can not have been lost with the end of an open log; else
the delivery is *unknown* for that subscriber, which keeps the verdict from holding. Hybrid clocks decide between
routers. Wall clocks decide where a client's log is compared with another: exactly on one host, within `SKEW_US`
between two.
"""

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from failover.audit.case import Case
from failover.audit.deliveries import Deliveries
from failover.audit.facts import Facts
from failover.audit.grouping import BIG, codes_of, taken
from failover.audit.packing import NONE, Flags, Ints
from failover.audit.parties import Party, Span
from failover.audit.publishing import Order, order
from failover.audit.records import Records
from topic.journal import Event, LoggedOutcome

FORGET_GRACE_US = 2_000_000
"""A record may rightly have waited to be forgotten if its router could hear for no longer that it was settled."""
Spans = list[tuple[Flags | Ints, Sequence[Span]]]
"""Which elements they are about, and from when to when."""


@attrs.frozen
class Judged:
    """What holds for each delivery, whoever subscribes."""

    home_doubted: Flags
    is_accepted: Flags
    is_published: Flags
    invented: Flags
    misreported: Flags
    accepted_time: Ints
    """When it was accepted, by wall clock and by hybrid clock; `BIG` if it was not."""
    accepted_hlc: Ints
    position: Order
    """Its place in its publisher's order."""
    lives_doubted: Flags
    unheard: Flags
    """Its publisher had an answer and settled it, but no log is left that tells which answer, or when."""
    unheard_since: Ints
    """When it had no answer yet, by its publisher's wall clock; `NONE` if that is not known."""
    earlier: Flags
    """There are traces of it, and it was published before its publisher came back for the last time, with what it had
    kept."""


@attrs.frozen
class JudgedRecords:
    settled_early: Flags
    kept: Flags
    kept_unknown: Flags


def judge_deliveries(facts: Facts, found: Deliveries, case: Case) -> Judged:
    rows, sure = facts.rows, found.lives.sure
    logged = np.isin(found.lives.publisher(), [name.encode() for name in case.whole])
    doubted = _home_doubted(facts, found, case)
    told, answered = found.told_accepted >= 0, found.accepted >= 0
    published = (found.published >= 0) | (~logged & (found.received_hlc != BIG))
    misreported = (told & ~answered) | (found.told_refused & ~found.refused)
    told_time = taken(rows.time, found.told_accepted, BIG)
    invented = ~published & (logged | ~doubted)
    unsettled, earlier = _before_resuming(facts, found, case)
    ends = {log.name: NONE if log.whole else log.last_time for log in case.logs.values()}
    end = np.array([ends.get(log.name, NONE) for log in rows.logs], np.int64)[rows.log]
    return Judged(
        doubted,
        is_accepted=told | answered,
        is_published=published,
        invented=invented,
        misreported=misreported & ~doubted & sure,
        accepted_time=np.where(answered, taken(rows.time, found.accepted_first), told_time),
        accepted_hlc=np.where(answered, taken(rows.hlc, found.accepted), _told_hlc(told_time, case)),
        position=order(facts, found, case),
        lives_doubted=found.lives.reused & ~logged & doubted,
        unheard=earlier & ~unsettled & ~invented & ~(told | answered | found.told_refused | (found.refused & ~doubted)),
        unheard_since=np.where(_was_open(facts, found.published), taken(end, found.published), NONE),
        earlier=earlier & ~invented & (found.lives.number <= 1),
    )


def _before_resuming(facts: Facts, found: Deliveries, case: Case) -> tuple[Flags, Flags]:
    """Of publishers that came back with what they had kept: what of that had no answer and never was settled, and all
    that they had published by then and left traces of."""
    rows, last = facts.rows, {resumed.log for resumed in case.resumed.values()}
    in_last = facts.by_publisher & np.array([log.name in last for log in rows.logs], np.bool_)[rows.log]
    kept = found.groups.any(in_last & facts.tells(Event.KEPT) & (rows.outcome == LoggedOutcome.NONE))
    settled = found.groups.any(in_last & facts.tells(Event.SETTLED))
    first = found.published
    new = taken(in_last, first, False) & (taken(rows.event, first) == Event.PUBLISHED)
    resumed = np.isin(found.lives.publisher(), [name.encode() for name in case.resumed])
    traced = (first >= 0) | (found.received_hlc != BIG) | found.handed
    return kept & ~settled, resumed & ~new & traced


def _was_open(facts: Facts, published: Ints) -> Flags:
    """Whether these entries of a publisher's log are about deliveries without an outcome."""
    event, outcome = taken(facts.rows.event, published), taken(facts.rows.outcome, published)
    found: Flags = (event == Event.PUBLISHED) | ((event == Event.KEPT) & (outcome == LoggedOutcome.NONE))
    return found


def _home_doubted(facts: Facts, found: Deliveries, case: Case) -> Flags:
    """Whether a home of the delivery may have lost entries: one that is named, any if none is, or the one at which its
    publisher was attached meanwhile, which may be named by no entry that is left."""
    if not case.open_homes:
        return np.zeros(len(found.lives.key), np.bool_)
    doubted = codes_of(case.open_homes, facts.homes)
    named = np.isin(found.first_home, doubted) | np.isin(found.last_home, doubted) | (found.first_home == NONE)
    ended = np.where(found.told_time != BIG, found.told_time, taken(facts.rows.time, found.accepted_first, BIG))
    ended = np.where(ended != BIG, ended, found.home_settled_time)
    ended = np.where(ended != BIG, ended, found.begun_time)
    gaps = _by_publisher(found, case, lambda party: party.custody)
    begun = np.where(found.begun_time == BIG, NONE, found.begun_time)  # nobody knows since when: it may have been then
    result: Flags = named | within(gaps, *dated(found.undated, begun, ended))
    return result


def _by_publisher(found: Deliveries, case: Case, spans: Callable[[Party], Sequence[Span]]) -> Spans:
    """Of publishers that nobody knows anything about, whenever something may be missing."""
    publishers = found.lives.publisher()
    known = case.parties.publishers
    listed: Spans = [(publishers == name.encode(), spans(party)) for name, party in known.items() if spans(party)]
    return [*listed, (~np.isin(publishers, [name.encode() for name in known]), case.open_windows)]


def dated(undated: Flags, begun: Ints, ended: Ints) -> tuple[Ints, Ints]:
    """What nobody can date may have lasted all the time."""
    return np.where(undated, 0, begun), np.where(undated & (ended != BIG), BIG - 1, ended)


def within(spans: Spans, begun: Ints, ended: Ints) -> Flags:
    """Which elements, that lasted so long, overlap any of the spans that are about them."""
    found = np.zeros(len(begun), np.bool_)
    for about, listed in spans:
        for since, till in listed:
            found[about] |= (since <= ended[about]) & (begun[about] <= till)
    return found


def _told_hlc(time_us: Ints, case: Case) -> Ints:
    """By hybrid clock, not before the publisher was told."""
    known = time_us != BIG
    return np.where(known, case.hybrid.latest(np.where(known, time_us, 0)), BIG)


def judge_records(facts: Facts, found: Records, of: Deliveries, judged: Judged, case: Case) -> JudgedRecords:
    """Settled before the publisher was answered, or never forgotten."""
    rows, delivery = facts.rows, found.delivery
    settled, answered = found.settled, of.answered[delivery]
    told = (of.told_accepted >= 0) | of.told_refused
    unanswered = (answered == NONE) & ~told[delivery] & ~judged.home_doubted[delivery]
    before = (settled >= 0) & (answered >= 0) & _was_before(facts, settled, answered)
    too_soon = (settled >= 0) & ~of.abandoned[delivery] & (before | unanswered)
    logs = [case.logs.get(log.name) for log in rows.logs]
    stopped = np.array([log is not None and log.stopped and log.ordered for log in logs], np.bool_)[found.log]
    held = found.held_place > found.forgotten_place
    ended = np.minimum(found.settled_time, of.home_settled_time[delivery])
    over = held & (ended != BIG)
    since = np.maximum(ended, found.held_time)
    kept, sure = over & stopped & ~found.awaited, of.lives.sure[delivery]
    kept[kept] = _heard(facts, found, of, case, np.flatnonzero(kept), since)
    return JudgedRecords(too_soon & sure, kept & sure, over & ~kept)


def _heard(facts: Facts, found: Records, of: Deliveries, case: Case, records: Ints, since: Ints) -> Flags:
    """Which of these records a router held for long enough after this, while it could hear that they were over."""
    names, publisher = np.unique(of.lives.publisher()[found.delivery[records]], return_inverse=True)
    logs, heard = found.log[records], np.zeros(len(records), np.bool_)
    for log, of_publisher in np.unique(np.stack([logs, publisher], axis=1), axis=0).tolist():
        at = (logs == log) & (publisher == of_publisher)
        whose = facts.rows.logs[log].name, names[of_publisher].decode()
        for begun, till in case.hearing.get(whose, ()):
            heard[at] |= np.maximum(since[records[at]], begun) + FORGET_GRACE_US < till
    return heard


def _was_before(facts: Facts, settled: Ints, answered: Ints) -> Flags:
    """Routers order what is told under one epoch among themselves. From one epoch to another it is the publisher that
    carries what it knows, by its map, and no hybrid clock: there only the wall clock of one host tells."""
    rows, host = facts.rows, facts.host
    one_home = facts.home[settled] == facts.home[answered]
    by_routers = one_home & (facts.epoch_hlc[settled] == facts.epoch_hlc[answered])
    by_wall = (host[settled] == host[answered]) & (host[settled] != NONE) & (rows.time[settled] < rows.time[answered])
    return np.where(by_routers, _precedes(facts, settled, answered), by_wall)


def _precedes(facts: Facts, one: Ints, other: Ints) -> Flags:
    """Whether a router's row was certainly written before another's; both exist. Equal clocks of two routers tell
    nothing."""
    hlc, place = facts.rows.hlc, facts.rows.place
    same = (facts.source[one] == facts.source[other]) & (place[one] < place[other])
    found: Flags = (hlc[one] < hlc[other]) | ((hlc[one] == hlc[other]) & same)
    return found
