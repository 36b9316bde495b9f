"""Takes the deliveries that other homes forward for the local subscribers of a router (protocol 5, Edge and Settle;
6.3, 6.5).

`topic.edge.delivery` decides which records a subscriber gets, and when. The edge does not know the whole audience of a
delivery.
"""

from collections.abc import Callable, Iterator
from itertools import groupby

from topic.delivery.gates import UNBOUNDED, UNPROVEN
from topic.delivery.kinds import UNASSIGNED, AddressKinds
from topic.delivery.record import (
    AWAITING_HOME,
    OPEN,
    WITHHELD,
    HomeStream,
    Record,
    State,
    Stream,
    forwarded,
    forwarded_again,
)
from topic.delivery.records import RecordTable, in_ranges, ranges_without
from topic.delivery.room import SubscriberRoom
from topic.delivery.streams import Streams, stream_of
from topic.directory.addresses import ByAddress
from topic.directory.directory import Directory
from topic.directory.entry import LinkEntry, Role
from topic.edge.consumers import Consumers
from topic.edge.delivery import EdgeDelivery
from topic.edge.drains import Drains
from topic.edge.here import HomeHere
from topic.edge.reports import Reports
from topic.edge.subscriber import LocalSubscriber
from topic.edge.unconfirmed import Unconfirmed
from topic.identity import Epoch
from topic.journal import Event
from topic.outlet import Outlet
from topic.settings import Settings

Whom = Callable[[Record, list[LocalSubscriber]], list[LocalSubscriber]]
"""A function that selects, from the given subscribers, the ones that get the record."""


