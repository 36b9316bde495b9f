"""Every command explains itself, on any terminal, and shells complete it."""

import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from router.cli.commands import Listed
from router.cli.main import main
from tests.hangs import HANGS_S


def oncemesh(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("width", [80, 45])
def test_the_list_of_commands_cuts_nothing_off(width: int) -> None:
    text = CliRunner().invoke(main, ["--help"], terminal_width=width).output
    listed = " ".join(text.partition("Commands:")[2].split())
    assert "..." not in listed and "start Start stopped routers of a mesh, or all of them if you name none." in listed


@pytest.mark.parametrize("name", main.commands)
def test_the_list_says_of_a_command_what_its_own_help_begins_with(name: str) -> None:
    command = main.commands[name]
    assert isinstance(command, Listed)
    loaded = command.loaded()
    assert (loaded.name, loaded.get_short_help_str(limit=1000)) == (name, command.short_help)


def test_the_list_of_commands_loads_none_of_them() -> None:
    code = """if True:
        import sys
        from router.cli.main import main
        main(["--help"], standalone_mode=False)
        assert not {"failover", "trio", "rich", "yaml", "router.cli.base"} & sys.modules.keys()
        """
    assert subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, timeout=HANGS_S).stderr == b""


@pytest.mark.parametrize("width", [80, 45])
@pytest.mark.parametrize("name", main.commands)
def test_helps_are_no_wider_than_the_terminal_but_for_examples(name: str, width: int) -> None:
    text = CliRunner().invoke(main, [name, "--help"], env={"COLUMNS": str(width)}).output
    assert [line for line in text.splitlines() if len(line) > width and "oncemesh" not in line] == []


def commands_in(line: str) -> Iterator[list[str]]:
    """The words of each call of ours in a line of shell, without what the shell keeps to itself."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    for _, group in itertools.groupby(words, lambda word: set(word) <= set("|&<>;")):
        first, *others = group
        if first == "oncemesh":
            yield others


@pytest.mark.parametrize("name", ["", *main.commands])
def test_every_command_has_help_with_examples_that_can_be_typed(name: str) -> None:
    text = oncemesh(*name.split(), "--help").output
    [examples] = re.findall(r"Examples?:\s+(.*?)\n\n", text, re.DOTALL)
    lines = examples.splitlines()
    found = [command for line in lines for command in commands_in(line)]
    assert len(found) >= len(lines) and (not name or any(command == name for command, *_ in found))
    for command, *words in found:
        named = main.commands[command]
        assert isinstance(named, Listed)
        named.loaded().make_context(command, words)


@pytest.mark.parametrize(
    ("words", "offered"),
    [("oncemesh sta", "status start"), ("oncemesh status --w", "--watch")],
    ids=["command", "option"],
)
def test_a_shell_completes_commands_and_options(words: str, offered: str) -> None:
    asked = {"_ONCEMESH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    told = CliRunner().invoke(main, prog_name="oncemesh", env=asked).output
    assert [line.removeprefix("plain,") for line in told.splitlines()] == offered.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str) -> None:
    script = oncemesh("completion", shell).output
    assert f"_ONCEMESH_COMPLETE={shell}_complete" in script.replace("env ", "")
    if shell == "bash":
        checked = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, timeout=HANGS_S)
        assert (checked.returncode, checked.stderr) == (0, b"")
