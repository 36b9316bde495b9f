"""What the report tells besides the verdict: fates of deliveries that met a fault, retries, placeholders, fences."""

from failover.audit import Report
from failover.audit.measure.crossings import RouterRow
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, FAR, NEAR, ONE, TWO, Row, Run
from tests.failover.audit.test_lost_homes import reborn
from tests.failover.audit.test_open_homes import logged_ends
from topic.journal import Event, LoggedOutcome


def router(report: Report, name: str) -> RouterRow:
    [row] = [row for row in report.routers if row.router == name]
    return row


def test_a_good_run_needs_no_second_try(judged: Judged) -> None:
    report = judged(Run())
    assert [row.router for row in report.routers] == ["a", "b", "c"]
    assert [(row.incarnations, row.unended, row.received) for row in report.routers] == [
        (1, 0, 4),
        (1, 0, 4),
        (1, 0, 0),
    ]
    assert {row.sent for row in report.routers} == {8}
    for row in report.routers:
        assert (row.received_again, row.sent_again, row.refused, row.rehomed) == (0, 0, 0, 0)
        assert (row.placeholders, row.fenced, row.stolen) == ({}, 0, 0)
    assert report.crossings == ()


def test_retries_are_counted_at_the_router_that_made_them(judged: Judged) -> None:
    run = Run()
    sent = run.find("c", Event.DELIVERED, run.key(ONE, 1))
    rows = run.logs["c"]
    refusal = sent | {"event": Event.OUTCOME, "outcome": LoggedOutcome.RELEASED}
    rows[rows.index(sent) + 1 : rows.index(sent) + 1] = [refusal, dict(sent)]
    row = router(judged(run), "c")
    assert (row.sent, row.sent_again, row.refused) == (9, 1, 1)


def test_what_a_publisher_sends_to_its_next_home_is_received_again(judged: Judged) -> None:
    run = logged_ends()
    epoch = reborn(run, found=True)
    rows = run.again["a"]
    about: Row = {"keys": [run.key(ONE, 1)], "address": ADDRESS, "publisher": ONE.name, "epoch": epoch}
    rows.insert(-1, rows[-1] | {"event": Event.RECEIVED, "n": 0} | about)
    assert router(judged(run), "a").received_again == 1


def test_placeholders_are_told_by_what_became_of_them(judged: Judged) -> None:
    run = logged_ends()
    reborn(run, found=True)
    assert router(judged(run), "b").placeholders == {"settled": 1}
    rows = run.again["b"]
    rows[:] = [row for row in rows if row["event"] not in (Event.RESOLVED, Event.FORGOTTEN, Event.SETTLED)]
    assert router(judged(run), "b").placeholders == {"held": 1}
    del rows[-1]  # its clean end
    assert router(judged(run), "b").placeholders == {"unknown": 1}


def test_fences_and_steals_are_counted(judged: Judged) -> None:
    run = Run()
    run.after("a", {"event": Event.STOLEN}, subscriber=FAR.name, peer="b")
    for _ in range(2):
        run.after("b", {"event": Event.FENCED}, publisher=TWO.name, peer="c", epoch=run.epoch(TWO))
    report = judged(run)
    assert [(row.fenced, row.stolen) for row in report.routers] == [(0, 1), (2, 0), (0, 0)]


def test_the_fate_of_what_a_killed_router_left_on_its_way_is_told(judged: Judged) -> None:
    """Publisher one's last delivery was published, and handed to subscribers, when the log of its router ends."""
    run = logged_ends()
    outcome = run.find("a", Event.OUTCOME, run.key(ONE, 5), subscriber=NEAR.name)
    del run.logs["a"][run.logs["a"].index(outcome) :]
    [crossing] = judged(run).crossings
    assert crossing.fault == "the log of a ends" and crossing.at_us == run.logs["a"][-1]["time_us"]
    assert (crossing.crossed, crossing.fates) == (1, {"accepted": 1})


def test_a_fate_that_is_not_known_is_called_so(judged: Judged) -> None:
    run = logged_ends()
    outcome = run.find("a", Event.OUTCOME, run.key(ONE, 5), subscriber=NEAR.name)
    del run.logs["a"][run.logs["a"].index(outcome) :]
    run.kill("clients/near", lost=2)  # among it that it processed this
    [crossing] = judged(run).crossings
    assert (crossing.crossed, crossing.fates) == (1, {"unknown": 1})
    run.remove(lambda row: row["event"] is Event.OUTCOME and row["keys"] == [run.key(ONE, 5)], "clients/one")
    [crossing] = judged(run).crossings
    assert (crossing.crossed, crossing.fates) == (1, {"unanswered": 1})


def test_a_violated_fate_is_called_so(judged: Judged) -> None:
    run = logged_ends()
    outcome = run.find("a", Event.OUTCOME, run.key(ONE, 5), subscriber=NEAR.name)
    del run.logs["a"][run.logs["a"].index(outcome) :]
    sent = run.find("b", Event.DELIVERED, run.key(ONE, 5))
    told = {name: value for name, value in sent.items() if name not in ("event", "time_us", "hlc")}
    run.before("b", sent, Event.PASSED, **told)
    [crossing] = judged(run).crossings
    assert crossing.fates == {"violated": 1}
