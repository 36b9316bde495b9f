"""Keeps the audience of each delivery at its home up to date while subscribers come, move and go (protocol 6.2 to 6.6).

A home awaits a router in place of all subscribers at that router. It awaits a subscriber by name while the subscriber
is an orphan, or until its backlog is forwarded. A gate keeps newer deliveries from a subscriber until older ones are
settled. `topic.home.home` decides when a publisher gets its answer.
"""

from itertools import chain, groupby
from operator import attrgetter

import attrs

from topic.actions import Consumes
from topic.delivery.gates import Gate
from topic.delivery.record import AWAITING_HOME, HomeStream, Record, State, answered_by
from topic.delivery.streams import Streams
from topic.directory.addresses import meets
from topic.directory.entry import NOBODY, LinkEntry
from topic.edge.edge import Edge
from topic.home.decisions import Decisions
from topic.home.liveness import Liveness
from topic.identity import is_egress
from topic.journal import Event

UNSETTLED = (State.ACCEPTED, State.IN_DOUBT)


@attrs.frozen(slots=True)
class _Left:
    """The subscribers of one address at a router that is out of contact."""

    counted_on: list[bytes] = attrs.Factory(list)
    """The plain subscribers for whose sake homes still await the router."""
    orphans: list[bytes] = attrs.Factory(list)
    lapsed: dict[bytes, None] = attrs.Factory(dict)


