"""Subscribers that left or expired: which homes need not await them any more, and what they are still owed."""

from io import StringIO

import pytest
from rich.console import Console

from failover.audit import Verdict
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, FAR, NEAR, ONE, START_MS, TWO, Run
from topic.identity import Epoch
from topic.journal import Event


def test_a_subscriber_that_left_is_owed_nothing_from_then_on(judged: Judged) -> None:
    run = Run()
    gone = run.find("a", Event.CLOSED, subscriber=NEAR.name)
    run.remove(lambda row: row is gone)
    first = run.find("a", Event.RECEIVED, run.key(ONE, 3))
    run.before("a", first, Event.CLOSED, subscriber=NEAR.name, epoch=run.epoch(NEAR))
    for publisher in (ONE, TWO):
        run.leave_out(NEAR, publisher, 3)

    report = judged(run)

    assert report.verdict is Verdict.HOLDS, (report.doubts, report.findings)
    assert sorted(row.owed for row in report.pairs) == [3, 3, 4, 4, 4, 4]


def test_who_leaves_and_comes_back_is_owed_nothing_in_between(judged: Judged) -> None:
    run = Run()
    c_heard = run.find("c", Event.RECEIVED, run.key(ONE, 1))
    run.before("c", c_heard, Event.CLOSED, subscriber=FAR.name, epoch=run.epoch(FAR))
    again = str(Epoch(c_heard["hlc"], "c", START_MS))
    for router, tag in (("a", 2), ("b", 3), ("c", 2)):  # b is the last to hear that it is back
        back = run.find(router, Event.RECEIVED, run.key(ONE, tag))
        peer = None if router == "c" else "c"
        run.before(router, back, Event.JOINED, subscriber=FAR.name, address=ADDRESS, peer=peer, epoch=again)
    run.leave_out(FAR, ONE, 1)  # not accepted yet
    run.leave_out(FAR, TWO, 0, 1)  # published at b, which had not heard of the departure
    run.leave_out(FAR, TWO, 2, audience=False)
    late = run.find("b", Event.ACCEPTED, run.key(TWO, 0))
    late |= {"hlc": c_heard["hlc"] + 1, "time_us": c_heard["time_us"] + 1}
    for row in [row for log in "abc" for row in run.logs[log] if row.get("keys") == [run.key(TWO, 0)]]:
        if row["event"] in (Event.SETTLED, Event.FORGOTTEN):
            row["hlc"] = c_heard["hlc"] + 2

    report = judged(run)

    assert report.verdict is Verdict.HOLDS, (report.doubts, report.findings)
    owed = {row.publisher: row.owed for row in report.pairs if row.subscriber == str(FAR.identity)}
    assert owed == {str(ONE.identity): 3, str(TWO.identity): 1}


@pytest.mark.parametrize("apart", [True, False])
def test_expiry_relieves_of_what_is_not_accepted_who_can_have_heard_of_it(judged: Judged, apart: bool) -> None:
    run = Run()
    run.before(
        "a",
        run.find("a", Event.ACCEPTED, run.key(ONE, 2)),
        Event.EXPIRED,
        subscriber=FAR.name,
        epoch=run.epoch(FAR),
    )
    joined = {"subscriber": FAR.name, "address": ADDRESS, "peer": "c", "epoch": run.epoch(FAR)}
    run.before("a", run.find("a", Event.RECEIVED, run.key(ONE, 3)), Event.JOINED, **joined)
    run.leave_out(FAR, ONE, 1)  # accepted before: lost
    run.leave_out(FAR, ONE, 2)  # relieved
    run.leave_out(FAR, ONE, 3)  # joined again, in the same epoch: lost
    run.leave_out(FAR, TWO, 2)  # of another home: lost if it was out of contact
    for peer in ("b", "c") if apart else ():
        run.before("a", run.find("a", Event.EXPIRED), Event.LOST, peer=peer)

    report = judged(run)

    expected = {run.key(ONE, 1), run.key(ONE, 3), *([run.key(TWO, 2)] if apart else [])}
    assert report.violations == {"lost": len(expected)}, report.findings
    assert {finding.key.encode() for finding in report.findings} == expected
    assert {finding.subscribers for finding in report.findings} == {(str(FAR.identity),)}


@pytest.mark.parametrize("ended_by", ["c", "b"])
def test_a_custodians_word_of_an_end_comes_behind_what_it_told_before(judged: Judged, ended_by: str) -> None:
    run = Run()
    columns = {"subscriber": FAR.name, "epoch": run.epoch(FAR)}
    run.before(ended_by, run.find(ended_by, Event.RECEIVED, run.key(ONE, 2)), Event.EXPIRED, **columns)
    again = run.find("a", Event.RECEIVED, run.key(ONE, 3))
    run.before("a", again, Event.JOINED, address=ADDRESS, peer="c", **columns)  # its word was on its way
    run.leave_out(FAR, ONE, 3)

    report = judged(run)

    assert report.violations == ({} if ended_by == "c" else {"lost": 1}), report.findings
    assert sum(row.away for row in report.pairs) == (1 if ended_by == "c" else 0)


