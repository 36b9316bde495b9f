"""Messages that have to be had in time, in runs of everything else that goes wrong."""

import pytest

from tests.simulation.report import attempt, tell
from tests.simulation.world import World

CHUNK = 5
COMPANIONS = ((), ("few bytes",), ("detach", "modes"), ("pieces",), ("narrow", "batch"))


def run(seed: int, *odd: str) -> World:
    world, failure = attempt(seed, odd=("ttl", *odd))
    if failure is not None:
        raise AssertionError(tell(failure, tail=60)) from failure.error
    return world


@pytest.mark.parametrize("companions", COMPANIONS, ids=lambda names: " ".join(names) or "alone")
def test_what_is_ended_for_its_time_nobody_has(companions: tuple[str, ...]) -> None:
    worlds = [run(seed, *companions) for seed in range(CHUNK)]
    limited = [message for world in worlds for message in world.judge.messages.values() if message.until < float("inf")]
    ended = sum(message.expired and message.told for message in limited)
    assert ended > 2 and sum(message.was_given for message in limited) > 2
