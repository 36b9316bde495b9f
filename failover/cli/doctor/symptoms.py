"""Collects the facts that the checks judge, and changes nothing. An unknown fact is missing, or has a value that says
so."""

import ctypes
import resource
import socket
import time
from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import psutil
from attrs import Factory, frozen

from failover.cli.judging import AUDIT
from router.amqp.proton.loops import LOOPS
from router.mesh.config import Topology
from router.mesh.errors import FileError
from router.mesh.listeners import ListenError, listen
from router.mesh.rundir import RunDirectory, running_meshes
from router.mesh.shown.sets import ShownSet, sets_in
from router.mesh.status import RouterView
from router.security.doors import check
from router.security.validity import Validity, validity_of

END_OF_LOG = 64 * 1024
"""The number of bytes at the end of a router's log in which `ended` looks for a traceback."""
TIME_ERROR = 5
"""The result of the system call adjtimex if no time service keeps the clock right."""


@frozen
class Machine:
    name: str
    descriptors: int
    """The highest number of file descriptors that a process may have open."""
    memory_bytes: int
    """The number of bytes of memory that are available on this host."""
    keeps_time: bool | None
    """Whether the kernel says that a time service keeps its clock right. None if the kernel does not say."""
    lacks_audit: list[str] = Factory(list)
    """The modules that the audit needs, and that are not installed on this host."""
    is_compiled: bool = True
    """Whether the inner loops of routers are compiled on this host."""


@frozen
class Disk:
    free_bytes: int
    why_not: str = ""
    """The reason why the directory cannot be written. It is empty if it can be."""


@frozen
class StoreFault:
    """A fault of a router's store of replica sets."""

    why: str
    is_refused: bool
    """Whether the router does not start with this store. Otherwise it starts, and sets the store or a part of it
    aside."""


@frozen
class Clock:
    """The facts in a router's status about its clock."""

    ahead_s: float
    """The number of seconds by which the clock was ahead of this host's clock when the router's status arrived."""
    moved_s: float
    """The number of seconds by which the clock was set since the router started. `clock` in docs/entities.md describes
    this field and the fields below."""
    behind_s: float
    refused: int


def note_clock(clocks: dict[str, Clock], status: Mapping[str, Any]) -> None:
    """Remember the clock in the status that a router has just sent. A status of an earlier version has no clock."""
    if (told := status.get("clock")) is not None:
        others = (told[name] for name in ("moved_s", "behind_s", "refused"))
        clocks[status["router"]] = Clock(told["time"] - time.time(), *others)


@frozen
class Symptoms:
    """All facts that the checks judge. Some are missing if there is no topology, or no run directory."""

    now: float
    """The present time, in seconds since 1970."""
    host: Machine
    topology: Topology | None = None
    here: Collection[str] = ()
    """The routers of the topology that are on this host. The files and addresses of other routers are elsewhere."""
    unreadable: Collection[str] = ()
    """The errors in the topology file. Each line is one error."""
    security: str = ""
    """The errors in the files for security that the topology names. The text is empty if they have none."""
    certificates: Mapping[str, Validity] = Factory(dict)
    """Maps each router to the period in which its certificate is valid."""
    taken: Mapping[str, str] = Factory(dict)
    """For each listener whose address cannot be used, the reason. Only stopped routers of this host have entries."""
    held: Mapping[str, Path] = Factory(dict)
    """For each listener whose address a running router of this mesh uses, the run directory of this router."""
    disk: Disk | None = None
    """The disk that has the run directory."""
    views: Mapping[str, RouterView] = Factory(dict)
    clocks: Mapping[str, "Clock"] = Factory(dict)
    """Maps each router that answers, on any host, to its clock."""
    elsewhere: Mapping[str, Mapping[str, Any]] = Factory(dict)
    """The status of each router that is on another host."""
    stores: Mapping[str, StoreFault] = Factory(dict)
    """Maps stopped routers of this host to the faults of their stores of replica sets."""
    ended: Mapping[str, str] = Factory(dict)
    """Maps each router to the last line of the last traceback in its log."""

    @property
    def statuses(self) -> dict[str, Mapping[str, Any]]:
        """Maps each router that answers, on any host, to its status."""
        here = {name: view.status for name, view in self.views.items() if view.status is not None}
        return {**here, **self.elsewhere}

    @property
    def sets(self) -> list[ShownSet]:
        """The replica sets of the mesh. A mesh without queues has none."""
        return sets_in((router, row) for router, status in self.statuses.items() for row in status.get("sets", ()))


