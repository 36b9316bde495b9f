"""The command `oncemesh certs`: certificates to try out TLS."""

from pathlib import Path

import click

from router.cli.commands import Subcommands
from router.mesh.errors import RunError
from router.mesh.topology import load
from router.security.operator import OPERATOR
from router.security.users import EXPECTED, USER


@click.group(cls=Subcommands)
def certs() -> None:
    """Create certificates to try out TLS.

    \b
    Example: oncemesh certs init topologies/pair.yaml
    """


@certs.command()
@click.argument("topology", type=click.Path(path_type=Path))
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path("certs"), show_default=True)
@click.option(
    "--user", "users", multiple=True, help="Also create a certificate for a client of this name; may be repeated."
)
def init(topology: Path, folder: Path, users: tuple[str, ...]) -> None:
    """Create a small CA and a certificate for each router of a topology.

    If the folder already has a CA of this command, that CA signs new certificates, which replace the old ones.
    Certificates are valid for a year. A running router reads its certificate again on SIGHUP. Use --user '$mesh' for a
    certificate of an operator.

    \b
    Example: oncemesh certs init mesh.yaml --user alice
    """
    from router.security.certs import CA, issue_all

    plan = load(topology)
    if taken := [user for user in users if user in plan.routers]:
        raise RunError(f"{taken[0]} is the name of a router, expected another name for the client")
    if wrong := [user for user in users if user != OPERATOR and not USER.fullmatch(user)]:
        raise RunError(f"{wrong[0]!r} is not a valid user name, {EXPECTED}")
    if CA in (*plan.routers, *users):
        raise RunError(f"{CA} is the name of the CA's files, expected another name for a router or client")
    try:
        made = issue_all(plan, folder, users)
    except ValueError as error:
        raise RunError(f"{folder}: {error}") from None
    for path in made:
        click.echo(f"{path} and {path.with_suffix('.key').name}")
