"""The command `oncemesh status`. It fetches the status of all routers (docs/status.md), and shows it
(`router.mesh.shown`).

With a run directory, the command asks each router at the router's own address. So it also shows routers that do not
reach each other. With a URL, it asks one router, by `$management`, for the statuses of all routers. So the routers may
run on any host.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import click
import trio
from attrs import frozen
from rich.live import Live

from failover.cli.fetch import fetcher
from failover.cli.watch.mesh_client import ask_mesh, checked_routers, mesh_options, of_each
from failover.client.management import Management
from router.amqp.sasl.credentials import Credentials
from router.cli.base import console, run, until_signal
from router.mesh.rundir import RunDirectory, find_run_dir
from router.mesh.shown.status_view import as_json, render
from router.mesh.shown.waits import LASTING_S, awaits
from router.mesh.status import RouterView, look

REFRESH_S = 1.0
AGAIN_S = LASTING_S + 0.1


@frozen
class Seen:
    """The knowledge of the command about the mesh at one time."""

    mesh: str
    run_dir: Path | None
    views: Mapping[str, RouterView]


Look = Callable[[], Awaitable[Seen]]


@click.command()
@click.option("--json", "machine", is_flag=True, help="Print one JSON document.")
@click.option("--watch", is_flag=True, help="Repeat every second, until Ctrl-C.")
@mesh_options
def status(
    machine: bool,
    watch: bool,
    run_dir: Path | None,
    urls: tuple[str, ...],
    routers: tuple[str, ...],
    credentials: Credentials,
) -> None:
    """Show routers, links and clients, and which subscribers messages wait for.

    Waits of less than a second are normal under load; only --json shows them. With --url, the router that you name
    answers for all routers that it reaches, on any host.

    \b
    Examples:
      oncemesh status
      oncemesh status --watch
      oncemesh status --url amqps://10.0.0.7:5671 --ca ca.pem --user ops --password-file pw
      oncemesh status --json | jq .routers.a.status.waits
    """
    if urls:

        async def remote(management: Management) -> None:
            await _show(lambda: ask_one_router(management, routers), machine=machine, watch=watch)

        ask_mesh(remote, run_dir, urls, credentials)
        return
    directory = find_run_dir(run_dir)
    names = checked_routers(routers, directory.read().routers)

    async def local() -> None:
        async with until_signal():
            await _show(lambda: ask_all_routers(directory, names), machine=machine, watch=watch)

    run(local)


async def ask_all_routers(directory: RunDirectory, routers: Sequence[str]) -> Seen:
    views = await look(directory, fetcher(directory))
    return Seen(directory.read().mesh, directory.path, {name: views[name] for name in routers if name in views})


async def ask_one_router(management: Management, routers: Sequence[str]) -> Seen:
    """The mesh as one router reports it, and the routers of the plan that this router does not reach."""
    plan = await management.query("io.oncemesh.planRouter", ["name", "amqp"])
    amqp = {row["name"]: row["amqp"] or "" for row in plan}
    names = checked_routers(routers, amqp)
    reports = await of_each(names, management.status)
    views = {}
    for name in names:
        report = reports.get(name)
        pid = report["pid"] if report is not None else None
        views[name] = RouterView(name, pid, amqp[name], "", report, is_elsewhere=True)
    mesh = next((str(report["mesh"]) for report in reports.values()), "")
    return Seen(mesh, None, views)


async def _show(look: Look, *, machine: bool, watch: bool) -> None:
    out = console()
    if not watch:
        _print(await look() if machine else await _look_twice(look), machine=machine)
    elif machine or not out.is_terminal:
        await _again(look, lambda seen: _print(seen, machine=machine))
    else:
        with Live(console=out, auto_refresh=False) as live:
            await _again(look, lambda seen: live.update(render(seen.mesh, seen.views), refresh=True))


def _print(seen: Seen, *, machine: bool) -> None:
    if machine:
        click.echo(json.dumps(as_json(seen.mesh, seen.run_dir, seen.views)))
    else:
        console().print(render(seen.mesh, seen.views))


async def _look_twice(look: Look) -> Seen:
    """Look at the mesh, and look again if it shows a wait. A router counts the duration of a wait from the first status
    that shows the wait. So the first look cannot tell a short wait from a long one."""
    seen = await look()
    if awaits(seen.views.values()):
        await trio.sleep(AGAIN_S)
        seen = await look()
    return seen


async def _again(look: Look, show: Callable[[Seen], None]) -> None:
    while True:
        show(await look())
        await trio.sleep(REFRESH_S)
