"""Checks that the packages of the audit are installed, for the commands that audit a run."""

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

AUDIT: Final = ("jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark")
"""The packages that only the project's extra `audit` installs. Routers and clients do not need them."""


class NotInstalled(click.ClickException):
    # This is the exit status for "no verdict". The default of click, 1, is the status of a violation.
    exit_code = 2


def needs_audit(command: Command) -> Command:
    """Let a command fail with NotInstalled, before it does anything else, if a package of the audit is missing."""

    @functools.wraps(command)
    def checked(*arguments: Any, **options: Any) -> Any:
        if missing := [name for name in AUDIT if find_spec(name) is None]:
            name = click.get_current_context().info_name
            raise NotInstalled(f"{name} needs {', '.join(missing)}: run pip install '.[audit]' in a clone")
        return command(*arguments, **options)

    return checked  # type: ignore[return-value]
