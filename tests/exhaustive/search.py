"""Breadth first through everything that can happen in a scope; what is found first is found by a shortest path."""

import marshal
import time
from array import array
from collections import deque
from collections.abc import Callable
from hashlib import blake2b

import attrs

from tests.exhaustive.clients import Violation
from tests.exhaustive.model import Model
from tests.exhaustive.rest import check_rest
from tests.exhaustive.scope import Scope
from tests.exhaustive.seen import Seen
from tests.exhaustive.state import DIGEST
from tests.exhaustive.world import Event, World

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


class Search:
    """States are known by 128 bits; how each was found takes six bytes more, for the path."""

    def __init__(self, scope: Scope) -> None:
        self.model = Model(scope)
        self.result = Result(scope)
        self._seen = Seen()
        self._parents = array("I")
        self._events = array("H")
        self._frontier: deque[bytes] = deque()
        """Of consecutive numbers: the last of them has the highest."""

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
                self._expand(number, World(*marshal.loads(self._frontier.popleft())))
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
        result.limits = model.promises.limits
        return result

    def prepared(self) -> World:
        return prepare(self.model)

    def _expand(self, number: int, world: World) -> None:
        model, result = self.model, self.result
        events = model.possible.events(world)
        if not events:
            result.rests += 1
            try:
                check_rest(model, world)
            except Violation as violation:
                self._found(violation, number, None)
        for place, event in enumerate([*events, *model.possible.faults(world)]):
            result.transitions += 1
            try:
                after = model.step(world, event)
            except Violation as violation:
                self._found(violation, number, event)
            else:
                self._add(after, number, place)

    def _add(self, world: World, parent: int, place: int) -> None:
        packed = marshal.dumps(tuple(world), 2)
        digest = blake2b(packed, digest_size=DIGEST).digest()
        if self._seen.add(digest):
            self._frontier.append(packed)
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
            event = [*self.model.possible.events(world), *self.model.possible.faults(world)][place]
            world = self.model.step(world, event)
            path.append(event)
        return path


def prepare(model: Model) -> World:
    """The routers are in contact, and those attach that the scope wants to be there early."""
    world = settle(model, model.first(), ("contact", "receive"))
    for early in model.scope.early:
        for index in model.publishers if early == "p" else model.subscribers:
            (attach,) = [event for event in model.possible.events(world) if event[:2] == ("attach", index)]
            world = settle(model, model.step(world, attach), ("receive",))
    return world


def settle(model: Model, world: World, kinds: tuple[str, ...]) -> World:
    """Events of these kinds, one by one, until there are none."""
    while events := [event for event in model.possible.events(world) if event[0] in kinds]:
        world = model.step(world, events[0])
    return world
