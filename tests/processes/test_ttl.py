"""Messages that have to be had in time, with python-qpid-proton as its documentation teaches it."""

import time
from typing import Any

import pytest
import trio
from proton import Connection, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.processes.clients import TIMEOUT_S
from tests.processes.mesh import RunningMesh

LONG_S = 3600.0
EXPIRED = ("amqp:precondition-failed", ["oncemesh:expired"])


class Ends(MessagingHandler):
    """A subscriber, and a publisher at router a. They end when all messages have an outcome, and what was accepted has
    come. A subscriber without credit gets some then, and a last message is sent."""

    def __init__(self, mesh: RunningMesh, listens_at: str, messages: list[Message], *, credit: int) -> None:
        super().__init__(prefetch=credit)
        self._mesh, self._listens_at, self._topic = mesh, listens_at, f"topic/{listens_at}/{credit}"
        self._connections: list[Connection] = []
        self._to_send = messages
        self._last = None if credit else Message("last")
        self.outcomes: list[tuple[str, list[str]] | None] = [None] * len(messages)
        """None if accepted."""
        self._told = 0
        self.received: list[Message] = []

    def _connect(self, container: Container, router: str) -> Connection:
        address = self._mesh.address(router)
        self._connections.append(container.connect(f"amqp://{address.host}:{address.port}", reconnect=False))
        return self._connections[-1]

    def on_start(self, event: Any) -> None:
        self._receiver = event.container.create_receiver(self._connect(event.container, self._listens_at), self._topic)

    def on_link_opened(self, event: Any) -> None:
        if event.link.is_receiver:
            event.container.create_sender(self._connect(event.container, "a"), self._topic)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._to_send:
            event.sender.send(self._to_send.pop(0))

    def on_accepted(self, event: Any) -> None:
        self._take(event)

    def on_rejected(self, event: Any) -> None:
        condition = event.delivery.remote.condition
        self.outcomes[int(event.delivery.tag) - 1] = condition.name, [str(key) for key in condition.info]
        self._take(event)

    def _take(self, event: Any) -> None:
        self._told += 1
        if self._told == len(self.outcomes) and self._last is not None:
            self.outcomes.append(None)
            self._to_send, self._last = [self._last], None
            self._receiver.flow(10)
            self.on_sendable(event)
        self._perhaps_end()

    def on_message(self, event: Any) -> None:
        self.received.append(event.message)
        self._perhaps_end()

    def _perhaps_end(self) -> None:
        if self._told == len(self.outcomes) and len(self.received) >= self.outcomes.count(None):
            for connection in self._connections:
                connection.close()


async def run(ends: Ends) -> None:
    with trio.fail_after(TIMEOUT_S):
        await trio.to_thread.run_sync(Container(ends).run, abandon_on_cancel=True)


@pytest.mark.parametrize("router", ["a", "c"])
async def test_what_is_in_time_is_accepted_and_what_comes_too_late_rejected(router: str, triangle: RunningMesh) -> None:
    messages = [
        Message("0", ttl=LONG_S),
        Message("1", expiry_time=time.time() - LONG_S),
        Message("2", ttl=LONG_S, expiry_time=time.time() + LONG_S, durable=True, subject="news"),
        Message("3"),
    ]
    ends = Ends(triangle, router, messages, credit=10)
    await run(ends)
    assert ends.outcomes == [None, EXPIRED, None, None]
    assert [(message.body, message.ttl) for message in ends.received] == [("0", LONG_S), ("2", LONG_S), ("3", 0.0)]


async def test_what_waits_for_credit_at_its_router_for_too_long_nobody_gets(triangle: RunningMesh) -> None:
    ends = Ends(triangle, "a", [Message("0", ttl=0.1), Message("1", ttl=0.2)], credit=0)
    await run(ends)
    assert ends.outcomes == [EXPIRED, EXPIRED, None]
    assert [message.body for message in ends.received] == ["last"]