class Audiences:
    """The audiences of all deliveries whose home is this router."""

    def __init__(
        self,
        edge: Edge,
        liveness: Liveness,
        streams: Streams[HomeStream],
        home: Decisions,
    ) -> None:
        """`home` answers the publisher of a record when the record waits for nobody any more."""
        self.outlet = edge.outlet
        self.directory = edge.directory
        self.edge = edge
        self._liveness = liveness
        self._counts_on: set[str] = set()
        """The routers out of contact that deliveries in doubt may still await."""
        self._streams = streams
        self._home = home

    def join(self, subscriber: LinkEntry, *, known: bool) -> None:
        """Add the subscriber to the audience of all messages that are published here from now on (6.2, 6.5).

        `known`: whether the home already knew the subscriber. If so, it first forwards the subscriber's backlog. If
        not, all unsettled deliveries gate the subscriber.
        """
        assert subscriber.live and self.directory.in_contact(subscriber)
        self.outlet.trace(
            Event.JOINED,
            subscriber=subscriber.name,
            address=subscriber.identity.address,
            peer=self._custodian(subscriber),
            epoch=str(subscriber.epoch),
        )
        if is_egress(subscriber.identity.address):
            self.outlet.actions.append(Consumes(subscriber.identity.address))
        may_be_owed = known and _has_been_elsewhere(subscriber)
        for stream in self._streams.at(subscriber.identity.address) if may_be_owed else self._busy(subscriber):
            unproven = known and self._needs_proof(stream, subscriber)
            self._gate(stream, subscriber, () if known else UNSETTLED, unproven=unproven)
        self.tell_joined(subscriber)

    def learn_of(self, subscriber: LinkEntry) -> None:
        """Gate a new plain subscriber by all unsettled deliveries, because its own router is out of contact. A home may
        have to await this subscriber for messages that are published from now on, but for no older ones (6.5)."""
        for stream in self._busy(subscriber):
            self._gate(stream, subscriber, UNSETTLED, unproven=False)

    def _busy(self, subscriber: LinkEntry) -> list[HomeStream]:
        """The streams of the subscriber's address that have a record or a gate. They are few, even if the address has
        many streams."""
        return [stream for stream in self._streams.at(subscriber.identity.address) if stream.records or stream.gates]

    def tell_joined(self, subscriber: LinkEntry) -> None:
        """Send Joined, with the subscriber's present gates, to its custodian. The home sends Joined again after it has
        forwarded a delayed backlog."""
        name, streams = subscriber.name, self._streams.at(subscriber.identity.address)
        gates = {stream.publisher: stream.gates[name].first for stream in streams if name in stream.gates}
        if self.directory.is_mine(subscriber):
            self.edge.joined(subscriber.router, self.edge.subscribers[subscriber.name], gates)
        else:
            self.outlet.batches.joined(subscriber.router, subscriber.name, subscriber.epoch, gates)

    def _gate(self, stream: HomeStream, subscriber: LinkEntry, gating: tuple[State, ...], *, unproven: bool) -> None:
        name = subscriber.name
        if not stream.lifetime.timeout:
            gating = tuple(state for state in gating if state is not State.ACCEPTED)
        if not stream.kind.keeps_order:
            gating = ()
        records = [r for r in stream.records.values() if r.state in gating and not r.presettled]
        remaining = {record.n for record in records}
        older = stream.gates.get(name)
        if older is not None:
            remaining |= older.remaining
            unproven |= older.unproven
        if remaining or unproven:
            stream.gate(Gate(name, subscriber.router, remaining, unproven=unproven))
            self.outlet.trace(Event.GATED, subscriber=name, publisher=stream.publisher)
            self.outcome_sent(stream, [record for record in records if record.state is State.ACCEPTED])

    def outcome_sent(self, stream: HomeStream, records: list[Record]) -> None:
        """The publisher was sent the outcome of these records. As soon as it has read the outcome, they gate no
        subscriber any more.

        If the publisher resumes after that, its map states the outcome, so it never transfers these deliveries again. A
        publisher without a timeout does not resume, so its records stop gating at once.
        """
        gating = [r for r in records if any(r.n in gate.remaining for gate in stream.gates.values())]
        if gating and stream.lifetime.timeout:
            self._liveness.question(stream, gating)
        elif gating:
            self.open_gates(stream, gating)

    def take_back(self, stream: HomeStream, records: list[Record]) -> None:
        """End records that no subscriber has got and that none may get any more.

        If such a record was for a subscriber, it gates this subscriber: the subscriber gets no later record of the
        publisher until the publisher has read the outcome. Otherwise the publisher could resume at another router
        without having read the outcome, and transfer the records again, after the later ones (6.5).
        """
        for record in records:
            assert not record.routers, "somebody may have it"
            counted_on = [name for router in record.awaited for name in self._counted_on(router, stream.address)]
            if stream.lifetime.timeout:
                local = [subscriber.name for subscriber in record.locals]
                for name in dict.fromkeys((*local, *record.orphans, *record.without, *counted_on)):
                    self._gate_by(stream, record, name)
            record.await_nobody()
            record.leave_out(NOBODY)
        self.edge.delivery.take_back(stream, records, stream.gates)

    def _gate_by(self, stream: HomeStream, record: Record, name: bytes) -> None:
        subscriber, gate = self.directory.subscriber(name), stream.gates.get(name)
        if gate is not None:
            gate.remaining.add(record.n)
        elif subscriber is not None and subscriber.live:
            stream.gate(Gate(name, subscriber.router, {record.n}, unproven=False))
            self.outlet.trace(Event.GATED, subscriber=name, publisher=stream.publisher)

    def _needs_proof(self, stream: HomeStream, subscriber: LinkEntry) -> bool:
        """Whether the publisher has to give a sign of life before the subscriber gets records (6.6). If so, ask for the
        sign.

        It is needed in two cases: a record here awaits the subscriber by name; or the subscriber has been at another
        router, where it may have had deliveries whose outcomes this home has yet to read.
        """
        name = subscriber.name
        needed = _has_been_elsewhere(subscriber) or any(_is_owed(record, name) for record in stream.records.values())
        if needed:
            self._liveness.question(stream, name)
        return needed

    def _give_backlog(self, stream: HomeStream, name: bytes) -> None:
        """Forward to the subscriber its backlog: the records that await it by name. A record whose outcome the
        subscriber's map has stated is decided instead."""
        owed = [record for record in stream.records.values() if _is_owed(record, name)]
        to_be_sent = [record for record in owed if self._seek(record, name, not_at=None)]
        for run in chain.from_iterable(
            _runs(list(alike)) for _, alike in groupby(to_be_sent, key=attrgetter("chosen"))
        ):
            self._forward(run, name)
        self._home.decide(stream, owed)

    def _custodian(self, subscriber: LinkEntry) -> str | None:
        return None if self.directory.is_mine(subscriber) else subscriber.router

    def open_gates(self, stream: HomeStream, records: list[Record]) -> None:
        """Let these records gate no subscriber any more, and admit each subscriber that no other record gates.

        An admitted subscriber may answer at once. Its answer may admit or end other subscribers before this loop
        reaches them.
        """
        settled = [record.n for record in records]
        for gate in list(stream.gates.values()):
            gate.remaining.difference_update(settled)
            if not gate.remaining and not gate.unproven and stream.gates.get(gate.subscriber) is gate:
                self.admit(stream, gate)

    def admit(self, stream: HomeStream, gate: Gate) -> None:
        assert stream.gates[gate.subscriber] is gate
        stream.open_gate(gate.subscriber)
        self.outlet.trace(Event.ADMITTED, subscriber=gate.subscriber, publisher=stream.publisher)
        if gate.router != self.outlet.router:
            self.outlet.batches.admit(gate.router, gate.subscriber, stream.publisher)
        elif gate.subscriber in self.edge.subscribers:
            self.edge.admit(self.edge.subscribers[gate.subscriber], stream.publisher, gate.router)

    def proven(self, stream: HomeStream, name: bytes) -> None:
        """Handle a sign of the publisher's life: forward the subscriber's backlog, then send Joined again."""
        self._give_backlog(stream, name)
        gate, subscriber = stream.gates.get(name), self.directory.subscriber(name)
        if gate is not None:
            assert subscriber is not None, "its gates fall as it goes"
            gate.unproven = False
            if not gate.remaining:
                self.admit(stream, gate)
            if self.directory.in_contact(subscriber) and name not in self.directory.lapsed:
                self.tell_joined(subscriber)

    # The methods from here on are about subscribers that move or go.

    def gone(self, subscriber: LinkEntry) -> None:
        """Remove a subscriber that has closed or expired from all audiences and gates."""
        for stream in self._busy(subscriber):
            stream.open_gate(subscriber.name)
            awaited = [record for record in stream.records.values() if subscriber.name in record.orphans]
            for record in awaited:
                record.await_by_name_no_more([subscriber.name])
            # A plain subscriber is not told of missed messages: its client is gone, or learns that its link has ended.
            if not subscriber.lifetime.timeout:
                for record in stream.records.values():
                    record.is_back(subscriber.name)
            self._home.decide(stream, awaited)

    def count_on(self, router: str) -> None:
        """Let the home await this router for new messages, too, although the router is out of contact. `returned` or
        `give_up` ends this."""
        self._counts_on.add(router)

    def lose(self, router: str, *, waits: bool) -> None:
        """Handle the loss of a contact: await the router's subscribers by name, as orphans.

        `waits`: whether homes wait for the router's plain subscribers. If so, deliveries in doubt go on awaiting the
        router itself, until `returned` or `give_up` is called (protocol 8, Lost router).
        """
        (self._counts_on.add if waits else self._counts_on.discard)(router)
        for stream in list(self._streams.values()):
            stream.lost_asker(router)
            left: _Left | None = None  # set when the first record begins to await the router
            for record in list(stream.records.values()):
                record.lost_at(router)
                if router in record.awaited and record.state is State.IN_DOUBT:
                    left = left or self._left_at(router, stream.address)
                    if record.presettled or not left.counted_on:
                        record.await_router_no_more(router)
                    self._await_orphans(record, left.orphans, left.lapsed)
                elif router in record.awaited:
                    record.await_router_no_more(router)
                    if not record.awaited and not record.unread:
                        self.edge.receipts.forget([record])
            self._home.decide(stream, list(stream.records.values()))

    def _left_at(self, router: str, address: str) -> _Left:
        """The subscribers of the address at a router that is out of contact."""
        left = _Left()
        for entry in self.directory.subscribers(address):
            if entry.router == router and entry.name in self.directory.lapsed:
                left.lapsed[entry.name] = None
            elif entry.router == router:
                (left.counted_on if self.directory.is_counted_on(entry) else left.orphans).append(entry.name)
        return left

    def _counted_on(self, router: str, address: str) -> list[bytes]:
        return self._left_at(router, address).counted_on

    def returned(self, router: str, subscribers: list[LinkEntry]) -> None:
        """Handle the return of a router whose section has these plain subscribers.

        Deliveries that awaited the router now await these subscribers by name, as their backlog (6.3). The caller then
        decides the deliveries for which nothing is awaited any more.
        """
        self._counts_on.discard(router)
        for stream in self._streams.values():
            waiting = _waiting_for(stream, router)
            there = [e.name for e in subscribers if waiting and meets(e.identity.address, stream.address)]
            answered_by(router, waiting)
            for record in waiting:
                for name in there:
                    self._expect(record, name)

    def give_up(self, router: str) -> int:
        """Stop awaiting a router out of contact, because its plain subscribers have lapsed or ended. Returns the number
        of deliveries that awaited it."""
        self._counts_on.discard(router)
        count = 0
        for stream in [stream for stream in self._streams.values() if stream.records]:
            lapsed = self._left_at(router, stream.address).lapsed
            by_name = [r for r in stream.records.values() if not lapsed.keys().isdisjoint(r.orphans)]
            waiting = list(dict.fromkeys((*_waiting_for(stream, router), *by_name)))
            answered_by(router, waiting)
            for record in waiting:
                record.await_by_name_no_more(lapsed)
                self._await_orphans(record, [], lapsed)
            count += len(waiting)
            self._home.decide(stream, waiting)
        return count

    def plain_subscriber_ended(self, router: str, address: str) -> None:
        """A plain subscriber of a router out of contact has ended, or has attached elsewhere. If it was the last plain
        subscriber of the address there, no delivery awaits that router any more."""
        for stream in list(self._streams.at(address)) if router in self._counts_on else ():
            if not self._counted_on(router, stream.address):
                waiting = _waiting_for(stream, router)
                answered_by(router, waiting)
                self._home.decide(stream, waiting)

    # The methods from here on are about subscribers that the home awaits by name.

    def expect(self, subscriber: LinkEntry, former: str) -> None:
        """Await by name a known subscriber that has attached anew, and that was at router `former`.

        It is awaited for each delivery whose outcome the former router has not reported (6.3, Backlog), and for each
        delivery that awaited it before it lapsed.
        """
        name = subscriber.name
        local = self.edge.subscribers.get(name) if former == self.outlet.router else None
        records = [record for stream in self._busy(subscriber) for record in stream.records.values()]
        waited = [record for record in records if name in record.without]
        for record in waited:
            record.is_back(name)  # records that share this dict are all in `waited`
            self._expect(record, name)
        for record in records:
            if former in record.awaited or (local and record.locals.get(local) == AWAITING_HOME):
                self._expect(record, name)

    def adopt(self, subscriber: LinkEntry) -> None:
        """Await a subscriber for all deliveries in doubt that publishers have resumed here. This router has learned of
        the subscriber from a section or gossip (6.4)."""
        for stream in self._busy(subscriber):
            self._gate(stream, subscriber, (State.ACCEPTED,), unproven=False)
            for record in stream.records.values():
                self._expect(record, subscriber.name)

    def _expect(self, record: Record, name: bytes) -> None:
        is_in_doubt = record.state is State.IN_DOUBT and not record.presettled
        if is_in_doubt and not record.stream.kind.is_over(record) and _is_for(record, name):
            self.await_by_name(record, name)

    def await_by_name(self, record: Record, name: bytes) -> None:
        """Await the subscriber by name, because it is at no router in contact, or its backlog is not forwarded yet. If
        it has lapsed, the home leaves it out instead."""
        if name not in self.directory.lapsed:
            record.await_by_name([name])
        elif name not in record.without:
            record.leave_out({**record.without, name: None})

    def seek(self, record: Record, name: bytes, *, not_at: str) -> None:
        """Await a subscriber at the router where the directory has it. It left router `not_at` without the delivery."""
        kind = record.stream.kind
        if kind.asks_once and self._is_asked(record, name):
            return
        if kind.concerns(record, name) and self._seek(record, name, not_at=not_at):
            self._forward([record], name)

    def seek_all(self, records: list[Record], name: bytes) -> None:
        """Await a subscriber that may have these records at its custodian, and forward them there."""
        for run in _runs([record for record in records if self._seek(record, name, not_at=None)]):
            self._forward(run, name)

    def _is_asked(self, record: Record, name: bytes) -> bool:
        """Whether the subscriber's router was sent the record and has not answered yet. The router sends one answer for
        all its subscribers."""
        subscriber = self.directory.subscriber(name)
        return subscriber is not None and subscriber.router in record.awaited and name not in record.orphans

    def _seek(self, record: Record, name: bytes, *, not_at: str | None) -> bool:
        """Await the subscriber at its custodian. Returns whether the record has to be forwarded to the custodian.

        If the subscriber is at no router in contact, or the directory still has it at router `not_at`, which it has
        left, the home awaits it by name.
        """
        stream, directory = _homed(record), self.directory
        subscriber = directory.subscriber(name)
        record.await_by_name_no_more([name])
        if subscriber is None or not subscriber.live or not meets(subscriber.identity.address, stream.address):
            return False
        if _is_gating(record, name):
            return False
        router = subscriber.router
        is_nowhere = router == not_at or not directory.in_contact(subscriber)
        if is_nowhere or name in stream.questions or name in directory.lapsed:
            self.await_by_name(record, name)
            return False
        if router == directory.router:
            whom = stream.kind.found_here(record, [self.edge.subscribers[name]])
            self.edge.delivery.take_for(stream, record, whom)
            return False
        record.forwarded_to(router)
        return True

    def _forward(self, records: list[Record], name: bytes) -> None:
        """Forward records to this attach of the subscriber only, because the same records may gate its next attach."""
        subscriber = self.directory.subscriber(name)
        assert subscriber is not None
        stream, router = records[0].stream, subscriber.router
        attach = None if stream.kind.asks_all(records[0]) else (name, subscriber.epoch)
        stream.stop_time(records)
        self.outlet.trace_records(Event.FORWARDED, stream, records, peer=router)
        self.outlet.batches.forward((router,), stream, records, self.directory.applied, attach)

    def left_without(self, subscriber: bytes, records: list[Record]) -> None:
        """Handle a local subscriber that left before it had these records. The edge reports this to their homes. For
        records whose home is this router, await the subscriber by name."""
        for record in records:
            record.left_without(subscriber)
            if isinstance(record.stream, HomeStream) and not record.stream.abandoned and record.n >= 0:
                self.await_by_name(record, subscriber)
        self.edge.delivery.finished([record for record in records if not record.open])

    def _await_orphans(self, record: Record, orphans: list[bytes], lapsed: dict[bytes, None]) -> None:
        """Await by name the subscribers to which the lost router may have given the record. Leave out lapsed
        subscribers, and subscribers that are not in the record's audience."""
        assert record.state is State.IN_DOUBT
        if record.presettled:
            return
        record.await_by_name(name for name in orphans if _is_for(record, name))
        if record.without or _homed(record).gates or record.chosen is not None:
            record.leave_out(record.without | {name: None for name in lapsed if _is_for(record, name)})
        else:
            record.leave_out(lapsed)


