"""Bytes of messages that somebody may have a router hold, of which those may share that it is made up of: a user's
connections, a router's users (protocol 5, Credit).

Up to a half it gives credit as windows have it. Beyond, what is still to come is held back: credit is given for the
least only. That cannot be all, as nobody knows the size of what has not come. So beyond three quarters who has more
than his share is refused, and beyond the whole everybody.
"""

import sys
from typing import Final, Self

LEAST: Final = 16 << 10
"""Bytes for which each publisher has credit, whatever others hold."""


class Allowance:
    """Of one connection, of one user, or of the router. Hot path: asked and told once a batch."""

    __slots__ = ("_most", "_of", "held", "limit", "peak", "sharers")

    def __init__(self, limit: str, most: int, of: Self | None = None) -> None:
        """So many bytes, and no more than is its share `of` another. `limit` is its name in the topology."""
        self.limit = limit
        self._most = most
        self._of = of
        self.held = 0
        self.sharers = 0
        """Those of its parts that hold something."""
        self.peak = 0
        """The most that was held since this was last set."""

    def add(self, size: int) -> None:
        """Something of `size` bytes is held from now on; of less than none, it is held no longer."""
        before, self.held = self.held, self.held + size
        if self.held > self.peak:
            self.peak = self.held
        if self._of is not None:
            self._of.sharers += bool(self.held) - bool(before)
            self._of.add(size)

    def close(self) -> None:
        """It is nobody's any more."""
        if self._of is not None:
            self._of.sharers -= bool(self.held)
            self._of.add(-self.held)
            self._of = None

    @property
    def left(self) -> int:
        """Bytes for which there is credit; less than none if it is exceeded."""
        left = self._most // 2 - self.held
        return left if self._of is None else min(left, self._of.left)

    @property
    def refuses(self) -> str:
        """The name of the limit for which no more is taken; empty if more is."""
        if self.held >= self._most:
            return self.limit
        whole = self._of
        if whole is None:
            return ""
        if whole.held >= 3 * whole._most // 4 and self.held * whole.sharers >= whole._most:
            return whole.limit
        return whole.refuses


def unbounded() -> Allowance:
    """Of whom nobody bounds."""
    return Allowance("", sys.maxsize)
