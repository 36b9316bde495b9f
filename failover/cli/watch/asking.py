"""The common part of the commands for queues and for replica sets: their options, their requests and their tables."""

from collections.abc import Callable, Iterable
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from failover.cli.watch.mesh_client import Main, ask_mesh, whole_mesh_options
from failover.client.management import Management, RefusedError
from router.amqp.sasl.credentials import Credentials
from router.mesh.errors import RunError
from router.text.fitting import Fitting
from router.text.printable import printable

Command = TypeVar("Command", bound=Callable[..., Any])
Ask = Callable[[Main], None]
"""A function that connects to the mesh, and runs the given function with this connection."""

json_option = click.option("--json", "machine", is_flag=True, help="Print one JSON document.")


def asking(command: Command) -> Command:
    """Add to a command the options that say where the mesh is. In place of these options, the command gets an `ask`."""

    @wraps(command)
    def told(run_dir: Path | None, urls: tuple[str, ...], credentials: Credentials, **given: Any) -> Any:
        return command(ask=lambda main: ask_mesh(partial(_plainly, main), run_dir, urls, credentials), **given)

    return whole_mesh_options(told)  # type: ignore[return-value]


async def _plainly(main: Main, management: Management) -> None:
    try:
        await main(management)
    except RefusedError as error:
        raise RunError(printable(error.description)) from None


def table(headings: Iterable[str], rows: Iterable[Iterable[str]], *least: str) -> Fitting:
    """Make a table. `least` has the headings of the columns that a narrow terminal may leave out, the least important
    column first."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        made.add_column(heading, overflow="fold" if heading in ("Queue", "Settings") else "ellipsis")
    for cells in rows:
        made.add_row(*(Text(printable(cell)) for cell in cells))
    return Fitting(made, *least)
