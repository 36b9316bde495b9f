"""Judges the rests of deliveries of balanced addresses (protocol 12.11).

When a subscriber's router takes a delivery back, and the delivery's home hears of it, no router transfers the delivery
before its pause is over. The judge does not count a return if the home may not have heard of it, and forgets a rest
with everything that ends it: the publisher transfers the delivery again, a subscriber comes whose map names it, or a
router asks about it.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.parties import Message
    from tests.simulation.subscriber_link import SubscriberLink

CLOSE = 1e-6
"""Seconds. Times are sums of floats."""


@attrs.frozen
class Return:
    """A subscriber has given a delivery back."""

    link: "SubscriberLink"
    contact: object
    """The contact of its router with the home at that time, as `Judge.contact`; None at the home itself."""
    at: float


class Rests:
    def __init__(self, judge: "Judge") -> None:
        self._judge = judge
        self._offered: set[bytes] = set()
        """Messages that a subscriber got because their present home has offered them to it. The return of any other
        message means to its home that the subscriber does not have it."""
        self._returned: dict[bytes, Return] = {}
        """Keyed by message: its last return, until the message is transferred again."""
        self._times: dict[bytes, int] = {}
        """Keyed by message: how often its home has surely heard that a subscriber gave it back."""
        self.seen = 0
        """How many rests were judged."""

    def comes_back(self, link: "SubscriberLink", message: "Message") -> None:
        """The router of the link reads that the subscriber gives the message back."""
        home, back_off = self._judge.routers[message.home], link.router.knobs.back_off
        contact = None if home is link.router else self._judge.contact(home, link.router.name)
        if message.text in self._offered and back_off is not None and (home is link.router or contact is not None):
            self._returned[message.text] = Return(link, contact, self._judge.schedule.now)

    def transferred(self, message: "Message") -> None:
        """A router transfers the message to a subscriber."""
        self._offered.add(message.text)
        came = self._returned.pop(message.text, None)
        if came is None:
            return
        if not self._is_sure(came, message):
            self._times.pop(message.text, None)
            return
        back_off = came.link.router.knobs.back_off
        assert back_off is not None
        times = self._times[message.text] = self._times.get(message.text, 0) + 1
        rested, least = self._judge.schedule.now - came.at, back_off.pause(times)
        label = f"{message.text.decode()}, given back {times} times, comes again after {rested:.3f} s of {least} s"
        self._judge.check(rested >= least - CLOSE, f"1 rests: {label}")
        self.seen += 1

    def _is_sure(self, came: Return, message: "Message") -> bool:
        """Whether the home has heard of the return: the subscriber's link and the contact with the home have lasted."""
        home, link = self._judge.routers[message.home], came.link
        if link.ended or not home.alive or not link.router.alive or home.incarnation != message.incarnation:
            return False
        return home is link.router or self._judge.contact(home, link.router.name) == came.contact

    def over(self, texts: Iterable[bytes]) -> None:
        """A publisher transfers these messages, or a home looks for their holders: it may know of no return."""
        for text in texts:
            self._offered.discard(text)
            self._returned.pop(text, None)
            self._times.pop(text, None)
