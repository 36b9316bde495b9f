"""The folder into which the audit writes its tables, on any path that Hadoop knows. The audit never uses a folder that
has other files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from failover.audit.read.files import AuditError

MARK = "_ONCEMESH_TABLES"
"""The name of an empty file, which marks a folder as made by the audit. Spark reads no data from files with such a
name."""


class TablesFolder:
    """The folder for the tables. If it has other files, or cannot be read, an `AuditError` is raised. The constructor
    raises the error if the folder is on this machine. `open` raises it if only Hadoop can read the folder."""

    def __init__(self, folder: str) -> None:
        """`folder`: a path without a scheme is on this machine, as for run directories."""
        self.folder = folder
        self._is_local = "://" not in folder
        self._uri = f"file:{Path(folder).absolute()}" if self._is_local else folder.rstrip("/")
        if self._is_local:
            try:
                self._check(_names(Path(folder)))
            except OSError as error:
                raise AuditError(f"{folder}: {error.strerror}") from None

    def open(self, spark: SparkSession) -> None:
        """Prepare the folder, so that `write` can be called."""
        java: Any = spark
        self._path = java._jvm.org.apache.hadoop.fs.Path
        with self._told():
            self._files = self._path(self._uri).getFileSystem(java._jsc.hadoopConfiguration())
            if not self._is_local:
                self._check(self._names())

    def _check(self, names: set[str] | None) -> None:
        if names is None or (names and MARK not in names):
            raise AuditError(
                f"{self.folder}: not empty, and not the tables of an earlier audit; expected a new or empty folder"
            )

    def _names(self) -> set[str] | None:
        """The names of the files in a folder that Hadoop reads; None if the path is a file."""
        path = self._path(self._uri)
        if not self._files.exists(path):
            return set()
        if not self._files.getFileStatus(path).isDirectory():
            return None
        return {status.getPath().getName() for status in self._files.listStatus(path)}

    def write(self, name: str, table: DataFrame) -> None:
        """Write one table, which replaces the table with this name that an earlier audit wrote."""
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


def _names(folder: Path) -> set[str]:
    """The names of the files in a folder on this machine; empty if the folder does not exist. Raises `OSError` if the
    path is a file, or cannot be read."""
    try:
        return {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return set()
