"""The ages of a set's messages, as the set's leader knows them.

Replicas keep no times, because all of them must come to the same state. So the leader keeps *marks*: from time to time,
at most once in a second, it notes the time and the last decided log index. The age of a message is the time since the
first mark whose index is not below the index of the message's entry. The message may be older than that. If the message
was decided before this router led, its age is the time for which this router has led.

There are at most `MOST` marks. If there are more, the leader forgets some, most of them old ones. An age is then too
low by up to a second, or by up to one part in `FINE`.
"""

from array import array
from bisect import bisect_left
from typing import Final

from topic.queues.positions import index_of

EVERY_S: Final = 1.0
MOST: Final = 1000
FINE: Final = 16


class DecidedTimes:
    """The marks of one set in one term in which this router leads."""

    def __init__(self, index: int, now: float) -> None:
        """`index`: the last entry that was decided when this router began to lead."""
        self._indices = array("q", [index])
        self._times = array("d", [now])
        """The times of the marks (see the module). At the time of a mark, this router saw the mark's index decided."""

    def __len__(self) -> int:
        return len(self._times)

    def mark(self, index: int, now: float) -> None:
        """Make a mark: all entries up to this index are decided now."""
        times = self._times
        if len(times) > 1 and now - times[-2] < EVERY_S:
            self._indices[-1], times[-1] = index, now
            return
        self._indices.append(index)
        times.append(now)
        if len(times) > MOST:
            self._thin(now)

    def _thin(self, now: float) -> None:
        """Forget each mark that is hardly needed, because the next mark gives almost the same age to its messages."""
        times, kept = self._times, [len(self._times) - 1]
        for place in range(len(times) - 2, 0, -1):
            next_ = times[kept[-1]]
            if next_ - times[place - 1] > max(EVERY_S, (now - next_) / FINE):
                kept.append(place)
        kept = [0, *reversed(kept)]
        self._indices = array("q", [self._indices[place] for place in kept])
        self._times = array("d", [times[place] for place in kept])

    def age_s(self, position: int, now: float) -> float:
        """The least age of the message at this position, in seconds."""
        place = bisect_left(self._indices, index_of(position))
        return max(0.0, now - self._times[place]) if place < len(self._times) else 0.0
