"""Every kind of violation, seeded alone into good logs: the audit reports exactly it, and whom it befell."""

from collections.abc import Callable

import pytest

from failover.audit import Finding, Report, Verdict
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, FAR, MID, NEAR, ONE, SUBSCRIBERS, TWO, Client, Row, Run
from topic.journal import BY_TTL, Event, LoggedOutcome

Spoil = Callable[[Run], Finding]


def finding(
    kind: str, run: Run, publisher: Client, tag: int, *subscribers: Client, router: str | None = None
) -> Finding:
    names = tuple(str(client.identity) for client in subscribers)
    return Finding(kind, run.key(publisher, tag).decode(), str(publisher.identity), names, router)


def subscriber_log_lacks_it(run: Run) -> Finding:
    key = run.key(ONE, 2)
    run.remove(lambda row: row.get("keys") == [key], "clients/near")
    return finding("lost", run, ONE, 2, NEAR)


def router_never_had_it_accepted(run: Run) -> Finding:
    key = run.key(ONE, 1)
    events = (Event.DELIVERED, Event.OUTCOME)
    run.remove(lambda row: row.get("keys") == [key] and row["event"] in events, "c")
    return finding("lost", run, ONE, 1, FAR)


def home_left_a_joined_subscriber_out(run: Run) -> Finding:
    key = run.key(TWO, 1)
    audience = run.find("b", Event.AUDIENCE, key)
    audience["detail"] = audience["detail"].replace(f'"{NEAR.name}", ', "")
    run.remove(lambda row: row.get("keys") == [key] and row.get("subscriber") == NEAR.name)
    return finding("lost", run, TWO, 1, NEAR)


def application_processed_twice(run: Run) -> Finding:
    row = run.find("clients/near", Event.PROCESSED, run.key(TWO, 1))
    run.after("clients/near", row)
    return finding("duplicated", run, TWO, 1, NEAR)


def at_least_once_subscriber_processed_twice(run: Run) -> Finding:
    assert MID.mode == "first"
    row = run.find("clients/mid", Event.PROCESSED, run.key(ONE, 3))
    run.after("clients/mid", row)
    return finding("duplicated", run, ONE, 3, MID)


def router_sent_it_again_after_acceptance(run: Run) -> Finding:
    row = run.find("c", Event.DELIVERED, run.key(TWO, 0))
    run.after("c", row)
    return finding("duplicated", run, TWO, 0, FAR)


def client_was_handed_a_later_one_first(run: Run) -> Finding:
    first, second = (run.find("clients/near", Event.DELIVERED, run.key(ONE, tag)) for tag in (1, 2))
    run.swap("clients/near", first, second)
    # the application still answers in its own time, in the order it got them
    first, second = (run.find("clients/near", Event.PROCESSED, run.key(ONE, tag)) for tag in (1, 2))
    first["time_us"], second["time_us"] = second["time_us"] - 500_000, second["time_us"] - 500_000
    return finding("out of order", run, ONE, 1, NEAR)


def router_sent_a_later_one_first(run: Run) -> Finding:
    first, second = (run.find("c", Event.DELIVERED, run.key(TWO, tag)) for tag in (2, 3))
    for clock in ("hlc", "time_us"):
        first[clock], second[clock] = second[clock], first[clock]
    of, to = (run.logs["c"].index(row) for row in (first, second))
    run.logs["c"][of], run.logs["c"][to] = second, first
    outcome = run.find("c", Event.OUTCOME, run.key(TWO, 2))
    outcome["hlc"] = first["hlc"] + 1
    accepted = run.find("b", Event.ACCEPTED, run.key(TWO, 2))
    for row in run.logs["b"] + run.logs["a"] + run.logs["c"]:
        if row.get("keys") == [run.key(TWO, 2)] and row["event"] in (Event.ACCEPTED, Event.SETTLED):
            row["hlc"] = first["hlc"] + (2 if row is accepted else 3)
    return finding("out of order", run, TWO, 2, FAR)


def home_did_not_wait(run: Run) -> Finding:
    accepted = run.find("b", Event.ACCEPTED, run.key(TWO, 3))
    outcome = run.find("c", Event.OUTCOME, run.key(TWO, 3))
    outcome["hlc"] = accepted["hlc"] + 1
    return finding("accepted too early", run, TWO, 3, FAR)


def publisher_knew_before_the_application_was_done(run: Run) -> Finding:
    told = run.find("clients/one", Event.OUTCOME, run.key(ONE, 0))
    run.find("clients/near", Event.PROCESSED, run.key(ONE, 0))["time_us"] = told["time_us"] + 1
    return finding("accepted too early", run, ONE, 0, NEAR)


