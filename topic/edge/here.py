"""The interface of an edge to the home at the same router."""

from typing import Protocol

from topic.delivery.record import HomeStream, Record
from topic.delivery.room import Drain
from topic.edge.subscriber import LocalSubscriber


class HomeHere(Protocol):
    """The methods that an edge calls at the home of its own router; `topic.home.home` implements them."""

    def decide(self, stream: HomeStream, records: list[Record]) -> None:
        """Some of these records wait for fewer subscribers and routers than before. Answer the publisher for each that
        waits for nobody any more."""

    def resolve_here(self, stream: HomeStream, keys: list[bytes]) -> None:
        """Find which of these keys the publisher, which is attached here, has settled, and tell the edge."""

    def has_room(self, subscriber: LocalSubscriber) -> None:
        """Called when the subscriber has room for more deliveries."""

    def drain(self, asked: Drain) -> None:
        """Answer whether this home has given a draining subscriber all messages that it has for it."""
