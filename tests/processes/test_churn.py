"""Clients of every temper come and go at all routers; six that stay must not notice (but for the pace). The publishers
ask for a timeout: across a lost contact, as on a machine that has too much to do, a plain one is at least once.

        a
       / \\
      b---c       at each a publisher and a subscriber that stay
"""

import random
from itertools import cycle

import trio

from router.amqp.format.values import REJECTED, RELEASED
from tests.processes.clients import Client, Clients, Delivery, Publisher, Subscriber, accept, client_of, hold
from tests.processes.mesh import RunningMesh

TOPIC = "topic/churn"
MESSAGES = 300
PACE_S = 0.006


def release(delivery: Delivery) -> None:
    delivery.give(RELEASED)


def reject(delivery: Delivery) -> None:
    delivery.give(REJECTED)


def modify(delivery: Delivery) -> None:
    delivery.subscriber.link.modify(delivery.handle, failed=True, undeliverable=False)


def settle(delivery: Delivery) -> None:
    delivery.subscriber.link.settle(delivery.handle)


class Visitors:
    """Clients that attach, stay for a moment and leave, one way or another."""

    def __init__(self, mesh: RunningMesh, clients: Clients, seed: int) -> None:
        self._mesh = mesh
        self._clients = clients
        self._random = random.Random(seed)
        self.visits = 0

    async def subscribe(self, name: str) -> None:
        for respond in cycle((accept, release, hold, reject, modify, settle)):
            client = await self._connect(name)
            credit = self._random.choice((1, 10, 1000))
            client.subscriber(TOPIC, credit=credit, first=self._random.random() < 0.5, respond=respond)
            await self._stay_and_leave(client)

    async def publish(self, name: str) -> None:
        while True:
            client = await self._connect(name)
            publisher = client.publisher(TOPIC, second=self._random.random() < 0.5)
            publisher.feed = (b"visitor" for _ in range(100))
            await self._stay_and_leave(client)

    async def _connect(self, name: str) -> Client:
        return await self._clients.connect(self._mesh.address(self._random.choice(self._mesh.routers)), name)

    async def _stay_and_leave(self, client: Client) -> None:
        try:
            await trio.sleep(self._random.choice((0, 0.01, 0.1, 0.3)))
        finally:  # at the end of the test too: who stays with messages in hand is waited for
            if self._random.random() < 0.5:
                client.close()
            else:
                client.vanish()
        await self._clients.until(lambda: client.connection.closed)
        self.visits += 1


async def test_those_who_stay_get_everything_once_and_in_order(triangle: RunningMesh, clients: Clients) -> None:
    subscribers = [await clients.subscriber(triangle.address(at), TOPIC, f"subscriber at {at}") for at in "abc"]
    publishers = [
        await clients.publisher(triangle.address(at), TOPIC, f"publisher at {at}", timeout=60) for at in "abc"
    ]
    visitors = Visitors(triangle, clients, seed=1)
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(visitors.subscribe, f"visiting subscriber {number}")
            nursery.start_soon(visitors.publish, f"visiting publisher {number}")
        async with trio.open_nursery() as load:
            for publisher in publishers:
                load.start_soon(publish_steadily, publisher)
        nursery.cancel_scope.cancel()

    await clients.until(lambda: all(len(publisher.outcomes) == MESSAGES for publisher in publishers))
    assert visitors.visits > 20
    for subscriber in subscribers:
        for name in map(container_of, publishers):
            assert numbers_from(name, subscriber) == list(range(MESSAGES))
    for publisher in publishers:
        publisher.link.detach(closed=True)
        client_of(publisher).connection.wake()


def container_of(publisher: Publisher) -> str:
    return client_of(publisher).container


async def publish_steadily(publisher: Publisher) -> None:
    while publisher.sent < MESSAGES:
        if publisher.link.credit > 0:
            publisher.send(b"%d %s" % (publisher.sent, container_of(publisher).encode()))
        await trio.sleep(PACE_S)


def numbers_from(name: str, subscriber: Subscriber) -> list[int]:
    parted = [body.decode().partition(" ") for body in subscriber.bodies]
    return [int(number) for number, _, sender in parted if sender == name]
