"""The commands that start and stop a mesh: up, start, stop, drain, down."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import click
import trio
from rich.console import Console
from rich.live import Live

from failover.cli.fetch import fetcher
from router.cli.base import console, run, run_dir_option, until_signal
from router.mesh.config import Topology
from router.mesh.errors import RunError
from router.mesh.launcher import HalfUpError, Launcher
from router.mesh.rundir import MARKS, RunDirectory, find_run_dir
from router.mesh.shown.status_view import headline, render, routers_table, shown_at, state_of
from router.mesh.status import RouterView, contacts_of, look
from router.mesh.topology import load
from router.security.doors import check

REFRESH_S = 1.0
HALF_UP = 3
"""The exit status of `up` and `start` if all routers run, but some of them are not connected."""

topology_argument = click.argument("topology", type=click.Path(path_type=Path))
routers_argument = click.argument("routers", nargs=-1, metavar="[ROUTER]...")


@click.command()
@topology_argument
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for logs and state. Default: ./run/<mesh name>.",
)
@click.option("--detach", is_flag=True, help="Return when all routers are connected; they keep running.")
def up(topology: Path, run_dir: Path | None, detach: bool) -> None:
    """Start the mesh of a topology file.

    Without --detach, the command shows a live status until Ctrl-C, which stops the mesh. If some routers are not
    connected after 30 s, it prints what is missing and leaves all of them running; with --detach it then exits with
    status 3.

    \b
    Example: oncemesh up topologies/triangle.yaml --detach
    """
    plan = load(topology)
    check(plan, plan.routers)
    directory = RunDirectory(run_dir or Path("run") / plan.mesh)
    directory.check_ours("a mesh", [*MARKS, *plan.routers])
    raise click.exceptions.Exit(run(_up, plan, directory, detach))


async def _up(plan: Topology, directory: RunDirectory, detach: bool) -> int:
    """Start a mesh, and return the exit status."""
    out = console()
    launcher = Launcher(directory, fetcher(directory))
    up = False
    async with until_signal() as scope:
        with out.status(f"starting {', '.join(plan.routers)}"):
            lack = await _lacks(launcher.up(plan))
        up = True
        lack = await _show_started(out, directory, plan.mesh, lack)
        for opening in plan.openings(*plan.routers):
            out.print(opening, style="yellow", soft_wrap=True)
        out.print(f"run directory {directory.path}", soft_wrap=True)
        if not detach:
            await _watch(out, launcher, plan.mesh)
    if scope.cancelled_caught and not up:
        raise RunError("interrupted while starting; all started routers were stopped again")
    if scope.cancelled_caught:
        _show_stopped(out, await launcher.stop(list(plan.routers)))
        return 0
    return HALF_UP if lack else 0


async def _lacks(starting: Awaitable[None]) -> str:
    """Wait until the routers are up. Return an empty text if all routers are connected. If all routers run, but some
    are not connected, return a text that says what is missing."""
    try:
        await starting
    except HalfUpError as error:
        return str(error)
    return ""


async def _watch(out: Console, launcher: Launcher, mesh: str) -> None:
    if not out.is_terminal:
        await _follow(out, launcher, ChangeLines(out).show)
        return
    with Live(console=out, auto_refresh=False, transient=True) as live:
        await _follow(out, launcher, lambda views: live.update(render(mesh, views), refresh=True))


async def _follow(out: Console, launcher: Launcher, show: Callable[[dict[str, RouterView]], None]) -> None:
    """Show the mesh every second. Raises RunError when no router runs any more."""
    while True:
        for name, reason in launcher.endings():
            out.print(f"router {name} ended: {reason}", style="red")
        if not launcher.directory.running():
            raise RunError("no router is left running")
        show(await look(launcher.directory, launcher.fetch))
        await trio.sleep(REFRESH_S)


class ChangeLines:
    """Shows the status where there is no terminal. Prints one line for a router whenever its state or its contacts
    change."""

    def __init__(self, out: Console):
        self._out = out
        self._last: dict[str, str] = {}

    def show(self, views: dict[str, RouterView]) -> None:
        for name, view in views.items():
            line = f"router {name}: {state_of(view)}"
            if contacts_of(view):
                line += f", sees {', '.join(sorted(contacts_of(view)))}"
            if self._last.get(name) != line:
                self._out.print(line)
                self._last[name] = line


@click.command()
@routers_argument
@run_dir_option
def start(routers: tuple[str, ...], run_dir: Path | None) -> None:
    """Start stopped routers of a mesh, or all of them if you name none.

    If some routers are not connected after 30 s, or a running router does not answer, the command prints what is
    missing, leaves all of them running and exits with status 3.

    \b
    Example: oncemesh start b --run-dir run/triangle
    """
    directory = find_run_dir(run_dir)
    running = directory.running()
    names = routers or [name for name in directory.read().routers if name not in running]
    raise click.exceptions.Exit(run(show_start, directory, names, lambda launcher: launcher.start(names)))


async def show_start(
    directory: RunDirectory, names: Sequence[str], start: Callable[[Launcher], Awaitable[None]]
) -> int:
    """Start routers, show all routers, and return the exit status: HALF_UP if some of them are not connected or do not
    answer, else 0."""
    out = console()
    started = False
    async with until_signal() as scope:
        with out.status(f"starting {', '.join(names)}"):
            lack = await _lacks(start(Launcher(directory, fetcher(directory))))
        started = True
        lack = await _show_started(out, directory, directory.read().mesh, lack)
    if scope.cancelled_caught and started:
        raise RunError("interrupted, but the routers run: see oncemesh status")
    if scope.cancelled_caught:
        raise RunError("interrupted while starting; the started routers were stopped again")
    return HALF_UP if lack else 0


@click.command()
@routers_argument
@run_dir_option
def stop(routers: tuple[str, ...], run_dir: Path | None) -> None:
    """Stop routers of a running mesh, or all of them if you name none.

    \b
    Example: oncemesh stop b
    """
    directory = find_run_dir(run_dir)
    _stop(directory, routers or list(directory.read().routers))


@click.command()
@click.argument("router")
@run_dir_option
def drain(router: str, run_dir: Path | None) -> None:
    """Move a router's clients to other routers, then stop it.

    If the router leads replica sets, it first hands them over.
    The router stops when its clients are attached elsewhere. Clients that can resume continue there at once, without
    loss or repetition. To restart a whole mesh without an interruption, drain and start one router after the other.

    \b
    Example: oncemesh drain b && oncemesh start b
    """
    found = find_run_dir(run_dir)
    launcher = Launcher(found, fetcher(found))
    _show_stopped(console(), {router: run(launcher.drain, router)})


@click.command()
@run_dir_option
def down(run_dir: Path | None) -> None:
    """Stop all routers of a mesh.

    \b
    Example: oncemesh down --run-dir run/triangle
    """
    directory = find_run_dir(run_dir)
    _stop(directory, list(directory.read().routers))


def _stop(directory: RunDirectory, names: Sequence[str]) -> None:
    _show_stopped(console(), run(Launcher(directory, fetcher(directory)).stop, names))


async def _show_started(out: Console, directory: RunDirectory, mesh: str, lack: str) -> str:
    """Show the routers, and return a text that says what is missing. This is `lack` (the result of `_lacks`), or, if
    that is empty, the names of the routers that do not answer."""
    views = await look(directory, fetcher(directory))
    silent = [name for name, view in views.items() if view.pid is not None and view.status is None]
    if silent and not lack:
        lack = f"running, but without an answer: router {', '.join(silent)}; see oncemesh status"
    out.print(headline(mesh, views.values()), style="bold")
    out.print(routers_table(views))
    if where := shown_at(views.values()):
        out.print(where, soft_wrap=True)
    if lack:
        out.print(lack, style="yellow", soft_wrap=True)
    return lack


def _show_stopped(out: Console, outcome: Mapping[str, str]) -> None:
    for name, became in outcome.items():
        out.print(f"router {name}: {became}")
