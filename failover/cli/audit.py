"""The commands that read delivery logs: `audit` judges a run, and `story` shows the history of one delivery.

The exit status of `audit` is the verdict (see failover/audit/report/report.py).
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from failover.cli.judging import needs_audit
from router.cli.base import console
from router.cli.commands import INTERRUPTED, nobody_reads_on
from router.mesh.quantities import format_size
from router.text.printable import printable_json

if TYPE_CHECKING:
    from rich.console import Console

    from failover.audit.follow import FollowStatus
    from failover.audit.report.report import Report

DOING = ("reading", "judging")
TELL_S = 10.0
"""Without a terminal, the command prints a line of progress every this many seconds."""
NO_VERDICT = 2

CONTEXT = {"ignore_unknown_options": True, "help_option_names": ["--help"]}
"""Lets a delivery key begin with a hyphen. The command has no short options, so click takes no key for an option."""


@click.command()
@click.argument("run_dirs", nargs=-1, required=True, metavar="RUN_DIR...")
@click.option("--spark", is_flag=True, help="Always use Spark. Default: only for logs of 100 MiB and more.")
@click.option("--master", metavar="URL", help="The Spark master. Default: the cores of this machine.")
@click.option("--tables", metavar="DIR", help="Write the findings to DIR as Parquet tables (docs/tables.md).")
@click.option("--follow", "follows", is_flag=True, help="Keep reading while the mesh runs, until Ctrl-C or SIGTERM.")
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="With --follow: save progress in DIR, and continue from there.",
)
@click.option("--json", "as_json", is_flag=True, help="With --follow: print each verdict as one line of JSON.")
@needs_audit
def audit(
    run_dirs: tuple[str, ...],
    spark: bool,
    master: str | None,
    tables: str | None,
    follows: bool,
    checkpoint: Path | None,
    as_json: bool,
) -> None:
    """Check the delivery logs of a run for lost, repeated and reordered messages.

    The audit checks that every subscriber processed every message that the mesh owed it, once and in order. A run
    directory may be any path that Hadoop reads. Several run directories must belong to one mesh. The audit writes
    audit.html and audit.json into the first run directory, or into the current directory if the first is remote. If it
    cannot write them, it prints a warning and the exit status stays the same.

    Exit status: 0 exactly once holds; 1 it is violated; 2 no verdict, because a log is missing or damaged in its
    middle, or the audit failed; 3 undecided; 4 it holds, but a message was accepted without a subscriber that was
    there, or the mesh ended a link in use.

    With --tables, the audit also writes a table row for every delivery, event and link, to query with SQL. DIR is new,
    or has the tables of an earlier audit; it may be any path that Hadoop writes. This always uses Spark.

    With --follow, the audit prints a verdict every few seconds while the mesh runs. The last verdict covers everything
    that it has read.

    \b
    Examples:
      oncemesh audit run/triangle
      oncemesh audit run/triangle --tables run/triangle/tables
      oncemesh audit run/triangle --follow --json --checkpoint run/triangle/followed
    """
    if follows:
        if spark or master is not None or tables is not None:
            raise click.UsageError(
                "--follow reads local directories without Spark: omit --spark, --master and --tables"
            )
        raise click.exceptions.Exit(_guarded(lambda: _follow(run_dirs, checkpoint, as_json)))
    if checkpoint is not None or as_json:
        raise click.UsageError("--checkpoint and --json need --follow; without it, the verdict is in audit.json")
    raise click.exceptions.Exit(judge(run_dirs, master, spark=spark, tables=tables))


def judge(
    run_dirs: tuple[str, ...], master: str | None = None, *, spark: bool = False, tables: str | None = None
) -> int:
    """Audit the logs, show and write the verdict, and return the exit status that stands for it."""
    return _guarded(lambda: _judge(run_dirs, master, spark, tables))


def _guarded(auditing: Callable[[], int]) -> int:
    """Run an audit, and return its exit status. If the audit fails, return NO_VERDICT: Python's own exit status for an
    exception is 1, which scripts would take for a violation. SIGTERM has the same effect as ctrl-c."""
    interrupted = False

    def interrupt(*_: Any) -> NoReturn:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return auditing()
    except SystemExit:  # standard output is closed
        return NO_VERDICT
    except (KeyboardInterrupt, Exception) as error:
        if interrupted or isinstance(error, KeyboardInterrupt):  # after an interrupt, Spark may fail while it closes
            click.echo("Error: the audit was interrupted: no verdict", err=True)
            return INTERRUPTED
        click.echo(f"Error: the audit failed, so there is no verdict: {_last_line(error)}", err=True)
        return NO_VERDICT
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _last_line(error: Exception) -> str:
    """The last line of a traceback, without the stack of Java. For an OSError, the line has the file and the reason."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    lines = "".join(traceback.format_exception_only(error)).splitlines()
    return next((line for line in lines if line.strip()), type(error).__name__)


