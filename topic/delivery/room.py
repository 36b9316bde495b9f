"""How much a subscriber takes at once, where home chooses one for each delivery (protocol 12.2)."""

from collections.abc import Collection, Iterable
from typing import Final, Self

import attrs

from topic.delivery.record import Record


@attrs.frozen(slots=True)
class SubscriberRoom:
    """It is true if a delivery fits in, whatever its size: so the last one may be larger than what is left."""

    deliveries: int = 0
    size: int = 0
    """Bytes of messages."""

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
        """The first of these, as many as fit in."""
        found: list[Record] = []
        size = self.size
        for record in records:
            if size <= 0 or len(found) >= self.deliveries:
                break
            found.append(record)
            size -= record.size
        return found


NO_ROOM: Final = SubscriberRoom()
