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

RUNS = {"ours": 12, "strangers": 12}
FEW = 6


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_it_accuses_nobody(kind: str) -> None:
    verdicts = []
    for seed in range(RUNS.get(kind, FEW)):
        report = witnessed(seed, KINDS[kind])
        assert report.verdict is not Verdict.VIOLATED, f"seed {seed}: {report.sentence}"
        verdicts.append(report.verdict)
    assert verdicts.count(Verdict.HOLDS) > len(verdicts) / 3


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("clocks", 3000),  # a router's clock was set back, another's forward: both put clients right that were so
        ("clocks", 3005),
        ("clocks", 8728010),  # set forward between a delivery and its outcome
        ("clocks", 77200099),  # a clock was set forward, and set back as its router began again
        ("clocks", 77200243),  # set forward after all contacts: only what routers sent each other tells
        ("clocks", 9719367),  # set at two routers: by one, a client was put right that was so
        ("clocks", 9852158),  # a subscriber was put right by a clock that was set forward, its first router set back
        ("clocks", 9979230),  # the same, and too few deliveries show it
        ("presettled", 9935196),  # a publisher that echoes nothing got a lower epoch at a router out of contact
        ("presettled", 77110174),  # a home that never had it says that its publisher's map omits it
        ("close", 9900426),  # a late attach that was never answered ended the life that its publisher went on with
        ("close", 77110365),  # the attach that began another life was never answered
        ("tags", 77110427),  # settled under another life, whose epoch is lower
        ("tags", 9713045),  # settled by the map of an attach, whose home had no record of it
        ("tags", 9713275),  # the same, and the attach ended before the tag was used again
        ("tags", 9854136),  # a map named it at a router whose clock was behind that of its home
        ("tags", 9814022),  # used again, and first received by a router whose clock was behind
        ("tags", 9973392),  # a map named what was settled at a router whose clock was ahead
        ("tags", 9990927),  # sent on by a router whose clock was ahead, and which was killed
        ("first", 77110328),  # a home settles by itself what it answers on a link that is settled first
        ("end", 9717222),  # word of a subscriber was under way as its publisher's new home accepted
        ("end", 9780073),  # two routers apart gave a publisher two lives by epochs of the same clock
        ("stores", 9718496),  # the same; one router found an old store, the others none
        ("stores", 10038278),  # its first home told a refusal, the next one accepted it without who was apart
        ("end", 8726064),  # word of a subscriber was lost on a contact that was about to be lost
        ("close", 9714150),  # routers apart, whose clocks differ by a minute: nobody knows which was first
        ("first", 9787021),  # sent again what its home had settled by itself; that is no second use of the tag
        ("first", 9787074),
        ("first", 9790030),  # the same; its home had told the next one that it was settled
        ("first", 9716008),  # the same; the former home settled by itself
        ("first", 9882167),  # the same, and a subscriber that had not had it was given it behind later ones
        ("presettled", 9715162),  # the same: an attach got an epoch below the one that it echoed
        ("grace", 9972087),  # a late attach, never answered, ended a life for its home, and the life went on elsewhere
        ("late", 1043),  # the same
        ("late", 1308),
        ("late", 1228),  # the judge took a close that its router had read late for the end of the link
        ("grace", 9712272),  # its former router told a home that it had gone, before the home heard of the new one
        ("grace", 8721228),  # a client that echoes nothing was sent things in another order than its epochs
        ("grace", 10022264),  # clients that began afresh got a lower epoch at a router that was not in contact
        ("ours", 8720176),  # a publisher that echoes nothing began another life at a router out of contact
        ("strangers", 8730622),  # two clocks were blamed, and by these alone a third was known
        ("strangers", 8731182),  # a home that had not joined a subscriber heard late that its link had closed
        ("strangers", 8731097),  # a router gave up a publisher without a timeout, and was sent its message again
        ("strangers", 8732291),  # a late attach stated outcomes, behind the one that began afresh
        ("strangers", 8710116),  # an attach that was never answered stated an outcome by its map
        ("strangers", 8710194),  # a client that echoes nothing got a lower epoch at a router that knew nothing of it
        ("queues", 10100106),  # an egress gave a delivery up, and published it again: that is a second use of the key
        ("strangers", 77100076),  # sent by two routers that were apart to one subscriber, which has no log
    ],
)
def test_it_accuses_nobody_whom_it_once_accused(kind: str, seed: int) -> None:
    report = witnessed(seed, KINDS[kind])
    assert report.verdict is not Verdict.VIOLATED, report.sentence


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("strangers", 9911214),  # a plain subscriber at a router out of contact was not gated by what was older
        ("grace", 10032406),  # a subscriber was admitted past a backlog that waited for its keys
    ],
)
def test_it_holds_in_a_run_that_has_failed(kind: str, seed: int) -> None:
    assert witnessed(seed, KINDS[kind]).verdict is not Verdict.VIOLATED


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
