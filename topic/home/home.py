"""The home rules: what a router does for the publishers attached to it (protocol section 5; 6.3, 6.5, 6.6).

Home computes the audience of each delivery, forwards it, and answers the publisher when nobody of the audience is
awaited. It alone knows what is in doubt. What local subscribers do with a record is `topic.edge.delivery`'s.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from topic.actions import AnswerDeliveries, Credit
from topic.delivery.outcomes import LOGGED, DeliveryOutcome, Refusals, add_refusals
from topic.delivery.record import Doubt, Record, State, Stream, accept, settle
from topic.delivery.records import RecordTable, in_ranges
from topic.directory.directory import Directory
from topic.directory.entry import AddressAudience
from topic.edge.edge import Edge
from topic.home.audiences import Audiences
from topic.home.lapses import Lapses
from topic.home.liveness import Liveness
from topic.home.resolution import Resolution
from topic.identity import Epoch
from topic.journal import Event
from topic.outlet import Outlet


class Home:
    """The streams of this router's own publishers."""

    def __init__(self, outlet: Outlet, records: RecordTable, directory: Directory, redeliveries: int) -> None:
        self.outlet = outlet
        self.records = records
        self.directory = directory
        self.edge = Edge(outlet, records, directory, redeliveries, self.evaluate)
        self.booted = False
        """Nobody is answered before that (protocol 8, Boot)."""
        self.streams: dict[bytes, Stream] = {}
        """By publisher name; the current epoch only."""
        self._undecided: dict[Stream, None] | None = None
        """What is to be evaluated when an event is taken in; None if at once."""
        self.liveness = Liveness(outlet, records, self._settle_doubt)
        self.audiences = Audiences(self.edge, self.liveness, self.streams, self.evaluate)
        self.resolution = Resolution(self.edge, self.liveness)
        self.lapses = Lapses(self.edge, self.audiences, self.streams, self.evaluate)

    # publish: hot

    def publish(self, stream: Stream, tags: list[bytes], messages: list[bytes], *, presettled: bool) -> list[Record]:
        """A batch of transfers of one publisher, in order; returns their records, in the same order."""
        if stream.expected or stream.unconfirmed:
            again = partial(self._publish_again, stream, presettled=presettled)
            return [again(tag, message) for tag, message in zip(tags, messages, strict=True)]
        key = stream.keys.key
        return self._publish_new(stream, list(map(key, tags)), tags, messages, presettled=presettled)

    def _publish_new(
        self, stream: Stream, keys: list[bytes], tags: list[bytes], messages: list[bytes], *, presettled: bool
    ) -> list[Record]:
        records = [Record(stream, *columns) for columns in zip(keys, tags, messages, strict=True)]
        stream.received += len(records)
        stream.unsettled += len(records)
        if presettled:
            for record in records:
                record.presettled = True
        asked = stream.doubts and any(stream.is_open(key) for key in keys)
        if stream.withheld or asked or not (presettled or self.records.enter(records)):
            stream.withheld.extend(records)
            self._release(stream)
        else:
            self._spread(stream, records, self.edge.delivery.take)
        return records

    def _publish_again(self, stream: Stream, tag: bytes, message: bytes, *, presettled: bool) -> Record:
        """A transfer while some deliveries of the publisher's map are expected: it may be one of them."""
        key = stream.keys.key(tag)
        is_expected = stream.expected.pop(key, None) is not None
        record = self.edge.unconfirmed.take(stream, key) if is_expected else None
        if is_expected and presettled:
            self._give_up(stream, key, record)
        if record is None or presettled:
            (record,) = self._publish_new(stream, [key], [tag], [message], presettled=presettled)
            return record
        record.message = message
        return self._again(stream, tag, record)

    def _again(self, stream: Stream, tag: bytes, record: Record) -> Record:
        """A delivery that was unconfirmed here: in this epoch it has an audience from now on (7.3)."""
        stream.received += 1
        stream.unsettled += 1
        record.tag = tag
        if stream.withheld:
            stream.withheld.append(record)
        else:
            self._spread(stream, [record], self.edge.delivery.take_again)
        return record

    def _release(self, stream: Stream) -> None:
        """A withheld delivery goes on when its key is free again, and nobody waits to hear of an older one of that key;
        and not before those ahead of it."""
        while stream.withheld:
            record = stream.withheld[0]
            goes_on = record.state is State.IN_DOUBT
            if goes_on and stream.doubts and stream.is_open(record.key):
                return
            again = self.records.by_key.get(record.key) is record
            if goes_on and not (again or record.presettled or self.records.enter([record])):
                self.records.busy_keys[record.key] = stream
                return
            stream.withheld.popleft()  # before it is spread: that may settle it at once, and come back here
            if goes_on:
                self._spread(stream, [record], self.edge.delivery.take_again if again else self.edge.delivery.take)

    def _spread(self, stream: Stream, records: list[Record], take: Callable[[Stream, list[Record]], None]) -> None:
        audience = self.directory.audience(stream.address)
        first = stream.next_n
        stream.next_n += len(records)
        routers = audience.routers
        for n, record in enumerate(records, first):
            record.n = n
            record.routers = routers
            record.awaited = set(routers)
            stream.records[n] = record
        if not audience.size:
            stream.alone = stream.next_n
        if (audience.orphans or audience.lapsed) and not records[0].presettled:
            for record in records:
                record.orphans = set(audience.orphans)
                record.without = audience.lapsed
        if not records[0].presettled:
            self._trace_received(stream, records, audience, first)
        if routers:
            self.outlet.batches.forward(routers, stream, records, self.directory.applied, None)
        take(stream, records)
        self.evaluate(stream, records)

    def _trace_received(self, stream: Stream, records: list[Record], audience: AddressAudience, first: int) -> None:
        trace = self.outlet.trace_records
        tags = [record.tag for record in records]
        trace(Event.RECEIVED, stream, records, n=first, tags=tags, generation=stream.generation)
        trace(Event.AUDIENCE, stream, records, detail=audience.detail)
        for router in audience.routers:
            trace(Event.FORWARDED, stream, records, peer=router)

    # outcomes: hot

    def outcome(self, router: str, publisher: bytes, epoch: Epoch, ranges: list[int]) -> None:
        """All subscribers at `router` accepted these."""
        stream = self._current(publisher, epoch)
        if stream is not None:
            records = in_ranges(stream, ranges)
            for record in records:
                if record.state is State.IN_DOUBT:
                    record.awaited.discard(router)
            self.evaluate(stream, records)

    def outcome_in_full(
        self, router: str, publisher: bytes, epoch: Epoch, n: int, refusals: Refusals | None, moved: list[bytes]
    ) -> None:
        """The outcome of one delivery at `router`, with who refused it and who left before having it."""
        stream = self._current(publisher, epoch)
        record = stream.records.get(n) if stream is not None else None
        if stream is None or record is None or record.state is not State.IN_DOUBT:
            return
        record.refusals = add_refusals(record.refusals, refusals)
        record.awaited.discard(router)
        for name in moved:
            self.audiences.seek(record, name, not_at=router)
        self.evaluate(stream, [record])

    def _current(self, publisher: bytes, epoch: Epoch) -> Stream | None:
        stream = self.streams.get(publisher)
        return stream if stream is not None and stream.epoch == epoch else None

    def evaluate(self, stream: Stream, records: list[Record]) -> None:
        """Answer the publisher of those that nobody of the audience is awaited for (protocol 5, Accept)."""
        if not self.booted:
            return
        if self._undecided is not None:
            self._undecided[stream] = None
            return
        assert not stream.abandoned, "an abandoned stream has no publisher to answer"
        done = [
            record
            for record in records
            if not record.open and not record.awaited and not record.orphans
            if record.state is State.IN_DOUBT and record.n >= 0  # else its audience is not computed in this epoch
        ]
        presettled = [record for record in done if record.presettled]
        if presettled:
            self._handed_on(stream, presettled)
        if len(presettled) < len(done):  # last: what is accepted without somebody ends it, and that decides more
            self._accept(stream, [record for record in done if not record.presettled])

    def _handed_on(self, stream: Stream, records: list[Record]) -> None:
        """Presettled: every edge has handed them on or dropped them."""
        settle(records)
        for record in records:
            self.records.forget(record)
        self._grant(stream, len(records))

    @contextmanager
    def deciding_later(self) -> Iterator[None]:
        """Nothing is accepted in the middle of an event: who is told of last may have to be awaited, too."""
        assert self._undecided is None
        undecided = self._undecided = {}
        try:
            yield
        finally:
            self._undecided = None
        for stream in undecided:
            if self.streams.get(stream.publisher) is stream:
                self.evaluate(stream, list(stream.records.values()))

    def evaluate_all(self) -> None:
        for stream in list(self.streams.values()):
            self.evaluate(stream, list(stream.records.values()))

    def _accept(self, stream: Stream, records: list[Record]) -> None:
        accept(records)
        leaving_out = [record for record in records if record.without and record.refusals is None]
        if leaving_out:
            self.lapses.accepted(stream, leaving_out)
        if stream.link is not None:
            self._tell(stream, records)
            if stream.gates:
                self.audiences.told(stream, records)

    def _tell(self, stream: Stream, records: list[Record]) -> None:
        accepted = [record for record in records if record.refusals is None]
        for record in records if len(accepted) < len(records) else ():
            if record.refusals is not None:
                text = "rejected by {}, released by {}, modified by {} subscribers".format(*record.refusals)
                self._answer(stream, [record], DeliveryOutcome.REJECTED, text)
        if accepted:
            self._answer(stream, accepted, DeliveryOutcome.ACCEPTED, "")
        if stream.settles_first:
            self.settle(stream, records)

    def _answer(self, stream: Stream, records: list[Record], outcome: DeliveryOutcome, text: str) -> None:
        self.outlet.trace_records(Event.ACCEPTED, stream, records, outcome=LOGGED[outcome])
        alone = 0
        if records[0].n < stream.alone:  # an audience may also have grown since
            alone = sum(not record.routers and not record.locals for record in records)
        self.outlet.actions.append(AnswerDeliveries(stream.link, records, outcome, text, stream.settles_first, alone))

    # a publisher that comes back, here or from elsewhere

    def suspend(self, stream: Stream) -> None:
        """Its connection is gone: outcomes wait for it."""
        stream.link = None
        stream.unsettled = 0
        stream.proving = None

    def supersede(self, stream: Stream) -> None:
        """The publisher has a later attach: what is in doubt is unconfirmed now, and its gates fall (6.5, 7.4)."""
        del self.streams[stream.publisher]
        stream.link = None
        stream.gates.clear()
        self.edge.unconfirmed.hold(stream)
        done = [record for record in stream.records.values() if record.state is State.SETTLED]
        for record in done:
            record.awaited.clear()
        self.edge.receipts.forget([record for record in done if not record.unknowing])

    def begin_afresh(self, stream: Stream, *, says_so: bool) -> None:
        """A new life (7.5). With a null map the publisher says that nothing of its older ones is in doubt. One that
        brought a map, and learns that nobody knows its life, may have gone on with it elsewhere: it has to show that it
        is here (6.6)."""
        if says_so:
            self.edge.settlement.close(stream, list(stream.unconfirmed.values()))
        elif stream.unconfirmed:
            self.liveness.doubt(stream, (self.outlet.router, sorted(stream.unconfirmed)))

    def resume(self, stream: Stream, said: Mapping[bytes, int], *, complete: bool) -> None:
        """A publisher attached with its unsettled map, by tag. What the map states an outcome of it has settled, and,
        unless the attach came late, what it lacks; the rest is in doubt, and transferred again (7.2). Our map is what
        we hold of that. What an incomplete map lacks stays in doubt until the next attach."""
        stream.partial = not complete
        doubted = [tag for tag, state in said.items() if state not in TERMINAL]
        stream.expected = {stream.keys.key(tag): tag for tag in doubted}
        stated = {stream.keys.key(tag) for tag in said} - stream.expected.keys()
        self.edge.settlement.close(stream, [record for key, record in stream.unconfirmed.items() if key in stated])
        lacking = stream.unconfirmed.keys() - stream.expected.keys() - stated
        if complete and lacking:
            self.liveness.doubt(stream, (self.outlet.router, sorted(lacking)))
        held = [(key, record) for key, record in stream.unconfirmed.items() if key in stream.expected]
        stream.reply = {stream.expected[key]: 0 for key, record in held if record.message is not None}

    def transferred_again(self, stream: Stream, tag: bytes, *, aborted: bool) -> Record | None:
        """A transfer with resume=true; None for a tag that our map did not list, or has been transferred already."""
        key = stream.keys.key(tag)
        record = stream.unconfirmed.get(key)
        if record is None or record.message is None or stream.expected.pop(key, None) is None:
            return None
        self.edge.unconfirmed.take(stream, key)
        if not aborted:
            return self._again(stream, tag, record)
        self._give_up(stream, key, record)
        stream.unsettled += 1  # it took credit all the same
        self._grant(stream, 1)
        return record

    def _give_up(self, stream: Stream, key: bytes, record: Record | None) -> None:
        """The publisher does not want to know of it any more, whether it is here or not."""
        self.resolution.tell_askers(stream, [key])
        if record is not None:
            self.edge.settlement.close(stream, [record])

    # evidence

    def _settle_doubt(self, stream: Stream, doubt: Doubt, answered: bool) -> None:
        if isinstance(doubt, bytes):
            self.audiences.proven(stream, doubt)
        elif isinstance(doubt, tuple):
            self.resolution.answer(doubt[0], stream, doubt[1])
        elif answered:
            self.audiences.open_gates(stream, doubt)

    # settlement: hot

    def settle(self, stream: Stream, records: list[Record]) -> None:
        """The publisher has settled these (protocol 5, Settle); before an outcome, it abandons them."""
        abandoned = [record for record in records if record.state is State.IN_DOUBT]
        settled = records if not abandoned else [r for r in records if r.state is State.ACCEPTED]
        for event, run in ((Event.SETTLED, settled), (Event.ABANDONED, abandoned)):
            if run:
                self._settle(stream, run, event)
        self._grant(stream, len(settled) + len(abandoned))

    def _settle(self, stream: Stream, records: list[Record], event: Event) -> None:
        self.outlet.trace_records(event, stream, records)
        self.edge.settlement.settle_locals(records)
        known: list[Record] = []
        settle = self.outlet.batches.settle
        for record in records:
            routers = record.routers
            if routers:
                record.awaited = set(routers)
                settle(routers, stream, record.n)
            else:
                known.append(record)
        self.records.spent += records
        known = [record for record in known if not record.unknowing]
        if stream.asked:
            self.resolution.tell_askers(stream, [record.key for record in records])
        if stream.gates:
            self.audiences.open_gates(stream, records)
        if known:
            self.edge.receipts.forget(known)

    def settled(self, router: str, publisher: bytes, epoch: Epoch, ranges: list[int]) -> None:
        """`router` has settled its subscribers; the last one to say so lets us forget."""
        stream = self._current(publisher, epoch)
        if stream is None:
            return
        records = [record for record in in_ranges(stream, ranges) if record.state is State.SETTLED]
        for record in records:
            record.awaited.discard(router)
        known = [record for record in records if not record.awaited and not record.unknowing]
        if known:
            self.edge.receipts.forget(known)

    def release_freed(self) -> None:
        """Older deliveries were forgotten, here or at the edge: what waited for their keys goes on. Only at the end of
        an event: in its middle the directory may be ahead of who is joined."""
        freed = self.records.freed
        while freed:
            stream = freed.pop(0)
            if stream.here:
                self._release(stream)
            else:
                self.edge.release(stream)

    def _grant(self, stream: Stream, count: int) -> None:
        if count and stream.link is not None:
            stream.unsettled -= count
            assert stream.unsettled >= 0
            self.outlet.actions.append(Credit(stream.link, count))

    # subscribers that move or go

    def gone(self, subscriber: bytes) -> None:
        """The subscriber has closed or expired: it is out of every audience and behind no gate."""
        for stream in list(self.streams.values()):
            stream.gates.pop(subscriber, None)
            awaited = [record for record in stream.records.values() if subscriber in record.orphans]
            for record in awaited:
                record.orphans.discard(subscriber)
            self.evaluate(stream, awaited)

    def lost(self, router: str) -> None:
        """The router is out of contact: its subscribers are awaited as orphans instead, unless they expired with it
        (protocol 8, Lost router)."""
        for stream in list(self.streams.values()):
            for askers in stream.asked.values():
                askers.discard(router)
            for record in list(stream.records.values()):
                if router in record.routers:
                    record.routers = tuple(other for other in record.routers if other != router)
                if router in record.awaited:
                    record.awaited.discard(router)
                    if record.state is State.IN_DOUBT:
                        self.audiences.lost(record, router)
                    elif not record.awaited and not record.unknowing:
                        self.edge.receipts.forget([record])
            self.evaluate(stream, list(stream.records.values()))

    # publishers that go

    def abandon(self, stream: Stream) -> None:
        """The publisher is gone: every router delivers and settles what it holds, and so do we (7.5)."""
        self.streams.pop(stream.publisher, None)
        stream.abandoned = True
        stream.link = None
        for gate in [gate for gate in stream.gates.values() if not gate.unproven]:  # else it falls where it stands
            self.audiences.admit(stream, gate)
        stream.gates.clear()
        self.edge.unconfirmed.take_back(stream)
        stream.doubts.clear()
        self.edge.abandon_unconfirmed(stream)
        records = list(stream.records.values())
        for record in records:
            record.awaited.clear()
            record.orphans.clear()
            if record.presettled:
                self.records.forget(record)
        self.edge.receipts.forget(
            [r for r in records if r.state is State.SETTLED and not r.presettled and not r.unknowing]
        )
        done = [r for r in stream.records.values() if r.state is not State.SETTLED and not r.open]
        self.edge.settlement.close(stream, done)


TERMINAL = frozenset(DeliveryOutcome)
