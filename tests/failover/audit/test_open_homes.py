"""A home whose log breaks off: whom its last deliveries were for is known from others, or not at all."""

import json

from failover.audit import Report, Verdict
from failover.audit.mesh.contacts import watched_spans
from failover.audit.read.inventory import Log
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, FAR, MID, NEAR, ONE, ROUTERS, TWO, Client, Run
from tests.failover.audit.test_audiences import Log as Rows
from topic.journal import Event

CUT = "the log of a may lack its end: subscribers of deliveries after "


def logged_ends(messages: int = 6) -> Run:
    """Only publisher one and subscribers that log."""
    run = Run(messages=messages)
    run.remove(lambda row: FAR.name in (row.get("subscriber"), *row.get("keys", ())))
    for row in run.logs["a"] + run.logs["b"]:
        if row["event"] is Event.AUDIENCE:
            row["detail"] = row["detail"].replace(f', "{FAR.name}"', "")
    two = [run.key(TWO, tag) for tag in range(messages)]
    run.remove(lambda row: row.get("keys", [b""])[0] in two or row.get("publisher") == TWO.name)
    return run


def cut(run: Run, key: bytes) -> None:
    """The log of a breaks off before it received this."""
    rows = run.logs["a"]
    del rows[rows.index(run.find("a", Event.RECEIVED, key)) :]


def alone(run: Run) -> None:
    """Nobody is in contact with a."""
    run.remove(lambda row: row["event"] is Event.CONTACT and (row.get("peer") == "a"))
    run.remove(lambda row: row["event"] is Event.CONTACT, "a")


def doubts(report: Report) -> list[str]:
    return [doubt for doubt in report.doubts if doubt.startswith(CUT) and doubt.endswith(" are unknown")]


def test_routers_in_contact_know_who_was_joined(judged: Judged) -> None:
    run = logged_ends()
    cut(run, run.key(ONE, 3))
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.doubts, report.findings)


def test_without_a_witness_it_is_not_known_who_was_owed_what(judged: Judged) -> None:
    run = logged_ends()
    alone(run)
    cut(run, run.key(ONE, 3))
    report = judged(run)
    assert report.verdict is Verdict.UNDECIDED and report.violations == {}
    assert len(doubts(report)) == 1


def test_a_witness_that_had_lost_contact_is_none(judged: Judged) -> None:
    run = logged_ends()
    accepted = run.find("a", Event.ACCEPTED, run.key(ONE, 4))
    cut(run, run.key(ONE, 3))
    for router in "bc":
        row = next(row for row in run.logs[router] if row["time_us"] > accepted["time_us"] - 3000)
        run.before(router, row, Event.LOST, peer="a")
    assert judged(run).verdict is Verdict.UNDECIDED


def test_a_relay_that_is_killed_takes_no_knowledge_with_it(judged: Judged) -> None:
    run = logged_ends()
    run.remove(lambda row: MID.name == row.get("subscriber"))
    del run.logs["clients/mid"]
    for row in run.logs["a"]:
        if row["event"] is Event.AUDIENCE:
            row["detail"] = json.dumps([NEAR.name])
    alone(run)
    run.kill("b", lost=6)
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.doubts, report.findings)


def test_a_subscriber_that_only_its_own_log_knows_may_have_been_owed_it(judged: Judged) -> None:
    late = Client("late", "a", "subscriber")
    run = logged_ends()
    attached = run.find("clients/near", Event.ATTACHED)
    cut(run, run.key(ONE, 3))
    clock = {name: attached[name] for name in ("time_us", "hlc")}
    stop = run.logs["clients/near"][-1]
    columns = {"subscriber": late.name, "address": ADDRESS, "detail": late.detail}
    run.logs["clients/late"] = [
        {"event": Event.BOOT} | clock,
        {"event": Event.ATTACHED} | clock | columns,
        {"event": Event.STOPPED} | {name: stop[name] for name in ("time_us", "hlc")},
    ]
    report = judged(run)
    assert report.verdict is Verdict.UNDECIDED
    assert len(doubts(report)) == 1 and any("3 accepted deliveries did not reach" in doubt for doubt in report.doubts)


def all_killed(run: Run, *, found: bool = True) -> None:
    """At the same time, with the last entries of each lost, and started again."""
    cut(run, run.key(ONE, 3))
    for router in "bc":
        rows = run.logs[router]
        del rows[rows.index(run.find(router, Event.RECEIVED, run.key(ONE, 5))) :]
    last = max(rows[-1]["time_us"] for rows in run.logs.values())
    clock = {"time_us": last, "hlc": last // 1000 << 16}
    for router in ROUTERS:
        kept = {"event": Event.KEPT, "detail": json.dumps({"found": found})}
        run.again[router] = [row | clock for row in ({"event": Event.BOOT}, kept, {"event": Event.STOPPED})]


def test_what_routers_find_in_their_stores_tells_who_may_have_been_owed_it(judged: Judged) -> None:
    run = logged_ends()
    all_killed(run)
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.doubts, report.findings)


def test_without_their_stores_nobody_can_tell(judged: Judged) -> None:
    run = logged_ends()
    all_killed(run, found=False)
    report = judged(run)
    assert report.verdict is Verdict.UNDECIDED
    assert len(doubts(report)) == 1


def test_a_subscriber_that_only_a_store_knows_may_have_been_owed_it(judged: Judged) -> None:
    late = Client("late", "a", "subscriber")
    run = logged_ends()
    all_killed(run)
    row = run.again["b"][1] | {"subscriber": late.name, "address": ADDRESS, "epoch": run.epoch(late)}
    run.again["b"].insert(2, row)
    report = judged(run)
    assert report.verdict is Verdict.UNDECIDED
    assert any("accepted deliveries did not reach" in doubt for doubt in report.doubts), report.doubts


def test_a_contact_lasts_as_long_as_both_see_it() -> None:
    rows = Rows()
    for router, peer, at in (("a", "b", 10), ("b", "a", 12)):
        rows.say(router, Event.CONTACT, at=at, epoch=0, peer=peer, detail='{"incarnation": 1}', subscriber=None)
    rows.say("b", Event.LOST, at=30, epoch=0, peer="a", subscriber=None)
    logs = [Log("a", "router", 1, "h", 0, 25, stopped=False), Log("b", "router", 1, "h", 0, 90, stopped=True)]
    assert watched_spans(rows.rows, logs) == {"a.1": [(12, 30)]}
    rows.say("a", Event.LOST, at=20, epoch=0, peer="b", subscriber=None)
    assert watched_spans(rows.rows, logs) == {"a.1": [(12, 20)]}
