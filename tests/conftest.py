"""Settings shared by all tests, and the distribution of tests among workers (README.md, How long).

Hypothesis draws the same examples in every run, so a red test stays red.
"""

import gc
import os
import signal
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests import engine, forks, garbage

ROOT = Path(__file__).parent
COMPUTES = "exhaustive", "simulation", "topic/raft", "topic", "linkstate", "golden", "mutants"
"""Folders whose tests only compute, beginning with the folders of the longest tests. One worker begins with these
tests, and yields to processes whose timers run. The other workers take the rest of them when they have no other tests
left."""
APART = "exhaustive", "simulation", "topic/raft", "mutants"
"""Folders whose tests a worker takes one by one, so that all workers finish together."""
FIRST = "processes", "interop", "failover/audit", "test_wheel.py", "failover", "fuzz"
"""The folders and files of the longest other tests, which begin early."""
NICE = 10

PROVES = (
    "exhaustive", "simulation", "mutants", "failover/audit/test_cut_anywhere.py", "router/mqtt/test_shared_walk.py",
    "router/mqtt/test_walk.py", "router/queues/test_mutants.py", "topic/raft/test_search.py",
    "topic/queues/test_lock_walks.py", "topic/queues/test_transaction_orders.py",
    "topic/queues/test_transaction_search.py", "topic/queues/test_walks.py",
)  # fmt: skip
"""Folders and files of tests that search or sample many interleavings, or break rules: `make prove`."""
BREAKS = "::test_a_rule_that_is_broken_is_noticed"
"""The test in any file that breaks the rules of its scenarios. It also belongs to `make prove`."""
SYSTEM = (
    "interop", "processes/test_documented_programs.py", "processes/test_readme.py", "failover/audit/test_cluster.py",
    "failover/audit/test_on_spark.py", "failover/chaos/test_broken_router.py", "failover/chaos/test_command.py",
    "failover/chaos/test_hosts.py", "failover/chaos/test_run.py", "failover/chaos/test_wire.py", "test_wheel.py",
)  # fmt: skip
"""Folders and files of tests that use the whole system as its users do, with tools that nobody here wrote: `make
test-system`."""

# Compile imports once even if the environment forbids it, because hundreds of processes start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Restore ctrl-C: a shell makes background processes ignore it, and tests and their children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

forks.install()
engine.let_faults_through()

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,  # a slow machine is no fault of these tests
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without searches for garbage. Later searches skip modules and tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        garbage.collect_seldom()
        gc.enable()


def _place(nodeid: str, folders: Sequence[str]) -> int | None:
    """The index of the first of these folders that has the test; None if none has it."""
    path = nodeid.removeprefix("tests/")
    return next((place for place, folder in enumerate(folders) if path.startswith(folder)), None)


def _computes(nodeid: str) -> bool:
    return _place(nodeid, COMPUTES) is not None


def _turn(item: pytest.Item) -> int:
    early = *COMPUTES, *FIRST
    place = _place(item.nodeid, early)
    return len(early) if place is None else place


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _place(item.nodeid, PROVES) is not None or BREAKS in item.nodeid:
            item.add_marker("proves")
        elif _place(item.nodeid, SYSTEM) is not None:
            item.add_marker("system")
    items.sort(key=_turn)


def pytest_runtest_setup(item: pytest.Item) -> None:
    forks.is_on = item.get_closest_marker("real_start") is None
    if "PYTEST_XDIST_WORKER" in os.environ and _computes(item.nodeid) and os.nice(0) < NICE:
        os.nice(NICE)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no type information
    """The first worker takes the tests that only compute. The other workers take all other tests, a file at a time, in
    the order of collection. A worker that has none of its own kind left takes tests of the other kind. The first worker
    is nice, so it takes them from the end, where no timers run."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if _place(nodeid, APART) is not None else str(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: WorkerController) -> None:
        first = node is self.nodes[0]
        own = next((unit for unit in self.workqueue if _computes(unit) == first), None)
        unit = own or next(reversed(self.workqueue) if first else iter(self.workqueue))
        self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)
