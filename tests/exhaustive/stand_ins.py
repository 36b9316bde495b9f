"""In place of the hybrid clock and the delivery log: one of each for all routers, as one at a time handles an event."""

from typing import Any

from topic.journal import Event


class Clock:
    """In place of the hybrid clock: what is stamped is the rank of the attach that is being handled."""

    rank = 0
    seconds = 0.0
    """For the node: of the router whose event is being handled."""

    def stamp(self) -> int:
        return self.rank

    def read(self) -> int:
        """No rank is ever ahead of it."""
        return 1 << 40

    def advance(self, wall_ms: int) -> None:
        """There is no wall clock."""

    def merge(self, remote: int, trust_ms: int = 0) -> None:
        """Ranks are mesh-wide already."""

    def believes(self, wall_ms: int) -> bool:
        """The link's latest is known."""
        return False

    def __reduce__(self) -> str:
        return "CLOCK"


class Journal:
    """In place of the delivery log; keeps what one event wrote."""

    def __init__(self) -> None:
        self.rows: list[tuple[Event, dict[str, Any]]] = []

    def append(self, event: Event, **columns: Any) -> None:
        self.rows.append((event, columns))

    def __reduce__(self) -> str:
        return "JOURNAL"


CLOCK = Clock()
JOURNAL = Journal()
