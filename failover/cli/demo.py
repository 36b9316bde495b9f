"""The command demo: the whole job once, small enough to watch. A mesh, clients, a router killed mid-stream, and the
audit's verdict. It is the chaos script failover/chaos/demo/demo.yaml.
"""

from pathlib import Path

import click

from failover.cli.chaos import play
from failover.cli.judging import needs_audit

SCRIPT = Path(__file__).parents[1] / "chaos" / "demo" / "demo.yaml"


@click.command()
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("run/demo"),
    show_default=True,
    help="Directory for logs and state; an earlier run in it is deleted.",
)
@needs_audit
def demo(run_dir: Path) -> None:
    """Show failover in action: start a mesh, kill routers under load, audit the run.

    \b
    Example: oncemesh demo
    """
    raise click.exceptions.Exit(play(SCRIPT, run_dir, seed=1))
