"""Wall clocks that are set while logs are written, or disagree on one host: noticed, and nothing is ordered by them."""

import pytest

from failover.audit import Verdict
from failover.audit.mesh.exchanges import LEAST
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import MID, NEAR, ONE, START_MS, TWO, Run
from topic.identity import Epoch
from topic.journal import Event

HOUR_MS = 3_600_000
LOGS = ("a", "b", "clients/one", "clients/near", "clients/mid")


def move(run: Run, log: str, ms: int, since: float = 0.0) -> None:
    """The wall clock of this log is so far off, from this part of its entries on."""
    rows = run.logs[log]
    for row in rows[int(len(rows) * since) :]:
        row["time_us"] += ms * 1000


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("ms", [500, -500, 20, -20])
def test_a_log_that_is_shifted_accuses_nobody(judged: Judged, log: str, ms: int) -> None:
    run = Run(messages=40)
    move(run, log, ms)
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.findings, report.doubts)
    source = log.removeprefix("clients/")
    assert report.clocks and all(source in clock and "disagree" in clock for clock in report.clocks)


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("since", [0.2, 0.5, 0.8])
def test_a_clock_that_is_set_by_an_hour_accuses_nobody(judged: Judged, log: str, ms: int, since: float) -> None:
    run = Run(messages=120)
    move(run, log, ms, since)
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.findings, report.doubts)
    assert len(report.clocks) >= 1, report.clocks


@pytest.mark.parametrize("since", [0.3, 0.9])
def test_nor_does_one_that_is_set_back_for_all_of_a_host(judged: Judged, since: float) -> None:
    run = Run(messages=40)
    then = Run(messages=int(40 * since)).logs["a"][-1]["hlc"] - (5_000 << 16)
    for log in run.logs:
        for row in run.logs[log]:
            if row["hlc"] > then:
                row["time_us"] -= HOUR_MS * 1000
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.findings, report.doubts)
    assert "the clock of a was set back by 3600.0 s while its log was written" in report.clocks


@pytest.mark.parametrize("ms", [500, HOUR_MS, -HOUR_MS])
def test_what_its_log_shows_as_lost_or_doubled_is_found_all_the_same(judged: Judged, ms: int) -> None:
    run = Run(messages=40)
    run.remove(lambda row: row.get("keys") == [run.key(ONE, 20)], "clients/near")
    again = run.find("clients/mid", Event.PROCESSED, run.key(TWO, 30))
    run.after("clients/mid", again)
    for log in ("clients/near", "clients/mid"):
        move(run, log, ms, 0.5)
    assert judged(run).violations == {"lost": 1, "duplicated": 1}


@pytest.mark.parametrize("ms", [500, HOUR_MS, -HOUR_MS])
def test_what_a_killed_client_may_have_lost_is_not_known_whenever_that_was(judged: Judged, ms: int) -> None:
    run = Run(messages=40)
    move(run, "clients/near", ms, 0.5)
    run.kill("clients/near", lost=3)
    report = judged(run)
    assert report.verdict is Verdict.UNDECIDED and report.violations == {}, report.findings


@pytest.mark.parametrize("count", [1, LEAST, 30])
@pytest.mark.parametrize(
    ("hosts", "us", "ahead_ms"), [("one", 1, 0), ("each its own", 1_500_000, 0), ("each its own", 1_500_000, 5_000)]
)
def test_a_router_that_answers_before_its_subscriber_did_is_no_wrong_clock(
    judged: Judged, count: int, hosts: str, us: int, ahead_ms: int
) -> None:
    """Its subscriber was busy with these for longer than they took at the router, by whatever clock. So it is found,
    too, if the subscriber's clock is ahead, and is put right."""
    run = Run(messages=40)
    run.hosts = {log: "host" if hosts == "one" else log for log in run.logs}
    for tag in range(5, 5 + count):
        told = run.find("clients/one", Event.OUTCOME, run.key(ONE, tag))["time_us"]
        for row in [row for rows in run.logs.values() for row in rows if row["time_us"] > told]:
            row["time_us"] += us
            row["hlc"] += us // 1000 << 16
        run.find("clients/near", Event.PROCESSED, run.key(ONE, tag))["time_us"] = told + us
    move(run, "clients/near", ahead_ms)
    report = judged(run)
    assert report.violations == {"accepted too early": count} and report.clocks == ()
    assert {finding.subscribers for finding in report.findings} == {(str(NEAR.identity),)}


