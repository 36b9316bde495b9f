"""The mesh of a run on its ground, and the lives of its routers. A strike has to know which routers it can hit, so
`ChaosMesh` keeps the state of each router."""

import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum, auto
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import psutil
import trio
import yaml

from failover.chaos.carrier import Ground
from failover.chaos.links import Links
from failover.chaos.loopback import Loopback
from failover.chaos.power import cut_power
from failover.client.status import fetch_status
from router.cli.router import FULL_DISK
from router.entities.replicas import LEADER
from router.mesh.config import FILES, AddressRule, Topology
from router.mesh.launcher import ROUTER_COMMAND, Launcher, LaunchError
from router.mesh.quantities import Address
from router.mesh.rundir import RunDirectory
from router.mesh.shown.sets import shown_sets
from router.mesh.status import RouterView, look, unfinished
from router.mesh.topology import load
from router.queues.store import STORE, Sync
from router.security.operator import operator_of

LOOK_S: Final = 0.1


class Life(Enum):
    UP = auto()
    PAUSED = auto()
    DOWN = auto()
    BUSY = auto()
    """The router is being stopped or started."""


class ChaosMesh:
    """The mesh of a run. `tell` is called with each line that the user should see."""

    def __init__(
        self,
        topology: Topology,
        directory: RunDirectory,
        tell: Callable[[str], None],
        command: Sequence[str] = ROUTER_COMMAND,
        ground: Ground | None = None,
    ) -> None:
        """`ground` is the place where the mesh runs. The default is the loopback."""
        self.topology = topology
        self.directory = directory
        self._ground: Ground = ground or Loopback()
        options = () if topology.queues is None else ("--fillable-disk",)
        self.launcher = Launcher(directory, self._fetch, (*self._ground.guard, *command), self._ground.at, options)
        self.lives = dict.fromkeys(topology.routers, Life.DOWN)
        self.crashes = 0
        """How often a router of this mesh ended by itself."""
        self.links = Links()
        self._offsets = dict.fromkeys(topology.routers, 0.0)
        self._tell = tell

    @property
    def routers(self) -> list[str]:
        return list(self.lives)

    @property
    def addresses(self) -> dict[str, Address]:
        """Maps each router to the address to which its clients connect."""
        return {name: router.amqp for name, router in self.topology.routers.items()}

    def routers_in_state(self, *lives: Life) -> list[str]:
        return [name for name, life in self.lives.items() if life in lives]

    async def up(self, nursery: trio.Nursery, random: Random) -> None:
        """Start the mesh. The carriers of its links run in `nursery`."""
        self.topology, carriers = await self._ground.lay(self.topology, nursery, random)
        self.links.open(carriers, nursery, random)
        _write(self.topology, self.directory.topology_path)
        await self.launcher.up(load(self.directory.topology_path))
        self._are(self.routers, Life.UP)

    def _are(self, names: Collection[str], life: Life) -> None:
        self.lives.update(dict.fromkeys(names, life))

    # The methods from here on are faults of routers. Each returns when the fault has struck.

    async def kill(self, names: Collection[str]) -> None:
        self._are(names, Life.BUSY)
        await self.launcher.kill(names)
        self._are(names, Life.DOWN)

    def forget(self, names: Collection[str]) -> None:
        """Delete the state stores of these routers, as if their disks were lost. The routers have to be down."""
        for name in names:
            for path in self._folder(name).glob("state.db*"):
                path.unlink()

    def fill_disks(self, names: Collection[str]) -> None:
        """Let each write to these routers' stores of replica sets fail as on a full disk, until `empty_disks`."""
        for name in names:
            (self._folder(name) / FULL_DISK).touch()

    def empty_disks(self, names: Collection[str]) -> None:
        for name in names:
            (self._folder(name) / FULL_DISK).unlink(missing_ok=True)

    async def cut_power(self, names: Collection[str]) -> None:
        """Kill routers, and set the store of replica sets of each router back to its last sync."""
        await self.kill(names)
        assert self.topology.queues is not None
        sync = Sync(self.topology.queues.sync)
        for name in names:
            if await trio.to_thread.run_sync(cut_power, self._folder(name) / STORE, sync):
                self._tell(f"power-cut {name}: its store of replica sets has lost what was not on the disk")

    def _folder(self, name: str) -> Path:
        return self.directory.log_path(name).parent

    async def stop(self, names: Collection[str]) -> None:
        self._are(names, Life.BUSY)
        await self.launcher.stop(names)
        self._are(names, Life.DOWN)

    async def drain(self, name: str) -> None:
        self._are([name], Life.BUSY)
        await self.launcher.drain(name)
        self._are([name], Life.DOWN)

    def start(self, names: Collection[str]) -> None:
        """Start routers, without waiting until they are ready."""
        for name in names:
            try:
                self.launcher.begin([name], self._offsets[name])
                self.lives[name] = Life.UP
            except LaunchError as error:
                self.lives[name] = Life.DOWN
                self._tell(str(error))

    def set_clock(self, name: str, offset: float) -> None:
        """Make the router's clock wrong by this many seconds, from the router's next start on."""
        self._offsets[name] = offset

    def pause(self, names: Collection[str]) -> None:
        self._signal(names, signal.SIGSTOP, Life.PAUSED)

    def resume(self, names: Collection[str]) -> None:
        self._signal(names, signal.SIGCONT, Life.UP)

    def _signal(self, names: Collection[str], number: int, life: Life) -> None:
        processes = self.directory.running()
        for name in names:
            try:
                processes[name].send_signal(number)
                self.lives[name] = life
            except (KeyError, psutil.NoSuchProcess):
                # The process ended by itself, which `crashed` reports.
                pass

    def crashed(self) -> Iterator[tuple[str, str]]:
        """Yield each router that ended without an order, and the reason."""
        for name, reason in self.launcher.endings():
            if self.lives[name] in (Life.UP, Life.PAUSED):
                self.lives[name] = Life.DOWN
                self.crashes += 1
                yield name, reason

    async def look(self) -> dict[str, RouterView]:
        """Return the status of each router, as the routers report it."""
        return await look(self.directory, self._fetch)

    async def _fetch(self, host: str, port: int, timeout: float) -> dict[str, Any]:
        scheme, credentials = operator_of(self.directory)
        return await fetch_status(host, port, timeout, credentials, scheme)

    async def voters(self, name: str) -> list[str]:
        """Return the voters of a replica set, beginning with the leader. If no router that is up reports that it leads
        the set, return an empty list."""
        for one in shown_sets((await self.look()).values()):
            if one.name == name and one.best["role"] == LEADER and self.lives[one.by] is Life.UP:
                return sorted(one.best["voters"], key=lambda voter: voter != one.by)
        return []

    async def ready(self, name: str, patience: float) -> None:
        """Wait until the router's status shows that it is ready, but at most `patience` seconds."""
        with trio.move_on_after(patience):
            while unfinished(self.topology, await self.look(), [name]):
                await trio.sleep(LOOK_S)

    async def mend(self) -> None:
        """Heal all links, empty all disks, and start all routers that are down."""
        self.links.heal()
        self.empty_disks(self.routers)
        self.resume(self.routers_in_state(Life.PAUSED))
        await self.stop(self.routers_in_state(Life.BUSY))
        self.start(self.routers_in_state(Life.DOWN))

    async def down(self) -> None:
        if self.directory.exists():
            self.resume(self.routers_in_state(Life.PAUSED))
            self._are(self.routers, Life.BUSY)
            await self.launcher.stop(self.routers)


