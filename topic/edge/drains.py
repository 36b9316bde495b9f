"""Subscribers that drain their links at addresses where a delivery is for one of them (AMQP 1.0 2.6.7; protocol 12.9).

    client ── drain ─▶ edge ── Room, Drain ─▶ home        home ── Forward …, Given ─▶ edge ── Drained ─▶ client

A home offers a delivery to a subscriber that has room. So an edge does not know by itself whether there is anything for
a client that gives credit and drains. It asks the homes. The answer of a home comes behind all that the home has
offered. At a topic there is nothing to ask: all that there is for a subscriber is at its edge.

The edge asks only homes in contact, and waits for none that it loses. So it answers a client at once while no router
leads the set of a queue. It waits `SILENT_S` for a home that says nothing, and `BUSY_S` for a home that has more.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

import attrs

from topic.actions import Drained
from topic.delivery.room import Drain, DrainAnswer
from topic.directory.directory import Directory
from topic.edge.consumers import Consumers
from topic.edge.here import HomeHere
from topic.edge.subscriber import LocalSubscriber
from topic.identity import ingress_of, link_name, queue_of
from topic.outlet import Outlet

SILENT_S: Final = 0.1
"""How long a home may say nothing."""
BUSY_S: Final = 2.0
"""How long a home may take that has said that it has more."""


@attrs.define(slots=True)
class _Draining:
    """A subscriber that drains."""

    asked: Drain
    homes: set[str]
    """The routers that have not answered in full."""
    since: float = inf
    """When the edge asked the homes; infinite until it knows the time."""
    is_heard: bool = False
    """One of them has more for the subscriber, and says so."""
    lacked_bytes: bool = False
    """A home has stopped because the subscriber's link took no more bytes. The edge asks again when the link takes
    more."""
    left: int = 0

    @property
    def deadline(self) -> float:
        """When the edge tells the client without the homes; infinite while only the client can be slow."""
        return self.since + (BUSY_S if self.is_heard else SILENT_S) if self.homes else inf


class Drains:
    """The subscribers of one router that drain their links."""

    def __init__(
        self,
        outlet: Outlet,
        directory: Directory,
        subscribers: Mapping[bytes, LocalSubscriber],
        consumers: Consumers,
        home: HomeHere,
    ) -> None:
        """`subscribers` are all local ones, by name."""
        self._outlet = outlet
        self._directory = directory
        self._subscribers = subscribers
        self._consumers = consumers
        self._home = home
        self._draining: dict[bytes, _Draining] = {}
        """Keyed by the name of the subscriber."""
        self._asked = 0

    @property
    def due(self) -> float:
        """When `handle_timer` is due; infinite if nobody drains."""
        return min((one.deadline for one in self._draining.values()), default=inf)

    def drain(self, subscriber: LocalSubscriber) -> None:
        """The client drains, with its present credit. The edge tells it when its homes have given it all their messages
        for it."""
        self._asked += 1
        asked = Drain(subscriber.name, subscriber.epoch, self._asked)
        draining = self._draining[subscriber.name] = _Draining(asked, {*self._homes(subscriber)})
        self._ask(subscriber, draining)

    def _ask(self, subscriber: LocalSubscriber, draining: _Draining) -> None:
        self._consumers.announce(subscriber, exactly=True)
        for home in sorted(draining.homes):
            if home == self._outlet.router:
                self._home.drain(draining.asked)
            else:
                self._outlet.batches.drain(home, draining.asked)
        self._look(draining)

    def _homes(self, subscriber: LocalSubscriber) -> Iterable[str]:
        """The routers in contact that may have something for the subscriber."""
        if not subscriber.kind.tells_room or not subscriber.credit:
            return ()
        if not subscriber.kind.is_of_set:
            return subscriber.joined
        set_, _ = queue_of(subscriber.identity.address)
        ingress = self._directory.subscriber(link_name(ingress_of(set_)))
        return (ingress.router,) if ingress is not None and self._directory.in_contact(ingress) else ()

    def given(self, home: str, asked: Drain, left: int, answer: DrainAnswer) -> None:
        """A home answers. `left`: how many messages still wait there."""
        draining = self._draining.get(asked.subscriber)
        if draining is None or draining.asked != asked or home not in draining.homes:
            return
        if answer is DrainAnswer.MORE:
            draining.is_heard = True
            return
        draining.lacked_bytes |= answer is DrainAnswer.NO_BYTES
        draining.left += left
        draining.homes.discard(home)
        self._look(draining)

    def room(self, subscriber: LocalSubscriber) -> None:
        """The subscriber's link takes more bytes."""
        if (draining := self._draining.get(subscriber.name)) is not None:
            self._look(draining)

    def lost(self, home: str) -> None:
        """The contact with the router is over."""
        for draining in [*self._draining.values()]:
            if home in draining.homes:
                draining.homes.discard(home)
                self._look(draining)

    def _look(self, draining: _Draining) -> None:
        """If no home is awaited any more, tell the client. If a home has stopped for lack of bytes, ask anew when the
        link takes more."""
        if draining.homes:
            return
        subscriber = self._subscribers.get(draining.asked.subscriber)
        if not draining.lacked_bytes or subscriber is None or not subscriber.credit:
            self._end(draining)
        elif subscriber.spare.size > 0:
            self.drain(subscriber)

    def _end(self, draining: _Draining) -> None:
        if self._draining.get(draining.asked.subscriber) is not draining:
            return
        del self._draining[draining.asked.subscriber]
        subscriber = self._subscribers.get(draining.asked.subscriber)
        if subscriber is not None and subscriber.link is not None and subscriber.epoch == draining.asked.attach:
            self._outlet.actions.append(Drained(subscriber.link, draining.left))

    def forget(self, subscriber: LocalSubscriber) -> None:
        """The subscriber has ended."""
        self._draining.pop(subscriber.name, None)

    # time

    def wait(self, now: float) -> None:
        """Note the time for questions to homes that have none yet."""
        for draining in self._draining.values():
            if draining.since == inf and draining.homes:
                draining.since = now

    def handle_timer(self, now: float) -> None:
        for draining in [*self._draining.values()]:
            if draining.deadline <= now:
                self._end(draining)
