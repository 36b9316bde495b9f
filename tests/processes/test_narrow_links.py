"""Large messages over a link of few bytes a second: no contact is lost, all arrive, and others are served meanwhile.

    publisher - a ==narrow== b - subscribers

A busy machine may stop a router, or this process with its link, for seconds. So a router is lost only after five, and
links are as much narrower: what a link carries in that time decides whether signs of life wait too long behind large
messages. What the machine's speed decides is not asserted, but shown.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import attrs
import pytest
import trio

from failover.chaos.carrier import Impairment
from failover.chaos.mesh import ChaosMesh
from router.mesh.rundir import RunDirectory
from router.mesh.topology import load
from tests.hangs import HANGS_S
from tests.processes.clients import Clients
from tests.processes.mesh import TOPOLOGIES

MEGABYTE = 1e6
DEAD_S = 5.0
PATIENCE_S = HANGS_S
COUNT = 60
"""Messages of a load that goes on for seconds after others have attached."""


@asynccontextmanager
async def narrow_pair(folder: Path, nursery: trio.Nursery, link: Impairment) -> AsyncIterator[ChaosMesh]:
    """No contact may be lost before the mesh goes down."""
    (folder / "run").mkdir()
    pair = load(TOPOLOGIES / "pair.yaml")
    pair = attrs.evolve(pair, timing=attrs.evolve(pair.timing, dead=DEAD_S, idle=PATIENCE_S))
    mesh = ChaosMesh(pair, RunDirectory(folder / "run"), print)
    try:
        await mesh.up(nursery, Random(1))
        for router in mesh.routers:
            await mesh.ready(router, PATIENCE_S)
        mesh.links.impair(1, mesh.links.names, link)
        yield mesh
        for router in mesh.routers:
            log = mesh.directory.log_path(router).read_text()
            assert "lost" not in log and "dropped" not in log and "is down" not in log, log
    finally:
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await mesh.down()


@pytest.mark.parametrize(
    "link",
    [
        Impairment(rate=8 * MEGABYTE / DEAD_S),
        Impairment(rate=8 * MEGABYTE / DEAD_S, latency=0.2),
        Impairment(rate=4 * MEGABYTE / DEAD_S),
    ],
    ids=["8 MB for each dead", "and 200 ms", "4 MB for each dead"],
)
async def test_a_message_that_takes_longer_than_dead_arrives_and_costs_no_contact(
    tmp_path: Path, link: Impairment, report: Callable[[str], None]
) -> None:
    async with trio.open_nursery() as nursery, narrow_pair(tmp_path, nursery, link) as mesh:
        clients = Clients(nursery)
        subscriber = await clients.subscriber(mesh.addresses["b"], "topic/x")
        publisher = await clients.publisher(mesh.addresses["a"], "topic/x")
        began = trio.current_time()
        publisher.send(bytes(15 << 20))
        await clients.until(lambda: publisher.accepted == [0], PATIENCE_S)
        report(f"15 MiB accepted after {trio.current_time() - began:.1f} s")
        assert len(subscriber.bodies[0]) == 15 << 20


async def test_a_plain_subscriber_gets_all_of_a_load_and_others_attach_meanwhile(
    tmp_path: Path, report: Callable[[str], None]
) -> None:
    link = Impairment(rate=20 * MEGABYTE / DEAD_S)
    async with trio.open_nursery() as nursery, narrow_pair(tmp_path, nursery, link) as mesh:
        clients = Clients(nursery)
        subscriber = await clients.subscriber(mesh.addresses["b"], "topic/x", credit=1000)
        publisher = await clients.publisher(mesh.addresses["a"], "topic/x")
        publisher.in_flight = 20  # the link is in this process: it must not stand still while much is written at once
        publisher.feed = iter([bytes(1 << 20)] * COUNT)
        publisher.pump()
        await clients.until(lambda: len(subscriber.received) >= 20, PATIENCE_S)
        began = trio.current_time()
        await clients.subscriber(mesh.addresses["b"], "topic/other")
        attached = trio.current_time() - began
        assert len(subscriber.received) < COUNT, "the load was over before"
        await clients.until(lambda: len(publisher.accepted) == COUNT, PATIENCE_S)
        report(f"{COUNT} MiB; an attach on another topic took {attached * 1000:.0f} ms")
        assert len(subscriber.received) == COUNT
