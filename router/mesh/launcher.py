"""Starts and stops the processes of a mesh.

A start has this order: bind every listener; write mesh.json; start one process for each router, which inherits its
listeners; wait until each router sees all others. Both the launcher and each router write the router's process id into
mesh.json, because the launcher may be killed before it writes the id.

If a start fails, the error names the router and the reason, and the launcher stops all routers that it has started. But
if all routers run, and some are only not connected or do not answer yet, the launcher leaves all of them running
(`HalfUpError`).

The launcher recognises a router by its command line:

    COMMAND NAME TOPOLOGY --run-dir DIR --fd amqp N --fd inter M [--fd mqtt-ws L …]

To stop a router, the launcher sends it a signal (see `stopping`). A router that does not end in time gets SIGKILL, and
the launcher reports this.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

import attrs
import psutil
import trio

from router.mesh.config import Topology
from router.mesh.errors import FileError, RunError
from router.mesh.listeners import ListenError, Listeners, bound_address, listen
from router.mesh.quantities import Address, format_duration
from router.mesh.reading import expected
from router.mesh.rundir import MeshRecord, RouterEntry, RunDirectory, router_entry
from router.mesh.signals import APPLY, DRAIN, DRAIN_S, STOP, STOP_ALL, STOP_S
from router.mesh.status import FetchStatus, look, planned, rest, unapplied, unfinished

# The option -P makes Python load our module `router`, whatever the working directory holds.
ROUTER_COMMAND = (sys.executable, "-P", "-m", "router")

START_S = 30.0
APPLY_S = 20.0
LOOK_EVERY_S = 0.05


class LaunchError(RunError):
    """The launcher could not start a mesh or a router; the text has the reason."""


class HalfUpError(LaunchError):
    """All routers were started and run, but some are not connected or do not answer. The text says what each of these
    routers lacks."""


@attrs.define
class _Child:
    process: subprocess.Popen[bytes]
    log: Path
    log_start: int
    """The position in the log at which this run's lines begin."""


def _here(_: str) -> AbstractContextManager[None]:
    return nullcontext()


