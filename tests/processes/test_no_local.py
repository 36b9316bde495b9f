"""A python-qpid-proton client that talks and listens, and asks not to hear itself.

a - its publisher, and another
|
c - its subscriber
"""

from typing import Any

import trio
from proton import Connection, Described, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, Filter

from tests.processes.clients import TIMEOUT_S, Clients
from tests.processes.mesh import RunningMesh

NO_LOCAL = "apache.org:no-local-filter:list"
TOPIC = "topic/talk"


class Talking(MessagingHandler):
    """It ends with the first message that it is given."""

    def __init__(self, mesh: RunningMesh) -> None:
        super().__init__()
        self._mesh = mesh
        self._connections: list[Connection] = []
        self._has_sent = False
        self.accepted = trio.Event()
        self.received: list[str] = []

    def _connect(self, container: Container, router: str) -> Connection:
        address = self._mesh.address(router)
        self._connections.append(container.connect(f"amqp://{address.host}:{address.port}", reconnect=False))
        return self._connections[-1]

    def on_start(self, event: Any) -> None:
        asked = Filter({symbol("no-local"): Described(symbol(NO_LOCAL), [])})
        event.container.create_receiver(self._connect(event.container, "c"), TOPIC, options=asked)

    def on_link_opened(self, event: Any) -> None:
        if event.link.is_receiver:
            event.container.create_sender(self._connect(event.container, "a"), TOPIC)

    def on_sendable(self, event: Any) -> None:
        if not self._has_sent:
            self._has_sent = True
            event.sender.send(Message("own"))

    def on_accepted(self, event: Any) -> None:
        trio.from_thread.run_sync(self.accepted.set)

    def on_message(self, event: Any) -> None:
        self.received.append(event.message.body)
        for connection in self._connections:
            connection.close()


async def test_who_asks_for_no_local_does_not_hear_itself(triangle: RunningMesh, clients: Clients) -> None:
    talking = Talking(triangle)
    listener = await clients.subscriber(triangle.address("c"), TOPIC)
    with trio.fail_after(TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, Container(talking).run)
            await talking.accepted.wait()
            other = await clients.publisher(triangle.address("a"), TOPIC)
            other.send_message(bytes(Message("other").encode()))
    assert talking.received == ["other"] and len(listener.received) == 2
