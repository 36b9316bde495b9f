"""Every interleaving of small scopes (protocol 13). Larger ones by hand: `python -m tests.topic.raft.search`."""

import pytest

from tests.topic.raft.search import QUICK, Scope, Search


@pytest.mark.parametrize("scope", QUICK, ids=lambda scope: scope.name)
def test_nothing_goes_wrong_in_any_order(scope: Scope) -> None:
    search = Search(scope)
    search.run()
    assert search.is_complete and search.states > 50
