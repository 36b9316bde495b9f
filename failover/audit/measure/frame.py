"""What is to be known of a whole run before its deliveries are counted: when it was, and when faults struck."""

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from failover.audit.measure.phases import Phases
from failover.audit.mesh.clients import KnownClients
from failover.audit.read.faults import Chaos, ChaosFile, Fault
from failover.audit.read.inventory import Log

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
class Frame:
    """What workers have to know of the whole run."""

    host: str
    """On whose clock faults are placed."""
    fine_us: int
    boundaries: tuple[int, ...]
    calm: tuple[int, ...]
    """Slices, see `phases`."""
    subscribers: frozenset[str]
    publishers: frozenset[str]
    """Those with logs of their own."""
    instants: tuple[tuple[str, int], ...]
    """Of faults, with what they were."""


@attrs.frozen(slots=True)
class RunWindow:
    """From when to when clients ran, by the clock of one host."""

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
        tuple(phases.calm),
        frozenset(name for name, client in clients.subscribers.items() if client.logs),
        frozenset(name for name, client in clients.publishers.items() if client.logs),
        tuple(fault_instants(found.chaos, logs)),
    )


def run_window(logs: Sequence[Log]) -> RunWindow:
    """Clients tell best when the run was; where none logged, routers do."""
    writers = [log for log in logs if log.role != "router"] or list(logs)
    hosts = Counter(log.host for log in writers)
    host = max(sorted(hosts), key=lambda name: hosts[name], default="")
    there = [log for log in writers if log.host == host]
    began = min((log.first_time for log in there), default=0)
    return RunWindow(host, began, max((log.last_time for log in there), default=began))


def measured_faults(found: ChaosFile) -> Sequence[Fault]:
    return found.chaos.faults[:MOST_FAULTS] if found.chaos else ()


def fault_instants(chaos: Chaos | None, logs: Iterable[Log]) -> list[tuple[str, int]]:
    """By chaos.json; without one, where routers' logs break off."""
    if chaos is not None:
        return [(fault.text, fault.at_us) for fault in chaos.faults[:MOST_FAULTS]]
    ends = (log for log in logs if log.role == "router" and not log.stopped)
    return [(f"the log of {log.source} ends", log.last_time) for log in sorted(ends, key=_end)][:MOST_FAULTS]


def _end(log: Log) -> tuple[int, str]:
    return log.last_time, log.name
