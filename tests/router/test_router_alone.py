"""Routers started one by one, as on several hosts: no launcher, only the topology."""

import errno
import json
import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import trio
import trio.testing
from click.testing import CliRunner

from failover.chaos.loopback import free_ports
from failover.client.status import fetch_status
from router.cli.main import main
from router.cli.router import LineFormatter
from router.mesh.errors import RunError
from router.mesh.quantities import Address
from router.mesh.rundir import MeshRecord, RouterEntry, RunDirectory
from router.mesh.topology import load
from router.neighbours import keep_dialling
from tests.forks import COMMAND_LINE
from tests.hangs import HANGS_S
from tests.processes.clients import Clients


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    amqp_a, amqp_b, inter_b, inter_a = islice(free_ports(), 4)
    path = tmp_path / "pair.yaml"
    path.write_text(f"""\
mesh: pair
routers:
  a: {{amqp: 127.0.0.1:{amqp_a}, inter: 127.0.0.1:{inter_a}}}
  b: {{amqp: 127.0.0.1:{amqp_b}, inter: 127.0.0.1:{inter_b}}}
links: [[a, b]]
""")
    return path


class Routers:
    def __init__(self, topology: Path) -> None:
        self.topology = topology
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "router", name, str(self.topology), *options]
        folder = self.topology.parent
        self.processes[name] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)
        return self.processes[name]

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def routers(topology: Path) -> Iterator[Routers]:
    routers = Routers(topology)
    yield routers
    routers.stop()


async def until_contact(address: Address) -> None:
    while True:
        try:
            status = await fetch_status(address.host, address.port, HANGS_S)
        except OSError:  # not listening yet
            await trio.sleep(0.05)
            continue
        if all(route["contact"] for route in status["routes"]) and status["state"] == "ready":
            return
        await trio.sleep(0.05)


@pytest.mark.real_start  # as an operator's supervisor would
async def test_they_find_each_other_and_end_with_status_0_on_sigterm(routers: Routers) -> None:
    a, b = routers.start("a", "--run-dir", "host-of-a"), routers.start("b", "--run-dir=host-of-b")
    with trio.fail_after(HANGS_S):
        for router in load(routers.topology).routers.values():
            await until_contact(router.amqp)
    for process, number in ((a, signal.SIGTERM), (b, signal.SIGINT)):
        process.send_signal(number)
        _, errors = await trio.to_thread.run_sync(process.communicate)
        assert process.returncode == 0, errors


