"""What `oncemesh bench` makes of latencies, and how it says whose they are."""

import io

import attrs
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from failover.cli.bench.command import show
from failover.cli.bench.histogram import SUB_BITS, Histogram
from failover.cli.bench.load import STAMP, BenchPlan, Measured, body_of
from router.cli.main import main

PLAN = BenchPlan("topic/x", 1, 1, 100, 1000.0, 1.0, 10.0)
VALUES = st.lists(st.integers(0, 2**40), min_size=1, max_size=200)


def histogram(values: list[int]) -> Histogram:
    made = Histogram()
    for value in values:
        made.add(value)
    return made


@given(values=VALUES, part=st.floats(0.001, 1.0))
def test_a_quantile_is_that_of_the_sorted_values_but_for_its_bucket(values: list[int], part: float) -> None:
    exact = next(v for at, v in enumerate(sorted(values), 1) if at >= part * len(values) - 1e-9)
    found = histogram(values).quantile(part)
    assert exact <= found <= exact + max(1, exact >> SUB_BITS) and found <= max(values)


@given(values=VALUES, rows=st.integers(2, 20))
def test_bars_have_all_values_and_are_few(values: list[int], rows: int) -> None:
    bars = histogram(values).bars(rows)
    assert sum(count for _, count in bars) == len(values)
    assert len(bars) <= rows + 2 and [end for end, _ in bars] == sorted(end for end, _ in bars)


def test_nothing_has_no_latency() -> None:
    assert (Histogram().quantile(0.5), Histogram().bars(5)) == (0, [])


def measured(processor_s: float, accepted: int) -> Measured:
    latencies = histogram([2_000_000] * 99 + [50_000_000])
    return Measured(PLAN, accepted, {"accepted": accepted}, accepted, latencies, latencies, 10.0, processor_s)


def shown(found: Measured) -> str:
    out = Console(file=io.StringIO(), width=100)
    show(out, found)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_it_says_when_its_clients_were_the_limit() -> None:
    slow, fast = measured(9.8, 5000), measured(3.0, 10_000)
    assert "they were the limit" in shown(slow) and "the requested rate was 1,000 a second" in shown(slow)
    assert slow.as_json()["client_is_the_limit"] and not fast.as_json()["client_is_the_limit"]
    assert "the limit" not in shown(fast) and "the requested rate" not in shown(fast)
    assert "10000 accepted in 10.0 s: 1,000.0 a second" in shown(fast)
    assert fast.as_json()["delivery_ms"] == pytest.approx({"p50": 2, "p90": 2, "p99": 2, "p99.9": 50, "max": 50}, 0.02)


def test_what_was_not_measured_is_no_latency_of_zero() -> None:
    alone = attrs.evolve(measured(3.0, 10), delivered=0, delivery=Histogram())
    assert alone.as_json()["delivery_ms"] is None and alone.as_json()["acceptance_ms"]["max"] == 50
    assert "latency to its subscriber, ms:  -\n" in shown(alone)


def test_a_body_says_when_it_was_due() -> None:
    assert len(body_of(2**60, 20)) == 20 and int.from_bytes(body_of(2**60, 20)[:STAMP], "big") == 2**60
    result = CliRunner().invoke(main, ["bench", "topic/x", "--size", "7B", "--url", "amqp://127.0.0.1:1"])
    assert result.exit_code == 2 and "at least 8 bytes" in " ".join(result.output.split())
