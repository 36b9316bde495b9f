"""Links to the anonymous terminus: each message says in `to` where it goes.

        a - publisher
       / \\
      b---c - subscribers
"""

from typing import Any

import pytest

from router.amqp.format.sections import write_message
from router.amqp.proton.library import lib, read_symbols
from router.edge.anonymous import CAPABILITY, MOST_ADDRESSES
from router.edge.attach import LONGEST_ADDRESS
from tests.processes.clients import Clients, Publisher, client_of, hold
from tests.processes.mesh import RunningMesh, eventually


def addressed(to: str | None, number: int) -> bytes:
    properties = {"subject": "news"} if to is None else {"to": to}
    return write_message({"properties": properties, "data": b"%d" % number})


def send(publisher: Publisher, to: str | None, *, settled: bool = False) -> int:
    return publisher.send_message(addressed(to, publisher.sent), settled)


async def publisher_to_all(mesh: RunningMesh, clients: Clients, **options: Any) -> Publisher:
    """Of any address."""
    client = await clients.connect(mesh.address("a"), "publisher")
    publisher = client.publisher("", "link", **options)
    await clients.until(lambda: publisher.link.credit > 0)
    return publisher


@pytest.mark.parametrize("second", [False, True])
async def test_each_message_goes_where_it_says_in_order_and_is_accepted_when_all_there_have_it(
    second: bool, triangle: RunningMesh, clients: Clients
) -> None:
    topics = [f"topic/each/{second}/{name}" for name in "xyz"]
    x, y, _ = [await clients.subscriber(triangle.address("c"), topic, topic) for topic in topics]
    slow = await clients.subscriber(triangle.address("b"), topics[1], "slow", respond=hold)
    publisher = await publisher_to_all(triangle, clients, second=second)
    for number in range(20):
        send(publisher, topics[number % 2] if number % 3 else f"amqp://anywhere/{topics[number % 2]}")
    await clients.until(lambda: len(slow.received) == len(y.received) == len(publisher.accepted) == 10)
    assert sorted(publisher.accepted) == x.numbers == list(range(0, 20, 2))
    assert y.numbers == list(range(1, 20, 2))
    for delivery in slow.received:
        delivery.accept()
    await clients.until(lambda: len(publisher.accepted) == 20)


async def test_a_router_says_that_it_has_such_a_terminus(triangle: RunningMesh, clients: Clients) -> None:
    client = await clients.connect(triangle.address("a"), "asks")
    engine = client.connection._engine
    offered = read_symbols(lib.pn_connection_remote_offered_capabilities(engine.connection))
    assert offered == (CAPABILITY,)


@pytest.mark.parametrize(
    ("to", "condition"),
    [
        (None, "amqp:not-found"),
        ("", "amqp:not-found"),
        ("queue/x", "amqp:not-found"),
        ("$management", "amqp:not-found"),
        ("topic", "amqp:not-found"),
        ("topic/\0", "amqp:invalid-field"),
        ("topic/" + LONGEST_ADDRESS * "x", "amqp:invalid-field"),
        ("topic/" + (LONGEST_ADDRESS << 6) * "x", "amqp:not-found"),
    ],
    ids=lambda value: str(value)[:12].replace("\0", "NUL"),
)
async def test_what_goes_nowhere_is_rejected_and_the_rest_goes_on(
    to: str | None, condition: str, triangle: RunningMesh, clients: Clients
) -> None:
    subscriber = await clients.subscriber(triangle.address("c"), "topic/on")
    publisher = await publisher_to_all(triangle, clients)
    before, wrong, after = (send(publisher, where) for where in ("topic/on", to, "topic/on"))
    await clients.until(lambda: len(publisher.outcomes) == 3)
    assert publisher.accepted == subscriber.numbers == [before, after]
    assert publisher.outcomes[wrong].condition == condition


async def test_what_is_damaged_is_rejected(triangle: RunningMesh, clients: Clients) -> None:
    publisher = await publisher_to_all(triangle, clients)
    publisher.send_message(b"\x00\x53\x73\xd0\xff\xff\xff\xff\x00\x00\x00\x02")
    publisher.send(b"of another format", message_format=7)
    await clients.until(lambda: len(publisher.outcomes) == 2)
    assert not publisher.accepted and not publisher.ended


