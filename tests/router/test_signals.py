"""Signals that come before a router can take them."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.hangs import HANGS_S
from tests.router.test_router_alone import Routers, routers, topology

__all__ = ["routers", "topology"]

EARLY = """\
import os, runpy, signal, sys
class Sender:
    def find_spec(self, name, *_):
        if name == "router.cli.base":
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Sender())
{start}
"""
STARTS = {
    "python -m router": 'runpy.run_module("router", run_name="__main__", alter_sys=True)',
    "oncemesh router": 'sys.argv.insert(1, "router"); from router.cli.main import main; main()',
}


@contextmanager
def started(program: str, routers: Routers) -> Iterator[subprocess.Popen[str]]:
    """Once it serves. `a` waits for nobody's answer before that."""
    command = [sys.executable, "-P", "-c", program, "a", str(routers.topology)]
    folder = routers.topology.parent
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        routers.processes["a"] = process
        assert process.stderr is not None
        assert any("router a of mesh pair serves" in line for line in process.stderr)
        yield process


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_that_comes_early_is_taken_when_the_router_is_there(
    routers: Routers, start: str, number: signal.Signals
) -> None:
    with started(EARLY.format(number=int(number), start=start), routers) as process:
        if number != signal.SIGUSR1:  # which drains it
            process.terminate()
        process.communicate(timeout=HANGS_S)
    assert process.returncode == 0
