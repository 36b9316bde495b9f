"""One run of a chaos script: a mesh, its clients under load, and the faults. At the end all faults are healed, and the
mesh has to deliver and forget every delivery.

The steps: `ChaosMesh.up` → subscribers, then publishers attach (`RunningClients`) → publishers begin, `Nemesis.run`
strikes as planned → `mend` → publishers finish → no router holds any delivery → subscribers finish → `ChaosMesh.down`.
However a run ends, it leaves no process. `view` shows the run; the audit gives the verdict.
"""

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import attrs
import trio

from failover.chaos.carrier import Ground
from failover.chaos.clients import NONE, RunningClients, make_clients
from failover.chaos.loopback import Loopback
from failover.chaos.mesh import ChaosMesh
from failover.chaos.nemesis import Nemesis
from failover.chaos.record import RunRecord
from failover.chaos.script.planner import plan
from failover.chaos.script.script import Role, Script
from failover.chaos.view import Board, View
from router.entities.replicas import LEADER
from router.mesh.errors import RunError
from router.mesh.launcher import ROUTER_COMMAND
from router.mesh.quantities import format_duration
from router.mesh.rundir import RunDirectory
from router.mesh.shown.sets import shown_queues, shown_sets
from router.mesh.shown.waits import waits
from router.mesh.status import RouterView, unfinished

SCRIPT = "chaos-script.yaml"
"""The name of the script's copy in the run directory. `prepare` lets a new run replace only a directory that has such a
copy."""
ATTACH_S = 30.0
LOOK_S = 1.0
END_S = 30.0
"""The seconds that a run waits for its end, beyond the time that routers and clients may take."""


@attrs.frozen
class Ending:
    """The result of a run of chaos, without the verdict of the audit."""

    counts: Mapping[str, int]
    """The counts of the clients' own accounts, summed over all clients (see `accounts`)."""
    crashes: int
    """How often a router or a client ended by itself."""
    unfinished: tuple[str, ...]
    """The parts of the run that were still incomplete when the run ended, a line each."""

    @property
    def clean(self) -> bool:
        return not self.crashes and not self.unfinished


def prepare(path: Path, script: Script) -> RunDirectory:
    """Make an empty run directory, and copy the script into it. Delete the files of an earlier run. Raises RunError if
    the directory has files of another program, or if a mesh runs in it; then nothing is deleted."""
    directory = RunDirectory(path)
    holds_the_script_itself = directory.path in script.path.resolve().parents
    directory.check_ours("a chaos run", () if holds_the_script_itself else (SCRIPT,))
    if (directory.path / SCRIPT).exists():
        directory.check_stopped()
        shutil.rmtree(directory.path)
    directory.make()
    shutil.copyfile(script.path, directory.path / SCRIPT)
    return directory


async def perform(
    script: Script,
    seed: int,
    directory: RunDirectory,
    view: View,
    command: Sequence[str] = ROUTER_COMMAND,
    ground: Ground | None = None,
    programs: Mapping[str, Sequence[str]] = NONE,
) -> Ending:
    """Run a script.

    `command` starts a router. `programs` start the clients of other projects (`make_clients`). `ground` is the place
    where the mesh runs; the default is the loopback.
    """
    chosen: Ground = ground or Loopback()
    with chosen.entered():
        return await _perform(script, seed, directory, view, command, chosen, programs)


async def _perform(
    script: Script,
    seed: int,
    directory: RunDirectory,
    view: View,
    command: Sequence[str],
    ground: Ground,
    programs: Mapping[str, Sequence[str]],
) -> Ending:
    mesh = ChaosMesh(script.topology, directory, view.tell, command, ground)
    try:
        async with trio.open_nursery() as links:
            view.phase("starting the mesh")
            await mesh.up(links, Random(f"{seed} links"))
            folder = directory.path / "clients"
            clients = make_clients(script, mesh.addresses, folder, view.tell, ground.namespace, programs)
            ending = await _Run(script, seed, mesh, clients, view).play()
            links.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await mesh.down()
    return ending


