"""What a report tells beyond the verdict: how the run went in figures, and the stories of what was violated."""

from collections.abc import Iterator, Sequence

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from failover.audit.faults import find_chaos
from failover.audit.inventory import ControlRow
from failover.audit.lookup import entries_of
from failover.audit.measuring import measure
from failover.audit.parties import Parties
from failover.audit.report import Finding, Report
from failover.audit.story import Entry, Setting, Story, tell
from topic.identity import KEY_LENGTH

STORIES_KEPT = 5
"""Findings of one kind whose deliveries' stories are told."""


def narrate(report: Report, rows: DataFrame, control: Sequence[ControlRow], parties: Parties) -> Report:
    """The report with its measures and stories; `rows` are those it was judged by."""
    found = find_chaos(report.run_dirs, rows.sparkSession)
    faults = found.chaos.faults if found.chaos else ()
    setting = Setting([row for row in control if row.event >= 0], report.logs, parties, faults)
    return attrs.evolve(
        report,
        measures=measure(rows, report.logs, parties, found),
        stories=tuple(_stories(report.findings, rows, setting)),
    )


def _stories(findings: Sequence[Finding], rows: DataFrame, setting: Setting) -> Iterator[Story]:
    """One pass over the rows for all of them, and none where there is nothing to tell of."""
    keys = _keys(findings)
    if not keys:
        return
    key = F.substring("key", 1, KEY_LENGTH)  # without what tells the uses of a tag apart: the story tells all
    told: dict[str, list[Entry]] = {}
    for entry in entries_of(rows.filter(key.isin(keys))):
        told.setdefault(entry.key[:KEY_LENGTH], []).append(entry)
    yield from (tell(key, told[key], setting) for key in keys)


def _keys(findings: Sequence[Finding]) -> list[str]:
    kept: dict[str, set[str]] = {}
    for finding in findings:
        keys = kept.setdefault(finding.kind, set())
        if len(keys) < STORIES_KEPT:
            keys.add(finding.key)
    return list(dict.fromkeys(finding.key for finding in findings if finding.key in kept[finding.kind]))
