"""Clients whose connections break, and real routers that resume them."""

from functools import partial
from random import Random

import pytest
import trio

from failover.chaos.proxy import LinkProxy
from failover.client.link_events import Event, Resumed
from failover.client.publisher import Publisher
from failover.client.subscriber import Subscriber
from tests.hangs import HANGS_S
from tests.processes.mesh import RunningMesh

COUNT = 3000
APART_S = 2.0  # between two cuts of a connection: a link that hardly lived makes a client try another router
CUTS = 2
MAX_MESSAGE = 16 << 20  # with its header, a body of that size is too large


@pytest.mark.parametrize(("publishers", "subscribers"), [("a", "c"), ("b", "b")])
async def test_connections_break_again_and_again_and_everything_comes_once(
    triangle: RunningMesh, nursery: trio.Nursery, publishers: str, subscribers: str
) -> None:
    topic, random = f"topic/broken {publishers}{subscribers}", Random(7)
    received: list[int] = []
    proxies = [LinkProxy(partial(triangle.address, router)) for router in (publishers, subscribers)]
    for proxy in proxies:
        await nursery.start(proxy.run)
    to_publisher, to_subscriber = (f"amqp://{proxy.address}" for proxy in proxies)
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as all_of_it:
            attached = trio.Event()
            all_of_it.start_soon(_receive, to_subscriber, topic, received, attached)
            await attached.wait()
            all_of_it.start_soon(_cut, random, proxies, received)
            resumptions = await _publish(to_publisher, topic)
    assert received == list(range(COUNT))
    assert any(event.in_doubt for event in resumptions), "a cut fell into the stream"


async def test_a_message_that_is_too_large_is_rejected_and_the_life_of_its_publisher_goes_on(
    triangle: RunningMesh,
) -> None:
    url, topic, events, received = str(triangle.address("a")), "topic/too large", list[Event](), list[bytes]()
    async with trio.open_nursery() as nursery:
        subscriber = Subscriber([url], topic, container="its subscriber", link="link")
        async with subscriber, Publisher([url], topic, container="it", link="link", events=events.append) as publisher:
            nursery.start_soon(_accept, subscriber, received)
            generation = publisher.generation
            handles = [await publisher.send(body) for body in (b"before", bytes(MAX_MESSAGE), b"behind")]
            with trio.fail_after(HANGS_S):
                outcomes = [(await handle.outcome()).name for handle in handles]
            assert outcomes == ["ACCEPTED", "REJECTED", "ACCEPTED"]
            assert "exceeds the limit of" in handles[1].detail.description
            assert publisher.generation == generation
            assert any(isinstance(event, Resumed) for event in events)
            nursery.cancel_scope.cancel()
    assert received == [b"before", b"behind"]


async def _accept(subscriber: Subscriber, received: list[bytes]) -> None:
    async for delivery in subscriber:
        received.append(delivery.body)
        await delivery.accept()


async def _publish(url: str, topic: str) -> list[Resumed]:
    """As fast as they are accepted, and all must be. Returns when it was resumed."""
    events: list[Event] = []
    async with Publisher(
        [url], topic, container=f"publisher of {topic}", link="link", events=events.append
    ) as publisher:
        handles = [await publisher.send(b"%d" % number) for number in range(COUNT)]
        outcomes = [await handle.outcome() for handle in handles]
    assert {outcome.name for outcome in outcomes} == {"ACCEPTED"}
    return [event for event in events if isinstance(event, Resumed)]


async def _receive(url: str, topic: str, received: list[int], attached: trio.Event) -> None:
    async with Subscriber([url], topic, container=f"subscriber of {topic}", link="link") as subscriber:
        attached.set()
        async for delivery in subscriber:
            received.append(int(delivery.body))
            await trio.sleep(0.001)  # sets the pace, so that there is always something to be cut off
            await delivery.accept()
            if len(received) == COUNT:
                return


async def _cut(random: Random, proxies: list[LinkProxy], received: list[int]) -> None:
    """Each connection in turn, while messages flow."""
    for proxy in proxies * CUTS:
        before = len(received)
        await trio.sleep(APART_S / 2 + random.random() * 0.1)
        while len(received) == before:
            await trio.sleep(0.01)
        proxy.reset()
