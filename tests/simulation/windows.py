"""Checks the messages that a home holds for each of its publishers (protocol 9.6): as many as its counters say, and no
more than the publisher's window allows. The egress of a queue publishes as much as its consumers have room for (14.5).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.simulation.parties import Violation
from topic.delivery.record import HomeStream, Record, State
from topic.identity import CONTAINER

if TYPE_CHECKING:
    from tests.simulation.router import Router


def check_windows(router: "Router") -> None:
    for stream in router.topic.home.streams.values():
        if stream.link is None or not (stream.records or stream.withheld or stream.window.held):
            continue
        window, held = stream.window, _unsettled(stream)
        name = stream.identity.container
        if window.held != held:
            raise Violation(f"6 bytes: {name} has {held} unsettled at {router.name}, {window.held} counted")
        if held > router.knobs.window_bytes and window.unsettled > 1 and name != CONTAINER:
            raise Violation(f"6 bytes: {name} has {held} unsettled at {router.name}")


def _unsettled(stream: HomeStream) -> int:
    """The bytes of unsettled messages of the publisher."""
    records: Iterable[Record] = (*stream.records.values(), *stream.withheld)
    return sum([len(one.message) for one in records if one.message and one.state is not State.SETTLED])
