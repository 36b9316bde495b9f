"""Starting and stopping meshes, with stand-ins for the router processes."""

import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import trio

from router.mesh import launcher as launcher_module
from router.mesh.launcher import HalfUpError, Launcher, LaunchError
from router.mesh.listeners import listen
from router.mesh.quantities import Address
from router.mesh.rundir import RunDirectory, RunError, find_run_dir
from router.mesh.status import look
from router.mesh.topology import load
from tests.disk import full_disk

STUB = (sys.executable, str(Path(__file__).with_name("stub_router.py")))

LINE = """\
mesh: line
routers:
  a: {amqp: 127.0.0.1:0}
  b: {amqp: 127.0.0.1:0}
  c: {amqp: 127.0.0.1:0}
links: [[a, b], [b, c]]
"""


async def fetch(host: str, port: int, timeout: float) -> dict[str, Any]:
    with trio.fail_after(timeout):
        async with await trio.open_tcp_stream(host, port) as stream:
            data = b"".join([chunk async for chunk in stream])
    return dict(json.loads(data))


def write(folder: Path, text: str = LINE) -> Path:
    path = folder / "mesh.yaml"
    path.write_text(text)
    return path


def misbehave(directory: RunDirectory, name: str, how: str) -> None:
    (directory.path / name).mkdir(parents=True, exist_ok=True)
    (directory.path / name / "behaviour").write_text(how)


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Launcher]:
    """A launcher for an empty run directory; whatever it leaves running ends with the test."""
    launcher = Launcher(RunDirectory(tmp_path / "run"), fetch, STUB)
    yield launcher
    if launcher.directory.exists():
        for process in launcher.directory.running().values():
            process.kill()


async def test_up_returns_when_every_router_sees_all_others(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))

    record = json.loads(mesh.directory.record_path.read_text())
    assert record["mesh"] == "line"
    assert list(record["routers"]) == ["a", "b", "c"]
    views = await look(mesh.directory, fetch)
    for name, view in views.items():
        assert view.status is not None
        assert view.status["pid"] == view.pid == record["routers"][name]["pid"]
        assert view.status["state"] == "ready"


async def test_the_run_directory_knows_the_addresses_that_free_ports_became(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))

    topology = mesh.directory.topology()
    ports = {router.amqp.port for router in topology.routers.values()}
    ports |= {router.inter.port for router in topology.routers.values() if router.inter}
    assert len(ports) == 6
    assert 0 not in ports
    assert topology.dialled_by("a") == {"b": topology.routers["b"].inter}


