"""The command's exit status and the paths it takes: a failure of the audit is never reported as a violation."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from failover import audit as auditing
from failover.audit import Verdict
from router.cli import main
from tests.failover.audit.runs import Run


@pytest.mark.parametrize("error", [ValueError("zip() went wrong"), OSError(28, "No space left", "/x"), KeyError("k")])
def test_a_failure_of_the_audit_is_not_a_violation(error: Exception) -> None:
    with patch.object(auditing, "run", side_effect=error):
        result = CliRunner().invoke(main, ["audit", "somewhere"])
    assert result.exit_code == 2
    assert "the audit failed, so there is no verdict: " in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_interrupted_audit_is_not_a_violation() -> None:
    with patch.object(auditing, "run", side_effect=KeyboardInterrupt):
        assert CliRunner().invoke(main, ["audit", "somewhere"]).exit_code == 130


def test_a_verdict_that_cannot_be_written_is_none(spark: SparkSession, tmp_path: Path) -> None:
    directory = Run().write(tmp_path)
    (directory / "audit.json").mkdir()
    result = CliRunner().invoke(main, ["audit", str(directory)])
    assert result.exit_code == 2 and "IsADirectoryError" in result.stderr


def test_one_router_of_a_run_is_incomplete(spark: SparkSession, tmp_path: Path) -> None:
    directory = Run().write(tmp_path)
    result = CliRunner().invoke(main, ["audit", str(directory / "c")])
    assert result.exit_code == 2 and "missing or damaged: mesh.json" in result.stdout, result.output


def test_a_log_that_only_tells_of_a_departure_is_no_obstacle(spark: SparkSession, tmp_path: Path) -> None:
    run = Run()
    run.logs["c"] = [row for row in run.logs["c"] if row["event"].name in ("BOOT", "CLOSED", "STOPPED")]
    report = auditing.run([str(run.write(tmp_path) / "c")])
    assert report.verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("name", ["12:30:05", "o[1]{x} y", "100%25", "a*b?", "back\\slash", "hdfs:"])
def test_a_run_directory_may_have_any_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    Run(messages=1).write(tmp_path / name)
    Run(messages=2).write(tmp_path / "o1x")  # what a pattern would find as well
    (tmp_path / "x:y").mkdir()
    monkeypatch.chdir(tmp_path)
    report = auditing.run([name])
    assert report.verdict is Verdict.HOLDS, (report.problems, report.findings)
    assert {row.published for row in report.pairs} == {1}
    report.write(Path(name) / "audit.json")
    assert json.loads((tmp_path / name / "audit.json").read_text())["run_dirs"] == [name]
