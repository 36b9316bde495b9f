"""Outcomes and settlements over the wire, and what becomes of a link that is attached twice (protocol 5 and 6.9).

        a - publisher
       / \\
      b---c - subscriber
"""

from collections.abc import Callable
from typing import Any

import pytest
from proton import Message

from router.amqp.format.codec import decode
from router.amqp.format.values import REJECTED, RELEASED, SND_SETTLED
from tests.processes.clients import Clients, Delivery, Publisher, Subscriber, accept, client_of, hold
from tests.processes.mesh import RunningMesh

REDELIVERIES = 5
DELIVERY_COUNT = 4  # its place in the header


def seen(delivery: Delivery) -> Message:
    """As another library reads it."""
    message = Message()
    message.decode(delivery.message)
    return message


def delivery_count(delivery: Delivery) -> int:
    section, _ = decode(delivery.message, 0)
    return int(section.value[DELIVERY_COUNT]) if section.descriptor == 0x70 else 0


def first(outcome: Callable[[Delivery], None]) -> Callable[[Delivery], None]:
    """That outcome for what comes for the first time, acceptance for what comes again."""
    seen: set[bytes] = set()

    def respond(delivery: Delivery) -> None:
        delivery.accept() if delivery.tag in seen else outcome(delivery)
        seen.add(delivery.tag)

    return respond


def modify(delivery: Delivery, *, failed: bool, **annotations: Any) -> None:
    link, settle = delivery.subscriber.link, delivery.subscriber.first
    link.modify(delivery.handle, failed=failed, undeliverable=False, settle=settle, annotations=annotations)
    link.connection.wake()


class Ends:
    """A publisher at a and a subscriber at c, of a topic of their own."""

    def __init__(self, publisher: Publisher, subscriber: Subscriber) -> None:
        self.publisher = publisher
        self.subscriber = subscriber


async def attach(mesh: RunningMesh, clients: Clients, topic: str, respond: Callable[[Delivery], None]) -> Ends:
    subscriber = await clients.subscriber(mesh.address("c"), topic, respond=respond)
    return Ends(await clients.publisher(mesh.address("a"), topic), subscriber)


async def test_a_released_delivery_comes_again_unchanged(triangle: RunningMesh, clients: Clients) -> None:
    ends = await attach(triangle, clients, "topic/released", first(lambda delivery: delivery.give(RELEASED)))
    ends.publisher.send(b"0")
    await clients.until(lambda: ends.publisher.accepted == [0])
    again, once = ends.subscriber.received
    assert (again.message, again.tag) == (once.message, once.tag)
    assert again.body == b"0"


@pytest.mark.parametrize("mode", ["first", "second"])
async def test_deliveries_that_failed_are_counted_and_no_others(
    mode: str, triangle: RunningMesh, clients: Clients
) -> None:
    """AMQP 1.0 3.2.1, 3.4.4, 3.4.5. What another subscriber says of its copy is no matter."""
    says = [
        lambda delivery: modify(delivery, failed=True, a=1),
        lambda delivery: delivery.give(RELEASED),
        lambda delivery: modify(delivery, failed=False, b=2),
        lambda delivery: modify(delivery, failed=True, a=3),
        accept,
    ]
    topic = f"topic/failed/{mode}"
    subscriber = await clients.subscriber(
        triangle.address("c"), topic, first=mode == "first", respond=lambda delivery: says.pop(0)(delivery)
    )
    other = await clients.subscriber(triangle.address("c"), topic, "other", respond=first(lambda d: d.give(RELEASED)))
    publisher = await clients.publisher(triangle.address("a"), topic)
    publisher.send(b"0")
    await clients.until(lambda: publisher.accepted == [0])
    assert [delivery_count(delivery) for delivery in subscriber.received] == [0, 1, 1, 1, 2]
    annotations = [seen(delivery).annotations for delivery in subscriber.received]
    assert annotations == [None, {"a": 1}, {"a": 1}, {"a": 1, "b": 2}, {"a": 3, "b": 2}]
    assert [delivery.message for delivery in other.received] == [subscriber.received[0].message] * 2


