"""Logs found and read: from run directories on any Hadoop path to what Spark's workers packed of them."""

from collections.abc import Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

import msgpack
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from failover.audit.decoding import CONTROL_BUCKET, PACKED_SCHEMA, SPARK_SCHEMA, explode, pack_files
from failover.audit.inventory import ControlRow

LEAST_BUCKETS = 2
BUCKET_BYTES = 16 << 20
"""Of logs: what is judged at a time. It takes about ten times as much memory."""


def read_packed(spark: SparkSession, run_dirs: Sequence[str]) -> DataFrame:
    """All that the files below the run directories say, by bucket of delivery keys; see `packing`. The caller caches
    it: reading is done once, and what is grouped by bucket later needs no other shuffle."""
    files = reduce(DataFrame.unionAll, _files(spark, run_dirs))
    size = files.agg(F.sum("length")).collect()[0][0] or 0
    buckets = max(LEAST_BUCKETS, size // BUCKET_BYTES)
    pack_batches: Any = partial(pack_files, buckets)
    packed = files.select("path", "content").mapInArrow(pack_batches, PACKED_SCHEMA)
    return packed.repartition(buckets, "bucket")


def keyed(packed: DataFrame) -> DataFrame:
    """What is about deliveries."""
    return packed.filter(F.col("bucket") != CONTROL_BUCKET)


def control_rows(packed: DataFrame) -> list[ControlRow]:
    """What is about links, routers and files: little, so it is judged in plain Python."""
    found = packed.filter(F.col("bucket") == CONTROL_BUCKET).select("rows").collect()
    return [ControlRow(*row) for part in found for row in msgpack.unpackb(part["rows"])]


def read_rows(spark: SparkSession, run_dirs: Sequence[str]) -> DataFrame:
    """The same as one row per (event, delivery): for a look at few of them, as it takes long."""
    files = reduce(DataFrame.unionAll, _files(spark, run_dirs)).select("path", "content")
    explode_batches: Any = explode  # pyspark's own annotation of the function is narrower than what it calls
    return files.mapInArrow(explode_batches, SPARK_SCHEMA)


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
        for paths, patterns in ((local, False), (elsewhere, True))
        if paths
    ]
