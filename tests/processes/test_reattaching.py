"""Clients that detach a link, do not close it, and attach it again on the same session, with the null map that AMQP
asks for then.

    a - publisher
   / \\
  b---c - subscriber

Nothing is lost by that: each end still has the other's deliveries, by their ids. The clients here go on with them by
the handles that they had.
"""

from random import Random

import pytest
import trio
import trio.testing

from router.amqp.format.message import data_message
from router.amqp.format.values import ACCEPTED, RELEASED, Handle
from router.amqp.proton.library import lib
from tests.hangs import HANGS_S
from tests.processes.by_hand import heard, lasting_attach
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, eventually
from tests.processes.pair import Pair
from tests.router.amqp.frames import (
    ATTACH,
    DETACH,
    DISPOSITION,
    FLOW,
    TRANSFER,
    Described,
    frame,
    opening,
    settlement,
    transfer,
)
from topic.properties import EPOCH, GENERATION

WINDOW = 1000
COUNT = 200


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"topic/{request.node.name}"


@pytest.fixture
async def pair(triangle: RunningMesh, clients: Clients, topic: str) -> Pair:
    return Pair(triangle, clients, topic)


async def test_a_subscriber_goes_on_with_what_it_has_in_hand(pair: Pair) -> None:
    await pair.attach()
    sent = await pair.send(b"1", b"2")
    one, two = await pair.received(b"1", b"2")
    pair.state(one, ACCEPTED)
    await pair.told(sent[0])

    await pair.attach_subscriber(await pair.leave(pair.subscriber))
    assert pair.subscriber.link.remote_unsettled is None
    await pair.send(b"3")
    await pair.received(b"3")  # and neither of the others
    pair.state(two, ACCEPTED)
    await pair.told(sent[1])
    pair.settle(*sent)
    await pair.settled(one, two)
    pair.subscriber.received[0].accept()
    await pair.finish()


async def test_what_a_subscriber_says_between_its_detach_and_its_attach_counts(pair: Pair) -> None:
    await pair.attach()
    sent = await pair.send(b"accepted", b"released", b"unanswered")
    accepted, released, unanswered = await pair.received(b"accepted", b"released", b"unanswered")
    client = await pair.leave(pair.subscriber)
    pair.state(accepted, ACCEPTED)
    pair.state(released, RELEASED)
    await pair.attach_subscriber(client)
    await pair.told(sent[0])
    await pair.received(b"released")
    pair.subscriber.received[0].accept()
    pair.state(unanswered, ACCEPTED)
    await pair.told(*sent)
    pair.settle(*sent)
    await pair.settled(accepted, unanswered)
    await pair.finish()


async def test_what_a_subscriber_has_in_hand_takes_no_credit(pair: Pair) -> None:
    await pair.attach(credit=2)
    sent = await pair.send(b"1", b"2")
    handles = await pair.received(b"1", b"2")
    await pair.attach_subscriber(await pair.leave(pair.subscriber), credit=1)
    sent += await pair.send(b"3")  # before, it might come as the link is left: the client would have it in hand, too
    await pair.received(b"3")
    for handle in handles:
        pair.state(handle, ACCEPTED)
    pair.subscriber.received[0].accept()
    await pair.told(*sent)
    pair.settle(*sent)
    await pair.settled(*handles)
    await pair.finish()


async def test_a_publisher_goes_on_with_what_is_in_doubt(pair: Pair) -> None:
    await pair.attach()
    generation = pair.generation
    told, untold = await pair.send(b"1", b"2")
    one, two = await pair.received(b"1", b"2")
    pair.state(one, ACCEPTED)
    await pair.told(told)

    await pair.attach_publisher(await pair.leave(pair.publisher))
    assert pair.generation == generation
    assert pair.publisher.link.remote_unsettled is None
    assert pair.publisher.link.credit == WINDOW - 2
    pair.state(two, ACCEPTED)
    await pair.told(untold)
    pair.settle(told, untold)
    await pair.settled(one, two)
    await pair.clients.until(lambda: pair.publisher.link.credit == WINDOW)
    assert pair.subscriber.bodies == [b"1", b"2"]
    pair.publisher.sent = 10  # its tags are not used again
    await pair.finish()


async def test_what_a_publisher_settles_between_its_detach_and_its_attach_is_settled(pair: Pair) -> None:
    await pair.attach()
    (sent,) = await pair.send(b"1")
    (handle,) = await pair.received(b"1")
    pair.state(handle, ACCEPTED)
    await pair.told(sent)
    client = await pair.leave(pair.publisher)
    pair.settle(sent)
    await pair.attach_publisher(client)
    await pair.settled(handle)
    await pair.clients.until(lambda: pair.publisher.link.credit == WINDOW)
    pair.publisher.sent = 10
    await pair.finish()


