"""A subscriber of a pattern: by its own log and its routers' it is at that, the deliveries are at addresses."""

import json

import pytest

from failover.audit import Verdict
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, NEAR, Run
from tests.failover.audit.test_violations import home_left_a_joined_subscriber_out
from topic.journal import Event


def run_of(pattern: str) -> Run:
    """The subscriber near has subscribed to the pattern."""
    run = Run()
    for log, rows in run.logs.items():
        for row in rows:
            is_about_it = row.get("subscriber") == NEAR.name and row["event"] in (Event.JOINED, Event.ATTACHED)
            if "address" in row and (log == "clients/near" or is_about_it):
                row["address"] = pattern
            if is_about_it and "detail" in row:
                row["detail"] = json.dumps(json.loads(row["detail"]) | {"address": pattern})
    return run


def test_it_was_given_all_that_its_pattern_covers(judged: Judged) -> None:
    report = judged(run_of("topic/*"))
    assert report.verdict is Verdict.HOLDS, (report.findings, report.doubts)


@pytest.mark.parametrize(("pattern", "lost"), [("topic/*", {"lost": 1}), (ADDRESS, {"lost": 1}), ("topic/x.*", {})])
def test_it_is_owed_what_its_pattern_covers_though_home_left_it_out(
    judged: Judged, pattern: str, lost: dict[str, int]
) -> None:
    run = run_of(pattern)
    home_left_a_joined_subscriber_out(run)
    assert {kind: number for kind, number in judged(run).violations.items() if number} == lost
