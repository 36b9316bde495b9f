"""Links, connections, transactions and temporary queues that are gone are freed at once, without Python's search for
cycles, which is rare in a router (`router.garbage`)."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from router.amqp.format.message import data_message
from router.amqp.format.values import LIFETIME_POLICY
from router.mqtt.format.values import PacketKind
from tests.fuzz.mesh import FuzzMesh, GoodClient, Guest
from tests.fuzz.queues import DECLARE, MOVED, TRANSACTIONAL, Mover, QueueMesh, value_message
from tests.router.amqp.frames import (
    ATTACH,
    BEGIN,
    FLOW,
    HEADER,
    OPEN,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    Symbol,
    frame,
)
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import MqttBench
from topic.directory.entry import AddressAudience
from topic.identity import Epoch
from topic.queues.logged.message_log import _egress
from topic.raft.log import Entry
from topic.termini.deadlines import FEW

LINKS = 200
OURS = ("router.", "topic.", "linkstate.")
REMEMBERED = (AddressAudience, Epoch, Entry)
"""The objects of addresses, of links that have ended, and of the log of a set. Each router keeps a limited number."""


@pytest.fixture(autouse=True)
def without_search() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def count(mesh: FuzzMesh) -> Counter[str]:
    for router in mesh.routers.values():
        router.journal.begin_next()
    _egress.cache_clear()  # it has the latest queues
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


def leave(guest: Guest) -> None:
    guest.leave()
    if isinstance(guest, GoodClient):
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


# Queues


def consumes(mesh: QueueMesh) -> None:
    """A publisher, and a consumer that drains."""
    guest = mesh._good("c", "guest")
    sender = guest.engine.sender("sends", "queue/left", rcv_settle_mode=1)
    receiver = guest.engine.receiver("receives", "queue/left", rcv_settle_mode=1)
    mesh.flow()
    sender.send(b"tag", data_message(b"1"))
    mesh.flow()
    receiver.drain(10)
    mesh.flow()
    assert guest.accepted == 1 and guest.numbers == [1]
    leave(guest)


class ByHand(Guest):
    """A client whose frames are written by hand."""

    def __init__(self, mesh: QueueMesh, *said: bytes) -> None:
        super().__init__(mesh.routers["b"])
        self.router.guests.append(self)
        self.say(HEADER + frame(OPEN, "guest") + frame(BEGIN, None, 0, 1000, 1000) + b"".join(said))

    def hears(self, data: bytes) -> None:
        pass


def browses(mesh: QueueMesh) -> None:
    source = Described(SOURCE, MOVED, 0, Symbol("session-end"), 0, False, None, Symbol("copy"))
    attach = frame(ATTACH, "browses", 0, True, None, None, source, Described(TARGET), None, None, 0)
    leave(ByHand(mesh, attach, frame(FLOW, 0, 1000, 0, 1000, 0, 0, 5, None, True)))


def makes_a_temporary_queue(mesh: QueueMesh) -> None:
    """With a message in it."""
    policy = {Symbol(LIFETIME_POLICY): Described(0x2B)}
    target = Described(TARGET, None, 0, Symbol("session-end"), 0, True, policy, Symbol("queue"))
    guest = ByHand(mesh, frame(ATTACH, "makes", 0, False, None, None, Described(SOURCE), target, None, None, 0))
    mesh.flow()
    states = [router.sets.state("q0") for router in mesh.routers.values()]
    assert all(len(state.temporary) == 1 for state in states)
    guest.say(frame(TRANSFER, 0, 0, b"tag", 0, False, payload=data_message(b"1")))
    mesh.flow()
    assert all(state.messages.of(queue.id) for state in states for queue in state.temporary.values())
    leave(guest)


def mover_at(mesh: QueueMesh) -> Mover:
    mover = Mover(mesh.routers["a"])
    mover.router.guests.append(mover)
    mover.say(mover.begins)
    return mover


def commits(mesh: QueueMesh) -> None:
    mover = mover_at(mesh)
    mover.move(0)
    leave(mover)


def leaves_a_transaction(mesh: QueueMesh) -> None:
    """With a message in it."""
    mover = mover_at(mesh)
    [name] = mover._transfer(0, value_message(DECLARE, [])).value
    mover._transfer(1, data_message(b"0"), Described(TRANSACTIONAL, name))
    leave(mover)


@pytest.mark.parametrize("act", [consumes, browses, makes_a_temporary_queue, commits, leaves_a_transaction])
def test_of_clients_of_queues(act: Callable[[QueueMesh], None]) -> None:
    mesh = QueueMesh("a", "b", "c")

    def come_and_go(clients: int) -> None:
        for _ in range(clients):
            act(mesh)
            mesh.flow()
        mesh.check_forgotten()

    check(mesh, come_and_go)
    mesh.end()
