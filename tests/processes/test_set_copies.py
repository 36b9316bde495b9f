"""A set of real routers goes on from an asynchronous copy when its voters have lost their stores (protocol 13.4.5).

a ── b ── c, and a ── c; a and b are the voters of the set, c has a copy
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
import trio

from router.queues.store import STORE
from tests.forks import COMMAND_LINE
from tests.processes.clients import Clients, client_of
from tests.processes.mesh import RunningMesh, eventually, running

SET, QUEUE, COUNT = "eu", "queue/eu/orders", 300
EU = {"name": SET, "prefix": "queue/eu/", "voters": ["a", "b"], "async": ["c"]}


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("queues", tmp_path, queues={"sets": 1, "replicas": 1, "named": [EU]}) as found:
        yield found


async def recover(mesh: RunningMesh, *options: str) -> str:
    """What the command says that makes the set of the copy at c."""
    words = ["queue", "recover", SET, "--from", "c", "--url", f"amqp://{mesh.address('c')}", *options]
    ran = await trio.run_process([*COMMAND_LINE, *words], capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    return ran.stdout.decode()


async def seen(mesh: RunningMesh, router: str) -> dict[str, Any]:
    """The set as this router knows it."""
    [found] = [one for one in (await mesh.status(router))["sets"] if one["name"] == SET]
    return dict(found)


async def test_a_set_goes_on_from_its_copy_when_its_voters_have_lost_their_stores(
    mesh: RunningMesh, clients: Clients
) -> None:
    publisher = await clients.publisher(mesh.address("c"), QUEUE, "p")
    for number in range(COUNT):
        publisher.send(b"%d" % number)
    await clients.until(lambda: len(publisher.accepted) == COUNT)
    client_of(publisher).close()

    async def has_all() -> bool:
        counts = {(await seen(mesh, router))["applied"] for router in "abc"}
        return len(counts) == 1

    await eventually(has_all)
    for router in "ab":
        mesh.signal(router, SIGKILL)
        await mesh.ending(router)
        for file in (mesh.directory.path / router).glob(f"{STORE}*"):
            file.unlink()
    await mesh.start("a", "b")
    assert "--may-lose" in await recover(mesh) and (await seen(mesh, "c"))["leader"] is None
    assert (await recover(mesh, "--may-lose")).startswith(f"set {SET} goes on with the store of router c, ")

    async def is_as_before() -> bool:
        one = await seen(mesh, "c")
        return {*one["voters"]} == {"a", "b"} and one["learners"] == ["c"] and one["leader"] in ("a", "b")

    await eventually(is_as_before)
    consumer = await clients.subscriber(mesh.address("a"), QUEUE, "s", credit=COUNT + 1)
    await clients.until(lambda: len(consumer.received) >= COUNT)
    assert consumer.bodies == [b"%d" % number for number in range(COUNT)]