def test_what_was_accepted_while_a_subscriber_was_cut_off_is_shown(judged: Judged) -> None:
    run = Run()
    columns = {"subscriber": FAR.name, "epoch": run.epoch(FAR)}
    run.before("a", run.find("a", Event.ACCEPTED, run.key(ONE, 1)), Event.EXPIRED, **columns)
    again = run.find("a", Event.RECEIVED, run.key(ONE, 3))
    run.before("a", again, Event.JOINED, address=ADDRESS, peer="c", **columns)
    run.leave_out(FAR, ONE, 1)  # it was in the audience
    run.leave_out(FAR, ONE, 2, audience=False)

    report = judged(run)

    assert report.verdict is Verdict.QUALIFIED and report.exit_code == 4, (report.doubts, report.findings)
    assert {(row.publisher, row.subscriber): row.without for row in report.pairs if row.without} == {
        (str(ONE.identity), str(FAR.identity)): 2
    }
    assert sum(row["without"] for row in report.as_json()["pairs"]) == 2
    shown = StringIO()
    report.render(Console(file=shown, width=140))
    missed = f"2 deliveries were accepted without {FAR.identity}, whose link router a considered ended"
    told = f"exactly-once holds, but not for everybody: {missed}"
    assert told in shown.getvalue()


def test_an_end_relieves_the_home_that_accepted_whoever_else_was_asked_about_the_delivery(judged: Judged) -> None:
    """Two others held it, too."""
    run = Run()
    ended = run.find("b", Event.ACCEPTED, run.key(TWO, 1))
    run.before("b", ended, Event.EXPIRED, subscriber=FAR.name, epoch=run.epoch(FAR))
    for peer in ("a", "c"):
        run.before("b", run.find("b", Event.EXPIRED), Event.LOST, peer=peer)
    for home in ("a", "c"):
        epoch = str(Epoch(ended["hlc"], home, START_MS))
        columns = {"keys": [run.key(TWO, 1)], "address": ADDRESS, "publisher": TWO.name, "epoch": epoch}
        run.before("a", run.find("a", Event.SETTLED, run.key(TWO, 1)), Event.REHOMED, **columns)
    run.leave_out(FAR, TWO, 1)
    run.leave_out(FAR, TWO, 2, 3, audience=False)

    report = judged(run)

    assert report.verdict is Verdict.QUALIFIED, (report.violations, report.doubts, report.findings)


@pytest.mark.parametrize("in_time", [True, False])
def test_who_expires_at_a_home_that_only_remembered_it_relieves_that_home(judged: Judged, in_time: bool) -> None:
    """All routers were stopped and started while it was away: none joined it again, its timeout began anew."""
    run = Run()
    run.logs["a"].remove(run.find("a", Event.JOINED, subscriber=FAR.name))
    bound = run.find("a", Event.ACCEPTED if in_time else Event.SETTLED, run.key(ONE, 1))
    run.before("a", bound, Event.EXPIRED, subscriber=FAR.name, epoch=run.epoch(FAR))
    run.leave_out(FAR, ONE, 1)
    run.leave_out(FAR, ONE, 2, 3, audience=False)

    report = judged(run)

    assert report.violations == ({} if in_time else {"lost": 1}), report.findings


def test_who_was_joined_after_the_delivery_had_come_and_expired_before_it_was_accepted(judged: Judged) -> None:
    """All routers were stopped and started, and its publisher was back before it."""
    run = Run()
    run.logs["a"].remove(run.find("a", Event.JOINED, subscriber=FAR.name))
    columns = {"subscriber": FAR.name, "epoch": run.epoch(FAR)}
    accepted = run.find("a", Event.ACCEPTED, run.key(ONE, 1))
    run.before("a", accepted, Event.JOINED, address=ADDRESS, peer="c", **columns)
    run.before("a", accepted, Event.EXPIRED, **columns)
    run.leave_out(FAR, ONE, 1)
    run.leave_out(FAR, ONE, 2, 3, audience=False)

    report = judged(run)

    assert report.violations == {}, report.findings


def test_what_a_former_home_had_received_is_owed_by_the_next_one_as_it_received_it(judged: Judged) -> None:
    run = Run()
    columns = {"subscriber": FAR.name, "epoch": run.epoch(FAR)}
    joined = run.find("a", Event.JOINED, subscriber=FAR.name)
    former = {"address": ADDRESS, "publisher": ONE.name, "epoch": str(Epoch(joined["hlc"] - 9, "b", START_MS))}
    early = {"time_us": joined["time_us"] - 5, "hlc": joined["hlc"] - 5}
    run.logs["b"].insert(1, {"event": Event.RECEIVED, "keys": [run.key(ONE, 1)], "n": 1, **former, **early})
    run.before("a", run.find("a", Event.ACCEPTED, run.key(ONE, 1)), Event.EXPIRED, **columns)
    run.leave_out(FAR, ONE, 1)
    run.leave_out(FAR, ONE, 2, 3, audience=False)

    report = judged(run)

    assert "lost" not in report.violations, report.findings
