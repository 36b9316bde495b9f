"""A mesh of real router processes on free ports, all of which certainly end.

Each mesh has a loopback address of its own. So no other process takes the port of a stopped router before it starts
again.

No wait is a fixed sleep: `eventually` checks a condition again and again until a deadline.
"""

import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
import yaml

from failover.cli.fetch import fetcher
from router.mesh.errors import FileError
from router.mesh.launcher import ROUTER_COMMAND, Launcher
from router.mesh.quantities import Address
from router.mesh.rundir import RunDirectory
from router.mesh.topology import load
from tests.hangs import HANGS_S
from tests.processes.clients import fetch_status

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
PATIENCE_S = HANGS_S
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.1
PATIENT = {"idle": "30s"}  # the many clients share one process, which may not get the processor for seconds


async def eventually(probe: Callable[[], Awaitable[bool]], timeout: float = PATIENCE_S) -> None:
    """Wait until `probe` is true, for a condition that no event announces. A probe may ask every router for its status,
    so the pauses grow while this waits."""
    pause = SHORTEST_PAUSE_S
    with trio.fail_after(timeout):
        while not await probe():
            await trio.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE_S)


class RunningMesh:
    """The routers of a topology in `topologies/`."""

    def __init__(
        self,
        topology: str,
        directory: Path,
        timing: Mapping[str, str],
        command: Sequence[str] = ROUTER_COMMAND,
        security: Mapping[str, str] | None = None,
        limits: Mapping[str, int | str] | None = None,
        *,
        host: str = "",
        http: bool = False,
        mqtt: bool = False,
        websocket: bool = False,
        queues: Mapping[str, Any] | None = None,
    ) -> None:
        self.host = host or "127.{}.{}.{}".format(*(random.randint(1, 254) for _ in range(3)))
        self.plan = directory / f"{topology}.yaml"
        plan = yaml.safe_load((TOPOLOGIES / self.plan.name).read_text())
        for router in plan["routers"].values():
            router["amqp"] = f"{self.host}:0"
            router.pop("inter", None)
            if http:
                router["http"] = f"{self.host}:0"
            if mqtt:
                router["mqtt"] = f"{self.host}:0"
            if websocket:
                router |= {"amqp-ws": f"{self.host}:0", "mqtt-ws": f"{self.host}:0"}
        plan.setdefault("timing", {}).update(PATIENT | dict(timing))
        if security is not None:
            plan["security"] = dict(security)
        plan.setdefault("limits", {}).update(limits or {})
        if queues is not None:
            plan["queues"] = dict(queues)
        self.plan.write_text(yaml.safe_dump(plan))
        self.name = topology
        self.directory = RunDirectory(directory / "run")
        self._fetch = fetch_status if security is None else fetcher(self.directory)
        self._launcher = Launcher(self.directory, self._fetch, command)
        self._endings: dict[str, str] = {}
        self._addresses: dict[str, Address] = {}

    def use(self, command: Sequence[str]) -> None:
        """Use this command for routers instead of our own."""
        self._launcher = Launcher(self.directory, self._fetch, command)

    async def up(self) -> None:
        await self._launcher.up(load(self.plan))
        routers = self.directory.topology().routers
        self._addresses = {name: router.amqp for name, router in routers.items()}

    async def apply(self, routers: str, links: list[object], forced: Collection[str] = ()) -> None:
        """Change the mesh to these routers, by their letters, and these links."""
        plan = yaml.safe_load(self.plan.read_text())
        entries = self.directory.read().routers
        amqp = {name: entries[name].amqp if name in entries else f"{self.host}:0" for name in routers}
        plan |= {"routers": {name: {"amqp": address} for name, address in amqp.items()}, "links": links}
        self.plan.write_text(yaml.safe_dump(plan))
        try:
            await self._launcher.apply(load(self.plan), forced)
        finally:
            known = self.directory.topology().routers
            self._addresses = {name: known[name].amqp for name in routers}

    def removed(self, router: str) -> None:
        """Note that a command has removed the router from the mesh."""
        del self._addresses[router]

    @property
    def routers(self) -> list[str]:
        return list(self._addresses)

    def address(self, router: str) -> Address:
        """The address for clients."""
        return self._addresses[router]

    def inter(self, router: str) -> Address:
        """The address for neighbours."""
        return Address.parse(self.directory.read().routers[router].inter)

    def http(self, router: str) -> Address:
        """The address for browsers and monitors."""
        return Address.parse(self.directory.read().routers[router].http)

    def mqtt(self, router: str) -> Address:
        """The address for MQTT clients."""
        return Address.parse(self.directory.read().routers[router].mqtt)

    def listener(self, router: str, name: str) -> Address:
        """The address of the router's listener of this name."""
        return Address.parse(self.directory.read().routers[router].listeners[name])

    def pid(self, router: str) -> int:
        pid = self.directory.read().routers[router].pid
        assert pid is not None
        return pid

    def log(self, router: str) -> str:
        return self.directory.log_path(router).read_text()

    async def status(self, router: str) -> dict[str, Any]:
        address = self.address(router)
        return await self._fetch(address.host, address.port, PATIENCE_S)

    def signal(self, router: str, number: signal.Signals) -> None:
        os.kill(self.pid(router), number)

    async def stop(self, *routers: str) -> dict[str, str]:
        return await self._launcher.stop(routers)

    async def drain(self, router: str) -> str:
        return await self._launcher.drain(router)

    def begin(self, router: str) -> None:
        """Start the router, without waiting until it is up."""
        self._launcher.begin([router])

    async def start(self, *routers: str) -> None:
        await self._launcher.start(routers)

    async def ending(self, router: str) -> str:
        """How a router ended that `stop` did not stop."""

        async def ended() -> bool:
            self._endings.update(self._launcher.endings())
            return router in self._endings

        await eventually(ended)
        return self._endings.pop(router).splitlines()[0]

    def processes(self) -> list[psutil.Process]:
        """Every process of this run directory: those below ours, and routers that a command has started and left."""
        found = psutil.Process().children(recursive=True)
        with contextlib.suppress(FileError):  # there is no record any more
            found += [process for process in self.directory.running().values() if process not in found]
        return [process for process in found if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return str(self.directory.path) in process.cmdline()
        return False

    async def forgets(self) -> None:
        """Wait until no router has a trace of clients or their deliveries, once all clients are gone: nothing leaks."""
        left: dict[str, list[Any]] = {}

        async def empty() -> bool:
            reports = {router: await self.status(router) for router in self.routers}
            left.update({name: [r["publishers"], r["subscribers"], r["records"]] for name, r in reports.items()})
            return not any(r["publishers"] or r["subscribers"] or any(r["records"].values()) for r in reports.values())

        try:
            await eventually(empty)
        except trio.TooSlowError:
            pytest.fail(f"not forgotten: {left}")

    def end(self) -> None:
        """End all processes of this mesh."""
        left = self.processes()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=HANGS_S)
        dict(self._launcher.endings())
        assert self.processes() == []

    def tell(self) -> None:
        """Print the routers' logs, for the report of a failed test."""
        for router in self._addresses:
            print(f"--- router {router} of {self.name}", self.log(router), sep="\n")

    def crashes(self) -> list[str]:
        """Routers with a traceback in their log."""
        return [router for router in self._addresses if "Traceback" in self.log(router)]


@contextlib.contextmanager
def running(
    topology: str,
    directory: Path,
    command: Sequence[str] = ROUTER_COMMAND,
    security: Mapping[str, str] | None = None,
    limits: Mapping[str, int | str] | None = None,
    *,
    host: str = "",
    http: bool = False,
    mqtt: bool = False,
    websocket: bool = False,
    queues: Mapping[str, Any] | None = None,
    **timing: str,
) -> Iterator[RunningMesh]:
    """A mesh for a fixture. The files that `security` names are in the directory."""
    parts = (command, security, limits)
    mesh = RunningMesh(
        topology, directory, timing, *parts, host=host, http=http, mqtt=mqtt, websocket=websocket, queues=queues
    )
    try:
        trio.run(mesh.up)
        yield mesh
        trio.run(mesh.forgets)
        assert mesh.crashes() == []
    finally:
        mesh.end()
        mesh.tell()
