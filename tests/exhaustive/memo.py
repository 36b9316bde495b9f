"""Computes every local state and every local step only once: this makes the search fast.

An event touches one router or one client. The mesh has many states, because local states combine; but there are few
local states. So each state of a router or client has a number, and the production core computes the effect of an event
on a state only once. `state.digest` distinguishes routers; equality distinguishes clients and data under way.
"""

import traceback
from typing import Any, Generic, TypeVar

import attrs

from tests.exhaustive import state
from tests.exhaustive.clients import Client, Did, Frame, Violation
from tests.exhaustive.router import Ending, Facts, Output, Router

T = TypeVar("T")


class Numbers(Generic[T]):
    """Values that compare by content, and their numbers."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number

    def value(self, number: int) -> T:
        return self.values[number]

    def __len__(self) -> int:
        return len(self.values)


@attrs.frozen(slots=True)
class Step:
    """The effect of an event on a router."""

    state: int
    to_clients: tuple[tuple[int, int, Frame], ...]
    to_routers: tuple[tuple[str, int], ...]
    """(router, number of the batch)"""
    joined: tuple[str, ...]
    expired: tuple[Ending, ...]
    contacts: dict[str, int]


class Routers:
    """All states of routers that the search has met."""

    def __init__(self) -> None:
        self.batches: Numbers[tuple[bytes, ...]] = Numbers()
        self.facts: Numbers[Facts | None] = Numbers()
        self._facts: list[int] = []
        """For each state, the number of its facts."""
        self._saved: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._steps: dict[tuple[int, Any, int], Step | Violation] = {}

    def __len__(self) -> int:
        return len(self._saved)

    @property
    def steps(self) -> int:
        return len(self._steps)

    def add(self, router: Router) -> int:
        digest = state.digest(router)
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = len(self._saved)
            self._saved.append(state.save(router))
            self._facts.append(self.facts.number(router.facts()))
        return number

    def facts_of(self, number: int) -> Facts | None:
        return self.facts.value(self._facts[number])

    def load(self, number: int) -> Router:
        router: Router = state.load(self._saved[number])
        return router

    def apply(self, number: int, event: tuple[Any, ...], rank: int = 0) -> Step:
        """The effect of an event at a state. `rank`: the number of the attach, if the event is one."""
        step = self._steps.get((number, event, rank))
        if step is None:
            try:
                step = self.run(number, event, rank)
            except Violation as violation:
                step = violation
            self._steps[number, event, rank] = step
        if isinstance(step, Violation):
            raise step
        return step

    def run(self, number: int, event: tuple[Any, ...], rank: int) -> Step:
        """Compute the effect of an event."""
        router = self.load(number)
        try:
            output = router.handle(self._unpacked(event), rank)
        except Violation:
            raise
        except Exception as error:
            raise _crash(error) from error
        return self._step(router, output)

    def _unpacked(self, event: tuple[Any, ...]) -> tuple[Any, ...]:
        """The event with its batch in place of the batch's number."""
        if event[0] == "receive":
            return event[0], event[1], self.batches.values[event[2]]
        return event

    def _step(self, router: Router, output: Output) -> Step:
        to_routers = tuple(
            (target, self.batches.number(tuple(payloads))) for target, payloads in output.to_routers.items()
        )
        joined, expired = tuple(output.joined), tuple(output.expired)
        return Step(self.add(router), tuple(output.to_clients), to_routers, joined, expired, output.contacts)


def _crash(error: Exception) -> Violation:
    """The failed assertion or other error of a core, named by the place where it happened."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{frame.filename.rpartition('/')[2]}:{frame.name}"
    return Violation(f"core {type(error).__name__} in {where}", f"{error} ({frame.line})")


class Clients:
    """All states of clients that the search has met."""

    def __init__(self) -> None:
        self.states: Numbers[Client] = Numbers()
        self._acts: dict[int, list[str]] = {}
        self._steps: dict[tuple[Any, ...], tuple[int, Did] | Violation] = {}

    def acts(self, number: int) -> list[str]:
        """The acts that the client may do in this state."""
        acts = self._acts.get(number)
        if acts is None:
            acts = self._acts[number] = self.states.values[number].acts()
        return acts

    def apply(self, number: int, method: str, *arguments: Any) -> tuple[int, Did]:
        """The number of the state after a method of `Client`, and the method's result."""
        index = (number, method, *arguments)
        step = self._steps.get(index)
        if step is None:
            try:
                did: Did = getattr(self.states.values[number], method)(*arguments)
                step = self.states.number(did.client), did
            except Violation as violation:
                step = violation
            self._steps[index] = step
        if isinstance(step, Violation):
            raise step
        return step
