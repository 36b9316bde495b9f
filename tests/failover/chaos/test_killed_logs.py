"""Routers are killed under load: their logs have lost nothing."""

from pathlib import Path

from failover.audit import Verdict
from failover.audit import run as audit
from tests.bench.killed import differences, play


async def test_no_logged_event_is_lost(tmp_path: Path) -> None:
    """`python -m tests.bench.killed` does it twenty times."""
    directory = await play(tmp_path, kills=2, seed=3)
    report = audit([str(directory.path)])
    assert list(differences(directory, report)) == []
    assert report.verdict is Verdict.HOLDS, report.as_json()
