"""Every interleaving of small scopes (protocol 13). Larger ones: `make exhaustive`."""

import pytest

from tests.topic.raft.mutants import MUTANTS, SEARCHED, Mutant, notices
from tests.topic.raft.scopes import LONG, QUICK
from tests.topic.raft.search import Search
from tests.topic.raft.world import Scope

QUICK_NAMES = {scope.name for scope in QUICK}


@pytest.mark.parametrize("scope", QUICK, ids=lambda scope: scope.name)
def test_nothing_goes_wrong_in_any_order(scope: Scope) -> None:
    search = Search(scope)
    search.run()
    assert search.is_complete and search.states > 50 and search.rests
    assert search.graphs in (0, 2**6), "some graphs of contacts of four routers never come to rest"


@pytest.mark.parametrize("mutant", [one for one in SEARCHED if one.by in QUICK_NAMES], ids=lambda one: one.name)
def test_a_scope_notices_a_broken_rule(mutant: Mutant) -> None:
    assert notices(mutant, mutant.by)


def test_each_scope_notices_a_broken_rule() -> None:
    assert {scope.name for scope in QUICK + LONG} <= {mutant.by for mutant in MUTANTS + SEARCHED}
