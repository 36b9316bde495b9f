"""The command `oncemesh import`: makes a topology of the configuration of qpid-dispatch or skupper-router."""

from pathlib import Path
from tempfile import TemporaryDirectory

import click
import yaml

from router.imported.sections import sections_of
from router.imported.topology import Importer
from router.mesh.topology import TopologyError, load


@click.command("import")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--mesh", default="imported", help="The name of the mesh.")
def import_(files: tuple[Path, ...], mesh: str) -> None:
    """Make a topology of configurations of qpid-dispatch or skupper-router.

    Each file, qdrouterd.conf or skrouterd.json, has one router. The command prints one topology of all these routers,
    and lists on standard error, by file and line, what has no counterpart and what you have to check. The exit status
    is 1 if the topology is not complete.

    \b
    Example: oncemesh import a/qdrouterd.conf b/qdrouterd.conf > mesh.yaml
    """
    importer = Importer(mesh)
    for file in files:
        importer.take(file, sections_of(file))
    text = yaml.safe_dump(importer.topology(), sort_keys=False, allow_unicode=True)
    click.echo(f"# Made by oncemesh import of {', '.join(file.name for file in files)}\n{text}", nl=False)
    for remark in sorted({*importer.remarks, *importer.conflicts}):
        click.echo(str(remark), err=True)
    faults = _faults(text)
    for fault in faults:
        click.echo(fault, err=True)
    if faults or importer.conflicts:
        raise click.exceptions.Exit(1)


def _faults(text: str) -> list[str]:
    """The faults of the printed topology, each with its line there."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "topology"
        path.write_text(f"#\n{text}")
        try:
            load(path)
        except TopologyError as error:
            return [message.replace(str(path), "topology") for message in error.messages]
    return []
