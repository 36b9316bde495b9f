"""Counts, in one bucket of deliveries, the numbers from which the figures of a run are computed.

A latency is the difference of two wall-clock times, so it is known only if one host wrote both entries. The times of
faults are by the clock of the host in the frame. The time that a record spent in a state is a difference of two times
of one router's clock.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from failover.audit.judge.deliveries import Records
from failover.audit.judge.uses import Uses
from failover.audit.measure.frame import ELSEWHERE, Frame
from failover.audit.read.columns import NONE, Ints
from failover.audit.read.facts import BIG, Facts
from topic.identity import NAME_LENGTH
from topic.journal import Event

STEPS = 8
"""The number of histogram buckets for each doubling of the latency. With this number a quantile is exact within 5 %."""
UNKNOWN = -1
"""The bucket of the histogram that has the unknown latencies."""
MOST_BUCKETS = 63 * STEPS + 1
"""The number of buckets that all values of an int64 need."""
ACCEPTED, PROCESSED = "accepted", "processed"
MEASURES = (PROCESSED, ACCEPTED)
STATES = {
    "awaited": "at its home, until all subscribers answered",
    "answered": "at its home, until the publisher settled it",
    "queued": "at a router, until it was sent to a subscriber",
    "unanswered": "at subscribers, until the last of them answered",
    "reported": "at a router after the answers, until it was settled",
    "settled": "at a router after settlement, until it was forgotten",
}
Who = tuple[str, str, str]
"""A client: its role, its name and the host on which it runs."""


@attrs.define(slots=True)
class Progress:
    """The progress of one client: the number of its deliveries in short intervals of time (bins). Empty bins are left
    out."""

    fine: Ints
    count: Ints
    first: Ints
    last: Ints

    @classmethod
    def of(cls, times: Ints, fine_us: int) -> "Progress":
        """Count `times`, which are in order, in bins of `fine_us`."""
        fine, starts, count = np.unique(times // fine_us, return_index=True, return_counts=True)
        return cls(fine, count, times[starts], times[starts + count - 1])

    def add(self, other: "Progress") -> None:
        fine = np.concatenate([self.fine, other.fine])
        order = np.argsort(fine, kind="stable")
        self.fine, starts = np.unique(fine[order], return_index=True)
        self.count = np.add.reduceat(np.concatenate([self.count, other.count])[order], starts)
        self.first = np.minimum.reduceat(np.concatenate([self.first, other.first])[order], starts)
        self.last = np.maximum.reduceat(np.concatenate([self.last, other.last])[order], starts)


@attrs.define(slots=True)
class Metered:
    """The counts of a bucket. Their size does not depend on the size of the bucket, and counts of several buckets can
    be added."""

    latencies: Counter[tuple[str, int, int]] = attrs.field(factory=Counter)
    """The number of deliveries for each measure, each slice, and each bucket of the histogram."""
    longest: Counter[tuple[str, int]] = attrs.field(factory=Counter)
    """The longest latency, in µs, for each measure and slice."""
    progress: dict[Who, Progress] = attrs.field(factory=dict)
    waits: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    """The number of records for each router and state. The next two fields have the sum of the times in this state, and
    the longest one, in µs."""
    waited_us: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    longest_us: Counter[tuple[str, str]] = attrs.field(factory=Counter)

    def add(self, other: "Metered") -> None:
        self.latencies.update(other.latencies)
        self.waits.update(other.waits)
        self.waited_us.update(other.waited_us)
        self.longest |= other.longest  # the operator `|` of Counters keeps the higher count of each key
        self.longest_us |= other.longest_us
        for who, progress in other.progress.items():
            if who in self.progress:
                self.progress[who].add(progress)
            else:
                self.progress[who] = progress


def meter(facts: Facts, uses: Uses, records: Records, frame: Frame) -> Metered:
    metered = Metered(progress=dict([*_of_subscribers(facts, frame), *_of_publishers(facts, frame)]))
    _count_latencies(metered, facts, uses, frame)
    _count_waits(metered, facts, records)
    return metered


def _count_latencies(metered: Metered, facts: Facts, uses: Uses, frame: Frame) -> None:
    """Count the times from each publication to its acceptance and to its processing."""
    time, host = facts.rows.time, facts.host
    learned = facts.by_publisher & facts.flags_of(Event.OUTCOME)
    processed = facts.by_subscriber & facts.flags_of(Event.PROCESSED)
    at = np.flatnonzero((learned | processed) & facts.accepted & uses.sure[uses.of])
    published = np.flatnonzero(facts.by_publisher & facts.flags_of(Event.PUBLISHED))
    begun, begun_host = np.full(len(uses.key), NONE, np.int64), np.full(len(uses.key), NONE, np.int64)
    begun[uses.of[published]], begun_host[uses.of[published]] = time[published], host[published]
    since, since_host = begun[uses.of[at]], begun_host[uses.of[at]]
    known = (since_host == host[at]) & (host[at] != NONE)
    us = np.where(known, np.maximum(time[at] - since, 1), 1)
    placed = np.where(since_host == NONE, host[at], since_host) == facts.host_code(frame.host)
    slices = np.where(placed, _slices(np.where(since_host == NONE, time[at], since), time[at], frame), ELSEWHERE)
    bucket = np.where(known, np.floor(np.log2(us) * STEPS), UNKNOWN).astype(np.int64)
    measure, shape = learned[at].astype(np.int64), (len(MEASURES), len(frame.boundaries) + 2, MOST_BUCKETS + 1)
    flat, counts = np.unique(np.ravel_multi_index((measure, slices + 1, bucket + 1), shape), return_counts=True)
    for number, *found in zip(counts.tolist(), *(part.tolist() for part in np.unravel_index(flat, shape)), strict=True):
        metered.latencies[MEASURES[found[0]], found[1] - 1, found[2] - 1] = number
    longest = np.zeros(shape[:2], np.int64)
    np.maximum.at(longest, (measure, slices + 1), np.where(known, us, 0))
    for (number, of_slice), most in np.ndenumerate(longest):
        metered.longest[MEASURES[number], of_slice - 1] = int(most)


def _slices(begun: Ints, ended: Ints, frame: Frame) -> Ints:
    """The index of the slice to which each delivery belongs: the slice of its publication. But if no fault was under
    way at the publication, and one began before the delivery ended, the delivery belongs to the first slice of this
    fault."""
    boundaries = np.array(frame.boundaries, np.int64)
    first, last = (np.searchsorted(boundaries, time, side="right") for time in (begun, ended))
    return np.where(np.isin(first, frame.calm), np.minimum(first + 1, last), first)


def _of_subscribers(facts: Facts, frame: Frame) -> Iterator[tuple[Who, Progress]]:
    """Count the progress of each subscriber, by the deliveries that it processed. Its own log shows them; without one,
    its routers' logs do."""
    subscriber, names = facts.rows.subscriber, facts.rows.strings
    logged = np.array([*(name in frame.subscribers for name in names), False])
    answered = facts.by_router & facts.flags_of(Event.OUTCOME) & ~logged[subscriber] & (subscriber != NONE)
    processed = facts.by_subscriber & facts.flags_of(Event.PROCESSED)
    at = np.flatnonzero((answered | processed) & facts.accepted)
    return _progress(facts, frame, "subscriber", at, names, subscriber[at].astype(np.int64))


