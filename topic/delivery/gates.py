"""The gates of a home (protocol 6.5, 6.6). A gate holds newer deliveries of one publisher back from one subscriber.

`topic.home.audiences` sets and opens the gates. The deliveries that a gate holds back wait at the subscriber's
custodian (`topic.edge.subscriber`). When the publisher attaches anew, all its gates end (`topic.termini.generations`).
"""

UNPROVEN = -1
"""The value of `Gate.first` while the home may still forward a backlog: the gate holds every delivery back."""
UNBOUNDED = 1 << 63
"""The value that replaces `Gate.first` when no delivery is held back. It is higher than any `n`."""


class Gate:
    """Holds newer deliveries of a publisher back from a subscriber. The gate lasts until older deliveries, which are
    not for this subscriber, are settled (6.5), or until the publisher has given a sign of life (6.6)."""

    __slots__ = ("remaining", "router", "subscriber", "unproven")

    def __init__(self, subscriber: bytes, router: str, remaining: set[int], *, unproven: bool) -> None:
        assert remaining or unproven
        self.unproven = unproven
        self.subscriber = subscriber
        self.router = router
        """The subscriber's custodian, which the home informs when the gate opens."""
        self.remaining = remaining
        """The places `n` of the older deliveries whose settlement the gate waits for."""

    @property
    def first(self) -> int:
        """The place `n` of the first delivery that the gate holds back; `UNPROVEN` while the backlog has not been
        forwarded."""
        assert self.unproven or self.remaining
        return UNPROVEN if self.unproven else min(self.remaining)
