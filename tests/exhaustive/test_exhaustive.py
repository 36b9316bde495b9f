"""Small scopes explored completely: within them the protocol is proven, not sampled. `make exhaustive` does more."""

import attrs
import pytest

from tests.exhaustive import state
from tests.exhaustive.explain import explain
from tests.exhaustive.router import Router
from tests.exhaustive.scope import QUICK, SCOPES, Scope
from tests.exhaustive.search import Search
from topic.home import Home

CALM = Scope("calm", "a", "b", messages=2, faults=0)


@pytest.mark.parametrize("name", QUICK)
def test_nothing_that_can_happen_breaks_the_protocol(name: str) -> None:
    search = Search(SCOPES[name])
    result = search.run()
    told = [line for finding in result.findings.values() for line in explain(search.model, finding)]
    assert not result.findings, "\n".join([str(result), *told])
    assert result.complete
    assert result.rests


def test_the_same_scope_has_the_same_states_every_time() -> None:
    first, second = (Search(CALM).run() for _ in range(2))
    assert attrs.evolve(first, seconds=0.0) == attrs.evolve(second, seconds=0.0)
    assert first.states > 300


def test_a_broken_rule_is_found_by_a_shortest_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept without waiting for other routers."""
    spread = Home._spread

    def hasty(home: Home, stream, records, take) -> None:  # type: ignore[no-untyped-def]
        spread(home, stream, records, take)
        for record in records:
            record.awaited.clear()
        home.evaluate(stream, records)

    monkeypatch.setattr(Home, "_spread", hasty)
    search = Search(attrs.evolve(CALM, messages=1))
    (finding, *_) = search.run().findings.values()
    assert finding.violation.invariant == "2 accepted too early"
    assert len(finding.path) == 7  # both attach, each known by the other router; one transfer
    assert any("log ACCEPTED" in line for line in explain(search.model, finding))


def test_a_router_that_is_brought_back_is_the_same() -> None:
    search = Search(CALM)
    world = search.prepared()
    for number in world.routers:
        router: Router = search.model.routers.load(number)
        again = state.load(state.save(router))
        assert state.digest(router) == state.digest(again)
        assert search.model.routers.add(again) == number
