"""The links of a run. All faults that are in force at a link together make its condition."""

import math
from collections.abc import Collection, Mapping
from random import Random

import trio

from failover.chaos.carrier import Carrier, Impairment


class Links:
    def __init__(self) -> None:
        self._ends: dict[str, tuple[str, str]] = {}
        self._carriers: dict[str, Carrier] = {}
        self._wrong: dict[str, dict[int, Impairment]] = {}
        """Maps each link to its faults. A fault is given by its number, and comes with its impairment."""
        self._changed: dict[str, trio.Event] = {}

    def open(self, carriers: Mapping[tuple[str, str], Carrier], nursery: trio.Nursery, random: Random) -> None:
        for ends, carrier in carriers.items():
            name = "-".join(ends)
            self._ends[name], self._carriers[name], self._wrong[name] = ends, carrier, {}
            self._changed[name] = trio.Event()
            nursery.start_soon(self._reset, name, Random(random.random()))

    @property
    def names(self) -> list[str]:
        return list(self._carriers)

    def of(self, routers: Collection[str]) -> tuple[str, ...]:
        """Return the links that have one of these routers at an end."""
        return tuple(name for name, ends in self._ends.items() if not {*ends}.isdisjoint(routers))

    def between(self, sides: Collection[Collection[str]]) -> tuple[str, ...]:
        """Return the links between routers that are not on the same side."""
        return tuple(name for name, (a, b) in self._ends.items() if not any(a in one and b in one for one in sides))

    def impair(self, fault: int, names: Collection[str], condition: Impairment) -> None:
        for name in names:
            self._wrong[name][fault] = condition
            self._apply(name)

    def mend(self, fault: int, names: Collection[str]) -> None:
        for name in names:
            self._wrong[name].pop(fault, None)
            self._apply(name)

    def heal(self) -> None:
        for name in self._carriers:
            self._wrong[name].clear()
            self._apply(name)

    def _condition(self, name: str) -> Impairment:
        found = Impairment()
        for condition in self._wrong[name].values():
            found |= condition
        return found

    def _apply(self, name: str) -> None:
        self._carriers[name].become(self._condition(name))
        self._changed[name].set()
        self._changed[name] = trio.Event()

    async def _reset(self, name: str, random: Random) -> None:
        """Reset the link's connections at random times. The times form a Poisson process."""
        while True:
            rate = self._condition(name).resets
            with trio.move_on_after(random.expovariate(rate) if rate else math.inf) as patience:
                await self._changed[name].wait()
            if patience.cancelled_caught:
                self._carriers[name].reset()
