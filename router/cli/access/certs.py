"""The command `oncemesh certs`: certificates for trying TLS out."""

from pathlib import Path

import click

from router.mesh.errors import RunError
from router.mesh.topology import load
from router.security.operator import OPERATOR
from router.security.users import EXPECTED, USER


@click.group()
def certs() -> None:
    """Certificates for trying TLS out.

    \b
    Example: oncemesh certs init topologies/pair.yaml
    """


@certs.command()
@click.argument("topology", type=click.Path(path_type=Path))
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path("certs"), show_default=True)
@click.option("--user", "users", multiple=True, help="One for a client of this name, too; may be repeated.")
def init(topology: Path, folder: Path, users: tuple[str, ...]) -> None:
    """Make a small CA, and a certificate for each router of a topology.

    A CA that is in the folder goes on, and vouches for new certificates in place of those that are there. They last a
    year. Routers that run read theirs anew on SIGHUP. The user $mesh is who runs the mesh.

    \b
    Example: oncemesh certs init mesh.yaml --user alice
    """
    from router.security.certs import CA, issue_all

    plan = load(topology)
    if taken := [user for user in users if user in plan.routers]:
        raise RunError(f"{taken[0]} is a router: a client of this name would be taken for it")
    if wrong := [user for user in users if user != OPERATOR and not USER.fullmatch(user)]:
        raise RunError(f"{wrong[0]!r} is no user, {EXPECTED}")
    if CA in (*plan.routers, *users):
        raise RunError(f"{CA} is the CA: a router or a client of this name would take the place of its files")
    try:
        made = issue_all(plan, folder, users)
    except ValueError as error:
        raise RunError(f"{folder}: {error}") from None
    for path in made:
        click.echo(f"{path} and {path.with_suffix('.key').name}")
