"""`python -m tests.bench.audit [--follow] [EVENTS...]`: time and memory that the audit needs for synthetic logs.

The time is that of the whole command, including the start of Java. The memory is the largest sampled sum over its
processes (command, Java, Python workers); pages that they share count once. On a busy machine, compare processor times.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attrs
import psutil

from tests.failover.audit import synthetic

SAMPLE_S = 0.5
DAILY = 324_000, 1_000_000
"""Microseconds between rounds and in a block: some 2,300 events a second, 200 million in 24 hours, like routers under
that load.
"""
COMMAND = "import sys; from router.cli.main import main; main(['audit', sys.argv[1]])"
FOLLOW = """
import sys, time
from failover.audit.follow import Follower
follower = Follower([sys.argv[1]])
while not follower.step(time.time_ns() // 1000).caught_up:
    pass
sys.exit(follower.finish(time.time_ns() // 1000).exit_code)
"""
"""A continuous audit that starts when all logs are written: as fast as it can."""


@attrs.define
class Usage:
    seconds: float = 0.0
    processor_s: float = 0.0
    peak_bytes: int = 0
    exit_code: int = -1


def measure(directory: Path, command: str = COMMAND) -> Usage:
    begun, usage = time.monotonic(), Usage()
    with subprocess.Popen([sys.executable, "-c", command, str(directory)], stdout=subprocess.DEVNULL) as process:
        root, spent = psutil.Process(process.pid), dict[int, float]()
        while process.poll() is None:
            sample(root, spent, usage)
            time.sleep(SAMPLE_S)
    usage.seconds, usage.processor_s = time.monotonic() - begun, sum(spent.values())
    usage.exit_code = process.returncode
    return usage


def sample(root: psutil.Process, spent: dict[int, float], usage: Usage) -> None:
    held = 0
    try:
        for process in (root, *root.children(recursive=True)):
            held += process.memory_full_info().pss
            times = process.cpu_times()
            spent[process.pid] = times.user + times.system
    except psutil.NoSuchProcess:
        return
    usage.peak_bytes = max(usage.peak_bytes, held)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.audit", description=__doc__)
    parser.add_argument("events", nargs="*", type=int, default=[2_000_000, 20_000_000, 40_000_000])
    parser.add_argument("--follow", action="store_true", help="by a continuous audit")
    options = parser.parse_args()
    if options.follow:
        synthetic.ROUND_US, synthetic.FLUSH_US = DAILY
    for events in options.events:
        with tempfile.TemporaryDirectory() as folder:
            written = synthetic.write(Path(folder), events)
            usage = measure(Path(folder), FOLLOW if options.follow else COMMAND)
        print(
            f"{written:,} events: {usage.seconds:.0f} s, {usage.processor_s:.0f} s of processor, "
            f"{usage.peak_bytes / 2**30:.1f} GiB, exit status {usage.exit_code}",
            flush=True,
        )


if __name__ == "__main__":
    main()
