"""The command's exit status and the paths it takes: a failure of the audit is never reported as a violation."""

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from unittest.mock import Mock, patch

import psutil
import pytest
from click.testing import CliRunner
from rich.console import Console

from failover import audit as auditing
from failover.audit import Verdict
from failover.audit.read import spark
from failover.audit.read.files import beside
from failover.audit.report.report import Report
from failover.cli.audit import show_progress, tell_progress
from router.cli.main import main
from tests.failover.audit.runs import Run
from tests.hangs import HANGS_S

SPARK_S = 4 * HANGS_S
"""Spark starts Java several times, and each start takes ten seconds of a processor."""


@pytest.mark.parametrize("error", [ValueError("zip() went wrong"), OSError(28, "No space left", "/x"), KeyError("k")])
def test_a_failure_of_the_audit_is_not_a_violation(error: Exception) -> None:
    with patch.object(auditing, "run", side_effect=error):
        result = CliRunner().invoke(main, ["audit", "somewhere"])
    assert result.exit_code == 2
    assert "the audit failed, so there is no verdict: " in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("form", [["--json"], []])
def test_who_follows_and_reads_no_more_is_told_nothing(tmp_path: Path, form: list[str]) -> None:
    command = [sys.executable, "-c", "from router.cli.main import main; main()", "audit", "--follow", *form]
    command.append(str(Run().write(tmp_path)))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as audit:
        assert audit.stdout is not None and audit.stderr is not None
        audit.stdout.readline()
        audit.stdout.close()
        assert (audit.stderr.read(), audit.wait()) == (b"", 2)


def test_a_folder_of_somebody_else_is_refused_before_spark_starts(tmp_path: Path) -> None:
    run_dir = str(Run(messages=1).write(tmp_path / "run"))
    (tmp_path / "file").touch()
    for folder, said in (
        (run_dir, "not empty, and not the tables of an earlier audit; expected a new or empty folder"),
        (str(tmp_path / "file"), "Not a directory"),
        (str(tmp_path / ("x" * 300)), "File name too long"),
    ):
        with patch.object(spark, "spark_session", side_effect=AssertionError("Spark has started")):
            result = CliRunner().invoke(main, ["audit", run_dir, "--tables", folder])
        assert (result.exit_code, result.stderr) == (2, f"Error: {folder}: {said}\n")


def test_an_interrupted_audit_is_not_a_violation() -> None:
    with patch.object(auditing, "run", side_effect=KeyboardInterrupt):
        assert CliRunner().invoke(main, ["audit", "somewhere"]).exit_code == 130


def test_an_audit_that_is_interrupted_while_it_writes_its_report_keeps_its_verdict(tmp_path: Path) -> None:
    with patch.object(Report, "write", side_effect=KeyboardInterrupt):
        ended = CliRunner().invoke(main, ["audit", str(Run().write(tmp_path))])
    assert "exactly-once holds" in ended.output and "the verdict stands" in ended.output
    assert ended.exit_code == 0


def _spark_of(process: psutil.Process) -> list[psutil.Process]:
    """Its children that are on their way to Java: what is imported before that may start others, for a moment."""
    found = []
    for child in process.children():
        with contextlib.suppress(psutil.Error):
            if "spark-submit" in (words := " ".join(child.cmdline())) or "org.apache.spark" in words:
                found.append(child)
    return found


def _errors(told: bytes) -> list[bytes]:
    """The lines without the progress, which only a slow machine reports."""
    return [line for line in told.splitlines() if not line.startswith((b"auditing, ", b"reading ", b"judging, "))]


