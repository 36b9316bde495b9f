"""The subscribers of balanced addresses at one router (protocol 12): whom a Forward is for, and what homes may send.

Home chooses one subscriber, by what it was told of its room. Who has none when the delivery comes is not given it: home
is told so, and chooses anew. What homes do is `topic.home.balancing`'s business.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from topic.delivery.assignment import UNASSIGNED
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import AWAITING_HOME, Record
from topic.edge.subscriber import LocalSubscriber
from topic.outlet import Outlet

Whom = Callable[[Record, list[LocalSubscriber]], list[LocalSubscriber]]
"""To which of these subscribers a record is given."""
REFUSED = (DeliveryOutcome.REJECTED, DeliveryOutcome.MODIFIED)


class Consumers:
    """`LocalSubscriber.balanced` says who is one."""

    def __init__(self, outlet: Outlet, subscribers: Mapping[bytes, LocalSubscriber]) -> None:
        """`subscribers` are all that are here, by name."""
        self.outlet = outlet
        self._subscribers = subscribers
        self.has_room: Callable[[LocalSubscriber], None]
        """Tells the home that is here."""

    def holders(self, record: Record, subscribers: list[LocalSubscriber]) -> list[LocalSubscriber]:
        """Home asks who has the record. Of these subscribers those who may; it is for nobody else."""
        record.chosen = None
        for subscriber in [s for s, state in record.locals.items() if state == AWAITING_HOME and not s.has(record)]:
            record.let_go(subscriber, has_it=False)
        return [subscriber for subscriber in subscribers if subscriber.has(record)]

    def owed(self, record: Record, subscribers: list[LocalSubscriber]) -> list[LocalSubscriber]:
        """The record has been this subscriber's before, if its attach is not over. It may have it, whatever its map
        says: that may be late."""
        record.chosen = subscribers[0].name if subscribers else UNASSIGNED
        return subscribers

    def offered(self, record: Record, subscribers: list[LocalSubscriber]) -> list[LocalSubscriber]:
        """The record is offered to this subscriber, if its attach is not over: if it has room."""
        record.chosen = UNASSIGNED
        for subscriber in subscribers:
            refused = record.locals.get(subscriber) in REFUSED
            takes = not refused and (subscriber.has(record) or subscriber.spare > 0)
            if takes or refused:
                record.chosen = subscriber.name
            return [subscriber] if takes else []
        return []

    def count(self, subscriber: LocalSubscriber, home: str, offers: int, *, refused: bool = False) -> None:
        """The home has offered it so many, whatever became of these. If one was refused, home takes it for full."""
        subscriber.told[home] = 0 if refused else max(0, subscriber.told.get(home, 0) - offers)
        self.announce(subscriber)

    def dropped(self, home: str, only: Sequence[Any] | None, offers: int) -> None:
        """A Forward was fenced: so were its offers."""
        named = self._subscribers.get(only[0]) if only is not None and only[2:] else None
        if named is not None:
            self.count(named, home, offers)

    def announce(self, subscriber: LocalSubscriber) -> None:
        """Tell homes that the subscriber has room: those that may not send it anything any more."""
        spare = subscriber.spare if subscriber.balanced else 0
        if not spare:
            return
        router = self.outlet.router
        homes = [home for home in subscriber.joined if home != router and not subscriber.told.get(home)]
        self.outlet.batches.room(sorted(homes), subscriber.name, subscriber.epoch, spare)
        subscriber.told.update(dict.fromkeys(homes, spare))
        if router in subscriber.joined:
            self.has_room(subscriber)
