"""Names as other routers have them: dots in names of routers, prefixes without a slash, nested prefixes of different
kinds, and a default kind.

publisher -> eu.a - eu.b - us.c
"""

from collections.abc import Iterator
from signal import SIGKILL

import pytest
import trio
import yaml

from failover.audit import Verdict, run
from router.amqp.format.errors import INVALID_FIELD, NOT_FOUND, NOT_IMPLEMENTED
from tests.processes.clients import Clients, hold
from tests.processes.mesh import RunningMesh
from tests.processes.pair import Pair
from topic.properties import EPOCH

ADDRESSES = [
    {"prefix": "", "kind": "topic"},
    {"prefix": "jobs", "kind": "balanced"},
    {"prefix": "jobs.near", "kind": "closest"},
]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    mesh = RunningMesh("line", tmp_path_factory.mktemp("line"), {})
    plan = yaml.safe_load(mesh.plan.read_text())
    names = {"a": "eu.a", "b": "eu.b", "c": "us.c"}
    plan["routers"] = {names[name]: router for name, router in plan["routers"].items()}
    plan |= {"links": [["eu.a", "eu.b"], ["eu.b", "us.c"]], "addresses": ADDRESSES}
    mesh.plan.write_text(yaml.safe_dump(plan))
    try:
        trio.run(mesh.up)
        yield mesh
        assert mesh.crashes() == []
    finally:
        mesh.end()
        mesh.tell()


async def test_any_address_is_of_the_default_kind(mesh: RunningMesh, clients: Clients) -> None:
    one, other = [await clients.subscriber(mesh.address(router), "news", router) for router in ("eu.b", "us.c")]
    publisher = await clients.publisher(mesh.address("eu.a"), "news")
    publisher.send(b"1")
    await clients.until(lambda: one.numbers == other.numbers == [1])


async def test_the_longest_prefix_decides_how_messages_are_shared(mesh: RunningMesh, clients: Clients) -> None:
    readers, near = [
        [await clients.subscriber(mesh.address(router), address, router, respond=hold) for router in ("eu.b", "us.c")]
        for address in ("jobs/x", "jobs.near/x")
    ]
    publisher = await clients.publisher(mesh.address("eu.a"), "jobs/x")
    closest = await clients.publisher(mesh.address("eu.a"), "jobs.near/x")
    for number in range(10):
        publisher.send(b"%d" % number)
        closest.send(b"%d" % number)
    await clients.until(lambda: sum(len(reader.received) for reader in (*readers, *near)) == 20)
    assert near[0].numbers == list(range(10)) and not near[1].received
    assert all(reader.received for reader in readers)
    for reader in (*readers, *near):
        for delivery in reader.received:
            delivery.accept()
    await clients.until(lambda: len(publisher.outcomes) == len(closest.outcomes) == 10)


@pytest.mark.parametrize(
    ("address", "condition", "why"),
    [
        ("_sets/q0/out/x", NOT_FOUND, "no node"),
        ("$nothing", NOT_FOUND, "no node"),
        ("_topo/0/nobody/$management", NOT_FOUND, "no node"),
        ("#", INVALID_FIELD, "the first word is a wildcard"),
        ("*/a", INVALID_FIELD, "the first word is a wildcard"),
        ("jobs.*", NOT_IMPLEMENTED, r"of kind balanced and of kind closest (jobs.near…), expected one kind"),
    ],
)
async def test_what_no_rule_is_for_is_refused(
    mesh: RunningMesh, clients: Clients, address: str, condition: str, why: str
) -> None:
    subscriber = (await clients.connect(mesh.address("eu.a"), "stranger")).subscriber(address)
    await clients.until(lambda: subscriber.ended)
    assert subscriber.detached is not None
    assert subscriber.detached.name == condition and why in subscriber.detached.description


async def test_a_link_moves_between_routers_with_dots_and_the_audit_holds(mesh: RunningMesh, clients: Clients) -> None:
    """A publisher with its map goes from one home to the other, and returns the epoch that it was given."""
    pair = Pair(mesh, clients, "moves")
    await pair.attach_subscriber(await clients.connect(mesh.address("us.c"), "reader"))
    first = await clients.connect(mesh.address("eu.a"), "writer")
    publisher = await pair.attach_publisher(first)
    publisher.send(b"0")
    await clients.until(lambda: pair.subscriber.numbers == [0])
    mesh.signal("eu.a", SIGKILL)
    await mesh.ending("eu.a")
    epoch = publisher.link.remote_properties[EPOCH]
    assert ".eu.a." in epoch
    second = await clients.connect(mesh.address("eu.b"), "writer")
    publisher = await pair.attach_publisher(second, properties={EPOCH: epoch})
    publisher.send(b"1")
    await clients.until(lambda: pair.subscriber.numbers[-1] == 1)
    for delivery in pair.subscriber.received:
        delivery.accept()
    second.close()
    await mesh.start("eu.a")
    for router in mesh.routers:
        await mesh.stop(router)
    report = await trio.to_thread.run_sync(run, [str(mesh.directory.path)])
    assert report.verdict is Verdict.HOLDS, (report.sentence, report.findings, report.problems)
