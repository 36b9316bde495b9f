"""Decides which routers have too many links, how many of these move, where, and when.

Every router has the same directory, so all routers count the same links and compute the same moves. Each router carries
out only the moves of its own links. So the routers together send no more links to a router than it has room for. A
router ignores small differences, and moves few links at a time. It waits before it acts, because other routers may come
or go.

`routers_node` chooses the links that move.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

LITTLE: Final = 2
"""No link moves if one router has at most this many links more than another."""
AT_ONCE: Final = 10
"""The highest number of links that a router asks to move at a time."""


def moves(loads: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield (giver, taker) for each link that has to move. After these moves all routers have the same number of links,
    or differ by one. The router with the most links gives first, to the router with the fewest. If the loads are even
    enough, yields nothing."""
    fewest = min(loads.values(), default=0)
    if max(loads.values(), default=0) <= max(2 * fewest, fewest + LITTLE):
        return iter(())
    order = sorted(loads, key=lambda name: (-loads[name], name))
    share, rest = divmod(sum(loads.values()), len(loads))
    above = {name: loads[name] - share - (place < rest) for place, name in enumerate(order)}
    givers = (name for name in order for _ in range(above[name]))
    takers = (name for name in reversed(order) for _ in range(-above[name]))
    return zip(givers, takers, strict=True)


class Balance:
    """The moves of one router; its owner calls `takers` again and again."""

    def __init__(self, router: str, patience: float, now: float) -> None:
        """`patience`: the seconds for which the links have to be uneven before this router moves any. After it has
        asked clients to move, it waits for the same time before it asks more."""
        self._router = router
        self._patience = patience
        self._goal = -1
        """The number of links that this router will have when all clients that it has asked have moved; -1 if it has
        asked none."""
        self._due = now + patience

    def takers(self, loads: Mapping[str, int], now: float) -> list[str]:
        """The routers to which links are to move now, one for each link. `loads` is empty while the loads are not
        known."""
        takers = list(islice((taker for giver, taker in moves(loads) if giver == self._router), AT_ONCE))
        if not takers:
            self._goal = -1
        elif loads[self._router] > self._goal and now < self._due:
            return []
        else:
            self._goal = loads[self._router] - len(takers)
        self._due = now + self._patience
        return takers
