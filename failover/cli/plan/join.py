"""The command `oncemesh join`. It starts a router on this host, which joins a mesh on other hosts (protocol 11)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import trio

from failover.cli.clients import attached
from failover.cli.mesh import show_start
from failover.client.management import Management, RefusedError
from router.amqp.sasl.credentials import Credentials
from router.cli.access.login import login_options
from router.cli.router import check_addresses, load_with
from router.mesh.config import Topology
from router.mesh.errors import RunError
from router.mesh.launcher import HalfUpError, Launcher
from router.mesh.planned import planned
from router.mesh.quantities import Address, format_duration
from router.mesh.rundir import RunDirectory
from router.security.doors import check
from router.security.operator import operator_at

FORBIDDEN, UNAVAILABLE = 403, 503
ANSWER_S = 10
LOOK_S = 0.1


def read_via(context: click.Context, param: click.Parameter, value: str) -> Address:
    try:
        return Address.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument("name")
@click.argument("topology", type=click.Path(path_type=Path))
@click.option(
    "--via", required=True, callback=read_via, metavar="HOST:PORT", help="Client address of a router of the mesh."
)
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for logs and state on this host. Default: ./run/<mesh name>.",
)
@login_options
def join(name: str, topology: Path, via: Address, run_dir: Path | None, credentials: Credentials) -> None:
    """Start a router here that joins a mesh on other hosts.

    The topology file is the file of the mesh, with the new router and its links added. The command announces the new
    router to the router at HOST:PORT. It needs the rights of an operator: it uses the secret of the mesh, if that is on
    this host, or the user or certificate of the options. When the new router accepts clients, it runs in the background
    as after oncemesh start. If it cannot start, or no router of the mesh reaches it, the command takes the
    announcement back.

    \b
    Example: oncemesh join d mesh.yaml --via a.example.org:5672
    """
    plan = load_with(name, topology)
    check_addresses(plan, name)
    check(plan, [name])
    directory = RunDirectory(run_dir or Path("run") / plan.mesh)
    directory.check_idle(name)
    scheme, shown = operator_at(plan, name, credentials)

    async def start(launcher: Launcher) -> None:

        async with Management([f"{scheme}://{via}"], shown, timeout=ANSWER_S) as management:
            await launcher.join(name, plan, _listed(name, plan, management, launcher))

    raise click.exceptions.Exit(attached(show_start, directory, [name], start))


@asynccontextmanager
async def _listed(name: str, topology: Topology, management: Management, launcher: Launcher) -> AsyncIterator[None]:
    """Add the router to the plan of the mesh. The caller starts it inside the context.

    If the start fails, or if no router of the mesh reaches the new one, remove the router from the plan again, and stop
    it.
    """
    await _ask(management, "CREATE", name, _said(name, topology))
    try:
        yield
    except HalfUpError:
        with trio.CancelScope(shield=True):
            if await _take_back(management, name):
                # The plan of the mesh still has the router, which goes on running, because it may connect later.
                raise
            await launcher.stop([name])
        log = launcher.directory.log_path(name)
        raise RunError(f"router {name} was stopped again because no router of the mesh reaches it: see {log}") from None
    except BaseException:
        if reason := await _take_back(management, name):
            click.echo(
                f"Warning: the mesh still has router {name} in its plan, until oncemesh remove --force: {reason}",
                err=True,
            )
        raise


async def _take_back(management: Management, name: str) -> str:
    """Remove the router from the plan. If it stays in the plan, return the reason, else an empty text."""
    try:
        await _ask(management, "DELETE", name)
    except (RunError, ConnectionError) as error:
        return str(error)
    return ""


def _said(name: str, topology: Topology) -> dict[str, Any]:
    """The body of the request to join: the new router, and its view of the mesh (docs/management.md)."""
    from router.neighbours import VERSION

    plan = planned(topology)
    links = {a if b == name else b: link for (a, b), link in plan.links.items() if name in (a, b)}
    return {
        "mesh": topology.mesh,
        "wire": VERSION,
        "routers": list(plan.routers),
        "amqp": plan.routers[name].amqp,
        "inter": plan.routers[name].inter,
        "links": {neighbour: [link.cost, link.address] for neighbour, link in links.items()},
    }


async def _ask(management: Management, operation: str, name: str, body: Any = None) -> None:
    """Send a request, and wait for its result, even if the user presses ctrl-c: nobody would know whether an
    interrupted request has succeeded. Raises RunError if the mesh refuses the request or does not answer."""

    try:
        with trio.CancelScope(shield=True), trio.fail_after(ANSWER_S):
            while not await _is_done(management, operation, name, body):
                await trio.sleep(LOOK_S)
    except RefusedError as error:
        expected = ", expected the secret of the mesh or an operator's credentials" if error.status == FORBIDDEN else ""
        raise RunError(f"router {name} may not join: {error.description}{expected}") from None
    except trio.TooSlowError:
        what = f"the mesh has not answered within {format_duration(ANSWER_S)}"
        raise RunError(f"{what} and may already have router {name} in its plan: try again") from None


async def _is_done(management: Management, operation: str, name: str, body: Any) -> bool:
    """Ask for the change, and return whether it was made. Returns False if the router to ask is out of reach.

    All new routers ask the same router, which is the first by name. So this router sees both of two conflicting
    requests, and refuses the second.
    """

    decides = min({*await management.routers()} - {name}, default=None)
    try:
        await management.ask(operation, decides, body, type="io.oncemesh.planRouter", name=name)
    except RefusedError as error:
        if error.status != UNAVAILABLE:
            raise
        return False
    return True
