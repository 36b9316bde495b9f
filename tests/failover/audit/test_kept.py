"""Writers that are killed, where others know what their logs could not say any more."""

from collections.abc import Callable

import pytest

from failover.audit import Report, Verdict
from tests.failover.audit.runs import ADDRESS, NEAR, START_MS, TWO, Row, Run
from topic.identity import Epoch
from topic.journal import Event, Outcome

Judged = Callable[[Run], Report]
LAST = 3


def near_moves_to_b(run: Run) -> str:
    """The subscriber near attaches at b, after everything else: its epoch there."""
    last = run.logs["b"][-1]
    epoch = str(Epoch(last["hlc"] - 10, "b", START_MS))
    columns = {"subscriber": NEAR.name, "address": ADDRESS, "epoch": epoch}
    run.after("b", {"event": Event.JOINED}, **columns)
    run.after("b", {"event": Event.ATTACHED}, detail=NEAR.detail, **columns)
    return epoch


def a_is_killed(run: Run) -> None:
    """What it heard of the last delivery of publisher two, and all after it, is lost with it."""
    key = run.key(TWO, LAST)
    rows = run.logs["a"]
    del rows[rows.index(run.find("a", Event.OUTCOME, key, subscriber=NEAR.name)) :]


def b_is_told_again(run: Run) -> None:
    """By near's unsettled map, when it comes."""
    near_moves_to_b(run)
    outcome = {"event": Event.OUTCOME, "outcome": Outcome.ACCEPTED, "subscriber": NEAR.name}
    about = {"keys": [run.key(TWO, LAST)], "address": ADDRESS, "publisher": TWO.name, "epoch": run.epoch(TWO)}
    run.after("b", outcome, **about)


def test_what_a_killed_router_was_told_and_the_next_was_told_again_is_not_too_early(judged: Judged) -> None:
    run = Run()
    a_is_killed(run)
    b_is_told_again(run)
    report = judged(run)
    assert report.violations == {} and not any("near" in doubt for doubt in report.doubts), report.doubts


def test_what_a_router_was_told_that_lived_is_too_early(judged: Judged) -> None:
    run = Run()
    run.drop("a", run.find("a", Event.OUTCOME, run.key(TWO, LAST), subscriber=NEAR.name))
    b_is_told_again(run)
    assert judged(run).violations == {"accepted too early": 1}


def near_comes_back(run: Run, *kept: bytes) -> None:
    """In a process of its own, so with a log of its own: two entries and what it kept."""
    stop = run.logs["clients/mid"][-1]
    clock = {"time_us": stop["time_us"] - 1000, "hlc": stop["hlc"] - 1}
    about = {"subscriber": NEAR.name, "address": ADDRESS}
    rows: list[Row] = [{"event": Event.BOOT}, {"event": Event.KEPT}]
    rows += [{"event": Event.KEPT, "keys": [key], "outcome": Outcome.ACCEPTED} | about for key in kept]
    rows += [{"event": Event.ATTACHED, "detail": NEAR.detail} | about, {"event": Event.STOPPED}]
    run.again["clients/near"] = [row | clock for row in rows]


def processed(run: Run) -> list[bytes]:
    """The last two that near processed."""
    return [row["keys"][0] for row in run.all("clients/near", Event.PROCESSED)][-2:]


def test_a_killed_subscriber_that_kept_what_it_had_processed_leaves_no_doubt(judged: Judged) -> None:
    run = Run()
    keys = processed(run)
    run.kill("clients/near", lost=4)
    near_comes_back(run, *keys)
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.doubts, report.findings)


def test_what_it_kept_no_longer_its_router_knows(judged: Judged) -> None:
    run = Run()
    run.kill("clients/near", lost=4)
    near_comes_back(run)
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.doubts, report.findings)


def test_what_neither_knows_is_lost(judged: Judged) -> None:
    run = Run()
    last = processed(run)[-1]
    run.kill("clients/near", lost=4)
    run.remove(lambda row: row.get("keys") == [last] and row.get("subscriber") == NEAR.name, "a")
    near_comes_back(run)
    assert judged(run).violations == {"lost": 1}


def test_what_it_had_kept_and_processed_again_is_doubled(judged: Judged) -> None:
    run = Run()
    last = processed(run)[-1]
    run.kill("clients/near", lost=4)
    near_comes_back(run, *processed(run), last)
    again = {"event": Event.PROCESSED, "keys": [last], "outcome": Outcome.ACCEPTED}
    rows = run.again["clients/near"]
    rows.insert(-1, rows[-1] | again | {"subscriber": NEAR.name, "address": ADDRESS})
    assert judged(run).violations["duplicated"] == 1


@pytest.mark.parametrize("kept", [True, False])
def test_a_killed_subscriber_that_keeps_nothing_leaves_a_doubt(judged: Judged, kept: bool) -> None:
    run = Run()
    run.kill("clients/near", lost=4)
    if kept:
        near_comes_back(run)
        run.again["clients/near"] = [row for row in run.again["clients/near"] if row["event"] is not Event.KEPT]
    assert judged(run).verdict is Verdict.UNDECIDED
