"""All routers end, and begin again without their state stores: what is accepted then is owed to nobody they forgot."""

import json
from typing import Any

import pytest

from failover.audit import Verdict
from failover.audit.mesh.lost_state import state_losses
from failover.audit.read.inventory import Log
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, MID, NEAR, ONE, ROUTERS, START_MS, Run
from tests.failover.audit.test_audiences import Log as Rows
from tests.failover.audit.test_open_homes import logged_ends
from topic.identity import Epoch
from topic.journal import Event, LoggedOutcome


def lives(*, gap: bool = True, found: tuple[str, ...] = ()) -> tuple[Rows, list[Log]]:
    """Two of each router; a router in `found` found its state store. Without the gap c lived on for a while."""
    rows, logs = Rows(), []
    for number, router in enumerate("abc"):
        late = 0 if gap or router != "c" else 50
        for life, at in ((1, number), (2, 205 + number + late)):
            stamp: dict[str, Any] = {"at": at << 16, "epoch": 0, "incarnation": life, "subscriber": None}
            rows.say(router, Event.BOOT, **stamp)
            rows.say(router, Event.KEPT, detail=json.dumps({"found": life == 2 and router in found}), **stamp)
        logs.append(Log(router, "router", 1, "host", 0, (200 + late) * 1000, stopped=False))
        logs.append(Log(router, "router", 2, "host", 0, 400_000, stopped=True))
    return rows, logs


def test_a_mesh_forgets_when_all_its_routers_do() -> None:
    rows, logs = lives()
    [forgetting] = state_losses(rows.rows, logs)
    assert forgetting.at == 205 << 16
    assert forgetting.homes == ("a.2", "b.2", "c.2")


@pytest.mark.parametrize("found", ["a", "b", "c"])
def test_one_router_that_remembers_is_enough(found: str) -> None:
    rows, logs = lives(found=(found,))
    assert state_losses(rows.rows, logs) == []


def test_one_router_that_lived_on_is_enough() -> None:
    rows, logs = lives(gap=False)
    assert state_losses(rows.rows, logs) == []


def test_the_first_start_of_a_mesh_forgets_nothing() -> None:
    rows, logs = lives()
    assert state_losses(rows.rows, [log for log in logs if log.incarnation == 1]) == []


def killed_and_resumed(found: bool) -> Run:
    """All routers are killed when publisher one's last message had been received, and it is resumed at the new a, which
    knows no subscriber."""
    run = logged_ends()
    key = run.key(ONE, 5)
    about = {"keys": [key], "address": ADDRESS, "publisher": ONE.name}
    for router in ROUTERS:
        rows = run.logs[router]
        first = next(row for row in rows if row.get("keys") == [key] and row["event"] is not Event.AUDIENCE)
        del rows[rows.index(first) + (2 if router == "a" else 1) :]
    run.remove(lambda row: row.get("keys") == [key], "clients/near", "clients/mid")
    told = run.find("clients/one", Event.OUTCOME, key)
    ms = told["time_us"] // 1000
    told["time_us"] += 100_000

    def at(after_ms: int) -> dict[str, int]:
        return {"time_us": (ms + after_ms) * 1000, "hlc": ms + after_ms << 16}

    for router in ROUTERS:
        detail = json.dumps({"found": found})
        run.again[router] = [{"event": Event.BOOT} | at(0), {"event": Event.KEPT, "detail": detail} | at(0)]
    epoch = {"epoch": str(Epoch(at(1)["hlc"], "a", START_MS + 1))}
    run.again["a"] += [
        {"event": Event.RECEIVED, "n": 0} | at(2) | about | epoch,
        {"event": Event.AUDIENCE, "detail": "[]"} | at(2) | about | epoch,
        {"event": Event.ACCEPTED, "outcome": LoggedOutcome.ACCEPTED} | at(3) | about | epoch,
    ]
    for router in ROUTERS:
        run.again[router].append({"event": Event.STOPPED} | at(500))
    return run


def test_what_a_mesh_without_a_memory_accepted_is_shown_and_not_owed(judged: Judged) -> None:
    report = judged(killed_and_resumed(found=False))
    assert report.violations == {}
    assert {row.subscriber: row.without for row in report.pairs} == {str(NEAR.identity): 1, str(MID.identity): 1}
    assert report.verdict is Verdict.QUALIFIED, report.doubts
    assert (
        f"1 delivery was accepted without {MID.identity}, a subscriber that router a did not know: no router"
        in report.sentence
    )


def test_what_a_mesh_accepted_that_should_have_remembered_is_lost(judged: Judged) -> None:
    run = killed_and_resumed(found=True)
    for router in ROUTERS:  # as if its log were known to be whole
        last = run.logs[router][-1]
        run.logs[router].append({"event": Event.STOPPED, "time_us": last["time_us"], "hlc": last["hlc"]})
    store = run.again["a"][1]
    run.again["a"][2:2] = [
        store | {"detail": None, "subscriber": client.name, "epoch": run.epoch(client)} for client in (NEAR, MID)
    ]
    assert judged(run).violations["lost"] == 2