def _of_publishers(facts: Facts, frame: Frame) -> Iterator[tuple[Who, Progress]]:
    learned = facts.by_publisher & facts.flags_of(Event.OUTCOME)
    told = facts.at_home & facts.flags_of(Event.ACCEPTED)
    at = np.flatnonzero((learned | told) & facts.accepted)
    distinct, who = np.unique(facts.rows.key[at].astype(f"S{NAME_LENGTH}"), return_inverse=True)
    names = [name.decode() for name in distinct.tolist()]
    own = learned[at] | ~np.array([name in frame.publishers for name in names], np.bool_)[who]
    return _progress(facts, frame, "publisher", at[own], names, who[own])


def _progress(
    facts: Facts, frame: Frame, role: str, at: Ints, names: Sequence[str], who: Ints
) -> Iterator[tuple[Who, Progress]]:
    """Yields the progress of each client on each host. `who`: the client of each row."""
    hosts = ["", *facts.hosts]
    whose = who * len(hosts) + facts.host[at] + 1
    order = np.lexsort((facts.rows.time[at], whose))
    found, starts = np.unique(whose[order], return_index=True)
    for one, times in zip(found.tolist(), np.split(facts.rows.time[at][order], starts[1:]), strict=False):
        yield (role, names[one // len(hosts)], hosts[one % len(hosts)]), Progress.of(times, frame.fine_us)


def _count_waits(metered: Metered, facts: Facts, records: Records) -> None:
    """Count the times between a router's entries about one record."""
    for state, since, till in _spans(facts, records):
        known = (since != BIG) & (since != NONE) & (till != BIG) & (till >= since)
        for number, log in enumerate(facts.rows.logs):
            us = (till - since)[known & (records.log == number)]
            whose = log.source, state
            if len(us):
                metered.waits[whose] += len(us)
                metered.waited_us[whose] += int(us.sum())
                metered.longest_us[whose] = max(int(us.max()), metered.longest_us[whose])


def _spans(facts: Facts, records: Records) -> Iterator[tuple[str, Ints, Ints]]:
    """The states in `STATES`, each with the times at which records entered and left it."""

    def first(*events: Event) -> Ints:
        return records.groups.lowest(facts.flags_of(*events), facts.rows.time)

    def last(event: Event) -> Ints:
        return records.groups.highest(facts.flags_of(event), facts.rows.time)

    received, sent, told = first(Event.RECEIVED, Event.PLACEHOLDER), first(Event.DELIVERED), first(Event.ACCEPTED)
    answered, ended = last(Event.OUTCOME), records.settled_time
    at_edge = np.where(told == BIG, answered, NONE)
    ends = (told, ended, sent, answered, ended, last(Event.FORGOTTEN))
    yield from zip(STATES, (received, told, received, sent, at_edge, ended), ends, strict=True)