@pytest.mark.real_start  # its environment counts
async def test_a_router_with_interpreted_loops_says_so(routers: Routers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEMESH_INTERPRETED", "1")
    lines = routers.start("a").stderr
    assert lines is not None
    with trio.fail_after(HANGS_S):
        while "its inner loops are not compiled" not in await trio.to_thread.run_sync(
            lines.readline, abandon_on_cancel=True
        ):
            pass


async def test_their_run_directory_is_one_for_the_other_commands(routers: Routers) -> None:
    """Two that share the default one; the log is in it as well as on the terminal."""
    routers.start("a"), routers.start("b")
    plan = load(routers.topology)
    with trio.fail_after(HANGS_S):
        for router in plan.routers.values():
            await until_contact(router.amqp)
    directory = RunDirectory(routers.topology.parent / "run" / "pair")
    assert {name: process.pid for name, process in directory.running().items()} == {
        name: process.pid for name, process in routers.processes.items()
    }
    assert directory.topology().routers == plan.routers
    assert f"router a of mesh pair serves {plan.routers['a'].amqp}" in directory.log_path("a").read_text()

    document = json.loads((await run_command("status", "--json", "--run-dir", str(directory.path))).stdout)
    assert all(router["status"]["state"] == "ready" for router in document["routers"].values())
    assert (await run_command("stop", "b", "--run-dir", str(directory.path))).stdout == b"router b: stopped\n"
    routers.processes["a"].terminate()
    await trio.to_thread.run_sync(routers.processes["a"].communicate)
    assert [entry.pid for entry in directory.read().routers.values()] == [None, None]


async def run_command(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """The command, beside the routers' processes: it must not reap them."""
    return await trio.run_process([*COMMAND_LINE, *arguments], capture_stdout=True)


@pytest.mark.parametrize(
    ("mesh", "reason"),
    [("other", "the run directory of another mesh, other"), ("pair", "mesh pair is running here with other routers")],
)
def test_a_directory_where_others_run_is_refused(topology: Path, tmp_path: Path, mesh: str, reason: str) -> None:
    plan = load(topology)
    address = Address("127.0.0.1", 1)
    other = RunDirectory(tmp_path / "run")
    other.make()
    entry = RouterEntry(None, str(address), str(address), "")
    other.write(MeshRecord(mesh, "", {"z": entry}))
    script = "import time; print(flush=True); time.sleep(60)"
    sleeper = [sys.executable, "-c", script, "router", "z", "--run-dir", str(other.path)]
    with subprocess.Popen(sleeper, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()  # its command line is to be seen by now
        entry.pid = process.pid
        other.write(MeshRecord(mesh, "", {"z": entry}))
        with pytest.raises(RunError, match=reason), other.registered("a", plan, {"amqp": address, "inter": address}):
            raise AssertionError
        process.kill()


def test_a_router_that_runs_on_another_host_is_not_started_by_the_way(topology: Path, tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.make()
    address = Address("127.0.0.1", 1)
    with directory.registered("a", load(topology), {"amqp": address, "inter": address}):
        pass
    started = CliRunner().invoke(main, ["start", "b", "--run-dir", str(directory.path)])
    assert (started.exit_code, started.stderr) == (
        1,
        f"Error: router b runs on another host: {directory.path} has only a; "
        "to run it here, too: oncemesh router b TOPOLOGY\n",
    )


def test_a_directory_is_that_of_one_mesh(topology: Path, tmp_path: Path) -> None:
    """Also when nothing runs there; what an earlier run of the same mesh left makes way."""
    plan = load(topology)
    address = Address("127.0.0.1", 1)
    directory = RunDirectory(tmp_path / "run")
    directory.make()
    directory.write(MeshRecord("other", "", {}))
    refused = pytest.raises(RunError, match="another mesh, other: choose one for pair with --run-dir")
    with refused, directory.registered("a", plan, {"amqp": address, "inter": address}):
        raise AssertionError
    assert directory.read() == MeshRecord("other", "", {})
    directory.write(MeshRecord("pair", "", {"z": RouterEntry(None, str(address), str(address), "")}))
    with directory.registered("a", plan, {"amqp": address, "inter": address}):
        assert list(directory.read().routers) == ["a"]


async def test_a_port_that_is_taken_is_told_without_a_traceback(routers: Routers) -> None:
    address = load(routers.topology).routers["a"].amqp
    with socket.create_server((address.host, address.port)):
        process = routers.start("a")
        _, errors = await trio.to_thread.run_sync(process.communicate)
    assert process.returncode == 1
    assert errors == f"Error: router a cannot listen on {address}: Address already in use\n"


def test_a_router_that_runs_here_already_is_named_with_its_process(routers: Routers) -> None:
    """That its port is taken says less."""
    process = routers.start("a")
    directory = RunDirectory(routers.topology.parent / "run" / "pair")
    while not (directory.exists() and directory.running()):
        time.sleep(0.05)
    for command, *options in (["router"], ["join", "--via", "127.0.0.1:1"]):
        arguments = [command, "a", str(routers.topology), "--run-dir", str(directory.path), *options]
        told = CliRunner().invoke(main, arguments).stderr
        assert told == f"Error: {directory.path}: router a is running already (pid {process.pid})\n"


async def test_who_is_not_reached_is_told_once_and_clients_are_told_what_is_advertised(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """It listens anywhere, on IPv6; b and c are not there."""
    path = tmp_path / "mesh.yaml"
    amqp, inter, *nobody = islice(free_ports(), 4)
    path.write_text(f"""\
mesh: hosts
routers:
  a: {{amqp: "[::]:{amqp}", inter: "[::]:{inter}", advertise: a.example.org:5672}}
  b: {{amqp: "[::1]:1", inter: "[::1]:{nobody[0]}"}}
  c: {{amqp: c.example.org:5672, inter: 127.0.0.1:{nobody[1]}, advertise: "[2001:db8::c]:15672"}}
links: [[a, b], [a, c]]
timing: {{boot_wait: 2s}}
security: {{open: [amqp, inter]}}
""")
    routers = Routers(path)
    log = routers.start("a").stderr
    try:
        with trio.fail_after(HANGS_S):
            said = ""
            while "continuing without b, c" not in said:
                assert log is not None
                said += await trio.to_thread.run_sync(log.readline)
            client = await Clients(nursery).connect(Address("::1", amqp), "client")
    finally:
        routers.stop()
    servers = client.connection.remote_properties["failover-server-list"]
    assert {(server["network-host"], server["port"]) for server in servers} == {("::1", 1), ("2001:db8::c", 15672)}
    assert said.count("the router waits for b and c before it answers publishers, for 2.0s at most") == 1
    assert said.count(f"cannot reach router b at [::1]:{nobody[0]}: Connection refused") == 1
    assert said.count(f"cannot reach router c at 127.0.0.1:{nobody[1]}: Connection refused") == 1


async def test_each_reason_why_a_neighbour_is_not_reached_is_told_once_until_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    """Where a host is away, the kernel says so by turns with nobody saying anything."""
    no_route, silence = OSError(errno.EHOSTUNREACH, "no route"), trio.TooSlowError()
    attempts = iter([*[no_route, silence] * 3, None, no_route])
    done, reached = trio.CancelScope(), []

    async def dial(host: str, port: int) -> trio.testing.MemoryReceiveStream:
        await trio.lowlevel.checkpoint()
        try:
            why = next(attempts)
        except StopIteration:
            done.cancel()
            await trio.sleep_forever()
        if why is not None:
            raise why
        return trio.testing.MemoryReceiveStream()

    async def visit(stream: object, neighbour: str) -> None:
        reached.append(neighbour)

    monkeypatch.setattr("router.neighbours.trio.open_tcp_stream", dial)
    with done, caplog.at_level(logging.INFO, "oncemesh.neighbours"):
        await keep_dialling("b", Address("10.0.0.7", 5772), 2.0, visit)
    reasons = [line.rpartition(": ")[2] for line in caplog.messages]
    assert (reasons, reached) == (["No route to host", "no answer within 2.0s", "No route to host"], ["b"])


def test_a_line_of_the_log_is_one_line_whatever_strangers_are_called() -> None:
    record = logging.LogRecord("oncemesh", logging.WARNING, "", 0, "client %s is gone", ("x\r\n\x1b[2J",), None)
    assert LineFormatter("%(levelname)s %(message)s").format(record) == r"WARNING client x\r\n\x1b[2J is gone"


async def test_a_router_whose_state_is_damaged_does_not_start_and_says_why(routers: Routers, tmp_path: Path) -> None:
    state = tmp_path / "run" / "a" / "state.db"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"not a database" * 100)
    process = routers.start("a", "--run-dir", str(tmp_path / "run"))
    _, errors = await trio.to_thread.run_sync(process.communicate)
    assert process.returncode == 1
    assert errors.startswith(f"Error: {state}: the router cannot use this state: file is not a database.")
    assert "Traceback" not in errors


async def test_a_router_whose_state_is_gone_starts_and_says_what_it_has_forgotten(
    routers: Routers, tmp_path: Path
) -> None:
    """a has run before, b has not."""
    log = tmp_path / "run" / "a" / "log"
    log.mkdir(parents=True)
    (log / "1-000000.oml").touch()
    processes = [routers.start(name, "--run-dir", str(tmp_path / "run")) for name in "ab"]
    with trio.fail_after(HANGS_S):
        for router in load(routers.topology).routers.values():
            await until_contact(router.amqp)
    for process in processes:
        process.send_signal(signal.SIGTERM)
    said = [(await trio.to_thread.run_sync(process.communicate))[1] for process in processes]
    assert "router a ran before, but its state.db is missing: its durable links are forgotten" in said[0]
    assert "ran before" not in said[1]
