"""The command `oncemesh render`: writes files that run a mesh on its hosts. It overwrites only files that it has
written."""

from pathlib import Path
from typing import Final

import click

from router.cli.router import check_addresses
from router.deploy.compose import FILE, compose
from router.deploy.systemd import unit
from router.mesh.config import Topology
from router.mesh.errors import RunError
from router.mesh.topology import load

MARK: Final = "# Written by oncemesh render"


@click.command()
@click.argument("topology", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def render(topology: Path, folder: Path) -> None:
    """Write systemd units and a compose file that run a mesh on its hosts.

    The command writes a systemd unit for each router, and one compose file with a service for each router.
    docs/operations.md says where they expect their files. The command replaces files that it wrote earlier. If another
    file has the name of one of them, it writes nothing.

    \b
    Example: oncemesh render mesh.yaml deploy
    """
    plan = load(topology)
    for name in plan.routers:
        check_addresses(plan, name)
    files = rendered(plan)
    for name in files:
        _check(folder / name)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
        click.echo(str(folder / name))


def rendered(plan: Topology) -> dict[str, str]:
    """Maps the name of each file to its content."""
    files = dict(unit(plan, router) for router in plan.routers) | {FILE: compose(plan)}
    mark = f"{MARK} from {plan.path.name}; the next oncemesh render replaces it. Add your settings in another file.\n"
    return {name: mark + text for name, text in files.items()}


def _check(path: Path) -> None:
    try:
        with path.open() as file:
            if file.readline().startswith(MARK):
                return
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError):
        pass
    raise RunError(f"{path}: not written by oncemesh render, so it is kept; expected another folder")
