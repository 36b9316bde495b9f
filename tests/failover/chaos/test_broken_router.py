"""A router that breaks the protocol is found out: chaos and audit say what was lost, and tell its story."""

import json
import sys
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from failover.chaos.run import perform, prepare
from failover.chaos.view import PlainView
from router.cli import main
from router.cli_base import console
from tests.failover.chaos.scripts import script

ROOT = Path(__file__).parents[3]
MUTANT = "accepted_without_orphans"


def test_what_a_broken_router_loses_is_a_violation_with_a_story(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routers that do not wait for subscribers of a router that died."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    made = script(tmp_path, "kill: {custodian-of: reader1}, at: 1s, for: 1s", duration="3s")
    directory = prepare(tmp_path / "run", made)
    command = (sys.executable, "-P", "-m", "tests.failover.chaos.broken_router", MUTANT)

    async def run() -> None:
        await perform(made, 1, directory, PlainView(console()), command)

    trio.run(run)
    result = CliRunner().invoke(main, ["audit", str(directory.path)])
    assert result.exit_code == 1, result.output
    assert "exactly-once violated" in result.stdout
    [finding, *_] = json.loads((directory.path / "audit.json").read_text())["findings"]
    story = CliRunner().invoke(main, ["story", str(directory.path), finding["key"]])
    assert story.exit_code == 0 and "news" in story.stdout, story.output
