"""A line of routers for the clients of others."""

from collections.abc import Iterator

import pytest
import trio

from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, running


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("line", tmp_path_factory.mktemp("line")) as mesh:
        yield mesh


@pytest.fixture
def clients(nursery: trio.Nursery) -> Clients:
    return Clients(nursery)
