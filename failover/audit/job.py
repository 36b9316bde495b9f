"""One audit from run directories to report: which steps there are, in which order, and what Spark is asked."""

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from failover.audit import checks, deliveries, tables
from failover.audit.amnesia import forgettings
from failover.audit.audiences import memberships, terms
from failover.audit.evidence import Evidence, count, doubts, findings, pair_rows, publisher_rows
from failover.audit.inventory import ControlRow, Inventory, take_inventory
from failover.audit.lives import tell_apart
from failover.audit.narrative import narrate
from failover.audit.parties import Parties, find_parties
from failover.audit.reading import control_rows, read_rows
from failover.audit.report import Report
from failover.audit.session import spark_session
from failover.audit.witnesses import all_remembered, watched_spans


class AuditError(Exception):
    """The run directories cannot be read at all."""


def run(run_dirs: Sequence[str], master: str | None = None) -> Report:
    """Audit the logs below these directories, which together belong to one mesh."""
    spark = spark_session(master)
    try:
        rows = read_rows(spark, run_dirs)
    except AnalysisException as error:
        raise AuditError(str(error).splitlines()[0]) from None
    rows.persist()
    try:
        return _audit(spark, rows, run_dirs)
    finally:
        rows.unpersist()


def _audit(spark: SparkSession, rows: DataFrame, run_dirs: Sequence[str]) -> Report:
    found = control_rows(rows)
    inventory = take_inventory(found)
    parties = find_parties([row for row in found if row.event >= 0], inventory.logs)
    named = tell_apart(rows, [party.name for party in parties.publishers.values() if party.logged])
    if named is rows:
        report = _judge(_gather(spark, rows, found, inventory, parties), run_dirs)
        return narrate(report, rows, found, parties)
    named.persist()
    try:
        report = _judge(_gather(spark, named, found, inventory, parties), run_dirs)
        return narrate(report, named, found, parties)
    finally:
        named.unpersist()


def _judge(evidence: Evidence, run_dirs: Sequence[str]) -> Report:
    judged = (evidence.deliveries, evidence.pairs)  # counted first, then searched for what was counted
    for table in judged:
        table.persist()
    try:
        return _report(evidence, run_dirs)
    finally:
        for table in judged:
            table.unpersist()


def _gather(
    spark: SparkSession, rows: DataFrame, found: Sequence[ControlRow], inventory: Inventory, parties: Parties
) -> Evidence:
    logs = inventory.logs
    control = [row for row in found if row.event >= 0]
    stays = tables.stay_table(spark, memberships(control, parties.subscribers))
    publishers = tables.publisher_table(spark, parties)
    found_terms = terms(control, parties.subscribers)
    subscribers = tables.subscriber_table(spark, parties, found_terms)
    forgotten = forgettings(control, logs)
    cuts = tables.cut_table(spark, parties, found_terms, forgotten)
    judged = checks.judge_deliveries(deliveries.deliveries(rows), publishers, logs)
    pairs = deliveries.pairs(rows, stays)
    records = checks.judge_records(deliveries.records(rows), judged, tables.log_table(spark, logs, control))
    watched = {} if all_remembered(control, logs) else watched_spans(control, logs)
    judged_pairs = checks.judge_pairs(pairs, judged, subscribers, logs, forgotten)
    return Evidence(
        inventory,
        parties,
        judged,
        judged_pairs,
        records,
        checks.unaddressed(pairs, judged, subscribers, watched, forgotten),
        None if cuts is None else checks.cut_off(judged_pairs, judged, cuts),
    )


def _report(evidence: Evidence, run_dirs: Sequence[str]) -> Report:
    counts = count(evidence)
    inventory = evidence.inventory
    return Report(
        run_dirs=tuple(run_dirs),
        publishers=publisher_rows(counts, evidence.parties),
        pairs=pair_rows(counts, evidence.parties),
        violations=counts.violations,
        findings=findings(evidence, counts),
        doubts=tuple(doubts(evidence, counts)),
        problems=inventory.problems,
        torn=inventory.torn,
        logs=inventory.logs,
        unknown_records=counts.unknown_records,
    )
