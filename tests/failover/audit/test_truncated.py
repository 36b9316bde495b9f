"""Logs that end anywhere, as killed writers leave them: a good run is not accused for it, nor a bad one cleared."""

import json
from itertools import combinations
from random import Random

import pytest

from failover.audit import Report, Verdict
from tests.failover.audit.in_process import judge_files
from tests.failover.audit.runs import MID, ONE, ROUTERS, Run

LOGS = (*ROUTERS, "clients/one", "clients/near", "clients/mid")
CUTS = 12
MESH = json.dumps({"mesh": "line", "routers": {router: {"pid": 1} for router in ROUTERS}}).encode()


def truncated(run: Run, seed: str, *logs: str) -> Report:
    """The run with these logs cut off somewhere, in the middle of a block or not."""
    random = Random(seed)
    files = {f"file:/run/{name}": data for name, data in run.files(rows_per_block=4)}
    for path, data in files.items():
        if path.removeprefix("file:/run/").rpartition("/log/")[0] in logs:
            files[path] = data[: random.randrange(len(data) // 10, len(data))]
    return judge_files(files | {"file:/run/mesh.json": MESH})


@pytest.mark.parametrize("log", LOGS)
def test_a_good_run_with_one_log_cut_off_is_not_violated(log: str) -> None:
    for cut in range(CUTS):
        report = truncated(Run(messages=6), f"{log} {cut}", log)
        assert report.verdict in (Verdict.HOLDS, Verdict.UNDECIDED), (cut, report.findings, report.problems)


@pytest.mark.parametrize("logs", [*combinations(LOGS, 2)], ids="+".join)
def test_a_good_run_with_two_logs_cut_off_is_not_violated(logs: tuple[str, str]) -> None:
    for cut in range(CUTS // 3):
        report = truncated(Run(messages=6), f"{logs} {cut}", *logs)
        assert report.verdict in (Verdict.HOLDS, Verdict.UNDECIDED), (cut, report.findings, report.problems)


def one_lost() -> Run:
    run = Run(messages=6)
    key = run.key(ONE, 2)
    run.remove(lambda row: row.get("keys") == [key], "clients/mid")
    return run


@pytest.mark.parametrize("log", [log for log in LOGS if log != "clients/mid"])
def test_what_a_whole_log_shows_as_lost_never_holds(log: str) -> None:
    for cut in range(CUTS):
        report = truncated(one_lost(), f"{log} {cut}", log)
        assert report.verdict is not Verdict.HOLDS
        lost = {finding.subscribers for finding in report.findings if finding.kind == "lost"}
        assert lost == {(str(MID.identity),)} or report.verdict is Verdict.UNDECIDED, report.findings


@pytest.mark.parametrize("router", ROUTERS)
def test_without_a_routers_log_there_is_no_verdict(router: str) -> None:
    files = {f"file:/run/{name}": data for name, data in Run().files() if not name.startswith(f"{router}/")}
    report = judge_files(files | {"file:/run/mesh.json": MESH})
    assert report.verdict is Verdict.INCOMPLETE
    assert f"router {router} has no log" in {problem.what for problem in report.problems}
