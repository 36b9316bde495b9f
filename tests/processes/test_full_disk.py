"""A mesh whose disks fill under load: it goes on delivering, says what it does not write, and nobody is told that
exactly-once holds of that.

        a - publisher
       / \\
      b---c - subscriber
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import yaml

from failover.audit import Verdict, run
from router.amqp.format.errors import RESOURCE_LIMIT
from tests.disk import set_full
from tests.processes.clients import Clients, Publisher, Subscriber
from tests.processes.mesh import RunningMesh, eventually

TOPIC = "topic/full"
STEP = 500
SMALL = 64 << 10
"""Room for the lines of router.log, and for no segment of the delivery log."""
MOST = 100_000
"""Messages, whose log entries take far more than 4 MiB."""


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    made = RunningMesh("triangle", tmp_path, {})
    try:
        trio.run(made.up)
        yield made
        assert made.crashes() == []
    finally:
        made.end()
        made.tell()


def fill(mesh: RunningMesh, most: int) -> None:
    for router in mesh.routers:
        set_full(mesh.pid(router), most)


async def deliver(clients: Clients, publisher: Publisher) -> None:
    """So many more, all accepted."""
    count = publisher.sent + STEP
    publisher.feed = iter(b"%d" % number for number in range(publisher.sent, count))
    publisher.pump()
    await clients.until(lambda: len(publisher.accepted) == count)


async def attached(mesh: RunningMesh, clients: Clients) -> tuple[Subscriber, Publisher]:
    """Of these; beside them one at b, so that all three routers have something to write."""
    subscriber = await clients.subscriber(mesh.address("c"), TOPIC, timeout=60)
    await clients.subscriber(mesh.address("b"), TOPIC, "near", timeout=60)
    return subscriber, await clients.publisher(mesh.address("a"), TOPIC, second=True, timeout=60)


async def disks(mesh: RunningMesh) -> list[dict[str, object]]:
    return [(await mesh.status(router))["disk"] for router in mesh.routers]


async def breaks_off(mesh: RunningMesh) -> None:
    async def all_have() -> bool:
        return all(disk["log"] for disk in await disks(mesh))

    await eventually(all_have)


async def test_a_mesh_goes_on_while_its_disks_are_full_and_nothing_is_said_to_hold_of_it(
    mesh: RunningMesh, clients: Clients
) -> None:
    subscriber, publisher = await attached(mesh, clients)
    await deliver(clients, publisher)
    fill(mesh, 0)
    await deliver(clients, publisher)
    await breaks_off(mesh)
    await deliver(clients, publisher)
    newcomer = await clients.connect(mesh.address("b"), "newcomer")
    durable = newcomer.subscriber(TOPIC, timeout=60, durable=2)
    await clients.until(lambda: durable.ended)
    assert durable.detached is not None and durable.detached.name == RESOURCE_LIMIT
    assert "b/state.db: the router's state cannot be stored: disk I/O error" in durable.detached.description
    plain = newcomer.subscriber(TOPIC, "plain")
    await clients.until(lambda: plain.attached)
    assert all(disk["missing"] for disk in await disks(mesh))

    fill(mesh, -1)

    async def can_be_written() -> bool:
        return not any(disk["log"] or disk["store"] for disk in await disks(mesh))

    await eventually(can_be_written)
    durable = newcomer.subscriber(TOPIC, "again", timeout=60, durable=2)
    await clients.until(lambda: durable.attached)
    await deliver(clients, publisher)
    assert subscriber.numbers == list(range(4 * STEP))
    for router in mesh.routers:
        await mesh.stop(router)
    report = run([str(mesh.directory.path)])
    assert report.verdict is Verdict.UNDECIDED, report.sentence
    for router in mesh.routers:
        assert any(f"the log of {router} breaks off" in doubt for doubt in report.doubts)
        assert "the delivery log can be written again" in mesh.log(router)


@pytest.mark.parametrize("killed", [False, True])
async def test_a_disk_that_is_full_until_the_end_holds_nothing(
    mesh: RunningMesh, clients: Clients, *, killed: bool
) -> None:
    subscriber, publisher = await attached(mesh, clients)
    await deliver(clients, publisher)
    fill(mesh, SMALL)
    await deliver(clients, publisher)
    await breaks_off(mesh)
    assert subscriber.numbers == list(range(2 * STEP))
    if killed:
        mesh.end()
    else:
        for router in mesh.routers:
            assert await mesh.stop(router) == {router: "stopped"}
    report = run([str(mesh.directory.path)])
    assert report.verdict is Verdict.UNDECIDED, report.sentence
    assert sum("because it could not be written: " in doubt for doubt in report.doubts) == len(mesh.routers)
    assert all(
        "the delivery log breaks off because it cannot be written" in mesh.log(router) for router in mesh.routers
    )


@pytest.fixture
def four_mebibytes(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "oncemesh", str(tmp_path)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root mounts a file system")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


async def test_a_mesh_writes_its_file_system_full_and_goes_on(four_mebibytes: Path, nursery: trio.Nursery) -> None:
    mesh, clients = RunningMesh("triangle", four_mebibytes, {}), Clients(nursery)
    try:
        await mesh.up()
        subscriber, publisher = await attached(mesh, clients)
        while not all(disk["log"] for disk in await disks(mesh)):
            assert publisher.sent < MOST, "4 MiB are full by then"
            await deliver(clients, publisher)
        await deliver(clients, publisher)
        assert subscriber.numbers == list(range(publisher.sent))
        for router in mesh.routers:
            assert "No space left on device" in mesh.log(router)
            assert await mesh.stop(router) == {router: "stopped"}
        report = run([str(mesh.directory.path)])
        assert report.verdict is Verdict.UNDECIDED, report.sentence
        assert mesh.crashes() == []
    finally:
        mesh.end()
        mesh.tell()


async def test_a_router_whose_log_must_be_whole_ends_in_one_line(tmp_path: Path) -> None:
    mesh = RunningMesh("triangle", tmp_path, {})
    mesh.plan.write_text(yaml.safe_dump(yaml.safe_load(mesh.plan.read_text()) | {"log": {"full": "stop"}}))
    try:
        await mesh.up()
        async with trio.open_nursery() as nursery:
            client = await Clients(nursery).connect(mesh.address("a"), "subscriber")
            set_full(mesh.pid("a"), SMALL)  # from here on it may end at any write
            client.subscriber(TOPIC)
            assert await mesh.ending("a") == "exit status 1"
            nursery.cancel_scope.cancel()
        assert mesh.log("a").splitlines()[-1].endswith("-000000.oml: File too large")
        assert mesh.crashes() == []
        assert (await mesh.status("b"))["state"] == "ready"
    finally:
        mesh.end()