async def test_the_link_of_what_is_settled_and_goes_nowhere_is_detached(
    triangle: RunningMesh, clients: Clients
) -> None:
    """Its sender would never hear of it."""
    subscriber = await clients.subscriber(triangle.address("c"), "topic/settled")
    publisher = await publisher_to_all(triangle, clients)
    send(publisher, "topic/settled", settled=True)
    await clients.until(lambda: subscriber.numbers == [0])
    send(publisher, "queue/x", settled=True)
    send(publisher, "topic/settled", settled=True)
    await clients.until(lambda: publisher.ended)
    assert publisher.detached is not None and publisher.detached.name == "amqp:not-found"


async def test_so_many_addresses_at_a_time_and_any_number_in_turn(triangle: RunningMesh, clients: Clients) -> None:
    holder = await clients.connect(triangle.address("c"), "holder")
    holding = [holder.subscriber(f"topic/held/{number}", respond=hold) for number in range(MOST_ADDRESSES)]
    await clients.until(lambda: all(subscriber.attached for subscriber in holding))
    publisher = await publisher_to_all(triangle, clients)
    for number in range(MOST_ADDRESSES):
        send(publisher, f"topic/held/{number}")
    await clients.until(lambda: all(subscriber.received for subscriber in holding))
    refused = send(publisher, "topic/free")
    await clients.until(lambda: bool(publisher.outcomes))
    assert publisher.outcomes[refused].condition == "amqp:resource-limit-exceeded"
    for subscriber in holding:
        subscriber.received[0].accept()
    await clients.until(lambda: len(publisher.accepted) == MOST_ADDRESSES)
    for number in range(MOST_ADDRESSES // 2):
        send(publisher, f"topic/free/{number}")
    await clients.until(lambda: len(publisher.accepted) == publisher.sent - 1)


async def test_it_ends_with_its_link(triangle: RunningMesh, clients: Clients) -> None:
    """What it has in doubt then, it has to send again; nobody waits for it."""
    subscriber = await clients.subscriber(triangle.address("c"), "topic/ends", respond=hold)
    publisher = await publisher_to_all(triangle, clients, second=True)
    for _ in range(3):
        send(publisher, "topic/ends")
    await clients.until(lambda: len(subscriber.received) == 3)
    client_of(publisher).vanish()

    async def is_gone() -> bool:
        status = await triangle.status("a")
        return status["publishers"] == [] and not any(status["records"].values())

    await eventually(is_gone)


async def test_what_is_settled_before_its_outcome_is_given_up(triangle: RunningMesh, clients: Clients) -> None:
    subscriber = await clients.subscriber(triangle.address("c"), "topic/given up", respond=hold)
    publisher = await publisher_to_all(triangle, clients, second=True)
    send(publisher, "topic/given up")
    (handle,) = publisher.numbers
    publisher.link.settle_many([handle])
    publisher.link.connection.wake()
    send(publisher, "topic/given up")
    await clients.until(lambda: 1 in subscriber.numbers)
    subscriber.received[-1].accept()
    await clients.until(lambda: publisher.accepted == [1])


async def test_no_more_is_held_of_it_than_of_any_publisher(triangle: RunningMesh, clients: Clients) -> None:
    window, topics = 1000, ["topic/held/x", "topic/held/y"]
    ends = [
        await clients.subscriber(triangle.address("c"), topic, topic, credit=window, respond=hold) for topic in topics
    ]
    publisher = await publisher_to_all(triangle, clients)
    for number in range(window + 100):
        send(publisher, topics[number % 2])
    await clients.until(lambda: sum(len(end.received) for end in ends) == window)
    assert publisher.link.credit == 0
    for end in ends:
        for delivery in end.received:
            delivery.accept()
        end.respond = lambda delivery: delivery.accept()
    await clients.until(lambda: len(publisher.accepted) == window + 100)
    assert [end.numbers for end in ends] == [list(range(first, window + 100, 2)) for first in (0, 1)]
