"""`python -m tests.bench.sets`: what replica sets cost, on the mesh `topologies/queues.yaml`.

log     Entries of 100 bytes and of 1 kB, in one set and in eight, with 1 and 100 under way in each set: how many a
        second three routers decide, and how much processor time all of them take for an entry. Beside it one process
        appends the same entries to a file on the same disk, and syncs after each, or after each hundred.
idle    Nobody asks for anything: how much processor time the three routers take, with sets and without, and how much
        memory they have before and after 10,000 queues are declared.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final

import psutil
import trio
import yaml

from router.mesh.launcher import ROUTER_COMMAND
from tests.bench.declares import check, declare
from tests.processes.mesh import RunningMesh, eventually

SIZES: Final = (100, 1000)
SETS: Final = (1, 8)
UNDER_WAY: Final = (1, 100)
QUEUES: Final = 10_000
RATE: Final = 300.0
"""Declares a second."""
KIB: Final = 1024


@contextmanager
def mesh_of(folder: Path, sets: int | None, command: Sequence[str] = ROUTER_COMMAND) -> Iterator[RunningMesh]:
    """A mesh with this many sets; None: without queues."""
    mesh = RunningMesh("queues", folder, {}, command)
    plan = yaml.safe_load(mesh.plan.read_text())
    if sets is None:
        del plan["queues"]
        plan["addresses"] = [rule for rule in plan["addresses"] if rule["kind"] != "queue"]
    else:
        plan["queues"]["sets"] = sets
    mesh.plan.write_text(yaml.safe_dump(plan))
    try:
        yield mesh
    finally:
        mesh.end()


# the log


def decided(sets: int, size: int, under_way: int, seconds: float) -> str:
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        load = ("tests.bench.logged_router", folder, str(under_way), str(size), str(seconds))
        with mesh_of(at, sets, (sys.executable, "-m", *load)) as mesh:
            told = trio.run(_told, mesh, at)
    rate = sum(one["decided"] / one["seconds"] for one in told)
    cpu = sum(one["cpu_s"] / one["seconds"] for one in told)
    return f"{rate:9,.0f} entries/s  {cpu / rate * 1e6:7.1f} µs of processor an entry"


async def _told(mesh: RunningMesh, folder: Path) -> list[dict[str, Any]]:
    await mesh.up()
    files = [folder / f"{router}.json" for router in mesh.routers]

    async def are_written() -> bool:
        return all(file.exists() for file in files)

    await eventually(are_written)
    return [json.loads(file.read_text()) for file in files]


def appended(size: int, at_once: int, seconds: float) -> str:
    """The rate of one process that only appends."""
    entry, count = bytes(size), 0
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "wb", buffering=0) as file:
        began, spent = time.monotonic(), time.process_time()
        while time.monotonic() - began < seconds:
            file.write(entry * at_once)
            os.fdatasync(file.fileno())
            count += at_once
        took, cpu = time.monotonic() - began, time.process_time() - spent
    return f"{count / took:9,.0f} entries/s  {cpu / count * 1e6:7.1f} µs of processor an entry"


def log(seconds: float) -> None:
    for size in SIZES:
        for at_once in UNDER_WAY:
            print(f"{size:5} B  bare file, {at_once:3} a sync      {appended(size, at_once, seconds)}", flush=True)
        for sets, under_way in product(SETS, UNDER_WAY):
            found = decided(sets, size, under_way, seconds)
            print(f"{size:5} B  {sets} sets, {under_way:3} under way each  {found}", flush=True)


# idle


def idle(seconds: float) -> None:
    for sets in (None, 8):
        with tempfile.TemporaryDirectory() as folder, mesh_of(Path(folder), sets) as mesh:
            trio.run(_idle, mesh, sets, seconds)


async def _idle(mesh: RunningMesh, sets: int | None, seconds: float) -> None:
    await mesh.up()
    what = "no sets" if sets is None else f"{sets} sets"
    await _look(mesh, what, seconds)
    if sets is not None:
        told = await declare(mesh, [f"queue/{number}" for number in range(QUEUES)], RATE)
        await check(mesh, told)
        await _look(mesh, f"{what}, {len(told.ids):,} queues", seconds)


async def _look(mesh: RunningMesh, what: str, seconds: float) -> None:
    """Measure all three routers while no client asks for anything."""
    routers = [psutil.Process(mesh.pid(router)) for router in mesh.routers]
    await trio.sleep(seconds / 2)  # earlier requests have come to rest
    before = [_cpu(router) for router in routers]
    await trio.sleep(seconds)
    cpu = sum(_cpu(router) - was for router, was in zip(routers, before, strict=True)) / seconds
    memory = [router.memory_info().rss / KIB for router in routers]
    mean = sum(memory) / len(memory)
    print(f"{what}: {cpu * 1000:.1f} ms of processor a second, {mean:,.0f} KiB a router", flush=True)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sets", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("part", nargs="*", choices=["log", "idle"], default=["log", "idle"])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (default: %(default)g)")
    asked = parser.parse_args()
    for part in asked.part:
        {"log": log, "idle": idle}[part](asked.seconds)


if __name__ == "__main__":
    main()
