"""Runs of chaos in which every router is on a host of its own: real processes, real interfaces, packets that get lost.

Each is a command of its own: who goes to another namespace takes threads with it, and tests share one process.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from router.mesh.rundir import RunDirectory
from tests.failover.chaos.scripts import write
from tests.failover.chaos.test_run import PATIENCE_S, ROOT, nothing_left
from tests.failover.chaos.test_wire import needs_hosts
from tests.left import processes_of

__all__ = ["nothing_left"]

BASE = ("slow: all, latency: 20ms, at: 10ms", "lossy: all, loss: 1%, at: 10ms")


def command(path: Path, *options: str) -> "subprocess.Popen[str]":
    program = [sys.executable, "-P", "-c", "from router.cli.main import main; main()", "chaos", str(path), *options]
    return subprocess.Popen(
        [*program, "--run-dir", str(path.parent / "run"), "--seed", "7"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended without: {text}")


@needs_hosts
def test_five_hosts_with_20_ms_and_1_percent_loss_between_them_hold_through_kills_and_cuts(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        *BASE,
        "kill: {home-of: news}, at: 1s, for: 1s",
        "cut: [a-b, a-e], at: 3s, for: 3s",
        "cut: c-d, how: reset, at: 4s, for: 1s",
        "flaky: all, resets: 1/s, at: 6s, for: 2s",
        "narrow: all, rate: 1MB/s, at: 6s, for: 1s",
        "partition: minority, at: 8s, for: 2500ms",
        "pause: {custodian-of: reader1}, at: 9s, for: 1500ms",
        topology="ring",
        duration="12s",
    )
    with command(path, "--namespaces") as process:
        out, errors = process.communicate(timeout=6 * PATIENCE_S)
    assert process.returncode == 0, out + errors
    record = json.loads((tmp_path / "run" / "chaos.json").read_text())
    assert [fault["text"] for fault in record["faults"][:2]] == [
        "slow a-b, b-c, c-d, d-e, a-e (all), latency 20ms",
        "lossy a-b, b-c, c-d, d-e, a-e (all), loss 1%",
    ]
    assert len(record["faults"]) == 9 and record["crashes"] == 0 and not record["unfinished"]
    routers = RunDirectory(tmp_path / "run").read().routers
    assert [entry.amqp for entry in routers.values()] == [f"10.99.0.{4 * number + 2}:5672" for number in range(5)]
    assert "link to router b is down" in RunDirectory(tmp_path / "run").log_path("a").read_text()


@needs_hosts
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_is_ended_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """Not a process; and with its last process a namespace goes, and what was in it."""
    path = write(tmp_path, *BASE, topology="pair", duration="60s")
    before = psutil.net_if_addrs().keys()
    with command(path, "--namespaces") as process:
        until(process, "lossy")
        ours = processes_of(tmp_path)
        hosts = {os.readlink(f"/proc/{one.pid}/ns/net") for one in ours}
        process.send_signal(number)
        process.communicate()
    assert len(hosts) == 3 and os.readlink("/proc/self/ns/net") not in hosts
    _, alive = psutil.wait_procs([one for one in ours if one.pid != process.pid], timeout=PATIENCE_S)
    assert not alive
    assert psutil.net_if_addrs().keys() == before


def test_words_for_packets_need_hosts(tmp_path: Path) -> None:
    path = write(tmp_path, *BASE)
    with command(path) as process:
        out, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, "")
    assert errors == f"Error: {path}: the fault lossy acts on packets and needs --namespaces\n"
