"""The command that judges: audit. Its exit status is the verdict (see failover/audit/report.py)."""

from pathlib import Path

import click

from router.cli_base import console

NOTHING_READABLE = 2


@click.command()
@click.argument("run_dirs", nargs=-1, required=True, metavar="RUN_DIR...")
@click.option("--master", metavar="URL", help="A Spark master. Default: local, on this machine's cores.")
def audit(run_dirs: tuple[str, ...], master: str | None) -> None:
    """Reconcile the delivery logs of a run: did every subscriber get everything exactly once?

    A run directory may be any path that Hadoop reads; several belong to one mesh. Writes audit.json next to the first
    one's logs, or here if that is not a local directory.

    \b
    Exit status: 0 exactly once holds, 1 it was violated, 2 a log is missing or damaged in its middle, 3 undecided.

    \b
    Example: oncemesh audit run/triangle
    """
    raise click.exceptions.Exit(judge(run_dirs, master))


def judge(run_dirs: tuple[str, ...], master: str | None = None) -> int:
    """Audits, shows and writes the verdict; returns the exit status."""
    from failover.audit import AuditError, run

    out = console()
    try:
        with out.status("auditing"):
            report = run(run_dirs, master)
    except AuditError as error:
        click.echo(f"Error: {error}", err=True)
        return NOTHING_READABLE
    report.render(out)
    first = Path(run_dirs[0])
    path = (first if first.is_dir() else Path()) / "audit.json"
    report.write(path)
    out.print(f"all of it in {path}", soft_wrap=True)
    return report.exit_code
