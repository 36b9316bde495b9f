"""How much one publisher may transfer before it has to settle, in deliveries and in bytes (protocol 5, Credit).

AMQP counts credit in deliveries, memory is bytes, and nobody knows the size of a message that has not come. So a
publisher is granted as many deliveries as there are bytes left for ones as large as its last; and one, whatever its
size, if it has none unsettled.

What a window holds is what was taken and not given back: the messages of the publisher's records that are not settled.
"""

from collections.abc import Sequence
from typing import Final

FADES: Final = 0.75
"""A large message is expected to come again, but less so with every batch that has none."""


class CreditWindow:
    """The window of one attach of a publisher."""

    __slots__ = ("_bytes", "_deliveries", "_expected", "_is_guess", "credit", "held", "unsettled")

    def __init__(self, deliveries: int, size: int, largest: int) -> None:
        """So many deliveries, and bytes, may be unsettled. The first message is expected to be of `largest` bytes."""
        assert deliveries > 0 and size > 0 and largest > 0
        self._deliveries = deliveries
        self._bytes = size
        self._expected = largest
        self._is_guess = True
        self.credit = 0
        """Deliveries that the publisher may still transfer; below 0 until what it transferred without is granted."""
        self.unsettled = 0
        """Deliveries that were transferred on this attach and are not settled."""
        self.held = 0
        """Bytes of their messages."""

    def take(self, sizes: Sequence[int]) -> None:
        """The publisher has transferred messages of these sizes, one at least."""
        faded = 0 if self._is_guess else int(FADES * self._expected)
        self._expected, self._is_guess = max(faded, max(sizes)), False
        self.credit -= len(sizes)
        self.unsettled += len(sizes)
        self.held += sum(sizes)

    def aborted(self) -> None:
        """A transfer was aborted: it took credit all the same."""
        self.credit -= 1

    def give_back(self, sizes: Sequence[int]) -> None:
        """Messages of these sizes were taken, and are settled."""
        self.unsettled -= len(sizes)
        self.held -= sum(sizes)
        assert self.unsettled >= 0 and self.held >= 0

    @property
    def reserve(self) -> int:
        """Deliveries that there is no credit for because of their bytes alone."""
        return self._deliveries - self.unsettled - self.credit

    def due(self) -> int:
        """The credit to grant now, and what was transferred without: it counts as granted."""
        left = max(0, self._bytes - self.held) // max(1, self._expected)
        most = min(self._deliveries - self.unsettled, left if self.unsettled else max(1, left))
        granted = max(0, most - self.credit)
        self.credit += granted
        return granted

    def close(self) -> None:
        """The publisher is gone: what it transferred does not count any more."""
        self.credit = self.unsettled = self.held = 0
