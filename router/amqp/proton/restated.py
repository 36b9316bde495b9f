"""Limits how often a peer may repeat the state of a delivery.

A disposition of a few bytes may name all deliveries of a session, and proton makes an event for each. A peer has to
send a delivery's outcome and its settlement. A peer that repeats known states without end would keep the router busy
for ever.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from router.amqp.format.errors import RESOURCE_LIMIT, AmqpError
from router.amqp.proton.library import lib

# The number of events that a peer may cause for each delivery.
OFTEN: Final = 8
# The number of events that a peer may cause beyond `OFTEN` for each delivery.
AT_FIRST: Final = 10_000
# The highest number of events that proton makes before we handle them.
AT_ONCE: Final = 100_000
# The highest number of bytes of an input that goes to proton without a check of the limit, because it cannot cause many
# events.
SHORT: Final = 512
# The least bytes of a disposition frame.
FRAME: Final = 23


class Restated:
    """The limit of one connection. `told` counts the events about deliveries."""

    __slots__ = ("_deliveries", "_senders", "_unsettled", "told")

    def __init__(self, senders: Callable[[], Iterable[Any]]) -> None:
        """`senders`: proton's pointers of the links that we send on."""
        self.told = 0
        self._senders = senders
        # The number of deliveries so far that were ever seen unsettled.
        self._deliveries = 0
        # The number of unsettled deliveries at the last check.
        self._unsettled = 0

    def at_once(self, size: int) -> int:
        """How many of `size` input bytes proton may get at once."""
        if size <= SHORT:
            return size
        self._look()
        return max(FRAME, AT_ONCE * FRAME // max(1, self._unsettled))

    def _look(self) -> None:
        unsettled: int = sum(map(lib.pn_link_unsettled, self._senders()))
        self._deliveries += max(0, unsettled - self._unsettled)
        self._unsettled = unsettled

    def settled(self, count: int) -> None:
        """We have settled `count` deliveries, perhaps before they were counted."""
        self._deliveries += max(0, count - self._unsettled)
        self._unsettled = max(0, self._unsettled - count)

    def check(self) -> None:
        if self.told > OFTEN * self._deliveries + AT_FIRST:
            self._look()
            if self.told > OFTEN * self._deliveries + AT_FIRST:
                raise AmqpError(RESOURCE_LIMIT, "the peer sends dispositions that change nothing too often")
