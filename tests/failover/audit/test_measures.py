"""The figures of a run: right for logs whose answers are known, and not told where clocks cannot tell them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from failover import audit
from failover.audit.measure.counts import Metered
from failover.audit.measure.figures import (
    Measures,
    Pause,
    PhaseLatency,
    Quantiles,
    Track,
    distribution,
    fault_measures,
    series,
)
from failover.audit.measure.frame import AFTER, BEFORE, DURING, WHOLE, Phases
from failover.audit.read.faults import Chaos, Fault, find_chaos
from tests.failover.audit.in_process import judge_run
from tests.failover.audit.runs import NEAR, ONE, START_MS, Run
from topic.journal import Event

MS = 1000
CHAOS: dict[str, Any] = {"script": "s", "seed": 1, "mesh": "m", "began_us": 0, "ended_us": None, "faults": []}


def fault(at_us: int, until_us: int | None, text: str = "kill c") -> Fault:
    return Fault("kill", ("c",), at_us, until_us, text)


def test_faults_cut_a_run_into_slices() -> None:
    """As in the picture of the module."""
    phases = Phases([fault(10, 20), fault(30, 40), fault(35, 50)])
    assert phases.boundaries == [10, 20, 30, 35, 40, 50]
    assert phases.calm == {0, 2, 6}
    assert [phases.slices(name) for name in phases.names] == [{0}, {1, 3, 4, 5}, {2, 6}]
    assert phases.around(0) == ({0}, {1}, {2})
    assert phases.around(1) == ({2}, {3, 4}, set())
    assert phases.around(2) == (set(), {4, 5}, {6})


def test_a_fault_without_an_end_lasts_and_one_without_a_length_only_has_an_after() -> None:
    assert Phases([fault(10, None)]).around(0) == ({0}, {1}, set())
    assert Phases([fault(10, 10)]).around(0) == ({0}, set(), {1})
    assert Phases([fault(10, 10)]).slices(DURING) == set()
    assert Phases([]).names == [WHOLE]


def metered(*latencies: tuple[int, int]) -> Metered:
    """Times to acceptance in µs, each a power of 2, and how many deliveries took so long."""
    counts = Counter({("accepted", 0, (us.bit_length() - 1) * 8): count for us, count in latencies})
    return Metered(counts, Counter({("accepted", 0): max(us for us, _ in latencies)}))


def test_quantiles_are_right_within_a_bucket() -> None:
    tallies = metered((1 << 10, 50), (1 << 14, 40), (1 << 20, 9), (1 << 22, 1))
    found = distribution(tallies, "accepted", {0}).quantiles
    assert found.count == 100 and found.max == 1 << 22
    for told, right in ((found.p50, 1 << 10), (found.p90, 1 << 14), (found.p99, 1 << 20)):
        assert told == pytest.approx(right, rel=0.05)
    assert distribution(tallies, "processed", {0}).quantiles == Quantiles(0)
    assert distribution(tallies, "accepted", {1}).quantiles == Quantiles(0)


def test_a_quantile_is_never_beyond_the_longest() -> None:
    assert distribution(metered((1 << 10, 1)), "accepted", {0}).quantiles == Quantiles(1, *[1 << 10] * 4)


def test_a_pause_belongs_to_a_fault_that_it_overlaps_or_follows_at_once() -> None:
    struck = fault(10_000 * MS, 12_000 * MS)
    assert Pause(9_000 * MS, 1_001 * MS).is_of(struck)
    assert not Pause(9_000 * MS, 1_000 * MS).is_of(struck)
    assert Pause(12_999 * MS, 100 * MS).is_of(struck)
    assert not Pause(13_000 * MS, 100 * MS).is_of(struck)


def test_the_longest_pauses_are_told_by_fault_and_outside() -> None:
    struck = fault(10_000 * MS, 12_000 * MS)
    short, long, calm = Pause(9_900 * MS, 200 * MS), Pause(9_900 * MS, 500 * MS), Pause(1_000 * MS, 300 * MS)
    tracks = [
        Track("one", "subscriber", "h", (5, 0, 0), [short, calm]),
        Track("two", "subscriber", "h", (0, 5, 0), [long]),
        Track("three", "subscriber", "h", (0, 5, 0), []),
    ]
    [told] = fault_measures([struck], Phases([struck]), Metered(), tracks)
    assert (told.subscribers.count, told.subscribers.worst, told.subscribers.worst_us) == (3, "two", 500 * MS)
    assert told.subscribers.median_us == 200 * MS and told.publishers.count == 0
    one, two, _ = series(tracks, [struck])
    assert (one.counts, one.longest, one.calm) == ((5, 0, 0), calm, calm)
    assert (two.longest, two.calm) == (long, None)


def measured(run: Run, *faults: Fault) -> Measures:
    chaos = Chaos("s", 7, "line", 0, None, faults, 100.0) if faults else None
    found = judge_run(run, chaos).measures
    assert found is not None
    return found


def latencies(found: PhaseLatency) -> tuple[Quantiles, Quantiles]:
    return found.accepted.quantiles, found.processed.quantiles


def test_latencies_are_from_publishing_to_processing_and_acceptance() -> None:
    """In the log of a whole run 1 ms passes with each entry."""
    run = Run(messages=4)
    times = {
        event: [row["time_us"] for row in run.logs[log] if row["event"] is event]
        for log, event in (("clients/one", Event.PUBLISHED), ("clients/one", Event.OUTCOME))
    }
    to_accept = times[Event.OUTCOME][0] - times[Event.PUBLISHED][0]
    [whole] = measured(run).phases
    accepted, processed = latencies(whole)
    assert (whole.phase, accepted.count, accepted.max) == (WHOLE, 4, to_accept)
    near, mid = (
        run.find(log, Event.PROCESSED, run.key(ONE, 0))["time_us"] - times[Event.PUBLISHED][0]
        for log in ("clients/near", "clients/mid")
    )
    assert (processed.count, processed.max) == (8, mid)
    assert processed.p50 == pytest.approx(near, rel=0.05) and processed.p99 == pytest.approx(mid, rel=0.05)
    assert whole.processed.unknown == 8  # publisher two has no log


def test_latencies_between_hosts_are_not_told() -> None:
    run = Run(messages=4)
    run.hosts = {"clients/mid": "elsewhere"}
    found = measured(run)
    [whole] = found.phases
    accepted, processed = latencies(whole)
    assert (accepted.count, processed.count, whole.processed.unknown) == (4, 4, 12)
    assert "other hosts (elsewhere) cannot be compared with the clock of host" in found.notes[0]


def test_latencies_are_told_by_phase_and_by_fault() -> None:
    """Four deliveries of publisher one: before, overtaken by the fault, during it, after it."""
    run = Run(messages=4)
    published = [row["time_us"] for row in run.all("clients/one", Event.PUBLISHED)]
    found = measured(run, fault(published[1] + MS, published[3] - MS))
    phases = {phase.phase: phase.accepted.quantiles.count for phase in found.phases}
    assert phases == {BEFORE: 1, DURING: 2, AFTER: 1}
    [by_fault] = found.faults
    assert [quantiles.count for quantiles in by_fault.accepted] == [1, 2, 1]
    assert [quantiles.count for quantiles in by_fault.processed] == [2, 4, 2]
    assert found.chaos is not None and found.chaos.seed == 7


def test_pauses_are_found_however_the_run_is_cut_into_bins() -> None:
    """Subscriber near waits for 3 s between its second delivery and the third."""
    run = Run(messages=2)
    processed = run.all("clients/near", Event.PROCESSED)
    for row in run.logs["clients/near"]:
        if row["time_us"] > processed[1]["time_us"]:
            row["time_us"] += 3_000 * MS
    since = processed[1]["time_us"]
    found = measured(run, fault(since + 100 * MS, since + 200 * MS))
    near = next(one for one in found.series if one.party.startswith("near"))
    us = processed[2]["time_us"] - since
    assert near.longest == Pause(since, us) and us > 3_000 * MS
    assert sum(near.counts) == 4 and near.calm is None
    [by_fault] = found.faults
    assert by_fault.subscribers.worst == "near/link" and by_fault.subscribers.worst_us == us


def test_progress_is_told_by_routers_of_clients_without_logs() -> None:
    found = measured(Run(messages=4))
    told = {(one.role, one.party): sum(one.counts) for one in found.series}
    each = {"near/link": 8, "mid/link": 8, "far/link": 8}
    assert told == {("subscriber", name): count for name, count in each.items()} | {
        ("publisher", "one/link"): 4,
        ("publisher", "two/link"): 4,
    }
    assert found.began_us // MS >= START_MS and all(len(one.counts) > 5_000_000 // found.bin_us for one in found.series)


def test_the_time_in_each_state_is_by_one_routers_clock() -> None:
    run = Run(messages=1)
    run.hosts = {"b": "elsewhere"}
    for row in run.logs["b"]:
        row["time_us"] -= 3600_000 * MS
    states = {(time.router, time.state): time for time in measured(run).states}
    key = run.key(ONE, 0)
    told, received = run.find("a", Event.ACCEPTED, key), run.find("a", Event.RECEIVED, key)
    awaited = states["a", "awaited"]
    assert (awaited.count, awaited.mean_us) == (1, told["time_us"] - received["time_us"])
    sent = run.find("b", Event.DELIVERED, key)["time_us"] - run.find("b", Event.RECEIVED, key)["time_us"]
    assert states["b", "queued"].count == 2 and states["b", "queued"].max_us >= sent
    assert ("c", "awaited") not in states


def test_a_chaos_json_that_cannot_be_read_is_told_of_and_changes_no_verdict(tmp_path: Path) -> None:
    path = Run().write(tmp_path)
    (path / "chaos.json").write_text('{"script": "x", "seed": "many"}')
    report = audit.run([str(path)])
    assert report.verdict is audit.Verdict.HOLDS and report.measures is not None
    [note] = report.measures.notes[:1]
    assert "chaos.json" in note and "invalid value for type, expected int @ $.seed" in note


def read_text(path: str) -> str:
    return Path(path).read_text()


def test_a_run_with_faults_and_a_violation_is_told_with_figures_and_its_story(tmp_path: Path) -> None:
    run = Run()
    key = run.key(ONE, 2)
    run.remove(lambda row: row.get("keys") == [key], "clients/near")
    path = run.write(tmp_path)
    one = {"fault": "kill", "targets": ["c"], "at_us": START_MS * MS + 200 * MS, "until_us": None, "text": "kill c"}
    (path / "chaos.json").write_text(json.dumps(CHAOS | {"faults": [one], "more": "that nobody asked for"}))
    report = audit.run([str(path)])
    assert report.measures == judge_run(run, find_chaos([str(path)], read_text).chaos).measures
    [story] = report.stories
    assert story.key == key.decode() == report.findings[0].key
    assert not any(step.source == NEAR.container for step in story.steps)
    assert {step.where for step in story.steps} >= {"router a", "router b", "router c", "publisher one"}
