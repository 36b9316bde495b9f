"""Transfers deliveries to local subscribers, and takes their outcomes (protocol 5, Edge). This code runs for every
message.

The edge gives a record to the local subscribers that the record's home has joined, in the publisher's order `n`. When
all of them have a final outcome, the edge reports to the home. `topic.edge.reports` decides when a report may leave.
`topic.edge.settlement` settles the deliveries.
"""

from collections.abc import Mapping

from topic.actions import Deliver, Redeliver, Resume
from topic.delivery.gates import Gate
from topic.delivery.kinds import UNASSIGNED
from topic.delivery.outcomes import GIVEN_BACK, LOGGED, DeliveryOutcome
from topic.delivery.record import (
    AWAITING_HOME,
    QUEUED,
    SENT,
    HomeStream,
    Record,
    State,
    Stream,
    answer,
    choose,
    name_all,
    send,
)
from topic.delivery.records import RecordTable, by_stream, sizes
from topic.directory.addresses import ByAddress
from topic.edge.filters import Asked, wanted
from topic.edge.here import HomeHere
from topic.edge.reports import Reports
from topic.edge.settlement import Settlement
from topic.edge.subscriber import LocalSubscriber
from topic.journal import Event
from topic.outlet import Outlet

BEHIND = 8 << 20
"""The bytes of presettled messages that a link gets beyond its room, because a presettled message that is not sent now
is lost."""


