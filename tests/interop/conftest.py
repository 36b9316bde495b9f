"""Routers for the clients of other makers: those of the process tests, and a line that no test harms."""

from collections.abc import Iterator

import pytest

from tests.processes.conftest import clients, own_triangle, triangle
from tests.processes.mesh import RunningMesh, running

__all__ = ["clients", "line", "own_triangle", "triangle"]


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("line", tmp_path_factory.mktemp("line")) as mesh:
        yield mesh
