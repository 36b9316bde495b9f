"""The clients of a run, as the nemesis sees them. Each client is a process.

A client that the nemesis killed is started again with its state file. A client that ended by itself, because it found
no router for too long, is started again as well, and the run reports this.
"""

import contextlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs
import trio

from failover.chaos.client import BEGIN, FINISH, GAVE_UP, Spec
from failover.chaos.script.script import Script, ScriptClient
from router.mesh.quantities import Address

COMMAND: Final = (sys.executable, "-P", "-m", "failover.chaos.client")
NONE: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
AGAIN_S: Final = 0.5
"""The seconds after which a client that gave up is started again."""


class Member:
    """One client of a run. `tell` is called with each line that the user should see."""

    def __init__(
        self, client: ScriptClient, spec: Spec, tell: Callable[[str], None], command: Sequence[str] = COMMAND
    ) -> None:
        self.client = client
        self.counts = {"sent": 0, "accepted": 0, "received": 0}
        """The counts that the client has reported, over all its lives. Its ledger is more exact."""
        self.router: str | None = None
        """The router to which the client is attached, or was attached last."""
        self.attached = False
        self.running = False
        self.finished = False
        self.crashes = 0
        """The number of times that the client ended by itself."""
        self._spec = spec
        self._tell = tell
        self._command = command
        self._before = dict(self.counts)
        self._process: trio.Process | None = None
        self._wanted = trio.Event()
        self._killed = False
        self._orders: list[bytes] = []
        """All orders that the client has been given so far. Each new process of the client gets them again."""

    @property
    def name(self) -> str:
        return self.client.name

    @property
    def state(self) -> Path:
        """The file that has the client's state and its account."""
        return self._spec.state

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the client until it has finished, or until this task is cancelled. The task counts as started once the
        client is attached for the first time."""
        self._first = task_status
        while True:
            self._wanted, self._killed = trio.Event(), False
            status = await self._live()
            self.attached = self.running = False
            self._before = dict(self.counts)
            if self._killed:
                await self._wanted.wait()
            elif status == 0:
                self.finished = True
                return
            else:
                self._ended(status)
                await trio.sleep(AGAIN_S)

    def _ended(self, status: int) -> None:
        if status != GAVE_UP:
            self.crashes += 1
            self._tell(f"client {self.name} ended by itself with exit status {status}, see {self._spec.folder}")

    async def _live(self) -> int:
        command = [*self._command, json.dumps(attrs.asdict(self._spec))]
        with (Path(self._spec.folder) / "client.log").open("ab") as errors:
            process = self._process = await trio.lowlevel.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Give each client a session of its own.
                # So ctrl-c reaches only the nemesis, which then ends the clients in order.
                start_new_session=True,
            )
        self.running = True
        try:
            for order in self._orders:
                await self._say(order)
            await self._listen(process)
            return await process.wait()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                assert process.stdin is not None and process.stdout is not None
                await process.stdin.aclose()
                await process.stdout.aclose()

    async def _listen(self, process: trio.Process) -> None:
        assert process.stdout is not None
        unread = b""
        async for data in process.stdout:
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))

    def _hear(self, line: Mapping[str, Any]) -> None:
        match line:
            case {"counts": counts}:
                self.counts = {name: self._before[name] + count for name, count in counts.items()}
            case {"attached": router}:
                if self.router is None:
                    self._first.started()
                self.router, self.attached = router, True
            case {"lost": _}:
                self.attached = False
            case {"gave_up": reason}:
                self._tell(f"client {self.name} gave up: {reason}")

    def leave(self) -> None:
        """Kill the client's process. The client stays away until `come_back`."""
        assert self._process is not None
        self._killed = True
        self.running = self.attached = False
        self._process.kill()

    def come_back(self) -> None:
        self._wanted.set()

    async def begin(self) -> None:
        """Order a publisher to begin offering its messages."""
        await self._order(BEGIN)

    async def finish(self) -> None:
        """Order the client to finish. A publisher finishes when it knows all outcomes, a subscriber finishes at
        once."""
        await self._order(FINISH)

    async def _order(self, order: bytes) -> None:
        self._orders.append(order)
        await self._say(order)

    async def _say(self, order: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            # If the process has just ended, the client gets the order in its next life.
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._process.stdin.send_all(order)


class RunningClients:
    """All clients of a run."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = {member.name: member for member in members}

    def of_role(self, role: str) -> list[Member]:
        return [member for member in self.members.values() if member.client.role == role]

    @property
    def running(self) -> list[str]:
        return [name for name, member in self.members.items() if member.running]

    @property
    def routers_of_clients(self) -> dict[str, str]:
        """Maps each client to the router to which it is attached, or was attached last."""
        return {name: member.router for name, member in self.members.items() if member.router is not None}

    def total(self, what: str) -> int:
        return sum(member.counts[what] for member in self.members.values())


def make_clients(
    script: Script,
    addresses: Mapping[str, Address],
    folder: Path,
    tell: Callable[[str], None],
    namespace: str = "",
    programs: Mapping[str, Sequence[str]] = NONE,
) -> RunningClients:
    """Make the clients of a run. Each client tries its own router first, then the others in turn.

    `programs` has, by name, the commands of clients that other projects have written. They read and write the same
    lines as `failover.chaos.client`.
    """
    specs = (attrs.evolve(_spec(one, script, addresses, folder), namespace=namespace) for one in script.clients)
    return RunningClients(
        Member(client, spec, tell, programs.get(client.name, COMMAND))
        for client, spec in zip(script.clients, specs, strict=True)
    )


def _spec(client: ScriptClient, script: Script, addresses: Mapping[str, Address], folder: Path) -> Spec:
    home = folder / client.name
    home.mkdir(parents=True, exist_ok=True)
    names = list(addresses)
    first = names.index(client.router)
    scheme = "amqps" if script.topology.security.tls else "amqp"
    return Spec(
        name=client.name,
        role=client.role,
        run_dir=str(folder.parent),
        urls=tuple(f"{scheme}://{addresses[name]}" for name in (*names[first:], *names[:first])),
        address=client.address,
        folder=str(home),
        timeout=math.ceil(script.topology.timing.terminus),
        rate=client.rate,
        count=script.count_of(client),
        size=client.size,
        settle=client.settle,
        think=client.think,
    )
