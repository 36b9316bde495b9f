"""The run directory of a mesh: its routers with their addresses and processes, and the files of routers and clients.

    DIR/mesh.json          written by the launcher, or by each router that was started alone; read by routers, commands,
                           scripts and the audit
    DIR/topology.yaml      a copy of the topology, so that later commands need DIR alone
    DIR/<router>/router.log, DIR/<router>/log/ (delivery log), DIR/<router>/state.db
    DIR/clients/<name>/log/

A process id in mesh.json may be out of date: the kernel may have given it to another process. So before this module
uses a process, it checks that the command line of the process names the router and the directory. It never starts or
stops a router.
"""

import contextlib
import fcntl
import functools
import json
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import attrs
import cattrs
import psutil

from router.disk.room import check_room
from router.mesh.config import AMQP, HTTP, INTER, MQTT, Topology
from router.mesh.errors import NoMeshError, RunError
from router.mesh.quantities import Address
from router.mesh.topology import load

MARKS: Final = ("mesh.json", "topology.yaml", "up.lock")
"""The files by which this module recognises a run directory. One of them is enough, because mesh.json may be lost."""


@attrs.define
class RouterEntry:
    pid: int | None
    """The process id of the router; None while it is stopped."""
    amqp: str
    inter: str
    log: str
    http: str = ""
    """Address of the listener for HTTP; empty if the router has none."""
    mqtt: str = ""
    """Address of the listener for MQTT; empty if the router has none."""
    more: dict[str, str] = attrs.Factory(dict)
    """Addresses of further listeners, keyed by the listener's name."""

    @property
    def listeners(self) -> dict[str, str]:
        """The addresses of all listeners, keyed by the listener's name."""
        own = {AMQP: self.amqp, INTER: self.inter, HTTP: self.http, MQTT: self.mqtt}
        return {name: address for name, address in {**own, **self.more}.items() if address}


def router_entry(pid: int | None, log: Path, addresses: Mapping[str, Address]) -> RouterEntry:
    """The entry of a router. `addresses`: the addresses of its listeners, keyed by the listener's name."""
    own = {field.name for field in attrs.fields(RouterEntry)}
    said = {name: str(address) for name, address in addresses.items()}
    more = {name: said.pop(name) for name in list(said) if name not in own}
    return RouterEntry(pid, log=str(log), more=more, **said)


@attrs.define
class MeshRecord:
    """The contents of mesh.json."""

    mesh: str
    topology: str
    routers: dict[str, RouterEntry]
    base: str = ""
    """The folder to which file names in the topology are relative."""
    forced: list[str] = attrs.Factory(list)
    """Routers that were removed without waiting for their clients."""


