"""The home of a router's local publishers (protocol 5; 6.3, 6.5, 6.6).

The home computes the audience of each delivery and forwards it (`topic.home.publishing`). It answers the publisher when
no outcome of the delivery is awaited any more. Only the home knows which deliveries are in doubt. `topic.edge.delivery`
gives records to local subscribers. `topic.home.settlement` settles the deliveries.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from topic.actions import AnswerDeliveries, Cause
from topic.delivery.kinds import AddressKinds
from topic.delivery.outcomes import GONE, LOGGED, NOT_HAD, TERMINAL, DeliveryOutcome, Refusals
from topic.delivery.record import HomeStream, Question, Record, State, Stream, accept, answered_by, outcome_kept, settle
from topic.delivery.records import RecordTable, given_in, in_ranges
from topic.delivery.room import Drain
from topic.delivery.streams import Streams
from topic.directory.directory import Directory
from topic.edge.edge import Edge
from topic.edge.subscriber import LocalSubscriber
from topic.home.audiences import Audiences
from topic.home.balancing import Balancing
from topic.home.lapses import Endings, Lapses
from topic.home.liveness import Liveness
from topic.home.publishing import Publishing
from topic.home.resolution import Resolution
from topic.home.settlement import HomeSettlement
from topic.identity import Epoch, is_ingress
from topic.journal import BY_TTL, Event
from topic.outlet import Outlet
from topic.settings import Settings

EXPIRED: Final = "the message's time to live ended before any subscriber got it"
WITHOUT: Final = (None, GONE)
"""A lapsed subscriber may have been left out of a record's audience only if the record's `refusals` have one of these
values. None: no subscriber has refused the record. GONE: the chosen subscriber has gone."""
FULL: Final = "the queue is full, or its set has as many queues as it may have"
CLOSED: Final = "the link for which this address was created has ended"


class Home:
    """The home of this router's local publishers."""

    def __init__(
        self,
        outlet: Outlet,
        records: RecordTable,
        directory: Directory,
        settings: Settings,
        kinds: AddressKinds,
        links: Endings,
    ) -> None:
        """`links`: ends the link of a subscriber if the home has accepted a message without it."""
        self.outlet = outlet
        self.records = records
        self.directory = directory
        self.edge = Edge(outlet, records, directory, settings, kinds, self)
        self.booted = False
        """Whether the router has booted. Until then the home answers no publisher (protocol 8, Boot)."""
        self.streams = Streams[HomeStream]()
        self._undecided: dict[HomeStream, None] | None = None
        """The streams whose records the home decides at the end of the event. None if it decides them at once."""
        self.liveness = Liveness(outlet, records, self)
        self.audiences = Audiences(self.edge, self.liveness, self.streams, self)
        self.lapses = Lapses(self.edge, self.audiences, self.streams, self, links)
        self.balancing = Balancing(self.edge, self.streams, settings, self)
        self.resolution = Resolution(self.edge, self.liveness, self)
        self.settlement = HomeSettlement(self.edge, self.audiences, self.resolution)
        self.publishing = Publishing(self.edge, self.settlement, self, self.streams, settings.piece)

    # The methods from here on are about outcomes. This code runs for every message.

    def current(self, publisher: bytes, epoch: Epoch) -> HomeStream | None:
        """The publisher's stream if this router is its home in this epoch; otherwise None."""
        stream = self.streams.get(publisher)
        return stream if stream is not None and stream.epoch == epoch else None

    def outcome(self, router: str, stream: HomeStream, ranges: list[int]) -> None:
        """Take the report that all subscribers at `router` have accepted these deliveries."""
        records = [record for record in in_ranges(stream, ranges) if record.state is State.IN_DOUBT]
        answered_by(router, records)
        stream.kind.accepted(records)
        self.decide(stream, records)

    def outcome_in_full(
        self,
        router: str,
        stream: HomeStream,
        n: int,
        refusals: Refusals | None,
        moved: list[bytes],
        annotations: bytes = b"",
    ) -> None:
        """Take the report of `router` about one delivery.

        `refusals`: how many subscribers have refused it, and how. `moved`: the subscribers that left before they had
        it. `annotations`: what a consumer of a queue has added to the message.
        """
        record = stream.records.get(n)
        if record is None or record.state is not State.IN_DOUBT:
            return
        record.count(refusals)
        if annotations:
            record.annotate(annotations)
        record.await_router_no_more(router)
        if refusals is None:
            stream.kind.accepted([record])
        else:
            stream.kind.refused(self, record, router, refusals, moved)
        for name in moved if not stream.kind.is_over(record) else ():
            self.audiences.seek(record, name, not_at=router)
        self.decide(stream, [record])

    def decide(self, stream: HomeStream, records: list[Record]) -> None:
        """Answer the publisher for each of these records for which no outcome is awaited any more (protocol 5,
        Accept)."""
        if not self.booted:
            stream.kind.decide_early(self, stream, records)
            return
        if self._undecided is not None:
            self._undecided[stream] = None
            return
        assert not stream.abandoned, "an abandoned stream has no publisher to answer"
        done = [
            record
            for record in records
            if not record.open and not record.awaited and not record.orphans
            if record.state is State.IN_DOUBT and record.n >= 0  # a record without `n` has no audience yet
        ]
        presettled = [record for record in done if record.presettled]
        if presettled:
            self._handed_on(stream, presettled)
        # Accept these records last, because that may end the link of a lapsed subscriber.
        if len(presettled) < len(done):
            stream.kind.decide(self, stream, [record for record in done if not record.presettled])

    def forward_to_all(
        self, stream: HomeStream, records: list[Record], take: Callable[[HomeStream, list[Record]], None]
    ) -> None:
        """Forward new transfers to all subscribers of the address."""
        self.publishing.forward_to_all(stream, records, take)

    def _handed_on(self, stream: HomeStream, records: list[Record]) -> None:
        """End presettled records: every edge has handed them on or dropped them."""
        settle(records)
        self.records.forget(stream, records)
        self.settlement.free_window(stream, records)

    @contextmanager
    def deciding_later(self) -> Iterator[None]:
        """Within this context, put decisions off to the end of the event, because another subscriber may still join the
        audience in the same event."""
        assert self._undecided is None
        undecided = self._undecided = {}
        try:
            yield
        finally:
            self._undecided = None
        for stream in undecided:
            if self.streams.get(stream.publisher) is stream:
                self.decide(stream, list(stream.records.values()))

    def decide_all(self) -> None:
        for stream in list(self.streams.values()):
            self.decide(stream, list(stream.records.values()))

    def accept(self, stream: HomeStream, records: list[Record]) -> None:
        """Answer the publisher with *accepted*, or with the outcome that follows from the refusals. If the publisher
        has transferred the delivery again as settled, it gets no outcome, and the home settles the delivery now
        (7.3)."""
        over = stream.settled_of(records)
        if over:
            records = [record for record in records if record not in stream.settled_again]
        if records:
            self._accept(stream, records)
        if over:  # accepted last, for the same reason as in `decide`
            stream.settle_again(over)
            self.settlement.settle(stream, over)

    def _accept(self, stream: HomeStream, records: list[Record]) -> None:
        accept(records)
        leaving_out = [record for record in records if record.without and record.refusals in WITHOUT]
        if leaving_out:
            self.lapses.accepted(stream, leaving_out)
        if stream.link is not None:
            self._tell(stream, records)
            if stream.gates:
                self.audiences.outcome_sent(stream, records)

    def _tell(self, stream: HomeStream, records: list[Record]) -> None:
        accepted = [record for record in records if record.refusals is None]
        for record in records if len(accepted) < len(records) else ():
            if record.refusals is None:
                continue
            outcome = stream.kind.outcome(record.refusals)
            if outcome is not DeliveryOutcome.REJECTED:
                self._answer(stream, [record], outcome, "")
            elif record.refusals == NOT_HAD:
                self._answer(stream, [record], outcome, CLOSED, Cause.GONE)
            else:
                text = "rejected by {}, released by {}, modified by {} subscribers".format(*record.refusals)
                why = (FULL, Cause.FULL) if is_ingress(stream.address) else (text, Cause.REFUSED)
                self._answer(stream, [record], outcome, *why)
        if accepted:
            self._answer(stream, accepted, DeliveryOutcome.ACCEPTED, "")
        if stream.settles_first:
            self.settlement.settle(stream, records)

    def seek_all(self, records: list[Record], name: bytes) -> None:
        """Await this subscriber for these records, wherever it is attached."""
        self.audiences.seek_all(records, name)

    def expire(self, stream: HomeStream, records: list[Record]) -> None:
        """End records whose time to live ended before any subscriber got them (protocol 5, Time to live)."""
        self._handed_on(stream, [record for record in records if record.presettled])
        ended = [record for record in records if not record.presettled]
        accept(ended)
        self.audiences.take_back(stream, [record for record in ended if record.n >= 0])
        if ended:
            self._answer(stream, ended, DeliveryOutcome.REJECTED, EXPIRED, Cause.EXPIRED)
            if stream.settles_first:
                self.settlement.settle(stream, ended)
            if stream.gates:
                self.audiences.outcome_sent(stream, ended)
        if stream.withheld:
            self.records.unblocked.append(stream)

    def _answer(
        self,
        stream: HomeStream,
        records: list[Record],
        outcome: DeliveryOutcome,
        text: str,
        cause: Cause = Cause.REFUSED,
    ) -> None:
        detail = {"detail": BY_TTL} if cause is Cause.EXPIRED else {}
        self.outlet.trace_records(Event.ACCEPTED, stream, records, outcome=LOGGED[outcome], **detail)
        alone = 0
        # `decide` checks each record again, because its audience may have grown since.
        if records[0].n < stream.alone:
            alone = sum(not record.routers and not record.locals for record in records)
        self.outlet.actions.append(
            AnswerDeliveries(stream.link, records, outcome, text, stream.settles_first, alone, cause)
        )

    # The methods from here on are about a publisher that attaches again, here or at another router.

    def supersede(self, stream: HomeStream, new: Stream) -> None:
        """End this stream, because the publisher has a later attach with the stream `new`. The deliveries in doubt
        become unconfirmed, and the publisher's gates end (6.5, 7.4)."""
        assert self.streams[stream.publisher] is stream
        self.streams.discard(stream)
        self.publishing.gone(stream)
        stream.supersede()
        self.edge.unconfirmed.hold(stream)
        done = list(stream.records.values())  # all records that are left are settled
        self.resolution.hand_over(stream, [record.key for record in done if record.awaited], new)
        for record in done:
            record.await_no_router()
        self.edge.receipts.forget([record for record in done if not record.unread])

    def handed_over(self, publisher: bytes, epoch: Epoch, keys: list[bytes]) -> None:
        """Take keys that a former home of the publisher sends, because it has learnt of the attach with this epoch. The
        publisher settled the deliveries with these keys before that attach (5, Reused tags)."""
        if (stream := self.current(publisher, epoch)) is not None:
            self.resolution.handed_over(stream, keys)

    def settled_elsewhere(self, router: str, publisher: bytes, epoch: Epoch, ranges: list[int]) -> None:
        """Take a Settle of the publisher's present or former home. If it is from a former home, this router may already
        know a later attach of the publisher."""
        stream: Stream | None = self.streams.get(publisher) or self.edge.streams.get(publisher)
        if stream is not None and stream.epoch > epoch and (late := given_in(stream, epoch, ranges)):
            self.resolution.settled_late(stream, late)
        self.edge.settle(router, publisher, epoch, ranges)

    def begin_afresh(self, stream: HomeStream, *, says_so: bool) -> None:
        """Begin a new life of a publisher (7.5).

        `says_so`: the publisher attached with a null map, so no delivery of its older lives is in doubt. Otherwise the
        publisher attached with a map, but no router knows its life. It may have continued that life elsewhere, so it
        first has to give a sign of life (6.6).
        """
        if says_so:
            self.edge.settlement.close(stream, list(stream.unconfirmed.values()))
        elif stream.unconfirmed:
            self.liveness.question(stream, (self.outlet.router, sorted(stream.unconfirmed)))

    def resume(self, stream: HomeStream, client_map: Mapping[bytes, int], *, complete: bool) -> None:
        """Resume a publisher that attached with its unsettled map, keyed by tag (7.2).

        A delivery to which the map gives a final outcome is settled. A delivery that a complete map lacks is settled,
        too, but only after a sign of the publisher's life, because the attach may be late. All other deliveries are in
        doubt, and the publisher transfers them again. This router's map lists the deliveries in doubt whose messages
        this router has. If the map is not `complete`, a delivery that it lacks may be in doubt, too.
        """
        doubted = [tag for tag, state in client_map.items() if state not in TERMINAL]
        stream.resume({stream.keys.key(tag): tag for tag in doubted}, complete=complete)
        stated = {stream.keys.key(tag) for tag in client_map} - stream.expected.keys()
        self.edge.settlement.close(stream, [record for key, record in stream.unconfirmed.items() if key in stated])
        lacking = stream.unconfirmed.keys() - stream.expected.keys() - stated
        if complete and lacking:
            self.liveness.question(stream, (self.outlet.router, sorted(lacking)))
        held = [(key, record) for key, record in stream.unconfirmed.items() if key in stream.expected]
        stream.list_held(key for key, record in held if record.message is not None)

    def transferred_again(self, stream: HomeStream, tag: bytes, *, settled: bool = False) -> Record | None:
        """Take a transfer with resume=true. Returns None if this router's map did not list the tag, or if the publisher
        has already transferred it."""
        key = stream.keys.key(tag)
        record = stream.unconfirmed.get(key)
        if record is None or record.message is None or stream.came_again(key) is None:
            return None
        self.edge.unconfirmed.take(stream, key)
        return self.publishing.publish_again(stream, tag, record, settled=settled)

    def abort(self, stream: HomeStream, tag: bytes) -> None:
        """Take an aborted transfer. If the publisher's map has the delivery, the publisher gives it up, whether or not
        the home has it. The home tells the routers that have asked about the delivery that it is settled."""
        key = stream.keys.key(tag)
        if stream.came_again(key) is not None:
            self.give_up(stream, key, self.edge.unconfirmed.take(stream, key))

    def give_up(self, stream: HomeStream, key: bytes, record: Record | None) -> None:
        """Handle a delivery that the publisher gives up. `record`: its record; None if the home has none."""
        self.resolution.tell_askers(stream, [key])
        if record is not None:
            self.edge.settlement.close(stream, [record], abandoned=True)

    # The parts of the home, and the edge, call the methods from here on.

    def leave_out(self, stream: HomeStream, records: list[Record]) -> None:
        """End the links of lapsed subscribers: the home accepts these records without them."""
        self.lapses.accepted(stream, records)

    def resolve_here(self, stream: HomeStream, keys: list[bytes]) -> None:
        """Tell the edge of this router which of these keys are settled."""
        self.resolution.resolve(self.outlet.router, stream, keys)

    def has_room(self, subscriber: LocalSubscriber) -> None:
        """Offer waiting records, because a local subscriber has room for deliveries."""
        self.balancing.offer_waiting_to(subscriber.identity.address)

    def drain(self, asked: Drain) -> None:
        """Answer the question of a local subscriber that drains."""
        self.balancing.drain(asked)

    def answer_question(self, stream: HomeStream, question: Question, *, answered: bool) -> None:
        """The publisher has given a sign of life that answers this question: act on it. `answered`: the publisher
        itself has answered; otherwise its machine has acknowledged the bytes."""
        if isinstance(question, bytes):
            self.audiences.proven(stream, question)
            self.balancing.offer_waiting(stream)  # perhaps the subscriber announced its room before the answer came
        elif isinstance(question, tuple):
            self.resolution.answer(question[0], stream, question[1])
        elif answered:
            outcome_kept(question)
            self.audiences.open_gates(stream, question)

    # The methods from here on are about publishers that are gone.

    def abandon(self, stream: HomeStream, followed_by: bytes | None) -> None:
        """End a publisher's life. Every router, including this one, delivers and settles the records that it has (7.5).
        `followed_by`: the generation of the publisher's next life, if the next life has ended this one."""
        self.streams.discard(stream)
        self.publishing.gone(stream)
        stream.abandon(followed_by)
        # If the publisher is gone, a gate that waits for its sign of life ends without an Admit.
        for gate in [gate for gate in stream.gates.values() if not gate.unproven]:
            self.audiences.admit(stream, gate)
        stream.drop_gates()
        self.edge.unconfirmed.take_back(stream)
        stream.ask_no_more()
        self.edge.abandon_unconfirmed(stream)
        records = list(stream.records.values())
        for record in records:
            record.await_nobody()
        self.records.forget(stream, [record for record in records if record.presettled])
        self.edge.receipts.forget([record for record in records if record.state is State.SETTLED and not record.unread])
        done = [r for r in stream.records.values() if r.state is not State.SETTLED and not r.open]
        self.edge.settlement.close(stream, done)
