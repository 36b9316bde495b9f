"""Limits the bytes of messages that a router holds for one connection, for one user, and in all. The connections of a
user share the user's allowance, and the users share the router's (protocol 5, Credit).

An allowance has three thresholds. While up to half of it is held, publishers get as much credit as their windows allow.
Beyond half, each publisher gets credit for `LEAST` bytes only. This alone does not bound memory, because a router
learns the size of a message only when the message comes. So beyond three quarters, the router refuses messages from
each connection (or user) that holds more than an equal share. Beyond the whole, it refuses messages from all of them.
"""

import sys
from typing import Final, Self

LEAST: Final = 16 << 10
"""Each publisher has credit for this many bytes, however much the other publishers hold."""


class Allowance:
    """The allowance of one connection, of one user, or of the router. It is read and updated once for each batch of
    transfers, so it has to be fast."""

    __slots__ = ("_most", "_of", "held", "limit", "peak", "sharers")

    def __init__(self, limit: str, most: int, of: Self | None = None) -> None:
        """`most`: the highest number of bytes that this allowance permits. `of`: the allowance that this one is a part
        of, and shares with other parts; None for the router's own. `limit`: the name of the setting in the topology
        file, for error texts."""
        self.limit = limit
        self._most = most
        self._of = of
        self.held = 0
        self.sharers = 0
        """The number of parts of this allowance (users or connections) that hold any bytes."""
        self.peak = 0
        """The highest number of held bytes since a caller last reset this field."""

    def add(self, size: int) -> None:
        """Count `size` more bytes as held; a negative `size` gives bytes back."""
        before, self.held = self.held, self.held + size
        if self.held > self.peak:
            self.peak = self.held
        if self._of is not None:
            self._of.sharers += bool(self.held) - bool(before)
            self._of.add(size)

    def close(self) -> None:
        """Give back all bytes that are held, because the connection or user of this allowance is gone."""
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
