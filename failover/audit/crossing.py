"""Counts what happened in one bucket besides the verdict: retries, placeholders, and deliveries that met a fault.

Runs inside Spark's Python workers, as `judging`; what is made of it is in `happenings`.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from failover.audit.case import Case
from failover.audit.counting import DELIVERY_KINDS, PAIR_KINDS, RECORD_KINDS, Rules
from failover.audit.deliveries import Deliveries
from failover.audit.facts import Facts
from failover.audit.grouping import BIG, Groups, taken
from failover.audit.happenings import FATES, RESOLUTIONS, Happened
from failover.audit.packing import Flags, Ints
from failover.audit.pairs import Pairs
from failover.audit.records import Records
from topic.journal import Event

ACCEPTED, REFUSED, ABANDONED, UNANSWERED, UNKNOWN, VIOLATED = range(len(FATES))


def count_happenings(facts: Facts, found: Deliveries, records: Records, fate: Ints, case: Case) -> Happened:
    happened = Happened()
    for what, rows in _doings(facts, found).items():
        counted = np.bincount(facts.rows.log[rows], minlength=len(facts.rows.logs)).tolist()
        for log, number in zip(facts.rows.logs, counted, strict=True):
            if log.role == "router":
                happened.routers[log.source, what] += number
    happened.placeholders.update(_placeholders(facts, records, case))
    happened.crossed.update(_crossed(_ended(facts, found), found, fate, case))
    return happened


def _doings(facts: Facts, found: Deliveries) -> dict[str, Flags]:
    rows = facts.rows
    received, sent = facts.at_home & facts.tells(Event.RECEIVED), facts.by_router & facts.tells(Event.DELIVERED)
    return {
        "received": received,
        "received_again": _again(received, rows.hlc, found.groups),
        "sent": sent,
        "sent_again": _again(sent, rows.hlc, _by_subscriber(facts, found)),
        "refused": facts.by_router & facts.tells(Event.OUTCOME) & ~facts.accepted,
        "rehomed": facts.by_router & facts.tells(Event.REHOMED),
    }


def _by_subscriber(facts: Facts, found: Deliveries) -> Groups:
    of = found.lives.of * (len(facts.rows.strings) + 1) + facts.rows.subscriber
    distinct, group = np.unique(of, return_inverse=True)
    return Groups(group.astype(np.int64), len(distinct))


def _again(rows: Flags, hlc: Ints, groups: Groups) -> Flags:
    """All but the first of each group."""
    first = groups.first(rows, hlc)
    again = rows.copy()
    again[first[first >= 0]] = False
    return again


def _placeholders(facts: Facts, records: Records, case: Case) -> Iterator[tuple[str, str]]:
    """The router and what became of it, for every record that began without its message."""
    at, place = records.rows, facts.rows.place[records.rows]

    def last(event: Event) -> Ints:
        return records.groups.highest(facts.tells(event)[at], place)

    begun = last(Event.PLACEHOLDER)
    if not (begun >= 0).any():
        return
    ends = {name: last(event) > begun for name, event in (RESOLUTIONS | {"forgotten": Event.FORGOTTEN}).items()}
    for record in np.flatnonzero(begun >= 0).tolist():
        log = facts.rows.logs[records.log[record]]
        known = case.logs.get(log.name)
        held = "held" if known is not None and known.stopped else "unknown"
        yield log.source, next((name for name, flags in ends.items() if flags[record]), held)


def _ended(facts: Facts, found: Deliveries) -> Ints:
    """When its publisher had an outcome, or gave it up."""
    given_up = found.groups.lowest(facts.by_router & facts.tells(Event.ABANDONED), facts.rows.time)
    ended = found.told_time
    for other in (taken(facts.rows.time, found.answered, BIG), found.home_settled_time, given_up):
        ended = np.where(ended != BIG, ended, other)
    return ended


def fates(found: Deliveries, pairs: Pairs, records: Records, rules: Rules, unaddressed: Flags) -> Ints:
    """What became of each delivery, the worst counting."""
    judged, judged_pairs = rules[:2]
    fate = np.full(len(found.lives.key), UNANSWERED, np.int64)
    fate[found.abandoned] = ABANDONED
    fate[found.refused | found.told_refused] = REFUSED
    fate[judged.is_accepted] = ACCEPTED
    fate[unaddressed] = UNKNOWN
    fate[pairs.delivery[judged_pairs.unknown | judged_pairs.unplaced]] = UNKNOWN
    for kinds, delivery in (
        (DELIVERY_KINDS, np.arange(len(fate))),
        (PAIR_KINDS, pairs.delivery),
        (RECORD_KINDS, records.delivery),
    ):
        for name in kinds:
            flag = next(getattr(rule, name) for rule in rules if hasattr(rule, name))
            fate[delivery[flag]] = VIOLATED
    return fate


def _crossed(ended: Ints, found: Deliveries, fate: Ints, case: Case) -> Counter[tuple[int, str]]:
    counted: Counter[tuple[int, str]] = Counter()
    for number, (_, instant) in enumerate(case.instants):
        met = (found.begun_time <= instant) & (instant < ended)
        for name, count in zip(FATES, np.bincount(fate[met], minlength=len(FATES)).tolist(), strict=True):
            if count:
                counted[number, name] += count
    return counted
