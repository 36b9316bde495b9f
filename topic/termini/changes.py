"""The effects of a change of a router's directory (protocol 3.3, 6, 7 and 8).

A link attaches, moves, closes, expires or lapses, here or at another router. This router then detaches a client that is
attached here by an older attach, awaits the subscriber where it is now, and joins the subscriber or ends it.

`topic.termini.generations` handles the deliveries of publishers. `topic.termini.expiry` decides when a link expires or
lapses.
"""

from collections.abc import Mapping

import attrs

from topic.actions import STOLEN, Detach, Note, condition_of
from topic.delivery.record import HomeStream
from topic.directory.entry import Change, LinkEntry, Role, Status
from topic.edge.subscriber import LocalSubscriber
from topic.home.home import Home
from topic.identity import COUNTS
from topic.journal import Event
from topic.termini.attaches import Attaches
from topic.termini.generations import Generations
from topic.termini.grace import Grace

OUT_OF_CONTACT = "it expired while this router was out of contact"


class Changes:
    """Acts on changes of one router's directory."""

    def __init__(self, home: Home, attaches: Attaches, generations: Generations, grace: Grace) -> None:
        self.outlet = home.outlet
        self.directory = home.directory
        self._home = home
        self._edge = home.edge
        self._attaches = attaches
        self._generations = generations
        self._grace = grace

    def write(self, entry: LinkEntry) -> None:
        """Write an entry into this router's section, and act on the change."""
        self.follow([self.outlet.write_entry(self.directory, entry)])

    def follow(self, changes: list[Change], *, learned: bool = False) -> None:
        """Act on these changes of the directory. `learned`: they came with a section or gossip, so they may have
        happened earlier."""
        with self._home.deciding_later():
            for change in changes:
                self._trace_expired(change)
                if change.entry.role is Role.PUBLISHER:
                    self._generations.changed(change)
                else:
                    self._subscriber_changed(change, learned=learned)
            # Homes first have to await all subscribers at their present routers.
            # Only then do the subscribers leave their former routers.
            for change in changes:
                if change.entry.role is Role.SUBSCRIBER:
                    self._leaves(change.old)

    def trace_lost(self, expired: list[Change]) -> None:
        """Write into the delivery log which links have ended because the contact to their router is lost."""
        for change in expired:
            role = change.entry.role.name.lower()
            entry = change.entry
            self.outlet.trace(Event.EXPIRED, entry.identity, **{role: entry.name}, epoch=str(entry.epoch))

    def _trace_expired(self, change: Change) -> None:
        """Write into the delivery log that a link has expired, by the decision of this router or another one. From now
        on this router need not give the link any delivery."""
        entry, was_live = change.entry, change.old is not None and change.old.live
        if was_live and entry.status is Status.EXPIRED:
            role = entry.role.name.lower()
            columns = {role: entry.name, "epoch": str(entry.epoch), "detail": entry.ending or None}
            self.outlet.trace(Event.EXPIRED, entry.identity, **columns)

    # The methods from here on are about subscribers.

    def _subscriber_changed(self, change: Change, *, learned: bool) -> None:
        entry, old = change.entry, change.old
        if old is not None and self._home.lapses.is_to_be_told(old, entry):
            entry = self._home.lapses.end_late(entry, old.ending)
        local = self._edge.subscribers.get(entry.name)
        if change.new is None or not entry.live:
            if local is not None:
                self._subscriber_left(local, entry)
            self._home.audiences.gone(entry)
            self._home.balancing.gone(entry)
            return
        if old is not None and entry.aware != old.aware:
            self._home.balancing.gone(entry)  # the subscriber's client begins afresh
        if local is not None and not self.directory.is_mine(entry):
            self._subscriber_moved(local, entry)
        former = old.router if old is not None and old.live else None
        if former is None and (learned or entry.resumed) and entry.lifetime.timeout:
            self._home.audiences.adopt(entry)
            former = entry.router
        if former is not None:
            self._home.audiences.expect(entry, former)
        if self.directory.in_contact(entry):
            self._home.audiences.join(entry, known=former is not None)
        elif self.directory.is_counted_on(entry):
            if former is None:
                self._home.audiences.learn_of(entry)
            self._grace.wait_for(entry)

    def _leaves(self, old: LinkEntry | None) -> None:
        """Handle a plain subscriber that has left its router. If that router is out of contact, homes may still wait
        for it."""
        if old is not None and old.live and not old.lasts:
            self._home.audiences.plain_subscriber_ended(old.router, old.identity.address)

    def _subscriber_left(self, subscriber: LocalSubscriber, entry: LinkEntry) -> None:
        """Drop a local subscriber that has closed or expired. If the client is attached here, but closed the link at
        another router, the attach there has the higher epoch, because the clock of that router is ahead."""
        if subscriber.link is not None and not self.directory.is_mine(entry):
            self._steal(subscriber, entry.router, f"attached and closed at router {entry.router}")
        self._attaches.withdraw_subscriber(subscriber.name)
        left = self._edge.drop(subscriber)
        subscriber.kind.subscriber_ended(subscriber, left)
        self._edge.delivery.finished([record for record in left if not record.open])

    def _subscriber_moved(self, subscriber: LocalSubscriber, entry: LinkEntry) -> None:
        """Drop a local subscriber that has a new custodian. This router was a zombie for it (6.9)."""
        self._steal(subscriber, entry.router, f"attached at router {entry.router}")
        self._attaches.withdraw_subscriber(subscriber.name)
        self.directory.depart(subscriber.name)
        self.outlet.send_delta(self.directory, departed=[entry])
        self._home.audiences.left_without(subscriber.name, self._edge.drop(subscriber))

    def _steal(self, subscriber: LocalSubscriber, router: str, why: str) -> None:
        self.outlet.trace(Event.STOLEN, subscriber.identity, subscriber=subscriber.name, peer=router)
        if subscriber.link is not None:
            self.outlet.actions.append(Detach(subscriber.link, STOLEN, why))

    # The methods from here on are about links that end, but were not closed by their clients (8, Expiry and Apart).

    def is_here(self, entry: LinkEntry) -> bool:
        """Whether a client is connected to this router by exactly the attach of this entry."""
        end = self._end_of(entry)
        return end is not None and end.epoch == entry.epoch and end.link is not None

    def end(self, entry: LinkEntry, ending: str = "") -> None:
        """End the link, as if its client had closed it (AMQP 1.0 3.5.3). `ending`: the text for its client."""
        if self.is_here(entry):
            self._detach(entry, ending or OUT_OF_CONTACT)
        if self.directory.is_mine(entry):
            self.follow(
                [self.outlet.write_entry(self.directory, attrs.evolve(entry, status=Status.EXPIRED, ending=ending))]
            )
        else:
            self.follow([self.directory.mark(entry, Status.EXPIRED, ending)])

    def leave_behind(self, entry: LinkEntry) -> None:
        """Close an expired link whose client is here, and continues the session without it. Then all routers forget
        that the link has expired."""
        epoch = self.outlet.new_epoch(self.directory.latest(entry.index))
        if epoch.hlc < COUNTS:
            self.write(attrs.evolve(entry, epoch=epoch, status=Status.CLOSED))

    def _detach(self, entry: LinkEntry, why: str) -> None:
        if entry.role is Role.PUBLISHER:
            link = self._home.streams[entry.name].link
            self._home.streams[entry.name].suspend()
        else:
            link = self._edge.subscribers[entry.name].link
            self._edge.subscribers[entry.name].suspend()
        self.outlet.actions.append(Detach(link, condition_of(why), why))

    def _end_of(self, entry: LinkEntry) -> HomeStream | LocalSubscriber | None:
        ends: Mapping[bytes, HomeStream | LocalSubscriber]
        ends = self._home.streams if entry.role is Role.PUBLISHER else self._edge.subscribers
        return ends.get(entry.name)

    def ended_elsewhere(self, entry: LinkEntry) -> None:
        """Handle the news that other routers have ended a link of this router while it was out of their reach: end the
        link here, too.

        If the link has already ended here, the entry may state that the client knows of the ending. This router then
        announces to all other routers that the client knows.
        """
        current = self.directory.entry(entry.index)
        if current is None or current.epoch != entry.epoch:
            return
        if not current.live:
            if current.ending and not entry.ending:
                self.follow([self.outlet.write_entry(self.directory, entry)])
            return
        if entry.ending:
            self.outlet.actions.append(Note(f"subscriber {entry.identity} was ended: {entry.ending}"))
        self.end(current, entry.ending)

    def end_apart(self, entry: LinkEntry, ending: str) -> None:
        """End the link of a subscriber without which a home has accepted a message. `ending`: the text for the link's
        client.

        This router sends the ending to all routers in contact, so that one of them can pass it to the client. The
        ending of a plain subscriber goes only to the link's owner, because no other router can have the client.
        """
        assert ending and entry.role is Role.SUBSCRIBER
        self.end(entry, ending)
        ended = [attrs.evolve(entry, status=Status.EXPIRED, ending=ending)]
        for router in self.directory.contacts:
            if entry.lasts or router == entry.router:
                self.outlet.batches.gossip(router, ended)

    def lapse(self, entry: LinkEntry, away_s: float) -> None:
        """Let a subscriber lapse. `away_s`: the seconds for which it has been out of reach."""
        assert entry.role is Role.SUBSCRIBER
        with self._home.deciding_later():
            self._home.lapses.lapse(entry, away_s)
            self._home.balancing.lapsed(entry)
