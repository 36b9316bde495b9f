"""A mutant: production code with one rule of the failover protocol switched off, for as long as it is applied.

A breakage is a function that is given the original method and returns what takes its place; its docstring's first line
names the rule. The breakages are in the `breaks_*` modules, and must break the protocol, not Python: what the mutant
does is caught by an invariant (protocol 9), not by an assertion that a core makes of its own state.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import attrs

Method = Callable[..., Any]
Break = Callable[..., Method | tuple[Method, ...]]
Target = tuple[Any, Any]
"""A class, its method's name; or a table of methods, the key."""


@attrs.frozen
class Mutant:
    name: str
    rule: str
    targets: tuple[Target, ...]
    breaks: Break
    """Is given the methods of the targets, and returns what takes their places."""
    by: str
    """Numbers of the invariants that catch it."""
    scope: str
    """Of the exhaustive search, if that is what catches it."""
    scenario: Callable[[], None] | None
    """A test of the core, if that is."""
    knobs: dict[str, Any]
    """Of the simulation, set so that what the rule is for happens often."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        broken = self.breaks(*self.methods())
        methods = broken if isinstance(broken, tuple) else (broken,)
        with ExitStack() as stack:
            for (owner, name), method in zip(self.targets, methods, strict=True):
                table = isinstance(owner, dict)
                stack.enter_context(patch.dict(owner, {name: method}) if table else patch.object(owner, name, method))
            yield

    def methods(self) -> list[Method]:
        """What the targets are now."""
        return [owner[name] if isinstance(owner, dict) else getattr(owner, name) for owner, name in self.targets]


MUTANTS: dict[str, Mutant] = {}


def mutant(
    owner: Any, name: Any, *others: Target, by: str, scope: str = "", scenario: Callable[[], None] | None = None,
    **knobs: Any,
) -> Callable[[Break], Break]:  # fmt: skip
    """Makes a breakage of a method, or of several, a mutant of the breakage's name; `by`, first digits: the invariants
    that may miss the rule."""

    def register(breaks: Break) -> Break:
        assert breaks.__name__ not in MUTANTS and breaks.__doc__, breaks
        targets = (owner, name), *others
        rule = breaks.__doc__.splitlines()[0].removesuffix(".")
        MUTANTS[breaks.__name__] = Mutant(breaks.__name__, rule, targets, breaks, by, scope, scenario, knobs)
        return breaks

    return register


# Situations, as knobs of the simulation: everybody resumes and asks for a long timeout unless that is the point

RESUMING: dict[str, Any] = {
    "plain": 0.0, "silent": 0.0, "timeouts": (60,), "quitting": 0.0, "skew": 0.0, "boot_wait": 10.0, "turmoil": 8.0
}  # fmt: skip
MOVING = RESUMING | {"restless": 1.0}
KILLS = RESUMING | {"restless": 0.3, "restart": 0.9, "faults": ("kill", "kill", "kill", "kill all")}
PARTITIONS = RESUMING | {"restless": 1.0, "faults": ("partition", "partition", "flap", "one-sided", "pause")}
EXPIRING = RESUMING | {"restless": 0.3, "timeouts": (2, 5), "faults": ("partition", "pause", "kill", "kill")}
FEW_BYTES: dict[str, Any] = {"message": 20, "window_bytes": 50, "unwritten": 10, "window": 10}
REUSING = {"tags": 0, "window": 2, "messages": 25}
NEWCOMERS = MOVING | {"plain": 0.5, "durable": 0.0, "subscribers": 3, "think": 2.0, "window": 10, "timeouts": (20,)}
"""Subscribers that nobody knows come while much is in doubt."""
