"""A subscriber that is attached anywhere gets everything that is published from that instant on (protocol 6.7).

        a
       / \\
      b---c
"""

from itertools import count

from tests.processes.clients import Clients, Subscriber
from tests.processes.mesh import RunningMesh

ROUNDS = 500
STREAM_ROUNDS = 150


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
