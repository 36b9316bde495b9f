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

LENGTHS = Lengths(before=(0.2, 0.8), away=(0.0, 0.5), hung=2.5, after=0.5, rate=500.0)
"""A router that hangs for so long, or a link that is cut, is given up by all."""
FORGETFUL = "kill-all-no-store"
PAUSE_S = 1.0
"""Of a publisher, while all routers are restarted one after the other."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failover")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {}


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_lost_doubled_or_overtaken(
    name: str, folder: Path, outcomes: dict[str, Outcome], report: Callable[[str], None]
) -> None:
    place = folder / name
    place.mkdir()
    outcome = outcomes[name] = trio.run(play, Run("triangle", name, 0, seed=1), place, LENGTHS)
    report(f"{name}: {outcome}")
    assert outcome.clean
    if name == "rolling-restart":
        assert outcome.pause_s < PAUSE_S


def test_the_audit_of_all_of_it_agrees(folder: Path, outcomes: dict[str, Outcome]) -> None:
    found = run([str(folder / name / "run") for name in outcomes if name != FORGETFUL])
    assert found.verdict is Verdict.HOLDS, found.as_json()


def test_the_audit_shows_what_was_accepted_while_nobody_knew_the_subscribers(
    folder: Path, outcomes: dict[str, Outcome]
) -> None:
    """Routers without their state stores do not. What the audit cannot tell then is for whom the last deliveries were
    that all of them were killed with."""
    found = run([str(folder / FORGETFUL / "run")])
    assert found.violations == {} and not found.problems, found.as_json()
    assert sum(row.without for row in found.pairs) == outcomes[FORGETFUL].tally.excused > 0
    assert outcomes[FORGETFUL].tally.doubled == 0
