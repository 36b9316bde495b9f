"""Groups of commands: they tell the users' errors plainly, and load a command when it is asked for.

Loads click, and nothing else of weight: `oncemesh --help` loads no command.
"""

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import click

from router.cli.loading import interruptible
from router.mesh.errors import FileError, RunError

# What matters of a connection is told otherwise; without a handler Python would print the log's warnings. Routers have
# handlers of their own.
logging.getLogger("oncemesh").addHandler(logging.NullHandler())

INTERRUPTED: Final = 130
"""The exit status, as shells report it."""

NARROW: Final = 52
"""Columns. On a terminal of less, such as a phone's, click's helps are wider than it."""


class Listed(click.Command):
    """A command by the place where it is: `module:attribute`. `help` is the first sentence of the command's own."""

    def __init__(self, name: str, place: str, help: str) -> None:
        super().__init__(name, help=help)
        self._place = place

    def loaded(self) -> click.Command:
        module, _, attribute = self._place.partition(":")
        with interruptible():
            command: click.Command = getattr(import_module(module), attribute)
        return command


class Commands(click.Group):
    """A group that lists its commands in the order of use and tells the users' errors plainly."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        cmd.short_help = cmd.get_short_help_str(limit=1000)  # click would cut it on a narrow terminal
        super().add_command(cmd, name)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, others = super().resolve_command(context, args)
        return name, command.loaded() if isinstance(command, Listed) else command, others

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
