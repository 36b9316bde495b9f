"""Plays one simulated run or one scenario, with a mutant or without, and returns the verdict."""

import math
import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import attrs

from tests.mutants.mutant import Mutant
from tests.simulation import world
from tests.simulation.parties import Violation
from tests.simulation.report import attempt

CALM = 200.0
"""Virtual seconds in which a sound run comes to rest. The simulation grants more, but mutants often never come to
rest."""


@attrs.frozen
class Verdict:
    invariant: str | None = None
    """The name of the violated invariant."""
    crash: str | None = None
    """Another error of the run. It does not count as a catch."""
    detail: str = ""
    at: float = math.inf
    """The virtual second of the violation, in a simulated run."""

    @property
    def sound(self) -> bool:
        return self.invariant is None and self.crash is None


def play(seed: int, knobs: Mapping[str, Any], mutant: Mutant | None = None, ends: float = math.inf) -> Verdict:
    """Play one seed of the simulation with these knobs in place of drawn ones, until the virtual second `ends`."""
    with patch.object(world, "CALM", CALM), nullcontext() if mutant is None else mutant.applied():
        played, failure = attempt(seed, knobs=knobs, ends=ends)
    if failure is None:
        return Verdict()
    if isinstance(failure.error, Violation):
        return Verdict(
            invariant=str(failure.error).partition(":")[0], detail=str(failure.error), at=played.schedule.now
        )
    return Verdict(crash=f"{type(failure.error).__name__} {failure.error!s:.100}")


def enact(mutant: Mutant, *, broken: bool) -> Verdict:
    """Play the scenario that is to notice the broken rule. An error in the core itself does not count as a catch."""
    assert mutant.scenario is not None
    with mutant.applied() if broken else nullcontext():
        try:
            mutant.scenario()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1].filename
            if where != mutant.scenario.__code__.co_filename:
                return Verdict(crash=f"{type(error).__name__} {error!s:.100}")
            return Verdict(invariant=f"{mutant.by[0]} {mutant.scenario.__name__}", detail=str(error))
    return Verdict()