def accepted_although_refused(run: Run) -> Finding:
    run.find("c", Event.OUTCOME, run.key(ONE, 2))["outcome"] = LoggedOutcome.REJECTED
    return finding("accepted though refused", run, ONE, 2, FAR)


def nobody_published_it(run: Run) -> Finding:
    row = run.find("clients/near", Event.DELIVERED, run.key(ONE, 3))
    run.after("clients/near", row, keys=[run.key(ONE, 99)])
    return finding("never published", run, ONE, 99, NEAR)


def publisher_was_told_something_else(run: Run) -> Finding:
    run.find("a", Event.ACCEPTED, run.key(ONE, 1))["outcome"] = LoggedOutcome.REJECTED
    return finding("misreported", run, ONE, 1, *sorted(SUBSCRIBERS, key=lambda client: client.name))


def edge_settled_too_soon(run: Run) -> Finding:
    settled = run.find("c", Event.SETTLED, run.key(TWO, 1))
    settled["hlc"] = run.find("b", Event.ACCEPTED, run.key(TWO, 1))["hlc"] - 1
    return finding("settled before accepted", run, TWO, 1, FAR, router="c")


def settled_without_any_answer(run: Run) -> Finding:
    key = run.key(TWO, 3)
    run.remove(lambda row: row.get("keys") == [key] and row["event"] is Event.ACCEPTED)
    run.remove(lambda row: row.get("keys") == [key] and row["event"] is Event.SETTLED, "a", "c")
    return finding("settled before accepted", run, TWO, 3, MID, router="b")


def record_was_kept(run: Run) -> Finding:
    key = run.key(ONE, 0)
    run.remove(lambda row: row.get("keys") == [key] and row["event"] is Event.FORGOTTEN, "b")
    return finding("never forgotten", run, ONE, 0, MID, router="b")


def router_sent_what_it_had_left_out(run: Run) -> Finding:
    sent = run.find(NEAR.router, Event.DELIVERED, run.key(ONE, 1), subscriber=NEAR.name)
    run.before(NEAR.router, sent, Event.PASSED, **without_clock(sent))
    return finding("sent though left out", run, ONE, 1, NEAR)


def home_ended_for_its_time_what_was_sent(run: Run) -> Finding:
    expire(run, ONE, 3)
    return finding("sent though expired", run, ONE, 3, *sorted(SUBSCRIBERS, key=lambda client: client.name))


def expire(run: Run, publisher: Client, tag: int) -> None:
    """Its home, a, says that it has ended the delivery for its time; and so its publisher was told."""
    key = run.key(publisher, tag)
    run.find("a", Event.ACCEPTED, key).update(outcome=LoggedOutcome.REJECTED, detail=BY_TTL)
    run.find("clients/one", Event.OUTCOME, key)["outcome"] = LoggedOutcome.REJECTED


def without_clock(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("event", "time_us", "hlc")}


SEEDED = (
    router_sent_what_it_had_left_out,
    home_ended_for_its_time_what_was_sent,
    subscriber_log_lacks_it,
    router_never_had_it_accepted,
    home_left_a_joined_subscriber_out,
    application_processed_twice,
    at_least_once_subscriber_processed_twice,
    router_sent_it_again_after_acceptance,
    client_was_handed_a_later_one_first,
    router_sent_a_later_one_first,
    home_did_not_wait,
    publisher_knew_before_the_application_was_done,
    accepted_although_refused,
    nobody_published_it,
    publisher_was_told_something_else,
    edge_settled_too_soon,
    settled_without_any_answer,
    record_was_kept,
)


@pytest.mark.parametrize("spoil", SEEDED, ids=lambda spoil: spoil.__name__)
def test_exactly_the_seeded_violation_is_found(spoil: Spoil, judged: Callable[[Run], Report]) -> None:
    run = Run()
    expected = spoil(run)
    report = judged(run)
    assert report.findings == (expected,)
    assert report.violations == {expected.kind: 1}
    assert report.verdict is Verdict.VIOLATED and report.exit_code == 1
    assert report.doubts == () and report.problems == ()
    assert ADDRESS in expected.subscribers[0]


def test_what_a_filter_leaves_out_is_not_owed(judged: Judged) -> None:
    run = Run()
    sent = run.find(NEAR.router, Event.DELIVERED, run.key(ONE, 1), subscriber=NEAR.name)
    run.leave_out(NEAR, ONE, 1)
    settled = run.find(NEAR.router, Event.ACCEPTED, run.key(ONE, 1))
    run.before(NEAR.router, settled, Event.PASSED, **without_clock(sent))
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, report.findings
    owed = {str(row.subscriber): row.owed for row in report.pairs if row.publisher == str(ONE.identity)}
    assert owed[str(NEAR.identity)] == owed[str(FAR.identity)] - 1


