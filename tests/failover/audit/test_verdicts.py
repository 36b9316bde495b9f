"""What a killed, running, missing or damaged writer does to the verdict: never a "holds" that is not known."""

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from failover import audit
from failover.audit import Verdict
from failover.audit.report import page
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, FAR, MID, NEAR, ONE, START_MS, SUBSCRIBERS, TWO, Run
from topic.journal import Event, LoggedOutcome


def test_a_good_run_holds(judged: Judged, tmp_path: Path) -> None:
    report = judged(Run())

    assert report.verdict is Verdict.HOLDS and report.exit_code == 0
    assert (report.violations, report.findings, report.doubts, report.problems, report.torn) == ({}, (), (), (), ())
    assert len(report.pairs) == 6
    assert all((row.published, row.accepted, row.owed, row.processed) == (4, 4, 4, 4) for row in report.pairs)

    report.write(tmp_path / "audit.json")
    written = json.loads((tmp_path / "audit.json").read_text())
    assert (written["verdict"], written["exit_code"], len(written["pairs"])) == ("holds", 0, 6)
    shown = StringIO()
    report.render(Console(file=shown, width=140))
    assert "exactly-once holds: 8 accepted, 24 owed" in shown.getvalue()


def test_a_publisher_that_nobody_heard_is_shown(judged: Judged) -> None:
    run = Run()
    for subscriber in SUBSCRIBERS:
        for publisher in (ONE, TWO):
            run.leave_out(subscriber, publisher, *range(4), audience=False)
    run.remove(lambda row: row.get("subscriber") is not None)
    shown = StringIO()
    report = judged(run)
    report.render(Console(file=shown, width=140))
    assert report.pairs == () and report.verdict is Verdict.HOLDS, report.doubts
    row = next(line for line in shown.getvalue().splitlines() if str(TWO.identity) in line)
    assert [cell.strip() for cell in row.split("│")[2:7]] == ["-", "4", "4", "0", "0"]
    assert f"\n8 accepted, 8 of them without a subscriber at {ADDRESS}\n" in shown.getvalue()


def test_only_what_nobody_was_subscribed_to_is_said_to_be_accepted_by_nobody(judged: Judged) -> None:
    run = Run()
    for subscriber in SUBSCRIBERS:
        run.leave_out(subscriber, ONE, 0, audience=False)
        run.leave_out(subscriber, ONE, 1, audience=subscriber is NEAR)
    run.remove(lambda row: row.get("subscriber") is not None)
    assert [row.alone for row in judged(run).publishers] == [1, 0]


def test_a_router_killed_with_its_last_entries_lost_does_not_matter_to_ends_that_logged(judged: Judged) -> None:
    run = Run(messages=6)
    run.remove(lambda row: FAR.name in (row.get("subscriber"), *row.get("keys", ())))  # the plain ends
    for row in run.logs["a"] + run.logs["b"]:
        if row["event"] is Event.AUDIENCE:
            row["detail"] = row["detail"].replace(f', "{FAR.name}"', "")
    two = [run.key(TWO, tag) for tag in range(6)]
    run.remove(lambda row: row.get("keys", [b""])[0] in two or row.get("publisher") == TWO.name)
    run.kill("a", lost=18)  # the home of publisher one, with all it wrote of the last deliveries

    report = judged(run)

    assert report.verdict is Verdict.HOLDS, (report.doubts, report.findings, report.problems)
    assert [row.accepted for row in report.publishers] == [6]
    assert [log.name for log in report.logs if not log.stopped] == [f"a.{START_MS}"]


def test_an_audience_lost_with_its_home_is_owed_to_whoever_may_have_been_in_it(judged: Judged) -> None:
    run = Run()
    key = run.key(ONE, 3)
    run.kill("a", lost=15)  # among it all that the home wrote of the last delivery of publisher one
    run.remove(lambda row: row.get("keys") == [key] and row.get("subscriber") == NEAR.name)
    report = judged(run)
    assert report.verdict is Verdict.UNDECIDED, (report.findings, report.problems)
    assert [doubt for doubt in report.doubts if doubt.startswith("1 accepted deliveries did not reach")]


def test_a_plain_subscriber_of_a_killed_router_is_unknown(judged: Judged) -> None:
    run = Run()
    run.kill("c", lost=2)  # with STOPPED goes the entry that told of its departure
    report = judged(run)
    assert report.verdict is Verdict.UNDECIDED and report.exit_code == 3
    assert report.violations == {}
    assert [doubt for doubt in report.doubts if str(FAR.identity) in doubt and "may lack its end" in doubt]


def test_a_publisher_whose_log_is_cut_is_named_with_where_that_ends(judged: Judged) -> None:
    run = Run()
    for log in ("clients/one", "a"):
        run.kill(log, lost=4)
    doubts = [doubt for doubt in judged(run).doubts if doubt.startswith(f"publisher {ONE.identity}")]
    told = re.compile(r"its own log, clients/one, breaks off at \d\d:\d\d:\d\d")
    assert doubts and all(told.search(doubt) for doubt in doubts)


def test_what_an_open_log_may_have_lost_is_unknown_and_not_lost(judged: Judged) -> None:
    run = Run()
    run.kill("clients/near", lost=3)  # the last PROCESSED among them
    report = judged(run)
    assert report.verdict is Verdict.UNDECIDED
    assert report.violations == {}
    assert {row.subscriber for row in report.pairs if row.unknown} == {str(NEAR.identity)}


