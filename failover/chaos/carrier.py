"""The interface between the faults on the links of a run and the network that carries the links.

`links` turns the faults on a link into its condition, an `Impairment`. A `Carrier` carries one link in this condition.
A `Ground` is the place where the mesh runs, with the carriers of its links. There are two grounds. In `loopback`, all
routers are on this machine's own addresses, and each link goes through a TCP proxy. In `hosts`, each router has a
network namespace, and a wire carries the packets of a link between two interfaces.
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
    """The condition of a link: all that is wrong with it at present."""

    silent: bool = False
    severed: bool = False
    latency: float = 0.0
    jitter: float = 0.0
    resets: float = 0.0
    """How often per second the link's connections are reset."""
    rate: float = math.inf
    """The number of bytes that the link carries per second."""
    loss: float = 0.0
    """The share of packets that get lost. A proxy carries bytes and not packets, so it loses none."""

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
    """Carries the traffic of one link between two routers."""

    def become(self, condition: Impairment) -> None:
        """Put the link into this condition. All parts of the condition begin at the same time."""

    def reset(self) -> None:
        """Reset all connections that the link has at present."""


class Ground(Protocol):
    """The place where the mesh of a run is, such as the loopback of this machine."""

    @property
    def guard(self) -> Sequence[str]:
        """The first words of each command that starts a router at this place; the command of the router follows
        them."""

    @property
    def namespace(self) -> str:
        """The path of the clients' network namespace. It is empty if the clients are in the namespace of this
        process."""

    def entered(self) -> AbstractContextManager[None]:
        """While the context lasts, keep this thread in the clients' network namespace. The end of the context removes
        all that the ground has made for the run."""

    def at(self, router: str) -> AbstractContextManager[None]:
        """While the context lasts, keep this thread in the router's network namespace. The sockets that the thread
        makes, and the processes that it starts, are in this namespace, too."""

    async def lay(
        self, topology: Topology, nursery: trio.Nursery, random: Random
    ) -> tuple[Topology, Mapping[tuple[str, str], Carrier]]:
        """Return the topology with the addresses that the routers have at this place, and for each link its carrier.
        The carriers run in `nursery`."""
