"""Consensus: golden scenarios word by word, walks of fixed seeds, and mutants that one of them notices."""

from pathlib import Path

import pytest

from tests.topic.raft.mutants import MUTANTS, Mutant, notices
from tests.topic.raft.script import SCENARIOS, play
from tests.topic.raft.walk import Walk


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_golden_scenario_goes_as_written(path: Path) -> None:
    """If the change is meant: `python -m tests.topic.raft.script`, and read the difference."""
    assert play(path.read_text()) == path.read_text()


def test_there_are_scenarios_to_play() -> None:
    assert len(SCENARIOS) >= 7


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_a_set_holds_under_everything_that_may_happen(first: int) -> None:
    for seed in range(first, first + 20):
        Walk(seed).play()


def test_a_leader_that_reaches_a_replaced_store_has_no_member_there() -> None:
    """The leader cannot decide that the former store leaves, as it has not noticed that another contact is lost."""
    Walk(1111).play()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_rule_that_is_broken_is_noticed(mutant: Mutant) -> None:
    assert notices(mutant, mutant.by)


def test_there_are_mutants() -> None:
    assert len(MUTANTS) >= 40
