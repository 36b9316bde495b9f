"""The command `oncemesh top`. It shows how much routers, queues and links did between two looks at the mesh
(`router.entities.rates`)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import trio
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from failover.cli.watch.mesh_client import ask_mesh, mesh_options, of_each, planned, read_duration
from failover.client.management import Management
from router.amqp.sasl.credentials import Credentials
from router.cli.base import console
from router.entities.rates import MeshRates, RouterLook, rates
from router.mesh.quantities import format_duration, format_size
from router.text.fitting import Fitting
from router.text.printable import printable

HEADINGS: Final = 16
"""The number of lines on a screen that show no router, queue or link. The lines around the table of queues are not
counted here."""
QUEUE_HEADINGS: Final = 5
"""The number of lines around the table of queues."""
MOST_LINKS: Final = 40
"""The highest number of links in a table that is printed only once, so that it need not fit on a screen."""


@click.command()
@click.option(
    "--interval", callback=read_duration, default="2s", show_default=True, help="Time between two measurements."
)
@click.option("--once", is_flag=True, help="Print one table and exit.")
@click.option("--json", "machine", is_flag=True, help="Print one line of JSON for each interval.")
@mesh_options
def top(
    interval: float,
    once: bool,
    machine: bool,
    run_dir: Path | None,
    urls: tuple[str, ...],
    routers: tuple[str, ...],
    credentials: Credentials,
) -> None:
    """Show message rates of routers, queues, connections and clients, the busiest first, until Ctrl-C.

    Rates are messages per second during the last interval. For a publisher, the router counts the messages that it
    receives; for a subscriber, those that it sends and those that the subscriber accepts. Between routers it counts
    AMQP messages, each of which may carry many deliveries, and all bytes of the connection. For a queue, its leader
    counts the messages that come into it and that leave it. The leader's own rates have such a message twice: as it
    comes from its publisher, and as it goes to a consumer. The table has as many links as fit on the screen; --json has
    all.

    \b
    Examples:
      oncemesh top
      oncemesh top --router b --interval 500ms
      oncemesh top --once --json | jq '.links[0]'
    """

    async def tell(management: Management) -> None:
        out = console()
        if machine or once or not out.is_terminal:
            await _look(management, lambda seen: _print(out, seen, machine=machine))
            return
        with Live(console=out, auto_refresh=False, screen=True) as live:
            await _look(management, lambda seen: live.update(render(seen, out.height), refresh=True))

    async def _look(management: Management, show: Any) -> None:
        before = await looks(management)
        while True:
            await trio.sleep(interval)
            after = await looks(management)
            show(rates(before, after))
            if once:
                return
            before = after

    async def looks(management: Management) -> Mapping[str, RouterLook]:
        async def look(router: str) -> RouterLook:
            return RouterLook.read(await management.look(router))

        return await of_each(await planned(management, routers), look)

    ask_mesh(tell, run_dir, urls, credentials)


def _print(out: Console, seen: MeshRates, *, machine: bool) -> None:
    if machine:
        click.echo(json.dumps(seen.as_json()))
    else:
        out.print(render(seen, HEADINGS + len(seen.routers) + MOST_LINKS))


def render(seen: MeshRates, lines: int) -> RenderableType:
    """Return the tables. They have as many links as fit into `lines` lines."""
    routers = _table("Router", "In/s", "Out/s", "Accepted/s", "Links", "Records", "Memory")
    for router in seen.routers:
        flows = (router.received, router.delivered, router.accepted)
        counts = (str(router.links), str(router.records), format_size(router.memory))
        routers.add_row(Text(printable(router.router), style="bold"), *map(_rate, flows), *counts)
    parts: list[RenderableType] = [Fitting(routers, "Memory", "Records", "Links")]
    room = max(2, lines - HEADINGS - len(seen.routers) - QUEUE_HEADINGS * bool(seen.queues))
    between = seen.neighbours[: room // 2]
    if between:
        neighbours = _table("Between routers", "Messages/s", "Bytes/s")
        for way in between:
            neighbours.add_row(f"{way.router} → {way.neighbour}", _rate(way.messages or 0.0), _size(way.bytes))
        parts += "", Fitting(neighbours), *_left_out(len(seen.neighbours) - len(between), "between routers")
    shown = seen.queues[: max(1, room // 4)]
    if shown:
        queues = _table("Queue", "In/s", "Out/s", "Messages", "Oldest", "Consumers", "Leader")
        for queue in shown:
            oldest = format_duration(queue.oldest_s) if queue.messages else ""
            depth = (f"{queue.messages:,}", oldest, str(queue.consumers))
            queues.add_row(Text(printable(queue.queue)), _rate(queue.came), _rate(queue.left), *depth, queue.router)
        fitting = Fitting(queues, "Consumers", "Oldest", "Leader")
        parts += "", fitting, *_left_out(len(seen.queues) - len(shown), "queues")
        room = max(2, room - len(shown))
    if seen.links:
        links = _table("Link", "Rate/s", "Accepted/s", "Bytes/s", "Waiting", "Role", "Address", "Router")
        for link in seen.links[: room - len(between)]:
            name = f"{link.container}/{link.link}"
            accepted = _rate(link.accepted) if link.accepted is not None else ""
            words = (link.role if link.status == "attached" else f"{link.role}, {link.status}", link.address)
            cells = (name, _rate(link.rate), accepted, _size(link.bytes), str(link.waiting), *words, link.router)
            links.add_row(*(Text(printable(cell)) for cell in cells))
        fitting = Fitting(links, "Role", "Bytes/s", "Waiting", "Accepted/s")
        parts += "", fitting, *_left_out(len(seen.links) - room + len(between), "links")
    return Group(*parts)


def _left_out(number: int, what: str) -> list[RenderableType]:
    return [Text(f"and {number} more {what} (--json has all)", style="dim")] if number > 0 else []


def _table(name: str, *headings: str) -> Table:
    table = Table(name, box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("Role", "Address", "Router", "Leader") else "right")
    for column in table.columns:
        if column.header in ("Link", "Address", "Queue"):
            column.overflow = "fold"
    return table


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


def _size(rate: float | None) -> str:
    return format_size(round(rate)) if rate is not None else ""
