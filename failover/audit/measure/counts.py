"""What the figures are made of, counted in one bucket of deliveries.

Latencies are differences of wall clocks, so they are known only where both ends wrote on one host; faults are placed by
the clock of the frame's host. Times in a state are differences of one router's clock.
"""

from collections import Counter
from collections.abc import Iterator

import attrs
import numpy as np

from failover.audit.judge.records import Records
from failover.audit.judge.uses import Uses
from failover.audit.measure.figures import ACCEPTED, PROCESSED, STATES, STEPS
from failover.audit.measure.frame import Frame
from failover.audit.measure.phases import ELSEWHERE
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import Facts
from failover.audit.read.groups import BIG
from topic.identity import NAME_LENGTH
from topic.journal import Event

UNKNOWN = -1
"""The bucket of latencies that are not known."""
MOST_BUCKETS = 63 * STEPS + 1
"""Of an int64."""


@attrs.define(slots=True)
class Progress:
    """What one client got done, by fine bins of time that have any."""

    fine: Ints
    count: Ints
    first: Ints
    last: Ints

    def add(self, other: "Progress") -> None:
        fine = np.concatenate([self.fine, other.fine])
        order = np.argsort(fine, kind="stable")
        starts = np.flatnonzero(np.diff(fine[order], prepend=NONE))
        self.count = np.add.reduceat(np.concatenate([self.count, other.count])[order], starts)
        self.first = np.minimum.reduceat(np.concatenate([self.first, other.first])[order], starts)
        self.last = np.maximum.reduceat(np.concatenate([self.last, other.last])[order], starts)
        self.fine = fine[order][starts]


Latency = tuple[str, int, int]
"""(measure, slice, bucket)"""
Who = tuple[str, str, str]
"""(role, name, host)"""


@attrs.define(slots=True)
class Metered:
    """Little, whatever the size of the bucket; what several buckets left is added up."""

    latencies: Counter[Latency] = attrs.field(factory=Counter)
    longest: dict[Latency, int] = attrs.field(factory=dict)
    progress: dict[Who, Progress] = attrs.field(factory=dict)
    states: dict[tuple[str, str], tuple[int, int, int]] = attrs.field(factory=dict)
    """By router and state: how many records, their µs in all, and the most of one."""

    def add(self, other: "Metered") -> None:
        self.latencies.update(other.latencies)
        for latency, us in other.longest.items():
            self.longest[latency] = max(us, self.longest.get(latency, 0))
        for who, progress in other.progress.items():
            if who in self.progress:
                self.progress[who].add(progress)
            else:
                self.progress[who] = progress
        for state, (count, us, most) in other.states.items():
            known = self.states.get(state, (0, 0, 0))
            self.states[state] = (known[0] + count, known[1] + us, max(known[2], most))


def meter(facts: Facts, uses: Uses, records: Records, frame: Frame) -> Metered:
    done = _Done(facts, frame)
    metered = Metered()
    _latencies(metered, facts, uses, frame)
    for role, at, names, who in (done.by_subscribers(), done.by_publishers()):
        metered.progress |= _progress(facts, frame, role, at, names, who)
    for router, state, counts in _states(facts, records):
        metered.add(Metered(states={(router, state): counts}))
    return metered


def _hosts(facts: Facts) -> list[str]:
    """By the numbers that `facts` gives them; the last is that of none."""
    return [*sorted({log.host for log in facts.rows.logs}), ""]


def _latencies(metered: Metered, facts: Facts, uses: Uses, frame: Frame) -> None:
    """From each publication to what came of it."""
    time, host = facts.rows.time, facts.host
    learned = facts.by_publisher & facts.tells(Event.OUTCOME)
    processed = facts.by_subscriber & facts.tells(Event.PROCESSED)
    at = np.flatnonzero((learned | processed) & facts.accepted & uses.sure[uses.of])
    begun, begun_host = _published(facts, uses)
    since, since_host = begun[uses.of[at]], begun_host[uses.of[at]]
    known = (since_host == host[at]) & (host[at] != NONE)
    us = np.where(known, np.maximum(time[at] - since, 1), 1)
    placed = _on(frame.host, facts)[np.where(since_host == NONE, host[at], since_host)]
    number = np.where(placed, _slices(np.where(since_host == NONE, time[at], since), time[at], frame), ELSEWHERE)
    bucket = np.where(known, np.floor(np.log2(us) * STEPS), UNKNOWN).astype(np.int64)
    slices, buckets = len(frame.boundaries) + 2, MOST_BUCKETS + 1  # ELSEWHERE and UNKNOWN come first
    which = (learned[at] * slices + number + 1) * buckets + bucket + 1
    counts, longest = np.bincount(which, minlength=2 * slices * buckets), np.zeros(2 * slices * buckets, np.int64)
    np.maximum.at(longest, which, us)
    for place in np.flatnonzero(counts).tolist():
        of, of_bucket = divmod(place, buckets)
        of_publisher, of_slice = divmod(of, slices)
        latency = (ACCEPTED if of_publisher else PROCESSED, of_slice - 1, of_bucket - 1)
        metered.latencies[latency], metered.longest[latency] = int(counts[place]), int(longest[place])