def _follow(run_dirs: tuple[str, ...], checkpoint: Path | None, as_json: bool) -> int:
    """Audit the logs again and again until a signal comes. Then complete the present verdict."""
    from failover.audit import AuditError
    from failover.audit.follow import follow

    stop, out = threading.Event(), console()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    def tell(status: "FollowStatus", report: "Report") -> None:
        if as_json:
            click.echo(json.dumps(_so_far(status, report)))
        else:
            out.print(_said(status, report), soft_wrap=True)

    try:
        report = follow(run_dirs, stop.wait, tell, checkpoint)
    except AuditError as error:
        click.echo(f"Error: {error}", err=True)
        return NO_VERDICT
    except BrokenPipeError:
        nobody_reads_on()
        return NO_VERDICT
    if as_json:
        click.echo(json.dumps({"final": True, **_verdict(report)}))
    else:
        report.render(out)
    _written(Path(run_dirs[0]) / "audit.json", report.write)
    return report.exit_code


def _verdict(report: "Report") -> dict[str, Any]:
    counts = {name: sum(getattr(row, name) for row in report.publishers) for name in ("published", "accepted")}
    counts |= {name: sum(getattr(row, name) for row in report.pairs) for name in ("owed", "processed")}
    told = {"violations": report.violations, "doubts": len(report.doubts), "problems": len(report.problems)}
    return {"verdict": report.verdict.name.lower(), "sentence": report.sentence, **counts, **told}


def _so_far(status: "FollowStatus", report: "Report") -> dict[str, Any]:
    oldest_s = None if status.oldest is None else round((status.until - status.oldest) / 1e6, 1)
    return {
        "until": datetime.fromtimestamp(status.until / 1e6, UTC).isoformat(),
        "trails_s": round(time.time() - status.until / 1e6, 1),
        **_verdict(report),
        "undecided": status.undecided,
        "oldest_undecided_s": oldest_s,
        "events": status.events,
        "held": status.held,
        "links": status.links,
        "behind_bytes": status.behind,
    }