class _Run:
    """A run of a chaos script whose mesh is up."""

    def __init__(self, script: Script, seed: int, mesh: ChaosMesh, clients: RunningClients, view: View) -> None:
        self.script = script
        self.mesh = mesh
        self.clients = clients
        self.view = view
        self.nemesis = Nemesis(script, mesh, clients, view.tell)
        self.plan = plan(script, seed)
        self.record = RunRecord(mesh.directory.path, script, seed)
        self.board = Board(clients, self.nemesis)
        self.patience = script.topology.timing.terminus + script.topology.timing.boot_wait + END_S

    async def play(self) -> Ending:
        left: Sequence[str] = ()
        try:
            async with trio.open_nursery() as background:
                background.start_soon(self._watch)
                background.start_soon(self.view.run, self.board)
                async with trio.open_nursery() as processes:
                    left = await self._acts(processes)
                    processes.cancel_scope.cancel()
                background.cancel_scope.cancel()
        finally:
            self.record.end(self.nemesis.struck, self.clients, self.crashes, left)
        return Ending(self.record.totals, self.crashes, tuple(left))

    @property
    def crashes(self) -> int:
        return self.mesh.crashes + sum(member.crashes for member in self.clients.members.values())

    async def _acts(self, processes: trio.Nursery) -> Sequence[str]:
        self.view.phase("attaching the clients")
        for role in ("subscriber", "publisher"):
            await self._attach(role, processes)
        self.view.phase(f"{format_duration(self.script.duration)} of load and faults")
        for member in self.clients.of_role("publisher"):
            await member.begin()
        self.board.offered = self.script.offered
        await self.nemesis.run(self.plan)
        self.board.offered = 0.0
        self.view.phase("ending all faults, waiting until all messages are delivered")
        await self.nemesis.mend()
        return await self._end()

    async def _attach(self, role: Role, processes: trio.Nursery) -> None:
        with trio.move_on_after(ATTACH_S) as patience:
            async with trio.open_nursery() as attaching:
                for member in self.clients.of_role(role):
                    attaching.start_soon(processes.start, member.run)
        if patience.cancelled_caught:
            raise RunError(f"not all {role}s were attached after {format_duration(ATTACH_S)}")

    async def _end(self) -> Sequence[str]:
        """Wait until all messages are delivered, then let the subscribers finish. Return the parts of the run that stay
        incomplete, a line each."""
        for member in self.clients.of_role("publisher"):
            await member.finish()
        deadline = trio.current_time() + self.patience
        while (left := await self._left()) and trio.current_time() < deadline:
            await trio.sleep(LOOK_S)
        if left:
            self.view.tell(f"not finished after {format_duration(self.patience)}")
            return left
        await self._dismiss()
        return ()

    async def _dismiss(self) -> None:
        """Order all subscribers to finish, and wait for them."""
        with trio.move_on_after(ATTACH_S):
            for member in self.clients.of_role("subscriber"):
                await member.finish()
            while not all(member.finished for member in self.clients.members.values()):
                await trio.sleep(0.05)

    async def _left(self) -> list[str]:
        """Return a line for each part of the run that is incomplete: a router that is not ready or holds deliveries, a
        link that routers wait for, a publisher that waits for outcomes, a queue with messages, a replica set without a
        leader."""
        views = await self.mesh.look()
        found = [f"router {name} {lack}" for name, lack in unfinished(self.mesh.topology, views, views).items()]
        found += waits(views.values())
        for name, view in views.items():
            records = sum(view.status["records"].values()) if view.status else 0
            found += [f"router {name} holds {records} deliveries"] if records else []
        publishers = [member for member in self.clients.of_role("publisher") if not member.finished]
        found += [f"publisher {one.name} waits for outcomes at router {one.router}" for one in publishers]
        found += self._queued(views.values())
        self.board.waits = found
        return found

    def _queued(self, views: Collection[RouterView]) -> Iterator[str]:
        """Yield a line for each queue that has messages for subscribers of this run, and for each replica set without a
        leader."""
        sets = shown_sets(views)
        for one in sets:
            if one.best["queues"] and one.best["role"] != LEADER:
                yield f"no router leads replica set {one.name}"
        addresses = {member.client.address for member in self.clients.of_role("subscriber")}
        for _, row in shown_queues(views, sets)[0]:
            if row["messages"] and row["name"] in addresses:
                yield f"queue {row['name']} has {row['messages']} messages"

    async def _watch(self) -> None:
        """Show which links the routers wait for, and report each router that ends by itself."""
        while True:
            for name, reason in self.mesh.crashed():
                self.view.tell(f"router {name} ended by itself: {reason}")
            self.board.waits = list(waits((await self.mesh.look()).values()))
            await trio.sleep(LOOK_S)
