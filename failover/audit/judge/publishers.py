"""What became of each delivery, whoever subscribes, and the verdicts on what its publisher was told and told itself.

Hybrid clocks decide between routers. Wall clocks decide where a client's log is compared with another: exactly on one
host, within `SKEW_US` between two. A rule that fires is a violation only if the entry it misses can not have been lost
with the end of a log; else the delivery is *unknown*, which keeps the verdict from holding.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import attrs
import numpy as np

from failover.audit.judge.deliveries import Deliveries, Records, Spans, dated, outlived, within
from failover.audit.judge.kinds import ALL, HOME, Lacking, Violating, concluded
from failover.audit.judge.sequence import Order, order
from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import Client, Span
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import BIG, Facts, codes_of, taken
from topic.journal import BY_TTL, Event, LoggedOutcome


@attrs.frozen
class Fates:
    """One element per delivery."""

    lacking: Lacking
    home_doubted: Flags
    """Whether a home of it may have lost entries."""
    is_accepted: Flags
    is_published: Flags
    invented: Flags
    """Certainly published by nobody."""
    accepted_time: Ints
    """When it was accepted, by wall clock and by hybrid clock; `BIG` if it was not."""
    accepted_hlc: Ints
    position: Order
    """Its place in its publisher's order."""
    uses_doubted: Flags
    unheard: Flags
    """Its publisher had an answer and settled it, but no log is left that tells which answer, or when."""
    unheard_since: Ints
    """When it had no answer yet, by its publisher's wall clock; `NONE` if that is not known."""
    earlier: Flags
    """There are traces of it, and it was published before its publisher came back for the last time, with what it had
    kept."""


def find_fates(facts: Facts, found: Deliveries, case: Case) -> Fates:
    rows = facts.rows
    logged = np.isin(found.uses.publisher(), [name.encode() for name in case.whole])
    doubted = _home_doubted(facts, found, case)
    told, answered = found.told_accepted >= 0, found.accepted >= 0
    published = (found.published >= 0) | (~logged & (found.received_hlc != BIG))
    told_time = taken(rows.time, found.told_accepted, BIG)
    invented = ~published & (logged | ~doubted)
    unsettled, earlier = _before_resuming(facts, found, case)
    ends = {log.name: NONE if log.whole else log.last_time for log in case.logs.values()}
    end = np.array([ends.get(log.name, NONE) for log in rows.logs], np.int64)[rows.log]
    return Fates(
        partial(_lacking, facts, found, doubted, case),
        doubted,
        is_accepted=told | answered,
        is_published=published,
        invented=invented,
        accepted_time=np.where(answered, taken(rows.time, found.accepted_first), told_time),
        accepted_hlc=np.where(answered, taken(rows.hlc, found.accepted), _told_hlc(told_time, case)),
        position=order(facts, found, doubted, case),
        uses_doubted=found.uses.reused & ~logged & doubted,
        unheard=earlier & ~unsettled & ~invented & ~(told | answered | found.told_refused | (found.refused & ~doubted)),
        unheard_since=np.where(_was_open(facts, found.published), taken(end, found.published), NONE),
        earlier=earlier & ~invented & (found.uses.number <= 1),
    )


def judge_publishers(facts: Facts, found: Deliveries, records: Records, fates: Fates, case: Case) -> Violating:
    """One flag per delivery."""
    sure = found.uses.sure
    violations, _ = concluded(
        {
            "misreported": misreported(found) & sure,
            "settled by nobody": settled_by_nobody(facts, found, records, case) & sure,
            "sent though expired": sent_though_expired(facts, found) & sure,
        },
        fates.lacking,
    )
    return violations


def misreported(found: Deliveries) -> Flags:
    """The publisher was told an outcome, acceptance or another, that no home of the delivery says that it told."""
    accepted = (found.told_accepted >= 0) & (found.accepted < 0)
    wrong: Flags = accepted | (found.told_refused & ~found.refused)
    return wrong


def settled_by_nobody(facts: Facts, found: Deliveries, records: Records, case: Case) -> Flags:
    """Its home says that the publisher settled it after an outcome; its logs are whole and tell of none, nor had
    its store one when it began again: a kill may come between store and log. A home also settles what only a
    subscriber's map names to it, if it had forgotten that, or never had it; and what is of a life that has ended. No
    publisher is told an outcome of these. On a link that is settled first, a home settles what it answers, whether or
    not its publisher reads that."""
    second = [name for name in case.whole if not case.clients.publishers[name].settles_first]
    logged = np.isin(found.uses.publisher(), [name.encode() for name in second])
    place, groups = facts.rows.place, records.groups
    settled = groups.first(facts.at_home & facts.tells(Event.SETTLED), place)
    before = np.zeros(len(place), np.bool_)
    before[groups.at] = place[groups.at] < taken(place, settled)[groups.of]
    received, named = (
        groups.highest(facts.tells(event) & before, place) for event in (Event.RECEIVED, Event.PLACEHOLDER)
    )
    by_home = np.flatnonzero(received > named)
    told = np.zeros(len(found.uses.key), np.bool_)
    told[records.delivery[by_home[~outlived(facts, records, found, case, by_home)]]] = True
    stored = facts.by_publisher & facts.tells(Event.KEPT) & (facts.rows.outcome != LoggedOutcome.NONE)
    unknown = (found.told_time == BIG) & ~found.groups.any(stored)
    found_here: Flags = logged & told & unknown & (found.published >= 0)
    return found_here


