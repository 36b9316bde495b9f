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
        ("clocks", 3000),  # one router's clock was set back, another's forward; by both, right clocks were corrected
        ("clocks", 3005),
        ("clocks", 8728010),  # a clock was set forward between a delivery and its outcome
        ("clocks", 77200099),  # a clock was set forward, and set back when its router began again
        ("clocks", 77200243),  # a clock was set forward after all contacts; only messages between routers show it
        ("clocks", 9719367),  # clocks of two routers were set; by one of them, a client's right clock was corrected
        ("clocks", 9852158),  # a clock set forward corrected a subscriber's, whose first router's clock was set back
        ("clocks", 9979230),  # the same, and too few deliveries show it
        ("presettled", 9935196),  # a publisher that echoes nothing got a lower epoch at a router out of contact
        ("presettled", 77110174),  # a home without a record of a delivery says that its publisher's map lacks it
        ("close", 9900426),  # a late attach that was never answered ended a life that its publisher continued
        ("close", 77110365),  # the attach that began another life was never answered
        ("tags", 77110427),  # a delivery was settled under another life, whose epoch is lower
        ("tags", 9713045),  # a delivery was settled by the map of an attach; its home had no record of it
        ("tags", 9713275),  # the same, and the attach ended before the tag was used again
        ("tags", 9854136),  # a map named a delivery at a router whose clock was behind the clock of its home
        ("tags", 9814022),  # a tag was used again, and came first to a router whose clock was behind
        ("tags", 9973392),  # a map named a settled delivery at a router whose clock was ahead
        ("tags", 9990927),  # a router whose clock was ahead forwarded a delivery, and was killed
        ("first", 77110328),  # on a link in settle mode first, the home settles each delivery with its answer
        ("end", 9717222),  # news of a subscriber was under way when its publisher's new home accepted
        ("end", 9780073),  # two routers out of contact gave a publisher two lives, in epochs of the same clock
        ("stores", 9718496),  # the same; one router found an old store, the others found none
        ("stores", 10038278),  # the first home told of a refusal; the next one accepted without a subscriber apart
        ("end", 8726064),  # news of a subscriber was lost just before a contact was lost
        ("close", 9714150),  # two routers out of contact, whose clocks differ by a minute: their order is unknown
        ("first", 9787021),  # a publisher sent again what its home had settled; this is no second use of the tag
        ("first", 9787074),
        ("first", 9790030),  # the same; the home had told the next home that the delivery was settled
        ("first", 9716008),  # the same; the former home settled the delivery with its answer
        ("first", 9882167),  # the same, and a subscriber that had not had the delivery got it after later ones
        ("presettled", 9715162),  # the same; an attach got a lower epoch than the one that it echoed
        ("grace", 9972087),  # a late attach, never answered, ended a life for its home; the life continued elsewhere
        ("late", 1043),  # the same
        ("late", 1308),
        ("late", 1228),  # the judge took a close that a router had read late for the end of the link
        ("grace", 9712272),  # a home heard that a subscriber had left its router before it heard of the new one
        ("grace", 8721228),  # a client that echoes nothing got deliveries in another order than its epochs have
        ("grace", 10022264),  # clients that began afresh got lower epochs at a router out of contact
        ("ours", 8720176),  # a publisher that echoes nothing began another life at a router out of contact
        ("strangers", 8730622),  # two clocks were blamed, and only these two showed a third one
        ("strangers", 8731182),  # a home that had not joined a subscriber heard late that its link was closed
        ("strangers", 8731097),  # a router gave up a publisher without a timeout, and then got its message again
        ("strangers", 8732291),  # a late attach with outcomes came after the attach that began afresh
        ("strangers", 8710116),  # an attach that was never answered stated an outcome in its map
        ("strangers", 8710194),  # a client that echoes nothing got a lower epoch at a router that did not know it
        ("queues", 10100106),  # an egress gave up a delivery and published it again: this is a second use of the key
        ("strangers", 77100076),  # two routers out of contact sent the delivery to one subscriber, which has no log
    ],
)
def test_it_accuses_nobody_whom_it_once_accused(kind: str, seed: int) -> None:
    report = witnessed(seed, KINDS[kind])
    assert report.verdict is not Verdict.VIOLATED, report.sentence


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("strangers", 9911214),  # a plain subscriber at a router out of contact was not gated by older deliveries
        ("grace", 10032406),  # a subscriber was admitted past a backlog that waited for its keys
    ],
)
def test_it_holds_in_a_run_that_has_failed(kind: str, seed: int) -> None:
    assert witnessed(seed, KINDS[kind]).verdict is not Verdict.VIOLATED


class Unjudged(LoggedWorld):
    """It goes on, whatever is violated, and does not wait until all has come to rest."""

    def run(self) -> None:
        with patch.object(Judge, "check", lambda *_: None), suppress(Violation):  # the mesh may not come to rest
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
