"""Small scopes explored completely: within them the protocol is proven, not sampled. `make exhaustive` does more."""

import gc
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from tests.exhaustive import search as searching
from tests.exhaustive import state
from tests.exhaustive.explain import explain
from tests.exhaustive.kernel import Kernel
from tests.exhaustive.model import Model
from tests.exhaustive.router import Router
from tests.exhaustive.scope import QUICK, SCOPES, Scope
from tests.exhaustive.search import Search, prepare
from topic.directory.entry import Decision, LinkEntry
from topic.edge.subscriber import LocalSubscriber
from topic.home.boot import Boot
from topic.home.publishing import Publishing
from topic.termini.changes import Changes
from topic.termini.expiry import Expiry
from topic.termini.generations import Generations

YOUNG = 5_000
"""Objects."""
CALM = Scope("calm", "a", "b", messages=2, faults=0)


@pytest.fixture(autouse=True)
def early_garbage() -> Iterator[None]:
    """A search makes a router for each step, which is garbage after that. Garbage costs half of the time as long as it
    is in the cache of the processor."""
    usual = gc.get_threshold()
    gc.set_threshold(YOUNG, *usual[1:])
    yield
    gc.set_threshold(*usual)


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
    spread = Publishing._forward_new

    def hasty(publishing: Publishing, stream, records, take) -> None:  # type: ignore[no-untyped-def]
        spread(publishing, stream, records, take)
        for record in records:
            record.awaited.clear()
        publishing._home.decide(stream, records)

    monkeypatch.setattr(Publishing, "_forward_new", hasty)
    search = Search(attrs.evolve(CALM, messages=1))
    (finding, *_) = search.run().findings.values()
    assert finding.violation.invariant == "2 accepted too early"
    assert len(finding.path) == 7  # both attach, each known by the other router; one transfer
    assert any("log ACCEPTED" in line for line in explain(search.model, finding))


def _first(monkeypatch: pytest.MonkeyPatch, scope: str) -> str:
    """The invariant that breaks first."""
    monkeypatch.setattr(searching, "FOUND_ENOUGH", 1)
    return next(iter(Search(SCOPES[scope]).run().findings))


def test_who_is_missed_in_something_and_not_told_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_apart(changes: Changes, entry: LinkEntry, ending: str) -> None:
        """Tell nobody."""

    monkeypatch.setattr(Changes, "end_apart", end_apart)
    assert _first(monkeypatch, "out-of-reach-prompt") == "2 apart and not told"


def test_who_is_only_out_of_reach_and_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let links expire though routers are missing."""
    due = Expiry._due

    def hasty(expiry: Expiry, entry: LinkEntry, lonely: Any) -> Decision | None:
        return due(expiry, entry, lonely) and Decision.EXPIRED

    monkeypatch.setattr(Expiry, "_due", hasty)
    monkeypatch.setattr(Expiry, "_end", lambda expiry, entry: expiry._links.end(entry, ""))
    assert _first(monkeypatch, "out-of-reach-prompt") == "2 thrown out"


def test_a_life_that_goes_on_after_its_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def resumed(known: LinkEntry | None, generation: bytes | None, seen: int) -> bytes | None:
        return generation

    monkeypatch.setattr(Generations, "_life_of", staticmethod(resumed))
    monkeypatch.setattr(Generations, "_has_ended", lambda lives, change: False)
    assert _first(monkeypatch, "away-moved") == "same generation"


def test_a_refusal_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topic.delivery.record.refusal", lambda outcome, **_: None)
    assert _first(monkeypatch, "refused") == "2 accepted too early"


def test_an_incomplete_map_that_is_taken_for_a_whole_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = LocalSubscriber.begin

    def whole(subscriber: LocalSubscriber, *arguments: Any, complete: bool, wants: Any) -> None:
        begin(subscriber, *arguments, complete=True, wants=wants)

    monkeypatch.setattr(LocalSubscriber, "begin", whole)
    assert _first(monkeypatch, "partial-prompt") == "resumed transfer"


def test_a_router_that_joins_before_it_has_all_sections_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes clients as soon as it runs, and waits for nobody."""
    monkeypatch.setattr(Boot, "has_joined", True)
    monkeypatch.setattr(Boot, "_unheard", frozenset())
    assert _first(monkeypatch, "grows") == "2 accepted too early"


def test_a_router_that_is_brought_back_is_the_same() -> None:
    search = Search(CALM)
    for number in search.model.look(prepare(search.model)).routers:
        router: Router = search.model.routers.load(number)
        again = state.load(state.save(router))
        assert state.digest(router) == state.digest(again)
        assert search.model.routers.add(again) == number


def test_a_search_that_learns_nothing_visits_the_same() -> None:
    scope = attrs.evolve(SCOPES["partial"], messages=1)
    model = Model(scope)
    (first, *_) = left = [prepare(model)]
    seen, transitions = {first}, 0
    while left:
        draft = model.look(world := left.pop())
        events = [*model.possible.events(draft), *model.possible.faults(draft)]
        transitions += len(events)
        after = {model.step(world, event) for event in events} - seen
        left += after
        seen |= after
    result = Search(scope).run()
    assert (result.states, result.transitions) == (len(seen), transitions)


def test_what_looks_at_more_than_its_world_is_not_taken_for_a_function_of_it() -> None:
    kernel = Kernel(columns=2, faults=0)
    tree, leaf = kernel.tree(), kernel.choices([])
    kernel.learn(tree, [0], (0, 0), leaf)
    kernel.learn(tree, [0], (1, 0), leaf)
    with pytest.raises(AssertionError, match="looks at something"):
        kernel.learn(tree, [1], (2, 2), leaf)
    with pytest.raises(AssertionError, match="looks at something"):
        kernel.learn(tree, [0, 1], (0, 0), leaf)
