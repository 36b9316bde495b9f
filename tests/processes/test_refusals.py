"""What a router says of itself, what it refuses and with which condition, beside traffic that goes on."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from proton._data import obj2dat

from router.amqp.format.codec import Described
from router.amqp.format.values import NO_LOCAL, NO_LOCAL_CODE, SELECTOR, SELECTOR_CODE
from router.amqp.proton.library import lib, write_map
from router.amqp.proton.link import Link
from tests.processes.background import background_traffic
from tests.processes.clients import Clients, Delivery, accept, client_of, hold
from tests.processes.mesh import RunningMesh, eventually

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
MAX_MESSAGE = 16 * MIB


def plain(link: Link) -> None:
    """As it is."""


def anonymous(link: Link) -> None:
    for terminus in (lib.pn_link_source(link.pointer), lib.pn_link_target(link.pointer)):
        lib.pn_terminus_set_address(terminus, b"")


def nowhere(link: Link) -> None:
    for terminus in (lib.pn_link_source(link.pointer), lib.pn_link_target(link.pointer)):
        lib.pn_terminus_set_type(terminus, lib.PN_UNSPECIFIED)


def dynamic(link: Link) -> None:
    for terminus in (lib.pn_link_source(link.pointer), lib.pn_link_target(link.pointer)):
        lib.pn_terminus_set_dynamic(terminus, True)


def coordinator(link: Link) -> None:
    lib.pn_terminus_set_type(lib.pn_link_target(link.pointer), lib.PN_COORDINATOR)


def modes(sender: int, receiver: int) -> Callable[[Link], None]:
    def shape(link: Link) -> None:
        lib.pn_link_set_snd_settle_mode(link.pointer, sender)
        lib.pn_link_set_rcv_settle_mode(link.pointer, receiver)

    return shape


NOT_IMPLEMENTED, NOT_FOUND, NOT_ALLOWED = "amqp:not-implemented", "amqp:not-found", "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"


@pytest.mark.parametrize(
    ("role", "address", "shape", "condition"),
    [
        ("publish", "topic/x", dynamic, NOT_IMPLEMENTED),
        ("publish", "topic/x", coordinator, NOT_IMPLEMENTED),
        ("publish", "topic/x", nowhere, NOT_IMPLEMENTED),
        ("subscribe", "topic/x", anonymous, NOT_IMPLEMENTED),
        ("subscribe", "topic/x", dynamic, NOT_IMPLEMENTED),
        ("subscribe", "topic/x", nowhere, NOT_FOUND),
        ("publish", "queue/x", plain, NOT_FOUND),
        ("subscribe", "topic", plain, NOT_FOUND),
        ("publish", "$status", plain, NOT_ALLOWED),
        ("publish", "amqp://host/queue/x", plain, NOT_FOUND),
        ("publish", "amqp://topic/x", plain, NOT_FOUND),
        ("subscribe", "amqp://host", plain, NOT_IMPLEMENTED),
        ("publish", "topic/eu.*", plain, INVALID_FIELD),
        ("publish", "topic/eu/#", plain, INVALID_FIELD),
        ("subscribe", "topic/#.fr", plain, INVALID_FIELD),
        ("publish", "topic/x", modes(3, 0), INVALID_FIELD),
        ("publish", "topic/x", modes(2, 2), INVALID_FIELD),
        ("subscribe", "topic/x", modes(255, 1), INVALID_FIELD),
    ],
)
async def test_an_attach_is_refused_with_its_reason(
    role: str,
    address: str,
    shape: Callable[[Link], None],
    condition: str,
    triangle: RunningMesh,
    clients: Clients,
) -> None:
    async with background_traffic(triangle, clients):
        client = await clients.connect(triangle.address("b"), "client")
        end = client.publisher(address) if role == "publish" else client.subscriber(address)
        shape(end.link)
        await clients.until(lambda: end.detached is not None)

        assert end.detached is not None
        assert end.detached.name == condition
        assert end.detached.description
        ours = end.link.remote_target if role == "publish" else end.link.remote_source
        assert ours is None  # so its creator knows that nothing was created
        other = client.subscriber("topic/other")
        await clients.until(lambda: other.attached)


async def test_the_url_of_a_node_is_its_address(triangle: RunningMesh, clients: Clients) -> None:
    subscriber = await clients.subscriber(triangle.address("c"), "topic/by url")
    by_url = await clients.subscriber(triangle.address("c"), "amqps://host:5671/topic/by url", "by url")
    assert by_url.link.remote_source is not None
    assert by_url.link.remote_source.address == "amqps://host:5671/topic/by url"  # as it asked for it
    for url in ("amqp://host/topic/by url", "topic/by url"):  # it is the same link
        publisher = await clients.publisher(triangle.address("a"), url)
        publisher.send(url.encode())
        await clients.until(lambda publisher=publisher: publisher.accepted == [0])  # type: ignore[misc]
    assert subscriber.bodies == by_url.bodies == [b"amqp://host/topic/by url", b"topic/by url"]


async def test_who_wants_a_transaction_without_queues_is_told_where_to_read_why_there_is_none(
    triangle: RunningMesh, clients: Clients
) -> None:
    client = await clients.connect(triangle.address("b"), "client")
    controller = client.publisher("")
    coordinator(controller.link)
    await clients.until(lambda: controller.detached is not None)

    assert controller.detached is not None
    assert controller.detached.name == NOT_IMPLEMENTED
    assert "docs/clients.md, Transactions" in controller.detached.description
    assert "\n## Transactions\n" in (ROOT / "docs" / "clients.md").read_text()


@pytest.mark.parametrize(
    ("code", "why"), [(0x34, "only the queues of one set"), (0x39, "the subscriber sent the unknown outcome 0x39")]
)
async def test_an_outcome_that_is_none_is_refused(triangle: RunningMesh, clients: Clients, code: int, why: str) -> None:
    """One within a transaction is none at a topic."""

    def respond(delivery: Delivery) -> None:
        state = lib.pn_disposition_data(lib.pn_delivery_local(delivery.handle))
        obj2dat([b"transaction"], state)  # type: ignore[no-untyped-call]
        delivery.give(code)

    topic = f"topic/outcome-{code}"
    subscriber = await clients.subscriber(triangle.address("c"), topic, respond=respond)
    publisher = await clients.publisher(triangle.address("a"), topic)
    publisher.send(b"0")
    await clients.until(lambda: subscriber.detached is not None)
    assert subscriber.detached is not None
    assert subscriber.detached.name == NOT_IMPLEMENTED
    assert why in subscriber.detached.description
    assert subscriber.bodies == [b"0"]


async def test_a_message_that_is_too_large_ends_its_link_only(triangle: RunningMesh, clients: Clients) -> None:
    """Its subscriber resumes: a plain one is not awaited while its router is out of contact, as on a slow machine."""
    topic = "topic/large"
    subscriber = await clients.subscriber(triangle.address("c"), topic, timeout=60)
    before = (await triangle.status("b"))["exceeded"]["max_message"]
    async with background_traffic(triangle, clients):
        publisher = await clients.publisher(triangle.address("b"), topic)
        assert publisher.link.remote_max_message_size == MAX_MESSAGE
        publisher.send(bytes(MAX_MESSAGE - 100))
        await clients.until(lambda: publisher.accepted == [0])
        publisher.send(bytes(MAX_MESSAGE + 1))
        await clients.until(lambda: publisher.detached is not None)
        assert publisher.detached is not None
        assert publisher.detached.name == "amqp:link:message-size-exceeded"
        assert (await triangle.status("b"))["exceeded"]["max_message"] == before + 1

        again = client_of(publisher).publisher(topic, "another link")
        await clients.until(lambda: again.link.credit > 0)
        again.send(b"small")
        await clients.until(lambda: again.accepted == [0])
        assert [len(body) for body in subscriber.bodies] == [MAX_MESSAGE - 100, 5]
    subscriber.link.detach()
    subscriber.link.connection.wake()


async def test_drain_gives_unused_credit_back(triangle: RunningMesh, clients: Clients) -> None:
    topic = "topic/drained"
    subscriber = await clients.subscriber(triangle.address("c"), topic, credit=0)
    publisher = await clients.publisher(triangle.address("a"), topic)
    for number in range(3):
        publisher.send(b"%d" % number)
    await clients.until(lambda: publisher.link.credit == 1000 - 3)
    await queued(triangle, topic, 3)

    subscriber.link.drain(10)
    subscriber.link.connection.wake()
    await clients.until(lambda: subscriber.link.credit == 0)
    assert subscriber.numbers == [0, 1, 2]

    publisher.send(b"3")  # there is no credit left for it
    await clients.until(lambda: publisher.accepted == [0, 1, 2])
    await queued(triangle, topic, 1)
    assert subscriber.numbers == [0, 1, 2]


async def queued(mesh: RunningMesh, topic: str, count: int) -> None:
    async def is_so() -> bool:
        links = (await mesh.status("c"))["subscribers"]
        return [link["queued"] for link in links if link["address"] == topic] == [count]

    await eventually(is_so)


@pytest.mark.parametrize("value", [[], "NoLocalFilter{}", [["x"]], 5], ids=str)
@pytest.mark.parametrize("descriptor", [NO_LOCAL, NO_LOCAL_CODE])
async def test_who_asks_for_no_local_is_given_nothing_of_its_own(
    descriptor: str | int, value: object, triangle: RunningMesh, clients: Clients
) -> None:
    topic = f"topic/local/{descriptor}/{value}"
    client = await clients.connect(triangle.address("c"), "talks")
    asked = {"no-local": Described(descriptor, value), "hue": Described(SELECTOR, "amqp.subject IS NULL")}
    subscriber, listener = client.subscriber(topic, filters=asked), client.subscriber(topic, "all")
    await clients.until(lambda: subscriber.attached and listener.attached)
    source = subscriber.link.remote_source
    assert source is not None and source.filters.keys() == asked.keys()
    own = (await clients.connect(triangle.address("a"), "talks")).publisher(topic)
    await clients.until(lambda: own.link.credit > 0)
    own.send(b"own")
    other = await clients.publisher(triangle.address("b"), topic, "other")
    await clients.until(lambda: own.accepted == [0])
    other.send(b"other")
    await clients.until(lambda: other.accepted == [0])
    assert subscriber.bodies == [b"other"] and listener.bodies == [b"own", b"other"]


async def test_filters_that_are_not_applied_are_left_out_of_the_answer(triangle: RunningMesh, clients: Clients) -> None:
    client = await clients.connect(triangle.address("b"), "client")
    subscriber = client.subscriber("topic/filtered")
    source = lib.pn_link_source(subscriber.link.pointer)
    write_map({"apache.org:selector-filter:string": "colour = 'blue'"}, lib.pn_terminus_filter(source))
    await clients.until(lambda: subscriber.attached)
    assert subscriber.link.remote_source is not None
    assert subscriber.link.remote_source.address == "topic/filtered"
    assert not subscriber.link.remote_source.filters


async def test_the_filter_that_is_applied_is_in_the_answer(triangle: RunningMesh, clients: Clients) -> None:
    client = await clients.connect(triangle.address("b"), "client")
    asked = {"hue": Described(SELECTOR_CODE, "colour = 'blue'"), "other": Described("x:filter", "y")}
    subscriber = client.subscriber("topic/filtered", filters=asked)
    await clients.until(lambda: subscriber.attached)
    assert subscriber.link.remote_source is not None
    assert subscriber.link.remote_source.filters == {"hue": asked["hue"]}


async def test_a_selector_that_is_none_is_refused_with_the_place(triangle: RunningMesh, clients: Clients) -> None:
    client = await clients.connect(triangle.address("b"), "client")
    subscriber = client.subscriber("topic/filtered", filters={"f": Described(SELECTOR, "colour =< 3")})
    await clients.until(lambda: subscriber.detached is not None)
    assert subscriber.detached is not None and subscriber.detached.name == "amqp:invalid-field"
    assert "filter f: selector, column 9: expected a property or a value, got '<'" in subscriber.detached.description


async def test_settle_modes_are_honoured_and_termini_end_with_their_session(
    triangle: RunningMesh, clients: Clients
) -> None:
    for first in (True, False):
        subscriber = await clients.subscriber(triangle.address("b"), "topic/modes", f"mode {first}", first=first)
        assert subscriber.link.remote_rcv_settle_mode == (0 if first else 1)
        assert subscriber.link.remote_source is not None
        assert subscriber.link.remote_source.expiry_policy == "session-end"
        assert subscriber.link.remote_source.timeout == 0


async def test_a_router_introduces_itself_as_the_mesh(triangle: RunningMesh, clients: Clients) -> None:
    for router in triangle.routers:
        connection = (await clients.connect(triangle.address(router), "client")).connection
        assert connection.remote_container == "triangle"
        assert connection.remote_properties["router"] == router
        others = connection.remote_properties["failover-server-list"]
        assert sorted(server["port"] for server in others) == sorted(
            triangle.address(other).port for other in triangle.routers if other != router
        )
        assert {(server["network-host"], server["scheme"]) for server in others} == {(triangle.host, "amqp")}


async def test_a_publishers_credit_is_the_window_less_what_is_unsettled(
    triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/window"
    subscriber = await clients.subscriber(triangle.address("c"), topic, respond=hold, credit=2000)
    publisher = await clients.publisher(triangle.address("a"), topic)
    publisher.in_flight = 5000
    publisher.feed = (b"%d" % number for number in range(3000))
    publisher.pump()
    await clients.until(lambda: len(subscriber.received) == 1000)
    assert (publisher.sent, publisher.link.credit) == (1000, 0)

    for delivery in subscriber.received[:300]:
        delivery.accept()
    await clients.until(lambda: publisher.sent == 1300)
    subscriber.respond = accept
    for delivery in subscriber.received[300:]:
        delivery.accept()
    await clients.until(lambda: len(publisher.accepted) == 3000)
    assert subscriber.numbers == list(range(3000))


async def test_every_credit_on_the_status_link_brings_a_status(triangle: RunningMesh, clients: Clients) -> None:
    subscriber = await clients.subscriber(triangle.address("b"), "$status", credit=0)
    for number in range(1, 4):
        subscriber.link.flow(1)
        subscriber.link.connection.wake()
        await clients.until(lambda: len(subscriber.received) == number)  # noqa: B023
    assert [json.loads(body)["router"] for body in subscriber.bodies] == ["b"] * 3
