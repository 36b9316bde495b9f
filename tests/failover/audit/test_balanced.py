"""Deliveries of balanced addresses: each is had by one subscriber, whichever it is."""

import pytest

from failover.audit import Verdict
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import FAR, MID, NEAR, ONE, PUBLISHERS, SUBSCRIBERS, TWO, Client, Run
from topic.journal import ONE_OF_MANY, Event

MESSAGES = 4


def had_by(number: int) -> Client:
    return SUBSCRIBERS[number % len(SUBSCRIBERS)]


@pytest.fixture
def run() -> Run:
    return balanced_run()


def balanced_run() -> Run:
    """Each subscriber has what is its turn."""
    run = Run(MESSAGES)
    for publisher in PUBLISHERS:
        for tag in range(MESSAGES):
            for subscriber in SUBSCRIBERS:
                if subscriber is not had_by(tag):
                    leave_out(run, subscriber, publisher, tag)
            run.find(publisher.router, Event.AUDIENCE, run.key(publisher, tag))["detail"] = ONE_OF_MANY
    return run


def leave_out(run: Run, subscriber: Client, publisher: Client, tag: int) -> None:
    key = run.key(publisher, tag)
    run.remove(lambda row: row.get("keys") == [key] and row.get("subscriber") == subscriber.name)


def test_nobody_is_owed_what_is_for_one_of_many(run: Run, judged: Judged) -> None:
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, report.findings
    assert not any(row.owed or row.remarks for row in report.pairs)
    each = MESSAGES * len(PUBLISHERS)
    assert report.sentence.endswith(f"; {each} at balanced addresses and queues, each processed by one subscriber")
    assert sum(sum(row.unowed.values()) for row in report.pairs) == MESSAGES * len(PUBLISHERS)
    assert not any(row.alone for row in report.publishers)


@pytest.mark.parametrize("other", [NEAR, MID], ids=lambda client: client.container)
def test_what_two_have_had_is_found(run: Run, judged: Judged, other: Client) -> None:
    assert had_by(2) is FAR
    whole = Run(MESSAGES)
    key = run.key(ONE, 2)
    theirs = [row for row in whole.logs[other.router] if row.get("keys") == [key] and "subscriber" in row]
    theirs = [row for row in theirs if row["subscriber"] == other.name]
    accepted = run.find(ONE.router, Event.ACCEPTED, key)
    for row in theirs:
        told = {name: value for name, value in row.items() if name not in ("event", "time_us", "hlc")}
        if other.router == ONE.router:
            run.before(other.router, accepted, row["event"], **told)
        else:
            run.before(other.router, run.find(other.router, Event.SETTLED, key), row["event"], **told)
    own = [row for row in whole.logs[f"clients/{other.container}"] if row.get("keys") == [key]]
    log = run.logs[f"clients/{other.container}"]
    log[-1:-1] = own
    report = judged(run)
    assert report.violations["processed by several"] == 1
    (found,) = [finding for finding in report.findings if finding.kind == "processed by several"]
    assert set(found.subscribers) == {str(FAR.identity), str(other.identity)}


def test_what_nobody_has_had_is_found(run: Run, judged: Judged) -> None:
    leave_out(run, had_by(1), ONE, 1)
    report = judged(run)
    assert report.violations == {"processed by nobody": 1}


def test_what_was_processed_without_an_acceptance_is_told_apart(run: Run, judged: Judged) -> None:
    """Its publisher may send it again, under another key."""
    key = run.key(TWO, 3)
    told = (Event.ACCEPTED, Event.SETTLED, Event.FORGOTTEN)
    run.remove(lambda row: row.get("keys") == [key] and row["event"] in told)
    report = judged(run)
    assert "; processed although not accepted: 1 whose publisher received no outcome" in report.sentence
    counts = [row.unowed for row in report.pairs if row.unowed.get("unanswered")]
    assert counts == [{"balanced": 1, "unanswered": 1}]


def test_what_is_accepted_before_anybody_has_it_is_found(run: Run, judged: Judged) -> None:
    key = run.key(ONE, 1)
    accepted = run.find(ONE.router, Event.ACCEPTED, key)
    outcome = run.find(had_by(1).router, Event.OUTCOME, key)
    outcome["hlc"] = accepted["hlc"] + (1 << 16)
    assert judged(run).violations["processed by nobody"] == 1


def test_the_order_is_nobodys(run: Run, judged: Judged) -> None:
    """What was given back comes to another, later."""
    log = run.logs["clients/near"]
    assert had_by(0) is had_by(3) is NEAR
    first = [row for row in log if row.get("keys") == [run.key(ONE, 0)]]
    later = [row for row in log if row.get("keys") == [run.key(ONE, 3)]]
    for row, other in zip(first, later, strict=True):
        row["keys"], other["keys"] = other["keys"], row["keys"]
    report = judged(run)
    assert "out of order" not in report.violations
