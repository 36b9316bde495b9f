"""The commands that start, show and stop a mesh, with stand-ins for the router processes."""

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from failover.cli import mesh as cli_mesh
from failover.cli.watch import status as cli_status
from router.cli.base import until_signal
from router.cli.main import main
from router.mesh.errors import RunError
from router.mesh.launcher import Launcher
from router.mesh.rundir import RunDirectory
from router.mesh.shown.waits import LASTING_S
from router.mesh.status import RouterView
from router.mesh.topology import load
from tests.hangs import HANGS_S
from tests.router.mesh.launching import STUB, give_up_on

PAIR = """\
mesh: pair
routers:
  a: {amqp: 127.0.0.1:0}
  b: {amqp: 127.0.0.1:0}
links: [[a, b]]
"""


async def fetch(host: str, port: int, timeout: float) -> dict[str, Any]:
    with trio.fail_after(timeout):
        async with await trio.open_tcp_stream(host, port) as stream:
            data = b"".join([chunk async for chunk in stream])
    return dict(json.loads(data))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with pair.yaml, in which the commands start stand-ins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_mesh, "Launcher", functools.partial(Launcher, command=STUB))
    for module in (cli_mesh, cli_status):
        monkeypatch.setattr(module, "fetcher", lambda directory: fetch)
    (tmp_path / "pair.yaml").write_text(PAIR)
    yield tmp_path
    directory = RunDirectory(tmp_path / "run" / "pair")
    if directory.exists():
        for process in directory.running().values():
            process.kill()


def oncemesh(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_ctrl_c_before_anything_has_begun_ends_a_command_quietly(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path | None) -> RunDirectory:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_mesh, "find_run_dir", interrupted)
    result = oncemesh("down")
    assert (result.exit_code, result.output) == (130, "")


def test_a_mesh_lives_through_up_status_stop_start_and_down(here: Path) -> None:
    up = oncemesh("up", "pair.yaml", "--detach")
    assert up.exit_code == 0, up.output
    assert "mesh pair: 2 of 2 routers ready" in up.output
    assert f"run directory {here / 'run' / 'pair'}" in up.output

    document = json.loads(oncemesh("status", "--json").output)
    assert document["mesh"] == "pair"
    assert all(router["running"] for router in document["routers"].values())

    assert oncemesh("stop", "b").output == "router b: stopped\n"
    assert "mesh pair: 0 of 2 routers ready" in oncemesh("status").output

    start = oncemesh("start")
    assert start.exit_code == 0, start.output
    assert "mesh pair: 2 of 2 routers ready" in start.output

    assert oncemesh("drain", "b").output == "router b: drained and stopped\n"
    assert oncemesh("down").output == "router a: stopped\nrouter b: was not running\n"
    assert oncemesh("status").exit_code == 1


def test_a_bad_topology_is_told_without_a_traceback(here: Path) -> None:
    (here / "pair.yaml").write_text(PAIR.replace("[a, b]", "[a, z]"))
    result = oncemesh("up", "pair.yaml")
    assert result.exit_code == 1
    assert result.output == 'Error: pair.yaml:5: links[0]: there is no router "z", expected a or b\n'


def test_a_router_that_cannot_start_is_told_without_a_traceback(here: Path) -> None:
    (here / "run" / "pair" / "b").mkdir(parents=True)
    (here / "run" / "pair" / "b" / "behaviour").write_text("fail")
    result = oncemesh("up", "pair.yaml", "--detach")
    assert result.exit_code == 1
    assert "router b cannot start: exit status 1" in result.output
    assert "why it failed" in result.output
    assert "Traceback" not in result.output


