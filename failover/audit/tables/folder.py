"""The folder that tables are written to: on any path that Hadoop knows, and never one that is somebody else's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from failover.audit.read.files import AuditError

MARK = "_ONCEMESH_TABLES"
"""An empty file that says that the folder is ours. Names that begin so are no data for Spark."""


class TablesFolder:
    """Raises `AuditError` if the folder has files that are no tables of ours, or cannot be looked at."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        """`folder`: what has no scheme is a path of this machine, as run directories are."""
        self.folder = folder
        self._uri = folder.rstrip("/") if "://" in folder else f"file:{Path(folder).absolute()}"
        java: Any = spark
        self._path = java._jvm.org.apache.hadoop.fs.Path
        with self._told():
            self._files = self._path(self._uri).getFileSystem(java._jsc.hadoopConfiguration())
            if not self._is_ours():
                raise AuditError(
                    f"{folder}: not empty, and not the tables of an earlier audit; expected a new or empty folder"
                )

    def _is_ours(self) -> bool:
        path = self._path(self._uri)
        if not self._files.exists(path):
            return True
        if not self._files.getFileStatus(path).isDirectory():
            return False
        names = {status.getPath().getName() for status in self._files.listStatus(path)}
        return not names or MARK in names

    def write(self, name: str, table: DataFrame) -> None:
        """One table, in place of the one of that name that an earlier audit wrote."""
        with self._told():
            self._files.create(self._path(self._uri, MARK), True).close()
            table.write.mode("overwrite").parquet(f"{self._uri}/{name}")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (Py4JJavaError, PySparkException) as error:
            words = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
            raise AuditError(f"{self.folder}: {words.splitlines()[0]}") from None
