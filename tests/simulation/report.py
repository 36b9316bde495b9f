"""How a failing seed is told: what failed, when, what happened before, and how to see it again."""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World


def replay(seed: int) -> str:
    return f"replay with: python -m tests.simulation {seed} --trace"


def describe(world: "World", error: BaseException | None, *, tail: int) -> str:
    """The last `tail` lines of what happened, all if 0."""
    head = f"seed {world.seed}, step {world.schedule.steps}: {error or 'holds'}"
    return "\n".join([*trace_lines(world)[-tail:], "", str(world.knobs), head, replay(world.seed)])


def trace_lines(world: "World") -> list[str]:
    return [f"{time:9.4f} {who:>6} {what}" for time, who, what in world.trace]


def digest(world: "World") -> str:
    """One word that stands for everything that happened."""
    return hashlib.blake2b("\n".join(trace_lines(world)).encode(), digest_size=16).hexdigest()