class RunDirectory:
    def __init__(self, path: Path):
        self.path = path.resolve()
        self.record_path = self.path / "mesh.json"
        self.topology_path = self.path / "topology.yaml"

    def exists(self) -> bool:
        return self.record_path.exists()

    def log_path(self, name: str) -> Path:
        return self.path / name / "router.log"

    def make(self) -> list[Path]:
        """Create the directory if it does not exist. Returns the directories that were created, the innermost first."""
        try:
            fresh = [path for path in (self.path, *self.path.parents) if not path.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from None
        return fresh

    def check_ours(self, what: str, marks: Collection[str]) -> None:
        """Raise RunError if the directory has files, but none of `marks`, the files by which the directory of `what` is
        recognised: the directory may belong to another program."""
        if self.path.is_dir() and any(self.path.iterdir()) and not any((self.path / mark).exists() for mark in marks):
            raise RunError(f"{self.path}: not the directory of {what}, choose another with --run-dir")

    def _unusable(self, error: OSError) -> RunError:
        return RunError(f"{self.path}: cannot be a run directory: {error.strerror}")

    @contextmanager
    def starting(self, *, whole: bool) -> Iterator[None]:
        """Lock the directory for a start. A start of the `whole` mesh excludes all other starts. Starts of single
        routers may run at the same time.

        If the start fails, has created the directory, and leaves no file in it, the directory is removed.
        """
        fresh = self.make()
        with _written(self.path):
            check_room(self.path)
        path = self.path / "up.lock"
        try:
            lock = path.open("w")
        except OSError as error:
            raise self._unusable(error) from None
        with lock:
            try:
                fcntl.flock(lock, (fcntl.LOCK_EX if whole else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"{self.path}: another `up` or `start` is starting this mesh") from None
            try:
                yield
            finally:
                if fresh and not self.exists():
                    _remove(path, fresh)

    def read(self) -> MeshRecord:
        try:
            record = cattrs.structure(json.loads(self.record_path.read_text()), MeshRecord)
            for entry in record.routers.values():
                for address in entry.listeners.values():
                    Address.parse(address)
        except FileNotFoundError:
            raise RunError(f"{self.path}: no mesh.json, expected the run directory of a mesh") from None
        except OSError as error:
            raise RunError(f"{self.record_path}: {error.strerror}, expected the record of a mesh") from None
        except (ValueError, RecursionError, cattrs.BaseValidationError) as error:
            what = f"{self.record_path}: not a record of a mesh ({type(error).__name__})"
            todo = "stop the routers that run here and move the file away; the next start writes a new one"
            raise RunError(f"{what}: {todo}") from None
        return record

    def write(self, record: MeshRecord) -> None:
        """Replace mesh.json in one step: readers see the old file or the new one, never a part."""
        fresh = self.record_path.with_suffix(".new")
        with _written(self.record_path):
            fresh.write_text(json.dumps(cattrs.unstructure(record), indent=1) + "\n")
            os.replace(fresh, self.record_path)

    def renew(self, record: MeshRecord) -> None:
        """Replace the record of an earlier run. Raises RunError if a router of that run still runs."""
        with self._turn():
            self.check_stopped()
            self.write(record)

    def check_stopped(self) -> None:
        if self.exists() and self.running():
            raise RunError(f"{self.path}: a mesh is running here, stop it with oncemesh down --run-dir {self.path}")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock of mesh.json, so that commands that change the file take turns."""
        path = self.path / "mesh.lock"
        with _written(path):
            lock = path.open("w")
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def edit(self) -> Iterator[MeshRecord]:
        """Yield the record, and write it back afterwards."""
        with self._turn():
            record = self.read()
            yield record
            self.write(record)

    def keep(self, topology: Topology) -> None:
        """Copy the file of `topology` into the directory for later commands."""
        fresh = self.topology_path.with_suffix(".new")
        with _written(self.topology_path):
            shutil.copyfile(topology.path, fresh)
            os.replace(fresh, self.topology_path)

    @contextmanager
    def registered(self, name: str, topology: Topology, addresses: Mapping[str, Address]) -> Iterator[None]:
        """While this context is entered, list this router, which runs alone in this process, in mesh.json. `addresses`:
        the addresses of its listeners."""
        entry = router_entry(os.getpid(), self.log_path(name), addresses)
        self.enter(name, topology, entry)
        try:
            yield
        finally:
            # If the directory was moved or removed meanwhile, the router ends without a complaint.
            with contextlib.suppress(RunError, OSError), self.edit() as record:
                if name in record.routers and record.routers[name].pid == entry.pid:
                    record.routers[name].pid = None

    def enter(self, name: str, topology: Topology, entry: RouterEntry) -> None:
        """List a router of this mesh that runs here, or is about to."""
        with self._turn():
            record = self._record_for(topology)
            self.check_idle(name)
            record.routers[name] = entry
            record.base = str(topology.base.resolve())
            self.keep(topology)
            self.write(record)

    def check_idle(self, name: str) -> None:
        """Raise RunError if this router already runs here in another process. The caller checks this before it binds
        the router's addresses: afterwards it could only report that an address is in use."""
        earlier = self.running().get(name) if self.exists() else None
        if earlier is not None and earlier.pid != os.getpid():
            raise RunError(f"{self.path}: router {name} is running already (pid {earlier.pid})")

    def _record_for(self, topology: Topology) -> MeshRecord:
        """The contents of mesh.json, if they are of an earlier run of this mesh and list no other routers; otherwise an
        empty record. Raises RunError if other routers run here."""
        if self.exists():
            record = self.read()
            self.check_mesh(topology)
            if record.routers.keys() <= topology.routers.keys():
                return record
            if self.running():
                raise RunError(f"{self.path}: mesh {record.mesh} is running here with other routers")
        return MeshRecord(topology.mesh, str(self.topology_path), {}, str(topology.base.resolve()))

    def check_mesh(self, topology: Topology) -> None:
        """Raise RunError if the directory belongs to another mesh, whose files must not be overwritten."""
        if self.exists() and (mesh := self.read().mesh) != topology.mesh:
            raise RunError(
                f"{self.path}: the run directory of another mesh, {mesh}: "
                f"choose one for {topology.mesh} with --run-dir, or move this one away"
            )

    def topology(self) -> Topology:
        """The topology. Where it asks for any free port, the result has the port that this run uses."""
        record = self.read()
        entries = record.routers
        topology = load(self.topology_path)
        # mesh.json lacks some of these routers if routers were started alone.
        routers = dict(topology.routers)
        # An entry of mesh.json that the topology lacks belongs to a router that leaves the mesh.
        for name in entries.keys() & routers.keys():
            entry = entries[name]
            amqp, inter = Address.parse(entry.amqp), Address.parse(entry.inter)
            http = Address.parse(entry.http) if entry.http else routers[name].http
            mqtt = Address.parse(entry.mqtt) if entry.mqtt else routers[name].mqtt
            more = {**routers[name].more, **{other: Address.parse(at) for other, at in entry.more.items()}}
            routers[name] = attrs.evolve(routers[name], amqp=amqp, inter=inter, http=http, mqtt=mqtt, more=more)
        return attrs.evolve(topology, routers=routers, base=Path(record.base))

    def process(self, name: str, entry: RouterEntry) -> psutil.Process | None:
        """The process that runs this router; None if the router does not run."""
        claimed = self._claimed(name, entry)
        return claimed[0] if claimed is not None and claimed[1] == self.path else None

    def _claimed(self, name: str, entry: RouterEntry) -> tuple[psutil.Process, Path] | None:
        """The recorded process and the run directory in its command line; None if the process is no router of this
        name."""
        if entry.pid is None:
            return None
        try:
            process = psutil.Process(entry.pid)
            # An error or an empty list means that the process has ended and its parent has not collected it.
            arguments = process.cmdline()
            if name not in arguments:
                return None
            directory = _named_directory(arguments, self.path.name)
            if directory is not None and not directory.is_absolute():
                directory = Path(process.cwd(), directory)
        except (psutil.Error, ValueError):
            return None
        return None if directory is None else (process, directory.resolve())

    def astray(self) -> Iterator[str]:
        """Yield a sentence for each recorded router that runs with another run directory, because this directory was
        moved or copied."""
        for name, entry in self.read().routers.items() if self.exists() else ():
            claimed = self._claimed(name, entry)
            if claimed is not None and claimed[1] != self.path:
                process, directory = claimed
                yield (
                    f"{self.path}: router {name} (pid {process.pid}) runs with the run directory {directory}; "
                    "if it was moved here, move it back to stop the router"
                )

    def running(self) -> dict[str, psutil.Process]:
        entries = self.read().routers
        found = {name: self.process(name, entry) for name, entry in entries.items()}
        return {name: process for name, process in found.items() if process is not None}


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """Turn an error of the disk, such as a full one, into a RunError."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror}") from None


def _named_directory(arguments: Sequence[str], mesh: str) -> Path | None:
    """The run directory in a router's command line. If the command line names none, it may be the default one."""
    named = [following for option, following in pairwise(arguments) if option == "--run-dir"]
    named += [option.removeprefix("--run-dir=") for option in arguments if option.startswith("--run-dir=")]
    if named:
        return Path(named[0])
    return Path("run", mesh) if "router" in arguments else None


def _remove(lock: Path, directories: Sequence[Path]) -> None:
    # An error is raised if another program has put a file into the directory. The directory then stays.
    with contextlib.suppress(OSError):
        lock.unlink()
        for directory in directories:
            directory.rmdir()


# A command may look at the same directory twice; with the cache it warns only once.
@functools.cache
def _warn(text: str) -> None:
    print(f"Warning: {text}", file=sys.stderr)


def find_run_dir(given: Path | None, base: Path = Path("run")) -> RunDirectory:
    """The directory `given`. Without it, the directory of the only mesh that runs under `base`: raises NoMeshError if
    no mesh runs there, RunError if several do."""
    if given is not None:
        directory = RunDirectory(given)
        for stray in directory.astray():
            _warn(stray)
        return directory
    running = list(running_meshes(base))
    if len(running) == 1:
        return running[0]
    if not running:
        ended = [str(path.parent) for path in sorted(base.glob("*/mesh.json"))]
        those = f": {', '.join(ended)}" if ended else ""
        what_to_do = "start one with oncemesh up, or name its directory with --run-dir"
        raise NoMeshError(f"no mesh is running under ./{base}: {what_to_do}{those}")
    names = ", ".join(f"{base}/{directory.path.name}" for directory in running)
    raise RunError(f"several meshes are running ({names}), choose one with --run-dir")


def running_meshes(base: Path = Path("run")) -> Iterator[RunDirectory]:
    """The run directories below `base` in which routers run. A directory that cannot be read only causes a warning."""
    for path in sorted(base.glob("*/mesh.json")):
        directory = RunDirectory(path.parent)
        try:
            for stray in directory.astray():
                _warn(stray)
            if directory.running():
                yield directory
        except RunError as error:
            _warn(f"ignored: {error}")
