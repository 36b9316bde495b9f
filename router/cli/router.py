"""The command that runs one router: `oncemesh router`, and `python -m router` as the launcher starts it.

It finds the router's listeners (inherited, or bound here) and the addresses of its neighbours (in mesh.json, or in the
topology), and hands over to router/process.py. It imports only what a router needs, to save memory.
"""

import errno
import functools
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from router.cli.base import run
from router.mesh.config import AMQP, INTER, Topology
from router.mesh.errors import RunError
from router.mesh.listeners import ListenError, Listeners, bound_address, listen
from router.mesh.quantities import Address
from router.mesh.reading import expected
from router.mesh.rundir import RunDirectory
from router.mesh.topology import TopologyError, load
from router.text.printable import printable

FULL_DISK: Final = "disk-full"
"""The name of the file by which a chaos run pretends that a disk is full."""


@click.command()
@click.argument("name")
@click.argument("topology", type=click.Path(path_type=Path))
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for logs and state. Default: ./run/<mesh name>.",
)
@click.option(
    "--fd",
    "inherited",
    type=(str, int),
    multiple=True,
    hidden=True,
    help="The name of a listener, and its descriptor, inherited from the launcher.",
)
@click.option(
    "--join",
    is_flag=True,
    help="Join a running mesh: accept clients only when the mesh has taken this router into its plan.",
)
@click.option("--whole", is_flag=True, hidden=True, help="Form a new mesh with all other routers of TOPOLOGY.")
@click.option(
    "--clock-offset",
    type=float,
    hidden=True,
    help="For tests: behave as if the clock of this host were so many seconds ahead.",
)
@click.option(
    "--fillable-disk",
    is_flag=True,
    hidden=True,
    help=f"For tests: the disk of the replica sets has no room while the folder of the router has a file {FULL_DISK}.",
)
def router(
    name: str,
    topology: Path,
    run_dir: Path | None,
    inherited: Sequence[tuple[str, int]],
    join: bool,
    whole: bool,
    clock_offset: float | None,
    fillable_disk: bool,
) -> None:
    """Run one router in the foreground, for a mesh on several hosts.

    In the topology, every router that others connect to needs `inter: host:port`. Other commands on this host take the
    run directory of this router as --run-dir.

    \b
    Example: oncemesh router a topologies/pair.yaml
    """
    if clock_offset:
        offset_wall_clock(clock_offset)
    starts = "join" if join else "mesh" if whole else "again"
    plan = load_with(name, topology)
    directory = RunDirectory(run_dir or Path("run") / plan.mesh)
    if fillable_disk:
        let_disk_fill(directory.log_path(name).parent / FULL_DISK)
    if inherited:
        sockets = {which: socket.socket(fileno=number) for which, number in inherited}
        _claim(directory, name, sockets)
        _serve(directory.topology(), name, directory, sockets, [logging.StreamHandler()], starts)
        return
    check_addresses(plan, name)
    _serve_alone(plan, name, directory, starts)


def load_with(name: str, path: Path) -> Topology:
    """Load the topology of a file. Raises RunError if it has no router of this name."""
    plan = load(path)
    if name not in plan.routers:
        raise RunError(f'there is no router "{name}" in {path}, {expected(name, plan.routers)}')
    return plan


def offset_wall_clock(seconds: float) -> None:
    """Shift the wall clock of this process, as if the host's clock were wrong. Also change the host's name, because the
    audit takes sources with one host name as sharing a clock."""
    for name, by in (("time", seconds), ("time_ns", int(seconds * 1e9))):
        setattr(time, name, functools.partial(_ahead, getattr(time, name), by))
    socket.gethostname = functools.partial(str, f"{socket.gethostname()}{seconds:+g}s")


def _ahead(clock: Callable[[], float], by: float) -> float:
    return clock() + by


def let_disk_fill(file: Path) -> None:
    """Let the replica sets' store of this process find its disk full while this file exists."""
    from router.queues import store

    def check_room(*of: Any, **more: Any) -> None:
        if file.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(of[0]))
        check(*of, **more)

    names = vars(store)
    check, names["check_room"] = names["check_room"], check_room


def check_addresses(plan: Topology, name: str) -> None:
    """Check that the topology has the address of each router that this router dials, and its own address if a
    neighbour dials it. A router that starts alone, and its neighbours, have no other source of these addresses. Raises
    TopologyError."""
    missing = [peer for peer, address in plan.dialled_by(name).items() if not _is_known(address)]
    if any(link.b == name for link in plan.links_of(name)) and not _is_known(plan.routers[name].inter):
        missing.append(name)
    if missing:
        raise TopologyError(
            plan.path,
            [f"{plan.path}: routers.{peer}.inter is missing or has no port, expected host:port" for peer in missing],
        )


def _is_known(address: Address | None) -> bool:
    return address is not None and address.port != 0


def _claim(directory: RunDirectory, name: str, listeners: Listeners) -> None:
    """Enter this process into mesh.json. Its starter does so, too, unless it is killed first. Raises RunError if a
    later start has given the router other listeners, or has removed it."""
    with directory.edit() as record:
        directory.check_idle(name)
        entry = record.routers.get(name)
        ports = [listeners[kind].getsockname()[1] for kind in (AMQP, INTER)]
        if entry is None or [Address.parse(at).port for at in (entry.amqp, entry.inter)] != ports:
            raise RunError(f"{directory.path}: router {name} was started again, or removed, before this process ran")
        entry.pid = os.getpid()


def _serve_alone(plan: Topology, name: str, directory: RunDirectory, starts: str) -> None:
    directory.check_idle(name)
    wanted = {listener: address for router, listener, address in plan.listeners() if router == name}
    try:
        sockets = {listener: listen(address) for listener, address in wanted.items()}
    except ListenError as error:
        raise RunError(f"router {name} cannot listen on {error}") from None
    directory.make()
    log = directory.log_path(name)
    log.parent.mkdir(exist_ok=True)
    handlers: list[logging.Handler] = [logging.StreamHandler(), logging.FileHandler(log)]
    addresses = {listener: bound_address(sockets[listener], address.host) for listener, address in wanted.items()}
    with directory.registered(name, plan, addresses):
        _serve(plan, name, directory, sockets, handlers, starts)


class LineFormatter(logging.Formatter):
    """A formatter that writes each message as one line, even if it contains a client's text with line breaks."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def _serve(
    plan: Topology,
    name: str,
    directory: RunDirectory,
    listeners: Listeners,
    handlers: list[logging.Handler],
    starts: str,
) -> None:
    from router.plan.request import Start
    from router.process import run_router

    # If the disk has no room for a line of the log, the line is lost, and no traceback takes its place.
    logging.raiseExceptions = False
    logging.basicConfig(level=logging.INFO, handlers=handlers)
    for handler in handlers:
        handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(message)s"))
    for opening in plan.openings(name):
        logging.getLogger("oncemesh").warning("%s", opening)
    main = functools.partial(run_router, run_dir=directory.path, listeners=listeners, starts=Start(starts))
    run(main, plan, name)
