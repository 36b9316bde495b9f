"""Finds out whether the process of a neighbour out of contact is gone (protocol 8, Lost router).

A plain subscriber ends with its router. When the router is lost, homes wait for the subscriber for a grace, because the
router may only be paused or cut off. But if the router's machine refuses connections to the router's port, the process
is gone, and the homes need not wait. Only neighbours probe, because other routers may have no network path to the
machine. A neighbour reports a refusal to the other routers.

If the machine is gone, or the network is cut, no answer comes. Then homes wait for the whole grace.
"""

import errno
from collections.abc import Callable
from typing import Final

import trio

from linkstate.mesh import Mesh
from router.groups import leaves
from router.mesh.quantities import Address
from topic.node import Node

PAUSE_S: Final = 0.25
"""The seconds between two attempts."""
PATIENCE_S: Final = 1.0
"""After this many seconds, an attempt counts as unanswered."""


class Probes:
    """One router's attempts to connect to neighbours that it has lost."""

    def __init__(self, node: Node, mesh: Mesh, nursery: trio.Nursery, gone: Callable[[str], None]) -> None:
        """`gone`: called with the name of a neighbour whose process has ended."""
        self._node = node
        self._mesh = mesh
        self._nursery = nursery
        self._gone = gone

    def contact_lost(self, router: str) -> None:
        """Probe a router with which the contact is lost, if it is a neighbour."""
        if router in self._mesh.neighbours:
            self._nursery.start_soon(self._probe, router)

    async def _probe(self, router: str) -> None:
        while (address := self._where(router)) and self._node.waits_for(router):
            if await is_refused(Address.parse(address)):
                self._gone(router)
                return
            await trio.sleep(PAUSE_S)

    def _where(self, router: str) -> str:
        mesh = self._mesh
        return mesh.plan.address_of(router, mesh.name) if router in mesh.neighbours else ""


async def is_refused(address: Address) -> bool:
    """Whether the machine refuses connections to this address. False if this is not certain."""
    try:
        with trio.fail_after(PATIENCE_S):
            stream = await trio.open_tcp_stream(address.host, address.port)
    except trio.TooSlowError:
        return False
    except OSError as error:
        causes = [*leaves(error.__cause__ or error)]
        return all(isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED for cause in causes)
    await trio.aclose_forcefully(stream)
    return False
