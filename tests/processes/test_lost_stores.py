"""Sets of real routers whose voters have lost their stores: operators recover them (protocol 13.2, 13.4.5).

a ── b ── c, and a ── c
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile
from signal import SIGKILL
from typing import Any

import pytest
import trio

from router.queues.store import STORE
from tests.forks import COMMAND_LINE
from tests.processes.clients import Clients, client_of
from tests.processes.mesh import RunningMesh, eventually, running

COUNT = 300
EU = {"name": "eu", "prefix": "queue/eu/", "voters": ["a", "b"], "async": ["c"]}


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    """A mesh with the set q0 at all routers."""
    with running("queues", tmp_path, queues={"sets": 1, "replicas": 3}) as found:
        yield found


@pytest.fixture
def copied_mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    """A mesh with the set eu, which has the voters a and b, and a copy at c."""
    with running("queues", tmp_path, queues={"sets": 1, "replicas": 1, "named": [EU]}) as found:
        yield found


async def recover(mesh: RunningMesh, name: str, router: str, *options: str) -> str:
    """What the command says that makes the set of the store of this router."""
    words = ["queue", "recover", name, "--from", router, "--url", f"amqp://{mesh.address(router)}", *options]
    ran = await trio.run_process([*COMMAND_LINE, *words], capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    return ran.stdout.decode()


async def seen(mesh: RunningMesh, router: str, name: str) -> dict[str, Any]:
    """The set as this router knows it."""
    [found] = [one for one in (await mesh.status(router))["sets"] if one["name"] == name]
    return dict(found)


async def agree(mesh: RunningMesh, name: str, *voters: str) -> None:
    """Wait until these routers are the voters, and all routers have applied the same."""

    async def do_agree() -> bool:
        views = [await seen(mesh, router, name) for router in "abc"]
        return len({one["applied"] for one in views}) == 1 and {*views[0]["voters"]} == {*voters}

    await eventually(do_agree)


async def filled(mesh: RunningMesh, clients: Clients, queue: str, numbers: range) -> None:
    publisher = await clients.publisher(mesh.address("a"), queue, f"p{numbers.start}")
    for number in numbers:
        publisher.send(b"%d" % number)
    await clients.until(lambda: len(publisher.accepted) == len(numbers))
    client_of(publisher).close()


async def lose_stores(mesh: RunningMesh, *routers: str) -> None:
    """Kill these routers, and start them again with empty stores of replica sets."""
    for router in routers:
        mesh.signal(router, SIGKILL)
        await mesh.ending(router)
        for file in stored_by(mesh, router):
            file.replace(mesh.directory.path.parent / f"{router}-{file.name}")
    await mesh.start(*routers)


def stored_by(mesh: RunningMesh, router: str) -> list[Path]:
    """The files with the replica sets of the router."""
    return [*(mesh.directory.path / router).glob(f"{STORE}*")]


async def put_back(mesh: RunningMesh, router: str) -> None:
    """Start the router again with the store that it had lost."""
    await mesh.stop(router)
    for file in stored_by(mesh, router):
        file.unlink()
    for file in mesh.directory.path.parent.glob(f"{router}-{STORE}*"):
        copyfile(file, mesh.directory.path / router / file.name.removeprefix(f"{router}-"))
    await mesh.start(router)


async def check_consumed(mesh: RunningMesh, clients: Clients, queue: str, count: int) -> None:
    """Check that the queue has the messages from 0 on, in order."""
    consumer = await clients.subscriber(mesh.address("b"), queue, "s", credit=count + 1)
    await clients.until(lambda: len(consumer.received) >= count)
    assert consumer.bodies == [b"%d" % number for number in range(count)]


async def test_a_set_goes_on_from_its_copy_when_its_voters_have_lost_their_stores(
    copied_mesh: RunningMesh, clients: Clients
) -> None:
    mesh = copied_mesh
    await filled(mesh, clients, "queue/eu/orders", range(COUNT))
    await agree(mesh, "eu", "a", "b")
    await lose_stores(mesh, "a", "b")
    assert "--may-lose" in await recover(mesh, "eu", "c") and (await seen(mesh, "c", "eu"))["leader"] is None
    told = await recover(mesh, "eu", "c", "--may-lose")
    assert told.startswith("set eu goes on with the store of router c, ")
    await agree(mesh, "eu", "a", "b")
    assert (await seen(mesh, "a", "eu"))["learners"] == ["c"]
    await check_consumed(mesh, clients, "queue/eu/orders", COUNT)


async def test_old_stores_that_come_back_after_a_recovery_are_set_aside(mesh: RunningMesh, clients: Clients) -> None:
    await filled(mesh, clients, "queue/orders", range(COUNT))
    await agree(mesh, "q0", "a", "b", "c")
    await lose_stores(mesh, "b", "c")
    told = await recover(mesh, "q0", "a", "--may-lose")
    assert told.startswith("set q0 goes on with the store of router a, ")
    await agree(mesh, "q0", "a", "b", "c")
    await filled(mesh, clients, "queue/orders", range(COUNT, 2 * COUNT))
    for router in "bc":
        await put_back(mesh, router)
        await agree(mesh, "q0", "a", "b", "c")
        assert "set q0: its store at this router is set aside" in mesh.log(router)
    await check_consumed(mesh, clients, "queue/orders", 2 * COUNT)
