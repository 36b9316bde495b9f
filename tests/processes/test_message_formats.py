"""Messages of other formats than AMQP's own, as batches of some makers are: carried over routers, and told from others.

        a - publisher
       / \\
      b---c - subscriber
"""

import trio

from failover.client import Subscriber as OurSubscriber
from router.amqp.format.message import content_of, format_of
from router.amqp.format.values import RELEASED
from tests.hangs import HANGS_S
from tests.processes.clients import Clients, Delivery
from tests.processes.mesh import RunningMesh

BATCH = 0x80013700  # Azure's: its data sections are messages


def given(delivery: Delivery) -> tuple[int, bytes]:
    return format_of(delivery.message), content_of(delivery.message)


async def test_formats_arrive_as_they_were_sent(triangle: RunningMesh, clients: Clients) -> None:
    """Each delivery its own, also of 1 MiB, presettled, at several subscribers, and when it comes again."""
    releases = [True]

    def release_once(delivery: Delivery) -> None:
        delivery.give(RELEASED) if releases.pop() else delivery.accept()
        releases.append(False)

    far = await clients.subscriber(triangle.address("c"), "topic/formats", respond=release_once)
    near = await clients.subscriber(triangle.address("a"), "topic/formats", "near")
    publisher = await clients.publisher(triangle.address("a"), "topic/formats")
    sent = [(5, b"five"), (BATCH, b"many in one" * 100_000), (0, b"plain"), (2**32 - 1, b"\xff"), (BATCH, b"\xff" * 9)]
    for message_format, content in sent:
        publisher.send(content, message_format=message_format)
    publisher.send(b"settled", settled=True, message_format=BATCH)
    await clients.until(lambda: len(publisher.accepted) == len(sent) and len(near.received) == len(sent) + 1)

    plain = [(f, c if f else b"\x00\x53\x75\xb0\x00\x00\x00\x05" + c) for f, c in sent]
    assert [given(delivery) for delivery in near.received] == [*plain, (BATCH, b"settled")]
    assert sorted(map(given, far.received[: len(sent) + 1])) == sorted([*plain, plain[0]])


async def test_a_subscriber_of_ours_tells_the_format(triangle: RunningMesh, clients: Clients) -> None:
    url = f"amqp://{triangle.address('c')}"
    async with OurSubscriber([url], "topic/ours", container="ours", link="ours") as subscriber:
        publisher = await clients.publisher(triangle.address("a"), "topic/ours")
        publisher.send(b"a batch", message_format=BATCH)
        with trio.fail_after(HANGS_S):
            delivery = await anext(subscriber)
        assert (delivery.format, delivery.message) == (BATCH, b"a batch")
        await delivery.accept()
