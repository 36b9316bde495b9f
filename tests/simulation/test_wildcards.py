"""Subscribers of patterns, in runs of everything else that goes wrong."""

import pytest

from tests.simulation.report import attempt, tell
from tests.simulation.wildcards import ADDRESSES, PATTERNS, covers
from tests.simulation.world import World

CHUNK = 6
COMPANIONS = ((), ("filters",), ("many",), ("small frames", "twins"))


def run(seed: int, *odd: str) -> World:
    world, failure = attempt(seed, odd=("wildcards", *odd))
    if failure is not None:
        raise AssertionError(tell(failure, tail=60)) from failure.error
    return world


@pytest.mark.parametrize("companions", COMPANIONS, ids=lambda names: " ".join(names) or "alone")
def test_what_is_promised_holds_whatever_patterns_subscribers_have(companions: tuple[str, ...]) -> None:
    worlds = [run(seed, *companions) for seed in range(CHUNK)]
    assert sum(world.judge.promises.made for world in worlds) > 40


def test_the_model_knows_what_a_pattern_covers() -> None:
    covered = {pattern: [address[6:] for address in ADDRESSES if covers(pattern, address)] for pattern in PATTERNS}
    assert covered == {
        "topic/eu.*": ["eu.fr", "eu.de"], "topic/*.fr": ["eu.fr"], "topic/*.*": ["eu.fr", "eu.de", "us.ny"],
        "topic/eu.#": ["eu.fr", "eu.de"], "topic/#": ["eu.fr", "eu.de", "us.ny"], "topic/us.*": ["us.ny"],
        "topic/us.ny.#": ["us.ny"],
    }  # fmt: skip