async def test_a_delivery_that_is_always_released_is_refused_in_the_end(
    triangle: RunningMesh, clients: Clients
) -> None:
    ends = await attach(triangle, clients, "topic/refused", lambda delivery: delivery.give(RELEASED))
    ends.publisher.send(b"0")
    await clients.until(lambda: bool(ends.publisher.outcomes))
    assert "oncemesh:partial-acceptance" in ends.publisher.outcomes[0].info
    assert ends.subscriber.bodies == [b"0"] * (REDELIVERIES + 1)
    assert {delivery_count(delivery) for delivery in ends.subscriber.received} == {0}


async def test_modified_comes_again_unless_it_is_undeliverable_here(triangle: RunningMesh, clients: Clients) -> None:
    def respond(delivery: Delivery) -> None:
        undeliverable = delivery.body == b"undeliverable"
        delivery.subscriber.link.modify(delivery.handle, failed=True, undeliverable=undeliverable)

    ends = await attach(triangle, clients, "topic/modified", first(respond))
    ends.publisher.send(b"deliverable")
    ends.publisher.send(b"undeliverable")
    await clients.until(lambda: len(ends.publisher.outcomes) == 2)
    assert ends.publisher.accepted == [0]
    assert ends.publisher.outcomes[1].state == REJECTED
    assert sorted(ends.subscriber.bodies) == [b"deliverable", b"deliverable", b"undeliverable"]


async def test_one_rejection_is_a_partial_acceptance(triangle: RunningMesh, clients: Clients) -> None:
    ends = await attach(triangle, clients, "topic/rejected", lambda delivery: delivery.give(REJECTED))
    other = await clients.subscriber(triangle.address("b"), "topic/rejected", "other")
    ends.publisher.send(b"0")
    await clients.until(lambda: bool(ends.publisher.outcomes))
    outcome = ends.publisher.outcomes[0]
    assert (outcome.state, outcome.condition) == (REJECTED, "amqp:precondition-failed")  # decoders may know no others
    assert outcome.info == {"oncemesh:partial-acceptance": outcome.description}
    assert "rejected by 1" in outcome.description
    assert len(ends.subscriber.received) == len(other.received) == 1


async def test_settled_without_an_outcome_is_released(triangle: RunningMesh, clients: Clients) -> None:
    ends = await attach(
        triangle, clients, "topic/default", first(lambda delivery: delivery.subscriber.link.settle(delivery.handle))
    )
    ends.publisher.send(b"0")
    await clients.until(lambda: ends.publisher.accepted == [0])
    assert ends.subscriber.bodies == [b"0", b"0"]


async def test_presettled_transfers_arrive_in_order_and_cost_no_credit_for_good(
    triangle: RunningMesh, clients: Clients
) -> None:
    ends = await attach(triangle, clients, "topic/presettled", hold)
    ends.subscriber.link.flow(3000)
    later = client_of(ends.subscriber).subscriber("topic/later")
    await clients.until(lambda: later.attached)  # so the credit has arrived: for want of it they would be dropped
    for number in range(2500):  # more than a window
        await clients.until(lambda: ends.publisher.link.credit > 0)
        ends.publisher.send(b"%d" % number, settled=True)
    await clients.until(lambda: len(ends.subscriber.received) == 2500)
    assert ends.subscriber.numbers == list(range(2500))
    assert {delivery.handle for delivery in ends.subscriber.received} == {None}


async def test_a_subscriber_that_wants_it_settled_gets_it_settled(triangle: RunningMesh, clients: Clients) -> None:
    topic = "topic/at most once"
    subscriber = await clients.subscriber(triangle.address("c"), topic, snd_settle_mode=SND_SETTLED)
    publisher = await clients.publisher(triangle.address("a"), topic)
    publisher.send(b"0")
    await clients.until(lambda: publisher.accepted == [0] and len(subscriber.received) == 1)
    assert subscriber.received[0].handle is None


