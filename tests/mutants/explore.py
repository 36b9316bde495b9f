"""A mutant in the exhaustive search, which tries all that can happen. The simulation would need much luck for these.

The result is a path of events. The tests replay it with the breakage, and without it as far as it leads.
"""

from collections.abc import Iterable
from contextlib import nullcontext, suppress

from tests.exhaustive.clients import Violation
from tests.exhaustive.model import Model
from tests.exhaustive.rest import check_rest
from tests.exhaustive.scope import SCOPES
from tests.exhaustive.search import Search, prepare
from tests.exhaustive.world import Event
from tests.mutants.mutant import Mutant
from tests.mutants.runs import Verdict

Path = tuple[Event, ...]

MOST_SECONDS = 300.0


class _Caught(Exception):
    pass


class _Hunt(Search):
    """Ends with the first violation of an invariant that counts."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(SCOPES[mutant.scope])
        self.by = mutant.by
        self.caught: tuple[str, Path] | None = None

    @property
    def states(self) -> int:
        return int(self.kernel.head.states)

    def _found(self, violation: Violation, *event: Event) -> None:
        super()._found(violation, *event)
        if violation.invariant[0] in self.by:
            self.caught = violation.invariant, self.result.findings[violation.invariant].path
            raise _Caught


def explore(mutant: Mutant) -> tuple[int, tuple[str, Path] | None]:
    """The number of visited states, and the violated invariant with its path, if there is one."""
    search = _Hunt(mutant)
    with mutant.applied(), suppress(_Caught):
        search.run(MOST_SECONDS)
    return search.states, search.caught


def walk(scope: str, path: Iterable[Event], mutant: Mutant | None = None) -> Verdict:
    """Play the events of the path as far as they can happen. With the breakage all can."""
    with nullcontext() if mutant is None else mutant.applied():
        model = Model(SCOPES[scope])
        try:
            _follow(model, path)
        except Violation as violation:
            return Verdict(invariant=violation.invariant, detail=str(violation))
    return Verdict()


def _follow(model: Model, path: Iterable[Event]) -> None:
    world = prepare(model)
    for event in path:
        draft = model.look(world)
        if event in [*model.possible.events(draft), *model.possible.faults(draft)]:
            world = model.step(world, event)
    if not model.possible.events(model.look(world)):
        check_rest(model, model.look(world))
