"""The command that prints a shell's completion script."""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the shell script that completes commands and options on Tab.

    \b
    Examples:
      oncemesh completion bash >> ~/.bashrc
      oncemesh completion zsh >> ~/.zshrc
      oncemesh completion fish > ~/.config/fish/completions/oncemesh.fish
    """
    click.echo(SHELLS[shell](context.find_root().command, {}, "oncemesh", "_ONCEMESH_COMPLETE").source())
