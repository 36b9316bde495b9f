"""Which executors are shipped a Python. What is in it: test_cluster.py."""

from pathlib import Path

import pytest

from failover.audit.read import bundle
from failover.audit.read.files import SUBMITTED
from failover.audit.read.session import _settings


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
