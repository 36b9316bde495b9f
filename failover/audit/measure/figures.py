"""The figures of a run: latencies by phase, deliveries over time, pauses around faults, times in each state.

`counts` counts in each bucket; this module computes the figures from the sum. No figure changes the verdict.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

import attrs
import numpy as np

from failover.audit.measure.counts import ACCEPTED, PROCESSED, STATES, STEPS, UNKNOWN, Metered, Progress
from failover.audit.measure.frame import MOST_FAULTS, Phases, RunWindow, measured_faults, run_window
from failover.audit.mesh.clients import FOREVER, KnownClients
from failover.audit.read.faults import Chaos, ChaosFile, Fault
from failover.audit.read.inventory import Log

LINGER_US = 1_000_000
"""A pause still counts for a fault if it begins this long (in µs) after the fault, or sooner."""


@attrs.frozen(slots=True)
class Quantiles:
    """Quantiles of latencies, in µs; None if there are no deliveries."""

    count: int
    p50: int | None = None
    p90: int | None = None
    p99: int | None = None
    max: int | None = None


@attrs.frozen(slots=True)
class Distribution:
    quantiles: Quantiles
    unknown: int
    """The number of deliveries whose latency is unknown: their publisher has no log, or the clocks are of different
    hosts."""
    buckets: tuple[tuple[int, int], ...]
    """Pairs of a bucket's number (`bucket_us`) and the count in it."""


@attrs.frozen(slots=True)
class PhaseLatency:
    """The latencies of the deliveries that were published in one phase."""

    phase: str
    accepted: Distribution
    """The time from the publication until the publisher knew of the acceptance."""
    processed: Distribution
    """The time from the publication until a subscriber had processed it."""


@attrs.frozen(slots=True)
class Pause:
    since_us: int
    us: int

    def is_of(self, fault: Fault) -> bool:
        """Whether the pause overlaps a fault, or begins shortly after it."""
        till = FOREVER - LINGER_US if fault.until_us is None else fault.until_us
        return self.since_us + self.us > fault.at_us and self.since_us < till + LINGER_US


@attrs.frozen(slots=True)
class Pauses:
    """The longest times without deliveries around one fault, for the clients of one role."""

    count: int
    worst: str | None = None
    worst_us: int | None = None
    median_us: int | None = None


@attrs.frozen(slots=True)
class FaultMeasure:
    fault: Fault
    accepted: tuple[Quantiles, ...]
    """The quantiles of the latency to the acceptance, before, during and after the fault."""
    processed: tuple[Quantiles, ...]
    subscribers: Pauses
    """The pauses of subscribers: times in which a subscriber processed no delivery."""
    publishers: Pauses
    """The pauses of publishers: times in which no delivery of a publisher was accepted."""


@attrs.frozen(slots=True)
class Series:
    """One client's deliveries over time: the ones that a subscriber processed, or that were accepted for a
    publisher."""

    party: str
    role: str
    host: str
    counts: tuple[int, ...]
    """The number of deliveries in each bin, from `Measures.began_us` on."""
    longest: Pause | None
    calm: Pause | None
    """The client's longest pause outside of faults."""


@attrs.frozen(slots=True)
class StateTime:
    router: str
    state: str
    """One of `STATES`."""
    count: int
    mean_us: int
    max_us: int


@attrs.frozen(slots=True)
class Measures:
    began_us: int
    bin_us: int
    fine_us: int
    """Pauses shorter than this number of µs do not count."""
    chaos: Chaos | None
    phases: tuple[PhaseLatency, ...]
    faults: tuple[FaultMeasure, ...]
    series: tuple[Series, ...]
    states: tuple[StateTime, ...]
    notes: tuple[str, ...]
    """The figures that could not be measured, each with the reason."""


@attrs.frozen(slots=True)
class Track:
    """One client's progress, in bins of the run, and its pauses."""

    party: str
    role: str
    host: str
    counts: tuple[int, ...]
    pauses: Sequence[Pause]

    def longest(self, condition: Callable[[Pause], bool] = lambda pause: True) -> Pause | None:
        return max(filter(condition, self.pauses), key=lambda pause: pause.us, default=None)


def measures(metered: Metered, logs: Sequence[Log], clients: KnownClients, found: ChaosFile) -> Measures:
    window, faults = run_window(logs), measured_faults(found)
    phases, tracks = Phases(faults), _tracks(metered, window, clients)
    comparable = [track for track in tracks if track.host == window.host]
    return Measures(
        window.began_us,
        window.bin_us,
        window.fine_us,
        found.chaos,
        tuple(
            PhaseLatency(name, *(distribution(metered, of, phases.slices(name)) for of in (ACCEPTED, PROCESSED)))
            for name in phases.names
        ),
        fault_measures(faults, phases, metered, comparable),
        series(tracks, faults),
        tuple(_states(metered)),
        tuple(_notes(window, logs, tracks, metered, found)),
    )


