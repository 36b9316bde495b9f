"""The home that answered is named by no log that is left: what its publisher was told is then nobody's lie."""

import json

import pytest

from failover.audit import Verdict
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, NEAR, ONE, ROUTERS, START_MS, TWO, Client, Row, Run
from tests.failover.audit.test_open_homes import logged_ends
from topic.identity import Epoch
from topic.journal import Event, LoggedOutcome

LAST = 5


def reborn(run: Run, *, found: bool) -> str:
    """All routers are killed with all they wrote of the last delivery of publisher one, and started again. It attaches
    at a, where it was; the subscriber near attaches at b, with the delivery in its map. The new epoch of the publisher.
    """
    key = run.key(ONE, LAST)
    for router in ROUTERS:
        rows = run.logs[router]
        del rows[rows.index(next(row for row in rows if row.get("keys") == [key])) :]
    ms = max(rows[-1]["time_us"] for rows in run.logs.values()) // 1000
    epoch = str(Epoch(ms << 16, "a", START_MS + 1))
    for router in ROUTERS:
        run.again[router] = [{"event": Event.BOOT}, {"event": Event.KEPT, "detail": json.dumps({"found": found})}]
    attached: Row = {"event": Event.ATTACHED, "publisher": ONE.name, "address": ADDRESS, "detail": ONE.detail}
    run.again["a"].append(attached | {"epoch": epoch, "generation": run.generation(ONE)})
    about: Row = {"keys": [key], "address": ADDRESS, "publisher": ONE.name, "epoch": epoch, "peer": "a"}
    outcome: Row = {"event": Event.OUTCOME, "outcome": LoggedOutcome.ACCEPTED, "subscriber": NEAR.name}
    run.again["b"] += [{"event": Event.PLACEHOLDER, "subscriber": NEAR.name} | about, outcome | about]
    run.again["b"] += [{"event": event} | about for event in (Event.RESOLVED, Event.SETTLED, Event.FORGOTTEN)]
    for router in ROUTERS:
        run.again[router].append({"event": Event.STOPPED})
        run.again[router] = [row | clock(ms + at) for at, row in enumerate(run.again[router])]
    return epoch


def clock(ms: int) -> Row:
    return {"time_us": ms * 1000, "hlc": ms << 16}


@pytest.mark.parametrize("found", [True, False])
def test_what_was_told_by_a_home_of_which_nothing_is_left_is_not_misreported(judged: Judged, found: bool) -> None:
    run = logged_ends()
    reborn(run, found=found)
    report = judged(run)
    assert report.violations == {}, report.findings
    assert report.verdict is (Verdict.HOLDS if found else Verdict.UNDECIDED), report.doubts


def test_it_is_not_if_the_next_home_had_it_sent_again_and_left_without_an_answer(judged: Judged) -> None:
    run = logged_ends()
    epoch = reborn(run, found=True)
    about: Row = {"keys": [run.key(ONE, LAST)], "address": ADDRESS, "publisher": ONE.name, "epoch": epoch}
    rows = run.again["a"]
    rows.insert(-1, rows[-1] | {"event": Event.RECEIVED, "n": 0} | about)
    assert judged(run).violations == {}


def test_what_a_home_told_whose_log_is_whole_is_misreported_whoever_else_was_killed(judged: Judged) -> None:
    run = Run()
    run.kill("c", lost=6)
    run.find("a", Event.ACCEPTED, run.key(ONE, 1))["outcome"] = LoggedOutcome.REJECTED
    assert judged(run).violations["misreported"] == 1


@pytest.mark.parametrize("seen", [True, False])
def test_an_attach_that_no_log_tells_of_may_have_been_at_any_that_breaks_off(judged: Judged, seen: bool) -> None:
    run = Run()
    run.kill("c", lost=6)
    told = run.find("clients/one", Event.OUTCOME, run.key(ONE, 3))
    late = run.logs["c"][-1]["time_us"] + 1_000
    run.find("a", Event.ACCEPTED, run.key(ONE, 3))["outcome"] = LoggedOutcome.REJECTED
    if not seen:
        run.before("clients/one", told, Event.ATTACHED, detail=ONE.detail, address=ADDRESS)
    told["time_us"] = late
    assert judged(run).violations.get("misreported", 0) == seen


def plain(client: Client, run: Run) -> bytes:
    assert not client.logs
    return run.key(client, 3)


def test_what_a_map_names_of_a_home_of_which_nothing_is_left_was_not_settled_early(judged: Judged) -> None:
    """Its publisher has no log, either."""
    run = Run()
    key = plain(TWO, run)
    for router in ROUTERS:
        rows = run.logs[router]
        del rows[rows.index(next(row for row in rows if row.get("keys") == [key])) :]
    ms = max(rows[-1]["time_us"] for rows in run.logs.values()) // 1000 + 10_000
    about: Row = {"keys": [key], "address": ADDRESS, "publisher": TWO.name, "peer": "a"}
    about |= {"epoch": str(Epoch(ms << 16, "a", START_MS + 1))}
    for router in ROUTERS:
        events = (Event.PLACEHOLDER, Event.RESOLVED, Event.SETTLED, Event.FORGOTTEN) if router == "b" else ()
        rows = [{"event": Event.BOOT}, *({"event": event} | about for event in events), {"event": Event.STOPPED}]
        run.again[router] = [row | clock(ms + at) for at, row in enumerate(rows)]
    report = judged(run)
    assert report.violations == {} and report.verdict is Verdict.UNDECIDED, report.findings


@pytest.mark.parametrize(("knew", "life", "early"), [("", 0, 2), ("b", 0, 1), ("c", 0, 1), ("a", 0, 0), ("a", -1, 2)])
def test_what_was_in_doubt_as_its_publishers_life_ended_was_not_settled_early(
    judged: Judged, knew: str, life: int, early: int
) -> None:
    """Nobody has answered it, as after all routers were killed, and its publisher stays away for longer than its
    timeout. The router that settles it knows so, or its home, and means the life in which it was sent."""
    run = logged_ends()
    key = run.key(ONE, LAST)
    for log, answer in (("a", Event.ACCEPTED), ("clients/one", Event.OUTCOME)):
        run.logs[log].remove(run.find(log, answer, key))
        run.logs[log].remove(run.find(log, Event.SETTLED, key))
    if knew:
        sent = run.find(knew, Event.RECEIVED, key)
        epoch = str(Epoch((START_MS << 16) + life, "a", START_MS))
        run.before(knew, sent, Event.EXPIRED, publisher=ONE.name, epoch=epoch)
    assert judged(run).violations.get("settled before accepted", 0) == early
