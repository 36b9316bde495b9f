"""Hundreds of subscribers, each on a connection of its own, spread over the triangle; and the memory this takes.

An attach is told to all routers, and each looks at its audiences: thousands are for `make bench`.
"""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import trio

from tests.processes.clients import Clients, Subscriber
from tests.processes.mesh import RunningMesh, running

pytestmark = pytest.mark.real_start  # its memory is looked at

SUBSCRIBERS = 300
MESSAGES = 20
IDLE_RSS_BYTES = 80 << 20
AT_ONCE = 20


@pytest.fixture
def patient_triangle(tmp_path: Path) -> Iterator[RunningMesh]:
    """All clients live in this one process, which is slow to show signs of life when the machine is busy; and so are
    routers with so many."""
    with running("triangle", tmp_path, limits={"opening": "5m"}, idle="5m", dead="30s", boot_wait="30s") as mesh:
        yield mesh


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """This process holds the other end of every connection."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = before
    needed = 2 * SUBSCRIBERS
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"{needed} file descriptors are needed, {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def memory(mesh: RunningMesh) -> dict[str, int]:
    return {router: psutil.Process(mesh.pid(router)).memory_info().rss for router in mesh.routers}


@pytest.mark.usefixtures("many_descriptors")
async def test_all_of_them_get_everything(
    patient_triangle: RunningMesh, clients: Clients, report: Callable[[str], None]
) -> None:
    idle = memory(patient_triangle)
    report("RSS of idle routers: " + ", ".join(f"{rss / (1 << 20):.1f} MiB" for rss in idle.values()))
    assert max(idle.values()) < IDLE_RSS_BYTES

    subscribers = await attach_all(patient_triangle, clients)
    attached = memory(patient_triangle)
    grown = sum(attached.values()) - sum(idle.values())
    report(f"memory per connection with a subscriber: {grown / SUBSCRIBERS / 1024:.1f} KiB")

    publisher = await clients.publisher(patient_triangle.address("a"), "topic/many")
    publisher.feed = (b"%d" % number for number in range(MESSAGES))
    publisher.pump()
    await clients.until(lambda: len(publisher.accepted) == MESSAGES)

    assert all(subscriber.numbers == list(range(MESSAGES)) for subscriber in subscribers)
    for router in patient_triangle.routers:
        status = await patient_triangle.status(router)
        here = [link for link in status["subscribers"] if link["address"] == "topic/many"]
        assert len(here) == len(range(patient_triangle.routers.index(router), SUBSCRIBERS, 3))
        assert {(link["delivered"], link["accepted"]) for link in here} == {(MESSAGES, MESSAGES)}


async def attach_all(mesh: RunningMesh, clients: Clients) -> list[Subscriber]:
    subscribers: list[Subscriber] = []
    turns = trio.Semaphore(AT_ONCE)

    async def attach(number: int) -> None:
        router = mesh.routers[number % len(mesh.routers)]
        async with turns:
            address = mesh.address(router)
            subscribers.append(await clients.subscriber(address, "topic/many", f"subscriber {number}"))

    async with trio.open_nursery() as nursery:
        for number in range(SUBSCRIBERS):
            nursery.start_soon(attach, number)
    return subscribers
