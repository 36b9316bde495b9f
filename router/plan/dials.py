"""The neighbours that a router dials: those of the plan with higher names, each at its address (protocol 11)."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from linkstate.mesh import Mesh
from router.mesh.quantities import Address

GOODBYE_S: Final = 1.0
"""For which a connection with who is no neighbour any more may still be written to."""
Dial = Callable[[str, Address], Awaitable[None]]


def dialled(mesh: Mesh) -> set[tuple[str, str]]:
    """The neighbours with higher names, and the host:port of each."""
    plan = mesh.plan
    higher = [name for name in mesh.neighbours if name > mesh.name]
    found = {(name, plan.links[mesh.name, name].address or plan.routers[name].inter) for name in higher}
    return {(name, address) for name, address in found if address}


class Dials:
    """Each a task that keeps a connection."""

    def __init__(self, mesh: Mesh, nursery: trio.Nursery, dial: Dial) -> None:
        self._mesh = mesh
        self._nursery = nursery
        self._dial = dial
        self._scopes: dict[tuple[str, str], trio.CancelScope] = {}
        """By neighbour and address."""

    def follow(self) -> None:
        """The plan may have changed."""
        wanted = dialled(self._mesh)
        for target in self._scopes.keys() - wanted:
            self._scopes.pop(target).deadline = trio.current_time() + GOODBYE_S
        for target in sorted(wanted - self._scopes.keys()):
            scope = self._scopes[target] = trio.CancelScope()
            self._nursery.start_soon(self._keep, scope, *target)

    async def _keep(self, scope: trio.CancelScope, neighbour: str, address: str) -> None:
        with scope:
            await self._dial(neighbour, Address.parse(address))
