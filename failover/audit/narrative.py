"""What a report tells beyond the verdict: how the run went in figures, and the stories of what was violated."""

from collections.abc import Iterator, Sequence

import attrs

from failover.audit.case import Case
from failover.audit.faults import Found
from failover.audit.inventory import ControlRow
from failover.audit.measuring import measures
from failover.audit.metering import Metered
from failover.audit.reading import Logs
from failover.audit.report import Finding, Report
from failover.audit.story import Entry, Setting, Story, tell

STORIES_KEPT = 5
"""Findings of one kind whose deliveries' stories are told."""


def narrate(
    report: Report,
    logs: Logs,
    control: Sequence[ControlRow],
    case: Case,
    found: Found,
    metered: Metered,
) -> Report:
    """The report with its measures and stories; `logs` is what it was judged by."""
    faults = found.chaos.faults if found.chaos else ()
    setting = Setting([row for row in control if row.event >= 0], report.logs, case.parties, faults)
    return attrs.evolve(
        report,
        measures=measures(metered, list(case.logs.values()), case.parties, found),
        stories=tuple(_stories(report.findings, logs, setting)),
    )


def _stories(findings: Sequence[Finding], logs: Logs, setting: Setting) -> Iterator[Story]:
    """One pass over the rows for all of them, and none where there is nothing to tell of."""
    keys = _keys(findings)
    if not keys:
        return
    told: dict[str, list[Entry]] = {}
    for entry in logs.entries(keys):
        told.setdefault(entry.key, []).append(entry)
    yield from (tell(key, told[key], setting) for key in keys)


def _keys(findings: Sequence[Finding]) -> list[str]:
    kept: dict[str, set[str]] = {}
    for finding in findings:
        keys = kept.setdefault(finding.kind, set())
        if len(keys) < STORIES_KEPT:
            keys.add(finding.key)
    return list(dict.fromkeys(finding.key for finding in findings if finding.key in kept[finding.kind]))
