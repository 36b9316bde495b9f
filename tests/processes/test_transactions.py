"""Transactions of clients of proton on queues of real routers: all or nothing, whoever is killed (protocol 14.20).

a ── b ── c, and a ── c; each has a replica of the one set

With TRANSACTION_RUNS=20 in the environment, each kind of kill happens 20 times at each step.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from signal import SIGKILL

import pytest
import trio

from tests.processes.clients import Clients, client_of
from tests.processes.mesh import RunningMesh, eventually, running
from tests.processes.test_queues import ONE_SET, check_exactly_once, fill, roles
from tests.processes.transacting import STEPS, Actor, Mover

VICTIMS = ("the client's router", "the leader", "both")
ALL = [*product(STEPS, VICTIMS)]
FEW = [("declared", VICTIMS[0]), ("transferred", VICTIMS[1]), ("accepted", VICTIMS[2])]
FEW += [("discharged", victim) for victim in VICTIMS]
BATCH = 2
PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("queues", tmp_path, queues=ONE_SET) as found:
        yield found


async def messages_of(mesh: RunningMesh, queue: str) -> int:
    """How many messages a queue has."""
    leader, _ = await roles(mesh)
    return sum(one["messages"] for one in (await mesh.status(leader))["queues"] if one["name"] == queue)


async def move_all(
    mesh: RunningMesh, clients: Clients, kills: Sequence[tuple[str, str]], *, source: str, target: str
) -> None:
    """Move messages from one queue to another while routers are killed, each time at a step of a later transaction."""
    count = BATCH * (2 * len(kills) + 2)
    await fill(clients, await clients.publisher(mesh.address("a"), source), count)
    left, names = [*kills], "bca"
    committed_before = True

    async def at(step: str, place: int) -> bool:
        nonlocal committed_before
        if step == "committed":
            committed_before = True
            return bool(left) or await messages_of(mesh, source) > 0
        if left and left[0][0] == step and committed_before:
            _, victim = left.pop(0)
            committed_before = False
            leader, _ = await roles(mesh)
            killed = {VICTIMS[0]: {names[place]}, VICTIMS[1]: {leader}, VICTIMS[2]: {names[place], leader}}[victim]
            for name in killed:
                mesh.signal(name, SIGKILL)
            for name in killed:
                await mesh.ending(name)
            for name in sorted(killed):
                await mesh.start(name)
        return True

    def tell(step: str, place: int) -> bool:
        return trio.from_thread.run(at, step, place)

    mover = Mover([mesh.address(name) for name in names], source, target, BATCH, tell)
    await trio.to_thread.run_sync(mover.run)
    assert not left
    assert BATCH * mover.committed <= count <= BATCH * (mover.committed + mover.doubted), "no commit is lost"
    await check_moved(mesh, clients, target, count)


async def check_moved(mesh: RunningMesh, clients: Clients, target: str, count: int) -> None:
    """The target has each message once."""
    assert await messages_of(mesh, target) == count
    reader = await clients.subscriber(mesh.address("a"), target, "reader")
    await clients.until(lambda: len(reader.received) == count)
    assert sorted(reader.numbers) == [*range(count)]


async def test_each_message_is_moved_once_whoever_is_killed(mesh: RunningMesh, clients: Clients) -> None:
    runs = int(os.environ.get("TRANSACTION_RUNS", "0"))
    await move_all(mesh, clients, runs * ALL or FEW, source="queue/from", target="queue/to")
    await check_exactly_once(mesh)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("queues", tmp_path_factory.mktemp("calm"), queues=ONE_SET) as found:
        yield found


async def test_the_documented_program_makes_an_invoice_of_each_order(
    calm: RunningMesh, clients: Clients, tmp_path: Path
) -> None:
    """The program is killed in between and started again."""
    [code] = re.findall(r"```python\n([^`]*?class Billing[^`]*)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "billing.py").write_text(code.replace("amqp://127.0.0.1:5672", f"amqp://{calm.address('b')}"))
    await fill(clients, await clients.publisher(calm.address("a"), "queue/orders"), 100)
    reader = await clients.subscriber(calm.address("c"), "queue/invoices", "reader")
    run = partial(trio.run_process, [sys.executable, "billing.py"], cwd=tmp_path, check=False, stderr=subprocess.PIPE)
    for count in (20, 100):
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(run)
            await clients.until(lambda count=count: len(reader.received) >= count)  # type: ignore[misc]
            process.kill()
    assert len(reader.received) == 100 and await messages_of(calm, "queue/orders") == 0
    assert len({delivery.message for delivery in reader.received}) == 100


ONE, TWO = "queue/one", "queue/two"


@pytest.mark.parametrize(
    ("acts", "told", "left"),
    [
        ([("accept", ONE), ("send", TWO), ("commit", "")], ["committed"], (0, 1)),
        ([("accept", ONE), ("send", TWO), ("abort", "")], ["aborted"], (1, 0)),
        ([("accept", ONE), ("send", TWO), ("close", "")], [], (1, 0)),
        ([("send", "topic/x"), ("commit", "")], ["link amqp:not-implemented", "failed amqp:not-implemented"], (1, 0)),
        ([("forge", ""), ("send", TWO)], ["link amqp:transaction:unknown-id"], (1, 0)),
        ([("forge", ""), ("accept", ONE)], ["link amqp:transaction:unknown-id"], (1, 0)),
        ([("forge", ""), ("commit", "")], ["failed amqp:transaction:unknown-id"], (1, 0)),
        ([("relay", TWO), ("commit", "")], ["committed"], (1, 1)),
        (
            [("relay", "nowhere"), ("commit", "")],
            ["rejected amqp:not-found", "failed amqp:transaction:rollback"],
            (1, 0),
        ),
        ([("commit", "")], ["committed"], (1, 0)),
    ],
    ids=[
        "commit",
        "abort",
        "close",
        "topic",
        "unknown in a transfer",
        "unknown in an outcome",
        "unknown",
        "relay",
        "relay to nowhere",
        "empty",
    ],
)
async def test_what_proton_reads_of_a_transaction(
    calm: RunningMesh, clients: Clients, acts: list[tuple[str, str]], told: list[str], left: tuple[int, int]
) -> None:
    await fill(clients, await clients.publisher(calm.address("a"), ONE), 1)
    actor = Actor(calm.address("b"), acts, len(told))
    await trio.to_thread.run_sync(actor.run)
    assert sorted(actor.told) == sorted(told)

    async def is_left() -> bool:
        return (await messages_of(calm, ONE), await messages_of(calm, TWO)) == left

    await eventually(is_left)
    for queue, count in zip((ONE, TWO), left, strict=True):
        reader = await clients.subscriber(calm.address("c"), queue, "reader")
        await clients.until(lambda reader=reader, count=count: len(reader.settled) == count)  # type: ignore[misc]
        client_of(reader).close()
