"""Every interleaving of a small set of replicas: messages, disks, contacts, restarts and operators, in each order.

python -m tests.topic.raft.search [NAME…]

The replicas are those of production. `steps.py` has the local steps, `world.py` what may happen, `scopes.py` the
scopes. A scope bounds how often something may happen. Within that each state is visited once, and the first path to a
fault is a shortest one.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tests.exhaustive.kernel import Halt, Kernel
from tests.topic.raft.world import Draft, Event, Model, Scope, Walker


class Search:
    """A breadth-first search with the kernel of the exhaustive search of the mesh."""

    def __init__(self, scope: Scope, model: type[Model] = Model) -> None:
        """`model`: the model of all that may happen in the scope."""
        self.scope = scope
        self._model_of = model
        self.states = self.transitions = self.depth = self.rests = 0
        self.local_states = self.local_steps = 0
        self.graphs = 0
        """The number of graphs of contacts at rest, if the scope counts them."""
        self.is_complete = False

    def run(self, *, most: int = sys.maxsize) -> None:
        """Search until everything, or about `most` states, was visited. Raises AssertionError with the path to a
        fault."""
        self.is_complete, self.depth, self.rests = False, 0, 0
        self.model = model = self._model_of(self.scope)
        self._kernel = kernel = Kernel(model.size, model.may_fail)
        self._functions: list[Callable[[Draft], int]] = []
        """Keyed by tree: the function, which returns its result as a leaf."""
        self._events: dict[Event, int] = {}
        """The tree of each event."""
        self._effects: dict[tuple[tuple[int, int], ...], int] = {}
        for is_fault, sources in ((False, model.plain), (True, model.faults)):
            for source in sources:
                kernel.add_source(self._tree(partial(self._choices, source)), is_fault=is_fault)
        self._begin = begin(model)
        kernel.begin(self._begin)
        halt = kernel.run()
        while halt is not Halt.DONE and kernel.head.states < most:
            if halt is Halt.LAYER:
                self.depth += 1
            elif halt is Halt.MISSED:
                self._learn()
            else:
                self.rests += 1
                draft = Draft(self._world())
                self._do(model.check_rest, draft)
            halt = kernel.run()
            self.states, self.transitions = kernel.head.states, kernel.head.transitions
        self.local_states, self.local_steps = len(model.steps), model.steps.taken
        self.graphs = len(model.graphs)
        self.is_complete = halt is Halt.DONE

    def _world(self) -> tuple[int, ...]:
        return memoryview(self._kernel.world).cast("i")[: self.model.size].tolist()  # type: ignore[return-value]

    # functions of a world

    def _tree(self, function: Callable[[Draft], int]) -> int:
        self._functions.append(function)
        return self._kernel.tree()

    def _choices(self, source: Callable[[Draft], Iterator[Event]], draft: Draft) -> int:
        events = list(self._do(lambda looked: list(source(looked)), draft))
        return self._kernel.choices([self._event(event) for event in events])

    def _event(self, event: Event) -> int:
        if event not in self._events:
            self._events[event] = self._tree(partial(self._effect, event))
        return self._events[event]

    def _effect(self, event: Event, draft: Draft) -> int:
        self._do(lambda changed: self.model.change(changed, event), draft, event)
        effect = tuple(draft.changes.items())
        if effect not in self._effects:
            self._effects[effect] = self._kernel.effect(draft.changes, 0, False)
        return self._effects[effect]

    def _learn(self) -> None:
        tree, values = self._kernel.head.missed, self._world()
        draft = Draft(values)
        leaf = self._functions[tree](draft)
        self._kernel.learn(tree, draft.read_first, values, leaf)

    def _do(self, what: Callable[[Draft], Any], draft: Draft, *event: Event) -> Any:
        try:
            return what(draft)
        except Exception as wrong:
            steps = [*self._path(self._kernel.head.number), *event]
            names = [" ".join(self._named(step)) for step in steps]
            raise AssertionError("\n".join([f"{self.scope.name}: {wrong!r} after", *names])) from wrong

    # the path

    def _named(self, event: Event) -> list[str]:
        verb, *rest = event
        if verb == "crash":
            return [verb, self.model.names[rest[0]], f"{rest[1]} kept"]
        return [verb, *(self.model.names[router] for router in rest)]

    def _path(self, number: int) -> list[Event]:
        places: list[int] = []
        while number:
            number, place = self._kernel.found_by(number)
            places.append(place)
        values, path = self._begin, []
        for place in reversed(places):
            event = self.model.events(Draft(values))[place]
            draft = Draft(values)
            self.model.change(draft, event)
            values = draft.world()
            path.append(event)
        return path


def begin(model: Model) -> tuple[int, ...]:
    walker = Walker(model)
    if model.scope.begun:
        walker.meet_all()
        walker.do("tick", model.scope.ring[0])
        assert [me.router for me, _ in model.leaders(walker.values)] == [model.scope.ring[0]]
    model.scope.prepare(walker)
    return walker.values


def main() -> int:
    from tests.topic.raft.scopes import LONG, QUICK

    return play("tests.topic.raft.search", QUICK + LONG)


def play(module: str, scopes: Sequence[Scope], model: type[Model] = Model) -> int:
    """Search the scopes that the command line names. Returns 1 if a search has found a fault."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description="visit all states of a set")
    parser.add_argument("name", nargs="*", help="parts of names of scopes; all if none is given")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="stop at about so many states")
    arguments = parser.parse_args()
    failed = 0
    for scope in scopes:
        if arguments.name and not any(name in scope.name for name in arguments.name):
            continue
        began, search = time.process_time(), Search(scope, model)
        try:
            search.run(most=arguments.most)
        except AssertionError as wrong:
            failed += 1
            print(wrong)
        seconds = time.process_time() - began
        done = "complete" if search.is_complete else "stopped"
        print(f"{scope.name}: {search.states} states, {search.transitions} transitions, depth {search.depth}, "
              f"{search.rests} at rest, {search.local_states} local states, {search.local_steps} local steps, "
              f"{done}, {seconds:.0f} s", flush=True)  # fmt: skip
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
