"""A mutant: production code with one rule of the failover protocol switched off, for as long as it is applied.

A breakage is a function that is given the original method and returns what takes its place; its docstring's first line
names the rule. The breakages are in the `breaks_*` modules, and must break the protocol, not Python: what the mutant
does is caught by an invariant (protocol 9), not by an assertion that a core makes of its own state.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import attrs

Method = Callable[..., Any]
Break = Callable[[Method], Method]


@attrs.frozen
class Mutant:
    name: str
    rule: str
    owner: Any
    """A class or module, or a table of methods."""
    attribute: Any
    """Of the owner, or its key in the table."""
    breaks: Break
    knobs: dict[str, Any]
    """Of the simulation, set so that what the rule is for happens often."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        if isinstance(self.owner, dict):
            with patch.dict(self.owner, {self.attribute: self.breaks(self.owner[self.attribute])}):
                yield
        else:
            with patch.object(self.owner, self.attribute, self.breaks(getattr(self.owner, self.attribute))):
                yield


MUTANTS: dict[str, Mutant] = {}


def mutant(owner: Any, attribute: Any, **knobs: Any) -> Callable[[Break], Break]:
    """Makes a breakage of `owner.attribute` a mutant of the breakage's name."""

    def register(breaks: Break) -> Break:
        name = breaks.__name__
        assert name not in MUTANTS and breaks.__doc__, name
        MUTANTS[name] = Mutant(name, breaks.__doc__.splitlines()[0].removesuffix("."), owner, attribute, breaks, knobs)
        return breaks

    return register


# Situations, as knobs of the simulation: everybody resumes and asks for a long timeout unless that is the point

RESUMING: dict[str, Any] = {"plain": 0.0, "timeouts": (60,), "quitting": 0.0, "turmoil": 8.0}
MOVING = RESUMING | {"restless": 1.0}
KILLS = RESUMING | {"restless": 0.3, "restart": 0.9, "faults": ("kill", "kill", "kill", "kill all")}
PARTITIONS = RESUMING | {"restless": 1.0, "faults": ("partition", "partition", "flap", "one-sided", "pause")}
EXPIRING = RESUMING | {"restless": 0.3, "timeouts": (2, 5), "faults": ("partition", "pause", "kill", "kill")}
REUSING = {"tags": 0, "window": 2, "messages": 25}