def test_a_mesh_that_is_up_in_part_runs_and_says_what_it_lacks(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_up_on(monkeypatch, {"b": "is not in contact with a"})
    (here / "run" / "pair" / "b").mkdir(parents=True)
    (here / "run" / "pair" / "b" / "behaviour").write_text("blind")
    up = oncemesh("up", "pair.yaml", "--detach")
    assert up.exit_code == cli_mesh.HALF_UP
    assert "left running" in up.output and "router b is not in contact with a" in up.output
    assert f"run directory {here / 'run' / 'pair'}" in up.output

    assert oncemesh("stop", "b").output == "router b: stopped\n"
    start = oncemesh("start", "b")
    assert start.exit_code == cli_mesh.HALF_UP
    assert "left running" in start.output and "router b is not in contact with a" in start.output
    assert oncemesh("down").output == "router a: stopped\nrouter b: stopped\n"


def test_a_router_that_runs_and_does_not_answer_is_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a start that has nothing left to start."""
    assert oncemesh("up", "pair.yaml", "--detach").exit_code == 0

    async def silent(host: str, port: int, timeout: float) -> dict[str, Any]:
        raise trio.TooSlowError

    monkeypatch.setattr(cli_mesh, "fetcher", lambda directory: silent)
    start = oncemesh("start")
    assert start.exit_code == cli_mesh.HALF_UP
    assert "running, but without an answer: router a, b" in start.output
    assert oncemesh("down").output == "router a: stopped\nrouter b: stopped\n"


def test_a_directory_that_cannot_be_is_told_without_a_traceback(here: Path) -> None:
    (here / "f").touch()
    result = oncemesh("up", "pair.yaml", "--run-dir", "f/x")
    assert (result.exit_code, result.output) == (
        1,
        f"Error: {here}/f/x: cannot be a run directory: Not a directory\n",
    )


def test_a_folder_of_other_files_is_no_run_directory_and_left_as_it_is(here: Path) -> None:
    (here / "pictures").mkdir()
    (here / "pictures" / "cat.png").touch()
    refused = oncemesh("up", "pair.yaml", "--detach", "--run-dir", "pictures")
    told = f"Error: {here}/pictures: not the directory of a mesh, choose another with --run-dir\n"
    assert (refused.exit_code, refused.stderr) == (1, told)
    assert [path.name for path in (here / "pictures").iterdir()] == ["cat.png"]


def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_traceback() -> None:
    code = """if True:
        import os, signal, sys

        class CtrlC:
            def find_spec(self, name, path=None, target=None):
                if name == "click":
                    os.kill(os.getpid(), signal.SIGINT)

        sys.meta_path.insert(0, CtrlC())
        import router.cli.main
        """
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, timeout=HANGS_S)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def test_the_log_of_a_command_s_own_connections_is_not_printed() -> None:
    code = "import logging, router.cli.main; logging.getLogger('oncemesh.amqp').warning('ended')"
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, timeout=HANGS_S)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_several_problems_are_listed_below_their_number(here: Path) -> None:
    (here / "pair.yaml").write_text(PAIR.replace("[a, b]", "[a, z], [a, y]"))
    first, *others = oncemesh("up", "pair.yaml").output.splitlines()
    assert first == "Error: 2 problems in pair.yaml:"
    assert [other.startswith("  pair.yaml:5: ") for other in others] == [True, True]


def test_commands_without_a_mesh_say_what_to_do(here: Path) -> None:
    for command in ("status", "start", "stop", "down"):
        result = oncemesh(command)
        assert result.exit_code == 1
        what_to_do = "start one with oncemesh up, or name its directory with --run-dir"
        assert result.output == f"Error: no mesh is running under ./run: {what_to_do}\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_mesh_in_the_foreground_is_stopped_by_a_signal(
    here: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = trio.Event()
    show = cli_mesh.ChangeLines.show

    def observed(self: cli_mesh.ChangeLines, views: dict[str, Any]) -> None:
        show(self, views)
        shown.set()

    monkeypatch.setattr(cli_mesh.ChangeLines, "show", observed)
    directory = RunDirectory(here / "run" / "pair")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cli_mesh._up, load("pair.yaml"), directory, False)
        await shown.wait()
        os.kill(os.getpid(), number)

    assert directory.running() == {}
    output = capsys.readouterr().out
    assert "router a: ready, sees b\n" in output
    assert output.endswith("router a: stopped\nrouter b: stopped\n")


async def test_a_start_that_is_interrupted_stops_what_it_began(here: Path) -> None:
    """Ctrl-C comes as the first of its two processes runs, and the other is not to be seen by it ever."""
    directory = RunDirectory(here / "run" / "pair")
    launcher = Launcher(directory, fetch, STUB)
    await launcher.up(load("pair.yaml"))
    await launcher.stop("ab")
    (directory.path / "b" / "behaviour").write_text("blind")

    async def interrupt() -> None:
        with trio.fail_after(HANGS_S):
            while not directory.running():
                await trio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.RaisesGroup(pytest.RaisesExc(RunError, match="the started routers were stopped again")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupt)
            await cli_mesh.show_start(directory, "ab", lambda launcher: launcher.start("ab"))
    assert directory.running() == {}


async def test_a_start_that_is_interrupted_when_all_is_up_says_that_it_runs(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(here / "run" / "pair")
    launcher = Launcher(directory, fetch, STUB)
    await launcher.up(load("pair.yaml"))
    await launcher.stop("ab")

    async def look(*_: object) -> dict[str, RouterView]:
        os.kill(os.getpid(), signal.SIGINT)
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(cli_mesh, "look", look)
    with pytest.raises(RunError, match="the routers run"):
        await cli_mesh.show_start(directory, "ab", lambda launcher: launcher.start("ab"))
    assert len(directory.running()) == 2


async def test_a_router_that_dies_under_a_mesh_in_the_foreground_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = RunDirectory(here / "run" / "pair")
    monkeypatch.setattr(cli_mesh, "REFRESH_S", 0.05)
    show = cli_mesh.ChangeLines.show

    def kill_all(self: cli_mesh.ChangeLines, views: dict[str, Any]) -> None:
        show(self, views)
        for process in directory.running().values():
            process.kill()

    monkeypatch.setattr(cli_mesh.ChangeLines, "show", kill_all)
    with pytest.RaisesGroup(pytest.RaisesExc(Exception, match="no router is left running")):
        await cli_mesh._up(load("pair.yaml"), directory, False)
    assert "router a ended: ended by SIGKILL\n" in capsys.readouterr().out


@pytest.mark.parametrize("machine", [False, True])
async def test_a_status_that_is_watched_comes_anew_until_ctrl_c(
    here: Path, machine: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe one after the other."""
    monkeypatch.setattr(cli_status, "REFRESH_S", 0.05)
    directory = RunDirectory(here / "run" / "pair")
    await Launcher(directory, fetch, STUB).up(load("pair.yaml"))
    capsys.readouterr()
    seen = ""

    async def watch() -> None:
        async with until_signal():
            await cli_status._show(lambda: cli_status.ask_all_routers(directory, "ab"), machine=machine, watch=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        with trio.fail_after(HANGS_S):
            while seen.count('"mesh": "pair"' if machine else "mesh pair: 2 of 2 routers ready") < 3:
                await trio.sleep(0.05)
                seen += capsys.readouterr().out
        os.kill(os.getpid(), signal.SIGINT)
    seen += capsys.readouterr().out
    if machine:
        assert all(json.loads(line)["mesh"] == "pair" for line in seen.splitlines())


async def test_a_wait_is_named_by_the_first_status_that_is_asked_for(
    here: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    """Routers say for how long statuses have shown it, so the first look cannot know."""
    looks: list[float] = []

    async def look() -> cli_status.Seen:
        looks.append(trio.current_time())
        waits = {"waits": ["router c"] if len(looks) < 3 else [], "attaches": {"waiting": 0}}
        return cli_status.Seen("pair", None, {"a": RouterView("a", 1, "127.0.0.1:5672", "log", waits)})

    await cli_status._look_twice(look)
    assert len(looks) == 2 and looks[1] - looks[0] > LASTING_S
    await cli_status._look_twice(look)
    assert len(looks) == 3


def test_a_router_alone_needs_the_addresses_that_its_neighbours_have(here: Path) -> None:
    result = oncemesh("router", "a", "pair.yaml")
    assert (result.exit_code, result.output) == (
        1,
        "Error: pair.yaml: routers.b.inter is missing or has no port, expected host:port\n",
    )
    result = oncemesh("router", "b", "pair.yaml")
    assert (result.exit_code, result.output) == (
        1,
        "Error: pair.yaml: routers.b.inter is missing or has no port, expected host:port\n",
    )
    result = oncemesh("router", "z", "pair.yaml")
    assert result.output == 'Error: there is no router "z" in pair.yaml, expected a or b\n'