@pytest.mark.parametrize("leave", ["closing its link", "detaching", "closing its connection", "vanishing"])
async def test_a_subscriber_that_is_gone_holds_up_nobody(leave: str, triangle: RunningMesh, clients: Clients) -> None:
    topic = f"topic/{leave}"
    ends = await attach(triangle, clients, topic, hold)
    other = await clients.subscriber(triangle.address("b"), topic, "other")
    for number in range(20):
        ends.publisher.send(b"%d" % number)
    await clients.until(lambda: len(ends.subscriber.received) == len(other.received) == 20)
    assert ends.publisher.outcomes == {}

    if leave in ("closing its link", "detaching"):
        ends.subscriber.link.detach(closed=leave != "detaching")
        ends.subscriber.link.connection.wake()
    elif leave == "closing its connection":
        client_of(ends.subscriber).close()
    else:
        client_of(ends.subscriber).vanish()
    await clients.until(lambda: ends.publisher.accepted == list(range(20)))


async def test_in_mode_second_the_subscriber_hears_of_the_settlement_after_the_publisher_settled(
    triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/three steps"
    subscriber = await clients.subscriber(triangle.address("c"), topic)
    publisher = (await clients.connect(triangle.address("a"), "publisher")).publisher(topic, second=True)
    publisher.keep = True
    await clients.until(lambda: publisher.link.credit > 0)
    publisher.send(b"0")
    await clients.until(lambda: publisher.accepted == [0])
    await clients.subscriber(triangle.address("c"), topic, "later, gated by what is not settled")
    assert subscriber.settled == []

    publisher.settle()
    await clients.until(lambda: len(subscriber.settled) == 1)
    assert (await triangle.status("a"))["records"]["accepted"] == 0


async def test_attaching_a_subscribers_link_again_steals_it(triangle: RunningMesh, clients: Clients) -> None:
    topic = "topic/stolen"
    ends = await attach(triangle, clients, topic, hold)
    ends.publisher.send(b"0")
    await clients.until(lambda: len(ends.subscriber.received) == 1)

    thief = await clients.subscriber(triangle.address("c"), topic)
    await clients.until(lambda: ends.subscriber.detached is not None)
    assert ends.subscriber.detached is not None
    assert ends.subscriber.detached.name == "amqp:link:stolen"
    ends.publisher.send(b"1")
    await clients.until(lambda: ends.publisher.accepted == [0, 1])
    assert thief.bodies == [b"0", b"1"]


@pytest.mark.parametrize("at", ["a", "b"])
async def test_attaching_a_publishers_link_again_steals_it(at: str, triangle: RunningMesh, clients: Clients) -> None:
    topic = f"topic/stolen publisher/{at}"
    ends = await attach(triangle, clients, topic, accept)
    thief = await clients.publisher(triangle.address(at), topic)
    await clients.until(lambda: ends.publisher.detached is not None)
    assert ends.publisher.detached is not None
    assert ends.publisher.detached.name == "amqp:link:stolen"
    thief.send(b"1")
    await clients.until(lambda: thief.accepted == [0])
    assert ends.subscriber.bodies == [b"1"]


async def test_attaching_a_subscribers_link_at_another_router_steals_it(
    triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/stolen elsewhere"
    ends = await attach(triangle, clients, topic, hold)
    thief = await clients.subscriber(triangle.address("b"), topic)
    await clients.until(lambda: ends.subscriber.detached is not None)
    assert ends.subscriber.detached is not None
    assert ends.subscriber.detached.name == "amqp:link:stolen"
    ends.publisher.send(b"1")
    await clients.until(lambda: ends.publisher.accepted == [0])
    assert thief.bodies == [b"1"]
    assert ends.subscriber.bodies == []
