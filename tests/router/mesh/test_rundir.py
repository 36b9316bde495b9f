"""Run directories: what runs in them, and which one is meant."""

from pathlib import Path

import pytest

from router.mesh.errors import NoMeshError, RunError
from router.mesh.launcher import Launcher
from router.mesh.rundir import RunDirectory, find_run_dir
from router.mesh.topology import load
from tests.router.mesh.launching import STUB, fetch, write


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
    assert first == f"Warning: ignored: {base}/bad/mesh.json: Is a directory, expected the record of a mesh"
    assert "worse/mesh.json: not a record of a mesh" in second


async def test_the_only_running_mesh_is_found(mesh: Launcher, tmp_path: Path) -> None:
    base = mesh.directory.path
    mesh.directory = RunDirectory(base / "line")
    with pytest.raises(NoMeshError, match="no mesh is running under"):
        find_run_dir(None, base)

    await mesh.up(load(write(tmp_path)))
    assert find_run_dir(None, base).path == mesh.directory.path
    assert find_run_dir(tmp_path, base).path == tmp_path

    second = Launcher(RunDirectory(base / "second"), fetch, STUB)
    await second.up(load(write(tmp_path)))
    with pytest.raises(RunError, match=r"several meshes are running .*line.*second.*--run-dir") as several:
        find_run_dir(None, base)
    assert not isinstance(several.value, NoMeshError)  # for `doctor`, which looks at no mesh where none runs
    await second.stop(["a", "b", "c"])
    await mesh.stop(["a", "b", "c"])
    with pytest.raises(RunError, match=r"no mesh is running under .*--run-dir: .*line, .*second$"):
        find_run_dir(None, base)


def test_a_directory_without_a_mesh_and_a_damaged_record_are_told(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    with pytest.raises(RunError, match=r"no mesh\.json, expected the run directory of a mesh"):
        directory.read()
    for damaged in ("", '{"mesh": 1', '{"mesh": "m"}'):
        directory.record_path.write_text(damaged)
        with pytest.raises(
            RunError, match=r"mesh\.json: not a record of a mesh \(\w+\): .* move the file away; the next start"
        ):
            directory.read()


async def test_a_mesh_whose_damaged_record_was_moved_away_comes_up_again(mesh: Launcher, tmp_path: Path) -> None:
    await mesh.up(load(write(tmp_path)))
    await mesh.stop(["a", "b", "c"])
    mesh.directory.record_path.write_text("")
    with pytest.raises(RunError, match="move the file away"):
        await mesh.up(load(write(tmp_path)))
    mesh.directory.record_path.unlink()
    await mesh.up(load(write(tmp_path)))
    assert list(mesh.directory.running()) == ["a", "b", "c"]
