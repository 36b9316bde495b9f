"""A plan that takes away the neighbour whose connection is just being read, or comes up (protocol 11)."""

from typing import Any

import pytest

from linkstate.clock import HybridClock
from linkstate.frames import Hello, encode_hello, encode_plan
from linkstate.mesh import Mesh
from linkstate.plan.plan import Plan
from router.amqp.format.message import joined_message
from router.neighbours import LINKS, MESH, PREFIX, VERSION, WIRE, Neighbours
from tests.linkstate.network import DEAD, HELLO, MAX_PAYLOAD
from tests.plans import file

FILE = file("abc", "ab", "bc", "ac")
WITHOUT_A = FILE.revised(file("abc", "bc", "ac"), (1, "a"))
"""The link a─b is gone."""


class Sender:
    credit = 1


class Connection:
    """With a, as its handler sees it."""

    remote_container, user, origin, last_received, is_behind = "a", "", "somewhere", 0.0, False

    def __init__(self) -> None:
        self.remote_properties: dict[str, object] = {MESH: "mesh", WIRE: VERSION}
        self.context: Any = None
        self.ended = ""

    def open(self) -> None:
        pass

    def sender(self, *_: object, **__: object) -> Sender:
        return Sender()

    def close(self, _: str, why: str) -> None:
        self.ended = why

    def wake(self) -> None:
        pass


class Link:
    """From a."""

    is_sender, credit, context = False, 100_000, None

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection, self.name = connection, PREFIX + name
        self.refused = False

    def answer(self) -> None:
        pass

    def flow(self, credit: int) -> None:
        pass

    def refuse(self, *_: str) -> None:
        self.refused = True


class Transfers:
    def __init__(self, body: bytes) -> None:
        self.messages = [joined_message([body])]


class B:
    """The router b, with one connection."""

    name = "b"

    def __init__(self) -> None:
        clock = HybridClock()
        self.mesh = Mesh("b", 100, FILE, clock, hello=HELLO, dead=DEAD, max_payload=MAX_PAYLOAD)
        this: Any = self
        self.neighbours = Neighbours(this, self.mesh, "mesh", closed=False)
        opened: Any = Connection()
        self.connection = opened
        self.neighbours.on_open(self.connection)

    def now(self) -> float:
        return 0.0

    def pump(self) -> None:
        pass

    def attach(self) -> list[Any]:
        links: list[Any] = [Link(self.connection, name) for name in LINKS]
        for link in links:
            self.neighbours.on_attach(link)
        return links

    def read(self, link: Any, *bodies: bytes) -> None:
        for body in bodies:
            transfers: Any = Transfers(body)
            self.neighbours.on_transfers(link, transfers)

    def replan(self, plan: Plan) -> None:
        self.mesh.replan(plan, 0.0)


@pytest.fixture
def b() -> B:
    return B()


def test_a_plan_may_take_away_the_neighbour_that_tells_it(b: B) -> None:
    linkstate, _ = b.attach()
    b.read(linkstate, encode_hello(Hello("a", 200, 0, 100, 0)), encode_plan(0, WITHOUT_A))
    assert "a" not in b.mesh.neighbours
    assert b.neighbours.heard(b.connection), "its bytes have come, and nothing follows from them any more"
    b.neighbours.follow()
    assert b.connection.ended == "no neighbour any more"


def test_what_such_a_neighbour_said_behind_the_plan_is_not_looked_at(b: B) -> None:
    linkstate, _ = b.attach()
    hello = encode_hello(Hello("a", 200, 0, 100, 0))
    b.read(linkstate, hello, encode_plan(0, WITHOUT_A), hello)
    assert not b.connection.ended


def test_a_connection_does_not_come_up_when_the_plan_has_taken_its_neighbour_away(b: B) -> None:
    b.replan(WITHOUT_A)
    b.attach()
    assert not b.neighbours.connections
    b.neighbours.follow()
    assert b.connection.ended == "no neighbour any more"


def test_a_connection_that_is_not_up_yet_is_closed_with_the_others(b: B) -> None:
    b.replan(WITHOUT_A)
    b.neighbours.follow()
    assert b.connection.ended == "no neighbour any more"
    b.replan(WITHOUT_A.revised(FILE, (2, "a")))
    assert all(link.refused for link in b.attach())
    assert not b.neighbours.connections, "it is over, whatever the plan says next"


def test_a_connection_that_ends_before_it_is_up_is_forgotten(b: B) -> None:
    b.neighbours.on_close(b.connection, None)
    b.replan(WITHOUT_A)
    b.neighbours.follow()
    assert not b.connection.ended
