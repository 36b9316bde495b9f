"""Made-up reports without logs, for tests of the code that shows reports."""

import attrs

from failover.audit.measure.counts import STATES
from failover.audit.measure.figures import (
    Distribution,
    FaultMeasure,
    Measures,
    Pause,
    Pauses,
    PhaseLatency,
    Quantiles,
    Series,
    StateTime,
)
from failover.audit.measure.frame import AFTER, BEFORE, DURING
from failover.audit.read.faults import Chaos, Fault
from failover.audit.report.report import Finding, PairRow, PublisherRow, Report
from failover.audit.report.story import DeliveryStory, Step
from tests.failover.audit.runs import START_MS

BEGAN_US = START_MS * 1000
KEY = "k" * 32
QUANTILES = Quantiles(100, 1_000, 2_000, 30_000, 40_000)


def fault(number: int = 0) -> Fault:
    at_us = BEGAN_US + 1_000_000 * (number + 1)
    return Fault("kill", ("b",), at_us, at_us + 500_000, f"kill b for the {number}. time")


def measures(subscribers: int = 2, faults: int = 1) -> Measures:
    distribution = Distribution(QUANTILES, 0, ((80, 50), (110, 50)))
    pauses = Pauses(2, "s0/link", 350_000, 100_000)
    of_faults = [fault(number) for number in range(faults)]
    counts = tuple(10 * (number % 7) for number in range(240))
    clients = [("publisher", "p0/link"), *(("subscriber", f"s{number}/link") for number in range(subscribers))]
    return Measures(
        BEGAN_US,
        200_000,
        50_000,
        Chaos("break it", 7, "line", BEGAN_US, None, tuple(of_faults), 100.0) if faults else None,
        tuple(PhaseLatency(name, distribution, distribution) for name in (BEFORE, DURING, AFTER)),
        tuple(FaultMeasure(one, (QUANTILES,) * 3, (QUANTILES,) * 3, pauses, pauses) for one in of_faults),
        tuple(Series(name, role, "h", counts, Pause(BEGAN_US, 1), None) for role, name in clients),
        tuple(StateTime("a", state, 10, 1_000, 2_000) for state in STATES),
        ("something could not be measured",),
    )


def report(subscribers: int = 2, publishers: int = 1, **changes: object) -> Report:
    """A report without figures, which take long to draw."""
    senders = [f"p{number}/link on topic/news" for number in range(publishers)]
    pairs = [
        PairRow(sender, f"s{number}/link on topic/news", "second", 100, 100, 100, 100, {}, 0)
        for sender in senders
        for number in range(subscribers)
    ]
    found = Report(
        run_dirs=("run/line",),
        publishers=tuple(PublisherRow(sender, "topic/news", 100, 100, 0) for sender in senders),
        pairs=tuple(pairs),
        violations={},
        findings=(),
        doubts=(),
        problems=(),
        torn=(),
        logs=(),
        unknown_records=0,
    )
    return attrs.evolve(found, **changes)  # type: ignore[arg-type]


def violated(
    names: str = "s1/link on topic/news", text: str = "did something", measured: Measures | None = None
) -> Report:
    step = Step(BEGAN_US, "h", "router", "a", "delivered", text, links=("s1/link",))
    later = attrs.evolve(step, time=BEGAN_US + 1_500, source="b", links=())
    finding = Finding("lost", KEY, "p0/link on topic/news", (names,))
    return report(
        violations={"lost": 25},
        findings=(finding,),
        stories=(DeliveryStory(KEY, "p0/link on topic/news", "topic/news", (step, later), ("a note",)),),
        measures=measured,
    )
