"""Measures how long consumers hold the messages of one queue (protocol 14.19).

The leader's clock measures this time, and no entry of the log has it. So when another router leads, the times of all
messages begin anew.
"""

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Protocol
from weakref import ref

from topic.queues.leader.log import Proposer


class LockedEnd(Protocol):
    """The end whose messages consumers hold. `topic.queues.leader.egress` implements it."""

    def take_back(self, positions: set[int]) -> None:
        """Take these messages back, because their consumers have held them for too long. Some consumers may have given
        up their messages already."""


class Locks:
    """The messages that consumers hold, while the queue has the setting `lock_ms`."""

    def __init__(self, end: LockedEnd, log: Proposer, time_ms: Callable[[], int]) -> None:
        self._end = ref(end)
        """A weak reference. The end holds this object, so a strong one would keep both in memory after the end has
        left."""
        self._log = log
        self._time_ms = time_ms
        self._lock_ms: int | None = None
        self._since: dict[int, int] = {}
        """Maps the position of each held message to the time when its consumer got the message, the earliest first."""
        self._is_set = False
        """Whether a timer runs (`Proposer.rest`)."""

    def set(self, lock_ms: int | None, held: Iterable[int]) -> None:
        """Set how long a consumer may hold a message; None for no limit. `held`: the positions of the messages that
        consumers hold now; their time begins now if there was no limit before."""
        if lock_ms == self._lock_ms:
            return
        if lock_ms is None:
            self._since.clear()
        elif self._lock_ms is None:
            self._since = dict.fromkeys(held, self._time_ms())
        self._lock_ms = lock_ms
        self._set_timer()

    def hold(self, positions: Iterable[int]) -> None:
        """Begin the time of these messages, which a consumer holds now."""
        if self._lock_ms is None:
            return
        now_ms = self._time_ms()
        for position in positions:
            self._since.pop(position, None)
            self._since[position] = now_ms
        self._set_timer()

    def free(self, position: int) -> None:
        """End the time of the message, which the consumer no longer holds."""
        self._since.pop(position, None)

    def _set_timer(self) -> None:
        first = next(iter(self._since), None)
        if first is not None and self._lock_ms is not None and not self._is_set:
            self._is_set = True
            self._log.rest(self, first, self._since[first] + self._lock_ms, must=True)

    def rested(self, position: int) -> None:
        """Handle the end of the timer. The setting may have changed since the timer began."""
        self._is_set = False
        if self._lock_ms is None:
            return
        since_ms = self._time_ms() - self._lock_ms
        over = [*takewhile(lambda at: self._since[at] <= since_ms, self._since)]
        for at in over:
            del self._since[at]
        end = self._end()
        if over and end is not None:
            end.take_back({*over})
        self._set_timer()
