"""The programs of docs/queue-programs.md, as they stand there, on three routers."""

import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from router.mesh.quantities import Address
from tests.forks import COMMAND_LINE
from tests.interop.foreign import HERE, NODE, prepare
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, eventually

ROOT: Final = HERE.parents[1]
PAGE: Final = ROOT / "docs" / "queue-programs.md"
MAKES: Final = ("proton", "rhea", "Ours")
COUNT: Final = 20


def programs() -> Iterator[tuple[str, str, str]]:
    """The maker of the client, the name of the program's file, and its text."""
    for section in PAGE.read_text().split("\n## ")[1:]:
        maker = section.split("\n", 1)[0]
        for code, name in re.findall(r'```(?:python|js)\n((?:"""|// )(\w+\.\w+) .*?)```', section, re.DOTALL):
            yield maker, name, code


def test_there_is_each_program_for_each_client() -> None:
    found = [(maker, name.split(".")[0]) for maker, name, _ in programs()]
    assert found == [*product(MAKES, ("worker", "squares", "ask"))]


class Programs:
    """The programs of one maker's client, in a folder of their own."""

    def __init__(self, maker: str, folder: Path, addresses: list[Address], nursery: trio.Nursery) -> None:
        self.maker = maker
        self.folder = folder
        self.addresses = addresses
        self._nursery = nursery
        for name, code in [(name, code) for made_by, name, code in programs() if made_by == maker]:
            (folder / name).write_text(code)

    def command(self, program: str, *arguments: str) -> list[str]:
        first, urls = self.addresses[0], [f"amqp://{address}" for address in self.addresses]
        if self.maker == "rhea":
            return [str(NODE), f"{program}.js", first.host, str(first.port), *arguments]
        if self.maker == "proton":
            return [sys.executable, f"{program}.py", urls[0], *arguments]
        given = [*arguments[:1], " ".join(arguments[1:])] if program == "ask" else [*arguments]
        return [sys.executable, f"{program}.py", *given, *urls]

    def _run(self, program: str, *arguments: str, **options: Any) -> Callable[..., Awaitable[Any]]:
        paths = {"PYTHONPATH": str(ROOT), "NODE_PATH": str(HERE / "node_modules")}
        command = self.command(program, *arguments)
        return partial(trio.run_process, command, cwd=self.folder, env={**os.environ, **paths}, **options)

    async def start(self, program: str, *arguments: str) -> Path:
        """Start a program that does not end. Returns the file with its output."""
        output = self.folder / f"{program}.txt"
        run = self._run(program, *arguments, stdout=output.open("w"), check=False)
        await self._nursery.start(run)
        return output

    async def run(self, program: str, *arguments: str) -> list[str]:
        """Run a program to its end. Returns the lines of its output."""
        ended: subprocess.CompletedProcess[bytes] = await self._run(program, *arguments, capture_stdout=True)()
        return ended.stdout.decode().splitlines()


async def declare(mesh: RunningMesh, name: str, *settings: str) -> None:
    where = ["--run-dir", str(mesh.directory.path)]
    await trio.run_process([*COMMAND_LINE, "queue", "declare", name, *settings, *where], capture_stdout=True)


@pytest.mark.parametrize("maker", MAKES)
async def test_what_fails_comes_again_with_a_pause_and_is_a_dead_letter_in_the_end(
    maker: str, queues: RunningMesh, clients: Clients, tmp_path: Path, nursery: trio.Nursery
) -> None:
    prepare(maker.lower())
    jobs, dead = f"queue/jobs-{maker}", f"queue/jobs-{maker}/dead"
    await declare(queues, jobs, "--retry-after", "100ms", "--dead-letter", dead, "--redeliveries", "2")
    publisher = await clients.publisher(queues.address("a"), jobs)
    for body in (b"seven", *(b"%d" % number for number in range(COUNT))):
        publisher.send(body)
    await clients.until(lambda: len(publisher.accepted) == COUNT + 1)
    there = Programs(maker, tmp_path, [queues.address(name) for name in "bca"], nursery)
    output = await there.start("worker", jobs)
    reader = await clients.subscriber(queues.address("c"), dead, "reader")
    await clients.until(lambda: len(reader.received) == 1)

    async def all_done() -> bool:
        return output.read_text().splitlines() == [f"processed {number}" for number in range(COUNT)]

    await eventually(all_done)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("maker", MAKES)
async def test_each_request_is_answered(maker: str, queues: RunningMesh, tmp_path: Path, nursery: trio.Nursery) -> None:
    prepare(maker.lower())
    there = Programs(maker, tmp_path, [queues.address(name) for name in "abc"], nursery)
    await there.start("squares")
    answers = await there.run("ask", f"queue/answers-{maker}", *map(str, range(COUNT)))
    assert answers == [f"{number} squared is {number**2}" for number in range(COUNT)]
    nursery.cancel_scope.cancel()
