"""The life of each delivery's record at each incarnation of a router. Facts only, as in `deliveries`."""

import attrs
import numpy as np

from failover.audit.judge.uses import Uses
from failover.audit.mesh.case import Case
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import Facts
from failover.audit.read.groups import Groups, codes_of
from topic.journal import Event


@attrs.frozen
class Records:
    """One element per record."""

    rows: Ints
    """The rows of the bucket that tell of records,"""
    groups: Groups
    """and which record each of them tells of."""
    delivery: Ints
    log: Ints
    held_place: Ints
    held_time: Ints
    forgotten_place: Ints
    settled: Ints
    """The row that first tells it."""
    settled_time: Ints
    awaited: Flags
    """Whether the log ends with a subscriber of it suspended."""


def gather_records(facts: Facts, uses: Uses, case: Case) -> Records:
    rows, at = facts.rows, np.flatnonzero(facts.by_router)
    number = max(len(rows.logs), 1)
    distinct, record = np.unique(uses.of[at] * number + rows.log[at], return_inverse=True)
    groups = Groups(record.astype(np.int64), len(distinct))

    def told(*events: Event) -> Flags:
        return facts.tells(*events)[at]

    settled = groups.first(told(Event.SETTLED), rows.hlc[at], rows.place[at])
    return Records(
        at,
        groups,
        delivery=distinct // number,
        log=distinct % number,
        held_place=groups.highest(told(Event.RECEIVED, Event.PLACEHOLDER), rows.place[at]),
        held_time=groups.highest(told(Event.RECEIVED, Event.PLACEHOLDER), rows.time[at]),
        forgotten_place=groups.highest(told(Event.FORGOTTEN), rows.place[at]),
        settled=np.where(settled >= 0, at[settled], NONE) if len(at) else settled,
        settled_time=groups.lowest(told(Event.SETTLED, Event.ABANDONED, Event.RESOLVED), rows.time[at]),
        awaited=groups.any(_suspended(facts, case)[at]),
    )


def _suspended(facts: Facts, case: Case) -> Flags:
    """Rows about subscribers that are suspended where the log ends."""
    found = np.zeros(len(facts.rows), np.bool_)
    for number, log in enumerate(facts.rows.logs):
        if names := case.suspended.get(log.name):
            codes = codes_of(sorted(names), facts.rows.strings)
            found |= (facts.rows.log == number) & np.isin(facts.rows.subscriber, codes[codes != NONE])
    return found
