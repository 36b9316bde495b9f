"""A subscriber that settles with its outcome, and answers no echo, keeps no router from forgetting (protocol 5,
Settled by S)."""

import pytest

from router.amqp.batches import Dispositions, Transfers
from router.amqp.connection import Connection
from router.amqp.format.message import data_message
from router.amqp.format.values import ACCEPTED, RELEASED
from router.amqp.proton.link import Link
from tests.fuzz.mesh import FuzzMesh, FuzzRouter, GoodClient

TOPIC = "topic/news"


class Client(GoodClient):
    def __init__(self, router: FuzzRouter, container: str) -> None:
        super().__init__(router, container)
        self.engine = Connection(self, container=container, server=False, asked=lambda link: None)
        self.engine.open()
        self.router.guests.append(self)
        self.outcomes: list[tuple[int, bool]] = []
        """The outcomes of the next deliveries, and whether it settles them."""
        self.had = 0

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        for handle in transfers.handles:
            outcome, settles = self.outcomes[self.had]
            self.had += 1
            link.update_many([handle], outcome)
            if settles:
                link.settle_many([handle])

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        link.settle_many(dispositions.handles)


@pytest.mark.parametrize(
    ("outcomes", "kept"),
    [
        ([(ACCEPTED, True), (ACCEPTED, True)], 0),
        ([(ACCEPTED, True), (ACCEPTED, False)], 1),
        ([(ACCEPTED, False), (ACCEPTED, False)], 2),
        ([(RELEASED, True), (ACCEPTED, True), (ACCEPTED, True)], 0),
    ],
)
def test_what_a_subscriber_settles_itself_its_router_forgets(outcomes: list[tuple[int, bool]], kept: int) -> None:
    mesh = FuzzMesh("a", "b")
    reader, writer = Client(mesh.routers["b"], "reader"), Client(mesh.routers["a"], "writer")
    reader.outcomes = outcomes
    link = reader.engine.receiver("l", TOPIC, rcv_settle_mode=1, timeout=60, expiry_policy="connection-close")
    mesh.flow()
    link.flow(10)
    sends = writer.engine.sender("l", TOPIC)
    mesh.flow()
    for tag in (b"1", b"2"):
        sends.send(tag, data_message(tag))
    mesh.flow()
    mesh.now += 1
    mesh.flow()
    assert reader.had == len(outcomes)
    assert len(mesh.routers["b"].node.topic.records.by_key) == kept
