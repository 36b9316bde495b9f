"""The topic core of one router: its events, and the parts that handle them (protocol sections 3.3 to 8).

The contract between core and shell:

1. The shell calls one method per event, then drains `out` (actions, in order) and `take_outgoing()` (batches for other
   routers, in order). Before an event it calls `advance` with the wall clock.
2. `link` is an object of the shell. The core returns it in actions and never looks into it. An attach returns a token
   (`HomeStream`, `LocalSubscriber`), which is valid until the shell detaches the link or gets a `Detach` for it.
3. After `deadline()`, and at least about every second, the shell calls `handle_timer`.
4. The shell delivers each batch to its router once, in order, and only within the contact in which it took the batch.
5. If `receive` raises `BreachError`, the shell has to drop the contact with that router.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from linkstate.clock import HybridClock
from topic.actions import EXCLUSIVE, STOLEN, Action, Detach, Doubt
from topic.delivery.allowance import Allowance
from topic.delivery.kinds import AddressKinds
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import HomeStream, Record
from topic.delivery.records import RecordTable
from topic.delivery.room import Demand, Drain
from topic.delivery.window import window_of
from topic.directory.directory import Directory
from topic.directory.entry import FLEETING, Lifetime, LinkEntry, Role, Status, overtakes
from topic.directory.members import Members
from topic.edge.filters import Wants
from topic.edge.subscriber import LocalSubscriber
from topic.event import event
from topic.home.boot import Boot
from topic.home.home import Home
from topic.identity import GENERATION_LENGTH, NOWHERE, Epoch, LinkIdentity, link_name, new_generation
from topic.journal import Block, Event
from topic.outlet import Outlet
from topic.peers import Peers
from topic.settings import Settings
from topic.termini.attaches import Attaches, Claim
from topic.termini.changes import Changes
from topic.termini.expiry import Expiry
from topic.termini.generations import Generations
from topic.termini.grace import Grace


class Topic:
    """The topic core: the records, the directory and the rules of one router incarnation."""

    def __init__(
        self,
        router: str,
        incarnation: int,
        routers: Collection[str],
        clock: HybridClock,
        journal: Block,
        settings: Settings,
        now: float,
        remembered: Iterable[LinkEntry] = (),
        configured: Iterable[LinkIdentity] = (),
    ) -> None:
        """`routers`: the members of the plan. `remembered`: the durable links of the state store (3.3, 8).
        `configured`: the subscribers that the configuration lists (14.1). Both are orphans until they attach."""
        self.settings = settings
        self.directory = Directory(Members(router, incarnation, routers, clock), remembered, configured)
        self.outlet = Outlet(router, incarnation, clock, journal, settings.settle_delay)
        self.records = RecordTable()
        self.kinds = AddressKinds(settings.kinds)
        self.home = Home(self.outlet, self.records, self.directory, settings, self.kinds, self)
        self.edge = self.home.edge
        self.out: list[Action] = self.outlet.actions
        self.boot = Boot(self.home, now + settings.boot_wait)
        self.attaches = Attaches(self.outlet, self.records, self.directory, settings.join, self.home.liveness)
        self.generations = Generations(self.home, self.attaches, settings)
        self.grace = Grace(self.home, settings.grace)
        self.changes = Changes(self.home, self.attaches, self.generations, self.grace)
        self.expiry = Expiry(
            self.outlet, self.directory, self.changes, remember=settings.terminus, forget=settings.forget
        )
        self.peers = Peers(self.home, self.attaches, self.expiry, self.grace, self.changes, self.boot, self.generations)
        self.outlet.trace(Event.BOOT, detail=json.dumps({"dead": settings.dead}))
        self.boot.check(now)

    # The shell calls the methods from here on.

    def advance(self, wall_us: int) -> None:
        """Tell the core the wall clock, in microseconds since the epoch."""
        self.outlet.time_us = wall_us
        self.outlet.clock.advance(wall_us // 1000)

    def take_outgoing(self, now: float) -> list[tuple[tuple[str, ...], bytes]]:
        """Take the batches for other routers that may not wait any longer. The shell has to drain `out` first, because
        this call drops the messages of settled records."""
        assert not self.out
        self.records.drop_messages()
        self.edge.reports.wait(now, self.settings.settle_delay)
        self.edge.drains.wait(now)
        self.home.balancing.rests.wait(now)
        return self.outlet.batches.take(now)

    @property
    def booted(self) -> bool:
        return self.home.booted

    def check(self) -> None:
        """Assert the invariants that hold between two events. The simulation and the exhaustive search call it after
        every step."""
        for record in self.records.by_key.values():
            record.check()
        for subscriber in self.edge.subscribers.values():
            subscriber.check()

    def stop(self) -> None:
        self.outlet.trace(Event.STOPPED)

    def end_apart(self, entry: LinkEntry, ending: str) -> None:
        """End the link of a subscriber without which a home has accepted a message. `ending`: the text for its client
        (protocol 8, Apart)."""
        self.changes.end_apart(entry, ending)

    # The methods from here on are about publishers.

    @event
    def attach_publisher(
        self,
        identity: LinkIdentity,
        link: Any,
        now: float,
        *,
        generation: bytes | None = None,
        seen: Epoch = NOWHERE,
        first: bool = False,
        lifetime: Lifetime = FLEETING,
        unsettled: Mapping[bytes, int] | None = None,
        complete: bool = True,
        allowance: Allowance | None = None,
        clock: int = 0,
    ) -> HomeStream:
        """Attach a publisher (7.1). The core answers the attach when all routers in contact have acknowledged it.

        `unsettled`: the client's map, which has the state of each delivery-tag; 0 for no state. With a map the
        publisher resumes its life, wherever it was attached before. With a null map it begins afresh, and gets a new
        generation (protocol 2). If the map is not `complete`, the absence of a delivery in it means nothing (AMQP 1.0
        2.7.3, incomplete-unsettled).

        `seen`: the epoch that the client echoes. `first`: the link has receiver settle mode first. `allowance`: the
        limit of the connection against which unsettled deliveries count. `clock`: the clock of the attach if the leader
        of a set makes it (14.2); 0 otherwise.
        """
        assert generation is None or len(generation) == GENERATION_LENGTH
        name = link_name(identity)
        known, latest = self.directory.publisher(name), self.directory.latest((Role.PUBLISHER, name))
        epoch = self.outlet.leaders_epoch(clock) if clock else self.outlet.new_epoch(latest, seen.hlc)
        kind = self.kinds.of(identity.address)
        stream = HomeStream(
            name,
            identity,
            epoch,
            generation or new_generation(epoch),
            kind,
            window_of(self.settings, allowance),
            None if self.outlet.refuses(epoch, latest, link) else link,
            lifetime=lifetime,
            settles_first=first,
            overtook=unsettled is not None and overtakes(seen, known),
            # With `clock`, the epoch cannot be lower than an earlier epoch of the link, because the clocks of leaders
            # never go back.
            unordered=unsettled is not None and seen == NOWHERE and not clock,
            afresh=unsettled is None and seen == NOWHERE and not clock,
        )
        if stream.link is not None:
            claim = Claim(generation, unsettled, complete, seen)
            self.generations.attach(stream, claim, now, self.expiry.all_since)
        return stream

    @event
    def alive(self, stream: HomeStream, *, answered: bool = True) -> None:
        """Handle a sign of the publisher's life. `answered`: the publisher has answered an `Echo`. Otherwise its client
        never answers an echo, and the operating system of the client's machine has acknowledged the bytes."""
        if self.home.streams.get(stream.publisher) is stream:
            self.home.liveness.alive(stream, answered=answered)

    @event
    def suspend_publisher(self, stream: HomeStream, link: Any, now: float) -> None:
        """Suspend a publisher whose link is gone without a closing detach. Its terminus lives on here for its
        timeout."""
        # The publisher has a later attach or has ended, so this attach is over.
        if self.attaches.gone_unknown(stream) or stream.link is not link:
            return
        if not stream.lifetime.timeout:
            self.detach_publisher(stream, now)
            return
        self.outlet.trace(Event.SUSPENDED, stream.identity, publisher=stream.publisher, epoch=stream.label)
        self.attaches.withdraw_publisher(stream.publisher)
        stream.suspend()
        self.expiry.handle_timer(now)

    @event
    def detach_publisher(self, stream: HomeStream, now: float) -> None:
        """End a publisher whose link has closed, or whose terminus has ended with its connection or session."""
        if self.attaches.gone_unknown(stream) or self.home.streams.get(stream.publisher) is not stream:
            return
        if self.attaches.may_be_late(stream):
            return self.suspend_publisher(stream, stream.link, now)
        entry = self.directory.publisher(stream.publisher)
        assert entry is not None and entry.epoch == stream.epoch
        stream.leave()
        self.outlet.trace(Event.CLOSED, stream.identity, publisher=stream.publisher, epoch=stream.label)
        self.changes.write(attrs.evolve(entry, status=Status.CLOSED))

    @event
    def publish(
        self,
        stream: HomeStream,
        tags: list[bytes],
        messages: list[bytes],
        *,
        presettled: bool,
        until: Sequence[float] | None = None,
    ) -> list[Record]:
        """Take a batch of transfers. Returns their records, in the same order.

        `until`: for each delivery the end of its time to live, in seconds of the shell's clock. It is infinity for
        none, and `OVER` if the time was over when the delivery came (protocol 5, Time to live).
        """
        return self.home.publishing.publish(stream, tags, messages, presettled=presettled, until=until)

    @event
    def transferred_again(self, stream: HomeStream, tag: bytes, *, settled: bool = False) -> Record | None:
        """Take a transfer with resume=true. If this router's map lacks its tag, the transfer is ignored, and the result
        is None (AMQP 1.0 2.7.5). If the publisher sends it `settled`, it gets no outcome (7.3)."""
        return self.home.transferred_again(stream, tag, settled=settled)

    @event
    def abort(self, stream: HomeStream, tag: bytes) -> None:
        """Take an aborted transfer, with or without resume=true. If the publisher's map has a delivery with this tag,
        the publisher has settled that delivery (7.3)."""
        self.home.abort(stream, tag)

    @event
    def settle(self, stream: HomeStream, records: list[Record]) -> None:
        """Take the publisher's settlement of these deliveries. A delivery may be given only once."""
        self.home.settlement.settle(stream, records)

    def demand(self, stream: HomeStream) -> Demand:
        """The deliveries for which the consumers of a queue have room now (`Balancing.demand`). `stream`: the stream of
        the queue's egress."""
        return self.home.balancing.demand(stream)

    def busy(self, stream: HomeStream) -> Iterator[str]:
        """The routers of the consumers of a queue that have room or have deliveries (`Balancing.busy`)."""
        return self.home.balancing.busy(stream)

    @event
    def serve_one(self, stream: HomeStream, *, only: bool) -> None:
        """Set which consumers of a queue get deliveries. `only`: one consumer gets all until it has ended; otherwise
        all consumers get some."""
        if self.home.streams.get(stream.publisher) is stream:
            self.home.balancing.serve_one(stream, only=only)

    @event
    def end_consumer(self, entry: LinkEntry, ending: str) -> None:
        """End the link of a consumer. `ending`: the text for its client."""
        self.changes.end_apart(entry, ending)

    @event
    def end_others(self, stream: HomeStream) -> None:
        """End the links of all consumers of a queue, except the one that the queue serves."""
        if self.booted and stream.served is not None:
            for entry in [*self.directory.subscribers(stream.address)]:
                if entry.name != stream.served:
                    self.changes.end_apart(entry, EXCLUSIVE)

    @event
    def reserved(self, stream: HomeStream, subscriber: bytes, records: list[Record]) -> None:
        """The queue has reserved these deliveries for the consumer that the home had chosen (`Chosen`)."""
        if self.home.streams.get(stream.publisher) is stream:
            self.home.balancing.reserved(stream, subscriber, records)

    @event
    def not_reserved(self, stream: HomeStream, subscriber: bytes, records: list[Record]) -> None:
        """The queue has not reserved these deliveries for the chosen consumer, because the consumer has gone."""
        if self.home.streams.get(stream.publisher) is stream:
            self.home.balancing.not_reserved(stream, subscriber, records)

    # The methods from here on are about subscribers.

    @event
    def attach_subscriber(
        self,
        identity: LinkIdentity,
        link: Any,
        now: float,
        *,
        seen: Epoch = NOWHERE,
        first: bool = False,
        sends_settled: bool = False,
        lifetime: Lifetime = FLEETING,
        unsettled: Mapping[bytes, int] | None = None,
        complete: bool = True,
        told: bool = False,
        wants: Wants | None = None,
        clock: int = 0,
        options: int = 0,
    ) -> LocalSubscriber:
        """Attach a subscriber (6.1). The core answers the attach when all routers in contact have joined the
        subscriber.

        `unsettled`: the client's map, which has the state of each delivery key; 0 for no state. With a map the
        subscriber resumes its deliveries, wherever it was attached before. A null map counts as an empty one. If the
        map is not `complete`, the subscriber gets only the deliveries that the map names.

        `seen`: the epoch that the client echoes. `first`: the link has receiver settle mode first. `sends_settled`: the
        link has sender settle mode settled. `told`: the client states that it knows that routers have ended its last
        link (8, Apart). `wants`: the subscriber's filter. `clock`: the clock of the attach if the leader of a set makes
        it (14.2); 0 otherwise. `options`: as in `LinkEntry`.
        """
        name = link_name(identity)
        known, latest = self.directory.subscriber(name), self.directory.latest((Role.SUBSCRIBER, name))
        epoch = self.outlet.leaders_epoch(clock) if clock else self.outlet.new_epoch(latest, seen.hlc)
        kind = self.kinds.of(identity.address)
        if self.outlet.refuses(epoch, latest, link):
            return LocalSubscriber(name, identity, kind)
        subscriber = self.edge.subscribers.get(name) or LocalSubscriber(name, identity, kind)
        if subscriber.link is not None:
            self.out.append(Detach(subscriber.link, STOLEN, "the link was attached again"))
        told = told or unsettled is None  # a client with a null map claims no earlier delivery
        if known is not None and known.ending and not told:
            return self.home.lapses.report_ending(known, link, epoch)
        subscriber.begin(link, epoch, unsettled, complete=complete, wants=wants if kind.takes_filters else None)
        subscriber.overtook = overtakes(seen, known)
        subscriber.unordered = unsettled is not None and not clock and (seen == NOWHERE or subscriber.overtook)
        subscriber.lifetime = lifetime
        subscriber.settles_first = first
        subscriber.sends_settled = sends_settled
        self.edge.add(subscriber)
        self.edge.receipts.attached_again(subscriber, unsettled)
        self.attaches.subscriber(subscriber, now)
        named = self.edge.unconfirmed.name(subscriber, unsettled or {}, self.generations)
        if unsettled is not None:
            subscriber.named(named)
        resumed = unsettled is not None or (known is not None and known.live)
        aware = epoch.hlc - 1 if told else known.aware_until if known is not None else 0
        entry = LinkEntry(
            Role.SUBSCRIBER, name, identity, epoch, lifetime=lifetime, resumed=resumed, aware=aware, options=options
        )
        self.changes.write(entry)
        self.edge.delivery.finished([record for record in named if not record.open])
        self.attaches.answer_subscriber(subscriber)
        return subscriber

    @event
    def detach_subscriber(self, subscriber: LocalSubscriber, link: Any, now: float) -> None:
        """End a subscriber whose link has closed, or whose terminus has ended with its connection or session."""
        if subscriber.link is not link:  # the subscriber has a later attach or has ended, so this attach is over
            return
        if self.attaches.may_be_late(subscriber):
            return self.suspend_subscriber(subscriber, link, now)
        entry = self.directory.subscriber(subscriber.name)
        assert entry is not None and entry.epoch == subscriber.epoch
        self.outlet.trace(Event.CLOSED, entry.identity, subscriber=subscriber.name, epoch=str(subscriber.epoch))
        self.changes.write(attrs.evolve(entry, status=Status.CLOSED))

    @event
    def suspend_subscriber(self, subscriber: LocalSubscriber, link: Any, now: float) -> None:
        """Suspend a subscriber whose link is gone without a closing detach. Its terminus lives on here for its
        timeout."""
        if subscriber.link is not link:
            return
        if not subscriber.lifetime.timeout:
            self.detach_subscriber(subscriber, link, now)
            return
        epoch = str(subscriber.epoch)
        self.outlet.trace(Event.SUSPENDED, subscriber.identity, subscriber=subscriber.name, epoch=epoch)
        self.attaches.withdraw_subscriber(subscriber.name)
        subscriber.suspend()
        self.expiry.handle_timer(now)

    @event
    def echoed(self, subscriber: LocalSubscriber) -> None:
        """Handle a subscriber's answer to an `Echo`."""
        self.edge.receipts.echoed(subscriber)

    @event
    def credit(self, subscriber: LocalSubscriber, credit: int) -> None:
        """Set the credit that the client has granted: it takes `credit` transfers from now on."""
        if subscriber.answered:
            self.edge.credit(subscriber, credit)

    @event
    def drain(self, subscriber: LocalSubscriber) -> None:
        """Begin a drain. The client wants the messages that wait for it, up to its credit, and then gives up the rest
        of its credit (AMQP 1.0 2.6.7). When the client has got all these messages, the core returns the action
        `Drained`. A later drain of the client replaces this one."""
        if subscriber.answered:
            self.edge.drains.drain(subscriber)

    @event
    def given(self, asked: Drain, left: int = 0, *, is_all: bool = True) -> None:
        """Take the answer to `ConsumerDrains`: the queue has given the consumer its messages, and has `left` messages
        that no consumer has. If not `is_all`, the queue has more messages for the consumer, and another answer
        follows."""
        self.home.balancing.given(asked, left, is_all=is_all)

    @event
    def room(self, subscriber: LocalSubscriber, room: int) -> None:
        """The subscriber's link has written its buffered messages. From now on it takes `room` bytes of messages."""
        if subscriber.answered:
            self.edge.room(subscriber, room)

    @event
    def outcomes(
        self,
        subscriber: LocalSubscriber,
        records: list[Record],
        outcome: DeliveryOutcome,
        *,
        final: bool = False,
        failed: bool = False,
        settled: bool = False,
        annotations: bytes = b"",
    ) -> None:
        """Take a subscriber's outcome of deliveries that were sent to it.

        `final`: the subscriber does not want them again (undeliverable-here). `failed`: it could not process them
        (delivery-failed). `settled`: it has settled them, so it has forgotten them. `annotations`: what it adds to a
        message of a queue, as the shell encodes it; at most `MOST_ANNOTATIONS` bytes.
        """
        for record in records if annotations else ():
            record.annotate(annotations)
        self.edge.delivery.outcomes(subscriber, records, outcome, final=final, failed=failed, settled=settled)

    # The methods from here on are about other routers.

    def contact(self, router: str, incarnation: int, now: float) -> None:
        """Begin a contact. Each of the two routers sends the other one its section (3.3)."""
        self.outlet.trace(Event.CONTACT, peer=router, detail=json.dumps({"incarnation": incarnation}))
        self.changes.follow(self.directory.contact(router, incarnation))
        self.grace.contact(router, incarnation)
        self.edge.reports.contact(router)
        for stream in self.edge.streams.values():
            if stream.epoch[1:] == (router, incarnation):
                self.edge.unconfirmed.ask(stream, list(stream.unconfirmed))
        own, gossip = self.directory.section()
        self.outlet.batches.section(router, self.directory.version, self.directory.members.told_up_to, own, gossip)
        self.peers.contact(router)
        self.attaches.contact(router, now)
        self.expiry.contacts_changed()

    @event
    def contact_lost(self, router: str, now: float) -> None:
        """End a contact (8, Lost router)."""
        self.outlet.batches.forget(router)
        incarnation = self.directory.contacts[router]
        expired = self.directory.contact_lost(router)
        self.grace.contact_lost(router, incarnation, now)
        self.changes.trace_lost(expired)
        self.peers.contact_lost(router)
        self.changes.follow(expired)
        self.edge.contact_lost(router)
        self.home.balancing.contact_lost(router)
        self.home.audiences.lose(router, waits=self.grace.waits_for(router))
        self.home.publishing.contact_lost(router)
        self.attaches.contact_lost()
        self.expiry.contact_lost(router)

    @event
    def refused(self, router: str) -> None:
        """A neighbour out of contact refuses connections, so its process is gone (8, Lost router)."""
        self.grace.refused(router)

    @event
    def receive(self, router: str, payload: bytes) -> None:
        """Take a batch from a router in contact. Raises `BreachError` if it breaks the protocol."""
        self.peers.receive(router, payload)

    @event
    def forward_withheld(self) -> bool:
        """Forward withheld deliveries of one publisher that waited for a full channel. Returns False if no such
        publisher can go on."""
        return self.home.publishing.forward_withheld()

    # The methods from here on are about time.

    def deadline(self) -> float:
        """The time at which `handle_timer` next has work, in seconds of the shell's clock; infinity if never."""
        waiting = self.outlet.batches.due, self.edge.reports.due, self.edge.drains.due, self.home.publishing.ttl.due
        rested = self.home.balancing.rests.due
        termini = self.attaches.deadline(), self.expiry.deadline(), self.grace.deadline()
        return min(self.boot.deadline(), rested, *termini, *waiting)

    @event
    def handle_timer(self, now: float) -> None:
        # Some of these timers send messages to other routers. Waiting settlements can leave with these messages.
        self.outlet.batches.end_delays()
        self.edge.reports.handle_timer(now)
        self.edge.drains.handle_timer(now)
        self.home.publishing.ttl.handle_timer(now)
        self.home.balancing.handle_timer(now)
        self.boot.check(now)
        self.generations.begin_unknown(now)
        self.expiry.handle_timer(now)
        self.grace.handle_timer(now)
        self.generations.give_up_nowhere(now, self.expiry.all_since)
        for router in self.attaches.awaited_long(now):
            self.out.append(
                Doubt(router, f"has not answered an attach for {self.settings.join:g} s and makes no progress")
            )

    @event
    def ending_known(self, subscriber: LocalSubscriber) -> None:
        """The client has answered the detach that told it of its link's ending."""
        self.home.lapses.ending_known(subscriber)
