"""The home at the same router, as an edge sees it. What home makes of what it is told is not here."""

from typing import Protocol

from topic.delivery.record import HomeStream, Record
from topic.edge.subscriber import LocalSubscriber


class HomeHere(Protocol):
    """What an edge tells the home at its own router: `topic.home.home`."""

    def evaluate(self, stream: HomeStream, records: list[Record]) -> None:
        """Fewer are awaited for these records, whose home is here."""

    def resolve_here(self, stream: HomeStream, keys: list[bytes]) -> None:
        """Which of these keys of a publisher attached here are settled? The edge is told."""

    def has_room(self, subscriber: LocalSubscriber) -> None:
        """The subscriber takes deliveries."""
