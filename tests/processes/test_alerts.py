"""The alerts for queues, as Prometheus judges them: each fires for what it is there for, and only then."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

ALERTS = Path(__file__).parents[2] / "docs" / "monitoring" / "alerts.yaml"
GIB = 1 << 30
CASES: list[tuple[str, dict[str, str], str, bool]] = [
    ("OncemeshSetLeaderless", {'oncemesh_set_leads{set="q0",instance="a"}': "0x90"}, "5m", True),
    (
        "OncemeshSetLeaderless",
        {'oncemesh_set_leads{set="q0",instance="a"}': "0x90", 'oncemesh_set_leads{set="q0",instance="b"}': "1x90"},
        "5m",
        False,
    ),
    ("OncemeshFollowerBehind", {'oncemesh_set_behind_entries{set="q0",instance="a"}': "2000x90"}, "10m", True),
    ("OncemeshFollowerBehind", {'oncemesh_set_behind_entries{set="q0",instance="a"}': "2000 2000 9x90"}, "10m", False),
    ("OncemeshQueuesGrow", {'oncemesh_set_messages{set="q0",instance="a"}': "0+200x90"}, "60m", True),
    ("OncemeshQueuesGrow", {'oncemesh_set_messages{set="q0",instance="a"}': "9000x90"}, "60m", False),
    ("OncemeshQueuesGrow", {'oncemesh_set_messages{set="q0",instance="a"}': "9000-90x90"}, "60m", False),
    (
        "OncemeshSetNearlyFull",
        {
            'oncemesh_set_message_bytes{set="q0",instance="a"}': f"{7 * GIB}x90",
            'oncemesh_set_limit_bytes{set="q0",instance="a"}': f"{8 * GIB}x90",
        },
        "5m",
        True,
    ),
    (
        "OncemeshSetNearlyFull",
        {
            'oncemesh_set_message_bytes{set="q0",instance="a"}': f"{6 * GIB}x90",
            'oncemesh_set_limit_bytes{set="q0",instance="a"}': f"{8 * GIB}x90",
        },
        "5m",
        False,
    ),
    ("OncemeshDeadLetters", {'oncemesh_set_dead_total{set="q0",instance="a"}': "0x5 1x90"}, "10m", True),
    ("OncemeshDeadLetters", {'oncemesh_set_dead_total{set="q0",instance="a"}': "7x90"}, "30m", False),
    ("OncemeshDeadLettersStuck", {'oncemesh_set_outbox_messages{set="q0",instance="a"}': "3x90"}, "10m", True),
    ("OncemeshDeadLettersStuck", {'oncemesh_set_outbox_messages{set="q0",instance="a"}': "3 0x90"}, "10m", False),
    ("OncemeshReplicasWait", {'oncemesh_replicas_waiting{instance="a"}': "1x9"}, "1m", True),
    (
        "OncemeshDiskNearlyFull",
        {
            'oncemesh_disk_free_bytes{instance="a"}': f"{4 * GIB}x90",
            'oncemesh_disk_bytes{instance="a"}': f"{100 * GIB}x90",
        },
        "5m",
        True,
    ),
    (
        "OncemeshDiskNearlyFull",
        {
            'oncemesh_disk_free_bytes{instance="a"}': f"{40 * GIB}x90",
            'oncemesh_disk_bytes{instance="a"}': f"{100 * GIB}x90",
        },
        "5m",
        False,
    ),
]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's prometheus) is not installed")
@pytest.mark.parametrize(("alert", "series", "at", "fires"), CASES)
async def test_an_alert_fires_for_what_it_is_there_for(
    alert: str, series: dict[str, str], at: str, fires: bool, tmp_path: Path
) -> None:
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    asked = {"alertname": alert, "eval_time": at, "exp_alerts": []}
    case: dict[str, Any] = {"interval": "1m", "input_series": inputs, "alert_rule_test": [asked]}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": [case]}))
    told = await trio.run_process(
        ["promtool", "test", "rules", str(tmp_path / "case.yaml")],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert (told.returncode != 0) == fires, "promtool is told that nothing fires"
    assert not fires or f"alertname: {alert}" in (told.stdout + told.stderr).decode()
