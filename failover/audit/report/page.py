"""Writes the report as one page, `audit.html`, for phones, desks and paper. The page loads nothing from elsewhere.

`templates/` has the texts. This module prepares the report for them, and shortens lists that could be very long.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import attrs
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup  # markupsafe comes with jinja2

from failover.audit.judge.kinds import KINDS
from failover.audit.measure.counts import STATES
from failover.audit.measure.figures import Measures, StateTime
from failover.audit.report import plots
from failover.audit.report.report import Finding, PairRow, PublisherRow, Report, Verdict
from failover.audit.report.story import DeliveryStory, Step

STEPS_SHOWN = 400
OPENINGS = {
    Verdict.HOLDS: ("✓", "Exactly once holds"),
    Verdict.VIOLATED: ("✗", "Exactly once is violated"),
    Verdict.INCOMPLETE: ("!", "No verdict"),
    Verdict.UNDECIDED: ("?", "Undecided"),
    Verdict.QUALIFIED: ("!", "Exactly once holds, but not for everybody"),
}
"""The sign and the headline with which the page shows each verdict."""
COLUMNS = 8
"""At most this number of publishers have a column of their own. If there are more, one column has the totals."""
ROWS = 200
_NUMBER = re.compile(r"(?<![^\s(])[0-9]{4,18}(?=[\s,;:.)]|$)(?![.:][^\s])")


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
    environment.filters |= {"duration": plots.duration, "instant": instant, "count": "{:,}".format, "counts": counts}
    sign, headline = OPENINGS[report.verdict]
    return environment.get_template("audit.html.j2").render(
        report=report,
        sign=sign,
        headline=headline,
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
        curves=plots.CURVES,
        stories={story.key: story for story in report.stories},
        told_with={finding.key: finding for finding in reversed(report.findings)},
        lines=_lines,
        figures=figures(report.measures),
        states=slowest(report.measures.states) if report.measures else (),
        state_names=STATES,
        quantile_text=plots.quantile_text,
        span=span(report),
        open_logs=[log for log in report.logs if not log.whole],
    )


def counts(text: str) -> str:
    """Format the numbers in the verdict's sentence as on the rest of the page. Numbers in names and times stay as they
    are."""
    return _NUMBER.sub(lambda found: f"{int(found[0]):,}", text)


def _detail(sentence: str) -> str:
    """The part of the verdict's sentence that the headline does not already say."""
    detail = sentence.partition(": ")[2]
    return detail[:1].upper() + detail[1:]


def instant(us: int) -> str:
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(report: Report) -> tuple[int, int] | None:
    """The beginning and the end of the run, in µs, by the figures of the run. None if no client has figures."""
    if report.measures is None or not report.measures.series:
        return None
    began = report.measures.began_us
    return began, began + len(report.measures.series[0].counts) * report.measures.bin_us


def figures(measures: Measures | None) -> dict[str, Markup]:
    """The plots that have data, as SVG. The code that draws them escapes their texts."""
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


def _lines(story: DeliveryStory, finding: Finding) -> list[tuple[Step, str, bool]]:
    """The steps of a story to show. Each comes with its time, and with whether it is about a subscriber of the
    violation."""
    first = story.steps[0]
    names = {name.removesuffix(f" on {story.address}") for name in finding.subscribers}
    return [(step, _when(step, first), bool(names & {*step.links})) for step in story.steps[:STEPS_SHOWN]]


def _when(step: Step, first: Step) -> str:
    """The time since the first step, if both times are by the same clock."""
    if step.host != first.host:
        return step.clock[:-3]  # both times are cut to milliseconds
    us = step.time - first.time
    return f"{us / 1_000_000:+.3f} s" if abs(us) >= 10_000_000 else f"{us / 1000:+.1f} ms"


def slowest(states: Sequence[StateTime]) -> list[tuple[str, int, int, StateTime]]:
    """For each state, over all routers: its name, the number of records, their mean time in it, and the row of the
    router with the longest time."""
    found = []
    for name in STATES:
        each = [time for time in states if time.state == name]
        total = sum(time.count for time in each)
        if total:
            mean = round(sum(time.mean_us * time.count for time in each) / total)
            found.append((name, total, mean, max(each, key=lambda time: time.max_us)))
    return found


@attrs.frozen(slots=True)
class Cell:
    """The counts of one pair of publisher and subscriber, or of all pairs of a subscriber."""

    processed: int
    owed: int
    violations: int
    unknown: int

    @property
    def look(self) -> str:
        return "bad" if self.violations else "unsure" if self.unknown else "good"


@attrs.frozen(slots=True)
class Matrix:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    left_out: int
    """How many subscribers do not fit on the page. None of them is worse than a shown one."""


def matrix(report: Report) -> Matrix:
    short = short_names(report.publishers, report.pairs)
    publishers = sorted({row.publisher for row in report.pairs})
    groups = [[name] for name in publishers] if len(publishers) <= COLUMNS else [publishers]
    columns = tuple(short[group[0]] if len(group) == 1 else f"all {len(group)} publishers" for group in groups)
    rows = [
        (short[name], tuple(_cell([row for row in mine if row.publisher in group]) for group in groups))
        for name, mine in _by_subscriber(report.pairs)
    ]
    return Matrix(columns, tuple(sorted(rows[:ROWS], key=lambda row: row[0])), len(rows[ROWS:]))


def short_names(publishers: Sequence[PublisherRow], pairs: Sequence[PairRow]) -> dict[str, str]:
    """Short names of links: only their containers, if these are unique."""
    sending = {row.publisher for row in publishers} | {row.publisher for row in pairs}
    return _shortened(sending) | _shortened({row.subscriber for row in pairs} - sending)


def _shortened(names: set[str]) -> dict[str, str]:
    containers = {name: name.partition("/")[0] for name in names}
    return containers if len(set(containers.values())) == len(names) else {name: name for name in names}


def _by_subscriber(pairs: Sequence[PairRow]) -> list[tuple[str, list[PairRow]]]:
    """The pairs of each subscriber. The worst subscriber comes first."""
    found: dict[str, list[PairRow]] = {}
    for row in pairs:
        found.setdefault(row.subscriber, []).append(row)
    worst = {
        name: (sum(sum(row.violations.values()) for row in rows), sum(row.unknown for row in rows))
        for name, rows in found.items()
    }
    return sorted(sorted(found.items()), key=lambda item: worst[item[0]], reverse=True)


def _cell(rows: Sequence[PairRow]) -> Cell | None:
    if not rows:
        return None
    violations = sum(sum(row.violations.values()) for row in rows)
    unknown = sum(row.unknown for row in rows)
    return Cell(sum(row.processed for row in rows), sum(row.owed for row in rows), violations, unknown)
