"""Subscribers of patterns: what they are told of where a message was published."""

from router.amqp.format.message import annotation_of
from router.amqp.format.values import RELEASED
from tests.processes.clients import Clients, Delivery
from tests.processes.mesh import RunningMesh
from topic.properties import ADDRESS

ONE, TWO = "topic/told.one", "topic/told.two"


def told(delivery: Delivery) -> tuple[bytes, str | None]:
    return delivery.body, annotation_of(delivery.message, ADDRESS)


async def test_a_subscriber_of_a_pattern_is_told_where_each_message_was_published(
    triangle: RunningMesh, clients: Clients
) -> None:
    def twice(delivery: Delivery) -> None:
        delivery.give(RELEASED) if len(delivery.subscriber.received) == 1 else delivery.accept()

    exact = await clients.subscriber(triangle.address("b"), ONE)
    subscriber = await clients.subscriber(triangle.address("c"), "topic/told.*", respond=twice)
    one, two = [await clients.publisher(triangle.address("a"), address) for address in (ONE, TWO)]
    one.send(b"1")
    await clients.until(lambda: one.accepted == [0])
    two.send(b"2")
    await clients.until(lambda: two.accepted == [0])
    two.send(b"3", settled=True)
    two.send(b"\x00 of another format", message_format=7)
    await clients.until(lambda: len(subscriber.received) == 5)

    assert [told(delivery) for delivery in subscriber.received[:4]] == [
        (b"1", ONE), (b"1", ONE), (b"2", TWO), (b"3", TWO),
    ]  # fmt: skip
    assert subscriber.received[4].message.endswith(b"\x00 of another format")
    assert [told(delivery) for delivery in exact.received] == [(b"1", None)]
