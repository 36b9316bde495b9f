"""No client attaches to the address of a queue yet, whichever way it comes: it is told why."""

import attrs
import pytest

from router.amqp.batches import Dispositions
from router.amqp.format.errors import NOT_IMPLEMENTED
from router.amqp.format.sections import write_message
from router.amqp.format.values import REJECTED, ErrorCondition
from router.amqp.proton.link import Link
from router.mqtt.format.values import PacketKind, Reason
from tests.fuzz.mesh import SETTINGS, FuzzMesh, GoodClient
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import MqttBench

QUEUES = attrs.evolve(SETTINGS, kinds=(("topic/queue/", "queue"),))
ORDERS = "topic/queue/orders"


class Client(GoodClient):
    def __init__(self) -> None:
        super().__init__(FuzzMesh("a", "b", settings=QUEUES).routers["a"], "client")
        self.router.guests.append(self)
        self.detached: list[ErrorCondition | None] = []
        self.states: list[int] = []

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        self.detached.append(condition)

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        self.states += dispositions.states


@pytest.mark.parametrize("address", [ORDERS, "topic/queue/#"])
def test_a_subscriber_of_a_queue_is_refused(address: str) -> None:
    client = Client()
    client.engine.receiver("reads", address)
    client.router.mesh.flow()
    assert [told.name for told in client.detached if told] == [NOT_IMPLEMENTED]
    assert f"{address!r} is a queue" in str(client.detached[0])


def test_a_publisher_of_a_queue_is_refused() -> None:
    client = Client()
    client.engine.sender("writes", ORDERS)
    client.router.mesh.flow()
    assert [told.name for told in client.detached if told] == [NOT_IMPLEMENTED]
    assert client.router.guard.refused[NOT_IMPLEMENTED] == 1


def test_a_message_to_a_queue_on_a_link_without_an_address_is_rejected() -> None:
    client = Client()
    link = client.engine.sender("writes", "")
    client.router.mesh.flow()
    link.send(b"1", write_message({"properties": {"to": ORDERS}, "data": b""}))
    client.router.mesh.flow()
    assert client.states == [REJECTED]


def test_clients_of_mqtt_are_refused_at_a_queue() -> None:
    client = MqttBench("a", "b", settings=QUEUES).client("a", "client")
    client.say(by_hand.subscribe(1, [(ORDERS, 1), ("topic/news", 1)]))
    (granted,) = [heard.body[-2:] for heard in client.heard if heard.kind is PacketKind.SUBACK]
    assert list(granted) == [Reason.IMPLEMENTATION, 1]
    client.say(by_hand.publish(ORDERS, b"1", 1, 2))
    assert client.told(PacketKind.PUBACK) == [(2, Reason.IMPLEMENTATION)]
