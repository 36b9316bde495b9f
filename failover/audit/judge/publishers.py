"""Finds what happened to each delivery at its publisher and its homes, and judges the answers that the publisher read.

Hybrid clocks order the entries of routers. Wall clocks order an entry of a client and any other entry: exactly if one
host wrote both, and within `SKEW_US` otherwise.

A rule finds a violation only if the missing entry cannot have been lost with the end of a log. Otherwise the delivery
is *unknown*, and the verdict is not *holds*.
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
    """The fates of deliveries at their publishers and homes. Each column has one element for each delivery."""

    lacking: Lacking
    home_doubted: Flags
    """Whether one of the delivery's homes may have lost entries."""
    is_accepted: Flags
    is_published: Flags
    invented: Flags
    """Whether it is certain that no publisher published the delivery."""
    accepted_time: Ints
    """When the delivery was accepted, by wall clock; `accepted_hlc` is the same by hybrid clock. `BIG` if it was not
    accepted."""
    accepted_hlc: Ints
    position: Order
    """The place of the delivery in its publisher's order."""
    uses_doubted: Flags
    unheard: Flags
    """Whether the publisher had read an outcome and settled the delivery, but no log shows this outcome, or when it
    came."""
    unheard_since: Ints
    """The latest time, by the publisher's wall clock, at which the publisher had certainly not read an outcome yet;
    `NONE` if unknown."""
    earlier: Flags
    """Whether logs have entries about the delivery, and the delivery was published before its publisher last came back
    with its state file."""


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
    """Flags the deliveries with violations, separately for each kind of violation."""
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
    """Flags the deliveries whose publisher read an outcome that no home of the delivery logs."""
    accepted = (found.told_accepted >= 0) & (found.accepted < 0)
    wrong: Flags = accepted | (found.told_refused & ~found.refused)
    return wrong


def settled_by_nobody(facts: Facts, found: Deliveries, records: Records, case: Case) -> Flags:
    """Flags the deliveries that, by the home's log, the publisher settled after an outcome, although the publisher's
    own logs are whole and have no outcome.

    The publisher's state file must have no outcome, either: a process may be killed after it has written its state file
    and before it writes its log. A home settles three kinds of deliveries although the publisher has read no outcome,
    so these are left out: a delivery without a receipt at the home, which only a subscriber's map names; a delivery of
    a life that has ended; and a delivery on a link in settle mode first.
    """
    second = [name for name in case.whole if not case.clients.publishers[name].settles_first]
    logged = np.isin(found.uses.publisher(), [name.encode() for name in second])
    place, groups = facts.rows.place, records.groups
    settled = groups.first(facts.at_home & facts.flags_of(Event.SETTLED), place)
    before = np.zeros(len(place), np.bool_)
    before[groups.at] = place[groups.at] < taken(place, settled)[groups.of]
    received, named = (
        groups.highest(facts.flags_of(event) & before, place) for event in (Event.RECEIVED, Event.PLACEHOLDER)
    )
    by_home = np.flatnonzero(received > named)
    told = np.zeros(len(found.uses.key), np.bool_)
    told[records.delivery[by_home[~outlived(facts, records, found, case, by_home)]]] = True
    stored = facts.by_publisher & facts.flags_of(Event.KEPT) & (facts.rows.outcome != LoggedOutcome.NONE)
    unknown = (found.told_time == BIG) & ~found.groups.any(stored)
    found_here: Flags = logged & told & unknown & (found.published >= 0)
    return found_here


def sent_though_expired(facts: Facts, found: Deliveries) -> Flags:
    """Flags the deliveries that a router sent to a subscriber although, in the same epoch, the home had answered the
    publisher that the delivery expired before any subscriber got it.

    If a router sent the delivery in a later epoch, this is no violation: the publisher had not read the answer, and
    transferred the delivery again.
    """
    rows, (by_ttl,) = facts.rows, codes_of([BY_TTL], facts.rows.strings).tolist()
    ended = facts.at_home & facts.flags_of(Event.ACCEPTED) & (rows.detail == by_ttl) & (by_ttl != NONE)
    sent = np.flatnonzero(facts.by_router & facts.flags_of(Event.DELIVERED))
    under = found.uses.of * (len(rows.strings) + 1) + rows.epoch
    wrong = np.zeros(len(found.uses.key), np.bool_)
    wrong[found.uses.of[sent[np.isin(under[sent], under[ended])]]] = True
    return wrong


