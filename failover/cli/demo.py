"""The command `oncemesh demo`. It runs a small chaos script of failover/chaos/demo: starts a mesh and clients, kills
routers while messages are under way, and audits the run."""

from pathlib import Path

import click

from failover.cli.chaos import play
from failover.cli.judging import needs_audit

FOLDER = Path(__file__).parents[1] / "chaos" / "demo"


@click.command()
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("run/demo"),
    show_default=True,
    help="Directory for logs and state; an earlier run in it is deleted.",
)
@click.option("--queues", is_flag=True, help="Show a replicated queue instead of a topic.")
@needs_audit
def demo(run_dir: Path, queues: bool) -> None:
    """Show failover in action: start a mesh, kill routers under load, audit the run.

    With --queues, publishers and consumers share a queue that all three routers keep. The router that leads the
    queue's replica set is killed, then a router that follows, then all three at once.

    \b
    Examples:
      oncemesh demo
      oncemesh demo --queues
    """
    raise click.exceptions.Exit(play(FOLDER / ("queues.yaml" if queues else "demo.yaml"), run_dir, seed=1))
