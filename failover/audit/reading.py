"""Logs found and read: from run directories on any Hadoop path to rows of Spark, hashed by delivery."""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from failover.audit.decoding import SPARK_SCHEMA, explode
from failover.audit.inventory import ControlRow

CONTROL = ("source", "role", "incarnation", "host", "place", "time", "hlc", "event", "address", "publisher")
CONTROL_COLUMNS = (*CONTROL, "subscriber", "peer", "epoch_hlc", "home", "detail")


def read_rows(spark: SparkSession, run_dirs: Sequence[str]) -> DataFrame:
    """Every row of every segment and mesh.json below the run directories.

    All rows of one delivery are in one partition, so what is grouped by delivery later needs no other shuffle; the
    caller caches the rows, as they are the expensive part.
    """
    files = reduce(DataFrame.unionAll, _files(spark, run_dirs))
    explode_batches: Any = explode  # pyspark's own annotation of the function is narrower than what it calls
    return files.mapInArrow(explode_batches, SPARK_SCHEMA).repartition("key")


def _files(spark: SparkSession, run_dirs: Sequence[str]) -> list[DataFrame]:
    """The files below local directories, named literally, and those below paths that only Hadoop knows, which may be
    patterns. Hadoop would take a colon for the end of a scheme, and stumble over one in a neighbour of a pattern."""
    local = [f"file:{Path(path).absolute()}" for path in run_dirs if Path(path).exists()]
    elsewhere = [path for path in run_dirs if not Path(path).exists()]
    return [
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "{mesh.json,*.oml}")
        .option("__globPaths__", "true" if patterns else "false")
        .load(paths)
        .select("path", "content")
        for paths, patterns in ((local, False), (elsewhere, True))
        if paths
    ]


def control_rows(rows: DataFrame) -> list[ControlRow]:
    """What is about links, routers and files rather than deliveries: little, so it is judged in plain Python."""
    found = rows.filter(F.col("key").isNull()).select(*CONTROL_COLUMNS).collect()
    return [ControlRow(*row) for row in found]