def _lacking(facts: Facts, found: Deliveries, home_doubted: Flags, case: Case, logs: str) -> Flags:
    """Flags the deliveries about which these logs may lack an entry. `logs`: one of the groups in `kinds`."""
    if logs == HOME:
        return home_doubted
    spans = list(case.open_spans.values())
    if logs == ALL or not spans:
        return np.full(len(home_doubted), logs == ALL and bool(case.unfinished))
    last = found.groups.highest(np.ones(len(facts.rows), np.bool_), facts.rows.time)
    return within([(np.ones_like(home_doubted), spans)], *dated(found.undated, _begun(found), last))


def _begun(found: Deliveries) -> Ints:
    """The beginning of each delivery. `NONE` stands for an unknown beginning, and counts as earlier than all times."""
    return np.where(found.begun_time == BIG, NONE, found.begun_time)


def _home_doubted(facts: Facts, found: Deliveries, case: Case) -> Flags:
    """Flags the deliveries about which one of their homes may have lost entries.

    The homes are all routers that entries name as home, and all routers at which the publisher was then attached. If no
    entry names a home, any router may be one.
    """
    if not case.open_homes:
        return np.zeros(len(found.uses.key), np.bool_)
    ended = np.where(found.told_time != BIG, found.told_time, taken(facts.rows.time, found.accepted_first, BIG))
    ended = np.where(ended != BIG, ended, found.home_settled_time)
    ended = np.where(ended != BIG, ended, BIG - 1)
    gaps = [*_named(facts, found, case), *_by_publisher(found, case, lambda client: client.custody)]
    return within(gaps, *dated(found.undated, _begun(found), ended))


def _named(facts: Facts, found: Deliveries, case: Case) -> Iterator[tuple[Flags, Sequence[Span]]]:
    """Yields, for each open log, the span in which the log may lack entries, and flags of the deliveries that the span
    concerns. These are the deliveries with an entry that names the log's router as a home, and the deliveries without
    any home."""
    for log, span in case.open_spans.items():
        yield found.groups.any(facts.home == facts.home_code(log)) | (found.first_home == NONE), [span]


def _by_publisher(found: Deliveries, case: Case, spans: Callable[[Client], Sequence[Span]]) -> Spans:
    """Yields, for each publisher, flags of its deliveries, and the spans in which entries about the publisher may be
    missing. If no control row names a publisher, the spans of all open logs apply to its deliveries."""
    publishers = found.uses.publisher()
    known = case.clients.publishers
    listed: Spans = [(publishers == name.encode(), spans(client)) for name, client in known.items() if spans(client)]
    return [*listed, (~np.isin(publishers, [name.encode() for name in known]), case.open_windows)]


def _before_resuming(facts: Facts, found: Deliveries, case: Case) -> tuple[Flags, Flags]:
    """Returns two flags for each delivery of a publisher that came back with its state file. The first: the file has
    the delivery without an outcome, and the publisher did not settle it afterwards. The second: the delivery was
    published before the publisher came back, and logs have entries about it."""
    rows, last = facts.rows, {resumed.log for resumed in case.resumed.values()}
    in_last = facts.by_publisher & np.array([log.name in last for log in rows.logs], np.bool_)[rows.log]
    kept = found.groups.any(in_last & facts.flags_of(Event.KEPT) & (rows.outcome == LoggedOutcome.NONE))
    settled = found.groups.any(in_last & facts.flags_of(Event.SETTLED))
    first = found.published
    new = taken(in_last, first, False) & (taken(rows.event, first) == Event.PUBLISHED)
    resumed = np.isin(found.uses.publisher(), [name.encode() for name in case.resumed])
    traced = (first >= 0) | (found.received_hlc != BIG) | found.handed
    return kept & ~settled, resumed & ~new & traced


def _was_open(facts: Facts, published: Ints) -> Flags:
    """Flags the rows of publishers' logs which show that a delivery had no outcome yet."""
    event, outcome = taken(facts.rows.event, published), taken(facts.rows.outcome, published)
    found: Flags = (event == Event.PUBLISHED) | ((event == Event.KEPT) & (outcome == LoggedOutcome.NONE))
    return found


def _told_hlc(time_us: Ints, case: Case) -> Ints:
    """The highest hybrid clock of any router at the time when the publisher read the answer; `BIG` if the publisher did
    not read one."""
    known = time_us != BIG
    return np.where(known, case.hybrid.latest(np.where(known, time_us, 0)), BIG)
