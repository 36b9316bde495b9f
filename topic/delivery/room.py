"""The room of subscribers at a balanced address, where the home chooses one subscriber for each delivery (protocol
12.2)."""

import enum
from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import Final, Self, TypeVar

import attrs

from topic.delivery.record import Record
from topic.identity import Epoch

Item = TypeVar("Item")


@attrs.frozen(slots=True)
class SubscriberRoom:
    """How many deliveries, and how many bytes, a subscriber can still take. A room counts as true if it has at least
    one delivery and one byte left. Then one more delivery fits, even if it is larger than the bytes that are left."""

    deliveries: int = 0
    size: int = 0
    """The bytes of messages that the subscriber can still take."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> Self:
        """The room that these records take up."""
        return cls.of_sizes([record.size for record in records])

    @classmethod
    def of_sizes(cls, sizes: Collection[int]) -> Self:
        """The room that messages of these sizes (in bytes) take up."""
        return cls(len(sizes), sum(sizes))

    def __bool__(self) -> bool:
        return self.deliveries > 0 and self.size > 0

    def __add__(self, other: "SubscriberRoom") -> "SubscriberRoom":
        return SubscriberRoom(self.deliveries + other.deliveries, self.size + other.size)

    def __sub__(self, other: "SubscriberRoom") -> "SubscriberRoom":
        return SubscriberRoom(self.deliveries - other.deliveries, self.size - other.size)

    def first(self, records: Iterable[Record]) -> list[Record]:
        """The records, from the first on, that fit into this room."""
        return self.fill(records, attrgetter("size"))

    def fill(self, items: Iterable[Item], size_of: Callable[[Item], int]) -> list[Item]:
        """The items, from the first on, that fit into this room. Takes no further item from an iterator."""
        found: list[Item] = []
        size, left = self.size, iter(items)
        while size > 0 and len(found) < self.deliveries and (item := next(left, None)) is not None:
            found.append(item)
            size -= size_of(item)
        return found


NO_ROOM: Final = SubscriberRoom()


@attrs.frozen(slots=True)
class Demand:
    """The deliveries for which a queue's subscribers have room now. Subscribers without room do not count."""

    able: frozenset[bytes]
    """The names of the subscribers that have room."""
    room: SubscriberRoom
    """The sum of the rooms of these subscribers, minus the room that waiting deliveries will take up. A waiting
    delivery counts if at least one of these subscribers may get it."""
    refused: SubscriberRoom
    """The room that other waiting deliveries would take up: the deliveries that all subscribers in `able` have refused
    for themselves."""


@attrs.frozen(slots=True)
class Drain:
    """A router's question to homes for a subscriber that drains: has the home given the subscriber all its deliveries,
    as far as the subscriber has room?"""

    subscriber: bytes
    """The name of the subscriber."""
    attach: Epoch
    """The epoch of the subscriber's attach. The router named in the epoch asks the question."""
    number: int
    """The number of the question. It distinguishes the questions for one attach."""


class DrainAnswer(enum.IntEnum):
    """A home's answer to `Drain`. The numbers are part of the format between routers."""

    MORE = 0
    """The home has more for the subscriber. Another answer follows."""
    ALL = 1
    """The home has given the subscriber all its deliveries, or as many as the credit allows."""
    NO_BYTES = 2
    """The home has given the subscriber as many bytes as it takes at present."""
