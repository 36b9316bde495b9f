"""Deadlines of many waiting items. The module finds the items that are due; the caller decides what to do with them."""

from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Final, Generic, TypeVar

FEW: Final = 64
T = TypeVar("T")


class Deadlines(Generic[T]):
    """The deadlines of waiting items, in seconds; one for each item."""

    def __init__(self) -> None:
        self._until: dict[T, float] = {}
        self._queue: list[tuple[float, int, T]] = []
        """A heap of deadlines. It may have stale entries: the item was discarded, or has got another deadline. A stale
        entry is removed when it comes first, or when more than half of the entries are stale."""
        self._next = count()

    def set(self, waiting: T, deadline: float) -> None:
        self._until[waiting] = deadline
        heappush(self._queue, (deadline, next(self._next), waiting))
        if len(self._queue) > 2 * len(self._until) + FEW:
            self._queue = [(until, next(self._next), one) for one, until in self._until.items()]
            heapify(self._queue)

    def discard(self, waiting: T) -> None:
        self._until.pop(waiting, None)

    def earliest(self) -> float:
        """The earliest deadline; infinity if no item waits."""
        queue = self._queue
        while queue and self._until.get(queue[0][2]) != queue[0][0]:
            heappop(queue)
        return queue[0][0] if queue else inf

    def due(self, now: float) -> list[T]:
        """The items whose deadline has passed. They stay until the caller sets or discards the deadline of each."""
        due: dict[T, None] = {}
        while self.earliest() <= now:
            due[heappop(self._queue)[2]] = None
        return list(due)
