"""The interface of an edge to the home at the same router."""

from typing import Protocol

from topic.delivery.record import HomeStream, Record
from topic.delivery.room import Drain
from topic.edge.subscriber import LocalSubscriber


class HomeHere(Protocol):
    """The calls of an edge to the home at its own router: `topic.home.home`."""

    def decide(self, stream: HomeStream, records: list[Record]) -> None:
        """These records, whose home is here, await fewer outcomes than before."""

    def resolve_here(self, stream: HomeStream, keys: list[bytes]) -> None:
        """Find which of these keys a publisher attached here has settled, and report them to the edge."""

    def has_room(self, subscriber: LocalSubscriber) -> None:
        """The subscriber has room for deliveries."""

    def drain(self, asked: Drain) -> None:
        """Answer whether this home has given a subscriber all that there is for it."""
