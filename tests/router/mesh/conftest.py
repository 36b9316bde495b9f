"""The launcher under test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from router.mesh.launcher import Launcher
from router.mesh.rundir import RunDirectory
from tests.router.mesh.launching import STUB, fetch


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Launcher]:
    """A launcher for an empty run directory. Routers that it leaves running end with the test."""
    launcher = Launcher(RunDirectory(tmp_path / "run"), fetch, STUB)
    yield launcher
    if launcher.directory.exists():
        for process in launcher.directory.running().values():
            process.kill()
