"""Settings shared by all tests, and how they are shared out among workers (README.md, How long).

Hypothesis draws the same examples in every run, so a red test stays red.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent
COMPUTING = "simulation", "exhaustive", "mutants", "topic", "linkstate", "golden"
"""Folders whose tests only compute: one worker's, which gives way to processes whose timers run."""
FIRST = "processes", "interop", "test_wheel.py", "failover"
"""What takes longest of the rest."""
SPARK = "spark"
"""The fixture; who uses it is judged by the same session."""
NICE = 10

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,  # shared machines are slow at times; slowness is not what these tests are about
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).parts[0]


def _group(item: pytest.Item) -> str:
    """Of tests that one worker runs, one after the other."""
    if _folder(item) in COMPUTING:
        return "computing"
    return SPARK if SPARK in getattr(item, "fixturenames", ()) else item.path.stem


def _turn(item: pytest.Item) -> int:
    order = *COMPUTING, *FIRST
    return order.index(_folder(item)) if _folder(item) in order else len(order)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ and _folder(item) in COMPUTING and os.nice(0) < NICE:
        os.nice(NICE)
