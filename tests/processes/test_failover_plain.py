"""Clients that know nothing of us and ask for nothing: when they crash, nobody waits for them.

        a - publisher
       / \\
      b---c - another subscriber
      |
      plain subscriber, holding everything
"""

import time
from signal import SIGKILL, SIGSTOP, Signals

import pytest

from tests.interop.foreign import foreign
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh

COUNT = 50
GONE_S = 0.5
"""A connection that ended is noticed as soon as the machine says so."""
HUNG_S = 4.0
"""A connection that fell silent: twice `timing.idle`, by AMQP 1.0 (2.4.5)."""


@pytest.mark.parametrize(("how", "detected_s"), [(SIGKILL, GONE_S), (SIGSTOP, HUNG_S)], ids=["killed", "hung"])
async def test_a_plain_subscriber_that_crashes_holds_up_nobody(
    how: Signals, detected_s: float, triangle: RunningMesh, clients: Clients
) -> None:
    topic = f"topic/plain/{how.name}"
    other = await clients.subscriber(triangle.address("c"), topic)
    async with foreign("proton", "subscribe", triangle.address("b"), topic, COUNT, 100, hold=True) as plain:
        publisher = await clients.publisher(triangle.address("a"), topic)
        for number in range(COUNT):
            publisher.send((b"%d " % number).ljust(100, b"."))
        await plain.event("received")
        await clients.until(lambda: len(other.received) == COUNT)
        assert publisher.outcomes == {}

        plain.signal(how)
        since = time.monotonic()
        await clients.until(lambda: len(publisher.accepted) == COUNT)
        assert time.monotonic() - since < detected_s


async def test_a_plain_publisher_that_crashes_leaves_nothing_behind(triangle: RunningMesh, clients: Clients) -> None:
    topic = "topic/plain/publisher"
    subscriber = await clients.subscriber(triangle.address("c"), topic)
    async with foreign("proton", "publish", triangle.address("a"), topic, COUNT, 100) as plain:
        await plain.event("complete")
        plain.signal(SIGKILL)
        another = await clients.publisher(triangle.address("a"), topic, "another")
        another.send(b"next")
        await clients.until(lambda: another.accepted == [0])
    assert subscriber.bodies[-1] == b"next"
    assert len(subscriber.received) == COUNT + 1
