"""A fixed set of whole-mesh simulations; more with `SIMULATION_SEEDS=from:count pytest tests/simulation`.

A failing seed prints what happened last and the command that replays it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.report import describe, digest
from tests.simulation.world import World

ROOT = Path(__file__).parent.parent.parent
CHUNK = 50
FIRST, COUNT = map(int, os.environ.get("SIMULATION_SEEDS", "0:1000").split(":"))
TAIL = 60


def run(seed: int) -> World:
    world = World(seed)
    try:
        world.run()
    except Exception as error:
        text = describe(world, error, tail=TAIL)
        raise AssertionError(text) from error
    return world


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, CHUNK))
def test_what_is_promised_holds_whatever_fails(first: int) -> None:
    for seed in range(first, min(first + CHUNK, FIRST + COUNT)):
        run(seed)


def test_the_simulation_is_worth_its_name() -> None:
    worlds = [run(seed) for seed in range(60)]
    lines = [what for world in worlds for _, _, what in world.trace]
    assert sum(world.judge.promises for world in worlds) > 1000
    assert sum(world.judge.accepted_count for world in worlds) > 500
    for happens in ("is killed", "partition", "for lost", "prank: vanish", "was detached", "before an outcome"):
        assert any(happens in line for line in lines), f"no run has: {happens}"


def test_the_same_seed_is_the_same_run() -> None:
    for seed in range(5):
        assert digest(run(seed)) == digest(run(seed))


def test_a_run_does_not_depend_on_the_hashes_of_strings() -> None:
    command = [sys.executable, "-m", "tests.simulation", "3", "--trace"]

    def trace(hash_seed: str) -> list[str]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        output = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
        return output.splitlines()[:-1]  # the last line tells the time it took

    assert trace("1") == trace("2")
