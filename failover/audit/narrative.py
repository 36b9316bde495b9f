"""What a report tells beyond the verdict: how the run went in figures, and the stories of what was violated."""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from failover.audit.case import Case
from failover.audit.facts import epoch_of
from failover.audit.faults import Found
from failover.audit.inventory import ControlRow
from failover.audit.measuring import measures
from failover.audit.metering import Metered
from failover.audit.packing import KEY_TYPE, Ints, Rows, hashed, unpack
from failover.audit.reading import keyed
from failover.audit.report import Finding, Report
from failover.audit.story import Entry, Setting, Story, tell
from topic.identity import NAME_LENGTH

STORIES_KEPT = 5
"""Findings of one kind whose deliveries' stories are told."""


def narrate(
    report: Report,
    packed: DataFrame,
    control: Sequence[ControlRow],
    case: Case,
    found: Found,
    metered: Metered,
) -> Report:
    """The report with its measures and stories; `packed` is what it was judged by."""
    faults = found.chaos.faults if found.chaos else ()
    setting = Setting([row for row in control if row.event >= 0], report.logs, case.parties, faults)
    return attrs.evolve(
        report,
        measures=measures(metered, list(case.logs.values()), case.parties, found),
        stories=tuple(_stories(report.findings, packed, setting)),
    )


def _stories(findings: Sequence[Finding], packed: DataFrame, setting: Setting) -> Iterator[Story]:
    """One pass over the rows for all of them, and none where there is nothing to tell of."""
    keys = _keys(findings)
    if not keys:
        return
    pick: Any = partial(pick_entries, keys)
    told: dict[str, list[Entry]] = {}
    for row in keyed(packed).select("rows").mapInArrow(pick, "entries binary").collect():
        for entry in pickle.loads(row["entries"]):
            told.setdefault(entry.key, []).append(entry)
    yield from (tell(key, told[key], setting) for key in keys)


def _keys(findings: Sequence[Finding]) -> list[str]:
    kept: dict[str, set[str]] = {}
    for finding in findings:
        keys = kept.setdefault(finding.kind, set())
        if len(keys) < STORIES_KEPT:
            keys.add(finding.key)
    return list(dict.fromkeys(finding.key for finding in findings if finding.key in kept[finding.kind]))


def pick_entries(keys: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What packed rows tell of these deliveries. Runs inside Spark's Python workers."""
    wanted = hashed(np.array([key.encode() for key in keys], KEY_TYPE))
    for batch in batches:
        for part in batch.column("rows"):
            rows = unpack([part.as_buffer()])
            at = np.flatnonzero(np.isin(hashed(rows.key), wanted))
            found = [entry for entry in _entries(rows, at) if entry.key in keys]
            if found:
                yield pa.RecordBatch.from_pydict({"entries": pa.array([pickle.dumps(found)], pa.binary())})


def _entries(rows: Rows, at: Ints) -> Iterator[Entry]:
    texts = [*rows.strings, None]
    for index in at.tolist():
        log, key = rows.logs[rows.log[index]], rows.key[index].decode()
        epoch = texts[rows.epoch[index]] or ""
        yield Entry(
            source=log.source,
            role=log.role,
            incarnation=log.incarnation,
            host=log.host,
            place=int(rows.place[index]),
            time=int(rows.time[index]),
            hlc=int(rows.hlc[index]),
            event=int(rows.event[index]),
            outcome=int(rows.outcome[index]),
            n=int(rows.n[index]),
            epoch_hlc=epoch_of(epoch)[0],
            publisher=key[:NAME_LENGTH],
            subscriber=texts[rows.subscriber[index]],
            peer=texts[rows.peer[index]],
            detail=texts[rows.detail[index]],
            key=key,
        )