def test_missing_and_damaged_logs_are_named(tmp_path: Path) -> None:
    directory = Run().write(tmp_path)
    (directory / "c/log").rename(directory / "c/gone")
    for path in (directory / "c/gone").iterdir():
        path.unlink()
    damaged = next((directory / "a/log").iterdir())
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)

    report = audit.run([str(directory)])

    assert report.verdict is Verdict.INCOMPLETE and report.exit_code == 2
    told = {problem.path.rpartition("/run")[2]: problem.what for problem in report.problems}
    assert any("router c has no log" in what for what in told.values())
    assert any(
        "damaged" in what and path.endswith(damaged.name) and "are damaged" in what for path, what in told.items()
    )


def test_a_torn_last_block_is_read_up_to_there_and_reported(tmp_path: Path) -> None:
    directory = Run().write(tmp_path)
    torn = next((directory / "a/log").iterdir())
    torn.write_bytes(torn.read_bytes()[:-7])
    report = audit.run([str(directory)])
    assert [problem.path.endswith(torn.name) for problem in report.torn] == [True]
    assert report.problems == () and report.verdict in (Verdict.HOLDS, Verdict.UNDECIDED)


def test_a_mesh_without_any_log_never_holds(tmp_path: Path) -> None:
    (tmp_path / "mesh.json").write_text(json.dumps({"routers": {"a": {}}}))
    report = audit.run([str(tmp_path)])
    assert report.verdict is Verdict.INCOMPLETE
    assert [problem.what for problem in report.problems] == ["router a has no log"]


def no_log_tells_of_an_outcome(run: Run) -> str:
    last = run.find("a", Event.ACCEPTED, run.key(ONE, 3))
    run.remove(lambda row: row.get("keys") == [run.key(ONE, 3)] and row["time_us"] >= last["time_us"])
    return "1 processed but not owed: 1 whose publisher received no outcome that a log shows"


def another_refused_it(run: Run) -> str:
    for log in ("a", "clients/one"):
        for row in run.logs[log]:
            refused = row["event"] is Event.OUTCOME and row.get("subscriber") == FAR.name
            if row.get("keys") == [run.key(ONE, 2)] and (refused or row["event"] in (Event.ACCEPTED, Event.OUTCOME)):
                row["outcome"] = LoggedOutcome.REJECTED
    return "1 processed but not owed: 1 whose publisher received another outcome"


def its_router_did_not_know_it(run: Run) -> str:
    for row in run.all("a", Event.AUDIENCE):
        row["detail"] = json.dumps([FAR.name, MID.name])
    run.remove(lambda row: row["event"] is Event.JOINED and row["subscriber"] == NEAR.name, "a")
    return "4 processed but not owed: 4 accepted by a router that did not know this subscriber"


def its_link_had_ended(run: Run) -> str:
    accepted = run.find("a", Event.ACCEPTED, run.key(ONE, 3))
    run.before("a", accepted, Event.EXPIRED, subscriber=NEAR.name, epoch=run.epoch(NEAR))
    return "1 processed but not owed: 1 accepted after the subscriber's link had ended for the publisher's router"


def it_was_apart(run: Run) -> str:
    accepted = run.find("a", Event.ACCEPTED, run.key(ONE, 3))
    about = {name: accepted[name] for name in ("keys", "address", "publisher", "epoch")}
    run.before("a", accepted, Event.APART, subscriber=NEAR.name, **about)
    why = "1 accepted without the subscriber while that was out of contact for longer than its timeout"
    return f"1 processed but not owed: {why}"


def it_is_lost(run: Run) -> str:
    run.leave_out(NEAR, ONE, 1, 2)
    return "2 owed but not processed: 2 lost"


def its_log_breaks_off(run: Run) -> str:
    run.kill("clients/near", lost=4)
    return "1 owed but not processed: 1 unknown, because a part of a log is lost"


@pytest.mark.parametrize(
    "spoil",
    [
        no_log_tells_of_an_outcome,
        another_refused_it,
        its_router_did_not_know_it,
        its_link_had_ended,
        it_was_apart,
        it_is_lost,
        its_log_breaks_off,
    ],
)
def test_owed_against_processed_is_explained_where_they_differ(judged: Judged, spoil: Callable[[Run], str]) -> None:
    run = Run()
    said = spoil(run)
    report, shown = judged(run), StringIO()
    report.render(Console(file=shown, width=140))
    assert f"{ONE.identity} to {NEAR.identity}: {said}\n" in shown.getvalue(), report.pairs
    assert said in page.render(report).replace("&#39;", "'")
    for row in report.pairs:
        assert row.processed - row.owed == sum(row.unowed.values()) - sum(row.unprocessed.values())


def test_what_a_publisher_sent_again_under_another_key_is_in_the_verdict_line(judged: Judged) -> None:
    """It was told no outcome of the first, which was processed all the same."""
    run = Run()
    key = run.key(TWO, 2)
    run.remove(lambda row: row.get("keys") == [key] and row["event"] in (Event.ACCEPTED, Event.SETTLED))
    run.remove(lambda row: row.get("keys") == [key] and row["event"] is Event.FORGOTTEN)
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.findings, report.doubts)
    told = "; processed although not accepted: 3 whose publisher received no outcome that a log shows"
    assert report.sentence.endswith(told)
