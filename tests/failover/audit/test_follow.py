"""A continuous audit: it says while a run is written what one audit says of it afterwards, and carries little."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from failover import audit
from failover.audit import Report, Verdict
from failover.audit.follow import Follower, FollowStatus, follow, follower, growing
from failover.audit.follow.checkpoint import NAME
from router.journal import JournalFile
from tests.failover.audit.asked import AskedRun, seeded
from tests.failover.audit.runs import ADDRESS, FAR, NEAR, ONE, ROUTERS, START_MS, TWO, Row, Run
from tests.failover.audit.synthetic import write
from tests.failover.audit.test_on_spark import apart, good, killed, violated
from topic.blocks import whole_blocks
from topic.journal import BY_MAP, Block, Event, segment_name

STEPS = 8
SECOND = 1_000_000
LATER_US = 100_000_000
MESH = json.dumps({"mesh": "line", "routers": {router: {"pid": 1} for router in ROUTERS}})
SAME = [
    *("verdict", "sentence", "publishers", "pairs", "violations", "findings", "doubts", "exceptions", "problems"),
    *("torn", "since", "left_out", "clocks", "logs", "unknown_records"),
]


def written(run: Run, directory: Path, steps: int = STEPS) -> Iterator[int]:
    """The run directory as it was after each part of the run, and when that was."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "mesh.json").write_text(MESH)
    files = dict(run.files(rows_per_block=2))
    blocks = {
        name: [(max(block.columns["time"]), end) for _, end, block in whole_blocks(data, 0)]
        for name, data in files.items()
    }
    times = [time for ends in blocks.values() for time, _ in ends]
    for step in range(1, steps + 1):
        now = min(times) + (max(times) - min(times)) * step // steps
        for name, data in files.items():
            if size := max((end for time, end in blocks[name] if time <= now), default=0):
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (directory / name).write_bytes(data[:size])
        yield now + 1


def differences(one: Report, other: Report) -> list[str]:
    return [name for name in SAME if getattr(one, name) != getattr(other, name)]


@pytest.mark.parametrize("corpus", [good, violated, killed, apart, AskedRun])
def test_it_ends_as_one_audit_of_all_does(tmp_path: Path, corpus: Callable[[], Run]) -> None:
    following, now = Follower([str(tmp_path)]), 0
    for now in written(corpus(), tmp_path):
        following.step(now)
    status = following.step(now + LATER_US)
    so_far, last = following.report(), following.finish(now + LATER_US)
    assert differences(last, audit.run([str(tmp_path)])) == []
    assert (so_far.verdict, so_far.sentence) == (last.verdict, last.sentence)
    assert (status.undecided > 0) == (corpus in (violated, killed))


def test_a_violation_is_told_while_the_mesh_runs_and_never_of_what_is_under_way(tmp_path: Path) -> None:
    following, told = Follower([str(tmp_path)]), []
    for now in written(AskedRun(), tmp_path, 12):
        following.step(now)
        told.append(following.report().violations)
    assert not any(told)
    following, first = Follower([str(tmp_path / "spoilt")]), None
    for step, now in enumerate(written(seeded(), tmp_path / "spoilt", 12)):
        following.step(now)
        if following.report().verdict is Verdict.VIOLATED and first is None:
            first = step
    assert first is not None and first < 8


def test_what_is_processed_again_after_it_was_forgotten_is_a_violation(tmp_path: Path) -> None:
    run = AskedRun()
    run.after("clients/near", run.find("clients/near", Event.PROCESSED, run.key(ONE, 1)))
    following, now = Follower([str(tmp_path)]), 0
    for now in written(run, tmp_path, 12):
        following.step(now)
    assert following.finish(now + LATER_US).verdict is audit.run([str(tmp_path)]).verdict is Verdict.VIOLATED


def test_what_a_map_names_that_was_settled_and_forgotten_long_ago_is_no_delivery(tmp_path: Path) -> None:
    """The subscriber was killed before its store had forgotten it."""
    run = AskedRun()
    known, now = {"keys": [run.key(ONE, 1)], "address": ADDRESS}, 0
    said = {"publisher": ONE.name, "epoch": run.epoch(ONE), "peer": "a"} | known
    late = {name: run.logs["clients/near"][-1][name] + 1 for name in ("time_us", "hlc")}
    kept: list[Row] = [{"event": Event.KEPT}, {"event": Event.KEPT, "outcome": 1} | known, {"event": Event.STOPPED}]
    run.again["clients/near"] = [row | late | {"subscriber": NEAR.name} for row in kept]
    by_map: Row = {"event": Event.OUTCOME, "subscriber": NEAR.name, "outcome": 1, "detail": BY_MAP}
    for row in (by_map, {"event": Event.PLACEHOLDER}, {"event": Event.SETTLED}, {"event": Event.FORGOTTEN}):
        run.after("b", row | said)
    following = Follower([str(tmp_path)])
    for now in written(run, tmp_path, 12):
        following.step(now)
    assert differences(following.finish(now + LATER_US), audit.run([str(tmp_path)])) == []


