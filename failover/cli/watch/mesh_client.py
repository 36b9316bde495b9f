"""The options and the connection of the commands that look at a mesh. A command finds the mesh by its run directory, or
by the URL of any router."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import trio

from failover.cli.clients import attached, find_target, read_urls, teller
from failover.client.errors import ClientError
from failover.client.management import Management, RefusedError
from router.amqp.format.errors import NOT_FOUND
from router.amqp.sasl.credentials import Credentials
from router.cli.access.login import login_options
from router.cli.base import console, run_dir_option, until_signal
from router.mesh.errors import RunError
from router.mesh.quantities import parse_duration
from router.mesh.reading import expected

Command = TypeVar("Command", bound=Callable[..., Any])
Main = Callable[[Management], Awaitable[None]]

PATIENCE_S = 60
"""The seconds for which a command that has lost its router looks for another one."""
AWAY = (503, 504)
"""The status codes of a router's answer when the router that the request is for is out of contact, or does not
answer."""


url_option = click.option(
    "--url",
    "urls",
    multiple=True,
    callback=read_urls,
    help="A router to connect to, which answers for the whole mesh: amqp://host:port, or amqps:// for TLS; may be"
    " repeated.",
)


def read_duration(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    try:
        return parse_duration(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def mesh_options(command: Command) -> Command:
    """Add to a command the options for the place of the mesh, for the routers that it asks, and for the credentials."""
    named = click.option("--router", "routers", multiple=True, help="Only this router; may be repeated.")
    return _with((run_dir_option, named, url_option), command)


def whole_mesh_options(command: Command) -> Command:
    """Add to a command the options for the place of the mesh, and for the credentials. The user of such a command does
    not choose a router."""
    return _with((run_dir_option, url_option), command)


def _with(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    command = login_options(command)
    for option in options:
        command = option(command)
    return command


def ask_mesh(main: Main, run_dir: Path | None, urls: Sequence[str], credentials: Credentials) -> None:
    """Run `main` with a connection for management, until `main` ends or the user presses ctrl-c. If the connection is
    lost, use another router, and print this to stderr."""
    target = find_target(run_dir, urls, None, "look", credentials=credentials)

    async def asking() -> None:
        tell = teller(console(stderr=True), click.get_current_context().command_path, first=False)
        management = Management(target.urls, target.credentials, timeout=PATIENCE_S, events=tell)
        async with until_signal(), management:
            await main(management)

    attached(asking)


def checked_routers(routers: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the given routers. If none is given, return all known routers. Raises RunError if a given router is not
    known."""
    for router in routers:
        if router not in known:
            raise RunError(f'there is no router "{router}" in this mesh, {expected(router, known)}')
    return list(routers) or sorted(known)


async def planned(management: Management, routers: Sequence[str]) -> list[str]:
    """Return the given routers. If none is given, return all routers in the plan of the mesh. Raises RunError if a
    given router is not in the plan."""
    plan = await management.query("io.oncemesh.planRouter", ["name"])
    return checked_routers(routers, [row["name"] for row in plan])


async def of_each(routers: Sequence[str], ask: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
    """Ask all of these routers at the same time, and return the answer of each. A router is left out if it does not
    answer, or if the mesh has just removed it."""

    answers: dict[str, Any] = {}

    async def ask_one(router: str) -> None:
        try:
            answers[router] = await ask(router)
        except RefusedError as error:
            if error.status not in AWAY:
                raise
        except ClientError as error:
            if error.condition != NOT_FOUND:  # the mesh has removed this router meanwhile
                raise

    async with trio.open_nursery() as nursery:
        for router in routers:
            nursery.start_soon(ask_one, router)
    return {router: answers[router] for router in routers if router in answers}
