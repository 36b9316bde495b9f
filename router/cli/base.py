"""The common part of commands: the console, signals, trio's run, the choice of a run directory.

Router processes load this module, too, so it imports only what they need anyway.
"""

import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
import trio

from router.groups import leaves

if TYPE_CHECKING:
    from rich.console import Console

Result = TypeVar("Result")

PIPE_WIDTH = 100_000
"""The width, in columns, of a console without a terminal. It is so large that rich wraps no line; rich's default is
80."""


def standard_output() -> TextIO:
    # The parent process has closed standard output.
    if sys.stdout is None:
        raise click.ClickException("there is no standard output")
    return sys.stdout


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    width = None if (sys.stderr if stderr else standard_output()).isatty() else PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


@asynccontextmanager
async def until_signal() -> AsyncIterator[trio.CancelScope]:
    """Cancel the body on Ctrl-C, SIGTERM or a closed terminal. The scope that is returned tells whether this has
    happened."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def cancel(scope: trio.CancelScope) -> None:
                async for _ in signals:
                    scope.cancel()

            with trio.CancelScope() as scope:
                nursery.start_soon(cancel, scope)
                yield scope
            nursery.cancel_scope.cancel()


def run(main: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
    """Like `trio.run`. If all tasks fail with one and the same error, this error is raised without its exception
    groups."""
    try:
        return trio.run(main, *arguments)
    except BaseExceptionGroup as group:
        [error, *others] = {id(error): error for error in leaves(group)}.values()
        if others:
            raise
        raise error from None


run_dir_option = click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="The run directory of the mesh. Default: the only running mesh under ./run.",
)
