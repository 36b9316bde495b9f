"""What executors of a cluster are shipped: it runs alone, wherever it is unpacked."""

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from failover.audit.read import bundle
from failover.audit.read.files import SUBMITTED
from failover.audit.read.session import _settings

DOCS = Path(__file__).parents[3] / "docs/audit.md"
WORK = """
import sys, numpy, pandas, pyarrow.compute, pyarrow, msgpack, topic.journal, failover.audit
for module in (numpy, pandas, pyarrow, msgpack, topic.journal, failover.audit):
    assert module.__file__.startswith(sys.prefix), module
print(sys.prefix)
"""


def test_the_archive_is_a_python_of_its_own(tmp_path: Path) -> None:
    archive = tmp_path / "python.tar.gz"
    written = subprocess.run([sys.executable, "-m", "failover.audit.read.bundle", str(archive)], capture_output=True)
    assert (written.returncode, written.stdout, written.stderr) == (0, b"", b"")
    [said] = re.findall(r"some (\d+) MiB \(`failover/audit/read/bundle.py`\)", " ".join(DOCS.read_text().split()))
    assert archive.stat().st_size / 2**20 == pytest.approx(int(said), rel=0.15)
    home = tmp_path / "unpacked"
    with tarfile.open(archive) as packed:
        packed.extractall(home, filter="data")
    command = [str(home / "bin/python3"), "-c", WORK]
    ran = subprocess.run(command, env={"LD_LIBRARY_PATH": str(home / "lib")}, capture_output=True, text=True, cwd=home)
    assert ran.stdout.strip() == str(home), ran.stderr


def test_a_cluster_is_shipped_its_python_and_one_machine_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "write", Path.touch)
    monkeypatch.setenv("PYSPARK_PYTHON", "whatever")
    assert "spark.archives" not in _settings("local[4]")
    settings = _settings("spark://somewhere:7077")
    assert settings["spark.master"] == "spark://somewhere:7077"
    archive, _, folder = settings["spark.archives"].partition("#")
    assert folder == "oncemesh" and Path(archive).exists()


def test_what_spark_submit_decides_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMITTED, "1234")
    assert not {"spark.master", "spark.archives"} & {*_settings("local[2]")}
