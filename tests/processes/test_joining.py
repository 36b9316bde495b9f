"""A subscriber that is attached anywhere gets everything that is published from that instant on (protocol 6.7).

        a
       / \\
      b---c
"""

from itertools import count

import pytest

from tests.processes.clients import Clients, Publisher, Subscriber, client_of
from tests.processes.mesh import RunningMesh, eventually

ROUNDS = 150
STREAM_ROUNDS = 60


async def test_a_publication_elsewhere_in_the_instant_of_the_attach_is_not_missed(
    triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/instant"
    publishers = [await clients.publisher(triangle.address(at), topic, f"publisher at {at}") for at in "ac"]
    client = await clients.connect(triangle.address("b"), "subscriber")

    async def attach(number: int) -> Subscriber:
        subscriber = client.subscriber(topic, f"link {number}")
        subscriber.on_attached = lambda: [publisher.send(b"%d" % number) for publisher in publishers]
        await clients.until(lambda: len(subscriber.received) == len(publishers))
        return subscriber

    for number in range(ROUNDS):
        subscriber = await attach(number)
        assert subscriber.numbers == [number, number]
        subscriber.link.detach()
    await clients.until(lambda: all(len(publisher.accepted) == ROUNDS for publisher in publishers))


async def test_an_attach_into_a_running_stream_misses_nothing_from_its_instant_on(
    triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/stream"
    publisher = await clients.publisher(triangle.address("b"), topic)
    publisher.in_flight = 50
    publisher.feed = (b"%d" % number for number in count())
    clients_at = [await clients.connect(triangle.address(at), f"subscriber at {at}") for at in "abc"]

    async def attach(number: int) -> tuple[Subscriber, int]:
        subscriber = clients_at[number % 3].subscriber(topic, f"link {number}")
        promised: list[int] = []
        subscriber.on_attached = lambda: promised.append(publisher.sent)
        publisher.pump()
        await clients.until(lambda: len(subscriber.received) >= 20)
        return subscriber, promised[0]

    for number in range(STREAM_ROUNDS):
        subscriber, promised = await attach(number)
        numbers = subscriber.numbers
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers[0] <= promised
        subscriber.link.detach()


@pytest.mark.parametrize("timeout", [0, 60])
async def test_a_publisher_that_settles_in_batches_is_not_held_up_by_who_joins(
    timeout: int, triangle: RunningMesh, clients: Clients
) -> None:
    topic = f"topic/batches of {timeout}"
    first = await clients.subscriber(triangle.address("a"), topic, "first")
    publisher = await clients.publisher(triangle.address("a"), topic, second=True, timeout=timeout)
    publisher.keep = True  # it settles after five
    publisher.send(b"0")
    await clients.until(lambda: publisher.accepted == [0])
    second = await clients.subscriber(triangle.address("b"), topic, "second")
    for number in range(1, 5):
        publisher.send(b"%d" % number)
    await clients.until(lambda: publisher.accepted == [0, 1, 2, 3, 4])
    assert (first.numbers, second.numbers) == ([0, 1, 2, 3, 4], [1, 2, 3, 4])
    publisher.settle()
    await _close(publisher, clients)


async def test_a_status_says_whose_settlement_a_subscriber_waits_for(triangle: RunningMesh, clients: Clients) -> None:
    """A publisher that answers no echo does not tell what it knows."""
    topic, deaf = "topic/unsettled", "deaf"
    await clients.subscriber(triangle.address("a"), topic, "first")
    publisher = await clients.publisher(
        triangle.address("a"), topic, deaf, second=True, timeout=60, asked=lambda link: None
    )
    publisher.keep = True
    publisher.send(b"0")
    await clients.until(lambda: publisher.accepted == [0])
    second = await clients.subscriber(triangle.address("b"), topic, "second")
    publisher.send(b"1")

    async def told() -> bool:
        return f"publisher {deaf}/{topic} on {topic}, to settle, for subscriber" in str(await triangle.status("a"))

    await eventually(told)
    publisher.settle()
    await clients.until(lambda: second.numbers == [1])
    await _close(publisher, clients)


async def _close(publisher: Publisher, clients: Clients) -> None:
    """Its terminus would outlive its connection."""
    publisher.link.detach()
    client_of(publisher).close()
    await clients.until(lambda: publisher.link.connection.closed)