def bucket_us(number: int) -> float:
    """The latency at which a bucket begins, in µs."""
    return math.pow(2, number / STEPS)


def distribution(metered: Metered, measure: str, slices: set[int]) -> Distribution:
    counts = Counter[int]()
    for (of, number, bucket), count in metered.latencies.items():
        if of == measure and number in slices:
            counts[bucket] += count
    unknown = counts.pop(UNKNOWN, 0)
    longest = max((metered.longest[measure, number] for number in slices), default=0)
    return Distribution(_quantiles(counts, longest), unknown, tuple(sorted(counts.items())))


def _quantiles(counts: Counter[int], longest: int) -> Quantiles:
    if not counts:
        return Quantiles(0)
    buckets = sorted(counts)
    seen = np.cumsum([counts[bucket] for bucket in buckets])
    at = np.searchsorted(seen, [share * float(seen[-1]) for share in (0.5, 0.9, 0.99)])
    p50, p90, p99 = (min(round(bucket_us(buckets[one]) * 2 ** (0.5 / STEPS)), longest) for one in at)
    return Quantiles(int(seen[-1]), p50, p90, p99, longest)


def fault_measures(
    faults: Sequence[Fault], phases: Phases, metered: Metered, tracks: Sequence[Track]
) -> tuple[FaultMeasure, ...]:
    def quantiles(measure: str, fault: int) -> tuple[Quantiles, ...]:
        return tuple(distribution(metered, measure, part).quantiles for part in phases.around(fault))

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
    if not tracks:
        return Pauses(0)
    found = [(track.longest(lambda pause: pause.is_of(fault)), track.party) for track in tracks]
    us = [(pause.us if pause else 0, party) for pause, party in found]
    worst = max(us)
    return Pauses(len(us), worst[1], worst[0], round(median(pause for pause, _ in us)))


def series(tracks: Iterable[Track], faults: Sequence[Fault]) -> tuple[Series, ...]:
    return tuple(
        Series(
            track.party,
            track.role,
            track.host,
            track.counts,
            track.longest(),
            track.longest(lambda pause: not any(pause.is_of(fault) for fault in faults)),
        )
        for track in tracks
    )


def _tracks(metered: Metered, window: RunWindow, clients: KnownClients) -> list[Track]:
    found = []
    for (role, name, host), progress in metered.progress.items():
        client = (clients.subscribers if role == "subscriber" else clients.publishers).get(name)
        party = client.short if client else name
        found.append(Track(party, role, host, _counts(progress, window), list(_pauses_of(progress, window))))
    return sorted(found, key=lambda track: (track.role, track.party, track.host))


def _counts(progress: Progress, window: RunWindow) -> tuple[int, ...]:
    """The number of deliveries in each bin of the run."""
    bins = (progress.first - window.began_us) // window.bin_us
    there = (bins >= 0) & (bins < window.bins)
    counts = np.bincount(bins[there], weights=progress.count[there], minlength=window.bins)
    return tuple(counts.astype(np.int64).tolist())


def _pauses_of(progress: Progress, window: RunWindow) -> Iterator[Pause]:
    since, us = progress.last[:-1], progress.first[1:] - progress.last[:-1]
    for at in np.flatnonzero(us >= window.fine_us).tolist():
        yield Pause(int(since[at]), int(us[at]))


def _states(metered: Metered) -> Iterator[StateTime]:
    for router in sorted({router for router, _ in metered.waits}):
        for of in ((router, state) for state in STATES if metered.waits[router, state]):
            count, us = metered.waits[of], metered.waited_us[of]
            yield StateTime(*of, count, round(us / count), metered.longest_us[of])


def _notes(
    window: RunWindow, logs: Sequence[Log], tracks: Sequence[Track], metered: Metered, found: ChaosFile
) -> Iterator[str]:
    if found.problem:
        yield found.problem
    others = sorted({log.host or "unknown" for log in logs} - {window.host})
    if others:
        yield (
            f"the clocks of other hosts ({', '.join(others)}) cannot be compared with the clock of "
            f"{window.host or 'unknown'}: latencies between hosts are unknown, and the figures of each fault leave out "
            "the logs of other hosts"
        )
    faults = found.chaos.faults if found.chaos else ()
    if faults and (away := sum(track.host != window.host for track in tracks)):
        yield f"the pauses of {away} clients on other hosts are unknown"
    for name, of in ((ACCEPTED, "acceptance"), (PROCESSED, "processing")):
        unknown = sum(metered.latencies[key] for key in metered.latencies if key[0] == name and key[2] == UNKNOWN)
        if unknown:
            yield f"the time to {of} of {unknown} deliveries is unknown: no log shows it, or two hosts measured it"
    if len(faults) > MOST_FAULTS:
        yield f"only the first {MOST_FAULTS} of {len(faults)} faults are measured one by one"
