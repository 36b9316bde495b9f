"""What executors of a cluster are shipped: it runs alone, wherever it is unpacked."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from failover.audit import bundle
from failover.audit.reading import SUBMITTED
from failover.audit.session import _settings

WORK = """
import sys, numpy, pyarrow, msgpack, topic.journal
for module in (numpy, pyarrow, msgpack, topic.journal):
    assert module.__file__.startswith(sys.prefix), module
print(sys.prefix)
"""


def test_the_archive_is_a_python_of_its_own(tmp_path: Path) -> None:
    bundle.write(tmp_path / "python.tar.gz")
    home = tmp_path / "unpacked"
    with tarfile.open(tmp_path / "python.tar.gz") as archive:
        archive.extractall(home, filter="data")
    command = [str(home / "bin/python3"), "-c", WORK]
    ran = subprocess.run(command, env={"LD_LIBRARY_PATH": str(home / "lib")}, capture_output=True, text=True, cwd=home)
    assert ran.stdout.strip() == str(home), ran.stderr


def test_a_cluster_is_shipped_its_python_and_one_machine_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "write", Path.touch)
    monkeypatch.setenv("PYSPARK_PYTHON", "whatever")
    assert "spark.archives" not in _settings("local[4]", tmp_path)
    settings = _settings("spark://somewhere:7077", tmp_path)
    assert settings["spark.master"] == "spark://somewhere:7077"
    assert settings["spark.archives"] == f"{tmp_path}/python.tar.gz#oncemesh"


def test_what_spark_submit_decides_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMITTED, "1234")
    assert not {"spark.master", "spark.archives"} & {*_settings("local[2]", tmp_path)}