async def test_what_was_settled_while_away_may_be_accepted_at_once(pair: Pair) -> None:
    """As nobody is awaited any more."""
    await pair.attach()
    (sent,) = await pair.send(b"1")
    await pair.received(b"1")
    client = await pair.leave(pair.publisher)
    pair.settle(sent)
    pair.subscriber.link.detach()
    pair.subscriber.link.connection.wake()

    async def gone() -> bool:
        return all(row["address"] != pair.topic for row in (await pair.mesh.status("a"))["orphans"]) and all(
            row["address"] != pair.topic for row in (await pair.mesh.status("c"))["subscribers"]
        )

    await eventually(gone)
    await pair.attach_publisher(client)
    await pair.clients.until(lambda: pair.publisher.link.credit == WINDOW)
    pair.publisher.link.detach()
    pair.publisher.link.connection.wake()
    await pair.forgotten()


def leaving_at_once(*, receiver: bool, address: str) -> bytes:
    """On handle 0, then again and again before anybody can have answered; at last it stays, on handle 4."""
    again = (lasting_attach(n, receiver=receiver, address=address) + frame(DETACH, n, False) for n in range(1, 4))
    return frame(DETACH, 0, False) + b"".join(again) + lasting_attach(4, receiver=receiver, address=address)


async def test_a_subscriber_may_leave_again_before_it_is_answered(pair: Pair) -> None:
    address = pair.mesh.address("c")
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        flow = frame(FLOW, 0, 1000, 0, 1000, 0, 0, 10)
        await stream.send_all(opening() + lasting_attach(0, receiver=True, address=pair.topic) + flow)
        await heard(stream, ATTACH)
        await pair.attach_publisher(await pair.clients.connect(pair.mesh.address("a"), "writer"))
        (sent,) = await pair.send(b"1")
        await heard(stream, TRANSFER)
        await stream.send_all(leaving_at_once(receiver=True, address=pair.topic))
        await stream.send_all(frame(FLOW, 1, 1000, 0, 1000, 4, 0, 10))
        await stream.send_all(frame(DISPOSITION, True, 0, 0, False, Described(ACCEPTED)))
        await pair.told(sent)
        (second,) = await pair.send(b"2")
        (came,) = await heard(stream, TRANSFER)
        assert came.endswith(data_message(b"2"))
        await stream.send_all(frame(DISPOSITION, True, 1, 1, False, Described(ACCEPTED)))
        await pair.told(second)
        await stream.send_all(frame(DETACH, 4, True))
        pair.publisher.link.detach()
        pair.publisher.link.connection.wake()
        await pair.forgotten()


async def test_a_publisher_may_leave_again_before_it_is_answered(pair: Pair) -> None:
    await pair.attach_subscriber(await pair.clients.connect(pair.mesh.address("c"), "reader"))
    address = pair.mesh.address("a")
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(opening() + lasting_attach(0, receiver=False, address=pair.topic))
        await heard(stream, FLOW)
        await stream.send_all(transfer(0, 0, b"0", payload=data_message(b"1")))
        await stream.send_all(leaving_at_once(receiver=False, address=pair.topic))
        (handle,) = await pair.received(b"1")
        pair.state(handle, ACCEPTED)
        await heard(stream, DISPOSITION)
        await stream.send_all(settlement(0, 0))
        await pair.settled(handle)
        await stream.send_all(frame(DETACH, 4, True))
        pair.subscriber.link.detach()
        pair.subscriber.link.connection.wake()
        await pair.forgotten()


async def test_both_leave_and_come_back_again_and_again(pair: Pair) -> None:
    await pair.attach()
    generation = pair.generation
    sent, got = [], []
    for number in range(20):
        if number % 2:
            await pair.attach_subscriber(await pair.leave(pair.subscriber))
        if number % 3:
            await pair.attach_publisher(await pair.leave(pair.publisher))
        pair.publisher.sent = number
        sent += await pair.send(b"%d" % number)
        await pair.clients.until(lambda: bool(pair.subscriber.received) and pair.subscriber.numbers[-1] == number)  # noqa: B023
        got.append(pair.subscriber.received[-1].handle)
    assert pair.generation == generation
    for handle in got:
        pair.state(handle, ACCEPTED)
    await pair.told(*sent)
    pair.settle(*sent)
    await pair.settled(*got)
    pair.publisher.sent = 50
    await pair.finish()


