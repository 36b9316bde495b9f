"""The programs of docs/python*.md, as they stand there: on three routers, killed in their middle and started again."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from failover.client import Subscriber
from tests.hangs import HANGS_S
from tests.processes.mesh import RunningMesh, eventually

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "docs" / f"{name}.md" for name in ("python", "python-asyncio", "python-blocking")]
PATIENCE_S = HANGS_S
COUNT = 1500  # more than a publisher may have unsettled
LINES = [f"{number} pieces of œuvre" for number in range(COUNT)]


def programs(text: str) -> dict[str, str]:
    """By the file name that a program's docstring begins with."""
    return {name: code for code, name in re.findall(r'```python\n("""(\w+\.py) .*?)```', text, re.DOTALL)}


class Programs:
    """In a folder of their own, as somebody would have them who has installed us."""

    def __init__(self, document: Path, folder: Path, mesh: RunningMesh, nursery: trio.Nursery) -> None:
        self.folder = folder
        self.urls = [f"amqp://{mesh.address(router)}" for router in mesh.routers]
        self._nursery = nursery
        for name, code in programs(document.read_text()).items():
            (folder / name).write_text(code)

    def run(self, program: str, *arguments: str, **options: Any) -> Callable[..., Awaitable[Any]]:
        command = [sys.executable, "-u", program, *arguments, *self.urls]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return partial(trio.run_process, command, cwd=self.folder, env=environment, **options)

    async def start(self, program: str, *arguments: str) -> trio.Process:
        """It has told an event: that it is connected."""
        run = self.run(program, *arguments, stdout=subprocess.PIPE, check=False)
        process: trio.Process = await self._nursery.start(run)
        assert process.stdout is not None
        assert b"Connected" in await process.stdout.receive_some()
        self._nursery.start_soon(self._listen, process.stdout)
        return process

    async def _listen(self, stream: trio.abc.ReceiveStream) -> None:
        async for said in stream:
            print(said.decode(), end="")


async def kill(process: trio.Process) -> None:
    process.kill()
    assert await process.wait() == -signal.SIGKILL  # it had not ended by itself


async def orders_in(database: Path, least: int) -> None:
    async def enough() -> bool:
        with closing(sqlite3.connect(database)) as connection:
            [count] = connection.execute("SELECT count(*) FROM orders").fetchone()
        return bool(count >= least)

    await eventually(enough, PATIENCE_S)


documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)


@documents
def test_there_is_no_code_in_the_document_but_these_programs(document: Path) -> None:
    text = document.read_text()
    assert list(programs(text)) == ["publisher.py", "subscriber.py", "echo.py"]
    assert text.count("```") == 2 * len(programs(text))


@documents
async def test_what_is_killed_goes_on_and_the_database_has_each_message_once(
    document: Path, triangle: RunningMesh, tmp_path: Path, nursery: trio.Nursery
) -> None:
    """The brake is a second subscriber: without its answers the publisher does not come to its end. Until it answers,
    nothing is settled: the subscriber is first killed between the commits of all that it has and their settlement."""
    (tmp_path / "orders.txt").write_text("\n".join(LINES))
    there = Programs(document, tmp_path, triangle, nursery)
    database = tmp_path / "stock.db"
    with trio.fail_after(PATIENCE_S):
        async with Subscriber(there.urls, "topic/orders", container="brake", link="orders") as brake:
            subscriber = await there.start("subscriber.py", "stock.db")
            publisher = await there.start("publisher.py", "orders.txt")
            await orders_in(database, COUNT // 10)
            await kill(subscriber)
            await kill(publisher)
            subscriber = await there.start("subscriber.py", "stock.db")
            publisher = await there.start("publisher.py", "orders.txt")
            for _ in range(COUNT // 2):
                await (await anext(brake)).accept()
            await kill(subscriber)
            subscriber = await there.start("subscriber.py", "stock.db")
            for _ in range(COUNT - COUNT // 2):
                await (await anext(brake)).accept()
            assert await publisher.wait() == 0
    await kill(subscriber)
    with closing(sqlite3.connect(database)) as connection:
        assert [line for (line,) in connection.execute("SELECT line FROM orders ORDER BY id")] == LINES
    async with Subscriber(there.urls, "topic/orders", container="stock", link="orders"):
        """Without a store: this ends the subscription."""


@documents
async def test_a_program_publishes_and_subscribes(
    document: Path, triangle: RunningMesh, tmp_path: Path, nursery: trio.Nursery
) -> None:
    with trio.fail_after(PATIENCE_S):
        ran = await Programs(document, tmp_path, triangle, nursery).run("echo.py", "500", capture_stdout=True)()
    assert ran.stdout == b"500 accepted, 500 handled\n"
