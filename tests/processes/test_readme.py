"""README, docs/commands.md and the pages about queues, typed as printed: one shell runs every block, in a folder with
what a fresh clone has. Programs and topologies are files there, under the names that their first lines say.

A block that is not run says why in a comment above it: `<!-- not run by the tests: it takes an hour -->`. What README
shows of a command's output has to be printed, with whatever figures; tables are left out, as they show a moment.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from failover.chaos.script.reader import load as load_script
from router.mesh.topology import load as load_topology
from tests.left import assert_none_left

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OF_A_MOMENT = re.compile(r"\S  +\S|[─━│┃]|^ *[0-9.]+s  |^ *(\.\.\.)?$")
"""Lines of tables, those that begin with a time, and what is left out."""
FILES = ("yaml", "python")
NOT_RUN = "not run by the tests: "
PATIENCE_S = 900.0
"""All of it takes a minute where nothing else runs."""
LESS = {"--count 20000": "--count 2500", "--rate 1000": "--rate 250"}
"""What has to be under way while a reader types the next lines needs less for those who type fast."""
AT_A = """$(python3 -c 'import json; print(json.load(open("run/triangle/mesh.json"))["routers"]["a"]["amqp"])')"""
"""Where router a listens: on a free port here."""
SECONDS = re.compile(r"(?<=duration: )[\d.]+(?=s)|(?<=at: )[\d.]+(?=s)|(?<=for: )[\d.]+(?=s)|(?<=s\.\.)[\d.]+(?=s)")
"""In a script of faults: when each begins, and how long it lasts."""
DONE = "--- exit status"


@attrs.frozen
class Block:
    language: str
    text: str
    not_run: str | None
    """Why."""

    @property
    def commands(self) -> Iterator[str]:
        """What follows a prompt; a line that ends with a backslash goes on in the next."""
        lines = iter(self.text.splitlines())
        for line in lines:
            if self.language == "console" and line.startswith("$ "):
                command = line.removeprefix("$ ")
                while command.endswith("\\"):
                    command += "\n" + next(lines)
                yield command
            elif self.language == "sh":
                yield line

    @property
    def output(self) -> list[str]:
        """What the commands of a session print."""
        typed = "\n".join(self.commands).splitlines()
        lines = self.text.splitlines() if self.language == "console" else []
        return [line for line in lines if line.removeprefix("$ ") not in typed and not OF_A_MOMENT.search(line)]


def blocks(text: str) -> list[Block]:
    found = []
    for comment, language, inside in BLOCK.findall(text):
        reason = comment.removeprefix(NOT_RUN) if comment.startswith(NOT_RUN) else None
        found.append(Block(language, inside, reason))
    return found


PLAYED = (("README.md", "docs/commands.md"), ("docs/queues.md",), ("docs/roles.md",))
"""The documents that each shell is given, one after the other."""
NAMED = re.compile(r"# (\S+\.(?:py|yaml))\n")


def blocks_of(names: tuple[str, ...]) -> list[Block]:
    return [block for name in names for block in blocks((ROOT / name).read_text())]


played = pytest.mark.parametrize("names", PLAYED, ids=lambda names: names[0])
FREE = re.compile(r"(127\.0\.0\.1):\d+")


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """With topologies on free ports, and a tenth of the load, in half of its time. Nothing that was started in it is
    left."""
    shutil.copytree(ROOT / "topologies", tmp_path / "topologies")
    for path in (tmp_path / "topologies").rglob("*.yaml"):
        free = FREE.sub(r"\1:0", path.read_text())
        path.write_text(re.sub(r"(rate: \d+)0\b", r"\1", free))
    for path in (tmp_path / "topologies/chaos").glob("*.yaml"):
        path.write_text(SECONDS.sub(lambda found: f"{float(found[0]) / 2:g}", path.read_text()))
    yield tmp_path
    assert_none_left(tmp_path)


def typed(commands: list[str], clone: Path) -> str:
    """What a shell prints that is given these commands, one after the other."""
    program = Path(sys.executable).with_name("oncemesh")
    assert program.exists(), "the command is not installed"
    script = clone / "typed.sh"
    text = "".join(f'{command}\necho "{DONE} $?"\n' for command in commands)
    for word, instead in {"/tmp/": f"{clone}/", "127.0.0.1:5672": AT_A, **LESS}.items():
        text = text.replace(word, instead)
    script.write_text(text)
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    printed = clone / "printed.txt"
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    with printed.open("w") as output:
        shell = subprocess.Popen(["bash", str(script)], cwd=clone, env=environment, stdout=output, **streams)
        try:
            shell.wait(PATIENCE_S)
        finally:
            shell.kill()
            shell.wait()
            print(printed.read_text())  # for whoever looks why it failed
    return printed.read_text()


def plain(line: str) -> str:
    """Any figure, and one of something or several."""
    return re.sub(r"\d[\d.,]*( \w+?s?\b)?", lambda found: "N" + (found[1] or "").removesuffix("s"), line.strip())


@played
def test_every_block_is_run_or_says_why_not(names: tuple[str, ...]) -> None:
    for block in blocks_of(names):
        if block.not_run is None:
            assert block.language in ("console", "sh", *FILES), f"what is this?\n{block.text}"
            assert block.language in FILES or list(block.commands), f"there is nothing to be typed\n{block.text}"


@played
def test_it_can_be_typed_as_it_is_printed(names: tuple[str, ...], clone: Path) -> None:
    found = blocks_of(names)
    for block in found:
        if block.language in FILES and (named := NAMED.match(block.text)):
            (clone / named[1]).write_text(FREE.sub(r"\1:0", block.text) if block.language == "yaml" else block.text)
    shown = [block for block in found if block.not_run is None and block.language not in FILES]
    commands = [command for block in shown for command in block.commands]
    printed = typed(commands, clone)
    ends = re.findall(f"^{DONE} (.*)$", printed, re.MULTILINE)
    assert list(zip(commands, ends, strict=True)) == [(command, "0") for command in commands]
    assert "Traceback" not in printed
    lines = {plain(line.replace(str(clone), "/home/me/oncemesh")) for line in printed.splitlines()}
    missing = [line for block in shown for line in block.output if plain(line) not in lines]
    assert missing == []


@played
def test_its_files_can_be_read(names: tuple[str, ...], clone: Path) -> None:
    files = [block.text for block in blocks_of(names) if block.language == "yaml" and block.not_run is None]
    for text in files:
        path = clone / "topologies" / "chaos" / "readme.yaml"
        path.write_text(text)
        load_topology(path) if re.search(r"^mesh:", text, re.MULTILINE) else load_script(path)
    assert files
