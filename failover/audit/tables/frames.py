"""The tables as DataFrames, and as Parquet.

Spark groups the rows by bucket of delivery keys, as for a verdict, and keeps them in its cache until the session ends
(`spark.catalog.clearCache()`), so several queries need one reading. The workers judge the buckets with the functions of
`judge`, and do so again for each query. To judge the buckets of a DataFrame only once, cache the DataFrame. The rows
about links and routers are few, so this process holds all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from failover.audit.bucket import judge_rows
from failover.audit.judge.kinds import SHARED
from failover.audit.judge.order import KIND, overtaken
from failover.audit.judge.queues.messages import apart
from failover.audit.mesh.case import Case, make_case
from failover.audit.read.columns import tags_of, unpack
from failover.audit.read.files import distinct
from failover.audit.read.inventory import take_inventory
from failover.audit.read.spark import WORKED_SCHEMA, SparkLogs, contents_of, parts_of
from failover.audit.tables.deliveries import JUDGED, delivery_rows
from failover.audit.tables.entries import event_rows
from failover.audit.tables.folder import TablesFolder
from failover.audit.tables.links import link_rows
from failover.audit.tables.schema import DELIVERIES, EVENTS, LINKS, spark_schema

OVERTAKEN_SCHEMA = "key string, use int, subscriber string"


def deliveries(spark: SparkSession, run_dirs: Sequence[str]) -> DataFrame:
    """Return a row for each delivery and subscriber, see `schema.DELIVERIES`. `run_dirs`, paths that Hadoop reads,
    belong to one mesh. Raises `AuditError` if there are no logs."""
    logs = SparkLogs(spark, distinct(run_dirs), tagged=True)
    return _deliveries(logs, _case(logs))


def events(spark: SparkSession, run_dirs: Sequence[str]) -> DataFrame:
    """Return the entries of all logs as rows (see `schema.EVENTS`). An entry about several deliveries has a row for
    each of them.

    All entries are there, as the logs have them: their clocks are not corrected, and they have no verdict.
    """
    return _events(SparkLogs(spark, distinct(run_dirs)))


def links(spark: SparkSession, run_dirs: Sequence[str]) -> DataFrame:
    """Return a row for each attach, see `schema.LINKS`."""
    logs = SparkLogs(spark, distinct(run_dirs))
    return _links(logs, _case(logs))


def write_tables(logs: SparkLogs, folder: TablesFolder) -> None:
    """Write all tables as Parquet, each into a folder of its own. The logs have to be opened with `tagged`."""
    case = _case(logs)
    folder.write("deliveries", _deliveries(logs, case))
    folder.write("events", _events(logs))
    folder.write("links", _links(logs, case))


def _case(logs: SparkLogs) -> Case:
    control = logs.control()
    return make_case(control, take_inventory(control), logs.some())


def _deliveries(logs: SparkLogs, case: Case) -> DataFrame:
    def judged(table: pa.Table) -> pa.Table:
        return delivery_rows(judge_rows(case, *apart(unpack(parts_of(table)))), case, tags_of(parts_of(table)))

    found = logs.buckets().groupBy("bucket").applyInArrow(judged, spark_schema(JUDGED))
    late = F.broadcast(_overtaken(logs, case)).withColumn("late", F.lit(True))
    told = F.array(F.struct(F.lit(KIND).alias("kind"), F.lit(None).cast("string").alias("router")))
    violations = F.when(F.col("late"), F.concat("violations", told)).otherwise(F.col("violations"))
    whole = found.join(late, ["key", "use", "subscriber"], "left").withColumn("violations", violations)
    return whole.withColumn("verdict", _verdict()).select(*(column.name for column in DELIVERIES))


def _verdict() -> Any:
    """The verdict of a row: the worst one that applies to it."""
    return (
        F.when(F.size("violations") > 0, "violated")
        .when(F.col("unknown"), "unknown")
        .when(F.col("left_out") == "there", "left out")
        .when(F.col("owed") | (F.col("unowed") == SHARED), "holds")
        .otherwise("not owed")
    )


def _overtaken(logs: SparkLogs, case: Case) -> DataFrame:
    """The few deliveries that subscribers got out of order. To find them, Spark moves two places of each delivery and
    subscriber between executors."""

    def packed(table: pa.Table) -> pa.Table:
        names, parts = zip(("", b""), *judge_rows(case, apart(unpack(parts_of(table)))[0]).order(), strict=True)
        return pa.table({"name": pa.array(names[1:], pa.string()), "rows": pa.array(parts[1:], pa.binary())})

    def judged(table: pa.Table) -> pa.Table:
        keys, uses, _ = overtaken(parts_of(table))
        _, subscriber = table.column("name")[0].as_py().split(" ")
        found = {"key": pa.array(keys).cast(pa.string()), "use": pa.array(uses, pa.int32())}
        return pa.table(found | {"subscriber": pa.repeat(subscriber, len(keys))})

    order = logs.buckets().groupBy("bucket").applyInArrow(packed, WORKED_SCHEMA)
    return order.groupBy("name").applyInArrow(judged, OVERTAKEN_SCHEMA)


def _events(logs: SparkLogs) -> DataFrame:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return event_rows(contents_of(batches))

    # Typed as `Any`, because the annotation in pyspark is narrower than what Spark accepts.
    told: Any = read
    segments = logs.files.filter(F.col("path").endswith(".oml")).select("path", "content")
    return segments.mapInArrow(told, spark_schema(EVENTS))


def _links(logs: SparkLogs, case: Case) -> DataFrame:
    return logs.spark.createDataFrame([*link_rows(case, logs.control())], spark_schema(LINKS))
