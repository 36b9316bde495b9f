"""Announces to homes how much room local subscribers have, at addresses where the home chooses one subscriber (protocol
12.2).

A home chooses a subscriber by the room that the edge has announced. If the subscriber has no room when the delivery
comes, the edge refuses the delivery, and the home chooses anew (`topic.home.balancing`).

The edge and the home both count the offers to one attach within one contact. The edge announces a limit for the sum of
these offers. So an offer that is under way while the edge announces more room is counted only once.
"""

from collections.abc import Mapping

from topic.delivery.room import NO_ROOM, SubscriberRoom
from topic.edge.here import HomeHere
from topic.edge.subscriber import LocalSubscriber
from topic.identity import Epoch
from topic.outlet import Outlet


class Consumers:
    """Announces the room of local subscribers to homes, if their address is of a kind for which edges do so."""

    def __init__(self, outlet: Outlet, subscribers: Mapping[bytes, LocalSubscriber], home: HomeHere) -> None:
        """`subscribers`: all local subscribers, by name."""
        self.outlet = outlet
        self._subscribers = subscribers
        self._home = home

    def count(self, home: str, name: bytes, attach: Epoch, taken: SubscriberRoom, *, refused: bool = False) -> None:
        """Count an offer of the home to this attach of a subscriber. `taken`: the room that the offered deliveries
        take. `refused`: the edge has refused one of them, so the home assumes that the subscriber has no room."""
        subscriber = self._subscribers.get(name)
        if subscriber is None or subscriber.epoch != attach:
            return
        offered, limit = subscriber.offered.get(home, (NO_ROOM, NO_ROOM))
        offered += taken
        subscriber.offered[home] = offered, offered if refused else limit
        self.announce(subscriber)

    def announce_anew(self, home: str) -> None:
        """Announce the room of all subscribers to this home again, after delayed outcomes were sent to it. If one of
        these outcomes is a refusal, the home assumes that the subscriber is full, even if the edge has announced room
        in the meantime.
        """
        for subscriber in self._subscribers.values():
            if home in subscriber.offered:
                offered, _ = subscriber.offered[home]
                subscriber.offered[home] = offered, offered
                self.announce(subscriber)

    def announce(self, subscriber: LocalSubscriber, *, exactly: bool = False) -> None:
        """Send the subscriber's room to each home that knows of at most half of it. `exactly`: also to each other home
        that does not know of all of it."""
        if not subscriber.kind.tells_room or not (spare := subscriber.spare):
            return
        for home in sorted(subscriber.joined):
            if home == self.outlet.router:
                self._home.has_room(subscriber)
                continue
            offered, limit = subscriber.offered.get(home, (NO_ROOM, NO_ROOM))
            left = limit - offered
            few = 1 if exactly else 2
            if not left or few * left.deliveries <= spare.deliveries or few * left.size <= spare.size:
                limit = offered + spare
                self.outlet.batches.room(home, subscriber.name, subscriber.epoch, limit)
                subscriber.offered[home] = offered, limit
