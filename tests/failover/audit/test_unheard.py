"""A home that is new, and has not heard of a subscriber, accepts what a former one owed to it (protocol 10)."""

import json

import pytest

from failover.audit import Verdict
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import FAR, NEAR, ONE, START_MS, Row, Run
from topic.identity import Epoch
from topic.journal import Event

LATER_MS = 3_001
"""By then what is said on a contact has arrived."""


def taken_over(*contacts: str, later_ms: int = LATER_MS) -> Run:
    """Router a has been started anew as it has the last delivery of publisher one, which far has not processed. With
    these routers it comes into contact, and so much later it accepts that."""
    run = Run()
    key = run.key(ONE, 3)
    rows = [run.find("a", event, key) for event in (Event.ACCEPTED, Event.SETTLED, Event.FORGOTTEN)]
    began = {name: rows[0][name] - 1 for name in ("time_us", "hlc")}
    for row in (row for log in run.logs.values() for row in log if row["hlc"] > began["hlc"]):
        row["time_us"] += later_ms * 1000
        row["hlc"] += later_ms << 16
    run.leave_out(FAR, ONE, 3)
    received = run.find("a", Event.RECEIVED, key)
    run.drop("a", *rows, run.find("a", Event.CLOSED, subscriber=NEAR.name))
    run.logs["a"][-1] |= began
    epoch = {"epoch": str(Epoch(began["hlc"], "a", START_MS + 1))}
    met: list[Row] = [_contact(peer, START_MS) | began for peer in contacts]
    for peer in contacts:
        run.logs[peer].insert(-1, _contact("a", START_MS + 1) | began)
    kept = {"event": Event.KEPT, "detail": json.dumps({"found": True})}
    opening: list[Row] = [{"event": Event.BOOT} | began, kept | began, *met]
    again = received | began | epoch
    nobody = {"event": Event.AUDIENCE, "detail": "[]", "generation": None, "tags": None}
    stop = run.logs["b"][-1]
    run.again["a"] = [*opening, again, again | nobody, *(row | epoch for row in rows), dict(stop)]
    return run


def _contact(peer: str, incarnation: int) -> Row:
    return {"event": Event.CONTACT, "peer": peer, "detail": json.dumps({"incarnation": incarnation})}


def test_who_was_unheard_of_is_left_out_by_name(judged: Judged) -> None:
    report = judged(taken_over())
    assert report.verdict is Verdict.QUALIFIED, (report.violations, report.doubts)
    assert report.sentence.endswith(
        f"1 delivery was accepted without {FAR.identity}, a subscriber that router a did not know"
    )


def test_who_has_just_come_into_contact_need_not_have_heard_of_a_subscriber(judged: Judged) -> None:
    assert judged(taken_over("c", later_ms=0)).verdict is Verdict.QUALIFIED


@pytest.mark.parametrize(("dead", "later_ms", "lost"), [(5.0, LATER_MS, {}), (0.5, 1_501, {"lost": 1})])
def test_how_long_word_is_under_way_depends_on_the_timing_that_routers_log(
    judged: Judged, dead: float, later_ms: int, lost: dict[str, int]
) -> None:
    run = taken_over("c", later_ms=later_ms)
    run.logs["c"][0]["detail"] = json.dumps({"dead": dead})
    assert judged(run).violations == lost


@pytest.mark.parametrize("told_by", ["c", "b"])
def test_who_can_have_heard_of_a_subscriber_has_lost_what_it_accepts_without_it(judged: Judged, told_by: str) -> None:
    assert judged(taken_over(told_by)).violations == {"lost": 1}


def test_a_router_whose_store_had_the_subscriber_knew_it(judged: Judged) -> None:
    run = taken_over()
    kept = run.again["a"][1] | {"detail": None, "subscriber": FAR.name, "epoch": run.epoch(FAR)}
    run.again["a"].insert(2, kept)
    assert judged(run).violations == {"lost": 1}


def test_nobody_is_excused_by_logs_that_may_lack_a_contact_nor_accused(judged: Judged) -> None:
    run = taken_over()
    run.kill("b")
    report = judged(run)
    assert report.verdict is Verdict.UNDECIDED, report.sentence
    assert [doubt for doubt in report.doubts if doubt.startswith("1 deliveries") and str(FAR.identity) in doubt]