async def test_a_port_that_is_taken_is_named_with_its_router_and_nothing_is_started(
    mesh: Launcher, tmp_path: Path
) -> None:
    with listen(Address("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = write(tmp_path, LINE.replace("b: {amqp: 127.0.0.1:0}", f"b: {{amqp: 127.0.0.1:{port}}}"))
        with pytest.raises(LaunchError) as caught:
            await mesh.up(load(path))
    assert str(caught.value) == f"router b cannot listen (amqp) on 127.0.0.1:{port}: Address already in use"
    assert not mesh.directory.exists()


async def test_a_host_that_is_not_ours_is_named(mesh: Launcher, tmp_path: Path) -> None:
    path = write(tmp_path, LINE.replace("c: {amqp: 127.0.0.1:0}", "c: {amqp: 192.0.2.1:0}"))
    with pytest.raises(LaunchError, match=r"router c cannot listen \(amqp\) on 192\.0\.2\.1:0: Cannot assign"):
        await mesh.up(load(path))


async def test_a_router_that_cannot_start_is_named_with_its_last_words_and_the_others_are_stopped(
    mesh: Launcher, tmp_path: Path
) -> None:
    misbehave(mesh.directory, "b", "fail")
    before = {child.pid for child in psutil.Process().children()}

    with pytest.raises(LaunchError) as caught:
        await mesh.up(load(write(tmp_path)))

    assert str(caught.value) == ("router b cannot start: exit status 1\n    the reason\n    why it failed")
    assert mesh.directory.running() == {}
    assert {child.pid for child in psutil.Process().children()} <= before


async def test_the_directory_of_another_mesh_is_left_alone(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    await mesh.stop(["a", "b", "c"])
    kept = mesh.directory.record_path.read_bytes(), mesh.directory.topology_path.read_bytes()

    with pytest.raises(RunError, match="the run directory of another mesh, line: choose one for other with --run-dir"):
        await mesh.up(load(write(tmp_path, LINE.replace("mesh: line", "mesh: other"))))

    assert kept == (mesh.directory.record_path.read_bytes(), mesh.directory.topology_path.read_bytes())


async def test_a_changed_topology_of_the_same_mesh_is_taken(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    await mesh.stop(["a", "b", "c"])
    fewer = LINE.replace("  c: {amqp: 127.0.0.1:0}\n", "").replace(", [b, c]", "")
    await mesh.up(load(write(tmp_path, fewer)))
    assert list(mesh.directory.running()) == ["a", "b"]


async def test_words_of_an_earlier_run_are_not_given_as_the_reason(mesh: Launcher, tmp_path: Path) -> None:
    misbehave(mesh.directory, "b", "fail")
    mesh.directory.log_path("b").write_text("an old line\n")
    with pytest.raises(LaunchError) as caught:
        await mesh.up(load(write(tmp_path)))
    assert "an old line" not in str(caught.value)
    assert mesh.directory.log_path("b").read_text().startswith("an old line\n")


async def test_routers_that_do_not_see_each_other_are_named_and_left_running(
    mesh: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_module, "START_S", 1.0)
    misbehave(mesh.directory, "c", "blind")
    with pytest.raises(HalfUpError, match=r"after 1\.0s not all is up, and left running: router c does not see a, b$"):
        await mesh.up(load(write(tmp_path)))
    assert set(mesh.directory.running()) == {"a", "b", "c"}
    await mesh.stop(["c"])
    with pytest.raises(HalfUpError, match=r"router c does not see a, b$"):
        await mesh.start(["c"])
    assert set(mesh.directory.running()) == {"a", "b", "c"}


async def test_giving_up_on_a_start_stops_what_was_started(mesh: Launcher, tmp_path: Path) -> None:
    misbehave(mesh.directory, "c", "blind")
    started = trio.Event()

    async def observed(host: str, port: int, timeout: float) -> dict[str, Any]:
        result = await fetch(host, port, timeout)
        started.set()
        return result

    mesh.fetch = observed
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mesh.up, load(write(tmp_path)))
        await started.wait()
        assert len(mesh.directory.running()) == 3
        nursery.cancel_scope.cancel()
    assert mesh.directory.running() == {}


async def test_a_second_mesh_in_the_same_directory_is_refused(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    with pytest.raises(LaunchError, match="a mesh is running here, stop it with oncemesh down"):
        await mesh.up(load(write(tmp_path)))
    assert len(mesh.directory.running()) == 3


@pytest.mark.parametrize("whole", [True, False])
async def test_an_up_while_another_start_is_under_way_is_refused_at_once(
    mesh: Launcher, tmp_path: Path, whole: bool
) -> None:
    refused = pytest.raises(RunError, match="another `up` or `start` is starting this mesh")
    with mesh.directory.starting(whole=whole), refused:
        await mesh.up(load(write(tmp_path)))
    await mesh.up(load(write(tmp_path)))


async def test_two_routers_may_be_started_at_the_same_time(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    await mesh.stop(["a", "b"])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mesh.start, ["a"])
        nursery.start_soon(mesh.start, ["b"])
    assert len(mesh.directory.running()) == 3


async def test_a_start_that_comes_to_nothing_leaves_no_directory(mesh: Launcher, tmp_path: Path) -> None:
    mesh.directory = RunDirectory(tmp_path / "runs" / "deep" / "line")
    path = write(tmp_path, LINE.replace("c: {amqp: 127.0.0.1:0}", "c: {amqp: 192.0.2.1:0}"))
    with pytest.raises(LaunchError):
        await mesh.up(load(path))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("place", ["file/run", "/proc/run"])
async def test_a_place_where_no_directory_can_be_is_told(mesh: Launcher, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    mesh.directory = RunDirectory(tmp_path / place)
    with pytest.raises(RunError, match="/run: cannot be a run directory: "):
        await mesh.up(load(write(tmp_path)))


async def test_a_full_disk_is_told_in_one_line_and_leaves_nothing_running(mesh: Launcher, tmp_path: Path) -> None:
    plan = load(write(tmp_path))
    with full_disk(), pytest.raises(RunError, match=r"topology\.yaml: cannot be written: File too large$"):
        await mesh.up(plan)
    await mesh.up(plan)
    with full_disk():
        assert await mesh.stop(["a", "b", "c"]) == dict.fromkeys("abc", "stopped")
        assert mesh.directory.running() == {}
        with pytest.raises(RunError, match=r"mesh\.json: cannot be written: File too large$"):
            await mesh.start(["a"])
        with pytest.raises(RunError, match=r"mesh\.json: cannot be written: File too large$"):
            mesh.begin(["a"])
    alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    assert not [child for child in alive if str(mesh.directory.path) in child.cmdline()]
    await mesh.start(["a", "b", "c"])


async def test_nothing_is_started_on_a_disk_that_is_all_but_full(
    mesh: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = SimpleNamespace(f_blocks=1000, f_frsize=4096, f_bavail=1)
    monkeypatch.setattr("router.room.os.statvfs", lambda path: left)
    with pytest.raises(RunError, match=r"run: cannot be written: No space left on device$"):
        await mesh.up(load(write(tmp_path)))


async def test_a_file_in_the_place_of_a_routers_directory_is_told(mesh: Launcher, tmp_path: Path) -> None:
    mesh.directory.make()
    (mesh.directory.path / "b").touch()
    with pytest.raises(LaunchError, match=r"^router b cannot start: .*/b: File exists$"):
        await mesh.up(load(write(tmp_path)))
    assert mesh.directory.running() == {}


async def test_an_interrupt_that_a_router_felt_first_is_an_interrupt_all_the_same(
    mesh: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has its own session, a newborn router gets the terminal's ctrl-c as the launcher does."""
    misbehave(mesh.directory, "b", "fail")
    ended = trio.Event()
    endings = Launcher.endings

    def observed(self: Launcher) -> Iterator[tuple[str, str]]:
        for ending in endings(self):
            ended.set()
            yield ending

    monkeypatch.setattr(Launcher, "endings", observed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mesh.up, load(write(tmp_path)))
        await ended.wait()
        nursery.cancel_scope.cancel()  # raises nothing: a LaunchError would come out of the nursery
    assert mesh.directory.running() == {}


async def test_stopped_routers_start_again_where_they_were(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    before = mesh.directory.read()

    assert await mesh.stop(["b", "c"]) == {"b": "stopped", "c": "stopped"}
    assert list(mesh.directory.running()) == ["a"]
    assert await mesh.stop(["b"]) == {"b": "was not running"}
    await mesh.start(["b", "c"])

    after = mesh.directory.read()
    assert len(mesh.directory.running()) == 3
    for name in ("b", "c"):
        assert after.routers[name].amqp == before.routers[name].amqp
        assert after.routers[name].inter == before.routers[name].inter
        assert after.routers[name].pid != before.routers[name].pid


async def test_a_router_cut_off_by_a_stopped_one_starts_without_seeing_everybody(
    mesh: Launcher, tmp_path: Path
) -> None:
    await mesh.up(load(write(tmp_path)))
    await mesh.stop(["b", "c"])
    await mesh.start(["c"])
    assert list(mesh.directory.running()) == ["a", "c"]


async def test_starting_what_runs_and_what_does_not_exist_is_refused(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    with pytest.raises(LaunchError, match="router a is running already"):
        await mesh.start(["a"])
    with pytest.raises(LaunchError, match='there is no router "z" in this mesh, expected a, b or c'):
        await mesh.start(["z"])
    with pytest.raises(LaunchError, match='there is no router "z" in this mesh, expected a, b or c'):
        await mesh.stop(["z"])


async def test_a_router_that_will_not_end_is_killed_and_that_is_said(
    mesh: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    misbehave(mesh.directory, "b", "stubborn")
    await mesh.up(load(write(tmp_path)))
    monkeypatch.setattr(launcher_module, "STOP_S", 0.5)
    assert await mesh.stop(["a", "b", "c"]) == {
        "a": "stopped",
        "b": "killed, it had not ended after 500ms",
        "c": "stopped",
    }
    assert mesh.directory.running() == {}


async def test_a_drained_router_has_ended_or_is_killed(
    mesh: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    misbehave(mesh.directory, "b", "stubborn")
    await mesh.up(load(write(tmp_path)))
    monkeypatch.setattr(launcher_module, "STOP_S", 0.25)
    monkeypatch.setattr(launcher_module, "DRAIN_S", 0.25)
    assert await mesh.drain("a") == "drained and stopped"
    assert await mesh.drain("a") == "was not running"
    assert await mesh.drain("b") == "killed, it had not ended after 500ms"
    assert list(mesh.directory.running()) == ["c"]


async def test_a_router_that_dies_later_is_told_once(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    victim = mesh.directory.running()["b"]
    os.kill(victim.pid, signal.SIGKILL)
    await trio.to_thread.run_sync(lambda: os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT))
    assert list(mesh.endings()) == [("b", "ended by SIGKILL")]
    assert list(mesh.endings()) == []
    assert list(mesh.directory.running()) == ["a", "c"]


async def test_a_process_that_is_not_the_router_is_never_signalled(mesh: Launcher, tmp_path: Path) -> None:
    """The pid of a router that has ended may belong to anybody by now."""
    await mesh.up(load(write(tmp_path)))
    await mesh.stop(["b"])
    with mesh.directory.edit() as record:
        record.routers["b"].pid = os.getpid()
    assert await mesh.stop(["b"]) == {"b": "was not running"}


async def test_a_router_of_another_directory_is_not_taken_for_ours(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    other = RunDirectory(tmp_path / "ru")
    other.path.mkdir()
    other.write(mesh.directory.read())
    assert other.running() == {}


async def test_a_directory_that_was_moved_while_its_routers_run_is_told(
    mesh: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await mesh.up(load(write(tmp_path)))
    old = mesh.directory.path
    new = old.rename(tmp_path / "elsewhere")
    assert find_run_dir(new).running() == {}
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 3
    assert f"{new}: router a (pid " in warnings[0]
    assert f"runs with the run directory {old}; if it was moved here, move it back" in warnings[0]
    new.rename(old)


async def test_a_broken_directory_does_not_hide_the_running_mesh(
    mesh: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = mesh.directory.path
    (base / "bad" / "mesh.json").mkdir(parents=True)
    (base / "worse").mkdir()
    (base / "worse" / "mesh.json").write_text("{")
    mesh.directory = RunDirectory(base / "line")
    await mesh.up(load(write(tmp_path)))
    assert find_run_dir(None, base).path == mesh.directory.path
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"Warning: left out: {base}/bad/mesh.json: Is a directory, expected the record of a mesh"
    assert "worse/mesh.json: not a record of a mesh" in second


async def test_the_only_running_mesh_is_found(mesh: Launcher, tmp_path: Path) -> None:
    base = mesh.directory.path
    mesh.directory = RunDirectory(base / "line")
    with pytest.raises(RunError, match="no mesh is running under"):
        find_run_dir(None, base)

    await mesh.up(load(write(tmp_path)))
    assert find_run_dir(None, base).path == mesh.directory.path
    assert find_run_dir(tmp_path, base).path == tmp_path

    second = Launcher(RunDirectory(base / "second"), fetch, STUB)
    await second.up(load(write(tmp_path)))
    with pytest.raises(RunError, match=r"several meshes are running .*line.*second.*--run-dir"):
        find_run_dir(None, base)
    await second.stop(["a", "b", "c"])
    await mesh.stop(["a", "b", "c"])
    with pytest.raises(RunError, match=r"no mesh is running under .*--run-dir: .*line, .*second$"):
        find_run_dir(None, base)


def test_a_directory_without_a_mesh_and_a_damaged_record_are_told(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    with pytest.raises(RunError, match=r"no mesh\.json, expected the run directory of a mesh"):
        directory.read()
    directory.record_path.write_text('{"mesh": 1')
    with pytest.raises(RunError, match=r"mesh\.json: not a record of a mesh"):
        directory.read()
    directory.record_path.write_text('{"mesh": "m"}')
    with pytest.raises(RunError, match=r"mesh\.json: not a record of a mesh"):
        directory.read()


def test_a_listener_takes_connections_before_its_router_exists() -> None:
    with listen(Address("127.0.0.1", 0)) as listener:
        socket.create_connection(listener.getsockname(), timeout=1).close()


async def test_routers_can_be_begun_without_waiting_for_what_they_lack(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    await mesh.stop(["b", "c"])
    misbehave(mesh.directory, "b", "blind")
    mesh.begin(["b"], clock_offset=-2.5)
    process = mesh.directory.running()["b"]
    assert process.cmdline()[-2:] == ["--clock-offset", "-2.5"]
    assert set(mesh.directory.running()) == {"a", "b"}
    mesh.begin(["c"])
    assert "--clock-offset" not in mesh.directory.running()["c"].cmdline()


async def test_a_kill_waits_for_the_end_and_is_no_ending_that_surprises(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    mesh.directory.running()["b"].suspend()
    assert await mesh.kill(["a", "b"]) == {"a": "killed", "b": "killed"}
    assert set(mesh.directory.running()) == {"c"}
    assert list(mesh.endings()) == []
    assert await mesh.kill(["a"]) == {"a": "was not running"}
