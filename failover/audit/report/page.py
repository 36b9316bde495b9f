"""The report as one page to show to others: `audit.html`, with nothing outside itself, for phones, desks and paper.

What is said where is in `templates/`; here the report is made ready for it, and what could be endless is cut.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import attrs
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup  # a part of jinja2

from failover.audit.judge.kinds import FINDINGS_KEPT, KINDS
from failover.audit.measure.counts import STATES
from failover.audit.measure.figures import Measures, StateTime
from failover.audit.report import plots
from failover.audit.report.matrix import matrix, short_names
from failover.audit.report.report import Finding, Report, Verdict
from failover.audit.report.story import DeliveryStory, Step

STEPS_SHOWN = 400
HEADLINES = {
    Verdict.HOLDS: "Exactly once holds",
    Verdict.VIOLATED: "Exactly once is violated",
    Verdict.INCOMPLETE: "No verdict",
    Verdict.UNDECIDED: "Undecided",
    Verdict.QUALIFIED: "Exactly once holds, but not for everybody",
}
SIGNS = {
    Verdict.HOLDS: "✓",
    Verdict.VIOLATED: "✗",
    Verdict.INCOMPLETE: "!",
    Verdict.UNDECIDED: "?",
    Verdict.QUALIFIED: "!",
}


def write(report: Report, path: Path | str) -> None:
    Path(path).write_text(render(report), encoding="utf-8")


def render(report: Report) -> str:
    environment = Environment(
        loader=PackageLoader("failover.audit.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": plots.duration, "instant": instant, "count": "{:,}".format}
    return environment.get_template("audit.html.j2").render(
        report=report,
        headline=HEADLINES[report.verdict],
        sign=SIGNS[report.verdict],
        sentence=_detail(report.sentence),
        accepted=sum(row.accepted for row in report.publishers),
        owed=sum(row.owed for row in report.pairs),
        processed=sum(row.processed for row in report.pairs),
        unowed=sum(sum(row.unowed.values()) for row in report.pairs),
        unprocessed=sum(sum(row.unprocessed.values()) for row in report.pairs),
        subscribers=sorted({row.subscriber for row in report.pairs}),
        kinds=KINDS,
        matrix=matrix(report),
        short=short_names(report.publishers, report.pairs),
        violations=violations(report),
        findings_kept=FINDINGS_KEPT,
        figures=figures(report.measures),
        states=slowest(report.measures.states) if report.measures else (),
        state_names=STATES,
        quantile_text=plots.quantile_text,
        span=span(report),
        open_logs=[log for log in report.logs if not log.whole],
    )


def _detail(sentence: str) -> str:
    """What the headline does not say yet."""
    detail = sentence.partition(": ")[2]
    return detail[:1].upper() + detail[1:]


def instant(us: int) -> str:
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(report: Report) -> tuple[int, int] | None:
    """When the run was; by its clients, else by its routers."""
    if report.measures is None or not report.measures.series:
        return None
    began = report.measures.began_us
    return began, began + len(report.measures.series[0].counts) * report.measures.bin_us


def figures(measures: Measures | None) -> dict[str, Markup]:
    """The plots there is anything to plot for. Their texts are escaped by what draws them."""
    if measures is None or not measures.series:
        return {}
    drawn = {
        "narrow": plots.timeline(measures, plots.NARROW),
        "wide": plots.timeline(measures, plots.WIDE),
    }
    for name in ("accepted", "processed"):
        if any(getattr(phase, name).quantiles.count for phase in measures.phases):
            drawn[name] = plots.latencies(measures, name)
    if measures.faults:
        drawn["pauses"] = plots.pauses(measures)
    return {name: Markup(drawing) for name, drawing in drawn.items()}


@attrs.frozen(slots=True)
class ShownStep:
    """A step as the page shows it."""

    step: Step
    when: str
    marked: bool
    """About a subscriber that suffered."""


@attrs.frozen(slots=True)
class ShownViolation:
    finding: Finding
    story: DeliveryStory | None
    """Where it is told: with the first of the findings of one delivery."""
    lines: tuple[ShownStep, ...]
    told_before: bool


@attrs.frozen(slots=True)
class ShownKind:
    name: str
    total: int
    listed: tuple[ShownViolation, ...]


def violations(report: Report) -> list[ShownKind]:
    stories = {story.key: story for story in report.stories}
    told: set[str] = set()
    kinds = []
    for kind, total in report.violations.items():
        listed = []
        for finding in (finding for finding in report.findings if finding.kind == kind):
            story = None if finding.key in told else stories.get(finding.key)
            lines = _lines(story, finding) if story else ()
            listed.append(ShownViolation(finding, story, lines, finding.key in told))
            if story:
                told.add(finding.key)
        kinds.append(ShownKind(kind, total, tuple(listed)))
    return kinds


def _lines(story: DeliveryStory, finding: Finding) -> tuple[ShownStep, ...]:
    first = story.steps[0]
    names = {name.removesuffix(f" on {story.address}") for name in finding.subscribers}
    return tuple(ShownStep(step, _when(step, first), bool(names & {*step.links})) for step in story.steps[:STEPS_SHOWN])


def _when(step: Step, first: Step) -> str:
    """Since the first step, as far as both have the same clock."""
    if step.host != first.host:
        return step.clock[:-3]  # to the ms
    us = step.time - first.time
    return f"{us / 1_000_000:+.3f} s" if abs(us) >= 10_000_000 else f"{us / 1000:+.1f} ms"


def slowest(states: Sequence[StateTime]) -> list[tuple[str, int, int, StateTime]]:
    """(state, records, mean, the router that held one longest) over all routers."""
    found = []
    for name in STATES:
        each = [time for time in states if time.state == name]
        total = sum(time.count for time in each)
        if total:
            mean = round(sum(time.mean_us * time.count for time in each) / total)
            found.append((name, total, mean, max(each, key=lambda time: time.max_us)))
    return found
