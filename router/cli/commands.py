"""Groups of commands. A group prints errors of users in one line, and loads a command only when the user names it.

This module imports click, and nothing else that loads slowly: `oncemesh --help` loads no command.
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

# Without a handler, Python would print warnings of the log, which commands report themselves.
logging.getLogger("oncemesh").addHandler(logging.NullHandler())

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as shells report it."""

NARROW: Final = 52
"""On a terminal with fewer columns, such as a phone's, click's help texts are too wide."""


class Listed(click.Command):
    """A command that is loaded only when it is used. `place` is `module:attribute`; `help` is the first sentence of the
    command's help."""

    def __init__(self, name: str, place: str, help: str) -> None:
        super().__init__(name, help=help)
        self._place = place

    def loaded(self) -> click.Command:
        module, _, attribute = self._place.partition(":")
        with interruptible():
            command: click.Command = getattr(import_module(module), attribute)
        return command


class Subcommands(click.Group):
    """A group that lists its commands in the order of use, each with the whole first sentence of its help."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        # With no limit for the length, click does not cut the sentence on a narrow terminal.
        cmd.short_help = cmd.get_short_help_str(limit=1000)
        super().add_command(cmd, name)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)


class Commands(Subcommands):
    """The group of all commands. It prints errors of users in one line."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, others = super().resolve_command(context, args)
        return name, command.loaded() if isinstance(command, Listed) else command, others

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        if (columns := shutil.get_terminal_size().columns) < NARROW:
            extra.setdefault("terminal_width", columns)
        # The options --help and --version print their texts here.
        with plain_errors():
            return super().make_context(*arguments, **extra)

    def invoke(self, context: click.Context) -> Any:
        with plain_errors():
            return super().invoke(context)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print an error that is no bug in one line, without a traceback. After Ctrl-C print nothing."""
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
        # An OSError that names a file is about a file of the user. Any other OSError is a bug, and keeps its traceback.
        if error.filename is None or isinstance(error, BrokenPipeError):
            raise
        raise click.ClickException(f"{os.fsdecode(error.filename)}: {error.strerror}") from None


def nobody_reads_on() -> None:
    """Point standard output at /dev/null: otherwise Python's flush at the exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
