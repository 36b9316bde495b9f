"""Chooses one subscriber for each delivery, at addresses where a delivery is for only one (protocol 12, 14.5).

The home gives a new delivery to a subscriber that has room. If no subscriber has room, the delivery waits.

If a publisher transfers a delivery again, a subscriber may already have it. So the home first asks all routers for that
subscriber, and waits by name for subscribers out of reach. When each of them has answered that it does not have the
delivery, or has ended, the home chooses a subscriber. It never chooses one that has refused the delivery for itself.

The publisher reads *accepted* as soon as one subscriber has accepted.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby, islice
from typing import Protocol

import attrs

from topic.actions import Chosen, ConsumerDrains, Forget, Wanted
from topic.delivery.kinds import UNASSIGNED, verdict
from topic.delivery.outcomes import NOT_HAD
from topic.delivery.record import Giving, HomeStream, Record, State, await_audience
from topic.delivery.room import NO_ROOM, Demand, Drain, DrainAnswer, SubscriberRoom
from topic.delivery.streams import Streams
from topic.directory.entry import NOBODY, AddressAudience, LinkEntry
from topic.edge.edge import Edge
from topic.edge.subscriber import LocalSubscriber
from topic.home.decisions import Decisions
from topic.home.rests import Rests
from topic.identity import Epoch
from topic.journal import ONE_OF_MANY, Event
from topic.settings import Settings
from topic.wire.segments import OFFER

FAR = 1 << 30
"""Counts as the cost of the path to a router if there is no path at present."""


class Paths(Protocol):
    """The paths from this router to other routers."""

    def cost_to(self, router: str) -> int | None:
        """The sum of the costs on the path to the router; None if there is no path."""


class _NoPaths:
    """The paths of a router that has not begun."""

    def cost_to(self, router: str) -> int | None:
        return None


NO_AUDIENCE = AddressAudience((), (), NOBODY, 0, ONE_OF_MANY)


@attrs.define(slots=True)
class _Offers:
    """The home's offers to one attach of a subscriber at another router, since the contact began."""

    epoch: Epoch
    """The epoch of the subscriber's attach to which the offers are made."""
    offered: SubscriberRoom = NO_ROOM
    """The room that all offers so far to this attach take up."""
    limit: SubscriberRoom = NO_ROOM
    """The room that all offers to this attach together may take up."""