def test_an_audit_that_is_interrupted_while_java_starts_leaves_no_java(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from router.cli.main import main; main()", "audit", "--spark"]
    audit = subprocess.Popen([*command, str(Run().write(tmp_path))], stderr=subprocess.PIPE)
    process = psutil.Process(audit.pid)
    while not (children := _spark_of(process)):
        assert audit.poll() is None
    audit.send_signal(signal.SIGINT)
    _, told = audit.communicate(timeout=SPARK_S)
    assert (audit.returncode, _errors(told)) == (130, [b"Error: the audit was interrupted: no verdict"])
    assert psutil.wait_procs(children, timeout=SPARK_S)[1] == []


IN_FORK = """
import os, signal
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
from router.cli.main import main; main()
"""


def test_an_audit_that_is_interrupted_in_the_fork_for_java_ends(tmp_path: Path) -> None:
    """Python ignores what a hook of a fork raises."""
    command = [sys.executable, "-c", IN_FORK, "audit", "--spark", str(Run().write(tmp_path))]
    ended = subprocess.run(command, capture_output=True, timeout=SPARK_S)
    assert (ended.returncode, _errors(ended.stderr)) == (130, [b"Error: the audit was interrupted: no verdict"])


AT_WORK = """
import os, signal, sys, threading
from failover.audit.read.spark import SparkLogs
from router.cli.main import main

def control(logs, read=SparkLogs.control):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    return read(logs)

SparkLogs.control = control
main()
"""


MARK = "OF_THIS_TEST"


def _marked(value: str) -> list[psutil.Process]:
    """Who has it in the environment, as all have that the audit started, however far down."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == value:
                found.append(process)
    return found


def test_an_audit_that_is_interrupted_while_spark_works_says_so_and_no_more(tmp_path: Path) -> None:
    """By SIGTERM: it is told like ctrl-C, by which an audit is interrupted above."""
    command = [sys.executable, "-c", AT_WORK, "audit", "--spark", str(Run().write(tmp_path))]
    ended = subprocess.run(command, capture_output=True, timeout=SPARK_S, env=os.environ | {MARK: str(tmp_path)})
    assert (ended.returncode, _errors(ended.stderr)) == (130, [b"Error: the audit was interrupted: no verdict"])
    assert psutil.wait_procs(_marked(str(tmp_path)), timeout=SPARK_S)[1] == []


def test_an_audit_that_nobody_reads_to_its_end_is_not_a_violation(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from router.cli.main import main; main()", "audit", str(Run().write(tmp_path))]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (2, b"")


@pytest.mark.parametrize("name", ["audit.json", "audit.html"])
def test_a_verdict_that_cannot_be_written_stands(tmp_path: Path, name: str) -> None:
    directory = Run().write(tmp_path)
    (directory / name).mkdir()
    result = CliRunner().invoke(main, ["audit", str(directory)])
    assert result.exit_code == 0 and "exactly-once holds" in result.stdout and "full report:" not in result.stdout
    assert result.stderr == f"Warning: {directory / name} could not be written: Is a directory\n"
    assert {"audit.json", "audit.html"} <= {path.name for path in directory.iterdir()}


def test_the_last_verdict_of_a_followed_run_stands_as_well(tmp_path: Path) -> None:
    directory = Run().write(tmp_path)
    report = auditing.run([str(directory)])
    (directory / "audit.json").mkdir()
    with patch.object(signal, "signal"), patch("failover.audit.follow.follow", return_value=report):
        result = CliRunner().invoke(main, ["audit", "--follow", str(directory)])
    assert result.exit_code == 0 and "exactly-once holds" in result.stdout
    assert result.stderr == f"Warning: {directory / 'audit.json'} could not be written: Is a directory\n"


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    directory = Run().write(tmp_path)
    (directory / "mesh.json").unlink()
    (directory / "mesh.json").mkdir()
    result = CliRunner().invoke(main, ["audit", str(directory)])
    assert result.exit_code == 2
    said = "Error: the audit failed, so there is no verdict: "
    assert result.stderr == f"{said}{directory / 'mesh.json'}: Is a directory\n"


def test_one_router_of_a_run_is_incomplete(tmp_path: Path) -> None:
    directory = Run().write(tmp_path)
    result = CliRunner().invoke(main, ["audit", str(directory / "c")])
    assert result.exit_code == 2 and "missing or damaged: mesh.json" in result.stdout, result.output


def test_a_log_that_only_tells_of_a_departure_is_no_obstacle(tmp_path: Path) -> None:
    run = Run()
    run.logs["c"] = [row for row in run.logs["c"] if row["event"].name in ("BOOT", "CLOSED", "STOPPED")]
    report = auditing.run([str(run.write(tmp_path) / "c")])
    assert report.verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("name", ["12:30:05", "o[1]{x} y", "100%25", "a*b?", "back\\slash", "hdfs:"])
def test_a_run_directory_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    Run(messages=1).write(tmp_path / name)
    Run(messages=2).write(tmp_path / "o1x")  # what a pattern would find as well
    (tmp_path / "x:y").mkdir()
    monkeypatch.chdir(tmp_path)
    report = auditing.run([name])
    assert report.verdict is Verdict.HOLDS, (report.problems, report.findings)
    assert {row.published for row in report.pairs} == {1}
    report.write(Path(name) / "audit.json")
    assert json.loads((tmp_path / name / "audit.json").read_text())["run_dirs"] == [name]


@pytest.mark.parametrize("again", ["run", "./run/", "run/a"])
def test_a_directory_that_is_named_twice_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Run(messages=1).write(Path("run"))
    report = auditing.run(["run", again])
    assert report.verdict is Verdict.HOLDS and report.run_dirs == ("run",), (report.problems, report.doubts)


NO_LOGS = "not a run directory: it has neither mesh.json nor delivery logs"


@pytest.mark.parametrize(
    ("below", "said"),
    [
        ((), NO_LOGS),
        (("triangle",), f"{NO_LOGS}; but run/triangle is one"),
        (("line", "ring", "star", "triangle"), f"{NO_LOGS}; but run/line, run/ring, run/star, … are"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--spark",), ("--master", "spark://nowhere:1")])
def test_where_there_is_no_run_it_says_so_at_once_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: tuple[str, ...], said: str, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    for name in below:
        Run(messages=1).write(Path("run") / name)
    with patch("failover.audit.read.session.spark_session", side_effect=AssertionError):
        result = CliRunner().invoke(main, ["audit", *options, "run"])
        missing = CliRunner().invoke(main, ["audit", *options, "ran"])
        file = CliRunner().invoke(main, ["audit", *options, __file__])
    assert (result.exit_code, result.stderr) == (2, f"Error: run: {said}\n")
    assert (missing.exit_code, missing.stderr) == (2, "Error: ran: no such directory\n")
    assert (file.exit_code, file.stderr) == (2, f"Error: {__file__}: a file, expected a run directory\n")
    assert sorted(path.name for path in Path("run").iterdir()) == [*below]


def test_a_short_run_is_judged_without_loading_spark(tmp_path: Path) -> None:
    directory = str(Run(messages=1).write(tmp_path))
    script = f"""
import sys
from router.cli.main import main
from failover.audit.read.files import beside
from failover.cli.audit import show_progress, tell_progress
code = main(["audit", {directory!r}], standalone_mode=False)
print(code, sorted({{"pandas", "pyarrow", "pyspark"}} & {{*sys.modules}}))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1] == "0 []", ran


