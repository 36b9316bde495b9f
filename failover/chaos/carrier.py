"""The seam between what is done to the links of a run and what carries them: words become conditions of a link.

`links` says how bad each link is; a `Ground` says where the mesh stands and what carries its links. There are two:
`loopback` (all routers on this machine's own addresses, a TCP proxy in each link) and `hosts` (a network namespace for
each router, a wire for packets between two interfaces).
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Protocol

import attrs
import trio

from router.mesh.config import Topology


@attrs.frozen
class Impairment:
    """What is wrong with a link."""

    silent: bool = False
    severed: bool = False
    latency: float = 0.0
    jitter: float = 0.0
    resets: float = 0.0
    """Of its connections, per second."""
    rate: float = math.inf
    """Bytes a second that get through."""
    loss: float = 0.0
    """The share of its packets that do not come; proxies have none."""

    def __or__(self, other: "Impairment") -> "Impairment":
        return Impairment(
            self.silent or other.silent,
            self.severed or other.severed,
            self.latency + other.latency,
            self.jitter + other.jitter,
            self.resets + other.resets,
            min(self.rate, other.rate),
            1 - (1 - self.loss) * (1 - other.loss),
        )


class Carrier(Protocol):
    """Carries one link between two routers."""

    def become(self, condition: Impairment) -> None:
        """All at once."""

    def reset(self) -> None:
        """The connections that there are."""


class Ground(Protocol):
    """Where the mesh of a run stands."""

    @property
    def guard(self) -> Sequence[str]:
        """What a router is started through: the beginning of its command."""

    @property
    def namespace(self) -> str:
        """The path of the network namespace in which its clients are, empty if it is our own."""

    def entered(self) -> AbstractContextManager[None]:
        """While this thread is where clients are. Whatever was made for it is gone at the end."""

    def at(self, router: str) -> AbstractContextManager[None]:
        """While this thread is where the router is: sockets that it makes and processes that it starts are there."""

    async def lay(
        self, topology: Topology, nursery: trio.Nursery, random: Random
    ) -> tuple[Topology, Mapping[tuple[str, str], Carrier]]:
        """The topology at the addresses that it has here, and what carries each link, in `nursery`."""
