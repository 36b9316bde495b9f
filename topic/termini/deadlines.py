"""Until when each of many may wait, and who is the first whose time is up. What follows from that is not here."""

from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Final, Generic, TypeVar

FEW: Final = 64
T = TypeVar("T")


class Deadlines(Generic[T]):
    """One deadline, in seconds, for each that waits."""

    def __init__(self) -> None:
        self._until: dict[T, float] = {}
        self._queue: list[tuple[float, int, T]] = []
        """Also of who waits no more, or until another time, till its turn comes; or till there are more of these than
        of others."""
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
        """Infinity if nobody waits."""
        queue = self._queue
        while queue and self._until.get(queue[0][2]) != queue[0][0]:
            heappop(queue)
        return queue[0][0] if queue else inf

    def due(self, now: float) -> list[T]:
        """Whose time is up. They wait on, until the caller has set or discarded the deadline of each."""
        due: dict[T, None] = {}
        while self.earliest() <= now:
            due[heappop(self._queue)[2]] = None
        return list(due)
