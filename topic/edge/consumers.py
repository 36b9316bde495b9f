"""What homes are told of the room of subscribers of which they choose one (protocol 12.2): what they may send.

Home chooses one subscriber, by what it was told of its room. A subscriber that has none when the delivery comes is not
given it: home is told so, and chooses anew. What homes do is `topic.home.balancing`'s business.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from topic.edge.here import HomeHere
from topic.edge.subscriber import LocalSubscriber
from topic.outlet import Outlet


class Consumers:
    """The subscribers of one router. The kind of their address says whether homes are told of their room."""

    def __init__(self, outlet: Outlet, subscribers: Mapping[bytes, LocalSubscriber], home: HomeHere) -> None:
        """`subscribers` are all that are here, by name."""
        self.outlet = outlet
        self._subscribers = subscribers
        self._home = home

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
        spare = subscriber.spare if subscriber.kind.tells_room else 0
        if not spare:
            return
        router = self.outlet.router
        homes = [home for home in subscriber.joined if home != router and not subscriber.told.get(home)]
        self.outlet.batches.room(sorted(homes), subscriber.name, subscriber.epoch, spare)
        subscriber.told.update(dict.fromkeys(homes, spare))
        if router in subscriber.joined:
            self._home.has_room(subscriber)