class Launcher:
    """Starts and stops routers of one run directory. Keeps the processes that it has started itself."""

    def __init__(
        self,
        directory: RunDirectory,
        fetch: FetchStatus,
        command: Sequence[str] = ROUTER_COMMAND,
        at: Callable[[str], AbstractContextManager[None]] = _here,
        options: Sequence[str] = (),
    ):
        """`at`: a context manager that runs its block in the environment of a router, such as its network namespace.
        `options`: further arguments for the command of each router."""
        self.directory = directory
        self.fetch = fetch
        self.command = command
        self._at = at
        self._options = options
        self._children: dict[str, _Child] = {}

    async def up(self, topology: Topology) -> None:
        """Start all routers of `topology` in the run directory, which keeps the state of earlier runs."""
        with self.directory.starting(whole=True), ExitStack() as stack:
            self.directory.check_stopped()
            self.directory.check_mesh(topology)
            listeners = self._listen(stack, topology)
            self._write_record(topology, listeners)
            await self._launch(listeners, how="--whole")

    async def start(self, names: Collection[str]) -> None:
        """Start routers of a mesh that ran before, at their former addresses, which neighbours and clients know."""
        self._check_names(names)
        with self.directory.starting(whole=False), ExitStack() as stack:
            topology = self.directory.topology()
            for name in names:
                self.directory.check_idle(name)
            chosen = {name: topology.routers[name] for name in names}
            await self._launch(self._listen(stack, attrs.evolve(topology, routers=chosen)))

    async def join(self, name: str, topology: Topology, listed: AbstractAsyncContextManager[None]) -> None:
        """Start one router of `topology`, whose other routers run on other hosts. `listed`: a context manager that,
        when it is entered, adds the router to the plan of the mesh. It raises RunError if the mesh refuses the
        router."""
        own = attrs.evolve(topology, routers={name: topology.routers[name]})
        with self.directory.starting(whole=True), ExitStack() as stack:
            self.directory.check_mesh(topology)
            listeners = self._listen(stack, own)
            async with listed:
                self.directory.enter(name, topology, self._entries(own, listeners)[name])
                await self._launch(listeners, how="--join")

    async def apply(self, topology: Topology, forced: Collection[str] = ()) -> None:
        """Change the running mesh to match `topology`. Start new routers. Removed routers send their clients to other
        routers and then end; the removed routers in `forced` end at once. This launcher sends a signal to one running
        router, which spreads the plan to all others, on any host. Returns when all routers have the same plan."""
        with self.directory.starting(whole=True), ExitStack() as stack:
            self.directory.check_mesh(topology)
            asked = next(iter(self.directory.running().values()), None)
            if asked is None:
                raise LaunchError(f"{self.directory.path}: no router is running here, start the mesh with oncemesh up")
            members = planned(await look(self.directory, self.fetch))
            if not members:
                raise LaunchError(
                    f"{self.directory.path}: no router here answers, so the other routers of the mesh are not known"
                )
            # mesh.json may lack some routers, because an `apply` may have ended half-way.
            known = {*members, *self.directory.running()}
            fresh = {name: router for name, router in topology.routers.items() if name not in known}
            listeners = self._listen(stack, attrs.evolve(topology, routers=fresh))
            self.directory.keep(topology)
            with self.directory.edit() as record:
                for name in fresh:
                    # Perhaps a process of an earlier start of this router has begun to run meanwhile.
                    self.directory.check_idle(name)
                record.forced = sorted(forced)
                record.base = str(topology.base.resolve())
                record.routers |= self._entries(attrs.evolve(topology, routers=fresh), listeners)
            _signal(asked, APPLY)
            for name, sockets in listeners.items():
                self._spawn(name, sockets, how="--join")
            self._record_pids(listeners)
            await self._wait_until_applied(topology)
            with self.directory.edit() as record:
                record.routers = {name: entry for name, entry in record.routers.items() if name in topology.routers}

    async def _wait_until_applied(self, topology: Topology) -> None:
        lacking: dict[str, str] = {}
        started = trio.current_time()
        with trio.move_on_after(APPLY_S):
            while True:
                began, running = trio.current_time(), self.directory.running()
                lacking = unapplied(topology, await look(self.directory, self.fetch), running)
                if not lacking:
                    return
                await rest(began, started)
        lacks = "; ".join(f"router {name} {lack}" for name, lack in lacking.items())
        raise HalfUpError(
            f"the change was sent, but some routers have not applied it after {format_duration(APPLY_S)}: "
            f"{lacks or 'no answer'}"
        )

    def begin(self, names: Collection[str], clock_offset: float = 0.0) -> None:
        """Start routers as `start` does, but do not wait until the routers are up: the caller may have caused a fault
        that keeps them from coming up."""
        self._check_names(names)
        with self.directory.starting(whole=False), ExitStack() as stack:
            topology = self.directory.topology()
            chosen = {name: topology.routers[name] for name in names}
            for name, sockets in self._listen(stack, attrs.evolve(topology, routers=chosen)).items():
                self._spawn(name, sockets, clock_offset)
            try:
                self._record_pids(names)
            except RunError:
                for child in map(self._children.pop, names):
                    child.process.kill()
                    child.process.wait()
                raise

    async def kill(self, names: Collection[str]) -> dict[str, str]:
        """End routers by SIGKILL, and wait until they have ended. Returns a text for each router about how it ended."""
        return await self._end(names, signal.SIGKILL, STOP_S, "killed")

    async def stop(self, names: Collection[str]) -> dict[str, str]:
        """Stop routers. Returns a text for each router about how it ended."""
        return await self._end(names, STOP_ALL if self._are_all(names) else STOP, STOP_S, "stopped")

    def _are_all(self, names: Collection[str]) -> bool:
        """Whether these are all running routers of the mesh. A router of the topology that mesh.json does not list may
        run on another host, so the answer is then False."""
        try:
            routers = self.directory.topology().routers
        except FileError:
            return False
        is_here = routers.keys() <= self.directory.read().routers.keys()
        return is_here and {*names}.issuperset(self.directory.running())

    async def drain(self, name: str) -> str:
        """Let one router drain: it stops when other routers have its clients, or when `DRAIN_S` is over. Returns a text
        that says how the router ended."""
        return (await self._end([name], DRAIN, DRAIN_S + STOP_S, "drained and stopped"))[name]

    async def _end(self, names: Collection[str], number: int, patience: float, ended: str) -> dict[str, str]:
        self._check_names(names)
        running = {name: process for name, process in self.directory.running().items() if name in names}
        for process in running.values():
            _signal(process, number)
        stubborn = await self._wait_for_end(running, patience)
        for name in stubborn:
            _signal(running[name], signal.SIGKILL)
        undying = await self._wait_for_end(stubborn, STOP_S)
        if undying:
            routers, run = ("router", "runs") if len(undying) == 1 else ("routers", "run")
            raise LaunchError(f"{routers} {', '.join(undying)} still {run} after SIGKILL")
        self._forget(running)
        killed = f"killed, because it had not ended after {format_duration(patience)}"
        outcome = {name: killed if name in stubborn else ended for name in running}
        return {name: outcome.get(name, "was not running") for name in names}

    def endings(self) -> Iterator[tuple[str, str]]:
        """Yield the routers of this launcher that have ended since the last call, each with the reason."""
        for name, child in list(self._children.items()):
            if child.process.poll() is not None:
                del self._children[name]
                yield name, _reason(child)

    def _check_names(self, names: Collection[str]) -> None:
        known = self.directory.read().routers
        for name in names:
            if name not in known and name in self.directory.topology().routers:
                what = f"{self.directory.path} has only {', '.join(known)}; to run it here, too"
                raise LaunchError(f"router {name} runs on another host: {what}: oncemesh router {name} TOPOLOGY")
            if name not in known:
                raise LaunchError(f'there is no router "{name}" in this mesh, {expected(name, known)}')

    async def _wait_for_end(self, names: Collection[str], patience: float) -> list[str]:
        """The routers of `names` that still run after `patience` seconds. A process that has ended, and that no parent
        collects, does not count as running."""
        with trio.move_on_after(patience):
            while self.directory.running().keys() & set(names):
                await trio.sleep(LOOK_EVERY_S)
        running = self.directory.running()
        return [name for name in names if name in running]

    def _listen(self, stack: ExitStack, topology: Topology) -> dict[str, Listeners]:
        """Bind all listeners of `topology`. Fixed ports come first, so that no free port takes one of them."""
        bound: dict[str, Listeners] = {name: {} for name in topology.routers}
        for name, kind, address in sorted(topology.listeners(), key=lambda one: one[2].port == 0):
            try:
                with self._at(name):
                    bound[name][kind] = stack.enter_context(listen(address))
            except ListenError as error:
                own = f"; each host starts its own: oncemesh router NAME {topology.path}"
                what = f"{error}{own if topology.spans_hosts else ''}"
                raise LaunchError(f"router {name} cannot listen ({kind}) on {what}") from None
        return bound

    def _write_record(self, topology: Topology, listeners: Mapping[str, Listeners]) -> None:
        self.directory.keep(topology)
        entries = self._entries(topology, listeners)
        base = str(topology.base.resolve())
        self.directory.renew(MeshRecord(topology.mesh, str(self.directory.topology_path), entries, base))

    def _entries(self, topology: Topology, listeners: Mapping[str, Listeners]) -> dict[str, RouterEntry]:
        bound: dict[str, dict[str, Address]] = {name: {} for name in topology.routers}
        for name, kind, address in topology.listeners():
            bound[name][kind] = bound_address(listeners[name][kind], address.host)
        return {name: router_entry(None, self.directory.log_path(name), at) for name, at in bound.items()}

    async def _launch(self, listeners: Mapping[str, Listeners], how: str = "") -> None:
        complete = False
        try:
            for name, sockets in listeners.items():
                self._spawn(name, sockets, how=how)
            self._record_pids(listeners)
            await self._wait_until_up(listeners)
            complete = True
        except HalfUpError:
            complete = True
            raise
        finally:
            if not complete:
                with trio.CancelScope(shield=True):
                    await self._abandon(listeners)

    def _record_pids(self, names: Collection[str]) -> None:
        with self.directory.edit() as record:
            for name in names:
                record.routers[name].pid = self._children[name].process.pid

    def _spawn(self, name: str, sockets: Listeners, clock_offset: float = 0.0, how: str = "") -> None:
        """Start the process of one router. `how`: an option of the router's command line that says how the router
        starts."""
        log = self.directory.log_path(name)
        try:
            log.parent.mkdir(exist_ok=True)
            output = log.open("ab")
        except OSError as error:
            raise LaunchError(f"router {name} cannot start: {error.filename}: {error.strerror}") from None
        descriptors = {kind: listener.fileno() for kind, listener in sockets.items()}
        arguments = [name, str(self.directory.topology_path), "--run-dir", str(self.directory.path)]
        arguments += [part for kind, number in descriptors.items() for part in ("--fd", kind, str(number))]
        arguments += ["--clock-offset", str(clock_offset)] if clock_offset else []
        arguments += [how] if how else []
        arguments += self._options
        with output, self._at(name):
            start = output.tell()
            process = subprocess.Popen(
                [*self.command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=tuple(descriptors.values()),
                # Ctrl-C must reach only the launcher, which then stops its routers in order.
                start_new_session=True,
            )
            self._children[name] = _Child(process, log, start)
        for listener in sockets.values():
            # The launcher closes its copy of the socket.
            # So if the router dies at once, its clients are refused and do not wait.
            listener.close()

    async def _wait_until_up(self, names: Collection[str]) -> None:
        topology = self.directory.topology()
        started = trio.current_time()
        while True:
            began = trio.current_time()
            for name, reason in self.endings():
                # Perhaps Ctrl-C has ended the router while it started. Then it ends the launcher during this sleep.
                await trio.sleep(LOOK_EVERY_S)
                raise LaunchError(f"router {name} cannot start: {reason}")
            lacking = unfinished(topology, await look(self.directory, self.fetch), names)
            if not lacking:
                return
            if trio.current_time() - started > START_S:
                break
            await rest(began, started)
        lacks = "; ".join(f"router {name} {lack}" for name, lack in lacking.items())
        after = format_duration(START_S)
        raise HalfUpError(f"started and left running, but not connected after {after}: {lacks}")

    async def _abandon(self, names: Collection[str]) -> None:
        """Stop the routers of a failed start, whether or not mesh.json lists them."""
        begun = {name: child.process for name, child in self._children.items() if name in names}
        for process in begun.values():
            process.terminate()
        with trio.move_on_after(STOP_S):
            while any(process.poll() is None for process in begun.values()):
                await trio.sleep(LOOK_EVERY_S)
        for process in begun.values():
            process.kill()
            process.wait()
        self._forget(names)

    def _forget(self, names: Collection[str]) -> None:
        for name in names:
            child = self._children.pop(name, None)
            if child is not None:
                # The poll lets the kernel forget the ended process.
                child.process.poll()
        # If mesh.json cannot be written, its process ids stay: its readers check each id anyway.
        with contextlib.suppress(RunError), self.directory.edit() as record:
            for name in names:
                record.routers[name].pid = None


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _reason(child: _Child) -> str:
    """A text that says how the router ended, with the last lines of its log. If SIGKILL ended it, the text has no lines
    of the log."""
    code = child.process.returncode
    how = f"exit status {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"
    if code == -signal.SIGKILL:
        return how
    with child.log.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(child.log_start, size - 4096))
        lines = log.read().decode(errors="replace").strip().splitlines()
    return "\n    ".join([how, *lines[-5:]])
