"""What homes are told of the room of subscribers of which they choose one (protocol 12.2): what they may send.

Home chooses one subscriber, by what it was told of its room. A subscriber that has none when the delivery comes is not
given it: home is told so, and chooses anew. What homes do is `topic.home.balancing`'s business.

An edge and a home count the offers to one attach in one contact alike. The edge tells the home a limit for all of these
offers together, so an offer that is on its way is counted once.
"""

from collections.abc import Mapping

from topic.delivery.room import NO_ROOM, SubscriberRoom
from topic.edge.here import HomeHere
from topic.edge.subscriber import LocalSubscriber
from topic.identity import Epoch
from topic.outlet import Outlet


class Consumers:
    """The subscribers of one router. The kind of their address says whether edges report their room to homes."""

    def __init__(self, outlet: Outlet, subscribers: Mapping[bytes, LocalSubscriber], home: HomeHere) -> None:
        """`subscribers` are all local ones, by name."""
        self.outlet = outlet
        self._subscribers = subscribers
        self._home = home

    def count(self, home: str, name: bytes, attach: Epoch, taken: SubscriberRoom, *, refused: bool = False) -> None:
        """The home has offered this attach of a subscriber deliveries that take so much room, whatever became of them.
        If one was refused, home takes the subscriber for full."""
        subscriber = self._subscribers.get(name)
        if subscriber is None or subscriber.epoch != attach:
            return
        offered, limit = subscriber.offered.get(home, (NO_ROOM, NO_ROOM))
        offered += taken
        subscriber.offered[home] = offered, offered if refused else limit
        self.announce(subscriber)

    def announce(self, subscriber: LocalSubscriber) -> None:
        """Send the subscriber's room to each home that has no room left, or at most half of the subscriber's room."""
        if not subscriber.kind.tells_room or not (spare := subscriber.spare):
            return
        for home in sorted(subscriber.joined):
            if home == self.outlet.router:
                self._home.has_room(subscriber)
                continue
            offered, limit = subscriber.offered.get(home, (NO_ROOM, NO_ROOM))
            left = limit - offered
            if not left or 2 * left.deliveries <= spare.deliveries or 2 * left.size <= spare.size:
                limit = offered + spare
                self.outlet.batches.room(home, subscriber.name, subscriber.epoch, limit)
                subscriber.offered[home] = offered, limit
