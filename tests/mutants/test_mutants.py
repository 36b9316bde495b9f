"""Every rule of the failover protocol, switched off on purpose, is missed by an invariant (protocol 9).

Each mutant is played once, from a seed that caught it, with and without the breakage; `make mutants` searches for such
seeds anew. After a change of the simulation, or of the order of events in the cores, pins may be stale:
`python -m tests.mutants --pin` renews those.
"""

import pytest

from tests.mutants.hunt import PINS, Pin, pins
from tests.mutants.mutant import MUTANTS
from tests.mutants.runs import play

PINNED = pins()


@pytest.mark.parametrize(("name", "pin"), PINNED.items(), ids=PINNED)
def test_a_rule_is_missed_when_it_is_switched_off(name: str, pin: Pin) -> None:
    mutant = MUTANTS[name]
    verdict = play(pin.seed, mutant.knobs, mutant)
    assert verdict.invariant == pin.invariant, f"without {mutant.rule}: {verdict}"
    assert play(pin.seed, mutant.knobs).sound, "the rule in force, nothing is violated"


def test_every_mutant_is_caught() -> None:
    assert PINNED.keys() == MUTANTS.keys(), f"run python -m tests.mutants --pin for {PINS.name}"
    assert len(MUTANTS) >= 20


def test_no_breakage_outlives_its_run() -> None:
    for mutant in MUTANTS.values():
        before = mutant.methods()
        with mutant.applied():
            assert all(now is not then for now, then in zip(mutant.methods(), before, strict=True)), mutant.name
        assert mutant.methods() == before, mutant.name
