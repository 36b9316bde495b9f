"""The figures of a report, made of what was counted in its buckets."""

from collections.abc import Iterator, Sequence

import numpy as np

from failover.audit.measure.counts import UNKNOWN, Metered, Progress
from failover.audit.measure.figures import (
    ACCEPTED,
    PROCESSED,
    STATES,
    LatencyCount,
    Measures,
    Pause,
    StateTime,
    Track,
    fault_measures,
    phase_latencies,
    series,
)
from failover.audit.measure.frame import MOST_FAULTS, RunWindow, measured_faults, run_window
from failover.audit.measure.phases import Phases
from failover.audit.mesh.clients import Client, KnownClients
from failover.audit.read.faults import ChaosFile
from failover.audit.read.inventory import Log


def measures(metered: Metered, logs: Sequence[Log], clients: KnownClients, found: ChaosFile) -> Measures:
    window, faults = run_window(logs), measured_faults(found)
    phases = Phases(faults)
    tallies = list(_tallies(metered))
    tracks = _tracks(metered, window, clients)
    comparable = [track for track in tracks if track.host == window.host]
    return Measures(
        window.began_us,
        window.bin_us,
        window.fine_us,
        found.chaos,
        phase_latencies(tallies, phases),
        fault_measures(faults, phases, tallies, comparable),
        series(tracks, faults, window.bins),
        tuple(_states(metered)),
        tuple(_notes(window, logs, tracks, tallies, found)),
    )


def _tallies(metered: Metered) -> Iterator[LatencyCount]:
    for (measure, number, bucket), count in sorted(metered.latencies.items()):
        known = bucket != UNKNOWN
        longest = metered.longest[measure, number, bucket] if known else None
        yield LatencyCount(measure, number, bucket if known else None, count, longest)


def _tracks(metered: Metered, window: RunWindow, clients: KnownClients) -> list[Track]:
    found = []
    for (role, name, host), progress in metered.progress.items():
        known = clients.subscribers if role == "subscriber" else clients.publishers
        pauses = list(_pauses(progress, window))
        found.append(Track(_short(known.get(name), name), role, host, _counts(progress, window), pauses))
    return sorted(found, key=lambda track: (track.role, track.party, track.host))


def _counts(progress: Progress, window: RunWindow) -> dict[int, int]:
    bins = (progress.first - window.began_us) // window.bin_us
    distinct, which = np.unique(bins, return_inverse=True)
    counts = np.bincount(which, weights=progress.count).astype(np.int64)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))


def _pauses(progress: Progress, window: RunWindow) -> Iterator[Pause]:
    since, us = progress.last[:-1], progress.first[1:] - progress.last[:-1]
    for at in np.flatnonzero(us >= window.fine_us).tolist():
        yield Pause(int(since[at]), int(us[at]))


def _short(client: Client | None, name: str) -> str:
    return client.identity.removesuffix(f" on {client.address}") if client else name


def _states(metered: Metered) -> Iterator[StateTime]:
    order = list(STATES)
    for (router, state), (count, us, most) in sorted(
        metered.states.items(), key=lambda item: (item[0][0], order.index(item[0][1]))
    ):
        yield StateTime(router, state, count, round(us / count), most)


def _notes(
    window: RunWindow, logs: Sequence[Log], tracks: Sequence[Track], tallies: Sequence[LatencyCount], found: ChaosFile
) -> Iterator[str]:
    if found.problem:
        yield found.problem
    others = sorted({log.host or "unknown" for log in logs} - {window.host})
    if others:
        yield (
            f"the clocks of other hosts ({', '.join(others)}) cannot be compared with that of "
            f"{window.host or 'unknown'}: latencies between hosts are not known, and what was written elsewhere is not "
            "measured by fault"
        )
    faults = found.chaos.faults if found.chaos else ()
    if faults and (away := sum(track.host != window.host for track in tracks)):
        yield f"pauses around faults are not known of {away} clients on other hosts"
    for name, of in ((ACCEPTED, "acceptance"), (PROCESSED, "processing")):
        unknown = sum(tally.count for tally in tallies if tally.measure == name and tally.bucket is None)
        if unknown:
            yield f"the time to {of} of {unknown} deliveries is not known: no log tells when, or clocks of two hosts"
    if len(faults) > MOST_FAULTS:
        yield f"only the first {MOST_FAULTS} of {len(faults)} faults are measured one by one"
