"""How the run went, in figures: latencies by phase, deliveries over time, pauses around faults, time in each state.

`metering` counts; here is what is made of the counts. Nothing here touches the verdict.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import attrs

from failover.audit.measure.phases import Phases
from failover.audit.mesh.clients import FOREVER
from failover.audit.read.faults import Chaos, Fault

STEPS = 8
"""Buckets of a histogram for every doubling: a quantile is right within 5 %."""
LINGER_US = 1_000_000
"""A pause that begins this soon after a fault is over is counted to it, too."""
ACCEPTED, PROCESSED = "accepted", "processed"
STATES = {
    "awaited": "at its home, for subscribers to answer",
    "answered": "at its home, for the publisher to settle",
    "queued": "at a router, to be sent to a subscriber",
    "unanswered": "with subscribers, for the last to answer",
    "reported": "answered at a router, to be settled there",
    "settled": "settled at a router, to be forgotten",
}


@attrs.frozen(slots=True)
class Quantiles:
    """In µs. Of no deliveries there are none."""

    count: int
    p50: int | None = None
    p90: int | None = None
    p99: int | None = None
    max: int | None = None


@attrs.frozen(slots=True)
class Distribution:
    quantiles: Quantiles
    unknown: int
    """Deliveries that cannot be told: no publisher's log, or clocks of different hosts."""
    buckets: tuple[tuple[int, int], ...]
    """(number, count), see `bucket_us`."""


@attrs.frozen(slots=True)
class PhaseLatency:
    """From publishing on, by when it was published."""

    phase: str
    accepted: Distribution
    """Until the publisher knew that it was accepted."""
    processed: Distribution
    """Until a subscriber had processed it."""


@attrs.frozen(slots=True)
class Pause:
    since_us: int
    us: int

    @property
    def till_us(self) -> int:
        return self.since_us + self.us


@attrs.frozen(slots=True)
class Pauses:
    """The longest time without deliveries, of those with the role, around one fault."""

    count: int
    worst: str | None = None
    worst_us: int | None = None
    median_us: int | None = None


@attrs.frozen(slots=True)
class FaultMeasure:
    fault: Fault
    accepted: tuple[Quantiles, Quantiles, Quantiles]
    """Before, during, after."""
    processed: tuple[Quantiles, Quantiles, Quantiles]
    subscribers: Pauses
    """Between deliveries processed."""
    publishers: Pauses
    """Between acceptances."""


@attrs.frozen(slots=True)
class Series:
    """What one client got done over time: deliveries processed by a subscriber, accepted for a publisher."""

    party: str
    role: str
    host: str
    counts: tuple[int, ...]
    """By bin, from `Measures.began_us` on."""
    longest: Pause | None
    calm: Pause | None
    """The longest outside faults."""


@attrs.frozen(slots=True)
class StateTime:
    router: str
    state: str
    """Of `STATES`."""
    count: int
    mean_us: int
    max_us: int


@attrs.frozen(slots=True)
class Measures:
    began_us: int
    bin_us: int
    fine_us: int
    """Pauses shorter than this are none."""
    chaos: Chaos | None
    phases: tuple[PhaseLatency, ...]
    faults: tuple[FaultMeasure, ...]
    series: tuple[Series, ...]
    states: tuple[StateTime, ...]
    notes: tuple[str, ...]
    """What could not be measured, and why."""


def bucket_us(number: int) -> float:
    """Where a bucket begins."""
    return math.pow(2, number / STEPS)


@attrs.frozen(slots=True)
class LatencyCount:
    """Latencies of one measure in one slice and bucket; without a bucket they are not known."""

    measure: str
    slice: int
    bucket: int | None
    count: int
    max_us: int | None


@attrs.define(slots=True)
class Track:
    """One client's progress as counted."""

    party: str
    role: str
    host: str
    counts: dict[int, int] = attrs.field(factory=dict)
    pauses: list[Pause] = attrs.field(factory=list)


def phase_latencies(tallies: Sequence[LatencyCount], phases: Phases) -> tuple[PhaseLatency, ...]:
    return tuple(
        PhaseLatency(
            name,
            distribution(tallies, ACCEPTED, phases.slices(name)),
            distribution(tallies, PROCESSED, phases.slices(name)),
        )
        for name in phases.names
    )


def distribution(tallies: Iterable[LatencyCount], measure: str, slices: set[int]) -> Distribution:
    within = [tally for tally in tallies if tally.measure == measure and tally.slice in slices]
    counts: dict[int, int] = {}
    for tally in within:
        if tally.bucket is not None:
            counts[tally.bucket] = counts.get(tally.bucket, 0) + tally.count
    unknown = sum(tally.count for tally in within if tally.bucket is None)
    longest = max((tally.max_us for tally in within if tally.max_us is not None), default=None)
    return Distribution(_quantiles(counts, longest), unknown, tuple(sorted(counts.items())))


def _quantiles(counts: Mapping[int, int], longest: int | None) -> Quantiles:
    total = sum(counts.values())
    if not total or longest is None:
        return Quantiles(0)

    def quantile(share: float) -> int:
        seen = 0
        for bucket in sorted(counts):
            seen += counts[bucket]
            if seen >= share * total:
                return min(round(bucket_us(bucket) * 2 ** (0.5 / STEPS)), longest)
        raise AssertionError("a share of all is among all")

    return Quantiles(total, quantile(0.5), quantile(0.9), quantile(0.99), longest)


def fault_measures(
    faults: Sequence[Fault], phases: Phases, tallies: Sequence[LatencyCount], tracks: Sequence[Track]
) -> tuple[FaultMeasure, ...]:
    def quantiles(measure: str, fault: int) -> tuple[Quantiles, Quantiles, Quantiles]:
        before, during, after = (distribution(tallies, measure, part).quantiles for part in phases.around(fault))
        return before, during, after

    return tuple(
        FaultMeasure(
            fault,
            quantiles(ACCEPTED, number),
            quantiles(PROCESSED, number),
            _pauses([track for track in tracks if track.role == "subscriber"], fault),
            _pauses([track for track in tracks if track.role == "publisher"], fault),
        )
        for number, fault in enumerate(faults)
    )


def _pauses(tracks: Sequence[Track], fault: Fault) -> Pauses:
    found = [(longest(track.pauses, lambda pause: pause_of(pause, fault)), track.party) for track in tracks]
    if not found:
        return Pauses(0)
    us = [(pause.us if pause else 0, party) for pause, party in found]
    worst = max(us)
    return Pauses(len(us), worst[1], worst[0], round(median(pause for pause, _ in us)))


def pause_of(pause: Pause, fault: Fault) -> bool:
    """Whether a pause overlaps a fault, or begins right after it."""
    till = FOREVER - LINGER_US if fault.until_us is None else fault.until_us
    return pause.till_us > fault.at_us and pause.since_us < till + LINGER_US


def longest(pauses: Iterable[Pause], condition: Callable[[Pause], bool] = lambda pause: True) -> Pause | None:
    return max((pause for pause in pauses if condition(pause)), key=lambda pause: pause.us, default=None)


def series(tracks: Iterable[Track], faults: Sequence[Fault], bins: int) -> tuple[Series, ...]:
    return tuple(
        Series(
            track.party,
            track.role,
            track.host,
            tuple(track.counts.get(number, 0) for number in range(bins)),
            longest(track.pauses),
            longest(track.pauses, lambda pause: not any(pause_of(pause, fault) for fault in faults)),
        )
        for track in tracks
    )
