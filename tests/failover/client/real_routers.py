"""Real routers in the test's own trio run. They cut the connections of their clients when a seed says so."""

import random
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import trio

from router.amqp.connection import Connection
from router.amqp.driven import DrivenConnection
from router.mesh.config import AMQP, INTER, Topology
from router.mesh.quantities import Address
from router.mesh.topology import load
from router.process import Process
from router.store import StateStore
from tests.hangs import HANGS_S

TOPOLOGIES = Path(__file__).parents[3] / "topologies"


class Router(Process):
    """A router that runs until it is cancelled. It reports every step to `mesh`."""

    mesh: "RealMesh"

    async def _until_told(self) -> None:
        await trio.sleep_forever()

    def pumped(self) -> None:
        super().pumped()
        self.mesh.step()

    async def drive(self, stream: trio.abc.Stream, connection: DrivenConnection, *arguments: Any, **hooks: Any) -> None:
        with trio.CancelScope() as scope:
            self.mesh.scopes[connection] = scope
            try:
                await super().drive(stream, connection, *arguments, **hooks)
            finally:
                del self.mesh.scopes[connection]


class RealMesh:
    def __init__(self, seed: int) -> None:
        self.urls: list[str] = []
        self.routers: list[Router] = []
        self.cuts = 0
        """The number of cuts that are still to come."""
        self.scopes: dict[object, trio.CancelScope] = {}
        self._random = random.Random(seed)
        self._until_cut = self._random.randrange(10, 40)
        self._steps = 0
        self._awaited: list[tuple[int, trio.Event]] = []

    async def emptied(self) -> None:
        """Wait until no router holds any delivery."""
        while any(router.node.topic.records.by_key for router in self.routers):
            await self.steps(1)

    async def steps(self, count: int) -> None:
        """Wait for this many more steps."""
        event = trio.Event()
        self._awaited.append((self._steps + count, event))
        await event.wait()

    def step(self) -> None:
        """Count a step. Perhaps cut a connection now, with the data under way in it."""
        self._steps += 1
        for due, event in self._awaited:
            if due <= self._steps:
                event.set()
        self._awaited = [entry for entry in self._awaited if entry[0] > self._steps]
        self._until_cut -= 1
        if self._until_cut <= 0 and self.cuts:
            attached = [
                connection
                for router in self.routers
                for connection in router.clients.connections
                if isinstance(connection, Connection) and connection.links
            ]
            if attached:
                self.cuts -= 1
                self._until_cut = self._random.randrange(1, 15)
                self.scopes[self._random.choice(attached)].cancel()

    def force_out(self) -> None:
        """Close the connections of all clients, with the error of a router that stops."""
        for router in self.routers:
            router.clients.close("amqp:connection:forced", "bye")
            router.node.pump()


@asynccontextmanager
async def real_routers(topology: str, *, seed: int = 0, **timing: float) -> AsyncIterator[RealMesh]:
    """The routers of a mesh of `topologies/`, in contact with each other."""
    mesh = RealMesh(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        plan = load(TOPOLOGIES / f"{topology}.yaml")
        sockets = {name: (_listener(stack), _listener(stack)) for name in plan.routers}
        addresses = {name: [Address(*one.getsockname()[:2]) for one in pair] for name, pair in sockets.items()}
        plan = _moved(plan, addresses, timing)
        for name in plan.routers:
            store = stack.enter_context(StateStore(folder / f"{name}.db", plan.mesh, name))
            router = Router(plan, name, folder / name, store)
            router.mesh = mesh
            mesh.routers.append(router)
            mesh.urls.append(f"amqp://{addresses[name][0]}")
        with trio.fail_after(HANGS_S):
            async with trio.open_nursery() as nursery:
                for router in mesh.routers:
                    amqp, inter = sockets[router.name]
                    nursery.start_soon(router.run, {AMQP: amqp, INTER: inter})
                while not all(len(router.node.topic.directory.contacts) + 1 == len(sockets) for router in mesh.routers):
                    await trio.sleep(0.01)
                yield mesh
                nursery.cancel_scope.cancel()


def _listener(stack: ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_server(("127.0.0.1", 0)))


def _moved(plan: Topology, addresses: dict[str, list[Address]], timing: dict[str, float]) -> Topology:
    routers = {
        name: attrs.evolve(router, amqp=addresses[name][0], inter=addresses[name][1])
        for name, router in plan.routers.items()
    }
    return attrs.evolve(plan, routers=routers, timing=attrs.evolve(plan.timing, **timing))
