"""The hybrid logical clock (protocol 2, "epoch"): one integer, 48 bit of milliseconds and a 16 bit counter.

Every frame between routers carries its sender's clock and every receiver merges it, so a stamp that a router takes
after it has received a frame is higher than every stamp that the sender took before. This module never reads a clock of
the machine: the shell sets the time with `advance`.
"""

COUNTER_BITS = 16
AHEAD = 1000 << COUNTER_BITS  # one second; a state store reserves clock values in steps of this size
TRUST_MS = 3_600_000  # a clock that is more than this many milliseconds ahead of this router's clock counts as broken
ECHO_MS = 10_000  # the same limit for clocks that clients echo; it is lower, as a client may send any number


class HybridClock:
    """A hybrid clock. It never goes backwards, and two stamps of one router are never equal."""

    def __init__(self, floor: int = 0) -> None:
        """`floor`: the lowest value that the clock may have, because an earlier process may have used all lower ones; 0
        if the router has no state store."""
        assert floor >= 0
        self._value = floor
        self._wall_ms = 0
        self.refused = 0  # how many clocks `merge` has ignored; shown in the status

    def advance(self, wall_ms: int) -> None:
        """Set the time of day. If the wall clock was set back, this clock stays where it is."""
        self._wall_ms = wall_ms
        self._value = max(self._value, wall_ms << COUNTER_BITS)

    def stamp(self) -> int:
        """Returns a value that is higher than all values that were stamped or merged before."""
        self._value += 1
        return self._value

    def merge(self, remote: int, trust_ms: int = TRUST_MS) -> None:
        """Take over another router's clock, unless it is more than `trust_ms` ahead of the time of day.

        A clock that is further ahead is counted and ignored. If this router took it over once, the clocks of the whole
        mesh would stay there for good, because they never go back.
        """
        if remote <= self._value:
            return
        if not self.believes(remote >> COUNTER_BITS, trust_ms):
            self.refused += 1
            return
        self._value = remote

    def believes(self, wall_ms: int, trust_ms: int = TRUST_MS) -> bool:
        """Whether the time of day `wall_ms` is at most `trust_ms` ahead of the time of day of this router."""
        return wall_ms <= self._wall_ms + trust_ms

    def read(self) -> int:
        """The present value of the clock, which frames carry."""
        return self._value
