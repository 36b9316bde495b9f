"""Clients that know nothing of us and ask for nothing: when they crash, nobody waits for them; when they live, and a
router stops for an instant, they miss nothing that they are not told of (protocol 8, Apart).

        a - publisher
       / \\
      b---c - another subscriber
      |
      plain subscriber, holding everything
"""

from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals

import pytest
import trio

from failover.client import MISSED
from tests.interop.foreign import foreign
from tests.processes.clients import Clients, client_of, hold
from tests.processes.mesh import RunningMesh, eventually, running

COUNT = 50


@pytest.fixture
def patient_triangle(tmp_path: Path) -> Iterator[RunningMesh]:
    """That gives up silent clients only when a test is long over."""
    with running("triangle", tmp_path, idle="1h") as mesh:
        yield mesh


async def test_a_plain_subscriber_that_is_killed_holds_up_nobody(
    patient_triangle: RunningMesh, clients: Clients
) -> None:
    """A connection that ended is noticed as the machine says so."""
    await holds_up_nobody(SIGKILL, patient_triangle, clients)


async def test_a_plain_subscriber_that_hangs_holds_up_nobody(hasty_triangle: RunningMesh, clients: Clients) -> None:
    """A connection that fell silent: after twice `timing.idle`, by AMQP 1.0 (2.4.5)."""
    await holds_up_nobody(SIGSTOP, hasty_triangle, clients)


async def holds_up_nobody(how: Signals, mesh: RunningMesh, clients: Clients) -> None:
    topic = f"topic/plain/{how.name}"
    other = await clients.subscriber(mesh.address("c"), topic)
    async with foreign("proton", "subscribe", mesh.address("b"), topic, COUNT, 100, hold=True) as plain:
        publisher = await clients.publisher(mesh.address("a"), topic)
        for number in range(COUNT):
            publisher.send((b"%d " % number).ljust(100, b"."))
        await plain.event("received")
        await clients.until(lambda: len(other.received) == COUNT)
        assert publisher.outcomes == {}

        plain.signal(how)
        await clients.until(lambda: len(publisher.accepted) == COUNT)


async def test_a_plain_publisher_that_crashes_leaves_nothing_behind(triangle: RunningMesh, clients: Clients) -> None:
    topic = "topic/plain/publisher"
    subscriber = await clients.subscriber(triangle.address("c"), topic)
    async with foreign("proton", "publish", triangle.address("a"), topic, COUNT, 100) as plain:
        await plain.event("complete")
        plain.signal(SIGKILL)
        another = await clients.publisher(triangle.address("a"), topic, "another")
        another.send(b"next")
        await clients.until(lambda: another.accepted == [0])
    assert subscriber.bodies[-1] == b"next"
    assert len(subscriber.received) == COUNT + 1


@pytest.fixture
def hasty_homes(tmp_path: Path) -> Iterator[RunningMesh]:
    """Homes that do not wait for plain subscribers of a router out of contact."""
    with running("triangle", tmp_path, grace="1ms") as mesh:
        yield mesh


@pytest.fixture
def waiting_homes(tmp_path: Path) -> Iterator[RunningMesh]:
    """Homes that wait for them for longer than a test takes."""
    with running("triangle", tmp_path, grace="1h") as mesh:
        yield mesh


async def stand_still(mesh: RunningMesh, stopped: str) -> None:
    """One of the routers a and b stops until the other has lost it, and goes on."""

    async def is_lost() -> bool:
        routes = (await mesh.status("b" if stopped == "a" else "a"))["routes"]
        return not any(route["contact"] for route in routes if route["router"] == stopped)

    mesh.signal(stopped, SIGSTOP)
    await eventually(is_lost)
    mesh.signal(stopped, SIGCONT)


@pytest.mark.parametrize("stopped", ["a", "b"], ids=["its publisher's router", "its own router"])
async def test_a_plain_subscriber_outlives_a_router_that_stood_still(
    stopped: str, waiting_homes: RunningMesh, clients: Clients
) -> None:
    topic, mesh = "topic/plain/stopped", waiting_homes
    plain = await clients.subscriber(mesh.address("b"), topic, respond=hold)
    publisher = await clients.publisher(mesh.address("a"), topic, timeout=60)
    publisher.send(b"0")
    await clients.until(lambda: plain.bodies == [b"0"])
    await stand_still(mesh, stopped)
    publisher.send(b"1")
    await clients.until(lambda: plain.bodies == [b"0", b"1"])
    assert publisher.accepted == []
    for delivery in plain.received:
        delivery.accept()
    await clients.until(lambda: publisher.accepted == [0, 1])
    assert not plain.ended and not publisher.ended
    publisher.link.detach(closed=True)
    client_of(publisher).connection.wake()


@pytest.mark.parametrize("killed", ["a", "c"], ids=["that dials", "that is dialled"])
async def test_the_plain_subscribers_of_a_router_that_was_killed_hold_up_nobody(
    killed: str, waiting_homes: RunningMesh, clients: Clients
) -> None:
    """Its machine refuses connections to it."""
    topic, mesh = "topic/plain/killed", waiting_homes
    plain = await clients.subscriber(mesh.address(killed), topic, respond=hold)
    publisher = await clients.publisher(mesh.address("b"), topic)
    publisher.send(b"0")
    await clients.until(lambda: plain.bodies == [b"0"])
    mesh.signal(killed, SIGKILL)
    await clients.until(lambda: publisher.accepted == [0])
    assert f"router {killed} has ended" in mesh.log("b")
    await mesh.ending(killed)
    await mesh.start(killed)


@pytest.mark.parametrize("stopped", ["a", "b"], ids=["its publisher's router", "its own router"])
async def test_a_plain_subscriber_that_missed_something_while_a_router_stood_still_is_told(
    stopped: str, hasty_homes: RunningMesh, clients: Clients
) -> None:
    topic, mesh = "topic/plain/stopped", hasty_homes
    plain = await clients.subscriber(mesh.address("b"), topic, respond=hold)
    publisher = await clients.publisher(mesh.address("a"), topic)
    publisher.send(b"0")
    await clients.until(lambda: plain.bodies == [b"0"])

    while not plain.ended:  # not if the contact is back before the router has looked whether the grace is over
        await stand_still(mesh, stopped)
        with trio.move_on_after(2):
            await clients.until(lambda: plain.ended)
    assert publisher.accepted == [0], "without a grace nobody waits for it behind a cut"
    assert plain.detached is not None and plain.detached.name == MISSED
    assert "router a accepted messages without this subscriber" in plain.detached.description
    assert not publisher.ended

    afresh = await clients.subscriber(mesh.address("b"), topic, "another attach")
    publisher.send(b"1")
    await clients.until(lambda: publisher.accepted == [0, 1])
    assert afresh.bodies == [b"1"]
