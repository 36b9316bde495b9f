"""The gates that keep a subscriber from later messages of a publisher (protocol 6.5, 6.6): what home knows of one.

`topic.home.audiences` sets and opens them. What waits behind one is at the subscriber's custodian
(`topic.edge.subscriber`). When the publisher attaches anew, all its gates fall (`topic.termini.generations`).
"""

UNPROVEN = -1
"""In place of the first gated `n`: everything is held back, and home may still forward a backlog."""
UNBOUNDED = 1 << 63
"""In place of the first gated `n`: nothing is held back. More than any `n`."""


class Gate:
    """Keeps a subscriber from later messages of a publisher while older ones, not its own, are unsettled (6.5), or
    while the publisher has yet to show life (6.6)."""

    __slots__ = ("remaining", "router", "subscriber", "unproven")

    def __init__(self, subscriber: bytes, router: str, remaining: set[int], *, unproven: bool) -> None:
        assert remaining or unproven
        self.unproven = unproven
        self.subscriber = subscriber
        self.router = router
        """The subscriber's custodian, who is told when the gate opens."""
        self.remaining = remaining
        """`n` of the gating records."""

    @property
    def first(self) -> int:
        """From which `n` on the gate holds back; `UNPROVEN` while the backlog is still to come."""
        assert self.unproven or self.remaining
        return UNPROVEN if self.unproven else min(self.remaining)
