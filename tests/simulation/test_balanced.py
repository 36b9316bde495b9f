"""Deliveries of balanced addresses, in runs of everything else that goes wrong: each is had by one subscriber."""

import pytest

from tests.simulation.report import attempt, tell
from tests.simulation.world import World

CHUNK = 6
COMPANIONS = ((), ("many",), ("detach", "modes"), ("shared",), ("ttl",), ("small frames", "twins"), ("late null",))


def run(seed: int, *odd: str) -> World:
    world, failure = attempt(seed, odd=("balanced", *odd))
    if failure is not None:
        raise AssertionError(tell(failure, tail=60)) from failure.error
    return world


@pytest.mark.parametrize("companions", COMPANIONS, ids=lambda names: " ".join(names) or "alone")
def test_each_delivery_is_had_by_one(companions: tuple[str, ...]) -> None:
    worlds = [run(seed, *companions) for seed in range(CHUNK)]
    assert sum(world.judge.accepted_count for world in worlds) > 40
    readers = [[reader for reader in world.judge.readers.values() if reader.accepted] for world in worlds]
    assert sum(len(accepting) > 1 for accepting in readers) > 1
