"""The command `oncemesh forget`. It asks a router to end a link whose client is gone for good
(`router.management.forgetting`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from failover.cli.watch.mesh_client import ask_mesh, mesh_options, of_each, planned
from failover.client.management import Management
from router.amqp.sasl.credentials import Credentials
from router.mesh.errors import RunError
from router.text.printable import printable

KINDS: Final = ("publisher", "subscriber", "orphan")
ASKED: Final = ("identity", "name", "user", "role", "status")
"""The attributes that the command asks for. A row of an orphan has a role and no status; a row of any other link has a
status and no role."""
AWAY: Final = ("orphan", "suspended")
"""The statuses of a link that has no client at present."""
MOST_NAMED: Final = 10
"""The highest number of links that an error names."""

Row = dict[str, Any]


@click.command()
@click.argument("link")
@click.option(
    "--role",
    type=click.Choice(["publisher", "subscriber"]),
    help="Needed if a publisher and a subscriber have this name.",
)
@mesh_options
def forget(
    link: str,
    role: str | None,
    run_dir: Path | None,
    urls: tuple[str, ...],
    routers: tuple[str, ...],
    credentials: Credentials,
) -> None:
    """End a link whose client is gone for good; publishers no longer wait for it.

    LINK is the name that `oncemesh status` prints, or its beginning: the container alone if it has one link, such as
    reader, else reader/subscribe or "reader/subscribe on topic/news". The command refuses to end a link whose client is
    attached. If you end a subscriber, messages that waited only for it are accepted. If you end a publisher, its
    messages in doubt stay in doubt.

    A client that is attached behind a partition, out of sight of this router, loses its link when the partition heals.
    In a mesh with users or certificates, only an operator may use this command.

    \b
    Examples:
      oncemesh forget reader
      oncemesh forget "reader/subscribe on topic/news" --url amqp://10.0.0.7:5672
    """

    async def ask(management: Management) -> None:
        found = one_of(await candidates(management, routers), link, role)
        kind = f"io.oncemesh.{found['kind']}"
        await management.ask("DELETE", found["router"], type=kind, identity=found["identity"])
        click.echo(f"{_said(found)} was ended; publishers no longer wait for it")

    ask_mesh(ask, run_dir, urls, credentials)


async def candidates(management: Management, routers: Sequence[str]) -> list[Row]:
    """Return all links that the routers report. `router` names the router that can end the link. `status` says whether
    the link has a client."""

    async def of(router: str) -> list[Row]:
        rows: list[Row] = []
        for kind in KINDS:
            for row in await management.query(f"io.oncemesh.{kind}", ASKED, router):
                rows.append({"role": kind, "status": AWAY[0], **row, "kind": kind, "router": router})
        return rows

    answers = await of_each(await planned(management, routers), of)
    return [row for rows in answers.values() for row in rows]


def one_of(rows: Sequence[Row], link: str, role: str | None) -> Row:
    """Return the link that has this name and role. Several routers may report the same orphan.

    Raises RunError if no link or several links have the name, or if a client is attached to the link.
    """
    named = {_said(row): row for row in rows if role in (None, row["role"]) and _is_called(row, link)}
    if not named:
        away = dict.fromkeys(_said(row) for row in rows if row["status"] in AWAY)
        known = (
            f"these links have no client: {', '.join([*away][:MOST_NAMED])}"
            if away
            else "the clients of all links are attached"
        )
        raise RunError(f"no reachable router knows a link {printable(link)}; {known}")
    if len(named) > 1:
        which = "add the address, or use --role, or the identity that $management lists"
        raise RunError(
            f"{len(named)} links have the name {printable(link)}: {', '.join([*named][:MOST_NAMED])}; {which}"
        )
    [(said, found)] = named.items()
    if found["status"] not in AWAY:
        raise RunError(f"{said} is in use: its client is attached at router {found['router']}; stop the client instead")
    return found


def _is_called(row: Row, link: str) -> bool:
    return link in (row["name"], row["identity"]) or str(row["name"]).startswith((f"{link} on ", f"{link}/"))


def _said(row: Row) -> str:
    user = f" of user {row['user']}" if row["user"] else ""
    return printable(f"{row['role']} {row['name']}{user}")