class Edge:
    """The local subscribers of a router, and the streams of publishers whose home is another router."""

    def __init__(
        self,
        outlet: Outlet,
        records: RecordTable,
        directory: Directory,
        settings: Settings,
        kinds: AddressKinds,
        home: HomeHere,
    ) -> None:
        """`home`: the home at the same router, for publishers that are attached here."""
        self.outlet = outlet
        self.records = records
        self.directory = directory
        self.streams: Streams[Stream] = Streams()
        self.subscribers: dict[bytes, LocalSubscriber] = {}
        self._at: ByAddress[bytes, LocalSubscriber] = ByAddress()
        self.unconfirmed = Unconfirmed(outlet, records, directory, self._at, home)
        self.reports = Reports(outlet, self.subscribers, directory.lapsed)
        self.delivery = EdgeDelivery(outlet, records, self._at, self.reports, settings.redeliveries, home)
        self.consumers = Consumers(outlet, self.subscribers, home)
        self.drains = Drains(outlet, directory, self.subscribers, self.consumers, home)
        self.kinds = kinds
        self.settlement = self.delivery.settlement
        self.receipts = self.settlement.receipts

    # The methods from here on are about subscribers.

    def add(self, subscriber: LocalSubscriber) -> None:
        """Add a subscriber that attaches, for the first time or again. Every home has to join it."""
        if subscriber.name not in self.subscribers:
            self.subscribers[subscriber.name] = subscriber
            self._at.at(subscriber.identity.address)[subscriber.name] = subscriber
        self.delivery.asked.put(subscriber.name, subscriber.identity.user, subscriber.wants)
        self.reports.attaches(subscriber.name)
        subscriber.forget_attempts()
        named = [record for record in self._records(subscriber) if subscriber in record.locals]
        self.unconfirmed.hold_for(subscriber, named)
        self._leave_out(subscriber, [record for record in named if record.stream.abandoned])
        if not subscriber.incomplete:
            self._unname(subscriber, [record for record in named if record.key not in (subscriber.client_map or ())])
        for stream in self.records.unblocked:  # the subscriber's map may name a key for which records have waited
            self.release(stream)

    def drop(self, subscriber: LocalSubscriber) -> list[Record]:
        """Remove a subscriber. Returns the records for which it had no final outcome."""
        assert self.subscribers[subscriber.name] is subscriber
        del self.subscribers[subscriber.name]
        self._at.discard(subscriber.identity.address, subscriber.name)
        self.delivery.asked.drop(subscriber.name)
        self.drains.forget(subscriber)
        subscriber.gated.clear()
        for home in self.reports.subscriber_ended(subscriber.name):
            self.consumers.announce_anew(home)
        named = [record for record in self._records(subscriber) if subscriber in record.locals]
        self._unname(subscriber, named)
        left = [record for record in named if record.drop(subscriber)]
        subscriber.stop_resuming()
        self.receipts.known(subscriber, len(subscriber.unread))
        subscriber.link = None
        return left

    def leave(self, subscriber: LocalSubscriber) -> list[Record]:
        """Stop waiting for a lapsed subscriber in all records until it comes back. Returns the records for which it had
        no final outcome."""
        for waiting in (subscriber.joined, subscriber.ready, subscriber.gated):
            waiting.clear()
        for home in self.reports.subscriber_ended(subscriber.name):
            self.consumers.announce_anew(home)
        named = [record for record in self._records(subscriber) if subscriber in record.locals]
        self._unname(subscriber, named)
        left = [record for record in dict.fromkeys(named) if record.locals.get(subscriber) in OPEN]
        for record in left:
            subscriber.stop_awaiting(record)
        return left

    def _unname(self, subscriber: LocalSubscriber, records: list[Record]) -> None:
        """Remove the subscriber from the placeholders among these records. Drop each placeholder that no map names any
        more."""
        placeholders = [record for record in records if record.is_placeholder]
        subscriber.client_has_settled.difference_update(placeholders)
        for record in placeholders:
            record.drop(subscriber)
        unnamed = [record for record in placeholders if not record.locals and not self._is_listed(record)]
        for record in unnamed:
            record.stream.confirm(record.key)
        self.receipts.forget(unnamed)

    def _is_listed(self, record: Record) -> bool:
        """Whether this router's answer to a subscriber's attach lists the record, or will list it. If so, the
        subscriber still has to learn how the delivery ends."""
        there = self._at.meeting(record.stream.address)
        return any(record in subscriber.resuming or record.key in (subscriber.client_map or ()) for subscriber in there)

    def _records(self, subscriber: LocalSubscriber) -> Iterator[Record]:
        """All records at this edge in which the subscriber may occur."""
        address, entered = subscriber.identity.address, self.records.by_key
        yield from self.records.at(address)
        for stream in self.streams.at(address):
            yield from (record for record, _ in stream.withheld_at_edge if entered.get(record.key) is not record)

    def joined(self, home: str, subscriber: LocalSubscriber, gated: dict[bytes, int]) -> None:
        """Handle the news that `home` has joined the subscriber. `gated`: for each gated publisher, the place `n` from
        which the edge holds its records back until Admit comes.

        By now `home` has forwarded all records that it has for the subscriber. So the edge stops waiting for the
        subscriber in any other record of `home`: the record is not for the subscriber, or the subscriber has answered
        it at another router.
        """
        subscriber.joined.add(home)
        # The home believed that the subscriber was at another router, and sent the Admit there.
        for publisher in subscriber.gates_of(home):
            if publisher not in gated:
                self.admit(subscriber, publisher, home)
        for publisher, first in gated.items():
            entry = self.directory.publisher(publisher)
            if entry is not None and entry.live and entry.router == home and not self.directory.is_announced(entry):
                self._gate(subscriber, publisher, home, first)
                if first == UNPROVEN:
                    self.reports.unproven(publisher, subscriber.name)
        homed = self._homed_at(home, subscriber)
        self._leave_out(subscriber, [r for r in homed if gated.get(r.stream.publisher) != UNPROVEN])
        if self.reports.joined(home, subscriber.name):
            self.consumers.announce_anew(home)
        self.delivery.pump(subscriber)
        self.consumers.announce(subscriber)

    def attached_elsewhere(self, home: str, entry: LinkEntry) -> None:
        """Handle an attach that `home` announces. It shows whether a subscriber that is attached here has attached at
        another router since. If so, give the subscriber here no record that `home` forwards from now on.

        Reason: the home already forwards the subscriber's messages to the other router. If this router went on, the
        subscriber could get a newer message here before it gets an older message at the other router (6.2).
        """
        subscriber = self.subscribers.get(entry.name) if entry.role is Role.SUBSCRIBER and entry.live else None
        if subscriber is not None and subscriber.epoch < entry.epoch:
            subscriber.joined.discard(home)

    def _homed_at(self, router: str, subscriber: LocalSubscriber) -> list[Record]:
        """The subscriber's records whose home is the present incarnation of `router`. The present incarnation knows
        nothing of the records of earlier ones."""
        directory = self.directory
        own = router == directory.router
        home = router, directory.incarnation if own else directory.contacts.get(router)
        return [record for record in self._records(subscriber) if record.stream.epoch[1:] == home]

    def _leave_out(self, subscriber: LocalSubscriber, records: list[Record]) -> None:
        """Stop waiting for the subscriber in these records, because the home has not named it for them."""
        self._await_no_more(subscriber, [r for r in records if r.locals.get(subscriber) == AWAITING_HOME])

    def _await_no_more(self, subscriber: LocalSubscriber, records: list[Record]) -> None:
        records = list(dict.fromkeys(records))
        for record in records:
            subscriber.stop_awaiting(record)
        self.delivery.finished([record for record in records if not record.open])

    def admit(self, subscriber: LocalSubscriber, publisher: bytes, home: str) -> None:
        """Handle Admit: the home ends the publisher's gate for the subscriber."""
        gate = subscriber.gated.get(publisher)
        if gate is not None and gate.home == home:
            self._gate(subscriber, publisher, home, UNBOUNDED)
            self.delivery.pump(subscriber)

    def _gate(self, subscriber: LocalSubscriber, publisher: bytes, home: str, first: int) -> None:
        """Gate the subscriber: hold back the publisher's records from `first` on.

        If a record for the subscriber waits here for its key, the gate also holds back all later records of the
        publisher, because the gate may already have held these records back (6.5).
        """
        withheld = self._first_withheld(subscriber, publisher)
        if first == withheld == UNBOUNDED:
            subscriber.ready.extend(subscriber.open_gate(publisher))
        else:
            subscriber.gate(publisher, home, first, withheld)

    def _first_withheld(self, subscriber: LocalSubscriber, publisher: bytes) -> int:
        """The place `n` of the subscriber's oldest record that waits here for its key; `UNBOUNDED` if there is none."""
        stream = self.streams.get(publisher)
        waiting = [record for record, _ in stream.withheld_at_edge] if stream is not None else []
        theirs = (r.n for r in waiting if r.locals.get(subscriber) == WITHHELD and r.state is not State.SETTLED)
        return min(theirs, default=UNBOUNDED)

    def rehomed(self, publisher: bytes, address: str) -> None:
        """End the gates of a publisher that has attached anew or is gone (6.5).

        Two kinds of records that waited at a gate are dropped: the records that waited for a sign of the publisher's
        life (6.6), because no sign will come; and the records behind a withheld record, because the new home may
        forward them again.
        """
        for subscriber in self._at.meeting(address):
            gate = subscriber.gated.get(publisher)
            if gate is not None:
                self._await_no_more(subscriber, gate.take(UNPROVEN if gate.first == UNPROVEN else gate.withheld))
                self.admit(subscriber, publisher, gate.home)
        self.reports.rehomed(publisher)

    def credit(self, subscriber: LocalSubscriber, credit: int) -> None:
        """Set the credit that the client has granted: the number of transfers that it takes from now on."""
        subscriber.credit = credit
        self.delivery.pump(subscriber)
        self.consumers.announce(subscriber)
        self.receipts.ask(subscriber)

    def room(self, subscriber: LocalSubscriber, room: int) -> None:
        """Set the number of bytes of messages that the subscriber's link takes from now on."""
        subscriber.room = room
        self.delivery.pump(subscriber)
        self.consumers.announce(subscriber)
        self.drains.room(subscriber)

    # The methods from here on are about streams of publishers at other homes.

    def stream(self, publisher: LinkEntry) -> Stream:
        """The stream of the publisher's current epoch; made if there is none."""
        stream = self.streams.get(publisher.name)
        if stream is None:
            stream = stream_of(publisher, self.kinds)
            self.streams.add(stream)
        assert stream.epoch == publisher.epoch, "a new epoch abandons or re-homes the old stream first"
        return stream

    def forward(self, stream: Stream, first: int, seen: int, records: list[Record]) -> None:
        """Take a Forward of the publisher's current epoch, for all local subscribers that the home has joined. `first`:
        the `n` of the first record. `seen`: the version of this router's section that the home has applied.
        """
        moved = self.directory.departures.since(seen)
        joined = self.delivery.joined_at(stream)
        if stream.unconfirmed or not stream.kind.is_for_all:
            for n, record in enumerate(records, first):
                self._forward_one(stream, n, moved, record, joined, stream.kind.holders)
            self.release(stream)
            return
        forwarded(stream, records, first, moved)
        self.outlet.trace_records(Event.RECEIVED, stream, records, n=first)
        self._begin(stream, records, self.delivery.name_new(stream, records, joined))

    def forward_to(
        self, stream: Stream, first: int, seen: int, records: list[Record], only: tuple[bytes, Epoch, bool]
    ) -> None:
        """Take a Forward for one attach of a subscriber. `only`: the subscriber's name, the attach, and whether this is
        an offer.

        If the attach is over, this router reports that to the home before it reports its outcome. The home then
        forwards the records to the subscriber's next attach.
        """
        name, attach, is_offer = only
        known = self.subscribers.get(name)
        named = [known] if known is not None and known.epoch == attach else []
        moved = self.directory.departures.since(seen)
        if not is_offer:
            for n, record in enumerate(records, first):
                self._backlog(stream, n, moved, record, named, stream.kind.owed)
            return
        are_refused = False
        for _, run in groupby(enumerate(records, first), key=lambda one: one[0] in stream.records):
            are_refused |= self._offer(stream, moved, list(run), named)
        self.consumers.count(stream.home, name, attach, SubscriberRoom.of(records), refused=are_refused)

    def _offer(
        self, stream: Stream, moved: tuple[bytes, ...], run: list[tuple[int, Record]], chosen: list[LocalSubscriber]
    ) -> bool:
        """Take records that the home offers to the one subscriber that it has chosen (12).

        `run`: the records with their consecutive `n`. Either all of them are already here, or none is. Returns whether
        a record found no room.
        """
        here = [stream.records.get(n, record) for n, record in run]
        if not self._go_together(stream, here, chosen):
            taken = [self._backlog(stream, n, moved, record, chosen, stream.kind.offered) for n, record in run]
            return any(record is not None and record.chosen == UNASSIGNED for record in taken)
        if here[0].n < 0:
            forwarded(stream, here, run[0][0], moved)
            self.outlet.trace_records(Event.RECEIVED, stream, here, n=run[0][0])
        else:
            forwarded_again(here, moved)
        refused = self.delivery.take_offers(stream, here, chosen)
        self.delivery.finished(refused)
        return bool(refused)

    def _go_together(self, stream: Stream, records: list[Record], chosen: list[LocalSubscriber]) -> bool:
        """Whether the records can be offered in one step. If so, enter new records into the table.

        The records cannot be offered in one step in three cases: a local subscriber has had one of the records, or has
        left before it got one; the chosen subscriber's map says that the subscriber may have one; or one of the records
        has to wait.
        """
        if stream.kind.is_for_all or stream.unconfirmed or stream.withheld_at_edge:
            return False
        if any(subscriber.may_have(records) for subscriber in chosen):
            return False
        if records[0].n < 0:
            return self.records.enter(records)
        return not any(record.locals or record.moved or record.state is State.SETTLED for record in records)

    def _backlog(
        self,
        stream: Stream,
        n: int,
        moved: tuple[bytes, ...],
        record: Record,
        subscribers: list[LocalSubscriber],
        whom: Whom,
    ) -> Record | None:
        """Take one record of a Forward for these subscribers. The record may already be here, for other subscribers,
        and the edge may already have reported it (6.3)."""
        taken = self._forward_one(stream, n, moved, record, subscribers, whom)
        self.release(stream)
        return taken

    def _forward_one(
        self,
        stream: Stream,
        n: int,
        moved: tuple[bytes, ...],
        record: Record,
        subscribers: list[LocalSubscriber],
        whom: Whom,
    ) -> Record | None:
        """Take one record of a Forward. It may already be here, because it was forwarded before or is unconfirmed.

        `whom` selects the subscribers that get it. Returns None if the record is settled here; a home forwards no
        record that it has settled.
        """
        known = stream.records.get(n) or self.unconfirmed.take(stream, record.key) or record
        if known.state is State.SETTLED:
            return None
        is_new = known.n != n
        known.forward(n, record.message, (*moved, *self._lapsed_without(known, moved)))
        if is_new:
            self.outlet.trace_records(Event.RECEIVED, stream, [known], n=n)
        stream.withhold_for(known, self.delivery.name_in(known, whom(known, subscribers), WITHHELD))
        return known

    def _lapsed_without(self, record: Record, moved: tuple[bytes, ...]) -> Iterator[bytes]:
        """The names of subscribers that lapsed before an earlier Forward of the record. No router has them, so the edge
        has to report to the home again that they have left."""
        lapsed = self.directory.lapsed
        return (name for name in record.moved if name in lapsed and name not in moved)

    def forward_presettled(
        self, stream: Stream, first: int, records: list[Record], only: tuple[bytes, Epoch] | None
    ) -> None:
        """Hand presettled records on, or drop them. In both cases the edge reports them at once, so that the home may
        forget them. The edge drops the records if the stream has withheld records, because presettled records must not
        overtake these."""
        if not stream.withheld_at_edge:
            joined = [s for s in self.delivery.joined_at(stream) if only is None or s.name == only[0]]
            self.delivery.hand_on(stream, records, joined)
        self.outlet.batches.outcome(stream.home, stream, range(first, first + len(records)))
        if only is not None:
            self.consumers.count(stream.home, *only, SubscriberRoom.of(records))

    def _begin(self, stream: Stream, records: list[Record], offered: dict[LocalSubscriber, list[Record]]) -> None:
        """Offer new records to their local subscribers. Withhold them if an older delivery has one of their keys. This
        happens after a lost contact: the home has forgotten the older delivery before the subscribers of this router
        have.
        """
        if stream.withheld_at_edge or not self.records.enter(records):
            for record in records:
                stream.withhold_for(record, list(record.locals))
                record.withhold_all()
            self.release(stream)
            return
        for subscriber, theirs in offered.items():
            self.delivery.offer(subscriber, stream, theirs)
        passed = [record for record in records if not record.locals] if offered else []
        if 0 < len(passed) < len(stream.records):
            self.reports.put_off(stream, passed)
            records = [record for record in records if record.locals]
        self.delivery.finished([record for record in records if not record.open])

    def release(self, stream: Stream) -> None:
        """Pass on withheld records in order, as long as their keys are free. Then pass on the records that waited
        behind them."""
        if stream.withheld_at_edge:
            self._release(stream)
            self._pass_withheld(stream)

    def _release(self, stream: Stream) -> None:
        while stream.withheld_at_edge:
            record, subscribers = stream.withheld_at_edge[0]
            goes_on = record.state is not State.SETTLED
            entered = self.records.by_key.get(record.key) is record
            if goes_on and not entered and not self.records.enter([record]):
                self.records.busy_keys[record.key] = stream
                return
            stream.go_on_at_edge()
            if goes_on:
                self._go_on(stream, record, subscribers)

    def _pass_withheld(self, stream: Stream) -> None:
        """Give subscribers the records that no longer have to wait at a gate: only an earlier record, which was
        withheld, had held them up."""
        for subscriber in list(self._at.meeting(stream.address)):
            gate = subscriber.gated.get(stream.publisher)
            if gate is not None and gate.withheld != UNBOUNDED:
                self._gate(subscriber, stream.publisher, gate.home, gate.first)
                self.delivery.pump(subscriber)

    def _go_on(self, stream: Stream, record: Record, subscribers: list[LocalSubscriber]) -> None:
        for subscriber in subscribers:
            # perhaps the subscriber has left or attached again since the record was withheld
            if record.locals.get(subscriber) == WITHHELD:
                record.queue(subscriber)
                self.delivery.offer(subscriber, stream, [record])
        self.delivery.finished([] if record.open else [record])

    def settle(self, home: str, publisher: bytes, epoch: Epoch, ranges: list[int]) -> None:
        """Settle these deliveries, which their home has settled, at the local subscribers. The edge answers the home as
        soon as the subscribers have read the settlement (protocol 5, Settle)."""
        stream = self.streams.get(publisher)
        known = in_ranges(stream, ranges) if stream is not None and stream.epoch == epoch else []
        unsettled = [record for record in known if record.state is not State.SETTLED]
        if unsettled:
            self.settlement.close(unsettled[0].stream, unsettled)
        unread = [record for record in known if record.unread]
        for record in unread:
            record.await_settled(home)
        if unread:
            ranges = ranges_without(ranges, {record.n for record in unread})
        if ranges:
            self.outlet.batches.settled(home, publisher, epoch, ranges)

    def abandon(self, stream: Stream, followed_by: bytes | None) -> None:
        """Handle the end of a publisher's life, after which no router settles the stream's records.

        The edge delivers the records that it has, and then settles them itself (7.5, 8). `followed_by`: the generation
        of the publisher's next life, if the next life has ended this one.
        """
        assert not isinstance(stream, HomeStream)
        stream.abandon(followed_by)
        self.streams.discard(stream)
        for record, subscribers in stream.drop_withheld_at_edge():
            for subscriber in subscribers:
                # If the state is not WITHHELD, the router has given the record to the subscriber before.
                if record.locals.get(subscriber) == WITHHELD:
                    record.drop(subscriber)
        self.abandon_unconfirmed(stream)
        done = [r for r in stream.records.values() if not r.open and r.state is not State.SETTLED]
        if done:
            self.settlement.close(stream, done)

    def abandon_unconfirmed(self, stream: Stream) -> None:
        """Give no unconfirmed record of the stream to a subscriber any more, because the subscribers may have had it at
        another router."""
        for record in [*stream.unconfirmed.values(), *stream.records.values()]:
            for subscriber in [s for s, state in record.locals.items() if state == AWAITING_HOME]:
                subscriber.stop_awaiting(record)
        self.settlement.close(stream, [record for record in stream.unconfirmed.values() if not record.open])

    def contact_lost(self, home: str) -> None:
        """Drop the joins and the gates of a home whose contact is lost, and the outcomes that the edge has not sent to
        this home yet. The records that the home has forwarded wait until the home is back, or until their publishers
        have another home."""
        for stream in self.streams.values():
            if stream.home == home:
                self.unconfirmed.hold(stream)
        self.reports.contact_lost(home)
        self.drains.lost(home)
        for subscriber in self.subscribers.values():
            subscriber.joined.discard(home)
            subscriber.offered.pop(home, None)
            subscriber.unanswered.discard(home)
