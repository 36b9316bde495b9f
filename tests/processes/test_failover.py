"""Routers, links and clients fail under load, each in its own way; once, where `make soak` does it again and again.

        a - two publishers, a subscriber
       / \\
      b---c - two subscribers
      |
      a publisher, a subscriber
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from failover.audit import Verdict, run
from tests.soak.play import play
from tests.soak.results import Run
from tests.soak.scenarios import SCENARIOS
from tests.soak.stage import Lengths, Outcome

LENGTHS = Lengths(before=(0.2, 0.8), away=(0.0, 0.5), hung=2.5, after=0.5, rate=1000.0)
"""A router that hangs for so long, or a link that is cut, is given up by all."""
PAUSE_S = 1.0
"""Of a publisher, while all routers are restarted one after the other."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failover")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {}


def the_run(name: str) -> Run:
    return Run("triangle", name, 0, seed=1)


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_lost_doubled_or_overtaken(
    name: str, folder: Path, outcomes: dict[str, Outcome], report: Callable[[str], None]
) -> None:
    place = folder / name
    place.mkdir()
    outcome = outcomes[name] = trio.run(play, the_run(name), place, LENGTHS)
    report(f"{name}: {outcome}")
    assert outcome.clean
    if name == "rolling-restart":
        assert outcome.pause_s < PAUSE_S


def test_the_audit_of_all_of_it_agrees(folder: Path, outcomes: dict[str, Outcome]) -> None:
    """It shows also what was accepted while nobody knew of a subscriber: without their state stores routers do not."""
    found = run([str(folder / name / "run") for name in outcomes])
    assert found.verdict is Verdict.HOLDS, found.as_json()
    not_owed = {
        name: sum(row.cut_off for row in found.pairs if row.subscriber.startswith(f"{the_run(name).name}-"))
        for name in outcomes
    }
    assert not_owed == {name: outcome.tally.excused for name, outcome in outcomes.items()}
    assert not_owed.get("kill-all-no-store", 1) > 0