def test_another_filter_may_let_it_through_on_the_next_attach_and_late(judged: Judged) -> None:
    """That is out of order, and no violation; lost, it is one."""
    run = Run()
    finding = client_was_handed_a_later_one_first(run)
    assert judged(run).findings == (finding,)
    sent = run.find(NEAR.router, Event.DELIVERED, run.key(ONE, 1), subscriber=NEAR.name)
    attached = without_clock(run.find(NEAR.router, Event.ATTACHED, subscriber=NEAR.name))
    run.before(NEAR.router, sent, Event.ATTACHED, **attached)
    run.before(
        NEAR.router, run.all(NEAR.router, Event.ATTACHED, subscriber=NEAR.name)[1], Event.PASSED, **without_clock(sent)
    )
    assert judged(run).findings == ()
    run.remove(lambda row: row.get("keys") == sent["keys"], "clients/near")
    assert judged(run).violations == {"lost": 1}


def held(run: Run) -> Row:
    """b never forgets what publisher one has settled: its last entry of that."""
    record_was_kept(run)
    return run.find("b", Event.SETTLED, run.key(ONE, 0))


def test_who_lost_its_publishers_home_could_not_hear_that_it_is_settled(judged: Judged) -> None:
    run = Run()
    run.before("b", held(run), Event.LOST, peer="a")
    report = judged(run)
    assert report.verdict is Verdict.HOLDS and report.unknown_records == 1, report.findings


def test_nor_who_was_in_contact_for_a_moment_only(judged: Judged) -> None:
    run = Run()
    lost = held(run)
    run.before("b", lost, Event.LOST, peer="a")
    run.after("b", run.find("b", Event.CONTACT, peer="a"))
    assert judged(run).violations == {}


def test_who_read_it_late_had_no_time_to_hear_of_it(judged: Judged) -> None:
    """A router that was paused, and is stopped as soon as it goes on."""
    run = Run()
    held(run)
    run.after("b", run.find("b", Event.RECEIVED, run.key(ONE, 0)), peer=None, epoch=run.epoch(TWO))
    assert "never forgotten" not in judged(run).violations


@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_publisher_leaves_behind_rests_until_its_life_has_ended(judged: Judged, at_once: bool) -> None:
    run = Run()
    held(run)
    last = run.find("a", Event.SETTLED, run.key(ONE, 3)) if at_once else run.logs["a"][-1]
    run.before("a", last, Event.SUSPENDED, publisher=ONE.name)
    assert judged(run).violations == ({} if at_once else {"never forgotten": 1})


def test_what_its_home_has_ended_for_its_time_is_owed_to_nobody(judged: Judged) -> None:
    run = Run()
    expire(run, ONE, 3)
    told = (Event.ACCEPTED, Event.SETTLED, Event.FORGOTTEN)
    here, others = run.key(ONE, 3), set(run.logs) - {"a", "clients/one"}
    run.remove(lambda row: row.get("keys") == [here], *others)
    run.remove(lambda row: row.get("keys") == [here] and row["event"] not in told, "a")
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, report.findings


def test_what_was_ended_for_its_time_unread_may_be_sent_from_its_publishers_next_home(judged: Judged) -> None:
    run = Run()
    expire(run, ONE, 3)
    for row in [row for log in run.logs.values() for row in log if row.get("keys") == [run.key(ONE, 3)]]:
        if row["event"] is Event.DELIVERED and "epoch" in row:
            row["epoch"] = run.epoch(TWO)
    assert "sent though expired" not in judged(run).violations


@pytest.mark.parametrize(("publisher", "logged"), [(TWO, False), (ONE, True)])
def test_what_the_map_of_a_publisher_omits_was_settled_early_if_no_log_of_its_own_disputes_that(
    judged: Judged, publisher: Client, *, logged: bool
) -> None:
    run = Run()
    key, home = run.key(publisher, 3), publisher.router
    run.remove(lambda row: row.get("keys") == [key] and row["event"] is Event.ACCEPTED)
    run.remove(lambda row: row.get("keys") == [key] and row["event"] in (Event.OUTCOME, Event.SETTLED), "clients/one")
    settled = run.find(home, Event.SETTLED, key)
    run.before(home, settled, Event.RESOLVED, **without_clock(settled))
    assert ("settled before accepted" in judged(run).violations) is logged
