"""Which routers have too many links, how many of these are to be asked to go where, and when.

Every router counts the same links, as the directory is the same everywhere, and comes to the same answer. So each of
them acts on its own part of it, and they do not all send links to one that has room for a few. Nothing is done for
little, nor at once, as routers come and go, nor for many links at a time.

Never here: whose links these are (`routers_node`).
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

LITTLE: Final = 2
"""Nobody moves for so many links that one router has more than another."""
AT_ONCE: Final = 10
"""So many links are asked to move at a time."""


def moves(loads: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """From which router to which other a link is to go, for each that is, until all have as many, give or take one;
    none if they are not uneven. Those with the most come first, and give to those with the fewest."""
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
    """Of one router, which is looked at again and again."""

    def __init__(self, router: str, patience: float, now: float) -> None:
        """`patience`: seconds for which links have to be uneven, and for which those that were asked may take to go."""
        self._router = router
        self._patience = patience
        self._goal = -1
        """How many links this router has when those that were asked to go have gone."""
        self._due = now + patience

    def takers(self, loads: Mapping[str, int], now: float) -> list[str]:
        """Where links are to be asked to go now, a router for each link. `loads` is empty while they are not known."""
        takers = list(islice((taker for giver, taker in moves(loads) if giver == self._router), AT_ONCE))
        if not takers:
            self._goal = -1
        elif loads[self._router] > self._goal and now < self._due:
            return []
        else:
            self._goal = loads[self._router] - len(takers)
        self._due = now + self._patience
        return takers
