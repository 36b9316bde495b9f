"""A fixed set of whole-mesh simulations, the same in every run; more with `SIMULATION_SEEDS=from:count`.

A failing seed prints what happened last and the command that replays it. `make simulate-soak` plays seeds that nobody
has seen; one that fails there is kept here.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.report import attempt, digest, tell
from tests.simulation.world import World

ROOT = Path(__file__).parent.parent.parent
CHUNK = 50
WATCHED = 100
"""The first seeds, of which is asked what happens in them."""
FIRST, COUNT = map(int, os.environ.get("SIMULATION_SEEDS", f"{WATCHED}:{150 - WATCHED}").split(":"))
"""With those, three or four for each kind of run; a soak plays others. The seeds that mutants need are played with each
mutant (`mutants/pins.json`)."""
GROWING = 12
"""The first seeds of a mesh that grows, of which the same is asked."""
IN_PIECES = SETTLING_AGAIN = GIVING_UP = 25
TAIL = 60


def run(seed: int, *, trace: bool = False, odd: tuple[str, ...] = ()) -> World:
    world, failure = attempt(seed, trace=trace, odd=odd)
    if failure is not None:
        raise AssertionError(tell(failure, tail=TAIL)) from failure.error
    return world


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, CHUNK))
def test_what_is_promised_holds_whatever_fails(first: int) -> None:
    for seed in range(first, min(first + CHUNK, FIRST + COUNT)):
        run(seed)


@pytest.mark.parametrize(
    "seed", [1_106_062, 1_152_008, 1_100_773, 33_000_159, 34_411_850, 34_431_123, 8_706_911, 8_908_286]
)
def test_it_holds_in_runs_of_which_the_judge_was_wrong(seed: int) -> None:
    """A late attach took a plain subscriber's link behind a cut; a message came from a home that had not heard of a
    subscriber's end; one was sent again, and its acceptance taken for that of the first; all routers died that knew a
    life to be over; an attach was still on its way when its subscriber was asked about; a home answered in mode first
    on a link that its publisher had just left for another one there; a subscriber in mode settled had moved long before
    routers lost each other, and the judge forgot where it had come from; the life of a publisher that echoes nothing
    was ended by the close of an older attach, which its router had answered."""
    run(seed)


def test_it_holds_in_a_run_that_has_failed() -> None:
    """A router heard late of an attach of a publisher, and had forgotten later ones: it kept a gate for ever."""
    run(8_717_874)


def test_the_simulation_is_worth_its_name() -> None:
    worlds = [run(seed, trace=True) for seed in range(WATCHED)]
    lines = [what for world in worlds for _, _, what in world.trace]
    assert statistics.median(world.schedule.steps for world in worlds) >= 500
    assert sum(world.judge.promises.made for world in worlds) > 1000
    assert sum(world.judge.accepted_count for world in worlds) > 500
    for happens in (
        "is killed", "all routers are killed", "partition", "pauses", "stalls", "silently", "one side first",
        "for lost", "prank: vanish", "prank: crash", "prank: late", "was detached", "before an outcome", ", WHOLE",
        "aborts", "resumes", "has let", " detaches", "its clock is set", "in another order", "drains its link",
        "takes back", "an older copy",
    ):  # fmt: skip
        assert any(happens in line for line in lines), f"no run has: {happens}"


def test_the_same_seed_is_the_same_run_traced_or_not() -> None:
    for seed in range(3):
        traced = run(seed, trace=True)
        assert digest(traced) == digest(run(seed, trace=True))
        assert run(seed).schedule.steps == traced.schedule.steps


def test_a_run_does_not_depend_on_the_hashes_of_strings() -> None:
    command = [sys.executable, "-m", "tests.simulation", "3", "--trace"]

    def trace(hash_seed: str) -> list[str]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        output = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
        return [line for line in output.splitlines() if not line.endswith(" a minute")]  # its time

    assert trace("1") == trace("2")


def test_it_holds_in_a_mesh_that_grows_and_shrinks() -> None:
    for seed in range(GROWING, 40):
        run(seed, odd=("grow",))


def test_it_holds_where_messages_go_ahead_in_pieces() -> None:
    for seed in range(IN_PIECES):
        run(seed, odd=("pieces",))


def test_it_holds_where_publishers_abort_deliveries_that_no_router_lists() -> None:
    worlds = [run(seed, trace=True, odd=("gives up",)) for seed in range(GIVING_UP)]
    assert sum(" aborts " in f" {what}" for world in worlds for *_, what in world.trace) > 5


def test_it_holds_where_publishers_settle_what_they_transfer_again() -> None:
    worlds = [run(seed, trace=True, odd=("settles again",)) for seed in range(SETTLING_AGAIN)]
    lines = [what for world in worlds for _, _, what in world.trace]
    for happens in (" again, NEW, settled", " again, WHOLE, settled"):
        assert sum(happens in line for line in lines) > 5, f"no run has: {happens}"


def test_a_mesh_that_grows_is_worth_its_name() -> None:
    worlds = [run(seed, trace=True, odd=("grow",)) for seed in range(GROWING)]
    lines = [what for world in worlds for _, _, what in world.trace]
    for happens in ("by force", "boots", "is leaving", "has been removed", "has plan"):
        assert sum(happens in line for line in lines) > 5, f"no run has: {happens}"
    assert any(router.joining and router.topic.edge.subscribers for w in worlds for router in w.routers.values())
