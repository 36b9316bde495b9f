"""Breakages of large messages that go ahead of their Forwards (protocol 5, Large messages)."""

from tests.mutants.mutant import MOVING, Method, mutant
from topic.delivery.record import Stream
from topic.edge.bodies import Bodies
from topic.home.publishing import Publishing

IN_PIECES = MOVING | {"piece": 3, "message": 25, "budget": 10, "messages": 20}
PARTED = IN_PIECES | {"faults": ("flap",) * 8, "restless": 0.0}


@mutant(Publishing, "_recall", by="4", **IN_PIECES)
def not_recalled(_: Method) -> Method:
    """5 Large messages: who is not forwarded what went ahead need not keep it."""

    def broken(publishing: Publishing, stream: Stream, key: bytes) -> None:
        stream.ahead = {}

    return broken


@mutant(Bodies, "lost", by="4", **PARTED)
def kept_beyond_the_contact(_: Method) -> Method:
    """5 Large messages: what came ahead in a contact ends with it."""

    def broken(bodies: Bodies, home: str) -> None:
        pass

    return broken
