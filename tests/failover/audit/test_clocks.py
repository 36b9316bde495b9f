"""Routers whose clocks are seconds apart: nothing is accused for it, and nothing hidden."""

import attrs
import pytest

from failover.audit import Verdict
from failover.audit.mesh.clocks import HybridTimeline, find_clocks, wall_hlc
from failover.audit.read.inventory import Log
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ONE, ROUTERS, TWO, Run
from tests.failover.audit.test_audiences import Log as Rows
from tests.failover.audit.test_lost_homes import reborn
from tests.failover.audit.test_open_homes import logged_ends
from topic.journal import Event

SKEW_MS = 5_000


def skew(run: Run, router: str, ms: int, *, own_host: bool = True) -> None:
    """This router's wall clock is so far ahead; the hybrid clocks of all follow the fastest."""
    fastest = max(ms, 0)
    for name in ROUTERS:
        for row in run.logs[name] + run.again.get(name, []):
            row["hlc"] += fastest << 16
            row["time_us"] += ms * 1000 if name == router else 0
    if own_host:
        run.hosts[router] = "elsewhere"


@pytest.mark.parametrize("own_host", [True, False])
@pytest.mark.parametrize("ms", [SKEW_MS, -SKEW_MS])
@pytest.mark.parametrize("router", ROUTERS)
def test_a_good_run_holds_with_a_wrong_clock(judged: Judged, router: str, ms: int, own_host: bool) -> None:
    run = Run()
    skew(run, router, ms, own_host=own_host)
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.findings, report.doubts)


@pytest.mark.parametrize("ms", [SKEW_MS, -SKEW_MS])
def test_all_killed_routers_with_a_wrong_clock_among_them_accuse_nobody(judged: Judged, ms: int) -> None:
    run = logged_ends()
    reborn(run, found=True)
    skew(run, "a", ms)
    report = judged(run)
    assert report.violations == {} and report.verdict is not Verdict.INCOMPLETE, report.findings


@pytest.mark.parametrize("ms", [SKEW_MS, -SKEW_MS])
def test_a_violation_is_found_in_spite_of_it(judged: Judged, ms: int) -> None:
    run = Run()
    key = run.key(ONE, 2)
    run.remove(lambda row: row.get("keys") == [key], "clients/near")
    skew(run, "b", ms)
    assert judged(run).violations == {"lost": 1}


@pytest.mark.parametrize("ms", [SKEW_MS, -SKEW_MS])
def test_what_was_accepted_too_early_is_found_in_spite_of_it(judged: Judged, ms: int) -> None:
    run = Run()
    accepted, outcome = run.find("b", Event.ACCEPTED, run.key(TWO, 3)), run.find("c", Event.OUTCOME, run.key(TWO, 3))
    outcome["hlc"] = accepted["hlc"] + 1
    skew(run, "c", ms)
    assert judged(run).violations == {"accepted too early": 1}


def test_clocks_that_agree_within_a_second_are_left_alone() -> None:
    rows, logs = contacts(900_000)
    clocks = find_clocks(rows.rows, logs)
    assert clocks.ahead_us == {"a.1": 0, "b.1": 0}
    assert clocks.clock == {"a.1": "h", "b.1": "h"}


def test_one_that_claims_a_host_whose_clock_it_does_not_have_has_one_of_its_own() -> None:
    rows, logs = contacts(5_000_000)
    met(rows, "b", "c", 7_000_000)
    met(rows, "c", "b", 7_000_000)
    logs.append(Log("c", "router", 1, "h", 0, 9, stopped=True))
    clocks = find_clocks(rows.rows, logs)
    assert clocks.clock == {"a.1": "h a.1", "b.1": "h", "c.1": "h"}
    assert clocks.ahead_us == {"a.1": -5_000_000, "b.1": 0, "c.1": 0}


def test_a_contact_that_one_of_two_has_made_alone_sets_no_clock() -> None:
    """In a partition, say, of which only the other knew. The hybrid clocks tell which contact is which."""
    rows, logs = contacts(1_000)
    for router, peer, ms in (("a", "b", 9_000), ("a", "b", 20_000), ("b", "a", 20_000)):
        met(rows, router, peer, ms * 1000, hlc=wall_hlc(ms * 1000))
    assert find_clocks(rows.rows, logs).met == {("a.1", "b.1"): 0}


