"""Virtual time: the order of all events, which the seed determines."""

import heapq
from collections.abc import Callable
from typing import Any


class Schedule:
    """Events in the order of their time. Events of the same instant come in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._serial = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, delay: float, action: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + delay, action, *arguments)

    def at(self, time: float, action: Callable[..., None], *arguments: Any) -> None:
        assert time >= self.now
        self._serial += 1
        heapq.heappush(self._heap, (time, self._serial, action, arguments))

    def step(self, until: float) -> bool:
        """Run the next event. Returns False if none is left before `until`."""
        if not self._heap or self._heap[0][0] > until:
            return False
        self.now, _, action, arguments = heapq.heappop(self._heap)
        self.steps += 1
        action(*arguments)
        return True
