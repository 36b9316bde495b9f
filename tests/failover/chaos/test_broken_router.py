"""A router that breaks the protocol is found out: chaos and audit say what was lost, and tell its story."""

import json
import sys
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from failover.chaos.run import Ending, perform, prepare
from failover.chaos.script.reader import load
from failover.chaos.view import PlainView
from router.cli.base import console
from router.cli.main import main
from router.mesh.rundir import RunDirectory
from tests.failover.chaos.scripts import write

ROOT = Path(__file__).parents[3]
MUTANT = "accepted_without_orphans"
RUNS = 10
"""Of which one has to lose something, and each does on a machine that has nothing else to do."""


def test_what_a_broken_router_loses_is_a_violation_with_a_story(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routers that do not wait for a subscriber whose router they lost: here, before it has noticed itself."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = write(tmp_path, "pause: {custodian-of: reader1}, at: 1s, for: 3s", duration="6s")
    path.write_text(path.read_text().replace("timing: {", "timing: {hello: 300ms, dead: 1500ms, "))
    made = load(path)
    command = (sys.executable, "-P", "-m", "tests.failover.chaos.broken_router", MUTANT)

    async def run(directory: RunDirectory) -> Ending:
        return await perform(made, 1, directory, PlainView(console()), command)

    for number in range(RUNS):  # on a busy machine its routers may lose contact before, and wait for nobody
        directory = prepare(tmp_path / f"run{number}", made)
        ending = trio.run(run, directory)
        result = CliRunner().invoke(main, ["audit", str(directory.path)])
        if ending.counts["missing"]:
            break
    assert result.exit_code == 1, result.output
    assert f"{ending.counts['missing']} lost" in result.stdout  # clients and logs agree
    [finding, *_] = json.loads((directory.path / "audit.json").read_text())["findings"]
    story = CliRunner().invoke(main, ["story", str(directory.path), finding["key"]])
    assert story.exit_code == 0 and "news" in story.stdout, story.output
