"""Links and connections that are gone are freed at once, without Python's search for cycles, which is rare in a router
(`router.garbage`)."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from router.amqp.format.message import data_message
from router.mqtt.format.values import PacketKind
from tests.fuzz.mesh import FuzzMesh, GoodClient
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import MqttBench
from topic.directory.entry import AddressAudience
from topic.identity import Epoch
from topic.termini.deadlines import FEW

LINKS = 200
OURS = ("router.", "topic.", "linkstate.")
REMEMBERED = (AddressAudience, Epoch)
"""Of addresses, and of links that have ended; so many, and no more."""


@pytest.fixture(autouse=True)
def without_search() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def count(mesh: FuzzMesh) -> Counter[str]:
    for router in mesh.routers.values():
        router.journal.begin_next()
    kinds = Counter(type(found) for found in gc.get_objects())
    return Counter({
        kind.__qualname__: number
        for kind, number in kinds.items()
        if str(kind.__module__).startswith(OURS) and kind not in REMEMBERED
    })  # fmt: skip


def check(mesh: FuzzMesh, come_and_go: Callable[[int], None]) -> None:
    come_and_go(10)
    before = count(mesh)
    come_and_go(LINKS)
    left = count(mesh) - before
    assert {kind: number for kind, number in left.items() if number > FEW} == {}


# AMQP


def leave(guest: GoodClient) -> None:
    guest.leave()
    guest.engine.release()
    vars(guest).clear()  # which knows its engine, and is known by it


def publishes(guest: GoodClient, link: int) -> None:
    sender = guest.engine.sender(f"link {link}", f"topic/{link}", rcv_settle_mode=1)
    guest.router.mesh.flow()
    sender.send(b"tag", data_message(b"1"))
    guest.router.mesh.flow()
    assert guest.accepted
    sender.detach()


def subscribes(guest: GoodClient, link: int) -> None:
    receiver = guest.engine.receiver(f"link {link}", f"topic/{link}", rcv_settle_mode=1)
    receiver.flow(10)
    guest.router.mesh.flow()
    assert receiver.answered
    receiver.detach()


def suspends(guest: GoodClient, link: int) -> None:
    """It attaches again, and does not close before its session ends."""
    for _ in range(2):
        attach = {"rcv_settle_mode": 1, "timeout": 1, "expiry_policy": "connection-close"}
        receiver = guest.engine.receiver(f"link {link}", "topic/suspended", **attach)  # type: ignore[arg-type]
        guest.router.mesh.flow()
        assert receiver.answered
        receiver.detach(closed=False)
        guest.router.mesh.flow()


def publishes_to_nowhere(guest: GoodClient, link: int) -> None:
    """By the anonymous terminus."""
    sender = guest.engine.sender(f"link {link}", "", rcv_settle_mode=1)
    guest.router.mesh.flow()
    assert sender.answered
    sender.detach()


Act = Callable[[GoodClient, int], None]
ACTS = [publishes, subscribes, publishes_to_nowhere]


@pytest.mark.parametrize("act", ACTS)
def test_of_links_of_one_connection(act: Act) -> None:
    mesh = FuzzMesh("a", "b")
    guest = mesh._good("a", "guest")

    def come_and_go(links: int) -> None:
        for link in range(links):
            act(guest, link)
            mesh.flow()

    check(mesh, come_and_go)


@pytest.mark.parametrize("act", [*ACTS, suspends])
def test_of_connections(act: Act) -> None:
    mesh = FuzzMesh("a", "b")

    def come_and_go(connections: int) -> None:
        for link in range(connections):
            guest = mesh._good("a", "guest")
            act(guest, link)
            leave(guest)
            mesh.time(0.5)
        mesh.check_forgotten()  # those that are suspended expire

    check(mesh, come_and_go)


def test_of_connections_that_are_cut() -> None:
    """With links that nobody has detached."""
    mesh = FuzzMesh("a", "b")

    def come_and_go(connections: int) -> None:
        for link in range(connections):
            guest = mesh._good("a", "guest")
            guest.engine.sender("sends", f"topic/{link}", rcv_settle_mode=1)
            guest.engine.receiver("receives", "topic/*", rcv_settle_mode=1).flow(10)
            mesh.flow()
            leave(guest)
            mesh.flow()

    check(mesh, come_and_go)


# MQTT


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_of_what_a_client_of_mqtt_publishes(qos: int) -> None:
    mesh = MqttBench("a", "b")

    def come_and_go(topics: int) -> None:
        guest = mesh.client("a", "guest")
        for topic in range(topics):
            guest.say(by_hand.publish(f"topic/{topic}", b"x", qos, 1 if qos else 0, guest.version))
            if qos == 2:
                guest.say(by_hand.ack(PacketKind.PUBREL, 1))
        guest.leave()
        guest.connection.context = None

    check(mesh, come_and_go)


def test_of_what_a_client_of_mqtt_subscribes_to() -> None:
    mesh = MqttBench("a", "b")

    def come_and_go(topics: int) -> None:
        guest = mesh.client("a", "guest")
        for topic in range(topics):
            guest.say(by_hand.subscribe(1, [(f"topic/{topic}", 1)], guest.version))
            guest.say(by_hand.unsubscribe(2, [f"topic/{topic}"], guest.version))
        guest.leave()
        guest.connection.context = None

    check(mesh, come_and_go)


@pytest.mark.parametrize("expiry", [0, 1])
def test_of_sessions(expiry: int) -> None:
    mesh = MqttBench("a", "b")

    def come_and_go(sessions: int) -> None:
        for number in range(sessions):
            guest = mesh.client("a", f"guest {number % 7}", clean=number % 2 == 0, expiry=expiry)
            guest.say(by_hand.publish(f"topic/{number}", b"x", 1, 1, guest.version))
            guest.say(by_hand.subscribe(1, [(f"topic/{number}", 1)], guest.version))
            guest.leave()
            guest.connection.context = None
            if number % 50 == 0:
                for _ in range(10):
                    mesh.time(1.0)

    check(mesh, come_and_go)
