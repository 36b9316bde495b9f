"""Clients of seven makes that know nothing of us, over two hops: once, in order, accepted after the subscriber.

publisher - a --- b --- c - subscriber
"""

import pytest

from tests.interop.foreign import foreign
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh

PAIRS = [("proton", "rhea"), ("rhea", "proton")]
MODES = ["first", "second"]
LOADS = [pytest.param(10_000, 100, id="10000x100B"), pytest.param(100, 1 << 20, id="100x1MiB")]


@pytest.mark.parametrize(("count", "size"), LOADS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("publisher", "subscriber"), PAIRS)
async def test_each_message_once_in_order_and_accepted_after_the_subscriber_accepted(
    publisher: str, subscriber: str, mode: str, count: int, size: int, line: RunningMesh
) -> None:
    topic = f"topic/{publisher}/{mode}/{size}"
    a, c = line.address("a"), line.address("c")
    async with (
        foreign(subscriber, "subscribe", c, topic, count, size, mode=mode) as receiving,
        foreign(publisher, "publish", a, topic, count, size) as sending,
    ):
        await receiving.event("received")
        await receiving.event("complete")
        await sending.event("complete")
        published = await sending.finish()
        received = await receiving.finish()

    assert received["numbers"] == list(range(count))
    assert received["damaged"] == 0
    assert published["refused"] == 0
    assert sorted(published["numbers"]) == list(range(count))
    told = dict(zip(published["numbers"], published["times"], strict=True))
    early = [n for n, given in zip(received["numbers"], received["times"], strict=True) if told[n] < given]
    assert early == []
    if mode == "second":
        assert received["settled"] == count


@pytest.mark.parametrize(
    ("publisher", "subscriber"),
    [
        ("proton-c++", "rhea"),
        ("rhea", "proton-c++"),
        ("amqp10", "proton"),
        ("proton", "amqp10"),
        ("erlang", "proton"),
        ("proton", "erlang"),
        ("jms", "proton"),
        ("go", "proton"),
    ],
)
async def test_clients_of_more_makes(publisher: str, subscriber: str, line: RunningMesh) -> None:
    topic, count = f"topic/{publisher}/{subscriber}", 2000
    a, c = line.address("a"), line.address("c")
    async with (
        foreign(subscriber, "subscribe", c, topic, count, 100) as receiving,
        foreign(publisher, "publish", a, topic, count, 100) as sending,
    ):
        await receiving.event("received")
        await receiving.event("complete")
        await sending.event("complete")
        published = await sending.finish()
        received = await receiving.finish()
    assert received["numbers"] == list(range(count))
    assert (received["damaged"], published["refused"]) == (0, 0)
    assert sorted(published["numbers"]) == list(range(count))


@pytest.mark.parametrize(("publisher", "subscriber"), PAIRS)
async def test_selectors_as_clients_write_them(publisher: str, subscriber: str, line: RunningMesh) -> None:
    topic, count = f"topic/selected/{publisher}", 200
    a, c = line.address("a"), line.address("c")
    async with (
        foreign(subscriber, "subscribe", c, topic, count // 2, 100, selector="amqp.subject = 'even'") as receiving,
        foreign(publisher, "publish", a, topic, count, 100) as sending,
    ):
        await receiving.event("received")
        await receiving.event("complete")
        await sending.event("complete")
        assert sorted((await sending.finish())["numbers"]) == list(range(count))
        assert (await receiving.finish())["numbers"] == list(range(0, count, 2))


@pytest.mark.parametrize(("publisher", "subscriber"), PAIRS)
async def test_messages_that_say_themselves_where_they_go(publisher: str, subscriber: str, line: RunningMesh) -> None:
    topic, count = f"topic/anonymous/{publisher}", 2000
    async with (
        foreign(subscriber, "subscribe", line.address("c"), topic, count, 100) as receiving,
        foreign(publisher, "publish", line.address("a"), topic, count, 100, anonymous=True) as sending,
    ):
        await receiving.event("received")
        await receiving.event("complete")
        await sending.event("complete")
        assert sorted((await sending.finish())["numbers"]) == list(range(count))
        assert (await receiving.finish())["numbers"] == list(range(count))


async def test_a_publisher_that_keeps_what_the_router_has_not_settled(line: RunningMesh) -> None:
    """In mode second rhea has room for 2,048 deliveries, and frees one when its receiver has settled it, too."""
    topic, count = "topic/rhea second", 20_000
    async with (
        foreign("rhea", "subscribe", line.address("c"), topic, count, 100, mode="second") as receiving,
        foreign("rhea", "publish", line.address("a"), topic, count, 100, mode="second") as sending,
    ):
        await receiving.event("received")
        await receiving.event("complete")
        await sending.event("complete")
        published = await sending.finish()
        received = await receiving.finish()
    assert received["numbers"] == sorted(published["numbers"]) == list(range(count))
    assert received["settled"] == count


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("publisher", "subscriber"), PAIRS)
async def test_the_publishers_acceptance_stays_out_while_the_subscribers_does(
    publisher: str, subscriber: str, mode: str, line: RunningMesh, clients: Clients
) -> None:
    topic, count = f"topic/held/{publisher}/{mode}", 50
    a, c = line.address("a"), line.address("c")
    async with (
        foreign(subscriber, "subscribe", c, topic, count, 100, mode=mode, hold=True) as receiving,
        foreign(publisher, "publish", a, topic, count, 100) as sending,
    ):
        await receiving.event("received")
        await there_and_back(clients, line, f"{publisher}/{mode}")
        (held,) = [p for p in (await line.status("a"))["publishers"] if p["address"] == topic]
        assert held["unsettled"] == count
        await receiving.accept()
        await receiving.event("complete")
        await sending.event("complete")
        published = await sending.finish()
        received = await receiving.finish()

    assert published["numbers"] == list(range(count))
    assert min(published["times"]) >= min(received["times"])
    assert received["numbers"] == list(range(count))


async def there_and_back(clients: Clients, line: RunningMesh, name: str) -> None:
    """Another publisher's message goes the same way and its acceptance comes back: whatever was on its way before
    would be there too."""
    topic = f"topic/other/{name}"
    other = await clients.subscriber(line.address("c"), topic)
    publisher = await clients.publisher(line.address("a"), topic)
    publisher.send(b"0")
    await clients.until(lambda: publisher.accepted == [0])
    assert other.bodies == [b"0"]
