"""The audit of simulated runs with a log cut: it accuses nobody for what that lacks, and clears nobody."""

import pytest

from failover.audit import Verdict
from tests.failover.audit.in_process import judge_files
from tests.mutants.mutant import MUTANTS
from tests.simulation.cuts import CUT, accused, cut, cuts
from tests.simulation.evidence import CALMER, Kind
from tests.simulation.test_evidence import Unjudged

FEW = 4
"""Places where each log is cut, besides the last entry. `python -m tests.simulation.cuts` cuts at ten."""


@pytest.mark.parametrize("kind", ["strangers", "filters", "filters strangers", "balanced", "moves"])
def test_it_accuses_nobody_for_what_a_log_lacks_that_is_cut(kind: str) -> None:
    whole, torn = accused(1, kind, FEW)
    assert whole.verdict is not Verdict.VIOLATED, whole.sentence
    for path, left, report in torn:
        assert report.verdict is not Verdict.VIOLATED, f"{path} after {left} entries: {report.sentence}"


@pytest.mark.parametrize(
    ("kind", "seed", "router", "entries"),
    [
        ("filters strangers", 4, "d", 15),  # it had attached at d, and left, and its next home knew it as it was before
        ("ttl", 3, "c", 1),  # only its own log tells that it was attached at c
        ("wildcards", 3, "c", 22),
        ("strangers", 10, "d", 27),  # its next life began with a clock that was not set yet
    ],
)
def test_nobody_is_accused_for_attaches_that_a_log_lacks(kind: str, seed: int, router: str, entries: int) -> None:
    files = CUT[kind].files(seed)
    first = min(path for path in files if path.startswith(f"file:/run/{router}/"))
    report = judge_files({**files, first: cut(files[first], entries)})
    assert report.verdict is Verdict.UNDECIDED, report.sentence


@pytest.mark.parametrize(("name", "seed"), [("backlog_not_waited_for", 1), ("no_placeholder", 2)])
def test_what_befell_a_subscriber_holds_only_where_its_own_log_is_cut(name: str, seed: int) -> None:
    mutant = MUTANTS[name]
    with mutant.applied():
        files = Kind(mutant.knobs | CALMER, world=Unjudged).files(seed)
    assert judge_files(files).verdict is Verdict.VIOLATED
    for path, left, torn in cuts(files, FEW):
        if "clients/s" not in path:  # it may have processed something twice where it is silent
            report = judge_files(torn, buckets=1)
            assert report.verdict in (Verdict.VIOLATED, Verdict.UNDECIDED), f"{path} after {left}: {report.sentence}"
