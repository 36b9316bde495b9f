"""The messages of a set whose time is over, by the leader's clock (protocol 14.9).

The state has the end of each message's time, but reads no clock. So the leader proposes an `Expire`. A reserved message
then stays: the leader looks at it again each second, until it is gone or no longer reserved.
"""

import math
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from topic.queues.messages import QueuedMessages
from topic.queues.operations import QueueId

AGAIN_MS: Final = 1000
"""Milliseconds between two looks at a message whose time is over."""
SPARE: Final = 1000
"""The heap may have this many times of messages that are gone, and as many more as there are messages with an end."""


class ExpiryTimes:
    """The times at which the messages of one set expire, in one term of this router."""

    def __init__(self, messages: QueuedMessages) -> None:
        self._messages = messages
        self._find()

    def _find(self) -> None:
        self._times = [(expires, position) for position, (_, expires) in self._messages.expiring.items()]
        """A heap: the time of the next look at a message, in milliseconds since 1970, and its position."""
        heapify(self._times)

    def add(self, positions: Iterable[int]) -> None:
        """Messages have come into a queue."""
        for position in positions:
            if position in self._messages.expiring:
                heappush(self._times, (self._messages.expiring[position][1], position))
        if len(self._times) > 2 * len(self._messages.expiring) + SPARE:
            self._find()

    @property
    def due_ms(self) -> float:
        """The time of the next look, in milliseconds since 1970; infinite if never."""
        return self._times[0][0] if self._times else math.inf

    def take(self, now_ms: int) -> dict[QueueId, list[int]]:
        """The positions of the messages whose time is over, keyed by queue."""
        over: dict[QueueId, list[int]] = {}
        while self.due_ms <= now_ms:
            _, position = heappop(self._times)
            if position in self._messages.expiring:
                heappush(self._times, (now_ms + AGAIN_MS, position))
                over.setdefault(self._messages.expiring[position][0], []).append(position)
        return over
