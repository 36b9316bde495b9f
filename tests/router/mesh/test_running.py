"""Stopping, starting, draining and killing routers of a mesh that is up, with stand-ins for their processes."""

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from router.mesh import launcher as launcher_module
from router.mesh.errors import RunError
from router.mesh.launcher import Launcher, LaunchError
from router.mesh.topology import load
from tests.router.mesh.launching import LINE, misbehave, write


async def test_two_routers_may_be_started_at_the_same_time(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    await mesh.stop(["a", "b"])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mesh.start, ["a"])
        nursery.start_soon(mesh.start, ["b"])
    assert len(mesh.directory.running()) == 3


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
    with pytest.raises(RunError, match="router a is running already"):
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
        "b": "killed, because it had not ended after 500ms",
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
    assert await mesh.drain("b") == "killed, because it had not ended after 500ms"
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


async def test_nobody_is_started_by_who_is_told_nothing_of_the_mesh(mesh: Launcher, tmp_path: Path) -> None:
    """Who is new to this directory may run on another host."""

    async def silent(host: str, port: int, timeout: float) -> dict[str, Any]:
        raise ConnectionRefusedError

    await mesh.up(load(write(tmp_path)))
    mesh.fetch = silent
    grown = LINE.replace("links: [", "  d: {amqp: 127.0.0.1:0}\nlinks: [[c, d], ")
    with pytest.raises(LaunchError, match="no router here answers, so the other routers of the mesh are not known"):
        await mesh.apply(load(write(tmp_path, grown)))
    assert sorted(mesh.directory.running()) == ["a", "b", "c"]


def heard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The signals that the launcher sends from now on."""
    numbers: list[int] = []
    tell = launcher_module._signal

    def note(process: psutil.Process, number: int) -> None:
        numbers.append(number)
        tell(process, number)

    monkeypatch.setattr(launcher_module, "_signal", note)
    return numbers


async def test_routers_are_told_that_all_stop_only_if_no_other_runs(
    mesh: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = heard(monkeypatch)
    await mesh.up(load(write(tmp_path)))
    await mesh.stop(["a"])
    await mesh.stop(["b", "c"])
    assert told == [signal.SIGTERM, signal.SIGQUIT, signal.SIGQUIT]


async def test_routers_of_a_mesh_on_several_hosts_are_not_told_that_all_stop(
    mesh: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = heard(monkeypatch)
    await mesh.up(load(write(tmp_path)))
    with mesh.directory.edit() as record:
        elsewhere = record.routers.pop("c")
    await mesh.stop(["a", "b"])
    with mesh.directory.edit() as record:
        record.routers["c"] = elsewhere
    assert told == [signal.SIGTERM, signal.SIGTERM]
