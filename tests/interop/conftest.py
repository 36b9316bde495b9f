"""Routers for the clients of other makers: those of the process tests, a line and a mesh with queues."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.conftest import clients, own_triangle, triangle
from tests.processes.mesh import RunningMesh, running

__all__ = ["clients", "line", "own_queues", "own_triangle", "queues", "triangle"]


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("queues", tmp_path_factory.mktemp("queues")) as mesh:
        yield mesh


@pytest.fixture
def own_queues(tmp_path: Path) -> Iterator[RunningMesh]:
    """A mesh with queues for one test, which may do anything to it."""
    with running("queues", tmp_path) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("line", tmp_path_factory.mktemp("line")) as mesh:
        yield mesh
