"""What routers say in the golden scenarios of queues is what their files say, word by word."""

from pathlib import Path

import pytest

from tests.topic.queues.script import SCENARIOS, play


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_golden_scenario_goes_as_written(path: Path) -> None:
    """If the change is meant: `python -m tests.topic.queues.script`, and read the difference."""
    assert play(path.read_text()) == path.read_text()


def test_there_are_scenarios_to_play() -> None:
    assert len(SCENARIOS) >= 5
