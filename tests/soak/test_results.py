"""What a soak keeps, so that it can be interrupted at any time."""

from pathlib import Path

import pytest

from tests.soak.accounts import Tally
from tests.soak.results import Result, Results, Run, spread
from tests.soak.stage import Outcome

RUN = Run("triangle", "kill-home", 3, seed=1)
CLEAN = Outcome(Tally(sent=10), pause_s=0.2, resumed_s=[0.1])


def test_a_run_that_was_interrupted_is_done_again_from_nothing(tmp_path: Path) -> None:
    (Results(tmp_path).fresh(RUN) / "left over").touch()
    again = Results(tmp_path)
    assert again.finished(RUN) is None
    assert list(again.fresh(RUN).iterdir()) == []


def test_a_run_that_is_finished_waits_for_its_verdict(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.fresh(RUN)
    results.finish(RUN, CLEAN)
    again = Results(tmp_path)
    assert again.finished(RUN) == CLEAN
    assert again.judged() == set()


@pytest.mark.parametrize(
    ("outcome", "verdict", "stays"),
    [
        (CLEAN, "holds", False),
        (CLEAN, "undecided", True),
        (CLEAN, "qualified", True),
        (Outcome(Tally(sent=10, excused=1)), "qualified", False),
        (Outcome(Tally(sent=10, doubled=1)), "holds", True),
        (Outcome(Tally(sent=10), error="stuck"), "holds", True),
    ],
)
def test_only_what_was_wrong_stays(tmp_path: Path, outcome: Outcome, verdict: str, stays: bool) -> None:
    results = Results(tmp_path)
    folder = results.fresh(RUN)
    results.finish(RUN, outcome)
    results.add(Result(RUN, outcome, verdict, "a sentence"))
    [kept] = Results(tmp_path).read()
    assert kept == Result(RUN, outcome, verdict, "a sentence")
    assert kept.clean is not stays
    assert results.judged() == {RUN.name}
    assert folder.exists() is stays


def test_a_spread_is_in_milliseconds() -> None:
    assert spread([0.1, 0.3, 0.2]) == "200 / 300"
    assert spread([]) == "-"
