"""A command that is killed while it starts routers: what it has started is not lost to the commands that follow."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from failover.cli.fetch import fetcher
from router.mesh.launcher import ROUTER_COMMAND, Launcher
from router.mesh.rundir import MeshRecord, RouterEntry, RunDirectory
from router.mesh.topology import load
from tests.hangs import HANGS_S
from tests.processes.mesh import eventually

TOPOLOGY = """\
mesh: grows
routers:
  a: {amqp: 127.0.0.1:0}
  b: {amqp: 127.0.0.1:0}
links: [[a, b]]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "grows.yaml"
    path.write_text(TOPOLOGY)
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDirectory]:
    directory = RunDirectory(tmp_path / "run")
    yield directory
    for process in directory.running().values():
        process.kill()


def grow(file: Path) -> None:
    file.write_text(TOPOLOGY.replace("links: [[a, b]", "  c: {amqp: 127.0.0.1:0}\nlinks: [[a, b], [b, c]"))


async def killed(at: str, *arguments: str | Path) -> None:
    """`oncemesh`, killed as it is about to call this of the launcher's."""
    program = f"""\
import os, signal
from router.cli.main import main
from router.mesh import launcher
launcher.{at} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
main()
"""
    done = await trio.run_process([sys.executable, "-P", "-c", program, *arguments], check=False, capture_stdout=True)
    assert done.returncode == -signal.SIGKILL


async def test_routers_of_which_their_launcher_could_tell_nobody_are_stopped(
    file: Path, directory: RunDirectory
) -> None:
    await killed("Launcher._record_pids", "up", file, "--detach", "--run-dir", directory.path)

    async def all_run() -> bool:
        return set(directory.running()) == {"a", "b"}

    await eventually(all_run)
    stopped = await Launcher(directory, fetcher(directory)).stop(["a", "b"])
    assert stopped == {"a": "stopped", "b": "stopped"}


async def test_an_apply_that_was_killed_before_it_told_anybody_is_done_by_the_same_again(
    file: Path, directory: RunDirectory
) -> None:
    launcher = Launcher(directory, fetcher(directory))
    await launcher.up(load(file))
    grow(file)
    await killed("_signal", "apply", file, "--run-dir", directory.path)
    assert set(directory.read().routers) == {"a", "b", "c"}
    await launcher.apply(load(file))
    assert set(directory.running()) == {"a", "b", "c"}


@pytest.mark.parametrize("removed", [False, True])
def test_a_router_in_whose_place_another_was_started_makes_way(
    file: Path, directory: RunDirectory, *, removed: bool
) -> None:
    directory.make()
    directory.keep(load(file))
    with socket.create_server(("127.0.0.1", 0)) as amqp, socket.create_server(("127.0.0.1", 0)) as inter:
        other = RouterEntry(None, "127.0.0.1:1", f"127.0.0.1:{inter.getsockname()[1]}", log="")
        record = MeshRecord("grows", str(directory.topology_path), {} if removed else {"a": other})
        directory.write(record)
        command = [*ROUTER_COMMAND, "a", record.topology, "--run-dir", str(directory.path)]
        command += ["--fd", "amqp", str(amqp.fileno()), "--fd", "inter", str(inter.fileno())]
        inherited = amqp.fileno(), inter.fileno()
        done = subprocess.run(command, capture_output=True, text=True, pass_fds=inherited, timeout=HANGS_S)
    assert (done.returncode, directory.read()) == (1, record)
    assert done.stderr == f"Error: {directory.path}: router a was started again, or removed, before this process ran\n"