def asleep() -> Run:
    """Router c sleeps before it reads the last delivery, and a accepts that without far, which has expired."""
    run = Run(messages=3)
    key, not_sent = run.key(ONE, 2), run.key(TWO, 2)
    run.remove(lambda row: row.get("keys") == [not_sent])
    run.drop("c", *run.all("c", Event.DELIVERED, keys=[key]), *run.all("c", Event.OUTCOME, keys=[key]))
    for router in ROUTERS:
        first = run.find(router, Event.ACCEPTED if router == "a" else Event.RECEIVED, key)
        run.before(router, first, Event.EXPIRED, subscriber=FAR.name, epoch=run.epoch(FAR))
    for name, rows in run.logs.items():
        late = [row for row in rows if row["event"] in (Event.CLOSED, Event.STOPPED)]
        late += [row for row in rows if name == "c" and (row.get("keys") == [key] or row["event"] is Event.EXPIRED)]
        for row in late:
            row |= {"time_us": row["time_us"] + 300 * SECOND, "hlc": row["hlc"] + (300 * 1000 << 16)}
    return run


def test_what_was_forwarded_to_a_router_that_sleeps_is_not_forgotten_before_it_wakes(tmp_path: Path) -> None:
    following, now = Follower([str(tmp_path)]), 0
    for now in written(asleep(), tmp_path, 12):
        following.step(now)
    report = following.finish(now + LATER_US)
    assert differences(report, audit.run([str(tmp_path)])) == []
    assert report.verdict is not Verdict.VIOLATED


def steps(following: Follower, now: int) -> Iterator[FollowStatus]:
    while True:
        yield (status := following.step(now))
        if status.caught_up:
            return


def test_what_it_carries_does_not_grow_with_the_run(tmp_path: Path) -> None:
    most = []
    with (
        patch.object(follower, "BUDGET", 512 << 10),
        patch.object(growing, "CHUNK", 32 << 10),
        patch.object(follower, "SETTLED_US", 100_000),
    ):
        for events in (40_000, 120_000):
            directory = tmp_path / str(events)
            write(directory, events)
            following = Follower([str(directory)])
            held = [status.held for status in steps(following, 2_000_000_000_000_000)]
            most.append(max(held))
            assert len(held) > 3 and held[-1] == 0
            report = following.finish(2_000_000_000_000_000)
            assert report.verdict is Verdict.HOLDS and differences(report, audit.run([str(directory)])) == []
    assert most[1] < 1.5 * most[0] < 40_000


