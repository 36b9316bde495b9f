"""The run directory of a mesh: who runs where, which process is which router, where everything is kept.

    DIR/mesh.json          written by the launcher, read by routers, commands, scripts and the audit
    DIR/topology.yaml      a copy of the topology, so that later commands need DIR alone
    DIR/<router>/router.log, DIR/<router>/log/ (delivery log), DIR/<router>/state.db
    DIR/clients/<name>/log/

A process id in mesh.json is only ever a claim: before a process is looked at or signalled its command line
must name this router and this directory. Never starts or stops anything itself.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import attrs
import cattrs
import psutil

from router.config import Topology
from router.quantities import Address
from router.topology import load


class RunError(Exception):
    """What a command asked of a run directory cannot be done, with the reason."""


@attrs.define
class RouterEntry:
    pid: int | None
    """None while the router is stopped."""
    amqp: str
    inter: str
    log: str


@attrs.define
class MeshRecord:
    """The contents of mesh.json."""

    mesh: str
    topology: str
    routers: dict[str, RouterEntry]


class RunDirectory:
    def __init__(self, path: Path):
        self.path = path.resolve()
        self.record_path = self.path / "mesh.json"
        self.topology_path = self.path / "topology.yaml"

    def exists(self) -> bool:
        return self.record_path.exists()

    def log_path(self, name: str) -> Path:
        return self.path / name / "router.log"

    def read(self) -> MeshRecord:
        try:
            return cattrs.structure(json.loads(self.record_path.read_text()), MeshRecord)
        except FileNotFoundError:
            raise RunError(f"{self.path}: no mesh.json, expected the run directory of a mesh") from None
        except (ValueError, cattrs.BaseValidationError) as error:
            raise RunError(f"{self.record_path}: not a record of a mesh ({type(error).__name__})") from None

    def write(self, record: MeshRecord) -> None:
        """Replaces mesh.json at once: readers see the old one or the new one, never half."""
        fresh = self.record_path.with_suffix(".new")
        fresh.write_text(json.dumps(cattrs.unstructure(record), indent=1) + "\n")
        os.replace(fresh, self.record_path)

    @contextmanager
    def edit(self) -> Iterator[MeshRecord]:
        """The record, written back afterwards; commands that run at the same time take turns."""
        with (self.path / "mesh.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            record = self.read()
            yield record
            self.write(record)

    def topology(self) -> Topology:
        """The topology with the addresses that this run really uses in the place of free ports."""
        entries = self.read().routers
        topology = load(self.topology_path)
        if entries.keys() != topology.routers.keys():
            raise RunError(f"{self.path}: mesh.json and topology.yaml do not name the same routers")
        routers = {
            name: attrs.evolve(router, amqp=Address.parse(entries[name].amqp), inter=Address.parse(entries[name].inter))
            for name, router in topology.routers.items()
        }
        return attrs.evolve(topology, routers=routers)

    def process(self, name: str, entry: RouterEntry) -> psutil.Process | None:
        """The process that runs this router, None if it does not run."""
        if entry.pid is None:
            return None
        try:
            process = psutil.Process(entry.pid)
            arguments = process.cmdline()  # an error or empty for one that has ended and is not reaped
        except psutil.Error:
            return None
        ours = name in arguments and ("--run-dir", str(self.path)) in pairwise(arguments)
        return process if ours else None

    def running(self) -> dict[str, psutil.Process]:
        entries = self.read().routers
        found = {name: self.process(name, entry) for name, entry in entries.items()}
        return {name: process for name, process in found.items() if process is not None}


def find_run_dir(given: Path | None, base: Path = Path("run")) -> RunDirectory:
    """The directory asked for, else that of the only mesh that runs under `base`."""
    if given is not None:
        return RunDirectory(given)
    directories = [RunDirectory(path.parent) for path in sorted(base.glob("*/mesh.json"))]
    running = [directory for directory in directories if directory.running()]
    if len(running) == 1:
        return running[0]
    if not running:
        raise RunError(f"no mesh is running under ./{base}, name its directory with --run-dir")
    names = ", ".join(f"{base}/{directory.path.name}" for directory in running)
    raise RunError(f"several meshes are running ({names}), choose one with --run-dir")
