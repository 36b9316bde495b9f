"""Limits the unsettled transfers of one publisher, in deliveries and in bytes (protocol 5, Credit).

AMQP counts credit in deliveries, but memory is bytes, and a router learns the size of a message only when the message
comes. The window expects messages as large as the last one. It grants as many deliveries as fit into the bytes that are
left, and one delivery of any size if the publisher has none unsettled. A publisher with credit for small messages may
begin to send large ones: the router then takes credit back. It still accepts the transfers that were under way, up to
`LENIENCE` bytes.

The window counts a message from its transfer until it is settled.
"""

from collections.abc import Sequence
from typing import Final

from topic.delivery.allowance import LEAST, Allowance, unbounded
from topic.settings import Settings

FADES: Final = 0.75
"""The factor by which the expected size falls after each batch without a large message."""
OWN: Final = "window_bytes"
"""The setting in the topology file that limits one publisher."""
LENIENCE: Final = 16 << 20
"""The bytes that a window accepts beyond its limit. They are more than two sockets can have under way."""


class CreditWindow:
    """The window of one publisher, from one attach to its end."""

    __slots__ = ("_allowance", "_bytes", "_deliveries", "_expected", "_is_guess", "credit", "held", "unsettled")

    def __init__(self, deliveries: int, size: int, largest: int, allowance: Allowance | None = None) -> None:
        """At most `deliveries` and `size` bytes may be unsettled, within an `allowance` that is shared with other
        windows. The window expects the first message to have `largest` bytes."""
        assert deliveries > 0 and size > 0 and largest > 0
        self._deliveries = deliveries
        self._bytes = size
        self._allowance = allowance or unbounded()
        self._expected = largest
        self._is_guess = True
        self.credit = 0
        """The number of deliveries that the publisher may still transfer. It is below 0 after transfers without credit,
        until `due` grants credit for them."""
        self.unsettled = 0
        """The number of unsettled deliveries that were transferred on this attach."""
        self.held = 0
        """The bytes of the unsettled deliveries' messages."""

    def take(self, sizes: Sequence[int]) -> None:
        """Count messages that the publisher has transferred. `sizes`: the bytes of each; at least one."""
        faded = 0 if self._is_guess else int(FADES * self._expected)
        self._expected, self._is_guess = max(faded, max(sizes)), False
        self.credit -= len(sizes)
        self.unsettled += len(sizes)
        self._hold(sum(sizes))

    def _hold(self, size: int) -> None:
        self.held += size
        self._allowance.add(size)

    def give_back(self, sizes: Sequence[int]) -> None:
        """Stop counting messages of these sizes (in bytes), because they are settled."""
        self.unsettled -= len(sizes)
        self._hold(-sum(sizes))
        assert self.unsettled >= 0 and self.held >= 0

    @property
    def reserve(self) -> int:
        """The number of further deliveries that could get credit if there were no limit in bytes."""
        return self._deliveries - self.unsettled - self.credit

    @property
    def refuses(self) -> str:
        """The name of the limit that forbids further messages even if the publisher has credit; empty if none does."""
        return OWN if self.held >= self._bytes + LENIENCE else self._allowance.refuses

    def due(self) -> int:
        """Returns the credit to grant now; a negative number is credit to take back. The result includes credit for
        transfers that came without credit."""
        room = self._allowance.left
        left = min(self._bytes - self.held, max(room, LEAST - self.held))
        has_room_for = max(0, left) // max(1, self._expected)
        most = min(self._deliveries - self.unsettled, has_room_for if self.unsettled else max(1, has_room_for))
        due = max(0, most) - self.credit
        if due < 0 < room and self.credit * self._expected <= self._bytes:
            return 0  # such a small surplus is not worth taking back
        self.credit += due
        return due

    def keep(self, credit: int) -> None:
        """Leave the publisher this `credit`, which was to be taken back."""
        self.credit += credit

    def close(self) -> None:
        """Stop counting all transfers, because the publisher is gone."""
        self._hold(-self.held)
        self.credit = self.unsettled = 0
        self._allowance = unbounded()


def window_of(settings: Settings, allowance: Allowance | None = None) -> CreditWindow:
    """A window for one attach, with the limits that the topology file sets."""
    return CreditWindow(settings.window, settings.window_bytes, settings.max_message, allowance)
