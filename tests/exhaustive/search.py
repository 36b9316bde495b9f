"""Breadth first through everything that can happen in a scope; what is found first is found by a shortest path."""

import sys
import time
from array import array
from collections import deque
from collections.abc import Callable
from hashlib import blake2b

import attrs

from tests.exhaustive.clients import Violation
from tests.exhaustive.model import Model
from tests.exhaustive.possible import Source
from tests.exhaustive.recall import Recall
from tests.exhaustive.rest import check_rest
from tests.exhaustive.scope import Scope
from tests.exhaustive.seen import Seen
from tests.exhaustive.state import DIGEST
from tests.exhaustive.world import NUMBER, Draft, Event, World

FOUND_ENOUGH = 20


@attrs.frozen
class Finding:
    """The first violation of its kind."""

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
    """Acceptances that a subscriber was missed in, within the known limits."""
    seconds: float = 0.0
    """Of processor time."""
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


@attrs.frozen(slots=True)
class Effect:
    """What an event does to a world."""

    changes: tuple[tuple[int, int, bytes], ...]
    """From this byte to that: what stands there now."""
    limits: int
    violation: Violation | None


Choice = tuple[Event, Recall[Effect]]
"""An event that may be next."""


class Search:
    """States are known by 128 bits; how each was found takes six bytes more, for the path."""

    def __init__(self, scope: Scope) -> None:
        self.model = model = Model(scope)
        self.result = Result(scope)
        self._seen = Seen()
        self._parents = array("I")
        self._events = array("H")
        self._frontier: deque[World] = deque()
        """Of consecutive numbers: the last of them has the highest."""
        self._effects: dict[Event, Recall[Effect]] = {}
        self._sources = [self._choices(source) for source in model.possible.sources]
        self._fault_sources = [self._choices(source) for source in model.possible.fault_sources]

    def _choices(self, source: Source) -> Recall[list[Choice]]:
        return Recall(self.model.layout, lambda draft: [(event, self._effect(event)) for event in source(draft)])

    def _effect(self, event: Event) -> Recall[Effect]:
        if event not in self._effects:
            self._effects[event] = Recall(self.model.layout, lambda draft: self._change(draft, event))
        return self._effects[event]

    def _change(self, draft: Draft, event: Event) -> Effect:
        try:
            self.model.change(draft, event)
        except Violation as violation:
            return Effect((), draft.limits, violation)
        return Effect(
            tuple(
                (NUMBER * column, NUMBER * column + NUMBER, number.to_bytes(NUMBER, sys.byteorder, signed=True))
                for column, number in draft.changes.items()
            ),
            draft.limits,
            None,
        )

    def run(
        self, max_seconds: float = float("inf"), progress: Callable[[Result], None] = lambda result: None
    ) -> Result:
        """Until everything was visited, or for so much processor time; `progress` is called for every layer."""
        begin = time.process_time()
        result = self.result
        self._add(self.prepared(), 0, 0)
        while self._frontier and len(result.findings) < FOUND_ENOUGH and result.seconds < max_seconds:
            for _ in range(len(self._frontier)):
                number = len(self._parents) - len(self._frontier)
                self._expand(number, self._frontier.popleft())
            result.depth += bool(self._frontier)
            result.seconds = time.process_time() - begin
            progress(self._counted())
        result.complete = not self._frontier
        result.seconds = time.process_time() - begin
        return self._counted()

    def _counted(self) -> Result:
        result, model = self.result, self.model
        result.states = len(self._seen)
        result.local_states, result.local_steps = len(model.routers), model.routers.steps
        return result

    def prepared(self) -> World:
        return prepare(self.model)

    def _expand(self, number: int, world: World) -> None:
        model, result = self.model, self.result
        values = model.layout.unpack(world)
        choices = [choice for source in self._sources for choice in source(values)]
        if not choices:
            result.rests += 1
            try:
                check_rest(model, model.look(world))
            except Violation as violation:
                self._found(violation, number, None)
        if values[model.layout.faults.first]:
            choices += [choice for source in self._fault_sources for choice in source(values)]
        result.transitions += len(choices)
        for place, (event, recall) in enumerate(choices):
            effect = recall(values)
            result.limits += effect.limits
            if effect.violation is not None:
                self._found(effect.violation, number, event)
            else:
                after = bytearray(world)
                for start, end, changed in effect.changes:
                    after[start:end] = changed
                self._add(bytes(after), number, place)

    def _add(self, world: World, parent: int, place: int) -> None:
        if self._seen.add(blake2b(world, digest_size=DIGEST).digest()):
            self._frontier.append(world)
            self._parents.append(parent)
            self._events.append(place)

    def _found(self, violation: Violation, number: int, event: Event | None) -> None:
        if violation.invariant not in self.result.findings:
            path = [*self._path(number), *([] if event is None else [event])]
            self.result.findings[violation.invariant] = Finding(violation, tuple(path))

    def _path(self, number: int) -> list[Event]:
        places: list[int] = []
        while number:
            places.append(self._events[number])
            number = self._parents[number]
        world, path = self.prepared(), []
        for place in reversed(places):
            draft = self.model.look(world)
            event = [*self.model.possible.events(draft), *self.model.possible.faults(draft)][place]
            world = self.model.step(world, event)
            path.append(event)
        return path


def prepare(model: Model) -> World:
    """The routers are in contact, and those attach that the scope wants to be there early."""
    world = settle(model, model.first(), ("contact", "receive"))
    for early in model.scope.early:
        for index in model.publishers if early == "p" else model.subscribers:
            (attach,) = [event for event in model.possible.events(model.look(world)) if event[:2] == ("attach", index)]
            world = settle(model, model.step(world, attach), ("receive",))
    return world


def settle(model: Model, world: World, kinds: tuple[str, ...]) -> World:
    """Events of these kinds, one by one, until there are none."""
    while events := [event for event in model.possible.events(model.look(world)) if event[0] in kinds]:
        world = model.step(world, events[0])
    return world
