"""The command `oncemesh doctor`."""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import trio
from attrs import asdict
from rich.console import Console
from rich.text import Text

from failover.cli.doctor.checks import Diagnosis, Level, examine
from failover.cli.doctor.symptoms import Clock, Symptoms, note_clock, symptoms
from failover.cli.fetch import fetcher
from failover.cli.watch.mesh_client import of_each
from failover.cli.watch.status import AGAIN_S
from failover.client.management import Management
from router.cli.base import console, run, run_dir_option
from router.mesh.config import Topology
from router.mesh.errors import FileError, NoMeshError, RunError
from router.mesh.quantities import Address
from router.mesh.reading import expected
from router.mesh.rundir import RunDirectory, find_run_dir
from router.mesh.shown.waits import awaits
from router.mesh.status import PATIENCE_S, FetchStatus, RouterView, contacts_of, look
from router.mesh.topology import load
from router.security.operator import operator_of
from router.text.printable import printable

STYLES = {Level.PASS: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@click.command()
@click.argument("topology", required=False, type=click.Path(path_type=Path))
@run_dir_option
@click.option(
    "--router",
    "routers",
    multiple=True,
    help="Check only this router of the topology, which runs on this host; may be repeated.",
)
@click.option("--json", "machine", is_flag=True, help="Print one JSON list.")
def doctor(topology: Path | None, run_dir: Path | None, routers: tuple[str, ...], machine: bool) -> None:
    """Check this host, a topology and the mesh that runs here; print each fault and its remedy.

    With a topology, doctor checks whether its routers could start here: all of them, or those that --router names.
    Without one, it checks the mesh of the run directory, if there is one, and the routers that were started there. It
    changes nothing. Exit status: 1 if a check fails, else 0; a warning is no failure.

    \b
    Examples:
      oncemesh doctor topologies/triangle.yaml
      oncemesh doctor /etc/oncemesh/news.yaml --router a
      oncemesh doctor --json | jq '.[] | select(.level != "pass")'
    """
    findings = examine(run(_look, _directory(topology, run_dir), topology, routers))
    if machine:
        click.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        show(console(), findings)
    if any(finding.level is Level.FAIL for finding in findings):
        raise click.exceptions.Exit(1)


def _directory(topology: Path | None, run_dir: Path | None) -> RunDirectory | None:
    """The run directory that doctor examines. None if there is none.

    Without `run_dir`, it is the directory of the mesh that runs here. If no mesh runs, it is the only directory in
    `run/` whose routers were killed. If the user gave only a topology, it is None.
    """
    if topology is not None and run_dir is None:
        return None
    try:
        return find_run_dir(run_dir)
    except NoMeshError:
        killed = [path.parent for path in Path("run").glob("*/mesh.json") if _is_killed(RunDirectory(path.parent))]
        return RunDirectory(killed[0]) if len(killed) == 1 else None


def _is_killed(directory: RunDirectory) -> bool:
    """Whether no router of the run directory runs, and at least one of them has died without a stop."""
    try:
        return not directory.running() and any(entry.pid for entry in directory.read().routers.values())
    except RunError:
        return False


def _here(plan: Topology, directory: RunDirectory | None, path: Path | None, named: Collection[str]) -> list[str]:
    """The routers of this host.

    These are the routers that the user names. If the user names none, they are the routers in the record of the run
    directory, or all routers of the topology at `path`. Raises RunError if the topology has no router of a given name.
    """
    for name in named:
        if name not in plan.routers:
            raise RunError(f'there is no router "{name}" in this mesh, {expected(name, plan.routers)}')
    recorded = directory.read().routers if directory is not None and path is None else plan.routers
    return [name for name in plan.routers if name in (named or recorded)]


async def _look(directory: RunDirectory | None, path: Path | None, named: Collection[str]) -> Symptoms:
    plan = None
    unreadable: list[str] = []
    try:
        plan = load(path) if path is not None else directory.topology() if directory is not None else None
    except FileError as error:
        unreadable = error.messages
    clocks: dict[str, Clock] = {}
    views: dict[str, RouterView] = {}
    elsewhere: dict[str, dict[str, Any]] = {}
    if directory is not None and plan is not None:
        views = await _look_twice(directory, _noting(clocks, fetcher(directory)))
        elsewhere = await ask_others(directory, views, clocks)
    here = _here(plan, directory, path, named) if plan is not None else []
    return symptoms(plan, here, unreadable, directory, views, clocks, elsewhere)


def _noting(clocks: dict[str, Clock], fetch: FetchStatus) -> FetchStatus:
    """Return a function that fetches a status as `fetch` does, and puts the facts about the router's clock into
    `clocks`."""

    async def fetch_and_note(host: str, port: int, timeout: float) -> dict[str, Any]:
        status = await fetch(host, port, timeout)
        note_clock(clocks, status)
        return status

    return fetch_and_note


async def _look_twice(directory: RunDirectory, fetch: FetchStatus) -> dict[str, RouterView]:
    """Return the view of each router. If a router shows a wait, look again a second later, because only the second
    status says whether the wait lasts.

    If a file with the operator's credentials is missing, the result is empty. Another check reports the missing file.
    """
    views: dict[str, RouterView] = {}
    try:
        views = await look(directory, fetch)
        if awaits(views.values()):
            await trio.sleep(AGAIN_S)
            views = await look(directory, fetch)
    except* FileError:
        pass
    return views


async def ask_others(
    directory: RunDirectory, views: Mapping[str, RouterView], clocks: dict[str, Clock]
) -> dict[str, dict[str, Any]]:
    """The statuses of routers on other hosts, fetched through a router of this host. Notes their clocks in `clocks`."""
    told: dict[str, dict[str, Any]] = {}
    seen = [view for view in views.values() if view.status is not None]
    others = {name for view in seen for name in contacts_of(view)} - {*views}
    if not others:
        return told
    scheme, credentials = operator_of(directory)
    urls = [f"{scheme}://{Address.parse(view.amqp).here}" for view in seen]
    try:
        with trio.move_on_after(PATIENCE_S):
            async with Management(urls, credentials) as management:

                async def ask(router: str) -> None:
                    told[router] = await management.status(router)
                    note_clock(clocks, told[router])

                await of_each(sorted(others), ask)
    except* OSError:  # every router refuses this client, or the connection is lost
        pass
    return told


def show(out: Console, findings: Iterable[Diagnosis]) -> None:
    for finding in findings:
        mark = Text(f"{finding.level.value}  ", style=STYLES[finding.level])
        out.print(mark + Text(printable(f"{finding.check}: {finding.what}"), style=""), soft_wrap=True)
        if finding.todo:
            out.print(Text(f"      {finding.todo}", style="dim"), soft_wrap=True)
