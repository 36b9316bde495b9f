"""Messages that have to be had in time, published by python-qpid-proton as its documentation teaches it."""

import time
from typing import Any

import pytest
import trio
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from router.mesh.quantities import Address
from tests.processes.clients import TIMEOUT_S, Clients
from tests.processes.mesh import RunningMesh

LONG_S = 3600.0
EXPIRED = ("amqp:precondition-failed", ["oncemesh:expired"])


class Publishing(MessagingHandler):
    """Sends these, and ends when all have an outcome: in `outcomes`, by their places; None if accepted."""

    def __init__(self, router: Address, topic: str, messages: list[Message]) -> None:
        super().__init__()
        self._url = f"amqp://{router.host}:{router.port}/{topic}"
        self._messages, self._count = messages, len(messages)
        self.outcomes: dict[int, tuple[str, list[str]] | None] = {}

    def on_start(self, event: Any) -> None:
        event.container.create_sender(self._url)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._messages:
            message = self._messages.pop(0)
            event.sender.send(message, tag=str(message.id))

    def on_accepted(self, event: Any) -> None:
        self._take(event, None)

    def on_rejected(self, event: Any) -> None:
        condition = event.delivery.remote.condition
        self._take(event, (condition.name, [str(key) for key in condition.info]))

    def _take(self, event: Any, outcome: tuple[str, list[str]] | None) -> None:
        self.outcomes[int(event.delivery.tag)] = outcome
        if len(self.outcomes) == self._count:
            event.connection.close()


async def publish(router: Address, topic: str, *messages: Message) -> dict[int, tuple[str, list[str]] | None]:
    for number, message in enumerate(messages):
        message.id = number
        message.body = str(number)
    publishing = Publishing(router, topic, list(messages))
    with trio.fail_after(TIMEOUT_S):
        await trio.to_thread.run_sync(Container(publishing).run, abandon_on_cancel=True)
    return publishing.outcomes


@pytest.mark.parametrize("router", ["a", "c"])
async def test_what_is_in_time_is_accepted_and_what_comes_too_late_rejected(
    router: str, triangle: RunningMesh, clients: Clients
) -> None:
    topic = f"topic/late/{router}"
    subscriber = await clients.subscriber(triangle.address(router), topic)
    outcomes = await publish(
        triangle.address("a"),
        topic,
        Message(ttl=LONG_S),
        Message(expiry_time=time.time() - LONG_S),
        Message(ttl=LONG_S, expiry_time=time.time() + LONG_S, durable=True, subject="news"),
        Message(),
    )
    assert outcomes == {0: None, 1: EXPIRED, 2: None, 3: None}
    await clients.until(lambda: len(subscriber.received) == 3)
    last = Message()
    last.decode(subscriber.received[1].message)
    assert last.ttl == LONG_S, "as it was sent"


async def test_what_waits_for_credit_at_its_router_for_too_long_nobody_gets(
    triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/waits"
    subscriber = await clients.subscriber(triangle.address("a"), topic, credit=0)
    assert await publish(triangle.address("a"), topic, Message(ttl=0.1), Message(ttl=0.2)) == {0: EXPIRED, 1: EXPIRED}
    subscriber.credit = 10
    subscriber.link.flow(10)
    subscriber.link.connection.wake()
    assert await publish(triangle.address("a"), topic, Message(ttl=LONG_S)) == {0: None}
    assert len(subscriber.received) == 1