def _published(facts: Facts, uses: Uses) -> tuple[Ints, Ints]:
    """By delivery: when its publisher says that it sent it, and on which host."""
    at = np.flatnonzero(facts.by_publisher & facts.tells(Event.PUBLISHED))
    time, host = np.full(len(uses.key), NONE, np.int64), np.full(len(uses.key), NONE, np.int64)
    time[uses.of[at]], host[uses.of[at]] = facts.rows.time[at], facts.host[at]
    return time, host


def _on(host: str, facts: Facts) -> Flags:
    """Which of `_hosts` it is."""
    return np.array([name == host for name in _hosts(facts)], np.bool_)


def _slices(begun: Ints, ended: Ints, frame: Frame) -> Ints:
    """Where it was published; or, if it was overtaken by the next fault, the first slice of that."""
    boundaries = np.array(frame.boundaries, np.int64)
    first, last = (np.searchsorted(boundaries, time, side="right") for time in (begun, ended))
    return np.where(np.isin(first, frame.calm), np.minimum(first + 1, last), first)


class _Done:
    """Which rows tell that somebody was done with a delivery: by its own log, or its router's where it has none."""

    def __init__(self, facts: Facts, frame: Frame) -> None:
        self._facts, self._frame = facts, frame

    def by_subscribers(self) -> tuple[str, Ints, list[str], Ints]:
        """(role, rows, names, and which of these each row is of)"""
        facts, names = self._facts, list(self._facts.rows.strings)
        logged = np.array([*(name in self._frame.subscribers for name in names), False])
        subscriber = facts.rows.subscriber
        answered = facts.by_router & facts.tells(Event.OUTCOME) & ~logged[subscriber] & (subscriber != NONE)
        processed = facts.by_subscriber & facts.tells(Event.PROCESSED)
        at = np.flatnonzero((answered | processed) & facts.accepted)
        return "subscriber", at, names, subscriber[at].astype(np.int64)

    def by_publishers(self) -> tuple[str, Ints, list[str], Ints]:
        facts = self._facts
        learned = facts.by_publisher & facts.tells(Event.OUTCOME)
        told = facts.at_home & facts.tells(Event.ACCEPTED)
        at = np.flatnonzero((learned | told) & facts.accepted)
        distinct, who = np.unique(facts.rows.key[at].astype(f"S{NAME_LENGTH}"), return_inverse=True)
        names = [name.decode() for name in distinct.tolist()]
        logged = np.array([name in self._frame.publishers for name in names], np.bool_)[who]
        own = learned[at] | ~logged
        return "publisher", at[own], names, who[own]


def _progress(
    facts: Facts, frame: Frame, role: str, at: Ints, names: list[str], who: Ints
) -> Iterator[tuple[Who, Progress]]:
    order = np.lexsort((facts.rows.time[at], facts.host[at], who))
    time, host, who = facts.rows.time[at][order], facts.host[at][order], who[order]
    fine = time // frame.fine_us
    starts = _changes(who, host, fine)
    ends = np.append(starts, len(time))[1:]
    counts, firsts, lasts = ends - starts, time[starts], time[ends - 1]
    who, host, fine = who[starts], host[starts], fine[starts]
    parts, hosts = _changes(who, host), _hosts(facts)
    for start, end in zip(parts.tolist(), [*parts.tolist(), len(who)][1:], strict=True):
        name = (role, names[who[start]], hosts[host[start]])
        yield name, Progress(fine[start:end], counts[start:end], firsts[start:end], lasts[start:end])


def _changes(*columns: Ints) -> Ints:
    """Where a row differs from the one before; the first does."""
    new = np.zeros(len(columns[0]), np.bool_)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def _states(facts: Facts, records: Records) -> Iterator[tuple[str, str, tuple[int, int, int]]]:
    """Between what a router says of one record."""
    for name, since, till in _spans(facts, records):
        known = (since != BIG) & (since != NONE) & (till != BIG) & (till >= since)
        for number, log in enumerate(facts.rows.logs):
            us = (till - since)[known & (records.log == number)]
            if len(us):
                yield log.source, name, (len(us), int(us.sum()), int(us.max()))


def _spans(facts: Facts, records: Records) -> Iterator[tuple[str, Ints, Ints]]:
    """The time in each of `STATES`."""
    time = facts.rows.time[records.rows]

    def first(*events: Event) -> Ints:
        return records.groups.lowest(facts.tells(*events)[records.rows], time)

    def last(event: Event) -> Ints:
        return records.groups.highest(facts.tells(event)[records.rows], time)

    received, sent, told = first(Event.RECEIVED, Event.PLACEHOLDER), first(Event.DELIVERED), first(Event.ACCEPTED)
    answered, ended = last(Event.OUTCOME), records.settled_time
    at_edge = np.where(told == BIG, answered, NONE)
    ends = (told, ended, sent, answered, ended, last(Event.FORGOTTEN))
    yield from zip(STATES, (received, told, received, sent, at_edge, ended), ends, strict=True)
