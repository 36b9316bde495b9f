"""Breadth-first search through everything that can happen in a scope. So a violation is found by a shortest path."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from tests.exhaustive.clients import Violation
from tests.exhaustive.kernel import Halt, Kernel
from tests.exhaustive.model import Model
from tests.exhaustive.possible import Source
from tests.exhaustive.rest import check_rest
from tests.exhaustive.scope import Scope
from tests.exhaustive.world import Draft, Event, World

FOUND_ENOUGH = 20


@attrs.frozen
class Finding:
    """The first violation of its invariant."""

    violation: Violation
    path: tuple[Event, ...]


@attrs.define
class Result:
    scope: Scope
    states: int = 0
    transitions: int = 0
    rests: int = 0
    """States in which nothing but a fault can happen."""
    depth: int = 0
    local_states: int = 0
    local_steps: int = 0
    limits: int = 0
    """Acceptances without a promised subscriber, within the known limits."""
    seconds: float = 0.0
    """Seconds of processor time."""
    complete: bool = False
    findings: dict[str, Finding] = attrs.Factory(dict)

    def __str__(self) -> str:
        rate = self.states / max(self.seconds, 1e-9)
        return (
            f"{self.scope.name}: {self.states} states, {self.transitions} transitions, depth {self.depth}, "
            f"{self.rests} at rest, {self.local_states} router states, {self.local_steps} router steps, "
            f"{self.limits} within limits, {len(self.findings)} kinds of violations, {self.seconds:.1f} s, "
            f"{rate:.0f} states/s{'' if self.complete else ', INCOMPLETE'}"
        )


class Search:
    """The functions that the kernel learns, and the search loop around it."""

    def __init__(self, scope: Scope) -> None:
        self.model = model = Model(scope)
        self.result = Result(scope)
        self.kernel = Kernel(model.layout.size, model.layout.faults.first)
        self.functions: list[Callable[[Draft], int]] = []
        """Keyed by tree: the function, which returns its result as a leaf."""
        self._events: dict[Event, int] = {}
        """The tree of each event."""
        self._effects: dict[tuple[Any, ...], int] = {}
        """Effect of an event -> its leaf. Most events have the same effect in many worlds."""
        for source in model.possible.sources:
            self.kernel.add_source(self._tree(partial(self._choices, source)), is_fault=False)
        for source in model.possible.fault_sources:
            self.kernel.add_source(self._tree(partial(self._choices, source)), is_fault=True)

    # functions of a world

    def _tree(self, function: Callable[[Draft], int]) -> int:
        self.functions.append(function)
        return self.kernel.tree()

    def _choices(self, source: Source, draft: Draft) -> int:
        return self.kernel.choices([self._event(event) for event in source(draft)])

    def _event(self, event: Event) -> int:
        if event not in self._events:
            self._events[event] = self._tree(partial(self._effect, event))
        return self._events[event]

    def _effect(self, event: Event, draft: Draft) -> int:
        violation = None
        try:
            self.model.change(draft, event)
        except Violation as found:
            violation = found
            self._found(violation, event)
        effect = (*draft.changes.items(), draft.limits, violation)
        if effect not in self._effects:
            self._effects[effect] = self.kernel.effect(draft.changes, draft.limits, violation is not None)
        return self._effects[effect]

    def _learn(self) -> None:
        tree, values = self.kernel.head.missed, self.model.layout.unpack(self.kernel.world)
        draft = Draft(self.model.layout, values)
        leaf = self.functions[tree](draft)
        self.kernel.learn(tree, draft.read_first, values, leaf)

    # the search

    def run(
        self, max_seconds: float = float("inf"), progress: Callable[[Result], None] = lambda result: None
    ) -> Result:
        """Search until everything was visited, or for this much processor time. Calls `progress` for every layer."""
        begin = time.process_time()
        result, kernel = self.result, self.kernel
        kernel.begin(self.model.layout.unpack(prepare(self.model)))
        halt = kernel.run()
        while halt is Halt.LAYER and len(result.findings) < FOUND_ENOUGH and result.seconds < max_seconds:
            halt = self._visit_layer()
            result.depth += halt is Halt.LAYER
            result.seconds = time.process_time() - begin
            self._count()
            progress(result)
        result.complete = halt is Halt.DONE
        return result

    def _visit_layer(self) -> Halt:
        while (halt := self.kernel.run()) in (Halt.MISSED, Halt.REST):
            if halt is Halt.MISSED:
                self._learn()
            else:
                self._rest()
        return halt

    def _rest(self) -> None:
        self.result.rests += 1
        try:
            check_rest(self.model, self.model.look(self.kernel.world))
        except Violation as violation:
            self._found(violation)

    def _count(self) -> None:
        result, head, routers = self.result, self.kernel.head, self.model.routers
        result.states, result.transitions, result.limits = head.states, head.transitions, head.limits
        result.local_states, result.local_steps = len(routers), routers.steps

    def _found(self, violation: Violation, *event: Event) -> None:
        """Record a violation in the present world. A function that is learnt there runs for the first time."""
        if violation.invariant not in self.result.findings:
            path = (*self._path(self.kernel.head.number), *event)
            self.result.findings[violation.invariant] = Finding(violation, path)

    def _path(self, number: int) -> list[Event]:
        places: list[int] = []
        while number:
            number, place = self.kernel.found_by(number)
            places.append(place)
        world, path = prepare(self.model), []
        for place in reversed(places):
            draft = self.model.look(world)
            event = [*self.model.possible.events(draft), *self.model.possible.faults(draft)][place]
            world = self.model.step(world, event)
            path.append(event)
        return path


def prepare(model: Model) -> World:
    """The routers are in contact, and the scope's early clients are attached."""
    world = settle(model, model.first(), ("contact", "receive"))
    for early in model.scope.early:
        for index in model.publishers if early == "p" else model.subscribers:
            (attach,) = [event for event in model.possible.events(model.look(world)) if event[:2] == ("attach", index)]
            world = settle(model, model.step(world, attach), ("receive",))
    return world


def settle(model: Model, world: World, kinds: tuple[str, ...]) -> World:
    """Apply events of these kinds, one by one, until there are none."""
    while events := [event for event in model.possible.events(model.look(world)) if event[0] in kinds]:
        world = model.step(world, events[0])
    return world
