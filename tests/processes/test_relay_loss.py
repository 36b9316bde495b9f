"""A relay without clients is killed under load: the mesh routes around it.

publisher - a --- b --- c - subscriber      b is killed; the other way round is a, e, d, c
            |           |
            e --------- d
"""

import statistics
from collections.abc import Callable
from itertools import count, pairwise
from signal import SIGKILL

from tests.processes.clients import Clients, Publisher, Subscriber
from tests.processes.mesh import RunningMesh, eventually

KILLS = 5
LONGEST_PAUSE_S = 1.0


async def test_nothing_is_lost_or_doubled_and_the_pause_is_short(
    own_ring: RunningMesh, clients: Clients, report: Callable[[str], None]
) -> None:
    topic = "topic/load"
    subscriber = await clients.subscriber(own_ring.address("c"), topic, credit=1000)
    publisher = await clients.publisher(own_ring.address("a"), topic)
    publisher.in_flight = 200

    pauses = []
    for _ in range(KILLS):
        await through_b(own_ring)
        pauses.append(await pause_after_kill(own_ring, clients, publisher, subscriber))
        await own_ring.ending("b")
        await own_ring.start("b")

    report(f"pauses after the kill of a relay: {', '.join(f'{pause * 1000:.0f} ms' for pause in pauses)}")
    assert subscriber.numbers == list(range(publisher.sent))
    assert sorted(publisher.accepted) == list(range(publisher.sent))
    assert statistics.median(pauses) < LONGEST_PAUSE_S


async def through_b(mesh: RunningMesh) -> None:
    """Until the load takes the short way again."""

    async def is_so() -> bool:
        hops = {(at, route["router"]): route["next_hop"] for at in "ac" for route in (await mesh.status(at))["routes"]}
        return hops.get(("a", "c")) == "b" == hops.get(("c", "a"))

    await eventually(is_so)


async def pause_after_kill(mesh: RunningMesh, clients: Clients, publisher: Publisher, subscriber: Subscriber) -> float:
    """The longest time between two deliveries of a load in which the relay is killed."""
    start = publisher.sent
    publisher.feed = (b"%d" % number for number in count(start))
    publisher.pump()
    await clients.until(lambda: len(publisher.accepted) > start + 500)
    mesh.signal("b", SIGKILL)
    killed = publisher.sent
    await clients.until(lambda: len(publisher.accepted) > killed + 500)
    publisher.feed = iter(())
    await clients.until(lambda: len(publisher.accepted) == publisher.sent)
    times = [delivery.at for delivery in subscriber.received[start:]]
    return max(later - earlier for earlier, later in pairwise(times))
