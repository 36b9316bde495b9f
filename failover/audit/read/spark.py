"""Reads the logs of a run with Spark, and runs functions on them. It is for logs that are large, or on other machines.

Spark reads the files, brings all rows about one delivery into one bucket, and runs the functions where the bucket is.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import msgpack
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from failover.audit.read.files import AuditError, Progress, ignore
from failover.audit.read.inventory import ControlRow
from failover.audit.read.segments import CONTROL_BUCKET, Left, OnBucket, OnJoined, buckets, pack_files
from failover.audit.read.session import spark_session

OF_BUCKET = ""
"""Stands in place of the name of a part, in a row that has the result of a bucket."""
PACKED_SCHEMA, WORKED_SCHEMA, FOUND_SCHEMA = "bucket int, rows binary", "name string, rows binary", "found binary"
TICK_S = 0.2
Answer = TypeVar("Answer")


@contextmanager
def spark_logs(
    run_dirs: Sequence[str], master: str | None, progress: Progress, *, tagged: bool = False
) -> Iterator["SparkLogs"]:
    logs = SparkLogs(spark_session(master), run_dirs, progress, tagged=tagged)
    try:
        yield logs
    finally:
        logs.close()


class SparkLogs:
    """The logs of a run, read by Spark; it implements `logs.Logs`. Spark reads the files once. It moves each row once,
    to the executor that judges its bucket."""

    def __init__(
        self, spark: SparkSession, run_dirs: Sequence[str], progress: Progress = ignore, *, tagged: bool = False
    ) -> None:
        """`tagged`: as in `Packer`. Raises `AuditError` if there are no logs."""
        self.spark, self._progress = spark, progress
        try:
            self.files = reduce(DataFrame.unionAll, _files(spark, run_dirs)).select("path", "length", "content")
        except AnalysisException as error:
            raise AuditError(str(error).splitlines()[0]) from None
        number, size = self.files.agg(F.count("length"), F.sum("length")).collect()[0]
        if not number:
            raise AuditError(f"{', '.join(run_dirs)}: no mesh.json and no delivery logs found")
        self._size, self._read = size, spark.sparkContext.accumulator(0)
        number = buckets(size)
        # Typed as `Any`, because the annotation in pyspark is narrower than what Spark accepts.
        pack: Any = partial(_pack, number, self._read, tagged)
        packed = self.files.select("path", "content").mapInArrow(pack, PACKED_SCHEMA)
        self._packed = packed.repartition(number, "bucket").persist()

    def close(self) -> None:
        self._packed.unpersist()

    def control(self) -> list[ControlRow]:
        with _watched(self._read, self._size, self._progress):
            found = self._packed.filter(F.col("bucket") == CONTROL_BUCKET).select("rows").collect()
        return [ControlRow(*row) for part in found for row in msgpack.unpackb(part["rows"])]

    def some(self) -> Iterator[bytes]:
        return (row["rows"] for row in self._packed.filter(F.col("bucket") == 0).select("rows").collect())

    def work(self, on_bucket: OnBucket[Left], on_joined: OnJoined[Left]) -> Iterator[Left]:
        def worked(table: pa.Table) -> pa.Table:
            left, named = on_bucket(parts_of(table))
            return _table([(OF_BUCKET, pickle.dumps(left)), *named])

        def joined(table: pa.Table) -> pa.Table:
            name = table.column("name")[0].as_py()
            return _table([(OF_BUCKET, pickle.dumps(on_joined(name, parts_of(table))))])

        left = self.buckets().groupBy("bucket").applyInArrow(worked, WORKED_SCHEMA)
        left.persist()
        try:
            of_names = left.filter(left.name != OF_BUCKET).groupBy("name").applyInArrow(joined, WORKED_SCHEMA)
            for found in (left.filter(left.name == OF_BUCKET), of_names):
                yield from (pickle.loads(row["rows"]) for row in found.collect())
        finally:
            left.unpersist()

    def ask(self, question: Callable[[Iterable[bytes]], Answer]) -> Iterator[Answer]:
        def answered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield _batch(found=pa.array([pickle.dumps(question(parts_of(batch)))], pa.binary()))

        asked: Any = answered  # pyspark's annotation is narrower than the functions that it accepts
        found = self.buckets().select("rows").mapInArrow(asked, FOUND_SCHEMA).collect()
        return (pickle.loads(row["found"]) for row in found)

    def text(self, path: str) -> str | None:
        if Path(path).parent.is_dir():  # the name of the file may not be valid for Hadoop
            return Path(path).read_text() if Path(path).exists() else None
        try:
            rows = self.spark.read.text(path, wholetext=True).collect()
        except PySparkException:  # Spark found no such file
            return None
        return rows[0][0] if rows else None

    def buckets(self) -> DataFrame:
        """The packed rows about deliveries, with the columns `bucket` and `rows`. There is one row for each part of a
        bucket."""
        return self._packed.filter(F.col("bucket") != CONTROL_BUCKET)


def _files(spark: SparkSession, run_dirs: Sequence[str]) -> list[DataFrame]:
    """Return two sets of files: the files below local directories, and the files below paths that only Hadoop knows.

    Names of local directories are literal. The other paths may be patterns: Hadoop takes a colon in a path for the end
    of a scheme, and fails if a file beside the matches of a pattern has a colon in its name.
    """
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


@contextmanager
def _watched(read: Accumulator[int], size: int, progress: Progress) -> Iterator[None]:
    """Report how many bytes the workers have read, while this thread waits for them."""
    done = Event()

    def watch() -> None:
        while not done.wait(TICK_S):
            progress(min(read.value, size), size)  # if a task is repeated, its bytes are counted again

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    progress(size, size)


# workers run the functions from here on


def _pack(
    buckets: int, read: Accumulator[int], tagged: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for packed in pack_files(_counted(contents_of(batches), read), buckets, tagged=tagged):
        yield _batch(bucket=pa.array([packed[0]], pa.int32()), rows=pa.array([packed[1]], pa.binary()))


def _counted(files: Iterable[tuple[str, bytes]], read: Accumulator[int]) -> Iterator[tuple[str, bytes]]:
    for path, content in files:
        yield path, content
        read.add(len(content))


def contents_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and contents of files."""
    for batch in batches:
        for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
            yield path.as_py().removeprefix("file:"), content.as_py()


def _batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def parts_of(rows: pa.Table | pa.RecordBatch) -> Iterator[Any]:
    return (part.as_buffer() for part in rows.column("rows"))


def _table(rows: Sequence[tuple[str, bytes]]) -> pa.Table:
    names, parts = zip(*rows, strict=True)
    return pa.table({"name": pa.array(names, pa.string()), "rows": pa.array(parts, pa.binary())})