@pytest.mark.parametrize("seed", range(3))
async def test_both_leave_and_come_back_while_messages_flow(seed: int, pair: Pair) -> None:
    await pair.attach(credit=0)
    random, generation = Random(seed), pair.generation
    got: list[bytes] = []
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish, pair, random)
            nursery.start_soon(subscribe, pair, random, got)
    assert got == [b"%d" % number for number in range(COUNT)]
    assert pair.generation == generation
    await pair.finish()


async def publish(pair: Pair, random: Random) -> None:
    """Settles what it was told in no hurry, and leaves and comes back as it likes."""
    open_handles: list[Handle] = []
    sent = 0
    while sent < COUNT or open_handles:
        pair.publisher.sent = sent
        for _ in range(min(random.randrange(5), COUNT - sent, pair.publisher.link.credit)):
            open_handles += await pair.send(b"%d" % sent)
            sent += 1
        if random.random() < 0.3:
            await pair.attach_publisher(await pair.leave(pair.publisher))
        await trio.sleep(0.001)
        told = [handle for handle in open_handles if lib.pn_delivery_remote_state(handle) == ACCEPTED]
        done = random.sample(told, random.randint(0, len(told)))
        pair.settle(*done)
        open_handles = [handle for handle in open_handles if handle not in done]
    pair.publisher.sent = COUNT


async def subscribe(pair: Pair, random: Random, got: list[bytes]) -> None:
    """Uses up its credit before it leaves: what came after that would be its own to look after."""
    in_hand: list[Handle] = []
    while len(got) < COUNT:
        credit = random.randint(1, min(8, COUNT - len(got)))
        if random.random() < 0.5:
            await pair.attach_subscriber(await pair.leave(pair.subscriber), credit=0)
        pair.subscriber.link.flow(credit)
        pair.subscriber.link.connection.wake()
        end, before = pair.subscriber, len(pair.subscriber.received)
        await pair.clients.until(lambda: len(end.received) == before + credit)  # noqa: B023
        got += end.bodies[before:]
        in_hand += [delivery.handle for delivery in end.received[before:]]
        random.shuffle(in_hand)
        for _ in range(random.randint(len(in_hand) // 2, len(in_hand)) if len(got) < COUNT else len(in_hand)):
            pair.state(in_hand.pop(), ACCEPTED)
    pair.subscriber.link.flow(1)
    pair.subscriber.link.connection.wake()


async def test_a_publishers_null_map_on_another_connection_begins_a_new_life(pair: Pair) -> None:
    await pair.attach()
    generation = pair.generation
    await pair.send(b"1")
    (handle,) = await pair.received(b"1")
    await pair.leave(pair.publisher)
    await pair.attach_publisher(await pair.clients.connect(pair.mesh.address("a"), "writer"))
    assert pair.generation != generation
    pair.state(handle, ACCEPTED)
    await pair.settled(handle)
    await pair.finish()


async def test_a_subscribers_null_map_on_another_connection_says_that_it_has_nothing(pair: Pair) -> None:
    await pair.attach()
    (sent,) = await pair.send(b"1")
    await pair.received(b"1")
    await pair.leave(pair.subscriber)
    await pair.attach_subscriber(await pair.clients.connect(pair.mesh.address("c"), "reader"))
    await pair.received(b"1")
    pair.subscriber.received[0].accept()
    await pair.told(sent)
    pair.settle(sent)
    await pair.finish()


async def test_who_has_been_elsewhere_since_does_not_go_on_where_it_was(pair: Pair) -> None:
    await pair.attach()
    (sent,) = await pair.send(b"1")
    (handle,) = await pair.received(b"1")
    first = await pair.leave(pair.publisher)
    properties = {name: pair.publisher.link.remote_properties[name] for name in (GENERATION, EPOCH)}
    elsewhere = await pair.clients.connect(pair.mesh.address("b"), "writer")
    await pair.attach_publisher(elsewhere, unsettled={b"0": 0}, properties=properties)
    generation = pair.generation
    await pair.leave(pair.publisher)
    await pair.attach_publisher(first)
    assert pair.generation != generation
    assert lib.pn_delivery_remote_state(sent) == 0
    pair.state(handle, ACCEPTED)
    await pair.settled(handle)
    await pair.finish()


async def test_who_closes_its_link_begins_a_new_one(pair: Pair) -> None:
    await pair.attach()
    generation = pair.generation
    await pair.send(b"1")
    (handle,) = await pair.received(b"1")
    await pair.attach_publisher(await pair.leave(pair.publisher, closed=True))
    assert pair.generation != generation
    pair.state(handle, ACCEPTED)
    await pair.settled(handle)
    await pair.finish()
