"""Breakages of large messages that go ahead of their Forwards (protocol 5, Large messages)."""

from typing import Any

from tests.mutants.mutant import MOVING, Method, mutant
from tests.topic import test_hostile_routers
from topic.delivery.record import HomeStream
from topic.edge.bodies import Bodies
from topic.home.publishing import Publishing
from topic.peers import HANDLERS, Peers
from topic.wire.segments import Segment

IN_PIECES = MOVING | {"piece": 3, "message": 25, "budget": 10, "messages": 20}
PARTED = IN_PIECES | {"faults": ("flap",) * 8, "restless": 0.0}


@mutant(Publishing, "_drop_pieces", by="4", **IN_PIECES)
def not_recalled(_: Method) -> Method:
    """5 Large messages: a router drops the pieces of a message whose Forward will not come."""

    def broken(publishing: Publishing, stream: HomeStream, key: bytes) -> None:
        stream.ahead = {}

    return broken


@mutant(Bodies, "contact_lost", by="4", **PARTED)
def kept_beyond_the_contact(_: Method) -> Method:
    """5 Large messages: pieces that came before their Forward are dropped when the contact ends."""

    def broken(bodies: Bodies, home: str) -> None:
        pass

    return broken


STRANGERS = test_hostile_routers.test_of_a_publisher_that_is_not_there_nothing_goes_ahead


@mutant(HANDLERS, Segment.BODY, by="6", scenario=STRANGERS)
def router_takes_pieces_from_anyone(_: Method) -> Method:
    """5 Large messages: pieces from any router except the publisher's home are dropped."""

    def broken(peers: Peers, router: str, *piece: Any) -> None:
        peers.bodies.add(router, *piece)

    return broken
