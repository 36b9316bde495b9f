"""The room of a subscriber, when the home chooses one subscriber for each delivery (protocol 12.2)."""

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
    """How many deliveries, and how many bytes, a subscriber takes. A room is true if both are left: then one more
    delivery fits in, and may be larger than the bytes that are left."""

    deliveries: int = 0
    size: int = 0
    """Bytes of the messages."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> Self:
        """The room that these records take."""
        return cls.of_sizes([record.size for record in records])

    @classmethod
    def of_sizes(cls, sizes: Collection[int]) -> Self:
        """The room that messages of these sizes take, in bytes."""
        return cls(len(sizes), sum(sizes))

    def __bool__(self) -> bool:
        return self.deliveries > 0 and self.size > 0

    def __add__(self, other: "SubscriberRoom") -> "SubscriberRoom":
        return SubscriberRoom(self.deliveries + other.deliveries, self.size + other.size)

    def __sub__(self, other: "SubscriberRoom") -> "SubscriberRoom":
        return SubscriberRoom(self.deliveries - other.deliveries, self.size - other.size)

    def first(self, records: Iterable[Record]) -> list[Record]:
        """The first of these records, as many as fit."""
        return self.fill(records, attrgetter("size"))

    def fill(self, items: Iterable[Item], size_of: Callable[[Item], int]) -> list[Item]:
        """The first of these items, as many as fit. Takes no more items from an iterator."""
        found: list[Item] = []
        size, left = self.size, iter(items)
        while size > 0 and len(found) < self.deliveries and (item := next(left, None)) is not None:
            found.append(item)
            size -= size_of(item)
        return found


NO_ROOM: Final = SubscriberRoom()


@attrs.frozen(slots=True)
class Demand:
    """The messages that the subscribers of a queue would take now: those subscribers that have room."""

    able: frozenset[bytes]
    """The names of these subscribers."""
    room: SubscriberRoom
    """Their room, without the room that waiting deliveries take that one of them may have."""
    refused: SubscriberRoom
    """The waiting deliveries that all of them have refused for themselves."""


@attrs.frozen(slots=True)
class Drain:
    """A question to homes: have they given a subscriber all that there is for it, as far as its room allows?"""

    subscriber: bytes
    """Its name."""
    attach: Epoch
    """The epoch of its attach. The router in it asks."""
    number: int
    """Tells the question from other ones for this attach."""


class DrainAnswer(enum.IntEnum):
    """The answer of a home. The numbers are part of the format between routers."""

    MORE = 0
    """There is more for the subscriber: another answer follows."""
    ALL = 1
    """It was given all that there is for it, or that its credit reaches."""
    NO_BYTES = 2
    """It was given as many bytes as it took."""