def _write(topology: Topology, path: Path) -> None:
    """Write the topology into a file that routers can read."""
    timing = {name: f"{seconds:.3f}s" for name, seconds in attrs.asdict(topology.timing).items()}
    limits = attrs.asdict(topology.limits)
    limits["opening"] = f"{topology.limits.opening:.3f}s"
    links = [{"between": [link.a, link.b], "cost": link.cost, "address": str(link.address)} for link in topology.links]
    plan = {
        "mesh": topology.mesh,
        "routers": {name: {"amqp": str(one.amqp), "inter": str(one.inter)} for name, one in topology.routers.items()},
        "links": links,
        "addresses": [_rule(rule) for rule in topology.addresses],
        "timing": timing,
        "limits": limits,
        "security": _security(topology),
    }
    if topology.queues is not None:
        queues = attrs.evolve(topology.queues, replicas=min(topology.queues.replicas, len(topology.routers)))
        plan["queues"] = attrs.asdict(queues, filter=lambda field, value: value is not None)
    path.write_text(yaml.safe_dump(plan, sort_keys=False))


def _rule(rule: AddressRule) -> dict[str, Any]:
    """A rule for addresses, as the topology's file has it."""
    said = {name: value for name, value in attrs.asdict(rule).items() if value is not None}
    return {name: f"{value:.6f}s" if isinstance(value, float) else value for name, value in said.items()}


def _security(topology: Topology) -> dict[str, Any]:
    """The part `security` of the topology's file. Each file that it names has its absolute path."""
    said = {name: value for name, value in attrs.asdict(topology.security).items() if value}
    base = topology.base.resolve()
    return {name: str(base / said[name]) if name in FILES else value for name, value in said.items()}
