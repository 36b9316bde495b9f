"""Handles subscribers that drain their links at balanced addresses and queues (AMQP 1.0 2.6.7; protocol 12.9).

    client ── drain ─▶ edge ── Room, Drain ─▶ home
                       home ── Forward …, Given ─▶ edge ── Drained ─▶ client

At these addresses a home offers deliveries to a subscriber that has room. So when a client gives credit and drains, its
edge does not know whether there are messages for it, and asks the homes. A home answers after all that it has offered.
At a topic the edge need not ask: it already has all messages for its subscribers.

The edge asks only homes in contact, and stops waiting for a home when the contact ends. So the edge answers a client at
once while no router leads the set of a queue. It waits `SILENT_S` for a home that sends no answer, and `BUSY_S` for a
home that has more messages.
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
"""The seconds that an edge waits for a home that sends no answer."""
BUSY_S: Final = 2.0
"""The seconds that an edge waits for a home, once the home has answered that it has more messages."""


@attrs.define(slots=True)
class _Draining:
    """The state of one subscriber's drain."""

    asked: Drain
    homes: set[str]
    """The routers whose final answer the edge awaits."""
    since: float = inf
    """The time when the edge asked the homes, by the shell's clock in seconds; infinite until `Drains.wait` sets it."""
    is_heard: bool = False
    """Whether a home has answered that it has more messages for the subscriber."""
    lacked_bytes: bool = False
    """Whether a home has stopped because the subscriber's link takes no more bytes. The edge then asks again when the
    link takes more."""
    left: int = 0

    @property
    def deadline(self) -> float:
        """The time at which the edge answers the client even if homes have not answered; infinite if it waits for no
        home."""
        return self.since + (BUSY_S if self.is_heard else SILENT_S) if self.homes else inf


class Drains:
    """All subscribers of one router that drain their links."""

    def __init__(
        self,
        outlet: Outlet,
        directory: Directory,
        subscribers: Mapping[bytes, LocalSubscriber],
        consumers: Consumers,
        home: HomeHere,
    ) -> None:
        """`subscribers`: all local subscribers, by name."""
        self._outlet = outlet
        self._directory = directory
        self._subscribers = subscribers
        self._consumers = consumers
        self._home = home
        self._draining: dict[bytes, _Draining] = {}
        """The drains under way, by the name of the subscriber."""
        self._asked = 0

    @property
    def due(self) -> float:
        """The time at which `handle_timer` next has work; infinite if no subscriber drains."""
        return min((one.deadline for one in self._draining.values()), default=inf)

    def drain(self, subscriber: LocalSubscriber) -> None:
        """Begin a drain with the client's present credit. When the homes have given the subscriber all their messages
        for it, the edge answers the client."""
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
        """The routers in contact that may have messages for the subscriber."""
        if not subscriber.kind.tells_room or not subscriber.credit:
            return ()
        if not subscriber.kind.is_of_set:
            return subscriber.joined
        set_, _ = queue_of(subscriber.identity.address)
        ingress = self._directory.subscriber(link_name(ingress_of(set_)))
        return (ingress.router,) if ingress is not None and self._directory.in_contact(ingress) else ()

    def given(self, home: str, asked: Drain, left: int, answer: DrainAnswer) -> None:
        """Take the answer of a home. `left`: the number of messages that still wait at the home."""
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
        """Go on with a drain, because the subscriber's link takes more bytes."""
        if (draining := self._draining.get(subscriber.name)) is not None:
            self._look(draining)

    def lost(self, home: str) -> None:
        """Stop waiting for this home, because the contact with it is lost."""
        for draining in [*self._draining.values()]:
            if home in draining.homes:
                draining.homes.discard(home)
                self._look(draining)

    def _look(self, draining: _Draining) -> None:
        """Check whether the drain is complete. While a home is awaited, do nothing. A home may have stopped because the
        subscriber's limit of bytes was reached. Then ask the homes again once the subscriber has room. Otherwise answer
        the client."""
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
        """Forget the drain of a subscriber that has ended."""
        self._draining.pop(subscriber.name, None)

    # The methods from here on are about time.

    def wait(self, now: float) -> None:
        """Set the time of the question for each drain that has just asked the homes."""
        for draining in self._draining.values():
            if draining.since == inf and draining.homes:
                draining.since = now

    def handle_timer(self, now: float) -> None:
        for draining in [*self._draining.values()]:
            if draining.deadline <= now:
                self._end(draining)
