"""Which routers have too many links, how many of these are to be asked to go where, and when.

Every router counts the same links, as the directory is the same everywhere, and comes to the same answer. So each of
them acts on its own part of it, and they do not all send links to one that has room for a few. Nothing is done for
little, nor at once, as routers come and go, nor for many links at a time.

Never here: whose links these are (`routers_node`).
"""

from collections.abc import Mapping
from typing import Final

LITTLE: Final = 2
"""Nobody moves for so many links that one router has more than another."""
AT_ONCE: Final = 10
"""So many links are asked to move at a time."""


def is_uneven(more: int, fewer: int) -> bool:
    return more > max(2 * fewer, fewer + LITTLE)


def moves(loads: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """From which router to which other how many links are to go until all have as many, give or take one; none if they
    are not uneven. Those with the most come first, and give to those with the fewest."""
    wanted: dict[tuple[str, str], int] = {}
    if not loads or not is_uneven(max(loads.values()), min(loads.values())):
        return wanted
    order = sorted(loads, key=lambda name: (-loads[name], name))
    share, rest = divmod(sum(loads.values()), len(loads))
    above = {name: loads[name] - share - (place < rest) for place, name in enumerate(order)}
    for giver in order:
        for taker in reversed(order):
            if (links := min(above[giver], -above[taker])) > 0:
                wanted[giver, taker] = links
                above[giver] -= links
                above[taker] += links
    return wanted


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
        parts = [(taker, links) for (giver, taker), links in moves(loads).items() if giver == self._router]
        takers = [taker for taker, links in parts for _ in range(links)][:AT_ONCE]
        if not takers:
            self._goal = -1
        elif loads[self._router] > self._goal and now < self._due:
            return []
        else:
            self._goal = loads[self._router] - len(takers)
        self._due = now + self._patience
        return takers
