"""The command that tells the life of one delivery: story."""

import json

import click

from router.cli.base import console, needs_audit

CONTEXT = {"ignore_unknown_options": True, "help_option_names": ["--help"]}
"""Keys may begin with a hyphen; no option of this command has a short form they could be taken for."""


class Story(click.Command):
    """Alone, -h is no key."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(context, ["--help"] if args == ["-h"] else args)


@click.command(cls=Story, context_settings=CONTEXT)
@click.argument("run_dirs", nargs=-1, metavar="RUN_DIR...")
@click.argument("key", metavar="KEY")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.option("--master", metavar="URL", help="A Spark master, for run directories that are not local.")
@needs_audit
def story(run_dirs: tuple[str, ...], key: str, as_json: bool, master: str | None) -> None:
    """Tell one delivery's life across routers and clients.

    KEY is the delivery's key, as a finding of the audit or `subscribe --format json` tells it, or a start of it that no
    other key has. Several run directories belong to one mesh; those that are not local are named with their scheme,
    such as hdfs://.

    \b
    Example: oncemesh story run/triangle iOqXyO9LeQEY5ypLWcgN
    """
    from failover.audit import AuditError, tell_story

    if not run_dirs:  # of one argument click takes the key to be there
        raise click.UsageError(f"RUN_DIR or KEY is missing beside {key!r}")
    try:
        told = tell_story(run_dirs, key, master)
    except AuditError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(told.as_json(), indent=1, ensure_ascii=False))
    else:
        told.render(console())
