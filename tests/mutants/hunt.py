"""The search for seeds that catch mutants: each plays runs until one violates an invariant that holds without it."""

import json
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.mutants import breaks_audience, breaks_directory, breaks_joining, breaks_rehoming, breaks_settling
from tests.mutants.mutant import MUTANTS, Mutant
from tests.mutants.runs import play

PINS = Path(__file__).with_name("pins.json")
BREAKAGES = (breaks_audience, breaks_directory, breaks_joining, breaks_rehoming, breaks_settling)
"""Importing them is what fills `MUTANTS`."""


@attrs.frozen
class Catch:
    """What became of the search for one mutant."""

    mutant: Mutant
    seed: int | None
    """The one that caught it; None if none did."""
    invariant: str
    runs: int
    crashes: int
    """Runs before that ended by an assertion, not an invariant."""
    unsound: int
    """Seeds that caught it, and fail without it too: those do not count."""


def hunt(mutant: Mutant, seeds: int) -> Catch:
    crashes = unsound = 0
    for seed in range(seeds):
        verdict = play(seed, mutant.knobs, mutant)
        crashes += verdict.crash is not None
        if verdict.invariant is not None and verdict.invariant[0] in mutant.by:
            if play(seed, mutant.knobs).sound:
                return Catch(mutant, seed, verdict.invariant, seed + 1, crashes, unsound)
            unsound += 1
    return Catch(mutant, None, "", seeds, crashes, unsound)


def table(catches: Iterator[Catch]) -> Iterator[str]:
    """Line by line, as they are caught."""
    yield f"{'mutant':34} {'runs':>5}  {'caught by':22} rule that it breaks"
    for catch in catches:
        caught = catch.invariant if catch.seed is not None else f"NOTHING ({catch.crashes} crashes)"
        yield f"{catch.mutant.name:34} {catch.runs:5}  {caught:22} {catch.mutant.rule}"


# pins: the seed by which each mutant is caught in the tests


@attrs.frozen
class Pin:
    seed: int
    invariant: str


def pins() -> dict[str, Pin]:
    return {name: Pin(**pin) for name, pin in json.loads(PINS.read_text()).items()} if PINS.exists() else {}


def pin(catches: list[Catch]) -> None:
    """Of the mutants that there are; what was caught now replaces what was pinned."""
    pinned = pins() | {c.mutant.name: Pin(c.seed, c.invariant) for c in catches if c.seed is not None}
    lines = [f"  {json.dumps(n)}: {json.dumps(attrs.asdict(pinned[n]))}" for n in MUTANTS if n in pinned]
    PINS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def still_caught(mutant: Mutant, pin: Pin) -> Catch | None:
    """By its pin, which is as good as ever; None if another has to be found."""
    holds = play(pin.seed, mutant.knobs, mutant).invariant == pin.invariant and play(pin.seed, mutant.knobs).sound
    return Catch(mutant, pin.seed, pin.invariant, 1, 0, 0) if holds else None
