"""Deliveries that rest when subscribers give them back, in runs of everything else that goes wrong (protocol 12.11)."""

import pytest

from tests.simulation.report import attempt, tell
from tests.simulation.world import World

CHUNK = 5
COMPANIONS = ((), ("detach", "modes"), ("ttl", "drains"), ("gives up",))


def run(seed: int, *odd: str) -> World:
    world, failure = attempt(seed, odd=("rests", *odd))
    if failure is not None:
        raise AssertionError(tell(failure, tail=60)) from failure.error
    return world


@pytest.mark.parametrize("companions", COMPANIONS, ids=lambda names: " ".join(names) or "alone")
def test_nobody_gets_a_delivery_while_it_rests(companions: tuple[str, ...]) -> None:
    worlds = [run(seed, *companions) for seed in range(CHUNK)]
    assert sum(world.judge.balanced.rests.seen for world in worlds)
