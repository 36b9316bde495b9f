"""Meshes of router processes. A mesh that no test of a file harms is started once for that file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, running


@pytest.fixture(scope="module")
def triangle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("triangle", tmp_path_factory.mktemp("triangle")) as mesh:
        yield mesh


@pytest.fixture
def own_triangle(tmp_path: Path) -> Iterator[RunningMesh]:
    """A triangle for one test, which may do anything to it."""
    with running("triangle", tmp_path) as mesh:
        yield mesh


@pytest.fixture
def hasty_triangle(tmp_path: Path) -> Iterator[RunningMesh]:
    """A triangle for a test of peers that fall silent: a router gives them up after twice `idle`."""
    with running("triangle", tmp_path, idle="2s") as mesh:
        yield mesh


@pytest.fixture
def own_ring(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("ring", tmp_path) as mesh:
        yield mesh


@pytest.fixture
def clients(nursery: trio.Nursery) -> Clients:
    return Clients(nursery)


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Show a measured figure, whether or not the test fails."""

    def show(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}")

    return show
