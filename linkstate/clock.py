"""The hybrid logical clock (protocol 2, "epoch"): one integer, 48 bit of milliseconds and a 16 bit counter.

Every frame between routers carries its sender's clock and every receiver merges it, so a stamp taken
after a frame came in is higher than every stamp its sender had taken before. It never reads a clock of
the machine: the shell tells it the time with `advance`.
"""

COUNTER_BITS = 16
AHEAD = 1000 << COUNTER_BITS  # one second: what a state store reserves of the clock at a time
TRUST_MS = 3_600_000  # how far ahead of us a peer's clock may be before we take it to be broken
ECHO_MS = 10_000  # the same of what a client says that a router's clock was: it may be anybody


class HybridClock:
    """Never goes backwards; two stamps of one router are never equal."""

    def __init__(self, floor: int = 0) -> None:
        """Start no lower than `floor`, which is what a state store reserved for us (0 if there is none)."""
        assert floor >= 0
        self._value = floor
        self._wall_ms = 0
        self.refused = 0  # merges that were not believed, for status

    def advance(self, wall_ms: int) -> None:
        """Tell the time of day. A wall clock that was set back does not set us back."""
        self._wall_ms = wall_ms
        self._value = max(self._value, wall_ms << COUNTER_BITS)

    def stamp(self) -> int:
        """Take a value that is higher than everything stamped or merged before."""
        self._value += 1
        return self._value

    def merge(self, remote: int, trust_ms: int = TRUST_MS) -> None:
        """Learn a peer's clock, if it is no further ahead of us than that.

        One that is absurdly far ahead is counted and ignored: believing it once would push the clocks of the
        whole mesh there for good, since they never go back.
        """
        if remote <= self._value:
            return
        if not self.believes(remote >> COUNTER_BITS, trust_ms):
            self.refused += 1
            return
        self._value = remote

    def believes(self, wall_ms: int, trust_ms: int = TRUST_MS) -> bool:
        """Whether this may be the time of day somewhere, or have been: a peer's clock, or when a router was started."""
        return wall_ms <= self._wall_ms + trust_ms

    def read(self) -> int:
        """The current value, to put on frames."""
        return self._value