class Balancing:
    """Chooses subscribers for the deliveries of balanced addresses whose home is this router."""

    def __init__(
        self,
        edge: Edge,
        streams: Streams[HomeStream],
        settings: Settings,
        home: Decisions,
    ) -> None:
        """`home` answers the publisher of a record when the record waits for nobody any more."""
        self.outlet = edge.outlet
        self.directory = edge.directory
        self._edge = edge
        self._kinds = edge.kinds
        self._streams = streams
        self._redeliveries = settings.redeliveries
        self.rests = Rests(streams, edge.kinds, settings.pauses)
        self._home = home
        self.asked: set[Record] = set()
        """The deliveries of queues that a consumer may have had before this router booted. Until the home has booted,
        it asks the consumers for them."""
        self._claims: dict[str, dict[Record, None]] = {}
        """Maps each router that has not sent its section yet to the records that a map of a subscriber at that router
        names."""
        self._offers: dict[bytes, _Offers] = {}
        """Maps the name of each subscriber at another router to the offers of this home to it, once that router has
        announced the subscriber's room."""
        self.paths: Paths = _NoPaths()
        """Computes the paths to other routers. The node sets this to its link state."""

    # The methods from here on are about transfers.

    def take(self, stream: HomeStream, records: list[Record]) -> None:
        """Give new transfers their places in the publisher's order, and offer each to a subscriber that has room."""
        self._place(stream, records, NO_AUDIENCE)
        stream.leave_out_refusers(records)
        stream.wait_for_room(records)
        self.offer_waiting(stream)
        if stream.unassigned and self._is_over(stream):
            self._home.decide(stream, list(stream.unassigned))

    def ask_all(self, stream: HomeStream, records: list[Record]) -> None:
        """Give places in the publisher's order to transfers that a subscriber may already have, and ask all routers for
        that subscriber."""
        audience = attrs.evolve(self.directory.audience(stream.address), detail=ONE_OF_MANY)
        self._place(stream, records, audience)
        stream.stop_time(records)
        if audience.routers:
            self.outlet.batches.forward(audience.routers, stream, records, self.directory.applied, None)
        for record in records:
            self._give(record, stream.kind.holders(record, self._edge.delivery.joined_at(stream)))
        self._home.decide(stream, records)

    def ask_holders(self, stream: HomeStream, records: list[Record]) -> None:
        """Give each transferred record its place in the publisher's order. The queue has reserved each message for one
        consumer, so the home asks only this consumer's router about it."""
        self._place(stream, records, NO_AUDIENCE)
        stream.stop_time(records)
        if not self._home.booted:
            self.asked.update(records)
        for name, run in groupby(records, key=stream.take_holder):
            theirs = list(run)
            for record in theirs:
                record.choose(name)
            self._home.seek_all(theirs, name)
        self._home.decide(stream, records)

    def _place(self, stream: HomeStream, records: list[Record], audience: AddressAudience) -> None:
        await_audience(records, stream.place(len(records)), audience)
        self.outlet.trace_received(stream, records, audience)

    def _give(self, record: Record, subscribers: list[LocalSubscriber]) -> None:
        self._edge.delivery.take_for(record.stream, record, subscribers)

    def hand_on(self, stream: HomeStream, records: list[Record]) -> None:
        """Give presettled records to subscribers that have room now, and drop the others."""
        await_audience(records, stream.place(len(records)), NO_AUDIENCE)
        stream.stop_time(records)
        left = records
        while left and (share := self._share(stream, left)) is not None:
            entry, theirs = share
            left = left[len(theirs) :]
            if self.directory.is_mine(entry):
                self._edge.delivery.hand_on(stream, theirs, [self._edge.subscribers[entry.name]])
            else:
                self._forward(stream, theirs, entry)
        self._home.decide(stream, records)

    # The methods from here on choose subscribers.

    def offer_waiting(self, stream: HomeStream) -> None:
        """Give waiting records to subscribers that have room."""
        stream.kind.offer_waiting(self, stream)

    def share_out(self, stream: HomeStream, give: Giving) -> None:
        """Choose subscribers with room for the waiting records, and call `give` with the share of each."""
        while (waiting := stream.next_ones) and (share := self._share(stream, waiting)) is not None:
            entry, records = share
            stream.wait_no_more(records)
            if records := [record for record in records if self._is_for_nobody(record)]:
                give(stream, records, entry)

    def propose(self, stream: HomeStream, records: list[Record], entry: LinkEntry) -> None:
        """Ask the queue to reserve these records for the chosen subscriber."""
        stream.reserve(records, entry.name)
        self.outlet.actions.append(Chosen(stream.link, entry.name, records))

    def want(self, stream: HomeStream) -> None:
        """If the queue's subscribers have room for more deliveries, tell this to the queue."""
        if self.demand(stream).room:
            self.tell(stream)

    def tell(self, stream: HomeStream) -> None:
        """Let the queue look again at the deliveries that wait for a subscriber."""
        self.outlet.actions.append(Wanted(stream.link))

    def demand(self, stream: HomeStream) -> Demand:
        """The deliveries that the queue's subscribers would take now. The result has the names of the subscribers with
        room, their room, and the size of the deliveries that all these subscribers have refused."""
        able = self._able(stream)
        names = frozenset(entry.name for entry, _ in able)
        waiting = [record for record in stream.next_ones if not names.issubset(record.refused_by)]
        refused = [record for record in stream.unassigned if names.issubset(record.refused_by)]
        room = sum((room for _, room in able), NO_ROOM) - SubscriberRoom.of(waiting)
        return Demand(names, room, SubscriberRoom.of(refused))

    def reserved(self, stream: HomeStream, name: bytes, records: list[Record]) -> None:
        """Handle the queue's answer that it has reserved these deliveries for the chosen subscriber. The home may have
        asked for them in several steps.

        If the subscriber has gone meanwhile, the home tells the queue. If the subscriber now has less room, or an
        earlier delivery waits for it, the deliveries wait again.
        """
        agreed = sorted(stream.agreed(records, name), key=stream.kind.place)
        records = [record for record in agreed if self._is_for_nobody(record)]
        if not records:
            return
        if not self.is_there(name):
            for record in records:
                record.choose(name)
                record.sum_up(NOT_HAD)
            self._home.decide(stream, records)
            return
        first = stream.before_waiting(records, name)
        able = [one for one in self._able(stream) if one[0].name == name]
        now = [record for entry, room in able for record in room.first(first)]
        if now:
            self.assign(stream, now, able[0][0])
        if left := records[len(now) :]:
            stream.wait_for_room(left)
            self.offer_waiting(stream)

    def not_reserved(self, stream: HomeStream, name: bytes, records: list[Record]) -> None:
        """Handle the queue's answer that it has not reserved these deliveries for the chosen subscriber. They wait for
        a subscriber again."""
        records = [record for record in stream.agreed(records, name) if self._is_for_nobody(record)]
        if records:
            stream.wait_for_room(records)
            self.offer_waiting(stream)

    @staticmethod
    def _is_for_nobody(record: Record) -> bool:
        """Whether no subscriber has the record yet, so that the home may choose one. This is so if the record is in
        doubt, and no local subscriber may already have it.

        The record may have changed since the home chose a subscriber. Its time may have ended. Or a subscriber may have
        come whose map names it; the home then seeks the subscriber that has it.
        """
        if record.open:
            record.seek_holders()
        return record.state is State.IN_DOUBT and not record.open

    def claimed(self, stream: HomeStream, record: Record, router: str) -> None:
        """Handle the report of a router that a subscriber's map there names the record. The home may not know this
        subscriber. Until the router has answered a Forward of the record, no other subscriber gets it."""
        if record.chosen or router in record.awaited or router == self.directory.router or record.taken:
            return
        stream.wait_no_more([record])
        record.seek_holders()
        record.forwarded_to(router)
        stream.stop_time([record])
        if router in self.directory.applied:
            self._ask(record, router)
        else:
            self._claims.setdefault(router, {})[record] = None

    def _ask(self, record: Record, router: str) -> None:
        """Forward the record to the router, so that a subscriber there that already has it continues with it."""
        self.outlet.trace_records(Event.FORWARDED, record.stream, [record], peer=router)
        self.outlet.batches.forward((router,), record.stream, [record], self.directory.applied, None)

    def section_received(self, router: str) -> None:
        """Forward to a router, whose section has come, the records that the maps of its subscribers name."""
        for record in self._claims.pop(router, ()):
            if isinstance(record.stream, HomeStream) and record.state is State.IN_DOUBT:
                record.await_router(router)
                self._ask(record, router)

    def _share(self, stream: HomeStream, waiting: Collection[Record]) -> tuple[LinkEntry, list[Record]] | None:
        """Choose the next subscriber, and the waiting records that it gets; None if no subscriber has room for any.
        Local subscribers come first, then the subscribers with most room. If near subscribers come first (12.10), a
        subscriber shares the records only with subscribers that are equally near."""
        for able in self._ranks(stream):
            most = -(-len(waiting) // len(able))
            for entry, room in sorted(
                able, key=lambda one: (not self.directory.is_mine(one[0]), -one[1].deliveries, one[0].name)
            ):
                if theirs := room.first(islice((r for r in waiting if entry.name not in r.refused_by), most)):
                    return entry, theirs
        return None

    def _ranks(self, stream: HomeStream) -> list[list[tuple[LinkEntry, SubscriberRoom]]]:
        """The subscribers that have room, in groups: the first group is served first, then the next one, and so on."""
        able = self._able(stream)
        if not stream.kind.prefers_near:
            return [able] if able else []
        ranks: dict[int, list[tuple[LinkEntry, SubscriberRoom]]] = {}
        for entry, room in able:
            ranks.setdefault(self._cost_to(entry.router), []).append((entry, room))
        return [ranks[cost] for cost in sorted(ranks)]

    def _cost_to(self, router: str) -> int:
        if router == self.directory.router:
            return 0
        cost = self.paths.cost_to(router)
        return FAR if cost is None else cost

    def busy(self, stream: HomeStream) -> Iterator[str]:
        """The routers of all subscribers that have room or may have a delivery, one item for each subscriber."""
        names = stream.having() | {entry.name for entry, _ in self._able(stream)}
        return (entry.router for entry in self.directory.subscribers(stream.address) if entry.name in names)

    def _able(self, stream: HomeStream) -> list[tuple[LinkEntry, SubscriberRoom]]:
        """The subscribers that have room, each with its room."""
        directory = self.directory
        rooms = [
            (entry, self._room_of(entry) - SubscriberRoom.of(stream.reserving.get(entry.name, ())))
            for entry in self._served(stream)
            if directory.in_contact(entry) and entry.name not in directory.lapsed
            if entry.name not in stream.questions
        ]
        return [(entry, room) for entry, room in rooms if room]

    def _room_of(self, entry: LinkEntry) -> SubscriberRoom:
        if self.directory.is_mine(entry):
            subscriber = self._edge.subscribers[entry.name]
            return subscriber.spare if self.directory.router in subscriber.joined else NO_ROOM
        known = self._offers.get(entry.name)
        return known.limit - known.offered if known is not None and known.epoch == entry.epoch else NO_ROOM

    def assign(self, stream: HomeStream, records: list[Record], entry: LinkEntry) -> None:
        """Give these records to the chosen subscriber: at this router at once, at another router by an offer."""
        stream.stop_time(records)
        for record in records:
            record.choose(entry.name)
            record.sum_up(None)
        if not self.directory.is_mine(entry):
            self._forward(stream, records, entry)
            return
        chosen = self._edge.subscribers[entry.name]
        for is_known, run in groupby(records, key=lambda record: bool(record.locals)):
            theirs = list(run)
            if is_known or chosen.may_have(theirs):
                self._offer_again(stream, theirs, chosen)
            else:
                self._edge.delivery.take_offers(stream, theirs, [chosen])
        self._home.decide(stream, records)

    def _offer_again(self, stream: HomeStream, records: list[Record], chosen: LocalSubscriber) -> None:
        """Offer records to the chosen local subscriber, one by one. The records may not be new at this router: a local
        subscriber has had them before, or the map of the chosen subscriber may name them."""
        for record in records:
            whom = stream.kind.offered(record, [chosen])
            if not whom and record.chosen == chosen.name:  # the chosen subscriber has already answered
                record.sum_up(verdict(record))
            self._give(record, whom)

    def _forward(self, stream: HomeStream, records: list[Record], entry: LinkEntry) -> None:
        offers = self._offers[entry.name]
        offers.offered += SubscriberRoom.of(records)
        for record in records:
            record.forwarded_to(entry.router)
            record.offered_in(offers)
        if not records[0].presettled:
            self.outlet.trace_records(Event.FORWARDED, stream, records, peer=entry.router)
        for _, run in groupby(enumerate(records), key=lambda one: one[1].n - one[0]):
            in_order = [record for _, record in run]
            only = entry.name, entry.epoch, OFFER
            self.outlet.batches.forward((entry.router,), stream, in_order, self.directory.applied, only)

    # The methods from here on handle reports from other routers.

    def room(self, name: bytes, epoch: Epoch, limit: SubscriberRoom) -> None:
        """Store the room that a subscriber at another router has announced. `limit`: the room that all offers to this
        attach together may take, counted from the beginning of the contact."""
        entry = self.directory.subscriber(name)
        if entry is None or not entry.live or entry.epoch != epoch:
            return
        known = self._offers.get(name)
        if known is None or known.epoch != epoch:
            known = self._offers[name] = _Offers(epoch)
        known.limit = limit
        self.offer_waiting_to(entry.identity.address)

    def drain(self, asked: Drain) -> None:
        """Answer whether a subscriber that drains has got all messages that this home has for it.

        A home offers messages as soon as there is room. So the answer is yes at once, except for a queue, which still
        has to agree to the offers.
        """
        entry = self.directory.subscriber(asked.subscriber)
        if entry is None or entry.epoch != asked.attach:
            self.given(asked)
        elif self._kinds.of(entry.identity.address).is_of_set:
            self.outlet.actions.append(ConsumerDrains(entry.identity.address, asked))
        else:
            self.given(asked, sum(len(stream.unassigned) for stream in self._streams.at(entry.identity.address)))

    def given(self, asked: Drain, left: int = 0, *, is_all: bool = True) -> None:
        """Answer the question `asked` of a subscriber's router. `left`: the number of messages that still wait here.
        `is_all`: the subscriber has got all messages for it."""
        router, answer = asked.attach.router, DrainAnswer.ALL if is_all else DrainAnswer.MORE
        if is_all and left and self._lacks_bytes(asked):
            answer = DrainAnswer.NO_BYTES
        if router == self.directory.router:
            self._edge.drains.given(router, asked, left, answer)
        elif router in self.directory.contacts:
            self.outlet.batches.given(asked, left, answer)

    def _lacks_bytes(self, asked: Drain) -> bool:
        """Whether the subscriber would take more deliveries now, but no more bytes."""
        entry = self.directory.subscriber(asked.subscriber)
        if entry is None or not entry.live or entry.epoch != asked.attach:
            return False
        room = self._room_of(entry)
        return room.size <= 0 < room.deliveries

    def handle_timer(self, now: float) -> None:
        """Offer the records whose rest is over."""
        for stream, records in self.rests.ended(now):
            stream.wait_for_room(records)
            self.offer_waiting(stream)

    def offer_waiting_to(self, address: str) -> None:
        """Give waiting records to a subscriber of this address, which has room now."""
        for stream in list(self._streams.at(address)):
            self.offer_waiting(stream)

    def refused(self, record: Record, router: str) -> None:
        """Handle a router's answer that none of its subscribers has taken the record.

        If the home had offered the record there (to the present attach, in this contact), the chosen subscriber counts
        as full until its router announces its room anew.
        """
        known = self._offers.get(record.chosen) if record.chosen else None
        if known is not None and record.last_offer is known:
            known.limit = known.offered

    def contact_lost(self, router: str) -> None:
        self._claims.pop(router, None)
        self._offers = {name: known for name, known in self._offers.items() if known.epoch.router != router}

    def gone(self, subscriber: LinkEntry) -> None:
        """Handle a subscriber that has ended, or has begun afresh. Its next link may be offered records that the
        subscriber had refused for itself."""
        name = subscriber.name
        self._offers.pop(name, None)
        for stream in self._streams.at(subscriber.identity.address):
            stream.may_be_offered(name)
            self._serve_next(stream, name)
            if stream.kind.is_of_set and stream.link is not None:
                self.outlet.actions.append(Forget(stream.link, name))

    def lapsed(self, subscriber: LinkEntry) -> None:
        """Handle a subscriber that has lapsed. If it was the only one that got the deliveries of a queue, choose
        another one."""
        for stream in list(self._streams.at(subscriber.identity.address)):
            self._serve_next(stream, subscriber.name)

    # The methods from here on are for queues that give all deliveries to one subscriber.

    def serve_one(self, stream: HomeStream, *, only: bool) -> None:
        """Set whether one subscriber gets all deliveries until it has ended (`only`), or all subscribers share them."""
        if only != stream.serves_one:
            stream.serve(None, only=only)
        self.offer_waiting(stream)

    def _serve_next(self, stream: HomeStream, gone: bytes) -> None:
        """Let another subscriber get the deliveries, if only one gets them and that one has gone."""
        if stream.served == gone:
            stream.serve(None)
            self.offer_waiting(stream)

    def _served(self, stream: HomeStream) -> Collection[LinkEntry]:
        """The subscribers that get deliveries now.

        If only one subscriber may get deliveries, this is the subscriber that already has some. If none has any, it is
        the subscriber with the earliest attach. Nobody gets deliveries while two subscribers have some, or while a
        subscriber that has ended has some.
        """
        subscribers = self.directory.subscribers(stream.address)
        if not stream.serves_one:
            return subscribers
        there = {entry.name: entry for entry in subscribers if entry.name not in self.directory.lapsed}
        if stream.served not in there and there:
            first = min(there.values(), key=lambda entry: (entry.epoch, entry.name))
            having = stream.having() or {first.name}
            if len(having) > 1 or not having <= there.keys():
                return ()
            stream.serve(*having)
        return [there[stream.served]] if stream.served in there else ()

    # The methods from here on end deliveries.

    def untold(self, stream: HomeStream, records: list[Record]) -> dict[Record, None]:
        """Decide the outcomes of records for which the home awaits no subscriber. Returns the records that no
        subscriber has accepted, and that another subscriber may still get."""
        left: dict[Record, None] = {}
        is_over = self._is_over(stream)
        for record in records:
            if record.taken:
                record.sum_up(None)
            elif is_over:
                stream.wait_no_more([record])
                record.sum_up(NOT_HAD)
            elif not self._is_refused(stream, record):
                left[record] = None
            else:
                stream.wait_no_more([record])
                record.sum_up(record.refusals or (0, 0, len(record.refused_by), 0))
        return left

    def _is_refused(self, stream: HomeStream, record: Record) -> bool:
        rejected, _, modified, _ = record.refusals or NOT_HAD
        if modified and record.chosen:
            record.refused_for_itself(record.chosen)
        is_used_up = record.tries + self._is_given_back(record) > self._redeliveries
        return bool(rejected) or is_used_up or (bool(record.refused_by) and self._is_for_nobody_else(stream, record))

    def _is_for_nobody_else(self, stream: HomeStream, record: Record) -> bool:
        """Whether all present subscribers have refused the record for themselves."""
        there = self._there(stream)
        return bool(there) and there.issubset(record.refused_by)

    def _is_over(self, stream: HomeStream) -> bool:
        """Whether the address has no subscriber now and will never get one."""
        return stream.kind.ends_with_subscribers and not self._there(stream)

    def is_there(self, subscriber: bytes) -> bool:
        """Whether the subscriber is still live, so that it can get deliveries now or later."""
        known = self.directory.subscriber(subscriber)
        return known is not None and known.live and subscriber not in self.directory.lapsed

    def _there(self, stream: HomeStream) -> set[bytes]:
        """The names of the address's live subscribers, which can get deliveries now or later."""
        return {entry.name for entry in self.directory.subscribers(stream.address)} - self.directory.lapsed.keys()

    def choose_again(self, stream: HomeStream, records: Iterable[Record]) -> None:
        """Let these records wait for another subscriber, because the chosen one has not got them, has given them back,
        or has gone. A record that was given back has its rest first (12.11). Leave out records that were decided
        meanwhile."""
        records = [record for record in records if not stream.is_waiting(record) and self._is_free(record)]
        if not records:
            return
        ready: list[Record] = []
        for record in records:
            rests = self._is_given_back(record) and bool((record.refusals or NOT_HAD)[1])
            record.offer_again(UNASSIGNED, given_back=self._is_given_back(record))
            if not (rests and self.rests.begin(stream, record)):
                ready.append(record)
        stream.wait_for_room(ready)
        without = [record for record in records if record.without]
        if without:
            self._home.leave_out(stream, without)
            for record in without:
                record.leave_out(NOBODY)
        self.offer_waiting(stream)

    @staticmethod
    def _is_given_back(record: Record) -> bool:
        """Whether the chosen subscriber has given the record back. If none is chosen, the home seeks a subscriber that
        may have the record. A return then only means that this subscriber does not have the record any more (12.3)."""
        _, released, modified, _ = record.refusals or NOT_HAD
        return bool(record.chosen and (released or modified))

    @staticmethod
    def _is_free(record: Record) -> bool:
        awaited = record.open or record.awaited or record.orphans or record.taken
        return record.state is State.IN_DOUBT and record.n >= 0 and not awaited
