"""The command `oncemesh`, all its commands in the order in which one meets them."""

# ruff: noqa: E402
import signal
import sys

if sys.argv[1:2] == ["router"]:
    from router.mesh.stopping import put_off

    put_off()

# Ctrl-C while the rest is loaded has nothing to undo yet: it ends the command without a traceback.
_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _interruptible:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from router.cli import audit as cli_audit
from router.cli import chaos as cli_chaos
from router.cli import demo as cli_demo
from router.cli import mesh as cli_mesh
from router.cli import publish as cli_publish
from router.cli import subscribe as cli_subscribe
from router.cli.access.certs import certs
from router.cli.access.user import user
from router.cli.base import Commands
from router.cli.bench.command import bench
from router.cli.doctor.command import doctor
from router.cli.hosts.render import render
from router.cli.plan import apply as cli_apply
from router.cli.plan.join import join
from router.cli.router import router
from router.cli.watch.events import events
from router.cli.watch.forget import forget
from router.cli.watch.status import status
from router.cli.watch.top import top


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="oncemesh")
def main() -> None:
    """A mesh of AMQP 1.0 routers that forwards every message exactly once.

    \b
    Examples:
      oncemesh up topologies/triangle.yaml --detach
      oncemesh status
      oncemesh down
    """


SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print what a shell reads for Tab to complete commands and options.

    \b
    Examples:
      oncemesh completion bash >> ~/.bashrc
      oncemesh completion zsh >> ~/.zshrc
      oncemesh completion fish > ~/.config/fish/completions/oncemesh.fish
    """
    click.echo(SHELLS[shell](main, {}, "oncemesh", "_ONCEMESH_COMPLETE").source())


for _command in (
    cli_mesh.up,
    status,
    top,
    events,
    doctor,
    *cli_mesh.COMMANDS,
    *cli_apply.COMMANDS,
    join,
    router,
    render,
    cli_publish.publish,
    cli_subscribe.subscribe,
    cli_subscribe.unsubscribe,
    forget,
    bench,
    cli_chaos.chaos,
    cli_audit.audit,
    cli_audit.story,
    cli_demo.demo,
    user,
    certs,
    completion,
):
    main.add_command(_command)

if _interruptible:
    signal.signal(signal.SIGINT, signal.default_int_handler)