def _homed(record: Record) -> HomeStream:
    """The record's stream, as the stream of its home. This router must be the home."""
    assert isinstance(record.stream, HomeStream)
    return record.stream


def _waiting_for(stream: HomeStream, router: str) -> list[Record]:
    """The stream's records in doubt that await the router."""
    return [r for r in stream.records.values() if r.state is State.IN_DOUBT and router in r.awaited]


def _has_been_elsewhere(subscriber: LinkEntry) -> bool:
    return subscriber.resumed and subscriber.lifetime.timeout > 0


def _is_gating(record: Record, subscriber: bytes) -> bool:
    """Whether the record gates the subscriber, so that the record is not for it."""
    gate = _homed(record).gates.get(subscriber)
    return gate is not None and record.n in gate.remaining


def _is_for(record: Record, subscriber: bytes) -> bool:
    """Whether the record may be for this subscriber of its address."""
    return record.stream.kind.concerns(record, subscriber) and not _is_gating(record, subscriber)


def _is_owed(record: Record, subscriber: bytes) -> bool:
    return subscriber in record.orphans and record.state is State.IN_DOUBT


def _runs(records: list[Record]) -> list[list[Record]]:
    """Split the records into runs with consecutive places `n`, because a Forward carries one such run."""
    runs: list[list[Record]] = []
    for record in records:
        if runs and runs[-1][-1].n == record.n - 1:
            runs[-1].append(record)
        else:
            runs.append([record])
    return runs
