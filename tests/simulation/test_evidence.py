"""The audit of simulated runs: it accuses nobody where the judge does not, and sees what broken rules do."""

from contextlib import suppress
from unittest.mock import patch

import pytest

from failover.audit import Verdict
from tests.mutants import hunt
from tests.mutants.mutant import MUTANTS
from tests.simulation.evidence import CALMER, KINDS, Kind, LoggedWorld, witnessed
from tests.simulation.judge import Judge
from tests.simulation.parties import Violation

RUNS = {"ours": 25, "strangers": 25}
FEW = 9
OPEN = {"clocks"}
"""A clock that is set forward is not found out yet: some of these runs are accused."""


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - OPEN))
def test_it_accuses_nobody(kind: str) -> None:
    verdicts = []
    for seed in range(RUNS.get(kind, FEW)):
        report = witnessed(seed, KINDS[kind])
        assert report.verdict is not Verdict.VIOLATED, f"seed {seed}: {report.sentence}"
        verdicts.append(report.verdict)
    assert verdicts.count(Verdict.HOLDS) > len(verdicts) / 3


class Unjudged(LoggedWorld):
    """It goes on, whatever is violated, and does not wait until all has come to rest."""

    def run(self) -> None:
        with patch.object(Judge, "check", lambda *_: None), suppress(Violation):  # that of rest, in the end
            super().run()


@pytest.mark.parametrize(
    ("name", "seed", "kind"),
    [
        ("backlog_not_waited_for", 1, "lost"),
        ("no_placeholder", 2, "duplicated"),
        ("backlog_not_waited_for", 3, "accepted though refused"),
        ("doubted_called_settled", 9, "settled before accepted"),
    ],
)
def test_it_sees_what_becomes_of_subscribers_if_a_rule_is_switched_off(name: str, seed: int, kind: str) -> None:
    assert hunt.pins().keys() == MUTANTS.keys()  # all are registered
    mutant = MUTANTS[name]
    with mutant.applied():
        report = witnessed(seed, Kind(mutant.knobs | CALMER, world=Unjudged))
    assert kind in report.violations, report.sentence
    report = witnessed(seed, Kind(mutant.knobs | CALMER))
    assert report.verdict is not Verdict.VIOLATED, report.sentence
