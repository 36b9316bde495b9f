"""How a failing seed is told: what failed, when, what happened before, and how to see it again."""

import hashlib

import attrs

from tests.simulation.world import World


@attrs.frozen
class Failure:
    seed: int
    step: int
    error: Exception
    world: World


def attempt(seed: int, *, trace: bool = False) -> tuple[World, Failure | None]:
    """Run one seed."""
    world = World(seed, trace=trace)
    try:
        world.run()
    except Exception as error:
        return world, Failure(seed, world.schedule.steps, error, world)
    return world, None


def tell(failure: Failure, *, tail: int) -> str:
    """The seed once more, with a trace: its last `tail` lines, all if 0, and what went wrong."""
    world, again = (failure.world, failure) if failure.world.verbose else attempt(failure.seed, trace=True)
    assert again is not None, "the same seed is the same run"
    head = f"seed {failure.seed}, step {failure.step}: {type(failure.error).__name__} {failure.error}"
    return "\n".join([*trace_lines(world)[-tail:], "", str(world.knobs), head, replay(failure.seed)])


def replay(seed: int) -> str:
    return f"replay with: python -m tests.simulation {seed} --trace"


def trace_lines(world: World) -> list[str]:
    return [f"{time:9.4f} {who:>6} {what}" for time, who, what in world.trace]


def digest(world: World) -> str:
    """One word that stands for everything that happened."""
    return hashlib.blake2b("\n".join(trace_lines(world)).encode(), digest_size=16).hexdigest()
