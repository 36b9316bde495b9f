"""A mesh whose routers are on hosts of their own: each router in a network namespace, with a wire for every link.

All clients and this process are in one more namespace, with a cable to each router; nothing is ever wrong with a cable.

    clients 10.99.0.1 ---- 10.99.0.2 router a 10.98.0.1 ==wire== 10.98.0.2 router b 10.99.0.6 ---- 10.99.0.5 clients

Nothing made here has a name outside this process. The kernel kills the routers if this process is killed, so a run
leaves nothing behind, however it ends. The namespace in which the command was started has no part in the mesh.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from ipaddress import IPv4Address
from random import Random
from typing import Final

import attrs
import trio

from failover.chaos.carrier import Carrier
from failover.chaos.hosts.namespace import Namespace
from failover.chaos.hosts.wire import Wire
from router.mesh.config import AMQP, INTER, LinkConfig, RouterConfig, Topology
from router.mesh.quantities import Address

TO_CLIENTS: Final = IPv4Address("10.99.0.0")
BETWEEN: Final = IPv4Address("10.98.0.0")
AMQP_PORT, INTER_PORT = 5672, 5772


class Hosts:
    """The hosts of the routers of one run."""

    guard: Final = ("setpriv", "--pdeathsig", "KILL")

    def __init__(self) -> None:
        self._open = ExitStack()
        self._clients: Namespace | None = None
        self._routers: dict[str, Namespace] = {}

    @property
    def namespace(self) -> str:
        assert self._clients is not None, "it is not entered"
        return self._clients.path

    @contextmanager
    def entered(self) -> Iterator[None]:
        """See `Ground.entered`. Raises NamespaceError."""
        with self._open:
            self._clients = self._new()
            with self._clients.entered():
                yield

    def at(self, router: str) -> AbstractContextManager[None]:
        return self._routers[router].entered()

    async def lay(
        self, topology: Topology, nursery: trio.Nursery, random: Random
    ) -> tuple[Topology, Mapping[tuple[str, str], Carrier]]:
        """See `Ground.lay`. Raises NamespaceError."""
        routers = {name: self._router(name, TO_CLIENTS + 4 * number) for number, name in enumerate(topology.routers)}
        links, carriers = [], {}
        for number, link in enumerate(topology.links):
            wire, address = self._wire(link, number, Random(random.random()))
            nursery.start_soon(wire.run)
            links.append(attrs.evolve(link, address=address))
            carriers[link.a, link.b] = wire
        return _opened(attrs.evolve(topology, routers=routers, links=tuple(links))), carriers

    def _new(self) -> Namespace:
        made = Namespace()
        self._open.callback(made.close)
        return made

    def _router(self, name: str, network: IPv4Address) -> RouterConfig:
        """Make the host of a router, and its cable to the clients."""
        assert self._clients is not None, "it is not entered"
        host = self._routers[name] = self._new()
        ours, theirs = network + 1, network + 2
        interface = f"to{len(self._routers)}"
        self._clients.configure(
            f"link add {interface} type veth peer name clients netns {host.path}",
            f"address add {ours}/30 dev {interface}",
            f"link set {interface} up",
        )
        host.configure(f"address add {theirs}/30 dev clients", "link set clients up")
        return RouterConfig(name, Address(str(theirs), AMQP_PORT), Address("0.0.0.0", INTER_PORT))

    def _wire(self, link: LinkConfig, number: int, random: Random) -> tuple[Wire, Address]:
        """Make the wire of a link. Return it, with the address that the router with the lower name dials."""
        network, interface = BETWEEN + 4 * number, f"wire{number}"
        addresses = {link.a: network + 1, link.b: network + 2}
        ends = tuple(self._routers[name].tunnel(interface) for name in addresses)
        try:
            for name, peer in ((link.a, link.b), (link.b, link.a)):
                address = f"address add {addresses[name]} peer {addresses[peer]} dev {interface}"
                self._routers[name].configure(address, f"link set {interface} up")
        except BaseException:
            for end in ends:
                os.close(end)
            raise
        return Wire((ends[0], ends[1]), random), Address(str(addresses[link.b]), INTER_PORT)


def _opened(topology: Topology) -> Topology:
    """Return the topology with its listeners open to everyone, except the listeners that are closed by its part
    `security`. Only clients of this run are in the clients' namespace, so an open listener is no risk."""
    security = topology.security
    closed = {AMQP: security.users is not None or security.tls, INTER: security.closes_mesh}
    opened = tuple(listener for listener, is_closed in closed.items() if not is_closed)
    return attrs.evolve(topology, security=attrs.evolve(security, open=tuple(sorted({*security.open, *opened}))))
