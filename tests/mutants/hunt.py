"""The search for runs that catch mutants: a seed of the simulation, or a path of the exhaustive search.

A run catches a mutant if it violates an invariant that counts, and is sound without the breakage.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from tests.mutants import (
    breaks_audience,
    breaks_balanced,
    breaks_batches,
    breaks_bodies,
    breaks_directory,
    breaks_expiry,
    breaks_filters,
    breaks_grace,
    breaks_joining,
    breaks_mqtt,
    breaks_mqtt_publishers,
    breaks_patterns,
    breaks_plan,
    breaks_queues,
    breaks_rehoming,
    breaks_settling,
    breaks_transactions,
    breaks_ttl,
    breaks_wills,
)
from tests.mutants.explore import explore, walk
from tests.mutants.mutant import MUTANTS, Mutant
from tests.mutants.runs import Verdict, enact, play

PINS = Path(__file__).with_name("pins.json")
BREAKAGES = (
    breaks_audience, breaks_balanced, breaks_batches, breaks_bodies, breaks_directory, breaks_expiry, breaks_filters,
    breaks_grace, breaks_joining, breaks_mqtt, breaks_mqtt_publishers, breaks_patterns, breaks_plan, breaks_queues,
    breaks_rehoming, breaks_settling, breaks_transactions, breaks_ttl, breaks_wills,
)  # fmt: skip
"""Importing these modules fills `MUTANTS`."""


@attrs.frozen
class Pin:
    """The run that catches a mutant."""

    invariant: str
    seed: int | None = None
    path: tuple[tuple[Any, ...], ...] = ()

    def again(self, mutant: Mutant, *, broken: bool, ends: float = math.inf) -> Verdict:
        """Play the same run, with the breakage or without. `ends`: where a simulated run stops."""
        breakage = mutant if broken else None
        if mutant.scenario is not None:
            return enact(mutant, broken=broken)
        if self.seed is None:
            return walk(mutant.scope, self.path, breakage)
        return play(self.seed, mutant.knobs, breakage, ends)

    def catches(self, mutant: Mutant) -> bool:
        return self.again(mutant, broken=True).invariant == self.invariant and self.again(mutant, broken=False).sound


@attrs.frozen
class Catch:
    """The result of the search for one mutant."""

    mutant: Mutant
    pin: Pin | None
    """None if no run caught it."""
    runs: int
    """The number of runs, or of states."""
    crashes: int = 0
    """Runs that ended by an error that violates no invariant."""


def hunt(mutant: Mutant, seeds: int) -> Catch:
    if mutant.scope:
        states, caught = explore(mutant)
        return Catch(mutant, None if caught is None else Pin(caught[0], path=caught[1]), states)
    if mutant.scenario is not None:
        missed = enact(mutant, broken=True).invariant
        return Catch(mutant, None if missed is None else Pin(missed), 1)
    crashes = 0
    for seed in range(seeds):
        verdict = play(seed, mutant.knobs, mutant)
        crashes += verdict.crash is not None
        counts = verdict.invariant is not None and verdict.invariant[0] in mutant.by
        if verdict.invariant is not None and counts and play(seed, mutant.knobs).sound:
            return Catch(mutant, Pin(verdict.invariant, seed), seed + 1, crashes)
    return Catch(mutant, None, seeds, crashes)


def table(catches: Iterator[Catch]) -> Iterator[str]:
    """The lines of the table, each as soon as its mutant is caught."""
    yield f"{'mutant':32} {'runs':>7}         {'caught by':22} rule that it breaks"
    for catch in catches:
        caught = f"NOTHING, {catch.crashes} crashes" if catch.pin is None else catch.pin.invariant
        unit = "states" if catch.mutant.scope else "runs"
        yield f"{catch.mutant.name:32} {catch.runs:7} {unit:7} {caught:22} {catch.mutant.rule}"


def pins() -> dict[str, Pin]:
    """Keyed by mutant: the pins that the tests replay."""
    stored = json.loads(PINS.read_text()) if PINS.exists() else {}
    return {name: Pin(pin["invariant"], pin["seed"], tuple(map(tuple, pin["path"]))) for name, pin in stored.items()}


def keep(catches: list[Catch]) -> None:
    """Replace the pins of the caught mutants, and drop the pins of mutants that no longer exist."""
    pinned = pins() | {catch.mutant.name: catch.pin for catch in catches if catch.pin is not None}
    lines = [f"  {json.dumps(name)}: {json.dumps(attrs.asdict(pinned[name]))}" for name in MUTANTS if name in pinned]
    PINS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
