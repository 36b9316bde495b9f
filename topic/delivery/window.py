"""The limit of the transfers that one publisher may have unsettled, in deliveries and in bytes (protocol 5, Credit).

AMQP counts credit in deliveries, but memory is bytes, and the size of a message is unknown until it comes. The window
expects messages as large as the last one. It grants as many deliveries as fit into the bytes that are left, and one
delivery of any size if the publisher has none unsettled. A publisher with credit for small messages may begin to send
large ones: the router then takes credit back. It still accepts the transfers that were under way, up to `LENIENCE`.

A window holds the messages that it took and that were not given back: the unsettled records of the publisher.
"""

from collections.abc import Sequence
from typing import Final

from topic.delivery.allowance import LEAST, Allowance, unbounded
from topic.settings import Settings

FADES: Final = 0.75
"""Factor by which the expected size falls with each batch without a large message."""
OWN: Final = "window_bytes"
"""The name in the topology of the limit of one publisher."""
LENIENCE: Final = 16 << 20
"""Bytes beyond its limit that a window accepts: more than two sockets hold."""


class CreditWindow:
    """The window of one attach of a publisher."""

    __slots__ = ("_allowance", "_bytes", "_deliveries", "_expected", "_is_guess", "credit", "held", "unsettled")

    def __init__(self, deliveries: int, size: int, largest: int, allowance: Allowance | None = None) -> None:
        """At most `deliveries` and `size` bytes may be unsettled, within an allowance that others share. The first
        message is expected to have `largest` bytes."""
        assert deliveries > 0 and size > 0 and largest > 0
        self._deliveries = deliveries
        self._bytes = size
        self._allowance = allowance or unbounded()
        self._expected = largest
        self._is_guess = True
        self.credit = 0
        """Deliveries that the publisher may still transfer; below 0 until `due` has granted the transfers without
        credit."""
        self.unsettled = 0
        """Deliveries that were transferred on this attach and are not settled."""
        self.held = 0
        """Bytes of their messages."""

    def take(self, sizes: Sequence[int]) -> None:
        """The publisher has transferred at least one message; `sizes` in bytes."""
        faded = 0 if self._is_guess else int(FADES * self._expected)
        self._expected, self._is_guess = max(faded, max(sizes)), False
        self.credit -= len(sizes)
        self.unsettled += len(sizes)
        self._hold(sum(sizes))

    def _hold(self, size: int) -> None:
        self.held += size
        self._allowance.add(size)

    def give_back(self, sizes: Sequence[int]) -> None:
        """Messages of these sizes are settled."""
        self.unsettled -= len(sizes)
        self._hold(-sum(sizes))
        assert self.unsettled >= 0 and self.held >= 0

    @property
    def reserve(self) -> int:
        """Deliveries without credit only because of the limit in bytes."""
        return self._deliveries - self.unsettled - self.credit

    @property
    def refuses(self) -> str:
        """The name of the limit that forbids further messages, whatever the credit; empty if none does."""
        return OWN if self.held >= self._bytes + LENIENCE else self._allowance.refuses

    def due(self) -> int:
        """Return the credit to grant now. Transfers without credit count as granted. A negative result is credit to
        take back."""
        room = self._allowance.left
        left = min(self._bytes - self.held, max(room, LEAST - self.held))
        has_room_for = max(0, left) // max(1, self._expected)
        most = min(self._deliveries - self.unsettled, has_room_for if self.unsettled else max(1, has_room_for))
        due = max(0, most) - self.credit
        if due < 0 < room and self.credit * self._expected <= self._bytes:
            return 0  # the surplus is small
        self.credit += due
        return due

    def keep(self, credit: int) -> None:
        """The publisher keeps `credit` of the credit that was to be taken back."""
        self.credit += credit

    def close(self) -> None:
        """The publisher is gone: its transfers count no more."""
        self._hold(-self.held)
        self.credit = self.unsettled = 0
        self._allowance = unbounded()


def window_of(settings: Settings, allowance: Allowance | None = None) -> CreditWindow:
    """The window of one attach, as the topology sets it."""
    return CreditWindow(settings.window, settings.window_bytes, settings.max_message, allowance)
