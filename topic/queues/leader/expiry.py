"""Finds the messages of a set whose time to live is over, by the leader's clock (protocol 14.9).

The state of the set has the end of each message's time, but reads no clock. So the leader proposes an `Expire`. A
reserved message then stays in its queue. The leader looks at it again each second, until it is gone or no longer
reserved.
"""

import math
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from topic.queues.messages import QueuedMessages
from topic.queues.operations import QueueId

AGAIN_MS: Final = 1000
"""If the time of a message is over and it is still in its queue, the leader takes it up again after this many
milliseconds."""
SPARE: Final = 1000
"""The heap also has entries of messages that are gone. It is made anew without them if it has more entries than this
number and twice the number of messages that expire."""


class ExpiryTimes:
    """The times at which the messages of one set expire, in one term in which this router leads."""

    def __init__(self, messages: QueuedMessages) -> None:
        self._messages = messages
        self._find()

    def _find(self) -> None:
        self._times = [(expires, position) for position, (_, expires) in self._messages.expiring.items()]
        """A heap. Each entry has the time, in milliseconds since 1970, at which `take` returns a message, and the
        message's position."""
        heapify(self._times)

    def add(self, positions: Iterable[int]) -> None:
        """Add messages that have come into a queue."""
        for position in positions:
            if position in self._messages.expiring:
                heappush(self._times, (self._messages.expiring[position][1], position))
        if len(self._times) > 2 * len(self._messages.expiring) + SPARE:
            self._find()

    @property
    def due_ms(self) -> float:
        """The time at which `take` next returns a message, in milliseconds since 1970; infinite if there is no
        message."""
        return self._times[0][0] if self._times else math.inf

    def take(self, now_ms: int) -> dict[QueueId, list[int]]:
        """The positions of the messages whose time is over, for each queue. A message that stays in its queue is
        returned again after `AGAIN_MS`."""
        over: dict[QueueId, list[int]] = {}
        while self.due_ms <= now_ms:
            _, position = heappop(self._times)
            if position in self._messages.expiring:
                heappush(self._times, (now_ms + AGAIN_MS, position))
                over.setdefault(self._messages.expiring[position][0], []).append(position)
        return over
