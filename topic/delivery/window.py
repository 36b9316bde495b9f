"""How much one publisher may transfer before it has to settle, in deliveries and in bytes (protocol 5, Credit).

AMQP counts credit in deliveries, memory is bytes, and nobody knows the size of a message that has not come. So a
publisher is granted as many deliveries as there are bytes left for ones as large as its last; and one, whatever its
size, if it has none unsettled. A publisher that had credit for small messages and begins with large ones has too much
of it: that is taken back. What was under way by then is let pass, up to `LENIENCE`.

What a window holds is what was taken and not given back: the messages of the publisher's records that are not settled.
"""

from collections.abc import Sequence
from typing import Final

from topic.delivery.allowance import LEAST, Allowance, unbounded
from topic.settings import Settings

FADES: Final = 0.75
"""A large message is expected to come again, but less so with every batch that has none."""
OWN: Final = "window_bytes"
"""The limit of one publisher, by its name in the topology."""
LENIENCE: Final = 16 << 20
"""Bytes beyond its own that a window takes: more than two sockets hold."""


class CreditWindow:
    """The window of one attach of a publisher."""

    __slots__ = ("_allowance", "_bytes", "_deliveries", "_expected", "_is_guess", "credit", "held", "unsettled")

    def __init__(self, deliveries: int, size: int, largest: int, allowance: Allowance | None = None) -> None:
        """So many deliveries, and bytes, may be unsettled, these within an allowance that others share. The first
        message is expected to be of `largest` bytes."""
        assert deliveries > 0 and size > 0 and largest > 0
        self._deliveries = deliveries
        self._bytes = size
        self._allowance = allowance or unbounded()
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
        self._hold(sum(sizes))

    def _hold(self, size: int) -> None:
        self.held += size
        self._allowance.add(size)

    def give_back(self, sizes: Sequence[int]) -> None:
        """Messages of these sizes were taken, and are settled."""
        self.unsettled -= len(sizes)
        self._hold(-sum(sizes))
        assert self.unsettled >= 0 and self.held >= 0

    @property
    def reserve(self) -> int:
        """Deliveries that there is no credit for because of their bytes alone."""
        return self._deliveries - self.unsettled - self.credit

    @property
    def refuses(self) -> str:
        """The name of the limit for which nothing more is taken, whatever credit there is; empty if more is."""
        return OWN if self.held >= self._bytes + LENIENCE else self._allowance.refuses

    def due(self) -> int:
        """The credit to grant now, and what was transferred without: it counts as granted. Less than none is to be
        taken back."""
        room = self._allowance.left
        left = min(self._bytes - self.held, max(room, LEAST - self.held))
        has_room_for = max(0, left) // max(1, self._expected)
        most = min(self._deliveries - self.unsettled, has_room_for if self.unsettled else max(1, has_room_for))
        due = max(0, most) - self.credit
        if due < 0 < room and self.credit * self._expected <= self._bytes:
            return 0  # it is not much
        self.credit += due
        return due

    def keep(self, credit: int) -> None:
        """The publisher keeps that much of what was due to be taken back."""
        self.credit += credit

    def close(self) -> None:
        """The publisher is gone: what it transferred does not count any more."""
        self._hold(-self.held)
        self.credit = self.unsettled = 0
        self._allowance = unbounded()


def window_of(settings: Settings, allowance: Allowance | None = None) -> CreditWindow:
    """Of one attach, as the topology sets it."""
    return CreditWindow(settings.window, settings.window_bytes, settings.max_message, allowance)
