"""Publishers that are answered a second time, or begin a life of another generation: nobody is accused for it."""

import json

import pytest

from failover.audit import Verdict
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, NEAR, ONE, START_MS, Client, Row, Run
from topic.identity import Epoch, new_generation
from topic.journal import Event, LoggedOutcome

FORMER = str(Epoch((START_MS << 16) - 1, "a", START_MS))
"""Of the attach before."""


@pytest.mark.parametrize(("before", "violations"), [((), {}), ((NEAR,), {"accepted too early": 1})])
def test_what_was_accepted_before_for_an_audience_without_a_subscriber_was_not_accepted_too_early(
    judged: Judged, before: tuple[Client, ...], violations: dict[str, int]
) -> None:
    """The answer got lost; as the publisher sends it again, more have joined."""
    run = Run()
    key = run.key(ONE, 0)
    received = run.find("a", Event.RECEIVED, key)
    about: Row = {"keys": [key], "address": ADDRESS, "publisher": ONE.name, "epoch": FORMER}
    for event, columns in (
        (Event.RECEIVED, {"n": 2, "generation": received["generation"], "tags": received["tags"]}),
        (Event.AUDIENCE, {"detail": json.dumps([client.name for client in before])}),
        (Event.ACCEPTED, {"outcome": LoggedOutcome.ACCEPTED}),
    ):
        run.before("a", received, event, **about, **columns)
    for joined in run.all("a", Event.JOINED):
        if joined["subscriber"] not in [client.name for client in before]:
            run.drop("a", joined)
            run.before("a", received, **{name: joined[name] for name in joined.keys() - {"time_us", "hlc"}})
    assert judged(run).violations == violations


@pytest.mark.parametrize("again", [False, True])
def test_what_a_publisher_sent_in_a_life_that_is_over_is_settled_without_an_answer(judged: Judged, again: bool) -> None:
    """Of another generation, it has given up what it had sent."""
    run = Run()
    key = run.key(ONE, 3)
    settled = run.find("a", Event.SETTLED, key)
    run.remove(lambda row: row["event"] is Event.ACCEPTED and row.get("keys") == [key], "a")
    run.remove(lambda row: row["event"] in (Event.OUTCOME, Event.SETTLED) and row.get("keys") == [key], "clients/one")
    if again:
        columns: Row = {"publisher": ONE.name, "address": ADDRESS, "detail": ONE.detail}
        epoch = Epoch((settled["hlc"]) - 1, "a", START_MS)
        run.before("a", settled, Event.ATTACHED, epoch=str(epoch), generation=new_generation(epoch), **columns)
    report = judged(run)
    found = report.violations.keys() & {"settled by nobody", "settled before accepted"}
    assert found == (set() if again else {"settled by nobody", "settled before accepted"})
    assert (report.verdict is Verdict.HOLDS) == again
