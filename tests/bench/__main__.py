"""`make bench`: messages/s, processor time and latency of meshes, as ratios to a bare line in the same run.

The bare line (`tests/bench/bare`) runs beside the mesh, and both are loaded in turn: figures of different hours differ
by far more than those of one run. The load comes from `amqpload.c`, which takes about 3 µs a message, so the bench does
not measure a client. It prints medians of the runs, and in brackets the smallest and the largest ratio of a run.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from typing import Any

import attrs
import psutil
from rich.console import Console
from rich.table import Table

from tests.bench.load import Load, Routers, bare, build, finished, measure, mesh, started

SECOND = ("--second",)
IDLE_S = 10.0
Figures = dict[str, float]
"""The figures of one run: `msg_s`, `cpu` (µs a message, over all routers), `p50`, `p99`, `pause` (ms, the longest time
without a delivery). Idle: `idle` (% of a core that a router takes, on average)."""


@attrs.frozen
class Case:
    """Loads that run at once on one mesh; without loads it is idle. `yardstick`: the bare mesh that gets the same
    load."""

    mesh: str
    title: str
    loads: tuple[Load, ...]
    yardstick: str = ""

    @property
    def name(self) -> str:
        return f"{self.mesh}, {self.title}"


def line(title: str, count: int, *options: str, to: str = "c", size: int = 100, window: int = 1000) -> Case:
    """A load from a to subscribers at `to`."""
    yardstick = "line" if set(to) == {"c"} else ""
    return Case("line", title, (Load(tuple(to), (*SECOND, *options), count, size, window),), yardstick)


def single(title: str, count: int, *options: str, subscribers: int = 1) -> Case:
    return Case("single", title, (Load(("a",) * subscribers, (*SECOND, *options), count),), "single")


def queue(title: str, count: int, *options: str) -> Case:
    """A load from a through a queue, which all three routers keep on disk, to a consumer at c."""
    load = Load(("c",), (*SECOND, *options), count, size=1000, address="queue/bench")
    return Case("queues", f"1 kB, {title}", (load,))


def spread(publishers: int) -> Case:
    """Loads of publishers at different routers, each with a subscriber there and a topic."""
    names = "abcd"[:publishers]
    loads = tuple(Load((name,), SECOND, 40_000, publisher=name, address=f"topic/{name}") for name in names)
    return Case("ring", f"publishers at {publishers} routers", loads)


CASES = (
    single("full load", 100_000),
    single("full load, 3 subscribers", 60_000, subscribers=3),
    single("500 msg/s", 2_500, "--rate", "500"),
    line("full load", 100_000),
    line("full load, subscribers at a, b and c", 60_000, to="abc"),
    line("full load, 20 subscribers at c", 15_000, to=20 * "c"),
    *(Case("line", f"full load, {what}", (Load(("c",), (*SECOND, option)),))
      for what, option in (("a property", "--property"), ("a filter that passes half", "--half"))),
    Case("line", "full load, mode first, 1 KiB", (Load(("c",), (), size=1024),), "line"),
    *(
        line(f"{rate:,} msg/s", min(5 * rate, 50_000), "--rate", str(rate))
        for rate in (50, 500, 5_000, 20_000)
    ),
    line("full load, 4 KiB", 50_000, size=4 << 10),
    line("full load, 64 KiB", 8_000, size=64 << 10),
    line("full load, 1 MiB", 500, size=1 << 20, window=100),
    *map(spread, (1, 2, 4)),
    queue("full load", 30_000),
    queue("500 msg/s", 2_500, "--rate", "500"),
    Case("ring-3", "idle", ()),
    Case("ring-24", "idle", ()),
)  # fmt: skip


def run(case: Case, routers: Routers) -> Figures:
    """Run all loads of the case at once."""
    if not case.loads:
        return {"idle": idle(routers)}
    results = [finished(load, process) for load, process in [(load, started(load, routers)) for load in case.loads]]
    total = sum(load.count for load in case.loads)
    spent = max(
        sum(result[f"cpu_{name}"] * load.count for name in routers)
        for result, load in zip(results, case.loads, strict=True)
    )
    latency = [result["lat_us"] for result in results]
    return {
        "msg_s": sum(result["msg_s"] for result in results),
        "cpu": spent / total,
        "p50": max(ranks["p50"] for ranks in latency),
        "p99": max(ranks["p99"] for ranks in latency),
        "pause": max(result["max_gap_ms"] for result in results),
    }


def idle(routers: Routers) -> float:
    processes = [psutil.Process(router["pid"]) for router in routers.values()]
    before = busy(processes)
    time.sleep(IDLE_S)
    return 100 * (busy(processes) - before) / IDLE_S / len(processes)


def busy(processes: Iterable[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def compared(case: Case, runs: int) -> dict[str, list[Figures]]:
    """The figures of each run: `ours`, and `bare` if there is a yardstick, in turn. The first run of each does not
    count."""
    with ExitStack() as stack:
        sides = {"ours": stack.enter_context(mesh(case.mesh))}
        if case.yardstick:
            sides["bare"] = stack.enter_context(bare(case.yardstick))
        for routers in sides.values():
            for load in case.loads:
                measure(attrs.evolve(load, count=min(load.count, 1_000), options=()), routers)
        found: dict[str, list[Figures]] = {side: [] for side in sides}
        for _ in repeat(None, runs):
            for side, routers in sides.items():
                found[side].append(run(case, routers))
    return found


# the output


def median(figures: Sequence[Figures], name: str) -> float:
    return statistics.median(each[name] for each in figures)


def ratios(found: Mapping[str, Sequence[Figures]], name: str) -> list[float]:
    """The ratio of ours to bare, run by run."""
    pairs = zip(found["ours"], found.get("bare", ()), strict=False)
    return [ours[name] / beside[name] for ours, beside in pairs]


def shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})" if values else ""


def row(case: Case, found: Mapping[str, Sequence[Figures]]) -> Iterator[str]:
    """A row of the table: absolute figures, then ratios."""
    yield case.name
    ours = found["ours"]
    if "idle" in ours[0]:
        yield from ("", f"{median(ours, 'idle'):.2f} %", *repeat("", 6))
        return
    yield f"{median(ours, 'msg_s'):,.0f}"
    yield f"{median(ours, 'cpu'):,.1f}"
    for name in ("p50", "p99"):
        yield f"{median(ours, name):,.0f}"
    yield f"{median(ours, 'pause'):.0f}"
    for name in ("msg_s", "cpu", "p50"):
        yield shown(ratios(found, name))


COLUMNS = (
    "case (mode second, 100 B unless said)", "msg/s", "CPU-µs/msg", "p50 µs", "p99 µs", "pause ms",
    "msg/s to bare", "CPU to bare", "p50 to bare",
)  # fmt: skip


def comparison(now: Mapping[str, Any], then: Mapping[str, Any]) -> Table:
    """A table of the ratios to the bare line in two files. These compare even between different hours, unlike absolute
    figures.
    """
    table = Table(
        "case: ours to bare", *(f"{name}, {when}" for name in ("msg/s", "CPU", "p50") for when in ("then", "now"))
    )
    for name in now:
        if "bare" in now[name] and "bare" in then.get(name, ()):
            columns = [shown(ratios(found[name], what)) for what in ("msg_s", "cpu", "p50") for found in (then, now)]
            table.add_row(name, *columns)
    return table


def machine() -> str:
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each case, default 5")
    parser.add_argument("--only", default="", help="only cases in whose name this is, as 'line, 500'")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of every run there")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="show the ratios beside those of such a file")
    options = parser.parse_args()
    build()
    console = Console(width=None if sys.stdout.isatty() else 170)
    table, found = Table(*COLUMNS), dict[str, dict[str, list[Figures]]]()
    for case in CASES:
        if options.only in case.name:
            found[case.name] = compared(case, options.runs)
            table.add_row(*row(case, found[case.name]))
    console.print(table)
    console.print(f"medians of {options.runs} runs; {machine()}; the load generator shares the machine")
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine(), "cases": found}, indent=1))
    if options.compare is not None:
        console.print(comparison(found, json.loads(options.compare.read_text())["cases"]))


if __name__ == "__main__":
    main()
