"""Routers for the clients of others: a line and a triangle that nobody harms, a triangle for each test that kills."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, running


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("line", tmp_path_factory.mktemp("line")) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def triangle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("triangle", tmp_path_factory.mktemp("triangle")) as mesh:
        yield mesh


@pytest.fixture
def own_triangle(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("triangle", tmp_path) as mesh:
        yield mesh


@pytest.fixture
def clients(nursery: trio.Nursery) -> Clients:
    return Clients(nursery)
