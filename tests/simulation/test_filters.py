"""Subscribers with filters, which change, in runs of everything else that goes wrong."""

import pytest

from tests.simulation.filters import CHANGED
from tests.simulation.report import attempt, tell
from tests.simulation.world import World

CHUNK = 5
COMPANIONS = ((), ("small frames",), ("detach",), ("batch",), ("shared",), ("shared", "modes"))


def run(seed: int, *odd: str) -> World:
    world, failure = attempt(seed, odd=("filters", *odd))
    if failure is not None:
        raise AssertionError(tell(failure, tail=60)) from failure.error
    return world


@pytest.mark.parametrize("companions", COMPANIONS, ids=lambda names: " ".join(names) or "alone")
def test_what_is_promised_holds_whatever_subscribers_want(companions: tuple[str, ...]) -> None:
    worlds = [run(seed, *companions) for seed in range(CHUNK)]
    ended = [cause for world in worlds for _, _, cause in world.judge.promises.ended]
    assert sum(world.judge.promises.made for world in worlds) > 10 and ended.count(CHANGED) < len(ended)
