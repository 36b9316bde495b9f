"""The command `chaos`, which breaks a mesh on purpose. Its exit status is the audit's (`failover.cli.audit`)."""

import json
import logging
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from failover.cli.audit import NO_VERDICT, judge
from failover.cli.judging import needs_audit
from router.cli.base import console, run, until_signal
from router.cli.commands import INTERRUPTED
from router.mesh.errors import FileError, RunError
from router.mesh.rundir import RunDirectory

if TYPE_CHECKING:
    from failover.chaos.run import Ending
    from failover.chaos.script.script import Script

HOLDS, UNDECIDED, QUALIFIED = 0, 3, 4
MOST_SEED = 1 << 32


@click.command()
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for logs and state; an earlier run in it is deleted. Default: ./run/chaos-<script>.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, MOST_SEED),
    help="Seed of all random choices. Default: a new one, which is printed.",
)
@click.option("--namespaces", is_flag=True, help="Give each router its own network namespace; needs root.")
@needs_audit
def chaos(script: Path, run_dir: Path | None, seed: int | None, namespaces: bool) -> None:
    """Run a mesh under load, inject the faults of a script, then audit the run.

    The command starts the mesh of the script on free ports, starts its clients, injects its faults, ends all faults,
    waits until every message is delivered, and audits the run. Scripts are in topologies/chaos.

    With --namespaces, every router has its own network namespace, and the links are real interfaces: a script can then
    lose packets and pull cables. This needs root. The command removes the namespaces at its end, also after an error.

    Exit status, as of audit: 0 exactly once holds; 1 it is violated; 2 no verdict; 3 undecided, or messages were still
    under way at the end, or a router or client crashed, or a client counts errors that the audit does not explain;
    4 it holds, but not for everybody.

    \b
    Examples:
      oncemesh chaos topologies/chaos/kill-home.yaml --seed 7
      oncemesh chaos topologies/chaos/namespaces/mayhem.yaml --namespaces
    """
    raise click.exceptions.Exit(play(script, run_dir, seed, namespaces))


def play(path: Path, run_dir: Path | None, seed: int | None, namespaces: bool = False) -> int:
    """Run a script, audit the run, and return the exit status. If the run or the audit fails, return NO_VERDICT."""
    from failover.chaos.hosts.namespace import lacking
    from failover.chaos.run import prepare
    from failover.chaos.script.reader import load

    seed = secrets.randbelow(MOST_SEED) if seed is None else seed
    try:
        script = load(path)
        if not namespaces and (words := sorted({line.verb.name for line in script.faults if line.verb.packets})):
            raise RunError(f"{path}: the fault {words[0]} acts on packets and needs --namespaces")
        if namespaces and (reason := lacking()):
            raise RunError(f"cannot create network namespaces: {reason}")
        directory = prepare(run_dir or Path("run") / f"chaos-{script.name}", script)
        ending = run(_play, script, seed, directory, namespaces)
        if ending is not None:
            _sum_up(console(), script, ending)
    except (RunError, FileError) as error:
        click.echo(f"Error: {error}", err=True)
        return NO_VERDICT
    except SystemExit:  # standard output is closed
        return NO_VERDICT
    if ending is None:
        click.echo("Error: interrupted: the mesh was stopped, and there is no verdict", err=True)
        return INTERRUPTED
    verdict = judge((str(directory.path),))
    if verdict not in (HOLDS, QUALIFIED):
        return verdict
    disputed = _disputed(directory)
    for line in disputed:
        console().print(f"not explained: {line}", style="bold yellow", markup=False)
    return verdict if ending.clean and not disputed else UNDECIDED


def _disputed(directory: RunDirectory) -> list[str]:
    """Yield a line for each count of messages that, by the clients' own accounts, are missing, doubled or overtaken,
    and that the audit does not explain."""
    from failover.chaos.accounts import unexplained
    from failover.chaos.record import FILE

    try:
        record, report = (json.loads((directory.path / name).read_text()) for name in (FILE, "audit.json"))
    except (OSError, ValueError):  # the audit has already printed a warning about the file
        return [f"{directory.path}: {FILE} or audit.json is missing or damaged, so they cannot be compared"]
    return list(unexplained(record["clients"], report["pairs"], report["violations"]))


async def _play(script: "Script", seed: int, directory: RunDirectory, namespaces: bool) -> "Ending | None":
    from failover.chaos.hosts.hosts import Hosts
    from failover.chaos.run import perform
    from failover.chaos.view import LiveView, PlainView

    logging.getLogger("oncemesh").addHandler(logging.NullHandler())  # connections fail on purpose in a run of chaos
    out = console()
    out.print(f"script {script.name}, seed {seed}, run directory {directory.path}", style="bold", soft_wrap=True)
    ending = None
    async with until_signal():
        view = LiveView(out) if out.is_terminal else PlainView(out)
        ending = await perform(script, seed, directory, view, ground=Hosts() if namespaces else None)
    return ending


def _sum_up(out: Console, script: "Script", ending: "Ending") -> None:
    sums = ending.counts
    out.print(
        f"offered {script.count} messages ({script.offered:g}/s), sent {sums['sent']}, accepted {sums['accepted']}, "
        f"received by subscribers {sums['received']}"
    )
    if (unsent := script.count - sums["sent"]) > 0:
        out.print(
            f"{unsent} offered messages were never sent (this is no loss): a publisher that falls behind its rate "
            "skips messages that were due more than a second ago. Reasons are a lost router, subscribers that it waits "
            "for, or a slow machine",
            soft_wrap=True,
        )
    out.print(
        f"counted by the clients themselves: {sums['missing']} missing, {sums['doubled']} doubled, "
        f"{sums['overtaken']} out of order",
        style="yellow" if sums["missing"] or sums["doubled"] or sums["overtaken"] else "",
    )
    for line in ending.unfinished:
        out.print(f"not finished: {line}", style="red")
    if ending.crashes:
        out.print(f"{ending.crashes} routers or clients crashed, see above", style="red")
