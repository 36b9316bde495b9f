"""A balanced address of real routers: each message goes to one of its subscribers, who are at all of them."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from router.amqp.format.codec import Described
from router.amqp.format.errors import NOT_IMPLEMENTED
from router.amqp.format.values import REJECTED, RELEASED, SELECTOR
from tests.processes.clients import Clients, Delivery, Publisher, Subscriber, accept, hold
from tests.processes.mesh import RunningMesh, running

COUNT = 300


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("work", tmp_path_factory.mktemp("work")) as mesh:
        yield mesh


@pytest.fixture
def own_work(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("work", tmp_path) as mesh:
        yield mesh


async def consumers(work: RunningMesh, clients: Clients, address: str, **options: Any) -> list[Subscriber]:
    """One at each router, and another one."""
    return [
        await clients.subscriber(work.address(router), address, f"consumer {number}", **options)
        for number, router in enumerate("abcc")
    ]


def had(subscribers: list[Subscriber]) -> Counter[int]:
    return Counter(number for subscriber in subscribers for number in subscriber.numbers)


async def send(clients: Clients, publisher: Publisher, count: int) -> None:
    for number in range(count):
        publisher.send(b"%d" % number)
    await clients.until(lambda: len(publisher.outcomes) == count)


async def test_each_message_goes_to_one_of_all_who_have_room(work: RunningMesh, clients: Clients) -> None:
    """First to who is at the publisher's router, as far as its credit goes."""
    subscribers = await consumers(work, clients, "work/shared", credit=10, respond=hold)
    for subscriber in subscribers:
        subscriber.credit = 0  # it makes up for none
    publisher = await clients.publisher(work.address("a"), "work/shared")
    for number in range(COUNT):
        publisher.send(b"%d" % number)
    await clients.until(lambda: had(subscribers).total() == 10 * len(subscribers))
    assert [len(subscriber.received) for subscriber in subscribers] == [10] * len(subscribers)
    for subscriber in subscribers:
        subscriber.respond = accept
        for delivery in subscriber.received:
            delivery.accept()
        subscriber.link.flow(COUNT)
        subscriber.link.connection.wake()
    await clients.until(lambda: len(publisher.outcomes) == COUNT)
    assert sorted(publisher.accepted) == list(range(COUNT))
    assert had(subscribers) == dict.fromkeys(range(COUNT), 1)


async def test_what_waits_for_a_consumer_is_given_to_the_first_that_comes(work: RunningMesh, clients: Clients) -> None:
    publisher = await clients.publisher(work.address("a"), "work/nobody")
    publisher.send(b"0")
    await clients.subscriber(work.address("b"), "work/nobody", "without credit", credit=0)
    late = await clients.subscriber(work.address("c"), "work/nobody", "late")
    await clients.until(lambda: publisher.accepted == [0])
    assert late.numbers == [0]


async def test_what_one_gives_back_another_gets(work: RunningMesh, clients: Clients) -> None:
    def give_back(delivery: Delivery) -> None:
        delivery.subscriber.credit = 0
        delivery.give(RELEASED)

    one = await clients.subscriber(work.address("a"), "work/back", "one", credit=1, respond=give_back)
    publisher = await clients.publisher(work.address("a"), "work/back")
    publisher.send(b"0")
    await clients.until(lambda: one.numbers == [0])
    other = await clients.subscriber(work.address("b"), "work/back", "other")
    await clients.until(lambda: publisher.accepted == [0])
    assert other.numbers == [0]


async def test_what_one_rejects_is_rejected(work: RunningMesh, clients: Clients) -> None:
    def reject(delivery: Delivery) -> None:
        delivery.give(REJECTED)

    subscribers = await consumers(work, clients, "work/rejected", respond=reject)
    publisher = await clients.publisher(work.address("b"), "work/rejected")
    await send(clients, publisher, 5)
    assert [outcome.state for outcome in publisher.outcomes.values()] == [REJECTED] * 5
    assert had(subscribers) == dict.fromkeys(range(5), 1)


async def test_presettled_messages_go_to_one_or_to_nobody(work: RunningMesh, clients: Clients) -> None:
    subscribers = await consumers(work, clients, "work/settled")
    publisher = await clients.publisher(work.address("b"), "work/settled")
    for number in range(50):
        publisher.send(b"%d" % number, settled=True)
    await send_on(clients, publisher, 50)
    assert max(had(subscribers).values()) == 1
    assert had(subscribers)[50] == 1


async def send_on(clients: Clients, publisher: Publisher, number: int) -> None:
    publisher.send(b"%d" % number)
    await clients.until(lambda: number in publisher.accepted)


async def test_a_filter_is_refused(work: RunningMesh, clients: Clients) -> None:
    connection = await clients.connect(work.address("a"), "choosy")
    subscriber = connection.subscriber("work/filtered", filters={"selector": Described(SELECTOR, "colour = 'red'")})
    await clients.until(lambda: subscriber.detached is not None)
    assert subscriber.detached is not None and subscriber.detached.name == NOT_IMPLEMENTED
    assert "work/filtered is balanced" in subscriber.detached.description


async def test_what_a_plain_consumer_held_as_its_router_was_killed_is_given_to_another(
    own_work: RunningMesh, clients: Clients
) -> None:
    lost = await clients.subscriber(own_work.address("c"), "work/lost", "lost", respond=hold, credit=3)
    publisher = await clients.publisher(own_work.address("a"), "work/lost")
    for number in range(3):
        publisher.send(b"%d" % number)
    await clients.until(lambda: len(lost.received) == 3)
    other = await clients.subscriber(own_work.address("b"), "work/lost", "other")
    own_work.signal("c", SIGKILL)
    await clients.until(lambda: publisher.accepted == [0, 1, 2])
    assert sorted(other.numbers) == [0, 1, 2]
    await own_work.start("c")
