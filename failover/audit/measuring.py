"""From the logs to `measures`: what workers have to know to count in `metering`, and what is made of their counts."""

from collections import Counter
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from failover.audit.faults import Fault, Found
from failover.audit.inventory import Log
from failover.audit.measures import (
    ACCEPTED,
    PROCESSED,
    STATES,
    Measures,
    Pause,
    StateTime,
    Tally,
    Track,
    fault_measures,
    phase_latencies,
    series,
)
from failover.audit.metering import UNKNOWN, Frame, Metered, Progress
from failover.audit.parties import Parties, Party
from failover.audit.phases import Phases

FINE_US = 50_000
FINES = 4_000
"""Pauses are told from 50 ms on; in a run of more than 200 s, from a 4,000th of it on."""
BINS = 240
WIDTHS_US = tuple(
    round(seconds * 1_000_000)
    for seconds in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 86400)
)
MOST_FAULTS = 100


@attrs.frozen(slots=True)
class Span:
    """Of the run, by the clock of one host."""

    host: str
    began_us: int
    ended_us: int

    @property
    def bin_us(self) -> int:
        return next((width for width in WIDTHS_US if self.ended_us - self.began_us <= width * BINS), WIDTHS_US[-1])

    @property
    def bins(self) -> int:
        return (self.ended_us - self.began_us) // self.bin_us + 1

    @property
    def fine_us(self) -> int:
        return max(FINE_US, (self.ended_us - self.began_us) // FINES)


def make_frame(logs: Sequence[Log], parties: Parties, found: Found) -> Frame:
    span, phases = _span(logs), Phases(_measured(found))
    return Frame(
        span.host,
        span.fine_us,
        tuple(phases.boundaries),
        tuple(phases.calm),
        frozenset(name for name, party in parties.subscribers.items() if party.logs),
        frozenset(name for name, party in parties.publishers.items() if party.logs),
    )


def measures(metered: Metered, logs: Sequence[Log], parties: Parties, found: Found) -> Measures:
    span, faults = _span(logs), _measured(found)
    phases = Phases(faults)
    tallies = list(_tallies(metered))
    tracks = _tracks(metered, span, parties)
    comparable = [track for track in tracks if track.host == span.host]
    return Measures(
        span.began_us,
        span.bin_us,
        span.fine_us,
        found.chaos,
        phase_latencies(tallies, phases),
        fault_measures(faults, phases, tallies, comparable),
        series(tracks, faults, span.bins),
        tuple(_states(metered)),
        tuple(_notes(span, logs, tracks, tallies, found)),
    )


def _measured(found: Found) -> Sequence[Fault]:
    return found.chaos.faults[:MOST_FAULTS] if found.chaos else ()


def _span(logs: Sequence[Log]) -> Span:
    """Clients tell best when the run was; where none logged, routers do."""
    writers = [log for log in logs if log.role != "router"] or list(logs)
    hosts = Counter(log.host for log in writers)
    host = max(sorted(hosts), key=lambda name: hosts[name], default="")
    there = [log for log in writers if log.host == host]
    began = min((log.first_time for log in there), default=0)
    return Span(host, began, max((log.last_time for log in there), default=began))


def _tallies(metered: Metered) -> Iterator[Tally]:
    for (measure, number, bucket), count in sorted(metered.latencies.items()):
        known = bucket != UNKNOWN
        longest = metered.longest[measure, number, bucket] if known else None
        yield Tally(measure, number, bucket if known else None, count, longest)


def _tracks(metered: Metered, span: Span, parties: Parties) -> list[Track]:
    found = []
    for (role, name, host), progress in metered.progress.items():
        known = parties.subscribers if role == "subscriber" else parties.publishers
        pauses = list(_pauses(progress, span))
        found.append(Track(_short(known.get(name), name), role, host, _counts(progress, span), pauses))
    return sorted(found, key=lambda track: (track.role, track.party, track.host))


def _counts(progress: Progress, span: Span) -> dict[int, int]:
    bins = (progress.first - span.began_us) // span.bin_us
    distinct, which = np.unique(bins, return_inverse=True)
    counts = np.bincount(which, weights=progress.count).astype(np.int64)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))


def _pauses(progress: Progress, span: Span) -> Iterator[Pause]:
    since, us = progress.last[:-1], progress.first[1:] - progress.last[:-1]
    for at in np.flatnonzero(us >= span.fine_us).tolist():
        yield Pause(int(since[at]), int(us[at]))


def _short(party: Party | None, name: str) -> str:
    return party.identity.removesuffix(f" on {party.address}") if party else name


def _states(metered: Metered) -> Iterator[StateTime]:
    order = list(STATES)
    for (router, state), (count, us, most) in sorted(
        metered.states.items(), key=lambda item: (item[0][0], order.index(item[0][1]))
    ):
        yield StateTime(router, state, count, round(us / count), most)


def _notes(
    span: Span, logs: Sequence[Log], tracks: Sequence[Track], tallies: Sequence[Tally], found: Found
) -> Iterator[str]:
    if found.problem:
        yield found.problem
    others = sorted({log.host or "unknown" for log in logs} - {span.host})
    if others:
        yield (
            f"the clocks of other hosts ({', '.join(others)}) cannot be compared with that of {span.host or 'unknown'}:"
            " latencies between hosts are not known, and what was written elsewhere is not measured by fault"
        )
    faults = found.chaos.faults if found.chaos else ()
    if faults and (away := sum(track.host != span.host for track in tracks)):
        yield f"pauses around faults are not known of {away} clients on other hosts"
    for name, of in ((ACCEPTED, "acceptance"), (PROCESSED, "processing")):
        unknown = sum(tally.count for tally in tallies if tally.measure == name and tally.bucket is None)
        if unknown:
            yield f"the time to {of} of {unknown} deliveries is not known: no log tells when, or clocks of two hosts"
    if len(faults) > MOST_FAULTS:
        yield f"only the first {MOST_FAULTS} of {len(faults)} faults are measured one by one"
