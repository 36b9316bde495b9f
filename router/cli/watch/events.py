"""`oncemesh events`: what happens at all routers of a mesh, a line of JSON each (docs/management.md, Events)."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import trio

from failover.printable import printable_json
from router.amqp.sasl.credentials import Credentials
from router.cli.watch.mesh_client import ask_mesh, mesh_options, of_each, planned, read_duration

if TYPE_CHECKING:
    from failover.client.management import Management

PERIOD_S = 0.5


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--since", "ago", callback=read_duration, help="Of the last 30s, 10m, 2h, … only.")
@mesh_options
def events(
    follow: bool, ago: float | None, run_dir: Path | None, urls: tuple[str, ...], routers: tuple[str, ...],
    credentials: Credentials,
) -> None:  # fmt: skip
    """Tell what has happened: clients that attach, move, and expire, routers that come and go, what was refused.

    A line of JSON for each event, in the order of the routers' clocks; docs/management.md has the kinds. A router keeps
    its last 4,096. Those of a router that cannot be reached are told when it can be again.

    \b
    Examples:
      oncemesh events --since 10m
      oncemesh events --follow --router b
      oncemesh events -f --url amqp://10.0.0.7:5672 | jq -c 'select(.kind == "contact-lost")'
    """
    oldest = time.time() - ago if ago is not None else 0.0

    async def tell(management: "Management") -> None:
        known: dict[str, int] = {}
        while True:
            for event in await news(management, routers, known):
                if event["time"] >= oldest:
                    click.echo(printable_json(event))
            if not follow:
                return
            await trio.sleep(PERIOD_S)

    ask_mesh(tell, run_dir, urls, credentials)


async def news(management: "Management", routers: Sequence[str], known: dict[str, int]) -> list[dict[str, Any]]:
    """All events later than those that are `known`, which is told of them."""

    async def ask(router: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        since = known.get(router, 0)
        while page := await management.ask("GET-EVENTS", router, since=since):
            found += page
            since = page[-1]["sequence"]
        known[router] = since
        return found

    reached = await of_each(management, await planned(management, routers), ask)
    return sorted((event for found in reached.values() for event in found), key=lambda event: event["time"])
