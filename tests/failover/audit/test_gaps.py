"""Logs that could not be written for a while: nothing holds of such a run, and nobody is accused for it."""

import json
from random import Random

import pytest

from failover.audit import Report, Verdict
from tests.failover.audit.in_process import judge_files
from tests.failover.audit.runs import MID, Run
from tests.failover.audit.test_truncated import LOGS, MESH, one_lost
from topic.journal import Event

GAPS = 12


def judge(run: Run) -> Report:
    files = {f"file:/run/{name}": data for name, data in run.files(rows_per_block=4)}
    return judge_files(files | {"file:/run/mesh.json": MESH})


def broken(run: Run, log: str, seed: int) -> Run:
    """Some entries of this log are missing, as it says; maybe all to its end, which it cannot say then."""
    random, rows = Random(seed), run.logs[log]
    start = random.randrange(1, len(rows))
    end = random.choice([len(rows), random.randrange(start, len(rows))])
    clock = {name: rows[start][name] for name in ("time_us", "hlc")}
    begun = {"event": Event.GAP, "detail": json.dumps({"why": "no room"})} | clock
    over = {"event": Event.GAP, "detail": json.dumps({"entries": end - start})} | clock
    rows[start:end] = [begun, over] if end < len(rows) else [begun]
    return run


@pytest.mark.parametrize("log", LOGS)
def test_a_good_run_with_a_gap_in_a_log_neither_holds_nor_is_violated(log: str) -> None:
    for seed in range(GAPS):
        report = judge(broken(Run(messages=6), log, seed))
        assert report.verdict is Verdict.UNDECIDED, (seed, report.findings, report.problems)
        assert any(doubt.endswith("because it could not be written: no room") for doubt in report.doubts)


@pytest.mark.parametrize("log", [log for log in LOGS if log != "clients/mid"])
def test_what_is_lost_is_never_excused_to_hold(log: str) -> None:
    for seed in range(GAPS):
        report = judge(broken(one_lost(), log, seed))
        lost = {finding.subscribers for finding in report.findings if finding.kind == "lost"}
        assert report.verdict is Verdict.UNDECIDED or lost == {(str(MID.identity),)}, report.findings
