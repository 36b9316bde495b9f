"""What the commands of `oncemesh` share: plain errors, the console, the choice of a run directory.

Router processes load this module too, so it imports only what they need anyway.
"""

import errno
import functools
import logging
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
import trio

from router.amqp.sasl.credentials import Credentials
from router.groups import leaves
from router.mesh.reading import FileError
from router.mesh.rundir import RunDirectory, RunError
from router.mesh.status import FetchStatus
from router.security.operator import operator_of

if TYPE_CHECKING:
    from rich.console import Console

Result = TypeVar("Result")
Command = TypeVar("Command", bound=Callable[..., Any])

# What matters of a connection is told otherwise; without a handler Python would print the log's warnings. Routers have
# handlers of their own.
logging.getLogger("oncemesh").addHandler(logging.NullHandler())

PIPE_WIDTH = 100_000
"""Columns. Where there is no terminal no line is too long: rich would assume 80, and wrap."""

INTERRUPTED = 130
"""The exit status, as shells report it."""

NARROW = 52
"""Columns. On a terminal of less, such as a phone's, click's helps are wider than it."""

# What is installed with the extra `audit` only: routers and clients are small without.
AUDIT = ("jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark")


class NotInstalled(click.ClickException):
    exit_code = 2  # no verdict: never the status of a violation


def needs_audit(command: Command) -> Command:
    """A command that judges. Where that cannot be done, it says so before it does anything else."""

    @functools.wraps(command)
    def checked(*arguments: Any, **options: Any) -> Any:
        if missing := [name for name in AUDIT if find_spec(name) is None]:
            name = click.get_current_context().info_name
            raise NotInstalled(f"{name} needs {', '.join(missing)} besides: pip install '.[audit]' in a clone")
        return command(*arguments, **options)

    return checked  # type: ignore[return-value]


class Commands(click.Group):
    """A group that lists its commands in the order of use and tells the users' errors plainly."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        cmd.short_help = cmd.get_short_help_str(limit=1000)  # click would cut it on a narrow terminal
        super().add_command(cmd, name)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        if (columns := shutil.get_terminal_size().columns) < NARROW:
            extra.setdefault("terminal_width", columns)
        with plain_errors():  # --help and --version are printed here
            return super().make_context(*arguments, **extra)

    def invoke(self, context: click.Context) -> Any:
        with plain_errors():
            return super().invoke(context)


@contextmanager
def plain_errors() -> Iterator[None]:
    """What is no bug is told in one line; who presses ctrl-C knows why it ends."""
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except (RunError, FileError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename is None:
            nobody_reads_on()
            raise click.ClickException(f"standard output: {error.strerror}") from None
        # One that names a file is about what the user gave us; any other deserves its traceback.
        if error.filename is None or isinstance(error, BrokenPipeError):
            raise
        raise click.ClickException(f"{os.fsdecode(error.filename)}: {error.strerror}") from None


def nobody_reads_on() -> None:
    """What is left to be written to standard output would fail at the exit again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def standard_output() -> TextIO:
    if sys.stdout is None:  # closed by who has started us
        raise click.ClickException("there is no standard output")
    return sys.stdout


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    width = None if (sys.stderr if stderr else standard_output()).isatty() else PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


@asynccontextmanager
async def until_signal() -> AsyncIterator[trio.CancelScope]:
    """The body is cancelled by ctrl-C, SIGTERM or a closed terminal; the scope tells whether it was."""
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
    """`trio.run`, with an error that was alone in its exception groups raised as itself, however many tasks met it."""
    try:
        return trio.run(main, *arguments)
    except BaseExceptionGroup as group:
        [error, *others] = {id(error): error for error in leaves(group)}.values()
        if others:
            raise
        raise error from None


def fetcher(directory: RunDirectory) -> FetchStatus:
    """Asks its routers for their status, as who runs them. Files that are missing are one error, however many ask."""
    from failover.client.status import fetch_status

    @functools.cache  # as late as it is asked for: before `up` there is no topology
    def who() -> tuple[str, Credentials] | FileError:
        try:
            return operator_of(directory)
        except FileError as error:
            return error

    async def fetch(host: str, port: int, timeout: float) -> dict[str, Any]:
        found = who()
        if isinstance(found, FileError):
            raise found
        scheme, credentials = found
        return await fetch_status(host, port, timeout, credentials, scheme)

    return fetch


run_dir_option = click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="The run directory of the mesh. Default: that of the only mesh running under ./run.",
)
