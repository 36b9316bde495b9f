"""Routers that are told to stop, are killed, hang, and come back.

        a
       / \\
      b---c
"""

from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any

import pytest
import trio

from tests.processes.background import background_traffic
from tests.processes.clients import Clients, client_of, hold
from tests.processes.mesh import RunningMesh, eventually
from tests.router.amqp.frames import opening

FORCED = "amqp:connection:forced"


async def contacts(mesh: RunningMesh, router: str) -> set[str]:
    return {route["router"] for route in (await mesh.status(router))["routes"] if route["contact"]}


async def sees(mesh: RunningMesh, router: str, *others: str) -> None:
    async def is_so() -> bool:
        return await contacts(mesh, router) == set(others)

    await eventually(is_so)


async def incarnation(mesh: RunningMesh, router: str) -> Any:
    return (await mesh.status(router))["incarnation"]


async def test_a_router_that_is_told_to_stop_sends_its_clients_away_and_comes_back(
    own_triangle: RunningMesh, clients: Clients
) -> None:
    before = await incarnation(own_triangle, "b")
    async with background_traffic(own_triangle, clients):
        subscriber = await clients.subscriber(own_triangle.address("b"), "topic/x")
        publisher = await clients.publisher(own_triangle.address("b"), "topic/x")
        own_triangle.signal("b", SIGTERM)
        for end in (subscriber, publisher):
            client = client_of(end)
            await clients.until(lambda: client.connection.closed)  # noqa: B023
            assert client.closed is not None
            assert client.closed.name == FORCED
            assert not end.ended, "no detach: what closes is the connection, the link may be resumed elsewhere"
        assert await own_triangle.ending("b") == "exit status 0"
        await sees(own_triangle, "a", "c")

        await own_triangle.start("b")
        assert await incarnation(own_triangle, "b") > before
        assert await contacts(own_triangle, "b") == {"a", "c"}
        subscriber = await clients.subscriber(own_triangle.address("b"), "topic/x")
        publisher = await clients.publisher(own_triangle.address("c"), "topic/x")
        publisher.send(b"0")
        await clients.until(lambda: publisher.accepted == [0])
        assert subscriber.bodies == [b"0"]


@pytest.mark.real_start
async def test_a_stopped_mesh_leaves_no_process(own_triangle: RunningMesh, clients: Clients) -> None:
    for router in own_triangle.routers:
        await clients.subscriber(own_triangle.address(router), "topic/x", f"subscriber at {router}")
    routers = [process.pid for process in own_triangle.processes()]
    assert len(routers) == 3
    for router in own_triangle.routers:
        assert await own_triangle.stop(router) == {router: "stopped"}
    assert own_triangle.processes() == []
    for router in own_triangle.routers:
        await own_triangle.start(router)


async def test_a_client_that_answers_nothing_does_not_keep_a_router_from_stopping(own_triangle: RunningMesh) -> None:
    address = own_triangle.address("b")
    async with await trio.open_tcp_stream(address.host, address.port) as silent:
        await silent.send_all(opening())
        await eventually(lambda: connections(own_triangle, "b", 2))  # this one, and that which asks
        own_triangle.signal("b", SIGTERM)
        assert await own_triangle.ending("b") == "exit status 0"
    await own_triangle.start("b")


async def connections(mesh: RunningMesh, router: str, count: int) -> bool:
    return bool((await mesh.status(router))["connections"] == count)


async def test_subscribers_of_a_router_that_was_killed_hold_up_nobody(
    own_triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/lost subscriber"
    lost = await clients.subscriber(own_triangle.address("b"), topic, respond=hold)
    other = await clients.subscriber(own_triangle.address("c"), topic, "other")
    publisher = await clients.publisher(own_triangle.address("a"), topic)
    for number in range(50):
        publisher.send(b"%d" % number)
    await clients.until(lambda: len(lost.received) == len(other.received) == 50)
    assert publisher.outcomes == {}

    own_triangle.signal("b", SIGKILL)
    await clients.until(lambda: len(publisher.accepted) == 50)
    assert await own_triangle.ending("b") == "ended by SIGKILL"
    await own_triangle.start("b")


async def test_what_a_killed_router_had_sent_on_is_delivered_in_order_and_settled(
    own_triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/lost publisher"
    subscriber = await clients.subscriber(own_triangle.address("c"), topic, credit=10, respond=hold)
    publisher = await clients.publisher(own_triangle.address("b"), topic)
    for number in range(100):
        publisher.send(b"%d" % number)

    async def arrived() -> bool:
        records = (await own_triangle.status("c"))["records"]
        return bool(records["in_doubt"] == 100)

    await eventually(arrived)
    own_triangle.signal("b", SIGKILL)
    subscriber.respond = lambda delivery: delivery.accept()
    for delivery in list(subscriber.received):
        delivery.accept()
    subscriber.link.flow(90)
    await clients.until(lambda: len(subscriber.received) == 100)
    assert subscriber.numbers == list(range(100))
    await clients.until(lambda: len(subscriber.settled) == 100)
    await own_triangle.ending("b")
    await own_triangle.start("b")


@pytest.mark.real_start
async def test_all_routers_killed_at_once_come_back(own_triangle: RunningMesh, clients: Clients) -> None:
    publisher = await clients.publisher(own_triangle.address("a"), "topic/x")
    for router in own_triangle.routers:
        own_triangle.signal(router, SIGKILL)
    for router in own_triangle.routers:
        await own_triangle.ending(router)
    await clients.until(lambda: client_of(publisher).connection.closed)
    for router in own_triangle.routers:
        await own_triangle.start(router)
    async with background_traffic(own_triangle, clients) as background:
        await background.goes_on()


async def test_a_router_that_hangs_is_routed_around_and_taken_back(
    hasty_triangle: RunningMesh, clients: Clients
) -> None:
    topic = "topic/hung"
    async with background_traffic(hasty_triangle, clients) as background:
        publisher = await clients.publisher(hasty_triangle.address("c"), topic)
        subscriber = await clients.subscriber(hasty_triangle.address("b"), topic)
        before = await incarnation(hasty_triangle, "b")
        hasty_triangle.signal("b", SIGSTOP)
        publisher.send(b"0")
        await sees(hasty_triangle, "a", "c")
        await clients.until(lambda: publisher.accepted == [0])  # its terminus lived no longer than its router
        await background.goes_on()

        async def named() -> bool:
            return "connection of router b ended" in hasty_triangle.log("a")  # a dials it, and it says nothing

        await eventually(named)
        assert "connection of '' ended" not in hasty_triangle.log("a")

        hasty_triangle.signal("b", SIGCONT)
        await sees(hasty_triangle, "a", "b", "c")
        await sees(hasty_triangle, "b", "a", "c")
        assert await incarnation(hasty_triangle, "b") == before
        await clients.until(lambda: subscriber.detached is not None)  # it is told what it has missed
        again = await clients.subscriber(hasty_triangle.address("b"), topic)
        publisher.send(b"1")
        await clients.until(lambda: publisher.accepted == [0, 1])
        assert again.bodies == [b"1"]
