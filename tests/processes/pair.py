"""A publisher and a subscriber of one address. A test detaches their links, attaches them again, and inspects them."""

from typing import Any

import trio
import trio.testing

from router.amqp.format.values import ACCEPTED, EXPIRE_CONNECTION, Handle
from router.amqp.proton.library import lib
from tests.processes.clients import Client, Clients, Publisher, Subscriber, client_of, hold
from tests.processes.mesh import RunningMesh, eventually
from topic.properties import GENERATION

LASTING: dict[str, Any] = {"durable": 2, "expiry_policy": EXPIRE_CONNECTION, "timeout": 60}


class Pair:
    """A publisher and a subscriber, each on a connection of its own."""

    def __init__(self, mesh: RunningMesh, clients: Clients, topic: str) -> None:
        self.mesh, self.clients, self.topic = mesh, clients, topic
        self.publisher: Publisher
        self.subscriber: Subscriber

    async def attach(self, *, credit: int = 100) -> None:
        await self.attach_subscriber(await self.clients.connect(self.mesh.address("c"), "reader"), credit=credit)
        await self.attach_publisher(await self.clients.connect(self.mesh.address("a"), "writer"))

    async def attach_publisher(self, client: Client, **options: Any) -> Publisher:
        self.publisher = client.publisher(self.topic, "link", second=True, **LASTING, **options)
        self.publisher.keep = True
        await self.clients.until(lambda: self.publisher.link.credit > 0)
        return self.publisher

    async def attach_subscriber(self, client: Client, *, credit: int = 100, **options: Any) -> Subscriber:
        subscriber = client.subscriber(self.topic, "link", credit=credit, respond=hold, **LASTING, **options)
        await self.clients.until(lambda: subscriber.attached)
        self.subscriber = subscriber
        return subscriber

    async def leave(self, end: Publisher | Subscriber, *, closed: bool = False) -> Client:
        """Write the detach; it is not answered yet."""
        end.link.detach(closed=closed)
        end.link.connection.wake()
        await trio.testing.wait_all_tasks_blocked()
        return client_of(end)

    async def send(self, *bodies: bytes) -> list[Handle]:
        """Send the bodies. Returns their handles in that order."""
        before = set(self.publisher.numbers)
        for body in bodies:
            self.publisher.send(body)
        await self.clients.until(lambda: len(self.publisher.numbers) == len(before) + len(bodies))
        return [handle for handle in self.publisher.numbers if handle not in before]

    async def received(self, *bodies: bytes) -> list[Handle]:
        """Wait until these bodies, and no others, have come on this link."""
        await self.clients.until(lambda: len(self.subscriber.received) >= len(bodies))
        assert self.subscriber.bodies == list(bodies)
        return [delivery.handle for delivery in self.subscriber.received]

    def state(self, handle: Handle, outcome: int) -> None:
        """Send an outcome from the subscriber."""
        lib.pn_delivery_update(handle, outcome)
        self.subscriber.link.connection.wake()

    def settle(self, *handles: Handle) -> None:
        for handle in handles:
            lib.pn_delivery_settle(handle)
        self.publisher.link.connection.wake()

    async def told(self, *handles: Handle) -> None:
        """Wait until the publisher knows that these are accepted."""
        await self.clients.until(lambda: all(lib.pn_delivery_remote_state(handle) == ACCEPTED for handle in handles))

    async def settled(self, *handles: Handle) -> None:
        """Wait until the subscriber knows that these are settled. It has then settled those of its present link."""
        here = {delivery.handle for delivery in self.subscriber.received}
        before = [handle for handle in handles if handle not in here]
        await self.clients.until(lambda: here.intersection(handles) <= set(self.subscriber.settled))
        await self.clients.until(lambda: all(map(lib.pn_delivery_settled, before)))
        for handle in before:
            lib.pn_delivery_settle(handle)
        self.subscriber.link.connection.wake()

    @property
    def generation(self) -> object:
        return self.publisher.link.remote_properties[GENERATION]

    async def finish(self) -> None:
        """Wait until nothing is under way. Then both links close, so that the test sees the mesh forget them."""
        await self.send(b"last")
        await self.clients.until(lambda: self.subscriber.bodies[-1:] == [b"last"])
        self.subscriber.received[-1].accept()
        await self.clients.until(lambda: self.publisher.accepted != [])
        for end in (self.publisher, self.subscriber):
            end.link.detach()
            end.link.connection.wake()
        await self.forgotten()

    async def forgotten(self) -> None:
        async def is_so() -> bool:
            reports = [await self.mesh.status(router) for router in self.mesh.routers]
            links = [link for report in reports for link in (*report["publishers"], *report["subscribers"])]
            return all(link["address"] != self.topic for link in links)

        await eventually(is_so)
