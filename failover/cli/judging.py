"""What a command needs that judges, and says where it is missing."""

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

AUDIT: Final = ("jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark")
"""What is installed with the extra `audit` only: routers and clients are small without."""


class NotInstalled(click.ClickException):
    exit_code = 2  # no verdict: never the status of a violation


def needs_audit(command: Command) -> Command:
    """A command that judges. Where that cannot be done, it says so before it does anything else."""

    @functools.wraps(command)
    def checked(*arguments: Any, **options: Any) -> Any:
        if missing := [name for name in AUDIT if find_spec(name) is None]:
            name = click.get_current_context().info_name
            raise NotInstalled(f"{name} needs {', '.join(missing)}: run pip install '.[audit]' in a clone")
        return command(*arguments, **options)

    return checked  # type: ignore[return-value]
