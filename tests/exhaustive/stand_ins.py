"""Replacements of the hybrid clock and the delivery log. All routers share one of each, because only one router at a
time handles an event.
"""

from typing import Any

from topic.journal import Event


class Clock:
    """Replaces the hybrid clock: a stamp is the rank of the attach that is being handled."""

    rank = 0
    seconds = 0.0
    """The time, for the node of the router whose event is being handled."""

    def stamp(self) -> int:
        return self.rank

    def read(self) -> int:
        """A value that no rank exceeds."""
        return 1 << 40

    def advance(self, wall_ms: int) -> None:
        """Nothing to do: there is no wall clock."""

    def merge(self, remote: int, trust_ms: int = 0) -> None:
        """Nothing to do: ranks are mesh-wide already."""

    def believes(self, wall_ms: int) -> bool:
        """False: the link's latest attach is known."""
        return False

    def __reduce__(self) -> str:
        return "CLOCK"


class Journal:
    """Replaces the delivery log. Keeps the entries of one event."""

    def __init__(self) -> None:
        self.rows: list[tuple[Event, dict[str, Any]]] = []

    def append(self, event: Event, **columns: Any) -> None:
        self.rows.append((event, columns))

    def __reduce__(self) -> str:
        return "JOURNAL"


CLOCK = Clock()
JOURNAL = Journal()
