"""A continuous audit forgets what links and routers did, as it forgets deliveries, and says the same all the same."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import router.journal
from failover import audit
from failover.audit import Verdict
from failover.audit.follow import Follower, FollowStatus, decided, follower, growing
from tests.failover.audit import synthetic
from tests.failover.audit.asked import AskedRun
from tests.failover.audit.runs import NEAR, ONE, Run
from tests.failover.audit.synthetic import ADDRESS, START_MS, Log, SyntheticMesh
from tests.failover.audit.test_exceptions import ends, goes_and_comes_back, is_apart
from tests.failover.audit.test_follow import LATER_US, differences, steps, written
from tests.failover.audit.test_on_spark import good, killed, violated
from topic.identity import Epoch, LinkIdentity, link_name
from topic.journal import Event
from topic.tail import REGION

NOW_US = 2_000_000_000_000_000
NEVER = 1 << 40


def settings(**of_follower: int) -> ExitStack:
    """Small ones, as these runs are short."""
    stack = ExitStack()
    for name, value in of_follower.items():
        stack.enter_context(patch.object(follower, name, value))
    return stack


class BusyMesh(SyntheticMesh):
    """A router comes and goes, publishers come that never come again, and the other publishers move all the time."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._passers = directory, count()
        super().__init__(directory)

    def _round(self, number: int, *rest: Any) -> None:
        super()._round(number, *rest)
        if number % 3 == 0:
            self._visit()
            self._pass_by()

    def _visit(self) -> None:
        incarnation = START_MS + self.clock.us // 1000 % START_MS
        visitor = Log(self._directory, "g", "router", self.clock, incarnation)
        for name, log in self.routers.items():
            log.add(Event.CONTACT, peer="g", detail=json.dumps({"incarnation": incarnation}))
            visitor.add(Event.CONTACT, peer=name, detail=json.dumps({"incarnation": START_MS}))
        for client in self.subscribers:
            visitor.add(Event.JOINED, peer=client.router, epoch=client.epoch, subscriber=client.name, address=ADDRESS)
        visitor.close()
        for log in self.routers.values():
            log.add(Event.LOST, peer="g")

    def _pass_by(self) -> None:
        identity = LinkIdentity(f"passer {next(self._passers)}", "link", ADDRESS)
        about = {"publisher": link_name(identity), "epoch": str(Epoch(self.clock.hlc, "a", START_MS))}
        told = {"role": "publisher", "container": identity.container, "link": "link", "address": ADDRESS}
        self.routers["a"].add(Event.ATTACHED, **about, address=ADDRESS, detail=json.dumps(told | {"timeout": 60}))
        self.routers["a"].add(Event.CLOSED, **about)


def test_what_it_carries_of_links_and_routers_does_not_grow_with_the_run(tmp_path: Path) -> None:
    carried = []
    with (
        settings(BUDGET=128 << 10, SETTLED_US=60_000, MARGIN_US=20_000, FORGOTTEN=50),
        patch.object(growing, "CHUNK", 16 << 10),
        patch.object(synthetic, "TO_MOVE", 3),
    ):
        for events in (20_000, 60_000):
            directory = tmp_path / str(events)
            directory.mkdir()
            BusyMesh(directory).run(events)
            following = Follower([str(directory)])
            carried.append([status.links for status in steps(following, NOW_US)])
            report = following.finish(NOW_US)
            assert report.verdict is Verdict.HOLDS and differences(report, audit.run([str(directory)])) == []
    assert 100 < max(carried[1]) < 1.5 * max(carried[0]), "there were three times as many"


def test_segments_that_follow_each_other_are_carried_as_one(tmp_path: Path) -> None:
    with patch.object(router.journal, "SEGMENT_LIMIT", 2 * REGION):
        synthetic.write(tmp_path, 60_000)
    assert len([*tmp_path.glob("*/log/*.oml")]) > len([*tmp_path.glob("*/log")])
    following = Follower([str(tmp_path)])
    [*_] = steps(following, NOW_US)
    report = following.finish(NOW_US)
    assert differences(report, audit.run([str(tmp_path)])) == []


def left_out() -> Run:
    run = Run()
    is_apart(run, 1, 2)
    return run


def ended_in_use() -> Run:
    run = Run()
    ends(run, NEAR)
    return run


def away() -> Run:
    run = Run()
    goes_and_comes_back(run, 120)
    return run


def missed() -> Run:
    run = Run()
    goes_and_comes_back(run, 30)
    return run


def stopped() -> Run:
    """As `missed`, but its process ended well, so that its log is whole."""
    run = missed()
    rows = run.logs["clients/near"]
    rows.append({"event": Event.STOPPED} | {name: rows[-1][name] + 1 for name in ("time_us", "hlc")})
    return run


CORPORA = [good, violated, killed, left_out, ended_in_use, away, missed, stopped, AskedRun]


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("number", [4, 9])
def test_whoever_forgets_says_what_he_says_who_does_not(tmp_path: Path, corpus: Callable[[], Run], number: int) -> None:
    one, other = (Follower([str(tmp_path)]) for _ in range(2))
    told: list[tuple[FollowStatus, FollowStatus]] = []
    for now in written(corpus(), tmp_path, number):
        with settings(SETTLED_US=0, FLUSHED_US=0, MARGIN_US=0, FORGOTTEN=0):
            status = one.step(now)
        with settings(SETTLED_US=0, FLUSHED_US=0, FORGOTTEN=NEVER):
            told.append((status, other.step(now)))
        assert differences(one.report(), other.report()) == []
    assert [status.undecided for status, _ in told] == [status.undecided for _, status in told]
    with settings(MARGIN_US=0, FORGOTTEN=0):
        last = one.finish(now + LATER_US)
    assert differences(last, other.finish(now + LATER_US)) == []
    carried = [sum(status.links for status in statuses) for statuses in zip(*told, strict=True)]
    assert carried[0] < carried[1] or corpus not in (good, ended_in_use, AskedRun)


def test_a_violation_counts_as_it_stands_when_nothing_was_said_of_it_for_long(tmp_path: Path) -> None:
    run = Run()
    run.leave_out(NEAR, ONE, 2)
    run.write(tmp_path)
    following, last = Follower([str(tmp_path)]), max(row["time_us"] for rows in run.logs.values() for row in rows)
    soon = following.step(last + LATER_US)
    assert (soon.undecided, soon.held > 0) == (1, True)
    late = following.step(last + LATER_US + decided.LONG_US)
    assert (late.undecided, late.held) == (0, 0)
    assert following.report().violations == {"lost": 1}
