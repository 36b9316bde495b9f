"""The command chaos: its exit status is the audit's, and never that of a violation for anything else."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import attrs
import pytest
from click.testing import CliRunner, Result

from failover.chaos import run as running
from failover.chaos.run import Ending
from failover.cli import chaos as cli_chaos
from failover.cli import demo as cli_demo
from router.cli.main import main
from router.mesh.rundir import RunDirectory
from tests.failover.chaos.scripts import write

COUNTS = {"sent": 5, "accepted": 5, "received": 9, "missing": 1, "doubled": 2, "overtaken": 3}
CLEAN = Ending(COUNTS, crashes=0, unfinished=())
MISSES = {"role": "subscriber", "missing": 1, "doubled": 2, "overtaken": 3}
NAMED = {"subscriber": "reader/chaos on topic/chaos", "without": 1, "away": 0, "unknown": 0}
NAMED |= {"violations": {"duplicated": 2, "out of order": 3}}


def oncemesh(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def chaos(folder: Path, ending: Ending, verdict: int, **named: object) -> Result:
    """`named` is how the audit's report differs from the account of the only subscriber."""

    async def perform(*_: object, **__: object) -> Ending:
        (folder / "run" / "chaos.json").write_text(json.dumps({"clients": {"reader": MISSES}}))
        return ending

    def judge(_: object) -> int:
        (folder / "run" / "audit.json").write_text(json.dumps({"pairs": [NAMED | named], "violations": {}}))
        return verdict

    with patch.object(running, "perform", perform), patch.object(cli_chaos, "judge", judge):
        return oncemesh("chaos", write(folder, topology="pair"), "--run-dir", folder / "run", "--seed", 5)


@pytest.mark.parametrize("verdict", [0, 1, 2, 3, 4, 130])
def test_the_status_of_a_clean_run_is_the_audits(tmp_path: Path, verdict: int) -> None:
    result = chaos(tmp_path, CLEAN, verdict)
    assert result.exit_code == verdict
    assert "script script, seed 5, run directory" in result.stdout
    assert "offered 2000 messages (200/s), sent 5, accepted 5, received by subscribers 9" in result.stdout
    assert "1 missing, 2 doubled, 3 out of order" in result.stdout


def test_what_was_offered_and_not_sent_is_told_from_a_loss(tmp_path: Path) -> None:
    said = "1995 offered messages were never sent (this is no loss)"
    assert said in chaos(tmp_path, CLEAN, 0).stdout
    assert "never sent" not in chaos(tmp_path, attrs.evolve(CLEAN, counts=COUNTS | {"sent": 2000}), 0).stdout


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (attrs.evolve(CLEAN, unfinished=("router b does not answer",)), "not finished: router b does not answer"),
        (attrs.evolve(CLEAN, crashes=2), "2 routers or clients crashed"),
    ],
)
def test_a_run_that_was_not_clean_never_holds(tmp_path: Path, ending: Ending, said: str) -> None:
    for verdict in (0, 4):
        result = chaos(tmp_path, ending, verdict)
        assert result.exit_code == 3 and said in result.stdout
    assert chaos(tmp_path, ending, 1).exit_code == 1


@pytest.mark.parametrize("verdict", [0, 4])
def test_a_run_never_holds_whose_clients_miss_what_the_audit_does_not_name(tmp_path: Path, verdict: int) -> None:
    result = chaos(tmp_path, CLEAN, verdict, without=0)
    assert result.exit_code == 3, result.stdout
    assert "not explained: 1 messages are missing according to reader, but 0 according to the audit" in result.stdout


def test_what_another_subscriber_misses_explains_nothing(tmp_path: Path) -> None:
    assert chaos(tmp_path, CLEAN, 0, subscriber="reader2/chaos on topic/chaos").exit_code == 3
    assert chaos(tmp_path, CLEAN, 0, subscriber="reader/chaos on topic/chaos", without=0, away=1).exit_code == 0


@pytest.mark.parametrize("report", [None, "", "{"])
def test_a_run_whose_report_could_not_be_written_is_not_compared(tmp_path: Path, report: str | None) -> None:
    (tmp_path / "chaos.json").write_text("{}")
    if report is not None:
        (tmp_path / "audit.json").write_text(report)
    [said] = cli_chaos._disputed(RunDirectory(tmp_path))
    assert "chaos.json or audit.json is missing or damaged, so they cannot be compared" in said


def test_a_seed_that_was_not_given_is_told(tmp_path: Path) -> None:
    with patch.object(cli_chaos, "judge", return_value=0), patch.object(running, "perform", side_effect=OSError):
        out = oncemesh("chaos", write(tmp_path), "--run-dir", tmp_path / "run").stdout
    assert re.match(r"script script, seed \d+, run directory", out)


@pytest.mark.parametrize("text", ["nonsense", "topology: nowhere.yaml\nduration: 1s\n"])
def test_a_bad_script_is_no_violation(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    result = oncemesh("chaos", path, "--run-dir", tmp_path / "run")
    assert result.exit_code == 2 and result.stderr.startswith(f"Error: {path}:1: ")
    assert not (tmp_path / "run").exists()


def test_a_run_that_nobody_reads_is_no_violation(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from router.cli.main import main; main()", "chaos", str(write(tmp_path))]
    ended = subprocess.run([*command, "--run-dir", str(tmp_path / "run")], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (2, b"")


def test_a_directory_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    result = oncemesh("chaos", write(tmp_path), "--run-dir", tmp_path)
    assert result.exit_code == 2 and "not the directory of a chaos run" in result.stderr


@pytest.mark.parametrize(
    ("options", "part", "said"),
    [
        ((), 4, ("kill a (the router of publisher amy), for 500ms", "(the router of publisher bob and the router of")),
        (("--queues",), 2, ("(the leader of queue/demo), for 1.0s", "kill-all, for 500ms")),
    ],
    ids=["topic", "queues"],
)
def test_the_demo_breaks_a_mesh_and_ends_with_the_verdict(
    options: tuple[str, ...], part: int, said: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own scripts, in a part of their time."""
    for path in cli_demo.FOLDER.glob("*.yaml"):
        times = re.compile(r"\b(duration|at|for): (\d+)s\b")
        shorter = times.sub(lambda found: f"{found[1]}: {int(found[2]) / part:g}s", path.read_text())
        (tmp_path / path.name).write_text(shorter)
    monkeypatch.setattr(cli_demo, "FOLDER", tmp_path)
    result = oncemesh("demo", *options, "--run-dir", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert [one for one in said if one not in result.stdout] == []
    assert "exactly-once holds: " in result.stdout
