"""Settings shared by all tests, and how they are shared out among workers (README.md, How long).

Hypothesis draws the same examples in every run, so a red test stays red.
"""

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests import engine, forks

ROOT = Path(__file__).parent
AT_ONCE = "simulation", "topic", "linkstate", "golden"
"""Folders whose tests only compute: one worker's, which gives way to processes whose timers run."""
FIRST = "processes", "interop", "test_wheel.py", "failover"
"""What takes longest of the rest."""
LAST = "exhaustive", "mutants"
"""They only compute, too: for workers that have nothing else left."""
NICE = 10

# Hundreds of processes are started: what they import is compiled once, also where the environment says otherwise.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Who runs the tests in the background of a shell has them ignore ctrl-C; and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

forks.install()
engine.let_faults_through()

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,  # shared machines are slow at times; slowness is not what these tests are about
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No module and no test is ever garbage, and they have millions of objects. A search for garbage does not look at
    them again, and it begins as late as in a router: in what only computes, searches took a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)
        gc.enable()


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).parts[0]


def _turn(item: pytest.Item) -> int:
    folder, early = _folder(item), (*AT_ONCE, *FIRST)
    return early.index(folder) if folder in early else len(early) + (folder in LAST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


def pytest_runtest_setup(item: pytest.Item) -> None:
    forks.is_on = item.get_closest_marker("real_start") is None
    if "PYTEST_XDIST_WORKER" in os.environ and _folder(item) in (*AT_ONCE, *LAST) and os.nice(0) < NICE:
        os.nice(NICE)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no type information
    """A worker takes a file at a time. Who begins takes all that is computed at once. Of what comes last a worker takes
    a test at a time: so all come to an end together."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        folder = file.split("/")[1]
        return "computing" if folder in AT_ONCE else nodeid if folder in LAST else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)
