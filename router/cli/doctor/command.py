"""The command `oncemesh doctor`."""

import json
from collections.abc import Iterable
from pathlib import Path

import click
import trio
from attrs import asdict
from rich.console import Console
from rich.text import Text

from failover.printable import printable
from router.cli.base import console, fetcher, run, run_dir_option
from router.cli.doctor.checks import Diagnosis, Level, examine
from router.cli.doctor.symptoms import Symptoms, symptoms
from router.cli.watch.status import AGAIN_S
from router.mesh.reading import FileError
from router.mesh.rundir import RunDirectory, RunError, find_run_dir
from router.mesh.status import RouterView, look
from router.mesh.status_view import awaits
from router.mesh.topology import load

STYLES = {Level.PASS: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@click.command()
@click.argument("topology", required=False, type=click.Path(path_type=Path))
@run_dir_option
@click.option("--json", "machine", is_flag=True, help="As one JSON list.")
def doctor(topology: Path | None, run_dir: Path | None, machine: bool) -> None:
    """Tell what is wrong with this host, a topology, and the mesh that runs here; and what to do.

    With a topology it looks whether that could be started here. Else it looks at the mesh of the run directory, if
    there is one. It changes nothing. Exit status: 0 if nothing failed, warnings or not; else 1.

    \b
    Examples:
      oncemesh doctor topologies/triangle.yaml
      oncemesh doctor --json | jq '.[] | select(.level != "pass")'
    """
    findings = examine(run(_look, _directory(topology, run_dir), topology))
    if machine:
        click.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        show(console(), findings)
    if any(finding.level is Level.FAIL for finding in findings):
        raise click.exceptions.Exit(1)


def _directory(topology: Path | None, run_dir: Path | None) -> RunDirectory | None:
    """None if there is no mesh to look at, and none was asked for."""
    if topology is not None and run_dir is None:
        return None
    try:
        return find_run_dir(run_dir)
    except RunError:
        if run_dir is not None:
            raise
        return None


async def _look(directory: RunDirectory | None, path: Path | None) -> Symptoms:
    plan, unreadable = None, ""
    try:
        plan = load(path) if path is not None else directory.topology() if directory is not None else None
    except FileError as error:
        unreadable = str(error)
    views = await _look_twice(directory) if directory is not None and plan is not None else {}
    return symptoms(plan, unreadable, directory, views)


async def _look_twice(directory: RunDirectory) -> dict[str, RouterView]:
    """Routers tell for how long looks have shown a wait. None is asked without the files that are to be shown to it:
    that they are missing is found by another check."""
    views: dict[str, RouterView] = {}
    try:
        views = await look(directory, fetcher(directory))
        if awaits(views.values()):
            await trio.sleep(AGAIN_S)
            views = await look(directory, fetcher(directory))
    except* FileError:
        pass
    return views


def show(out: Console, findings: Iterable[Diagnosis]) -> None:
    for finding in findings:
        mark = Text(f"{finding.level.value}  ", style=STYLES[finding.level])
        out.print(mark + Text(printable(f"{finding.check}: {finding.what}"), style=""), soft_wrap=True)
        if finding.todo:
            out.print(Text(f"      {finding.todo}", style="dim"), soft_wrap=True)
