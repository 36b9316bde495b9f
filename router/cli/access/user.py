"""The command `oncemesh user`: the users in a file of users."""

import json
import sys
from pathlib import Path

import click

from router.amqp.format.errors import AmqpError
from router.amqp.sasl.scram import Verifier
from router.cli.access.login import read_password
from router.cli.commands import Subcommands
from router.mesh.errors import RunError
from router.security.users import EXPECTED, USER, UserFile, read_users, write_users

file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.group(cls=Subcommands)
def user() -> None:
    """Manage the users and passwords of a mesh (the file `security.users` of its topology).

    Running routers notice a change at once. A removed user keeps the connections that are already open.

    \b
    Example: oncemesh user add users alice
    """


@user.command()
@file_argument
@click.argument("name")
@click.option(
    "--password-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File whose first line is the password. Default: ask on the terminal, or read standard input.",
)
def add(file: Path, name: str, password_file: Path | None) -> None:
    """Add a user, or change the password of a user.

    \b
    Example: oncemesh user add users alice
    """
    if not USER.fullmatch(name):
        raise RunError(f"{name!r} is not a valid user name, {EXPECTED}")
    users = read_users(file) if file.exists() and file.stat().st_size else UserFile()
    word = "changed" if name in users.verifiers else "added"
    password = read_password(password_file) if password_file is not None else _asked()
    try:
        verifier = Verifier.of(password)
    except AmqpError as error:
        raise RunError(f"not a password: {error.description}") from None
    users.verifiers[name] = verifier
    write_users(file, users)
    click.echo(f"{name} {word}")


def _asked() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    if not (password := sys.stdin.readline().rstrip("\r\n")):
        raise RunError("expected a password on standard input")
    return password


@user.command()
@file_argument
@click.argument("name")
def remove(file: Path, name: str) -> None:
    """Remove a user.

    \b
    Example: oncemesh user remove users alice
    """
    users = read_users(file)
    if users.verifiers.pop(name, None) is None:
        raise RunError(f"{file}: there is no user {name!r}")
    write_users(file, users)
    click.echo(f"{name} removed")


@user.command("list")
@file_argument
@click.option("--json", "machine", is_flag=True, help="Print one JSON list.")
def show(file: Path, machine: bool) -> None:
    """List the names of all users.

    \b
    Example: oncemesh user list users
    """
    names = list(read_users(file).verifiers)
    click.echo(json.dumps(names) if machine else "\n".join(names), nl=machine or bool(names))