@pytest.mark.parametrize("known", [True, False], ids=["read", "unread"])
def test_a_segment_that_retention_deletes_is_missed_only_if_it_was_not_read(tmp_path: Path, known: bool) -> None:
    run = Run(messages=20)
    run.write(tmp_path)
    log, rows = tmp_path / "a/log", run.logs["a"]
    block = Block("a", "router", START_MS, host="host")
    thirds = [rows[: len(rows) // 3], rows[len(rows) // 3 : -40], rows[-40:]]
    clock = {name: thirds[2][0][name] for name in ("time_us", "hlc")}
    told = {"event": Event.CONTINUED, "detail": json.dumps({"first": [START_MS, 2]})} | clock
    whole = audit.run([str(tmp_path)])
    for number, part in enumerate((thirds[0], thirds[1], [told, *thirds[2]])):
        for row in part:
            block.append(**row)
        (log / segment_name(START_MS, number)).write_bytes(block.encode())
        block.begin_next()
    last = log / segment_name(START_MS, 2)
    content, now = last.read_bytes(), (START_MS << 10) + LATER_US
    last.unlink()
    if not known:
        shutil.move(log / segment_name(START_MS, 1), tmp_path / "elsewhere")
    following = Follower([str(tmp_path)])
    following.step(START_MS * 1000)
    last.write_bytes(content)
    (log / segment_name(START_MS, 0)).unlink()
    (log / segment_name(START_MS, 1)).unlink(missing_ok=True)
    report = following.finish(now)
    if known:
        assert differences(report, whole) == []
    else:
        assert report.verdict is Verdict.INCOMPLETE
        assert {problem.what for problem in report.problems} == {
            "the segment 1 before it is missing",
            "block 1 is missing",
        }


class Once:
    """One step, and no more."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, wait_s: float) -> bool:
        told, self._told = self._told, True
        return told


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    run, folder, directory = AskedRun(), tmp_path / "kept", tmp_path / "run"
    run.leave_out(NEAR, ONE, 3)
    told: list[FollowStatus] = []
    for now in written(run, directory, 3):
        with patch("time.time_ns", return_value=now * 1000):
            report = follow([str(directory)], Once(), lambda one, _: told.append(one), folder)
    assert [status.events for status in told] == sorted({status.events for status in told})
    assert max(status.held for status in told) < 0.5 * told[-1].events
    assert differences(report, audit.run([str(directory)])) == []
    (tmp_path / "other").mkdir()
    (tmp_path / "other/mesh.json").write_text(MESH)
    with pytest.raises(audit.AuditError, match="this checkpoint belongs to an audit of"):
        follow([str(tmp_path / "other")], lambda _: True, lambda *_: None, folder)
    (folder / NAME).write_bytes((folder / NAME).read_bytes()[:-1])
    with pytest.raises(audit.AuditError, match="damaged"):
        follow([str(directory)], lambda _: True, lambda *_: None, folder)


def test_a_checkpoint_that_a_disk_has_no_room_for_is_told_of_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory, folder = Run().write(tmp_path / "run"), tmp_path / "kept"
    follow([str(directory)], Once(), lambda *_: None, folder)
    before = (folder / NAME).read_bytes()
    new = (folder / NAME).with_suffix(".new")
    new.symlink_to("/dev/full")
    report = follow([str(directory)], Once(), lambda *_: None, folder)
    assert report.verdict is Verdict.HOLDS and (folder / NAME).read_bytes() == before
    assert "the checkpoint cannot be written, the audit continues: [Errno 28]" in caplog.text
    assert not new.is_symlink(), "what was begun is taken away"
    follow([str(directory)], Once(), lambda *_: None, folder)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("last", [False, True])
def test_of_a_directory_that_vanishes_nothing_is_said(tmp_path: Path, last: bool) -> None:
    directory = Run().write(tmp_path / "run")
    told: list[FollowStatus] = []

    def wait(_: float) -> bool:
        if told:
            shutil.rmtree(directory)
        return bool(told) and last

    with pytest.raises(audit.AuditError, match=f"^{directory}: the directory was removed while the audit followed it"):
        follow([str(directory)], wait, lambda status, _: told.append(status))


def test_what_a_killed_client_left_in_its_tail_is_seen(tmp_path: Path) -> None:
    run = Run()
    run.write(tmp_path)
    log = tmp_path / "clients/near/log"
    shutil.rmtree(log)
    block = Block("near", "subscriber", START_MS, host="host")
    left = JournalFile(log, START_MS, block)
    for number, row in enumerate(run.logs["clients/near"]):
        block.append(**row)
        left.save()
        if number == 4:
            left.flush()
    following = Follower([str(tmp_path)])
    with patch.object(growing, "IDLE_NS", -1):
        following.step(START_MS * 1000 + LATER_US)
        assert following.report().verdict is Verdict.HOLDS
    assert differences(following.finish(START_MS * 1000 + LATER_US), audit.run([str(tmp_path)])) == []
    left.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_with_the_verdict_of_all_that_was_read(tmp_path: Path, number: signal.Signals) -> None:
    run = Run()
    run.leave_out(NEAR, ONE, 2)
    directory = run.write(tmp_path)
    command = [sys.executable, "-c", "from router.cli.main import main; main()", "audit", "--follow", "--json"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([*command, str(directory)], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        process.send_signal(number)
        *_, last = process.stdout.readlines()
    final = json.loads(last)
    assert process.returncode == Verdict.VIOLATED
    assert (final["final"], final["verdict"], final["violations"]) == (True, "violated", {"lost": 1})
    assert first["verdict"] == "violated" and first["trails_s"] >= 6 and first["undecided"] == 0, "it is a year ago"
    assert json.loads((directory / "audit.json").read_text())["sentence"] == final["sentence"]
