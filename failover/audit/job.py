"""One audit from run directories to report: which steps there are, in which order, and what Spark is asked.

Spark reads the files, brings what tells of one delivery together, and runs the checks where it is: `packing` and
`judging` are what its workers do. The driver sees what is about links and routers, and counts.
"""

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from failover.audit.case import Case, make_case
from failover.audit.counting import Tally
from failover.audit.evidence import doubts, findings, pair_rows, publisher_rows, violations
from failover.audit.exceptions import exceptions
from failover.audit.faults import find_chaos
from failover.audit.happenings import crossings, router_rows
from failover.audit.inventory import Inventory, take_inventory
from failover.audit.judging import judge_bucket
from failover.audit.measuring import make_frame
from failover.audit.metering import Frame
from failover.audit.narrative import narrate
from failover.audit.ordering import judge_order
from failover.audit.reading import control_rows, keyed, read_packed
from failover.audit.report import Report
from failover.audit.session import spark_session

COUNTED = ""
"""Where a pair of publisher and subscriber is named: counts, of all pairs."""
JUDGED_SCHEMA = "pair string, rows binary"


class AuditError(Exception):
    """The run directories cannot be read at all."""


def run(run_dirs: Sequence[str], master: str | None = None) -> Report:
    """Audit the logs below these directories, which together belong to one mesh."""
    spark = spark_session(master)
    try:
        packed = read_packed(spark, run_dirs)
    except AnalysisException as error:
        raise AuditError(str(error).splitlines()[0]) from None
    packed.persist()
    try:
        control = control_rows(packed)
        inventory = take_inventory(control)
        chaos = find_chaos(run_dirs, spark)
        case = make_case(control, inventory, chaos.chaos)
        tally = _judge(packed, case, make_frame(list(case.logs.values()), case.parties, chaos))
        report = make_report(tally, case, inventory, run_dirs)
        return narrate(report, packed, control, case, chaos, tally.metered)
    finally:
        packed.unpersist()


def _judge(packed: DataFrame, case: Case, frame: Frame) -> Tally:
    def judge(table: pa.Table) -> pa.Table:
        return _judge_table(table, case, frame)

    judged = keyed(packed).groupBy("bucket").applyInArrow(judge, JUDGED_SCHEMA)
    judged.persist()
    try:
        ordered = judged.filter(judged.pair != COUNTED).groupBy("pair").applyInArrow(_judge_order, JUDGED_SCHEMA)
        tally = Tally()
        for counted in (judged.filter(judged.pair == COUNTED), ordered):
            for row in counted.collect():
                tally.add(pickle.loads(row["rows"]))
        return tally
    finally:
        judged.unpersist()


def _judge_table(table: pa.Table, case: Case, frame: Frame) -> pa.Table:
    tally, ordered = judge_bucket(_parts(table), case, frame)
    return _table([(COUNTED, pickle.dumps(tally)), *ordered])


def _judge_order(table: pa.Table) -> pa.Table:
    tally = judge_order(table.column("pair")[0].as_py(), _parts(table))
    return _table([(COUNTED, pickle.dumps(tally))])


def _parts(table: pa.Table) -> Iterator[Any]:
    return (part.as_buffer() for part in table.column("rows"))


def _table(rows: Sequence[tuple[str, bytes]]) -> pa.Table:
    pairs, parts = zip(*rows, strict=True)
    return pa.table({"pair": pa.array(pairs, pa.string()), "rows": pa.array(parts, pa.binary())})


def make_report(tally: Tally, case: Case, inventory: Inventory, run_dirs: Sequence[str]) -> Report:
    return Report(
        run_dirs=tuple(run_dirs),
        publishers=publisher_rows(tally, case),
        pairs=pair_rows(tally, case),
        violations=violations(tally),
        findings=findings(tally, case),
        doubts=tuple(doubts(tally, case)),
        exceptions=exceptions(tally, case),
        problems=inventory.problems,
        torn=inventory.torn,
        logs=inventory.logs,
        unknown_records=tally.unknown_records,
        routers=router_rows(tally.happened, inventory.logs, case.turns),
        crossings=crossings(tally.happened, case.instants),
    )