def test_a_clock_that_was_set_back_puts_no_other_right() -> None:
    rows, logs = contacts(5_000_000)
    logs[1] = attrs.evolve(logs[1], set_back_us=5_000_000)
    clocks = find_clocks(rows.rows, logs)
    assert clocks.ahead_us == {"a.1": 0, "b.1": 0}
    assert clocks.unordered == {"b.1": "the clock of b was set back by 5.0 s while its log was written"}


def test_a_clock_that_others_contradict_orders_nothing() -> None:
    """It agreed with all as it met them, but one met it as it was 9 s ahead: it was set, or the other was."""
    rows, logs = contacts(0)
    logs.append(Log("c", "router", 1, "far", 0, 9, stopped=True))
    for one, other, ahead in (("a", "c", 0), ("b", "c", 9_000_000)):
        met(rows, one, other, 1_000_000)
        met(rows, other, one, 1_000_000 + ahead)
    clocks = find_clocks(rows.rows, logs)
    assert clocks.unordered.keys() == {"a.1", "b.1", "c.1"}  # the first two share a host's
    assert set(clocks.ahead_us.values()) == {0}


def contacts(ahead_us: int) -> tuple[Rows, list[Log]]:
    """Two routers of one host that note their contact; the second so much later."""
    rows = Rows()
    for router, peer, time in (("a", "b", 1_000_000), ("b", "a", 1_000_000 + ahead_us)):
        met(rows, router, peer, time)
    return rows, [Log(name, "router", 1, "h", 0, 9, stopped=True) for name in "ab"]


def met(rows: Rows, router: str, peer: str, time: int, hlc: int = 0) -> None:
    detail = '{"incarnation": 1}'
    rows.say(router, Event.CONTACT, at=hlc, epoch=0, peer=peer, detail=detail, time=time, hlc=hlc, subscriber=None)


def test_the_hybrid_clock_is_as_far_ahead_as_the_entries_around_say() -> None:
    rows = Rows()
    for ms, ahead_ms in ((1_000, 0), (2_000, 5_000), (9_000, 0)):
        rows.say("a", Event.BOOT, at=0, epoch=0, time=ms * 1000, hlc=wall_hlc((ms + ahead_ms) * 1000))
    clock = HybridTimeline(rows.rows)
    assert clock.at(500_000) == wall_hlc(500_000)
    assert clock.at(3_000_000) == wall_hlc(8_000_000)
    assert clock.at(9_500_000) == wall_hlc(9_500_000)


@pytest.mark.parametrize("own_host", [True, False])
def test_what_a_publisher_carries_to_another_home_no_hybrid_clock_orders(judged: Judged, own_host: bool) -> None:
    """Its map says to the next home that the delivery is settled, by a clock that has not heard of the acceptance."""
    run = Run()
    key = run.key(TWO, 1)
    settled, accepted = run.find("c", Event.SETTLED, key), run.find("b", Event.ACCEPTED, key)
    settled["hlc"] = accepted["hlc"] - 1
    settled["epoch"] = "1.a.1"
    attached = next(row for row in run.logs["b"] if row["event"] is Event.ATTACHED and row.get("publisher") == TWO.name)
    run.logs["a"].insert(1, attached | {"epoch": "1.a.1", "hlc": run.logs["a"][0]["hlc"]})
    if own_host:
        run.hosts["c"] = "elsewhere"
        settled["time_us"] = accepted["time_us"] - 1
    assert judged(run).violations == {}
    if not own_host:
        settled["time_us"] = accepted["time_us"] - 1
        assert judged(run).violations == {"settled before accepted": 1}


def test_a_zombie_that_answers_later_by_a_slower_clock_accuses_nobody(judged: Judged) -> None:
    """It was paused, and has not heard of the home on another host, whose clock is ahead."""
    run = Run()
    key = run.key(TWO, 1)
    settled, accepted = run.find("c", Event.SETTLED, key), run.find("b", Event.ACCEPTED, key)
    zombie = {"epoch": "1.a.1", "hlc": accepted["hlc"] - 1, "time_us": settled["time_us"] + 1}
    run.logs["a"].insert(run.logs["a"].index(run.find("a", Event.SETTLED, key)), accepted | zombie)
    run.hosts["b"] = "elsewhere"
    assert judged(run).violations == {}
    run.logs["b"].remove(accepted)
    assert judged(run).violations == {"settled before accepted": 2}