def sent_though_expired(facts: Facts, found: Deliveries) -> Flags:
    """A router sent it to a subscriber under the epoch in which its home told the publisher that its time was over
    before anybody had it. Under a later one its publisher, which has not read that, has transferred it again."""
    rows, (by_ttl,) = facts.rows, codes_of([BY_TTL], facts.rows.strings).tolist()
    ended = facts.at_home & facts.tells(Event.ACCEPTED) & (rows.detail == by_ttl) & (by_ttl != NONE)
    sent = np.flatnonzero(facts.by_router & facts.tells(Event.DELIVERED))
    under = found.uses.of * (len(rows.strings) + 1) + rows.epoch
    wrong = np.zeros(len(found.uses.key), np.bool_)
    wrong[found.uses.of[sent[np.isin(under[sent], under[ended])]]] = True
    return wrong


def _lacking(facts: Facts, found: Deliveries, home_doubted: Flags, case: Case, logs: str) -> Flags:
    """Of which deliveries these may lack an entry."""
    if logs == HOME:
        return home_doubted
    spans = list(case.open_spans.values())
    if logs == ALL or not spans:
        return np.full(len(home_doubted), logs == ALL and bool(case.unfinished))
    last = found.groups.highest(np.ones(len(facts.rows), np.bool_), facts.rows.time)
    return within([(np.ones_like(home_doubted), spans)], *dated(found.undated, _begun(found), last))


def _begun(found: Deliveries) -> Ints:
    """Where nobody knows since when, it may have been at any time."""
    return np.where(found.begun_time == BIG, NONE, found.begun_time)


def _home_doubted(facts: Facts, found: Deliveries, case: Case) -> Flags:
    """Whether a home of the delivery may have lost entries: one that is named, any if none is, or the one at which its
    publisher was attached meanwhile, which may be named by no entry that is left."""
    if not case.open_homes:
        return np.zeros(len(found.uses.key), np.bool_)
    ended = np.where(found.told_time != BIG, found.told_time, taken(facts.rows.time, found.accepted_first, BIG))
    ended = np.where(ended != BIG, ended, found.home_settled_time)
    ended = np.where(ended != BIG, ended, BIG - 1)
    gaps = [*_named(facts, found, case), *_by_publisher(found, case, lambda client: client.custody)]
    return within(gaps, *dated(found.undated, _begun(found), ended))


def _named(facts: Facts, found: Deliveries, case: Case) -> Iterator[tuple[Flags, Sequence[Span]]]:
    """Of deliveries that name a home; where none is named, any may have been it."""
    for log, span in case.open_spans.items():
        yield found.groups.any(facts.home == facts.home_code(log)) | (found.first_home == NONE), [span]


def _by_publisher(found: Deliveries, case: Case, spans: Callable[[Client], Sequence[Span]]) -> Spans:
    """Of publishers that nobody knows anything about, whenever something may be missing."""
    publishers = found.uses.publisher()
    known = case.clients.publishers
    listed: Spans = [(publishers == name.encode(), spans(client)) for name, client in known.items() if spans(client)]
    return [*listed, (~np.isin(publishers, [name.encode() for name in known]), case.open_windows)]


def _before_resuming(facts: Facts, found: Deliveries, case: Case) -> tuple[Flags, Flags]:
    """Of publishers that came back with what they had kept: what of that had no answer and never was settled, and all
    that they had published by then and left traces of."""
    rows, last = facts.rows, {resumed.log for resumed in case.resumed.values()}
    in_last = facts.by_publisher & np.array([log.name in last for log in rows.logs], np.bool_)[rows.log]
    kept = found.groups.any(in_last & facts.tells(Event.KEPT) & (rows.outcome == LoggedOutcome.NONE))
    settled = found.groups.any(in_last & facts.tells(Event.SETTLED))
    first = found.published
    new = taken(in_last, first, False) & (taken(rows.event, first) == Event.PUBLISHED)
    resumed = np.isin(found.uses.publisher(), [name.encode() for name in case.resumed])
    traced = (first >= 0) | (found.received_hlc != BIG) | found.handed
    return kept & ~settled, resumed & ~new & traced


def _was_open(facts: Facts, published: Ints) -> Flags:
    """Whether these entries of a publisher's log are about deliveries without an outcome."""
    event, outcome = taken(facts.rows.event, published), taken(facts.rows.outcome, published)
    found: Flags = (event == Event.PUBLISHED) | ((event == Event.KEPT) & (outcome == LoggedOutcome.NONE))
    return found


def _told_hlc(time_us: Ints, case: Case) -> Ints:
    """By hybrid clock, not before the publisher was told."""
    known = time_us != BIG
    return np.where(known, case.hybrid.latest(np.where(known, time_us, 0)), BIG)