def test_on_a_terminal_a_bar_shows_how_much_is_read() -> None:
    shown = StringIO()
    with show_progress(Console(file=shown, force_terminal=True, width=80)) as progress:
        progress(3 << 20, 8 << 20)
    assert "3.0/8.0 MiB" in shown.getvalue()


def test_in_a_pipe_a_line_tells_how_much_is_read_now_and_then() -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    out = Mock(print=lambda text, **_: told.put(text))
    with tell_progress(out, every_s=0.001) as progress:
        progress(3 << 20, 8 << 20)
        for said in ("reading 3.0 MiB of 8.0 MiB, for ", "judging, for "):
            while not told.get(timeout=HANGS_S).startswith(said):
                pass
            progress(8 << 20, 8 << 20)


def test_progress_is_shown_while_java_starts_and_its_warnings_are_hidden() -> None:
    script = """
import os
from failover.audit.read.session import _stderr_put_by
from failover.cli.audit import lasting_stderr
with lasting_stderr() as out, _stderr_put_by():
    os.write(2, b"a warning of Java\\n")
    out.print("auditing, for 10 s")
os.write(2, b"afterwards\\n")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("", "auditing, for 10 s\nafterwards\n")


def test_a_short_audit_tells_of_no_progress(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["audit", str(Run().write(tmp_path))]).stderr == ""


def test_the_report_is_written_beside_logs_that_are_named_as_a_uri(tmp_path: Path) -> None:
    for uri in (f"file://{tmp_path}", f"file:{tmp_path}", str(tmp_path)):
        assert beside(uri) == tmp_path
    for elsewhere in ("hdfs://far/run", f"file://{tmp_path}/none"):
        assert beside(elsewhere) == Path()


def test_a_log_that_is_emptied_is_named(tmp_path: Path) -> None:
    directory = Run().write(tmp_path)
    (log,) = (directory / "b/log").iterdir()
    log.write_bytes(b"")
    shown = CliRunner().invoke(main, ["audit", str(directory)]).stdout
    assert f"logs that may lack their end (the writer still runs, or its machine failed): b.{log.name[:-11]}\n" in shown


def test_that_no_client_has_a_log_is_said(tmp_path: Path) -> None:
    directory = Run().write(tmp_path)
    said = "no client logs found; the audit used the router logs alone\n"
    assert said not in CliRunner().invoke(main, ["audit", str(directory)]).stdout
    shutil.rmtree(directory / "clients")
    assert said in CliRunner().invoke(main, ["audit", str(directory)]).stdout


def test_what_is_missing_is_said_before_what_follows_from_that(tmp_path: Path) -> None:
    directory = Run().write(tmp_path)
    (log,) = (directory / "a/log").iterdir()
    log.unlink()
    shown = CliRunner().invoke(main, ["audit", str(directory)]).stdout
    follows = "possible violations, perhaps only an effect of the damage"
    assert shown.index("missing or damaged: ") < shown.index(follows)
