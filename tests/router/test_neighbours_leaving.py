"""A plan that takes away the neighbour whose connection is just being read, or comes up (protocol 11)."""

from typing import Any

import pytest

from linkstate.clock import HybridClock
from linkstate.frames import Hello, encode_hello, encode_plan
from linkstate.mesh import Mesh
from linkstate.mesh_actions import LINKSTATE
from linkstate.plan.plan import Plan
from router.amqp.body_connection import BodyConnection
from router.neighbours import LANES, MESH, VERSION, WIRE, Neighbours
from tests.linkstate.network import DEAD, HELLO, MAX_PAYLOAD
from tests.plans import file

FILE = file("abc", "ab", "bc", "ac")
WITHOUT_A = FILE.revised(file("abc", "bc", "ac"), (1, "a"))
"""The link a─b is gone."""


class Connection(BodyConnection):
    """With a, as its handler sees it."""

    remote_container, user, origin, last_received, is_behind = "a", "", "somewhere", 0.0, False

    def __init__(self) -> None:
        self.remote_properties: dict[str, object] = {MESH: "mesh", WIRE: VERSION}
        self.context: Any = None
        self.ended = ""

    def open(self) -> None:
        pass

    def close(self, condition: str | None = None, description: str = "") -> None:
        self.ended = description

    def refuse(self, condition: str, description: str) -> None:
        self.ended = description

    def wake(self) -> None:
        pass


class B:
    """The router b, with one connection."""

    name = "b"

    def __init__(self) -> None:
        clock = HybridClock()
        self.mesh = Mesh("b", 100, FILE, clock, hello=HELLO, dead=DEAD, max_payload=MAX_PAYLOAD)
        this: Any = self
        self.neighbours = Neighbours(this, self.mesh, "mesh", this, closed=False)
        self.connection = Connection()

    def now(self) -> float:
        return 0.0

    def pump(self) -> None:
        pass

    def open(self) -> None:
        self.neighbours.on_open(self.connection)

    def read(self, *bodies: bytes) -> None:
        for body in bodies:
            self.neighbours.on_body(self.connection, LANES.index(LINKSTATE), body)

    def replan(self, plan: Plan) -> None:
        self.mesh.replan(plan, 0.0)


@pytest.fixture
def b() -> B:
    return B()


def test_a_plan_may_take_away_the_neighbour_that_tells_it(b: B) -> None:
    b.open()
    b.read(encode_hello(Hello("a", 200, 0, 100, 0)), encode_plan(0, WITHOUT_A))
    assert "a" not in b.mesh.neighbours
    assert b.neighbours.bytes_received(b.connection), "its bytes have come, and nothing follows from them any more"
    b.neighbours.follow()
    assert b.connection.ended == "the router is no longer a neighbour"


def test_what_such_a_neighbour_said_behind_the_plan_is_not_looked_at(b: B) -> None:
    b.open()
    hello = encode_hello(Hello("a", 200, 0, 100, 0))
    b.read(hello, encode_plan(0, WITHOUT_A), hello)
    assert not b.connection.ended


def test_a_connection_does_not_come_up_when_the_plan_has_taken_its_neighbour_away(b: B) -> None:
    b.replan(WITHOUT_A)
    b.open()
    assert not b.neighbours.connections
    assert b.connection.ended == "only routers of the mesh may connect to this listener"
    b.read(b"nothing that anybody would understand")
    assert not b.neighbours.bytes_received(b.connection)


def test_a_plan_closes_a_connection_that_is_up_and_its_end_is_no_news(b: B) -> None:
    b.open()
    b.replan(WITHOUT_A)
    b.neighbours.follow()
    assert b.connection.ended == "the router is no longer a neighbour"
    b.replan(WITHOUT_A.revised(FILE, (2, "a")))
    assert not b.neighbours.connections, "it is over, whatever the plan says next"
    b.neighbours.on_close(b.connection, None)
    assert not b.neighbours.parting
