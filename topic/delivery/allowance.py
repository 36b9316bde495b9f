"""Bytes of messages that a router may hold for a connection, for a user, or in all. The connections of a user share the
user's allowance, and the users share the router's (protocol 5, Credit).

Up to one half of an allowance, credit follows the windows. Beyond it, each publisher has credit for `LEAST` bytes only.
This is not enough, because the size of a message is unknown until it comes. So beyond three quarters, a part that holds
more than its share is refused, and beyond the whole every part is.
"""

import sys
from typing import Final, Self

LEAST: Final = 16 << 10
"""Bytes for which each publisher has credit, whatever others hold."""


class Allowance:
    """The allowance of one connection, of one user, or of the router. Hot path: read and updated once a batch."""

    __slots__ = ("_most", "_of", "held", "limit", "peak", "sharers")

    def __init__(self, limit: str, most: int, of: Self | None = None) -> None:
        """`most`: bytes of this allowance, which is also limited by its share `of` another. `limit`: its name in the
        topology."""
        self.limit = limit
        self._most = most
        self._of = of
        self.held = 0
        self.sharers = 0
        """Number of its parts that hold any bytes."""
        self.peak = 0
        """Most bytes held since this field was last set."""

    def add(self, size: int) -> None:
        """Hold `size` bytes more; a negative `size` gives bytes back."""
        before, self.held = self.held, self.held + size
        if self.held > self.peak:
            self.peak = self.held
        if self._of is not None:
            self._of.sharers += bool(self.held) - bool(before)
            self._of.add(size)

    def close(self) -> None:
        """The owner is gone: give back all bytes."""
        if self._of is not None:
            self._of.sharers -= bool(self.held)
            self._of.add(-self.held)
            self._of = None

    @property
    def left(self) -> int:
        """Bytes for which there is credit; negative if the allowance is exceeded."""
        left = self._most // 2 - self.held
        return left if self._of is None else min(left, self._of.left)

    @property
    def refuses(self) -> str:
        """The name of the limit that forbids further messages; empty if none does."""
        if self.held >= self._most:
            return self.limit
        whole = self._of
        if whole is None:
            return ""
        if whole.held >= 3 * whole._most // 4 and self.held * whole.sharers >= whole._most:
            return whole.limit
        return whole.refuses


def unbounded() -> Allowance:
    """An allowance without a limit."""
    return Allowance("", sys.maxsize)