def host() -> Machine:
    return Machine(
        socket.gethostname(),
        resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        psutil.virtual_memory().available,
        keeps_time(),
        [name for name in AUDIT if find_spec(name) is None],
        LOOPS.is_compiled,
    )


def keeps_time() -> bool | None:
    try:
        adjust = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    # With an empty struct timex, the call reads the state of the clock and sets nothing.
    state = adjust(ctypes.create_string_buffer(512))
    return None if state < 0 else bool(state != TIME_ERROR)


def disk(path: Path) -> Disk:
    try:
        usage = psutil.disk_usage(str(path))
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        return Disk(0, error.strerror or str(error))
    return Disk(usage.free)


def security(topology: Topology, routers: Collection[str]) -> tuple[str, dict[str, Validity]]:
    """Read the files for security of these routers. Return their errors, and for each router the validity of its
    certificate."""
    found: dict[str, Validity] = {}
    try:
        check(topology, routers)
        why = ""
    except FileError as error:
        why = str(error)
    if (certificate := topology.security.certificate) is not None:
        for router in routers:
            if (validity := validity_of(topology.file(certificate, router))) is not None:
                found[router] = validity
    return why, found


def taken(topology: Topology, routers: Collection[str]) -> dict[str, str]:
    """For each listener of these routers whose address cannot be used, the reason."""
    found = {}
    for router, role, address in topology.listeners():
        if router not in routers or not address.port:
            continue
        try:
            listen(address).close()
        except ListenError as error:
            found[f"{role} of router {router}"] = str(error)
    return found


def held(topology: Topology) -> dict[str, Path]:
    """For each listener of the routers of this mesh that run on this machine, the run directory of its router."""
    found = {}
    for directory in running_meshes():
        record, running = directory.read(), directory.running()
        if record.mesh != topology.mesh:
            continue
        for router, role, address in topology.listeners():
            if router in running and record.routers[router].listeners.get(role) == str(address):
                found[f"{role} of router {router}"] = directory.path
    return found


def stores(topology: Topology, directory: RunDirectory, routers: Iterable[str]) -> dict[str, StoreFault]:
    """For each of these routers whose store of replica sets has a fault, the fault. The function opens copies of the
    stores, because opening changes a store."""
    if topology.queues is None:
        return {}
    from router.queues.replicas import open_store
    from router.queues.store import STORE, SUFFIXES, QueueStoreError

    found = {}
    for router in routers:
        folder = directory.path / router
        files = [file for suffix in SUFFIXES if (file := folder / f"{STORE}{suffix}").exists()]
        with TemporaryDirectory() as place:
            try:
                for file in files:
                    copy(file, place)
                with open_store(topology, router, Path(place)) as store:
                    whys, is_refused = store.notes, False
            except OSError as error:
                whys, is_refused = [f"{error.filename}: {error.strerror}"], True
            except QueueStoreError as error:
                whys, is_refused = [str(error)], True
            if whys:
                found[router] = StoreFault("; ".join(whys).replace(place, str(folder)), is_refused)
    return found


def ended(directory: RunDirectory, routers: Iterable[str]) -> dict[str, str]:
    found = {}
    for router in routers:
        try:
            with directory.log_path(router).open("rb") as log:
                log.seek(max(0, log.seek(0, 2) - END_OF_LOG))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            continue
        begins = max((at for at, line in enumerate(lines) if line.startswith("Traceback ")), default=None)
        if begins is not None:
            found[router] = next((line for line in lines[begins + 1 :] if line and not line[0].isspace()), "")
    return found


def symptoms(
    topology: Topology | None,
    here: Collection[str],
    unreadable: Collection[str],
    directory: RunDirectory | None,
    views: Mapping[str, RouterView],
    clocks: Mapping[str, Clock],
    elsewhere: Mapping[str, Mapping[str, Any]],
) -> Symptoms:
    why, certificates = security(topology, here) if topology is not None else ("", {})
    idle = [name for name in here if name not in views or not views[name].running]
    not_free = taken(topology, idle) if topology is not None else {}
    ours = held(topology) if topology is not None and not_free else {}
    return Symptoms(
        time.time(),
        host(),
        topology,
        here,
        unreadable,
        why,
        certificates,
        {listener: why for listener, why in not_free.items() if listener not in ours},
        {listener: path for listener, path in ours.items() if listener in not_free},
        disk(directory.path) if directory is not None else None,
        views,
        clocks,
        elsewhere,
        stores(topology, directory, idle) if topology is not None and directory is not None else {},
        ended(directory, views) if directory is not None else {},
    )
