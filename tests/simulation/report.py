"""Reports a failing seed: what failed, when, what happened before, and how to replay it."""

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any

import attrs

from tests.simulation.world import World
from topic.identity import link_name

NAME = re.compile(r"b'([\w-]{32})+'|b'[\w-]{12}'|(?<=\")[\w-]{12}(?=\\?\")")
STAMP = re.compile(r"\d{17,}")
INCARNATION = re.compile(r"[.,] ?1[67]\d{11}\b")


@attrs.frozen
class Failure:
    seed: int
    step: int
    error: Exception
    world: World
    odd: tuple[str, ...] = ()


def attempt(
    seed: int,
    *,
    trace: bool = False,
    odd: tuple[str, ...] = (),
    knobs: Mapping[str, Any] | None = None,
    ends: float = math.inf,
) -> tuple[World, Failure | None]:
    """Run one seed; `odd`, `knobs` and `ends` as of `World`."""
    world = World(seed, trace=trace, odd=odd, knobs=knobs)
    world.ends = ends
    try:
        world.run()
    except Exception as error:
        return world, Failure(seed, world.schedule.steps, error, world, odd)
    return world, None


def tell(failure: Failure, *, tail: int) -> str:
    """Run the seed again with a trace. Returns the last `tail` lines (all if 0) and the failure."""
    world = failure.world
    if not world.verbose:
        world, again = attempt(failure.seed, trace=True, odd=failure.odd)
        assert again is not None, "the same seed is the same run"
    head = f"seed {failure.seed}, step {failure.step}: {type(failure.error).__name__} {failure.error}"
    return "\n".join([*trace_lines(world)[-tail:], "", str(world.knobs), head, replay(failure.seed, failure.odd)])


def replay(seed: int, odd: tuple[str, ...] = ()) -> str:
    return f"replay with: python -m tests.simulation {seed} --trace" + "".join(f" --odd '{name}'" for name in odd)


def trace_lines(world: World) -> list[str]:
    """The lines of the trace, with our names for keys and link identities, and with ranks for stamps of the clock."""
    lines = [f"{time:9.4f} {who:>6} {what}" for time, who, what in world.trace]
    names = {message.key.decode(): message.text.decode() for message in world.judge.messages.values()}
    names |= {link_name(client.identity).decode(): client.name for client in world.clients}
    stamps = sorted({stamp for line in lines for stamp in STAMP.findall(line)}, key=int)
    ranks = {stamp: f"@{rank}" for rank, stamp in enumerate(stamps)}

    def named(match: re.Match[str]) -> str:
        text = match[0].removeprefix("b'").rstrip("'")
        size = 32 if len(text) % 32 == 0 else 12
        return " ".join(names.get(text[i : i + size], text[i : i + size]) for i in range(0, len(text), size))

    return [INCARNATION.sub("", STAMP.sub(lambda match: ranks[match[0]], NAME.sub(named, line))) for line in lines]


def digest(world: World) -> str:
    """A digest of everything that happened."""
    return hashlib.blake2b("\n".join(trace_lines(world)).encode(), digest_size=16).hexdigest()
