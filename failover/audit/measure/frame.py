"""The facts about a whole run that workers need to count deliveries: the time of the run, and the times of faults.

The instants at which faults begin and end cut a run into slices. Workers count measures by slice, and reports show them
by phase.

    faults      ──────1111111──────222222222────
                               ───────33333333──
    slices      0     1      2     3  4     5  6
    calm        yes          yes               yes

The phase *during* a fault has all slices of the fault. The phase *before* it is the slice that it ends, and the phase
*after* it is the slice that it begins. If another fault is under way in such a slice, the phase is empty. A delivery
belongs to the slice in which it was published. If the next fault began before the delivery was done, the delivery
belongs to this fault.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from failover.audit.mesh.clients import FOREVER, KnownClients
from failover.audit.read.faults import Chaos, ChaosFile, Fault
from failover.audit.read.inventory import Log

FINE_US = 50_000
FINES = 4_000
"""Reports name only pauses of at least the run's duration divided by this number, and of at least `FINE_US`."""
BINS = 240
WIDTHS_US = tuple(
    round(seconds * 1_000_000)
    for seconds in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 86400)
)
MOST_FAULTS = 100
ELSEWHERE = -1
"""Stands for the slice of an entry whose time is by another host's clock. By this clock, the audit cannot tell which
faults were under way."""
WHOLE, BEFORE, DURING, AFTER = "the whole run", "before the first fault", "during faults", "after and between faults"


class Phases:
    def __init__(self, faults: Sequence[Fault]) -> None:
        self._spans = [(fault.at_us, FOREVER if fault.until_us is None else fault.until_us) for fault in faults]
        edges = {instant for span in self._spans for instant in span}
        self.boundaries = sorted(edges - {FOREVER})
        """The moments at which faults begin or end, in µs of wall clock. Slice k ends at moment k."""
        begins = [(number + 1, instant) for number, instant in enumerate(self.boundaries)]
        struck = {number for number, at in begins if any(since <= at < till for since, till in self._spans)}
        self.every = set(range(len(self.boundaries) + 1))
        self.calm = self.every - struck
        """The slices in which no fault is under way. Each of them is followed by a slice that begins with a fault."""

    @property
    def names(self) -> list[str]:
        return [BEFORE, DURING, AFTER] if self._spans else [WHOLE]

    def slices(self, name: str) -> set[int]:
        """The slices of the run that belong to a phase."""
        if name == WHOLE:
            return self.every | {ELSEWHERE}
        return {BEFORE: {0}, DURING: self.every - self.calm, AFTER: self.calm - {0}}[name]

    def around(self, fault: int) -> tuple[set[int], set[int], set[int]]:
        """The slices before, during and after one fault."""
        since, till = self._spans[fault]
        first, end = (bisect_left(self.boundaries, instant) + 1 for instant in (since, till))
        return {first - 1} & self.calm, set(range(first, end)), {end} & self.calm


@attrs.frozen(slots=True)
class Frame:
    """The facts about the whole run that workers need."""

    host: str
    """The host whose clock gives the times of the faults."""
    fine_us: int
    boundaries: tuple[int, ...]
    calm: tuple[int, ...]
    """The numbers of the slices in which no fault is under way (`Phases.calm`)."""
    subscribers: frozenset[str]
    publishers: frozenset[str]
    """The publishers with logs of their own; the next field has the subscribers with logs of their own."""
    instants: tuple[tuple[str, int], ...]
    """The text of each fault, and the time at which it struck, in µs of wall clock."""


@attrs.frozen(slots=True)
class RunWindow:
    """The time during which clients ran, by the clock of one host."""

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


def make_frame(logs: Sequence[Log], clients: KnownClients, found: ChaosFile) -> Frame:
    window, phases = run_window(logs), Phases(measured_faults(found))
    return Frame(
        window.host,
        window.fine_us,
        tuple(phases.boundaries),
        tuple(sorted(phases.calm)),
        frozenset(name for name, client in clients.subscribers.items() if client.logs),
        frozenset(name for name, client in clients.publishers.items() if client.logs),
        tuple(fault_instants(found.chaos, logs)),
    )


def run_window(logs: Sequence[Log]) -> RunWindow:
    """Find the window of the run. The logs of clients show it best; if no client has a log, the logs of routers do."""
    writers = [log for log in logs if log.role != "router"] or list(logs)
    hosts = Counter(log.host for log in writers)
    host = max(sorted(hosts), key=lambda name: hosts[name], default="")
    there = [log for log in writers if log.host == host]
    began = min((log.first_time for log in there), default=0)
    return RunWindow(host, began, max((log.last_time for log in there), default=began))


def measured_faults(found: ChaosFile) -> Sequence[Fault]:
    return found.chaos.faults[:MOST_FAULTS] if found.chaos else ()


def fault_instants(chaos: Chaos | None, logs: Iterable[Log]) -> list[tuple[str, int]]:
    """The faults that chaos.json lists. If there is no such file, the places where routers' logs break off."""
    if chaos is not None:
        return [(fault.text, fault.at_us) for fault in chaos.faults[:MOST_FAULTS]]
    ends = sorted((log.last_time, log.name, log.source) for log in logs if log.role == "router" and not log.stopped)
    return [(f"the log of {source} ends", at_us) for at_us, _, source in ends][:MOST_FAULTS]
