"""The gates that hold newer deliveries of a publisher back from a subscriber, as the home knows them (protocol 6.5,
6.6).

`topic.home.audiences` sets and opens them. The deliveries behind a gate wait at the subscriber's custodian
(`topic.edge.subscriber`). When the publisher attaches anew, all its gates fall (`topic.termini.generations`).
"""

UNPROVEN = -1
"""In place of the first gated `n`: every delivery is held back, and the home may still forward a backlog."""
UNBOUNDED = 1 << 63
"""In place of the first gated `n`: no delivery is held back. Higher than any `n`."""


class Gate:
    """Holds newer deliveries of a publisher back from a subscriber while older ones, not its own, are unsettled (6.5),
    or until the publisher has given a sign of life (6.6)."""

    __slots__ = ("remaining", "router", "subscriber", "unproven")

    def __init__(self, subscriber: bytes, router: str, remaining: set[int], *, unproven: bool) -> None:
        assert remaining or unproven
        self.unproven = unproven
        self.subscriber = subscriber
        self.router = router
        """The subscriber's custodian, which the home informs when the gate opens."""
        self.remaining = remaining
        """`n` of the gating records."""

    @property
    def first(self) -> int:
        """The first `n` that the gate holds back; `UNPROVEN` while the backlog has not been forwarded."""
        assert self.unproven or self.remaining
        return UNPROVEN if self.unproven else min(self.remaining)
