"""What a router does for the publishers attached to it (protocol 5; 6.3, 6.5, 6.6).

Home computes the audience of each delivery and forwards it (`topic.home.publishing`). It answers the publisher when
nobody of the audience is awaited. Home alone knows what is in doubt. What local subscribers do with a record is
`topic.edge.delivery`'s business, settlement `topic.home.settlement`'s.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from topic.actions import AnswerDeliveries, Cause
from topic.delivery.kinds import AddressKinds
from topic.delivery.outcomes import GONE, LOGGED, NOT_HAD, TERMINAL, DeliveryOutcome, Refusals
from topic.delivery.record import HomeStream, Question, Record, State, Stream, accept, answered_by, outcome_kept, settle
from topic.delivery.records import RecordTable, given_in, in_ranges
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
"""What a record is over with if some that were awaited are left out."""
FULL: Final = "the queue is full, or its set has as many queues as it may have"
CLOSED: Final = "the link for which this address was created has ended"


class Home:
    """The streams of this router's own publishers."""

    def __init__(
        self,
        outlet: Outlet,
        records: RecordTable,
        directory: Directory,
        settings: Settings,
        kinds: AddressKinds,
        links: Endings,
    ) -> None:
        """`links` ends those that something is accepted without."""
        self.outlet = outlet
        self.records = records
        self.directory = directory
        self.edge = Edge(outlet, records, directory, settings, kinds, self)
        self.booted = False
        """Nobody is answered before that (protocol 8, Boot)."""
        self.streams = Streams[HomeStream]()
        self._undecided: dict[HomeStream, None] | None = None
        """Streams to evaluate at the end of the event; None if they are evaluated at once."""
        self.liveness = Liveness(outlet, records, self)
        self.audiences = Audiences(self.edge, self.liveness, self.streams, self)
        self.lapses = Lapses(self.edge, self.audiences, self.streams, self, links)
        self.balancing = Balancing(self.edge, self.streams, settings.redeliveries, self)
        self.resolution = Resolution(self.edge, self.liveness, self)
        self.settlement = HomeSettlement(self.edge, self.audiences, self.resolution)
        self.publishing = Publishing(self.edge, self.settlement, self, self.streams, settings.piece)

    # outcomes: hot

    def current(self, publisher: bytes, epoch: Epoch) -> HomeStream | None:
        """The publisher's stream if this router is its home under that epoch."""
        stream = self.streams.get(publisher)
        return stream if stream is not None and stream.epoch == epoch else None

    def outcome(self, router: str, stream: HomeStream, ranges: list[int]) -> None:
        """All subscribers at `router` accepted these."""
        records = [record for record in in_ranges(stream, ranges) if record.state is State.IN_DOUBT]
        answered_by(router, records)
        stream.kind.accepted(records)
        self.evaluate(stream, records)

    def outcome_in_full(
        self,
        router: str,
        stream: HomeStream,
        n: int,
        refusals: Refusals | None,
        moved: list[bytes],
        annotations: bytes = b"",
    ) -> None:
        """Take the outcome of one delivery at `router`: how many have refused it, the names of subscribers that left
        before they had it, and what a consumer of a queue has added to the message."""
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
        self.evaluate(stream, [record])

    def evaluate(self, stream: HomeStream, records: list[Record]) -> None:
        """Answer the publisher of those records that nobody is awaited for (protocol 5, Accept)."""
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
            if record.state is State.IN_DOUBT and record.n >= 0  # else its audience is not computed in this epoch
        ]
        presettled = [record for record in done if record.presettled]
        if presettled:
            self._handed_on(stream, presettled)
        if len(presettled) < len(done):  # last: what is accepted without somebody ends it, and that decides more
            stream.kind.decide(self, stream, [record for record in done if not record.presettled])

    def spread_to_all(
        self, stream: HomeStream, records: list[Record], take: Callable[[HomeStream, list[Record]], None]
    ) -> None:
        """Transfers are for all subscribers of the address."""
        self.publishing.spread_to_all(stream, records, take)

    def _handed_on(self, stream: HomeStream, records: list[Record]) -> None:
        """Every edge has handed these presettled records on, or dropped them."""
        settle(records)
        self.records.forget(stream, records)
        self.settlement.over(stream, records)

    @contextmanager
    def deciding_later(self) -> Iterator[None]:
        """Postpone acceptance to the end of the event: a subscriber that is processed later may still join the
        audience."""
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

    def accept(self, stream: HomeStream, records: list[Record]) -> None:
        """Answer the publisher: *accepted*, or the outcome that the refusals of the record come to. What it has settled
        as it transferred that again is over (7.3)."""
        over = stream.settled_of(records)
        if over:
            records = [record for record in records if record not in stream.settled_again]
        if records:
            self._accept(stream, records)
        if over:  # last, as for a publisher that settles first
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
                self.audiences.told(stream, records)

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
        """Await this subscriber for these records, wherever it is."""
        self.audiences.seek_all(records, name)

    def expire(self, stream: HomeStream, records: list[Record]) -> None:
        """The time of these is over, and nobody has any of them (protocol 5, Time to live)."""
        self._handed_on(stream, [record for record in records if record.presettled])
        ended = [record for record in records if not record.presettled]
        accept(ended)
        self.audiences.take_back(stream, [record for record in ended if record.n >= 0])
        if ended:
            self._answer(stream, ended, DeliveryOutcome.REJECTED, EXPIRED, Cause.EXPIRED)
            if stream.settles_first:
                self.settlement.settle(stream, ended)
            if stream.gates:
                self.audiences.told(stream, ended)
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
        if records[0].n < stream.alone:  # an audience may also have grown since
            alone = sum(not record.routers and not record.locals for record in records)
        self.outlet.actions.append(
            AnswerDeliveries(stream.link, records, outcome, text, stream.settles_first, alone, cause)
        )

    # a publisher that comes back, here or from elsewhere

    def supersede(self, stream: HomeStream, new: Stream) -> None:
        """The publisher has a later attach, `new`: what is in doubt is unconfirmed now, its gates fall (6.5, 7.4)."""
        assert self.streams[stream.publisher] is stream
        self.streams.discard(stream)
        self.publishing.gone(stream)
        stream.supersede()
        self.edge.unconfirmed.hold(stream)
        done = list(stream.records.values())  # all that is settled: nothing else is left
        self.resolution.hand_over(stream, [record.key for record in done if record.awaited], new)
        for record in done:
            record.await_no_router()
        self.edge.receipts.forget([record for record in done if not record.unread])

    def handed_over(self, publisher: bytes, epoch: Epoch, keys: list[bytes]) -> None:
        """A former home has heard of that attach, and says what the publisher has settled before (5, Reused tags)."""
        if (stream := self.current(publisher, epoch)) is not None:
            self.resolution.handed_over(stream, keys)

    def settled_elsewhere(self, router: str, publisher: bytes, epoch: Epoch, ranges: list[int]) -> None:
        """The publisher has settled these there; perhaps before a later attach, of which we have heard first."""
        stream: Stream | None = self.streams.get(publisher) or self.edge.streams.get(publisher)
        if stream is not None and stream.epoch > epoch and (late := given_in(stream, epoch, ranges)):
            self.resolution.settled_late(stream, late)
        self.edge.settle(router, publisher, epoch, ranges)

    def begin_afresh(self, stream: HomeStream, *, says_so: bool) -> None:
        """A publisher begins a new life (7.5). By a null map it `says_so`: nothing of its older lives is in doubt. One
        that brought a map, and whose life nobody knows, may have gone on with it elsewhere: it has to show life
        (6.6)."""
        if says_so:
            self.edge.settlement.close(stream, list(stream.unconfirmed.values()))
        elif stream.unconfirmed:
            self.liveness.question(stream, (self.outlet.router, sorted(stream.unconfirmed)))

    def resume(self, stream: HomeStream, client_map: Mapping[bytes, int], *, complete: bool) -> None:
        """A publisher attached with its unsettled map, by tag (7.2). Deliveries listed with a final outcome are
        settled. So are those that a complete map omits, once the publisher has shown life: its attach may be late. The
        rest is in doubt, and transferred again; our map lists what we hold of it. An incomplete map says nothing of
        what it omits."""
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
        """Take a transfer with resume=true. None for a tag that our map did not list, or that was transferred
        already."""
        key = stream.keys.key(tag)
        record = stream.unconfirmed.get(key)
        if record is None or record.message is None or stream.came_again(key) is None:
            return None
        self.edge.unconfirmed.take(stream, key)
        return self.publishing.again(stream, tag, record, settled=settled)

    def abort(self, stream: HomeStream, tag: bytes) -> None:
        """The publisher aborted a transfer. If it is a delivery of its map, the publisher gives it up by that, whether
        home holds it or not: subscribers that ask for it wait no more."""
        key = stream.keys.key(tag)
        if stream.came_again(key) is not None:
            self.give_up(stream, key, self.edge.unconfirmed.take(stream, key))

    def give_up(self, stream: HomeStream, key: bytes, record: Record | None) -> None:
        """The publisher wants to know no more of the delivery, whether it is here or not."""
        self.resolution.tell_askers(stream, [key])
        if record is not None:
            self.edge.settlement.close(stream, [record], abandoned=True)

    # what its parts and the edge say

    def leave_out(self, stream: HomeStream, records: list[Record]) -> None:
        """These records go on without subscribers that have lapsed."""
        self.lapses.accepted(stream, records)

    def resolve_here(self, stream: HomeStream, keys: list[bytes]) -> None:
        """The edge asks which of these keys are settled."""
        self.resolution.resolve(self.outlet.router, stream, keys)

    def has_room(self, subscriber: LocalSubscriber) -> None:
        """A subscriber here takes deliveries."""
        self.balancing.go_on_at(subscriber.identity.address)

    def answer_question(self, stream: HomeStream, question: Question, *, answered: bool) -> None:
        """The publisher was there after the question came up. It has `answered` itself, or its machine has."""
        if isinstance(question, bytes):
            self.audiences.proven(stream, question)
            self.balancing.go_on(stream)  # the subscriber may have had room before
        elif isinstance(question, tuple):
            self.resolution.answer(question[0], stream, question[1])
        elif answered:
            outcome_kept(question)
            self.audiences.open_gates(stream, question)

    # publishers that go

    def abandon(self, stream: HomeStream, followed_by: bytes | None) -> None:
        """The publisher is gone: every router delivers and settles what it holds, and so does this one (7.5).
        `followed_by`: the generation of the publisher's next life, if that has ended this one."""
        self.streams.discard(stream)
        self.publishing.gone(stream)
        stream.abandon(followed_by)
        for gate in [gate for gate in stream.gates.values() if not gate.unproven]:  # else it falls where it stands
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
