"""Routers that keep only the latest segments of their logs: what is left is judged, from then on."""

import json
from itertools import chain, combinations
from random import Random

import pytest

from failover.audit import Report, Verdict
from tests.failover.audit.in_process import judge_files
from tests.failover.audit.runs import (
    ADDRESS,
    FAR,
    MID,
    ONE,
    PUBLISHERS,
    ROUTERS,
    START_MS,
    SUBSCRIBERS,
    TWO,
    Client,
    Row,
    Run,
)
from tests.failover.audit.test_truncated import MESH
from topic.journal import Block, Event, segment_name

MESSAGES = 16
CUTS = 6
EVERY = [*chain.from_iterable(combinations(ROUTERS, count) for count in (1, 2, 3))]


class SlowRun(Run):
    """Deliveries are so far apart that those of before a deletion are told from those behind it, whoever's clock."""

    def deliver(self, publisher: Client, tag: int) -> None:
        self._ms += 250
        super().deliver(publisher, tag)


def restated(router: str, run: Run, clock: Row, first: list[int] | None) -> list[Row]:
    """As `topic.restatement` has it."""
    rows: list[Row] = [{"event": Event.CONTINUED, "detail": json.dumps({"first": first})}]
    for peer in sorted({*ROUTERS} - {router}):
        rows.append(
            {"event": Event.CONTACT, "peer": peer, "detail": json.dumps({"incarnation": START_MS, "again": True})}
        )
    for client in SUBSCRIBERS:
        custodian = None if client.router == router else client.router
        joined = {"event": Event.JOINED, "subscriber": client.name, "peer": custodian}
        rows.append(joined | {"address": ADDRESS, "epoch": run.epoch(client)})
    for client in (*PUBLISHERS, *SUBSCRIBERS):
        if client.router == router:
            detail = json.dumps(json.loads(client.detail) | {"again": True})
            attached = {"event": Event.ATTACHED, client.role: client.name, "detail": detail}
            rows.append(attached | {"address": ADDRESS, "epoch": run.epoch(client)})
    return [row | clock for row in rows]


def in_segments(run: Run, router: str, at: int, *, told: bool = True) -> tuple[bytes, bytes]:
    """Two, the second from that entry on; `told`: which says that the first may be gone."""
    rows, block, segments = run.logs[router], Block(router, "router", START_MS, host="host"), []
    clock = {name: rows[at][name] for name in ("time_us", "hlc")}
    first = [START_MS, 1] if told else None
    for part in (rows[:at], restated(router, run, clock, first) + rows[at:]):
        for row in part:
            block.append(**row)
        segments.append(block.encode())
        block.begin_next()
    return segments[0], segments[1]


def judge(run: Run, cuts: dict[str, int], *, deleted: bool = True, told: bool = True) -> Report:
    files = {f"file:/run/{name}": data for name, data in run.files(rows_per_block=4)}
    for router, at in cuts.items():
        path = f"file:/run/{router}/log/{segment_name(START_MS, 0)}"
        files[path], files[path.replace("-000000", "-000001")] = in_segments(run, router, at, told=told)
        if deleted:
            del files[path]
    return judge_files(files | {"file:/run/mesh.json": MESH})


def cuts_of(run: Run, routers: tuple[str, ...], seed: int) -> dict[str, int]:
    """At the same time more or less, in the middle of the run."""
    random = Random(seed)
    return {router: int(len(run.logs[router]) * random.uniform(0.4, 0.6)) for router in routers}


@pytest.mark.parametrize("routers", EVERY, ids="+".join)
def test_what_is_left_of_a_good_run_holds_from_then_on(routers: tuple[str, ...]) -> None:
    for seed in range(CUTS):
        run = SlowRun(MESSAGES)
        report = judge(run, cuts_of(run, routers, seed))
        assert report.verdict is Verdict.HOLDS, (seed, report.sentence, report.findings, report.problems, report.doubts)
        accepted = sum(row.accepted for row in report.publishers)
        assert accepted > 0 and accepted + report.left_out == 2 * MESSAGES
        assert f"older logs are deleted, {report.left_out} deliveries left out" in report.sentence


@pytest.mark.parametrize("routers", EVERY, ids="+".join)
@pytest.mark.parametrize("subscriber", [MID, FAR], ids=["logs", "plain"])
def test_what_is_lost_of_what_is_left_is_found_and_what_was_deleted_is_not_called_lost(
    subscriber: Client, routers: tuple[str, ...]
) -> None:
    for tag in (0, MESSAGES - 1):
        kinds = {"lost"} if tag else set()
        run = SlowRun(MESSAGES)
        run.leave_out(subscriber, ONE, tag)
        report = judge(run, cuts_of(run, routers, tag))
        assert {finding.kind for finding in report.findings} == kinds, (tag, report.sentence)
        assert report.verdict is (Verdict.VIOLATED if kinds else Verdict.HOLDS)


def test_segments_that_say_everything_anew_change_nothing_while_all_are_there() -> None:
    run = SlowRun(MESSAGES)
    report = judge(run, cuts_of(run, ROUTERS, 1), deleted=False, told=False)
    assert (report.verdict, report.since, report.left_out) == (Verdict.HOLDS, 0, 0), report.sentence
    assert sum(row.accepted for row in report.publishers) == 2 * MESSAGES


def test_a_segment_that_was_to_go_and_is_still_there_does_not_count() -> None:
    run = SlowRun(MESSAGES)
    cuts = cuts_of(run, ROUTERS, 1)
    assert judge(run, cuts, deleted=False).sentence == judge(run, cuts).sentence


def test_a_segment_that_is_gone_though_nobody_says_so_is_missing() -> None:
    run = SlowRun(MESSAGES)
    assert judge(run, cuts_of(run, ("b",), 1), told=False).verdict is Verdict.INCOMPLETE


def test_a_link_that_closes_after_its_attach_was_deleted_is_owed_nothing_from_then_on() -> None:
    run, key = SlowRun(MESSAGES), SlowRun(MESSAGES).key(TWO, MESSAGES - 1)
    run.leave_out(FAR, TWO, MESSAGES - 1)
    run.drop(FAR.router, *run.all(FAR.router, Event.CLOSED, subscriber=FAR.name))
    received = run.find(FAR.router, Event.RECEIVED, key)
    run.before(FAR.router, received, Event.CLOSED, subscriber=FAR.name, epoch=run.epoch(FAR))
    report = judge(run, cuts_of(run, ROUTERS, 1))
    assert report.verdict is Verdict.HOLDS, report.findings