def test_where_only_a_wrong_clock_could_tell_it_is_not_known(judged: Judged) -> None:
    """The routers' entries of what mid had accepted are gone."""
    run = Run(messages=40)
    key = run.key(ONE, 20)
    move(run, "clients/mid", 500)
    run.remove(lambda row: row.get("keys") == [key] and row["event"] is Event.OUTCOME, "b")
    report = judged(run)
    assert report.verdict is Verdict.UNDECIDED, report.findings
    assert {row.subscriber for row in report.pairs if row.unknown} == {str(MID.identity)}


@pytest.mark.parametrize("ms", [3_000, -3_000, 1_500])
@pytest.mark.parametrize("since", [0.3, 0.7])
def test_a_host_whose_clock_is_set_disagrees_with_others_and_accuses_nobody(
    judged: Judged, ms: int, since: float
) -> None:
    """Its own logs agree with each other, and what contacts and attaches tell is from before."""
    run = Run(messages=40)
    since_ms = run.logs["a"][int(len(run.logs["a"]) * since)]["hlc"]
    for log, rows in run.logs.items():
        run.hosts[log] = "north" if log in ("a", "clients/near") else "south"
        for row in rows:
            row["time_us"] += ms * 1000 if run.hosts[log] == "north" and row["hlc"] >= since_ms else 0
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.findings, report.doubts)
    disagreeing = f"the clocks of the hosts north and south disagree by at least {(abs(ms) - 1) / 1000:g} s"
    assert disagreeing in report.clocks or (ms < 0 and "was set back" in report.clocks[0]), report.clocks


def test_an_edge_and_a_home_whose_clocks_were_both_set_accuse_nobody(judged: Judged) -> None:
    """The edge's clock was set before mid attached there, so mid's clock is put right by a wrong one. Between edge and
    home only the home's clock is blamed: the publisher's clock shows that the edge's is wrong, too."""
    run = Run(messages=40)
    twos = [[run.key(TWO, tag)] for tag in range(40)]
    run.remove(lambda row: row.get("keys") in twos)
    run.hosts = {log: "south" if log in ("c", "clients/one") else log for log in run.logs}
    met = max(row["hlc"] for row in run.logs["b"] if row["event"] is Event.CONTACT)
    for row in run.logs["b"]:
        row["time_us"] += 42_000_000 if row["hlc"] > met else 0
    move(run, "a", 17_000, 0.5)
    report = judged(run)
    assert report.violations == {}, report.findings
    assert any("b and south disagree by" in clock for clock in report.clocks), report.clocks


@pytest.mark.parametrize("messages", [LEAST - 1, 40])
def test_a_subscriber_whose_clock_is_put_right_by_a_wrong_one_accuses_nobody(judged: Judged, messages: int) -> None:
    """The router that sent it everything was set back, so nothing is ordered by its clock. In the end the subscriber
    attached at another one, which had been set forward. A few deliveries do not show that."""
    run = Run(messages=messages)
    run.hosts = {log: log for log in run.logs}
    move(run, "a", -HOUR_MS, 0.5)
    again = {"epoch": str(Epoch((START_MS << 16) + 1, "c", START_MS))}
    run.after("clients/near", run.find("clients/near", Event.ATTACHED), **again)
    run.after("c", run.find("a", Event.ATTACHED, subscriber=NEAR.name), **again)
    for row in run.logs["c"][-2:]:
        row["time_us"] += 3_000_000
    report = judged(run)
    assert report.violations == {}, report.findings
    assert any("clients/near" in clock for clock in report.clocks) is (messages >= LEAST), report.clocks


@pytest.mark.parametrize("ms", [500, -20])
def test_clocks_of_one_host_that_disagree_are_told_with_the_host(judged: Judged, ms: int) -> None:
    run = Run(messages=40)
    move(run, "clients/near", ms)
    apart = f"{(abs(ms) - 1) / 1000:g} s"
    said = f"the clocks of a and clients/near disagree by at least {apart}, although both run on the host host"
    assert judged(run).clocks == (said,)
