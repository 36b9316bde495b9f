"""From script and seed to a timeline: the same for the same seed, and within what the script says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failover.chaos.script.planner import plan
from failover.chaos.script.script import Crashes, FaultLine, Script, ScriptClient, When
from failover.chaos.script.targets import Named, Some
from failover.chaos.script.times import Span, Window
from failover.chaos.script.vocabulary import VERBS
from router.mesh.config import Limits, LogSettings, RouterConfig, Timing, Topology
from router.mesh.quantities import Address
from tests.failover.chaos.scripts import script

DURATION = 60.0
SEEDS = st.integers(0, 1 << 32)

spans = st.tuples(st.floats(0.1, 70), st.floats(0, 10)).map(lambda one: Span(one[0], one[0] + one[1]))
windows = st.tuples(st.floats(0, 50), st.floats(0.1, 20)).map(lambda one: Window(one[0], one[0] + one[1]))
whens = st.one_of(
    st.builds(lambda at: When(Window(0, DURATION), at=at), spans),
    st.builds(lambda window, every: When(window, every=every), windows, st.floats(0.1, 20)),
    st.builds(lambda window, rate: When(window, rate=rate), windows, st.floats(0.01, 5)),
)
faults = st.builds(
    lambda word, when, lasting: FaultLine(VERBS[word], Some("one"), when, lasting),
    st.sampled_from(["kill", "pause", "cut"]),
    whens,
    st.none() | spans,
)


def made(*lines: FaultLine, crashes: Crashes | None = None) -> Script:
    routers = {"a": RouterConfig("a", Address("127.0.0.1", 0))}
    topology = Topology("made", routers, (), (), Timing(), Limits(), LogSettings(), Path("mesh.yaml"))
    client = ScriptClient("news", "publisher", "topic/x", "a", rate=1.0, crashes=crashes)
    return Script("made", Path("made.yaml"), topology, DURATION, (client,), {"news": ("news",)}, {}, lines)


@given(st.lists(faults, max_size=5), SEEDS)
def test_the_same_seed_gives_the_same_plan(lines: list[FaultLine], seed: int) -> None:
    assert plan(made(*lines), seed) == plan(made(*lines), seed)


@given(st.lists(faults, max_size=5), SEEDS)
def test_strikes_come_in_order_within_the_run_and_their_windows(lines: list[FaultLine], seed: int) -> None:
    strikes = plan(made(*lines), seed)
    assert [strike.number for strike in strikes] == list(range(len(strikes)))
    assert [strike.at for strike in strikes] == sorted(strike.at for strike in strikes)
    for strike in strikes:
        when, lasting = strike.fault.when, strike.fault.lasting
        assert 0 <= strike.at < DURATION
        if when.at is not None:
            assert when.at.least <= strike.at <= when.at.most
        else:
            assert when.window.start <= strike.at < when.window.end
        if lasting is None:
            assert strike.lasting is None
        else:
            assert strike.lasting is not None and lasting.least <= strike.lasting <= lasting.most


@given(st.lists(faults, min_size=1, max_size=4), faults, SEEDS)
def test_a_line_that_is_added_leaves_the_others_where_they_were(
    lines: list[FaultLine], more: FaultLine, seed: int
) -> None:
    before = {(strike.at, strike.lasting, strike.seed) for strike in plan(made(*lines), seed)}
    after = {(strike.at, strike.lasting, strike.seed) for strike in plan(made(*lines, more), seed)}
    assert before <= after


@given(st.lists(faults, min_size=1, max_size=5), SEEDS)
def test_every_strike_draws_its_targets_from_a_generator_of_its_own(lines: list[FaultLine], seed: int) -> None:
    strikes = plan(made(*lines), seed)
    assert len({strike.seed for strike in strikes}) == len(strikes)
    assert [strike.random().random() for strike in strikes] == [strike.random().random() for strike in strikes]


def test_another_seed_gives_another_plan() -> None:
    line = FaultLine(VERBS["kill"], Some("one"), When(Window(0, DURATION), rate=1.0))
    assert plan(made(line), 1) != plan(made(line), 2)


def test_a_rate_is_kept_in_the_mean() -> None:
    line = FaultLine(VERBS["kill"], Some("one"), When(Window(10, 50), rate=0.5))
    counts = [len(plan(made(line), seed)) for seed in range(200)]
    assert 18 < sum(counts) / len(counts) < 22


def test_a_periodic_fault_strikes_when_its_period_is_over(tmp_path: Path) -> None:
    strikes = plan(script(tmp_path, "kill: one, every: 2s, during: 3s..8s"), 1)
    assert [strike.at for strike in strikes] == [5.0, 7.0]


def test_clients_that_crash_are_faults_like_others() -> None:
    strikes = plan(made(crashes=Crashes(0.5, Span(1.0, 2.0))), 1)
    assert strikes and {(strike.fault.verb.name, strike.fault.target) for strike in strikes} == {
        ("crash-client", Named("news"))
    }


@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_of_lines_decides_between_strikes_at_the_same_time(tmp_path: Path, seed: int) -> None:
    strikes = plan(script(tmp_path, "pause: a, at: 2s", "kill: a, at: 2s"), seed)
    assert [strike.fault.verb.name for strike in strikes] == ["pause", "kill"]
