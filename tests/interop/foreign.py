"""Clients of other makers. Each is a process of its own that takes orders and reports what it saw.

    COMMAND publish|subscribe HOST:PORT ADDRESS COUNT SIZE first|second at-once|hold

Every client prints JSON lines. First comes `attached`. A subscriber prints `received` once it has all messages, and
goes on to consume until its input ends: a message that it has had may come again. Then comes `complete`: each message
has its outcome, and in mode second also the router's settlement. When its input ends, a client prints `done` with
everything that it saw. A subscriber that holds sends its outcomes after the order `accept`. Messages of proton and rhea
have the subjects `even` and `odd` in turn, their subscribers may have a selector, and their publishers send each
message to the anonymous terminus instead, if the environment says so. Requesters and servers have the roles `ask` and
`answer`. Times are microseconds of the machine's monotonic clock, so those of different processes can be compared.
Ours, Qpid JMS, protonj2, pyamqp and go-amqp tell no times. A client that is told of several routers, separated by
commas, finds another router by itself. Then its subscriber at a topic is durable (pyamqp has none), and tells `part`
after each third of the messages.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from router.mesh.quantities import Address
from tests.hangs import HANGS_S

HERE = Path(__file__).parent
NODE = shutil.which("node")
CPP_SOURCE = HERE / "proton_client.cpp"
CPP_BINARY = HERE.parent.parent / "build" / "interop" / "proton_client"
BUILT = HERE.parent.parent / "build" / "interop"
RABBITMQ = BUILT / "rabbitmq"
JMS = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{BUILT / 'jms'}:{BUILT / 'jms'}/lib/*", "JmsClient"]
PROTONJ2 = BUILT / "protonj2"
AZURE = BUILT / "azure"
GO = BUILT / "go_client"
COMMANDS = {
    "proton": [sys.executable, str(HERE / "proton_client.py")],
    "proton-c++": [str(CPP_BINARY)],
    "rhea": [str(NODE), str(HERE / "rhea_client.js")],
    "amqp10": [str(NODE), str(HERE / "amqp10_client.js")],
    "proton requests": [sys.executable, str(HERE / "proton_requests.py")],
    "rhea requests": [str(NODE), str(HERE / "rhea_requests.js")],
    "ours": [sys.executable, str(HERE / "our_client.py")],
    "jms": JMS,
    "protonj2": ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{PROTONJ2}:{PROTONJ2}/lib/*", "ProtonJ2Client"],
    "azure": ["env", f"PYTHONPATH={AZURE}", sys.executable, str(HERE / "azure_client.py")],
    "go": [str(GO)],
    "erlang": ["escript", str(HERE / "erlang_client.escript")],
}
PATIENCE_S = HANGS_S


def prepare(maker: str) -> None:
    """Skip the test if the maker's library is not installed."""
    library = maker.split()[0]
    if library in ("rhea", "amqp10") and (NODE is None or not (HERE / "node_modules" / library).exists()):
        pytest.skip(f"{library} needs node and tests/interop/node_modules (make setup)")
    if maker == "erlang" and (shutil.which("escript") is None or not RABBITMQ.exists()):
        pytest.skip("RabbitMQ's client needs Erlang and the plugins of Debian's package (make interop-tools)")
    if maker == "jms" and (shutil.which("java") is None or not (BUILT / "jms" / "JmsClient.class").exists()):
        pytest.skip("Qpid JMS needs Java and Maven (make interop-tools)")
    if maker == "protonj2" and (shutil.which("java") is None or not (PROTONJ2 / "ProtonJ2Client.class").exists()):
        pytest.skip("protonj2 needs Java and Maven (make interop-tools)")
    if maker == "azure" and not (AZURE / "azure").exists():
        pytest.skip("pyamqp needs the files of azure-servicebus (make interop-tools)")
    if maker == "go" and not GO.exists():
        pytest.skip("go-amqp needs Go 1.25 or later (make interop-tools)")
    if maker == "proton-c++" and (not CPP_BINARY.exists() or CPP_BINARY.stat().st_mtime < CPP_SOURCE.stat().st_mtime):
        if shutil.which("g++") is None or not Path("/usr/include/proton/container.hpp").exists():
            pytest.skip("Proton C++ needs g++ and libqpid-proton-cpp12-dev (make interop-tools)")
        subprocess.run(["make", "--silent", "build/interop/proton_client"], cwd=HERE.parent.parent, check=True)


class ForeignClient:
    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._unread = b""

    async def event(self, name: str) -> dict[str, Any]:
        """The next event that the client reports, which must be this one."""
        with trio.fail_after(PATIENCE_S):
            told = json.loads(await self._line())
        assert told["event"] == name, told
        return dict(told)

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            data = await self._process.stdout.receive_some()
            assert data, f"the client ended early: {self._unread!r}"
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    async def accept(self) -> None:
        """Tell a subscriber that holds to give its outcomes."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(b"accept\n")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def finish(self) -> dict[str, Any]:
        """Tell the client to close its connection and to report everything that it saw."""
        assert self._process.stdin is not None
        await self._process.stdin.aclose()
        done = await self.event("done")
        assert await self._process.wait() == 0
        return done


@asynccontextmanager
async def foreign(
    maker: str,
    role: str,
    router: Address | str,
    topic: str,
    count: int,
    size: int,
    *,
    mode: str = "first",
    hold: bool = False,
    selector: str = "",
    anonymous: bool = False,
    websocket: str = "",
    ca: str = "",
) -> AsyncIterator[ForeignClient]:
    """A client that is attached. It ends here if not before. `websocket`: the URL at which rhea connects in place of
    `router`. `ca`: a file with the CA that it trusts."""
    prepare(maker)
    command = [*COMMANDS[maker], role, str(router), topic, str(count), str(size), mode, "hold" if hold else "at-once"]
    environment = {**os.environ, "ERL_LIBS": str(RABBITMQ), "SELECTOR": selector, "ANONYMOUS": "1" * anonymous}
    environment |= {"WEBSOCKET": websocket, "NODE_EXTRA_CA_CERTS": ca}
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    try:
        client = ForeignClient(process)
        await client.event("attached")
        yield client
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
