"""The clients of other makes go on when the leader of their queues is killed, and keep an account of that."""

import json
from pathlib import Path

from tests.interop.killed import RESUMING, Run, play
from tests.interop.resuming import require_rhea


async def test_clients_of_three_makes_go_on_when_a_leader_is_killed(tmp_path: Path) -> None:
    require_rhea()
    ending, directory = await play(Run.of("leader", 1, 1000), tmp_path)
    assert ending.clean, ending
    record = json.loads((directory.path / "chaos.json").read_text())
    for make, resumes in RESUMING.items():
        account = record["clients"][f"{make}-publisher"]
        assert account["sent"] == account["accepted"] > 0
        assert (account["missing"], account["otherwise"], account["unknown"]) == (0, 0, 0)
        assert not (resumes and account["doubled"])
