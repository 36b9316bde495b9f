"""A mutant: production code with one rule of the failover protocol switched off, for as long as it is applied.

A breakage is a function that gets the original method and returns its replacement. The first line of its docstring
names the rule. The breakages are in the `breaks_*` modules, and must break the protocol, not Python: an invariant
(protocol 9) catches the mutant, not a core's assertion about its own state.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import attrs

Method = Callable[..., Any]
Break = Callable[..., Method | tuple[Method, ...]]
Target = tuple[Any, Any]
"""(class, name of its method) or (table of methods, key)"""


@attrs.frozen
class Mutant:
    name: str
    rule: str
    targets: tuple[Target, ...]
    breaks: Break
    """Gets the methods of the targets, and returns their replacements."""
    by: str
    """The numbers of the invariants that catch it."""
    scope: str
    """The scope of the exhaustive search that catches it, if one does."""
    scenario: Callable[[], None] | None
    """The test of the core that catches it, if one does."""
    knobs: dict[str, Any]
    """Knobs of the simulation with which the situation of the rule is frequent."""

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
        """The present methods of the targets."""
        return [owner[name] if isinstance(owner, dict) else getattr(owner, name) for owner, name in self.targets]


MUTANTS: dict[str, Mutant] = {}


def mutant(
    owner: Any, name: Any, *others: Target, by: str, scope: str = "", scenario: Callable[[], None] | None = None,
    **knobs: Any,
) -> Callable[[Break], Break]:  # fmt: skip
    """Register a breakage of a method, or of several, as a mutant of the breakage's name. `by`: the numbers of the
    invariants that may notice it, by their first digits."""

    def register(breaks: Break) -> Break:
        assert breaks.__name__ not in MUTANTS and breaks.__doc__, breaks
        targets = (owner, name), *others
        rule = breaks.__doc__.splitlines()[0].removesuffix(".")
        MUTANTS[breaks.__name__] = Mutant(breaks.__name__, rule, targets, breaks, by, scope, scenario, knobs)
        return breaks

    return register


# Situations, as knobs of the simulation. All clients resume and ask for a long timeout unless the situation differs.

RESUMING: dict[str, Any] = {
    "plain": 0.0, "silent": 0.0, "timeouts": (60,), "quitting": 0.0, "skew": 0.0, "boot_wait": 10.0, "turmoil": 8.0
}  # fmt: skip
MOVING = RESUMING | {"restless": 1.0}
KILLS = RESUMING | {"restless": 0.3, "restart": 0.9, "faults": ("kill", "kill", "kill", "kill all")}
PARTITIONS = RESUMING | {"restless": 1.0, "faults": ("partition", "partition", "flap", "one-sided", "pause")}
EXPIRING = RESUMING | {"restless": 0.3, "timeouts": (2, 5), "faults": ("partition", "pause", "kill", "kill")}
FEW_BYTES: dict[str, Any] = {"message": 20, "window_bytes": 50, "unwritten": 10, "window": 10}
REUSING = {"tags": 0, "window": 2, "messages": 25}
REUSED = {"reuse": True, "plain": 0.5, "tags": 0, "window": 1, "messages": 25}
"""Plain publishers use their only tag at once again, and subscribers answer no echo."""
NEWCOMERS = MOVING | {"plain": 0.5, "durable": 0.0, "subscribers": 3, "think": 2.0, "window": 10, "timeouts": (20,)}
"""Subscribers that no router knows come while many deliveries are in doubt."""
