"""A mesh on this machine's loopback, with a proxy in every link between routers. It needs no privileges.

Its ports are below the ports that the system gives to outgoing connections, so a killed router finds its port free when
it starts again.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Final

import attrs
import trio

from failover.chaos.carrier import Carrier
from failover.chaos.proxy import LinkProxy
from router.mesh.config import Topology
from router.mesh.launcher import LaunchError
from router.mesh.quantities import Address

HOST: Final = "127.0.0.1"
PORTS: Final = range(15000, 32000)


class Loopback:
    """The loopback as the ground of a run: all routers and clients are in the network namespace of this process."""

    guard: Final = ()
    namespace: Final = ""

    def entered(self) -> AbstractContextManager[None]:
        return nullcontext()

    def at(self, router: str) -> AbstractContextManager[None]:
        return nullcontext()

    async def lay(
        self, topology: Topology, nursery: trio.Nursery, random: Random
    ) -> tuple[Topology, Mapping[tuple[str, str], Carrier]]:
        free = free_ports()
        routers = {
            name: attrs.evolve(router, amqp=Address(HOST, next(free)), inter=Address(HOST, next(free)), advertise=None)
            for name, router in topology.routers.items()
        }
        links, carriers = [], {}
        for link in topology.links:
            target = routers[link.b].inter
            assert target is not None
            proxy = LinkProxy(_always(target), Random(random.random()))
            await nursery.start(proxy.run)
            links.append(attrs.evolve(link, address=proxy.address))
            carriers[link.a, link.b] = proxy
        return attrs.evolve(topology, routers=routers, links=tuple(links)), carriers


def _always(address: Address) -> Callable[[], Address]:
    return lambda: address


def free_ports() -> Iterator[int]:
    """Yield ports, each of which was free when it was tried."""
    # The run's own random generator is not used: other ports are free in each run, so it could not repeat the choice.
    random = Random()
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        yield port
    raise LaunchError(f"no free port from {PORTS.start} to {PORTS.stop}")
