"""Every rule of the failover protocol, switched off on purpose, is missed by an invariant (protocol 9).

Each mutant is played once, by what caught it: with the breakage, and without it until then. `make mutants` searches
anew, and plays the sound run to its end. After a change of the simulation, or of the order of events in the cores, pins
may be stale: `python -m tests.mutants --pin` renews those.
"""

import pytest

from tests.mutants.hunt import PINS, Pin, pins
from tests.mutants.mutant import MUTANTS

PINNED = pins()


@pytest.mark.parametrize(("name", "pin"), PINNED.items(), ids=PINNED)
def test_a_rule_is_missed_when_it_is_switched_off(name: str, pin: Pin) -> None:
    mutant = MUTANTS[name]
    verdict = pin.again(mutant, broken=True)
    assert verdict.invariant == pin.invariant, f"without {mutant.rule}: {verdict}"
    assert pin.invariant[0] in mutant.by
    verdict = pin.again(mutant, broken=False, ends=verdict.at)
    assert verdict.sound, f"with {mutant.rule}: {verdict}"


def test_every_mutant_is_caught() -> None:
    assert PINNED.keys() == MUTANTS.keys(), f"run python -m tests.mutants --pin for {PINS.name}"
    assert len(MUTANTS) >= 70


def test_no_breakage_outlives_its_run() -> None:
    for mutant in MUTANTS.values():
        before = mutant.methods()
        with mutant.applied():
            assert all(now is not then for now, then in zip(mutant.methods(), before, strict=True)), mutant.name
        assert mutant.methods() == before, mutant.name
