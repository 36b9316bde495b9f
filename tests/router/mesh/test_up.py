"""Starting a mesh, and what may come between, with stand-ins for the router processes."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import trio

from router.mesh.errors import RunError
from router.mesh.launcher import HalfUpError, Launcher, LaunchError
from router.mesh.listeners import listen
from router.mesh.quantities import Address
from router.mesh.rundir import RunDirectory
from router.mesh.status import look
from router.mesh.topology import load
from tests.disk import full_disk
from tests.router.mesh.launching import LINE, fetch, give_up_on, misbehave, write

OPEN = "security: {open: [amqp, inter]}\n"
ELSEWHERE = LINE.replace("c: {amqp: 127.0.0.1:0}", "c: {amqp: 192.0.2.1:0}") + OPEN


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
    path = write(tmp_path, ELSEWHERE)
    with pytest.raises(LaunchError, match=r"router c cannot listen \(amqp\) on 192\.0\.2\.1:0: Cannot assign"):
        await mesh.up(load(path))


async def test_who_starts_a_mesh_of_several_hosts_on_one_is_told_how_each_starts_its_own(
    mesh: Launcher, tmp_path: Path
) -> None:
    there = "{{amqp: 0.0.0.0:{port}, inter: 0.0.0.0:0, advertise: {name}.example.org:5671}}"
    with listen(Address("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        hosts = "\n".join(f"  {name}: {there.format(port=port, name=name)}" for name in "ab")
        path = write(tmp_path, f"mesh: hosts\nrouters:\n{hosts}\nlinks: [[a, b]]\n{OPEN}")
        with pytest.raises(LaunchError) as caught:
            await mesh.up(load(path))
    told = str(caught.value)
    assert told.endswith(f"Address already in use; each host starts its own: oncemesh router NAME {path}")


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
    give_up_on(monkeypatch, {"c": "is not in contact with a, b"})
    misbehave(mesh.directory, "c", "blind")
    with pytest.raises(
        HalfUpError,
        match=r"started and left running, but not connected after 1ms: router c is not in contact with a, b$",
    ):
        await mesh.up(load(write(tmp_path)))
    assert set(mesh.directory.running()) == {"a", "b", "c"}
    await mesh.stop(["c"])
    with pytest.raises(HalfUpError, match=r"router c is not in contact with a, b$"):
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
    with pytest.raises(RunError, match="a mesh is running here, stop it with oncemesh down"):
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


async def test_a_start_that_comes_to_nothing_leaves_no_directory(mesh: Launcher, tmp_path: Path) -> None:
    mesh.directory = RunDirectory(tmp_path / "runs" / "deep" / "line")
    path = write(tmp_path, ELSEWHERE)
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
    monkeypatch.setattr("router.disk.room.os.statvfs", lambda path: left)
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


def test_a_listener_takes_connections_before_its_router_exists() -> None:
    with listen(Address("127.0.0.1", 0)) as listener:
        socket.create_connection(listener.getsockname(), timeout=1).close()
