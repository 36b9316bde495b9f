"""Logs that must tell the same of a delivery and do not: each such dispute is found, alone, and where it is known."""

from collections.abc import Callable

import pytest

from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import FAR, NEAR, ONE, TWO, Client, Run
from topic.journal import Event, LoggedOutcome

Spoil = Callable[[Run], tuple[str, Client, str | None]]


def home_did_not_forward_it(run: Run) -> tuple[str, Client, str | None]:
    run.drop("a", run.find("a", Event.FORWARDED, run.key(ONE, 2), peer="c"))
    return "forwarded by nobody", ONE, "c"


def home_forwarded_it_in_another_epoch(run: Run) -> tuple[str, Client, str | None]:
    run.find("b", Event.FORWARDED, run.key(TWO, 2), peer="a")["epoch"] = f"7.b.{run.epoch(TWO).rpartition('.')[2]}"
    return "forwarded by nobody", TWO, "a"


def edge_has_it_at_another_place(run: Run) -> tuple[str, Client, str | None]:
    run.find("c", Event.RECEIVED, run.key(ONE, 1))["n"] = 2
    return "place disputed", ONE, "c"


def subscriber_got_it_from_nobody(run: Run) -> tuple[str, Client, str | None]:
    run.drop("a", run.find("a", Event.DELIVERED, run.key(TWO, 3), subscriber=NEAR.name))
    return "sent by nobody", TWO, None


def router_has_an_acceptance_that_the_subscriber_did_not_give(run: Run) -> tuple[str, Client, str | None]:
    """Of what it is not owed, or it would be lost."""
    key = run.key(TWO, 1)
    run.leave_out(NEAR, TWO, 1, audience=False)
    for row in [row for row in run.logs["b"] if row["event"] is Event.JOINED and row["subscriber"] == NEAR.name]:
        run.drop("b", row)
    about = {"keys": [key], "subscriber": NEAR.name, "address": "topic/news", "publisher": TWO.name}
    received = run.find("a", Event.RECEIVED, key)
    at = {"time_us": received["time_us"] + 1, "hlc": received["hlc"] + 1, "epoch": run.epoch(TWO)}
    rows = run.logs["a"]
    rows.insert(rows.index(received) + 1, {"event": Event.OUTCOME, "outcome": LoggedOutcome.ACCEPTED} | about | at)
    return "outcome disputed", TWO, None


def router_has_a_refusal_where_the_subscriber_accepted(run: Run) -> tuple[str, Client, str | None]:
    run.find("a", Event.OUTCOME, run.key(ONE, 0), subscriber=NEAR.name)["outcome"] = LoggedOutcome.REJECTED
    return "outcome disputed", ONE, None


def home_settled_what_its_publisher_was_told_nothing_of(run: Run) -> tuple[str, Client, str | None]:
    run.drop("clients/one", run.find("clients/one", Event.OUTCOME, run.key(ONE, 3)))
    return "settled by nobody", ONE, None


DISPUTES = (
    home_did_not_forward_it,
    home_forwarded_it_in_another_epoch,
    edge_has_it_at_another_place,
    subscriber_got_it_from_nobody,
    router_has_an_acceptance_that_the_subscriber_did_not_give,
    router_has_a_refusal_where_the_subscriber_accepted,
    home_settled_what_its_publisher_was_told_nothing_of,
)


@pytest.mark.parametrize("spoil", DISPUTES, ids=lambda spoil: spoil.__name__)
def test_a_dispute_is_found(spoil: Spoil, judged: Judged) -> None:
    run = Run()
    kind, publisher, router = spoil(run)
    report = judged(run)
    assert report.violations == {kind: 1}, report.findings
    [finding] = report.findings
    assert (finding.publisher, finding.router) == (str(publisher.identity), router)


def test_what_a_killed_home_may_have_forwarded_is_no_dispute(judged: Judged) -> None:
    run = Run()
    home_did_not_forward_it(run)
    run.kill("a", lost=1)
    assert "forwarded by nobody" not in judged(run).violations


def test_what_a_killed_router_may_have_sent_is_no_dispute(judged: Judged) -> None:
    run = Run()
    run.logs["a"] = run.logs["a"][: run.logs["a"].index(run.find("a", Event.RECEIVED, run.key(TWO, 3)))]
    assert "sent by nobody" not in judged(run).violations


def test_a_subscriber_without_a_log_of_its_own_disputes_nothing(judged: Judged) -> None:
    run = Run()
    run.find("c", Event.OUTCOME, run.key(ONE, 0), subscriber=FAR.name)["outcome"] = LoggedOutcome.REJECTED
    assert judged(run).violations == {"accepted though refused": 1}


def test_what_only_a_map_names_after_its_publishers_life_is_settled_by_whoever_is_its_home(judged: Judged) -> None:
    """Publisher one has begun afresh at b, and has been told nothing of what it had in doubt at a."""
    run = Run()
    key = run.key(ONE, 3)
    run.drop("clients/one", run.find("clients/one", Event.OUTCOME, key), run.find("clients/one", Event.SETTLED, key))
    for row in (run.find("a", event, key) for event in (Event.ACCEPTED, Event.SETTLED)):
        row["event"] = Event.ABANDONED
    for router in "bc":
        run.remove(lambda row: row.get("keys") == [key], router)
    about = {"keys": [key], "address": "topic/news", "publisher": ONE.name, "epoch": run.epoch(TWO)}
    stop = run.logs["b"][-1]
    for event in (Event.PLACEHOLDER, Event.REHOMED, Event.SETTLED, Event.FORGOTTEN):
        run.before("b", stop, event, **about)
    assert "settled by nobody" not in judged(run).violations
    run.find("b", Event.PLACEHOLDER)["event"] = Event.RECEIVED
    assert judged(run).violations["settled by nobody"] == 1
