"""The home at the same router, as an edge sees it."""

from typing import Protocol

from topic.delivery.record import HomeStream, Record
from topic.edge.subscriber import LocalSubscriber


class HomeHere(Protocol):
    """The calls of an edge to the home at its own router: `topic.home.home`."""

    def evaluate(self, stream: HomeStream, records: list[Record]) -> None:
        """Fewer outcomes are awaited for these records, whose home is here."""

    def resolve_here(self, stream: HomeStream, keys: list[bytes]) -> None:
        """Find the keys that a publisher attached here has settled, and report them to the edge."""

    def has_room(self, subscriber: LocalSubscriber) -> None:
        """The subscriber takes deliveries."""
