"""A publisher and a subscriber that behave well: what happens to other clients must not touch them.

a - publisher        b - the troublemaker        c - subscriber
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from tests.processes.clients import Clients, Publisher, Subscriber
from tests.processes.mesh import RunningMesh

TOPIC = "topic/background"
PACE_S = 0.01
PROOF = 20


class Background:
    def __init__(self, clients: Clients, publisher: Publisher, subscriber: Subscriber) -> None:
        self._clients = clients
        self._publisher = publisher
        self._subscriber = subscriber

    async def run(self) -> None:
        """Publish at an even pace."""
        while True:
            if self._publisher.link.credit > 0:
                self._publisher.send(b"%d" % self._publisher.sent)
            await trio.sleep(PACE_S)

    async def goes_on(self) -> None:
        """Check that messages from now on arrive, and that none was lost or doubled before."""
        start = self._publisher.sent
        await self._clients.until(lambda: len(self._publisher.accepted) >= start + PROOF)
        assert len(self._publisher.accepted) == len(self._publisher.outcomes)
        assert self._subscriber.numbers == list(range(len(self._subscriber.received)))
        assert len(self._subscriber.received) >= start + PROOF


@asynccontextmanager
async def background_traffic(mesh: RunningMesh, clients: Clients, publisher_at: str = "a") -> AsyncIterator[Background]:
    subscriber = await clients.subscriber(mesh.address("c"), TOPIC, "background subscriber")
    publisher = await clients.publisher(mesh.address(publisher_at), TOPIC, "background publisher")
    background = Background(clients, publisher, subscriber)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(background.run)
        await background.goes_on()
        yield background
        await background.goes_on()
        nursery.cancel_scope.cancel()