def _said(status: "FollowStatus", report: "Report") -> str:
    waiting = f"; {status.undecided} undecided" if status.undecided else ""
    if status.oldest is not None:
        waiting += f", the oldest for {(status.until - status.oldest) / 1e6:.0f} s"
    until = datetime.fromtimestamp(status.until // 1_000_000)
    return f"until {until:%H:%M:%S}, {time.time() - until.timestamp():.0f} s ago: {report.sentence}{waiting}"


def _judge(run_dirs: tuple[str, ...], master: str | None, spark: bool, tables: str | None) -> int:
    from failover.audit import AuditError, run, write_page
    from failover.audit.read.files import beside

    out = console()
    try:
        with lasting_stderr() as err, show_progress(out) if out.is_terminal else tell_progress(err) as progress:
            report = run(run_dirs, master, spark=spark, tables=tables, progress=progress)
    except AuditError as error:
        click.echo(f"Error: {error}", err=True)
        return NO_VERDICT
    report.render(out)
    folder = beside(run_dirs[0])
    try:
        told = _written(folder / "audit.json", report.write)
        shown = _written(folder / "audit.html", lambda path: write_page(report, path))
    except KeyboardInterrupt:
        click.echo(f"Warning: interrupted: the report in {folder} is not complete, but the verdict stands", err=True)
    else:
        if told and shown:
            out.print(f"full report: {folder / 'audit.html'} and audit.json", soft_wrap=True)
    return report.exit_code


def _written(path: Path, write: Callable[[Path], None]) -> bool:
    """Call `write`. If the file cannot be written, print a warning and return False. The verdict does not depend on the
    file."""
    try:
        write(path)
    except OSError as error:
        click.echo(f"Warning: {path} could not be written: {error.strerror}", err=True)
        return False
    return True


@contextmanager
def show_progress(out: "Console") -> Iterator[Callable[[int, int], None]]:
    """Show how many bytes the audit has read, as a bar. The steps before and after reading show no progress."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeElapsedColumn()
    with Progress(*columns, console=out, transient=True) as shown:
        task = shown.add_task("auditing", total=None)

        def show(read: int, size: int) -> None:
            ended = read >= size
            shown.update(task, completed=read, total=None if ended else size, description=DOING[ended])

        yield show


@contextmanager
def lasting_stderr() -> Iterator["Console"]:
    """Return a console on the present stderr. The audit redirects the process's stderr until Java has started; the
    output of this console stays visible meanwhile."""
    out = console(stderr=True)
    try:
        own = os.dup(sys.stderr.fileno())
    except (OSError, ValueError):  # stderr is not a file
        yield out
        return
    with open(own, "w", buffering=1, encoding="utf-8", errors="backslashreplace") as out.file:
        yield out


@contextmanager
def tell_progress(out: "Console", every_s: float = TELL_S) -> Iterator[Callable[[int, int], None]]:
    """Report progress where there is no terminal: one line at each interval. A short audit prints none."""
    said, done, began = "auditing", threading.Event(), time.monotonic()

    def show(read: int, size: int) -> None:
        nonlocal said
        ended = read >= size
        said = DOING[ended] if ended else f"{DOING[ended]} {format_size(read)} of {format_size(size)}"

    def tell() -> None:
        while not done.wait(every_s):
            out.print(f"{said}, for {time.monotonic() - began:.0f} s", soft_wrap=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield show
    finally:
        done.set()
        teller.join()


class Story(click.Command):
    """The class of the command `story`. If the only argument is `-h`, the command shows its help, and does not take the
    argument for a key."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(context, ["--help"] if args == ["-h"] else args)


@click.command(cls=Story, context_settings=CONTEXT)
@click.argument("run_dirs", nargs=-1, metavar="RUN_DIR...")
@click.argument("key", metavar="KEY")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--master", metavar="URL", help="A Spark master, for run directories that are not local.")
@needs_audit
def story(run_dirs: tuple[str, ...], key: str, as_json: bool, master: str | None) -> None:
    """Show the history of one delivery at all routers and clients.

    KEY is the delivery's key, or its first characters if no other key begins like this. The audit and
    `subscribe --format json` print keys. Several run directories must belong to one mesh. Write a remote run directory
    with its scheme, such as hdfs://.

    \b
    Example: oncemesh story run/triangle iOqXyO9LeQEY5ypLWcgN
    """
    from failover.audit import AuditError, tell_story

    if not run_dirs:  # click puts a single argument into KEY, so RUN_DIR is missing
        raise click.UsageError(f"expected RUN_DIR and KEY, got only {key!r}")
    try:
        told = tell_story(run_dirs, key, master)
    except AuditError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(printable_json(told.as_json(), indent=1))
    else:
        told.render(console())
