"""The neighbours that a router dials: the plan's neighbours with higher names, each at its address (protocol 11)."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from linkstate.mesh import Mesh
from router.mesh.quantities import Address

GOODBYE_S: Final = 1.0
"""A router that is no longer a neighbour has this many seconds to take the last bytes."""
Dial = Callable[[str, Address], Awaitable[None]]


class Dials:
    """One task for each dialled neighbour, which keeps the connection."""

    def __init__(self, mesh: Mesh, nursery: trio.Nursery, dial: Dial) -> None:
        self._mesh = mesh
        self._nursery = nursery
        self._dial = dial
        self._scopes: dict[tuple[str, str], trio.CancelScope] = {}
        """The scopes of the tasks, keyed by neighbour and address."""

    def follow(self) -> None:
        """Dial the neighbours of the present plan, and drop the connections to the others."""
        wanted = set(self._mesh.plan.dialled_by(self._mesh.name).items())
        for target in self._scopes.keys() - wanted:
            self._scopes.pop(target).deadline = trio.current_time() + GOODBYE_S
        for target in sorted(wanted - self._scopes.keys()):
            scope = self._scopes[target] = trio.CancelScope()
            self._nursery.start_soon(self._keep, scope, *target)

    async def _keep(self, scope: trio.CancelScope, neighbour: str, address: str) -> None:
        with scope:
            await self._dial(neighbour, Address.parse(address))
