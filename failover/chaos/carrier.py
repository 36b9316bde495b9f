"""The interface between the faults on the links of a run and the network that carries the links.

`links` turns the faults on a link into its condition, an `Impairment`. A `Carrier` carries one link in this condition.
A `Ground` is the place where the mesh runs, with the carriers of its links. There are two grounds: `loopback` (all
routers on this machine's own addresses, a TCP proxy in each link) and `hosts` (a network namespace for each router, a
wire for packets between two interfaces).
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
    """The condition of a link."""

    silent: bool = False
    severed: bool = False
    latency: float = 0.0
    jitter: float = 0.0
    resets: float = 0.0
    """Resets of the link's connections, per second."""
    rate: float = math.inf
    """Bytes a second that the link carries."""
    loss: float = 0.0
    """The share of packets that get lost; a proxy loses none."""

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
        """Take on all of the condition at once."""

    def reset(self) -> None:
        """Reset all present connections."""


class Ground(Protocol):
    """The place where the mesh of a run stands."""

    @property
    def guard(self) -> Sequence[str]:
        """The beginning of the command that starts a router."""

    @property
    def namespace(self) -> str:
        """The path of the network namespace of the clients; empty if it is our own."""

    def entered(self) -> AbstractContextManager[None]:
        """Keep this thread in the clients' place within the context. All that was made for the run is gone at the
        end."""

    def at(self, router: str) -> AbstractContextManager[None]:
        """Keep this thread in the router's place within the context: the sockets that it makes and the processes that
        it starts are there."""

    async def lay(
        self, topology: Topology, nursery: trio.Nursery, random: Random
    ) -> tuple[Topology, Mapping[tuple[str, str], Carrier]]:
        """Return the topology with the addresses that it has here, and the carrier of each link, which runs in
        `nursery`."""
