"""The command `oncemesh events`. It prints the events of all routers of a mesh, one line each (docs/management.md,
Events)."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import trio

from failover.cli.watch.mesh_client import ask_mesh, mesh_options, of_each, planned, read_duration
from failover.client.management import Management
from router.amqp.sasl.credentials import Credentials
from router.events.sentence import sentence
from router.text.printable import printable, printable_json
from topic.settings import is_dynamic

PERIOD_S = 0.5


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Print new events as they happen, until Ctrl-C.")
@click.option("--since", "ago", callback=read_duration, help="Only events of the last 30s, 10m, 2h, …")
@click.option("--json", "machine", is_flag=True, help="Print each event as one line of JSON, with all its fields.")
@mesh_options
def events(
    follow: bool,
    ago: float | None,
    machine: bool,
    run_dir: Path | None,
    urls: tuple[str, ...],
    routers: tuple[str, ...],
    credentials: Credentials,
) -> None:
    """Print events: clients that attach, move or expire, routers that come and go, refused requests.

    Each line has the time by the clock of the router, the router, and the event. Events are sorted by these times.
    docs/management.md lists the kinds and fields of --json. Each router keeps its last 4,096 events. With --follow, the
    events of an unreachable router are printed when it is reachable again. Events of reply links, which commands such
    as this one use, are printed only with --json.

    \b
    Examples:
      oncemesh events --since 10m
      oncemesh events --follow --router b
      oncemesh events -f --json --url amqp://10.0.0.7:5672 | jq -c 'select(.kind == "contact-lost")'
    """
    oldest = time.time() - ago if ago is not None else 0.0

    async def tell(management: Management) -> None:
        known: dict[str, int] = {}
        while True:
            for event in await news(management, routers, known):
                if event["time"] >= oldest and (machine or not is_dynamic(event.get("address", ""))):
                    click.echo(printable_json(event) if machine else line_of(event))
            if not follow:
                return
            await trio.sleep(PERIOD_S)

    ask_mesh(tell, run_dir, urls, credentials)


def line_of(event: Mapping[str, Any]) -> str:
    """The line that shows people this event. Its time is in the time zone of this host."""
    when = datetime.fromtimestamp(event["time"])
    return f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03}  {event['router']}  {printable(sentence(event))}"


async def news(management: Management, routers: Sequence[str], known: dict[str, int]) -> list[dict[str, Any]]:
    """Return the events of all routers that are not known yet, sorted by time. `known` has, for each router, the
    sequence number of its last known event. The function updates it."""

    async def ask(router: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        since = known.get(router, 0)
        while page := await management.ask("GET-EVENTS", router, since=since):
            found += page
            since = page[-1]["sequence"]
        known[router] = since
        return found

    reached = await of_each(await planned(management, routers), ask)
    return sorted((event for found in reached.values() for event in found), key=lambda event: event["time"])
