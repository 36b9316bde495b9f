"""The links of a run, a proxy in each: how bad each is follows from all that is wrong with it at the same time."""

import math
from collections.abc import Callable, Collection
from random import Random

import trio

from failover.chaos.proxy import Impairment, LinkProxy
from router.mesh.config import Topology
from router.mesh.quantities import Address


class Links:
    def __init__(self) -> None:
        self._ends: dict[str, tuple[str, str]] = {}
        self._proxies: dict[str, LinkProxy] = {}
        self._wrong: dict[str, dict[int, Impairment]] = {}
        """Link -> fault -> what that does to it."""
        self._changed: dict[str, trio.Event] = {}

    async def open(self, topology: Topology, nursery: trio.Nursery, random: Random) -> None:
        for link in topology.links:
            name, target = f"{link.a}-{link.b}", topology.routers[link.b].inter
            assert target is not None
            proxy = LinkProxy(_always(target), Random(random.random()))
            await nursery.start(proxy.run)
            self._ends[name], self._proxies[name], self._wrong[name] = (link.a, link.b), proxy, {}
            self._changed[name] = trio.Event()
            nursery.start_soon(self._reset, name, Random(random.random()))

    @property
    def names(self) -> list[str]:
        return list(self._proxies)

    @property
    def addresses(self) -> dict[tuple[str, str], Address]:
        """Where the lower name is to dial."""
        return {ends: self._proxies[name].address for name, ends in self._ends.items()}

    def of(self, routers: Collection[str]) -> tuple[str, ...]:
        """All links of these routers."""
        return tuple(name for name, ends in self._ends.items() if not {*ends}.isdisjoint(routers))

    def between(self, sides: Collection[Collection[str]]) -> tuple[str, ...]:
        """Those that join two sides."""
        return tuple(name for name, (a, b) in self._ends.items() if not any(a in one and b in one for one in sides))

    def spoil(self, fault: int, names: Collection[str], condition: Impairment) -> None:
        for name in names:
            self._wrong[name][fault] = condition
            self._apply(name)

    def mend(self, fault: int, names: Collection[str]) -> None:
        for name in names:
            self._wrong[name].pop(fault, None)
            self._apply(name)

    def heal(self) -> None:
        for name in self._proxies:
            self._wrong[name].clear()
            self._apply(name)

    def _condition(self, name: str) -> Impairment:
        found = Impairment()
        for condition in self._wrong[name].values():
            found |= condition
        return found

    def _apply(self, name: str) -> None:
        self._proxies[name].become(self._condition(name))
        self._changed[name].set()
        self._changed[name] = trio.Event()

    async def _reset(self, name: str, random: Random) -> None:
        """A flaky link's connections, as a Poisson process."""
        while True:
            rate = self._condition(name).resets
            with trio.move_on_after(random.expovariate(rate) if rate else math.inf) as patience:
                await self._changed[name].wait()
            if patience.cancelled_caught:
                self._proxies[name].reset()


def _always(address: Address) -> Callable[[], Address]:
    return lambda: address