class EdgeDelivery:
    """Transfers deliveries to the local subscribers of one router."""

    def __init__(
        self,
        outlet: Outlet,
        records: RecordTable,
        at: ByAddress[bytes, LocalSubscriber],
        reports: Reports,
        redeliveries: int,
        home: HomeHere,
    ) -> None:
        """`at`: the local subscribers by address. `home`: the home at the same router, to which the edge reports
        finished records."""
        self.outlet = outlet
        self._records = records
        self.settlement = Settlement(outlet, records, at, self)
        self._receipts = self.settlement.receipts
        self._reports = reports
        self._at = at
        self._redeliveries = redeliveries
        self._home = home
        self.asked = Asked()

    def take(self, stream: Stream, records: list[Record]) -> None:
        """Give new records of one stream, in order, to all local subscribers that its home has joined."""
        joined = self.joined_at(stream)
        if records[0].presettled:
            self.hand_on(stream, records, joined)
            return
        for subscriber, offered in self.name_new(stream, records, joined).items():
            self.offer(subscriber, stream, offered)

    def name_new(
        self, stream: Stream, records: list[Record], joined: list[LocalSubscriber]
    ) -> dict[LocalSubscriber, list[Record]]:
        """Enter into new records the subscribers that they are for. Returns for each subscriber the records that pass
        its filter."""
        through = wanted(records, [subscriber.wants for subscriber in joined])
        if not through:
            name_all(records, joined)
            return dict.fromkeys(joined, records)
        offered = {subscriber: through.get(subscriber.wants, records) for subscriber in joined}
        name_all(records, [subscriber for subscriber in joined if subscriber.wants is None])
        for subscriber in joined:
            if subscriber.wants is not None:
                for record in offered[subscriber]:
                    record.name(subscriber, QUEUED)
                self._passed(subscriber, stream, _without(records, offered[subscriber]))
        return offered

    def _passed(self, subscriber: LocalSubscriber, stream: Stream, records: list[Record]) -> None:
        """Write into the delivery log that the subscriber's filter does not let these records pass."""
        if records:
            self.outlet.trace_records(Event.PASSED, stream, records, subscriber=subscriber.name)

    def joined_at(self, stream: Stream) -> list[LocalSubscriber]:
        home = stream.home
        return [s for s in self._at.meeting(stream.identity.address) if home in s.joined]

    def take_again(self, stream: Stream, records: list[Record]) -> None:
        """Give formerly unconfirmed records to all local subscribers that their home has joined."""
        for record in records:
            self.take_for(stream, record, self.joined_at(stream))

    def take_for(self, stream: Stream, record: Record, subscribers: list[LocalSubscriber]) -> None:
        """Give the record to these subscribers as well (6.3). A subscriber that has already had it keeps its
        outcome."""
        assert not record.presettled
        for subscriber in self.name_in(record, subscribers, QUEUED):
            self.offer(subscriber, stream, [record])

    def take_offers(self, stream: Stream, records: list[Record], chosen: list[LocalSubscriber]) -> list[Record]:
        """Give offered records to the one subscriber that the home has chosen, up to the subscriber's room.

        No local subscriber may have had any of the records. Returns the records for which there was no room, or all of
        them if the chosen attach is over. `AddressKind.offered` does the same for one record.
        """
        choose(records, UNASSIGNED)
        taken: list[Record] = []
        for subscriber in chosen:
            taken = records[: subscriber.takes(records)]
            choose(taken, subscriber.name)
            name_all(taken, chosen)
            self.offer(subscriber, stream, taken)
        return records[len(taken) :]

    def name_in(self, record: Record, subscribers: list[LocalSubscriber], state: int) -> list[LocalSubscriber]:
        """Enter into the record the subscribers that it is for, with this state, unless their filter stops it. Returns
        the subscribers that may get it."""
        asked = [s for s in subscribers if s.may_pass(record) and _may_have(record, s)]
        through = wanted([record], [subscriber.wants for subscriber in asked])
        passing = [subscriber for subscriber in asked if not through[subscriber.wants]]
        for subscriber in passing:
            record.drop(subscriber)
            self._passed(subscriber, record.stream, [record])
        return name_fresh(record, [s for s in subscribers if s not in passing] if passing else subscribers, state)

    def offer(self, subscriber: LocalSubscriber, stream: Stream, records: list[Record]) -> None:
        now = subscriber.offer(stream.publisher, records)
        if now:
            self._deliver(subscriber, stream, now)

    def hand_on(self, stream: Stream, records: list[Record], joined: list[LocalSubscriber]) -> None:
        """Send presettled records to the subscribers that have credit and no gate, after the records that wait for
        room. Any other subscriber misses them (protocol 5, Presettled)."""
        through = wanted(records, [subscriber.wants for subscriber in joined])
        for subscriber in joined:
            subscriber.room += BEHIND
            if subscriber.ready:
                self.pump(subscriber)
            behind = subscriber.ready or subscriber.room <= 0 or stream.publisher in subscriber.gated
            if not behind and not subscriber.incomplete:
                now = through.get(subscriber.wants, records)[: subscriber.credit]
                if now:
                    subscriber.credit -= len(now)
                    subscriber.room -= sum(sizes(now))
                    self._deliver(subscriber, stream, now)
            subscriber.room -= BEHIND

    def pump(self, subscriber: LocalSubscriber) -> None:
        """Send as many waiting records as the subscriber's credit and room allow."""
        for stream, records in by_stream(subscriber.next_ready()):
            self._deliver(subscriber, stream, records)

    def take_back(self, stream: Stream, records: list[Record], gates: Mapping[bytes, Gate]) -> None:
        """Remove all subscribers from these records, which were sent to none yet. `gates`: maps the name of a
        subscriber to the gate that now holds back its later records."""
        gone = set(records)
        for subscriber in dict.fromkeys(subscriber for record in records for subscriber in record.locals):
            subscriber.take_back(gone)
            for record in records:
                record.drop(subscriber)
            gate = gates.get(subscriber.name)
            if gate is not None:
                subscriber.gate(stream.publisher, stream.home, gate.first)

    def _deliver(self, subscriber: LocalSubscriber, stream: Stream, records: list[Record]) -> None:
        assert subscriber.link is not None
        subscriber.delivered += len(records)
        self._records.delivered[subscriber.kind.name] += len(records)
        stream.stop_time(records)
        if subscriber.armed:
            subscriber.mark(records)
        if subscriber.resuming and any(record in subscriber.resuming for record in records):
            records = self._deliver_resumed(subscriber, records)
        elif subscriber.attempts and any(record in subscriber.attempts for record in records):
            self._deliver_again(subscriber, records)
        else:
            self.outlet.actions.append(Deliver(subscriber.link, records))
        if records and not records[0].presettled:
            self.outlet.trace_records(Event.DELIVERED, stream, records, subscriber=subscriber.name)
            send(records, subscriber)
            if subscriber.sends_settled:
                self.outcomes(subscriber, records, DeliveryOutcome.ACCEPTED)

    def _deliver_resumed(self, subscriber: LocalSubscriber, records: list[Record]) -> list[Record]:
        """Transfer these records again, with resume=true if the client's map named them. Returns the records that still
        need an outcome."""
        awaited: list[Record] = []
        for record in records:
            state = subscriber.resuming.pop(record, None)
            if state is None:
                self._deliver_again(subscriber, [record])
            else:
                self.outlet.actions.append(Resume(subscriber.link, record, state, record.state is State.SETTLED))
                if record.state is State.SETTLED:
                    self._receipts.settlement_sent(subscriber, record)
                    self._receipts.ask(subscriber)
            if not state and record.state is not State.SETTLED:
                awaited.append(record)
        return awaited

    def _deliver_again(self, subscriber: LocalSubscriber, records: list[Record]) -> None:
        for record in records:
            attempts = subscriber.attempts.get(record)
            action = Redeliver(subscriber.link, record, attempts) if attempts else Deliver(subscriber.link, [record])
            self.outlet.actions.append(action)

    def outcomes(
        self,
        subscriber: LocalSubscriber,
        records: list[Record],
        outcome: DeliveryOutcome,
        *,
        final: bool = False,
        failed: bool = False,
        settled: bool = False,
    ) -> None:
        """Take a subscriber's outcome of deliveries that were sent to it.

        A released or modified record is sent again, to this subscriber or to another one, at most `redeliveries` times.
        `final`: the client has set undeliverable-here, so this subscriber does not get the record again. `failed`: the
        client has set delivery-failed. `settled`: the client has settled the deliveries.
        """
        # Count these receipts first, because the loop below may make another record the marker.
        if subscriber.marker is not None and subscriber.marker in records:
            self._receipts.known(subscriber, subscriber.confirmable)
        sent = [record for record in records if record.locals.get(subscriber) == SENT]
        for stream, run in by_stream(sent):
            self.outlet.trace_records(Event.OUTCOME, stream, run, subscriber=subscriber.name, outcome=LOGGED[outcome])
        if outcome is DeliveryOutcome.ACCEPTED:
            subscriber.accepted += len(sent)
            self._records.accepted[subscriber.kind.name] += len(sent)
            subscriber.kind.accepted(sent)
        elif outcome in GIVEN_BACK and not final:
            sent = subscriber.kind.given_back(self, subscriber, sent, failed=failed)
        finished = answer(sent, subscriber, outcome, failed=failed)
        if settled:
            self._receipts.settled_by_client(subscriber, records)
        if subscriber.attempts:
            for record in sent:
                subscriber.attempts.pop(record, None)
        self.finished(finished)

    def give_back(self, subscriber: LocalSubscriber, records: list[Record]) -> None:
        """Report to the home that the subscriber has given these records back. The subscriber may get them again if the
        home chooses no other one (protocol 12)."""
        for record in records:
            subscriber.attempts[record] = subscriber.attempts.get(record, 0) + 1
        self.finished(answer(records, subscriber, DeliveryOutcome.RELEASED))

    def end(self, subscriber: LocalSubscriber, records: list[Record], *, failed: bool) -> None:
        """Report to the home that the subscriber has given these records back. It does not get them again under the
        same keys (protocol 14.6)."""
        self.finished(answer(records, subscriber, DeliveryOutcome.RELEASED, failed=failed))

    def queue_again(self, subscriber: LocalSubscriber, records: list[Record]) -> list[Record]:
        """Queue the records for the same subscriber again. Returns the records that the subscriber has already got as
        often as allowed."""
        return [record for record in records if not self._again(subscriber, record)]

    def _again(self, subscriber: LocalSubscriber, record: Record) -> bool:
        """Queue a released record for the same subscriber again, behind its waiting records. Returns False if the
        subscriber has already got the record as often as allowed."""
        attempts = subscriber.attempts.get(record, 0)
        if attempts >= self._redeliveries:
            return False
        subscriber.attempts[record] = attempts + 1
        record.queue(subscriber)
        subscriber.ready.append(record)
        self.pump(subscriber)
        return True

    def finished(self, records: list[Record]) -> None:
        """Handle records for which all local subscribers have a final outcome: report them to the home (protocol 5,
        Edge)."""
        for stream, run in by_stream(records):
            if stream.abandoned:
                self.settlement.close(stream, [record for record in run if record.state is not State.SETTLED])
            elif isinstance(stream, HomeStream):
                self._home.decide(stream, run)
            else:
                # A record in another state was reported already, or is settled.
                in_doubt = [record for record in run if record.state is State.IN_DOUBT]
                self._reports.report(stream, in_doubt)


def _without(records: list[Record], through: list[Record]) -> list[Record]:
    out = set(records).difference(through)
    return [record for record in records if record in out]


def name_fresh(record: Record, subscribers: list[LocalSubscriber], state: int) -> list[LocalSubscriber]:
    """Enter into the record the subscribers that it is for, with this state. Returns the subscribers that may get the
    record (`_may_have`)."""
    fresh = [subscriber for subscriber in subscribers if _may_have(record, subscriber)]
    for subscriber in fresh:
        record.name(subscriber, state)
    return fresh


def _may_have(record: Record, subscriber: LocalSubscriber) -> bool:
    """Whether the subscriber may get the record. It may if it has not had the record, or has given it back on its
    present link."""
    known = record.locals.get(subscriber, AWAITING_HOME)
    return known == AWAITING_HOME or (known == DeliveryOutcome.RELEASED and record in subscriber.attempts)
