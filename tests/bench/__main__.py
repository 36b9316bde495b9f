"""`make bench`: messages/s, CPU-µs per message and router, and latency, for single, line and triangle.

The load comes from `amqpload.c` (qpid-proton C, about 3 µs a message), so that it is not a client that is measured.
Each case runs on a mesh started for it, several times; medians are printed. Figures of one machine compare with
figures of the same machine only.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BINARY = ROOT / "build" / "amqpload"
LIBRARIES = ("-l:libqpid-proton-core.so.10", "-l:libqpid-proton-proactor.so.1")
ADDRESS = "topic/bench"


@attrs.frozen
class Case:
    """One load on one mesh: where the publisher and the subscribers attach, and what `amqpload` is told."""

    topology: str
    subscribers: tuple[str, ...]
    title: str
    options: tuple[str, ...] = ("--second",)
    count: int = 100_000
    size: int = 100
    publisher: str = "a"


def paced(topology: str, subscriber: str, rate: int) -> Case:
    """So many messages a second, for some seconds: where it is quiet, what counts is latency and processor time."""
    options = ("--second", "--rate", str(rate))
    return Case(topology, (subscriber,), f"mode second, {rate:,} msg/s", options, count=min(5 * rate, 50_000))


CASES = (
    Case("single", ("a",), "mode second, 1 subscriber"),
    Case("single", ("a", "a", "a"), "mode second, 3 subscribers", count=60_000),
    paced("single", "a", 500),
    Case("line", ("c",), "mode second, 1 subscriber at c"),
    Case("line", ("c",), "mode first, 1 KiB, 1 subscriber at c", (), size=1024),
    Case("line", ("a", "b", "c"), "mode second, one subscriber on each", count=60_000),
    *(paced("line", "c", rate) for rate in (50, 500, 5_000, 20_000)),
    Case("triangle", ("b", "c"), "mode second, subscribers at b and c", count=60_000),
    paced("triangle", "c", 500),
)


def build() -> None:
    """Compile the load generator; says what to install where that fails."""
    source = HERE / "amqpload.c"
    if BINARY.exists() and BINARY.stat().st_mtime > source.stat().st_mtime:
        return
    BINARY.parent.mkdir(exist_ok=True)
    compiler = shutil.which("cc") or shutil.which("gcc")
    command = [compiler or "cc", "-O2", "-w", "-o", str(BINARY), str(source), *LIBRARIES]
    if compiler is None or subprocess.run(command, check=False).returncode:
        sys.exit("bench: the load generator needs a C compiler and qpid-proton; on Debian: make bench-tools (as root)")


@contextmanager
def mesh(topology: str) -> Iterator[dict[str, Any]]:
    """A running mesh on free ports; yields the routers of its mesh.json."""
    oncemesh = [str(Path(sys.executable).with_name("oncemesh"))]
    with tempfile.TemporaryDirectory() as directory:
        plan = Path(directory) / f"{topology}.yaml"
        plan.write_text(with_free_ports((ROOT / "topologies" / plan.name).read_text()))
        run_dir = Path(directory) / "run"
        subprocess.run(
            [*oncemesh, "up", str(plan), "--run-dir", str(run_dir), "--detach"], check=True, capture_output=True
        )
        try:
            yield json.loads((run_dir / "mesh.json").read_text())["routers"]
        finally:
            subprocess.run([*oncemesh, "down", "--run-dir", str(run_dir)], check=True, capture_output=True)


def with_free_ports(topology: str) -> str:
    """The topology's text with every client listener on a free port."""
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", topology)


def measure(case: Case, routers: dict[str, Any]) -> dict[str, Any]:
    """One run of the load; raises if anything was lost or doubled, for then its speed means nothing."""
    command = [str(BINARY), "--pub", f"{routers[case.publisher]['amqp']}/{ADDRESS}"]
    for name in case.subscribers:
        command += ["--sub", f"{routers[name]['amqp']}/{ADDRESS}"]
    for name, router in routers.items():
        command += ["--pid", f"{name}={router['pid']}"]
    command += [
        "-n",
        str(case.count),
        "-s",
        str(case.size),
        "-w",
        "1000",
        "-c",
        "1000",
        "--timeout",
        "120",
        *case.options,
    ]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    wrong = {name: result[name] for name in ("lost_accepted", "dup", "out_of_order") if result[name]}
    if wrong or result["accepted"] != case.count:
        sys.exit(f"bench: {case.topology}, {case.title}: {wrong}, {result['accepted']} of {case.count} accepted")
    return result


def row(case: Case, results: list[dict[str, Any]], routers: dict[str, Any]) -> list[str]:
    cpu = [statistics.median(result[f"cpu_{name}"] for result in results) for name in routers]
    rate = statistics.median(result["msg_s"] for result in results)
    p50, p99 = (statistics.median(result["lat_us"][rank] for result in results) for rank in ("p50", "p99"))
    costs = " + ".join(f"{cost:.1f}" for cost in cpu)
    return [case.topology, case.title, f"{rate:,.0f}", costs, f"{p50:,.0f}", f"{p99:,.0f}"]


def machine() -> str:
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each case, default 3")
    parser.add_argument("--only", default="", help="only cases whose topology and title contain this")
    options = parser.parse_args()
    build()
    table = Table("mesh", "load (100 B unless said)", "messages/s", "CPU-µs per message, by router", "p50 µs", "p99 µs")
    for case in CASES:
        if options.only in f"{case.topology} {case.title}":
            with mesh(case.topology) as routers:
                results = [measure(case, routers) for _ in range(options.runs)]
            table.add_row(*row(case, results, routers))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    console.print(f"medians of {options.runs} runs; {machine()}; the load generator shares the machine")


if __name__ == "__main__":
    main()
