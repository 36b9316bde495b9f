"""Settles deliveries at local subscribers after their publisher has settled them (protocol 5, Settle).

`topic.edge.receipts` decides when the edge may then forget a record.
"""

from collections.abc import Iterable
from typing import Protocol

from topic.actions import SettleSubscriber
from topic.delivery.record import QUEUED, WITHHELD, Record, State, Stream, settle
from topic.delivery.records import RecordTable
from topic.directory.addresses import ByAddress
from topic.edge.receipts import Receipts
from topic.edge.subscriber import LocalSubscriber
from topic.journal import Event
from topic.outlet import Outlet


class Pump(Protocol):
    """Sends deliveries to subscribers; `topic.edge.delivery` implements it."""

    def pump(self, subscriber: LocalSubscriber) -> None:
        """Send as many waiting records as the subscriber's credit and room allow."""


class Settlement:
    """Settles deliveries at the local subscribers of one router."""

    def __init__(
        self,
        outlet: Outlet,
        records: RecordTable,
        at: ByAddress[bytes, LocalSubscriber],
        transfers: Pump,
    ) -> None:
        """`at`: the local subscribers by address."""
        self.outlet = outlet
        self.receipts = Receipts(outlet, records)
        self._at = at
        self._transfers = transfers

    def close(self, stream: Stream, records: list[Record], *, abandoned: bool = False) -> None:
        """Settle these records at the local subscribers. If all subscribers of a record have read the settlement,
        forget the record at once. `abandoned`: the publisher has given the deliveries up."""
        if not records:
            return
        event = Event.ABANDONED if stream.abandoned or abandoned else Event.SETTLED
        self.outlet.trace_records(event, stream, records, detail=stream.followed_by)
        if stream.unconfirmed:
            for record in records:
                stream.confirm(record.key)
        self.settle_locals(records)
        self.receipts.records.settled += records
        self.receipts.forget([record for record in records if not record.unread])

    def resolved(self, stream: Stream, keys: list[bytes]) -> None:
        """Handle the home's answer that the deliveries with these keys are settled (7.4)."""
        by_key = self.receipts.records.by_key
        records = [by_key[key] for key in keys if key in by_key]
        records = [r for r in records if r.stream is stream and r.state is not State.SETTLED]
        if records:
            self.outlet.trace_records(Event.RESOLVED, stream, records)
            self.close(stream, records)

    def settle_locals(self, records: list[Record]) -> None:
        """Send the settlement to every subscriber to which a record was transferred.

        If a subscriber may come back with its map, the record is kept until the subscriber has read the settlement. For
        any other subscriber the settlement counts as read once it is written.
        """
        batches: dict[LocalSubscriber, list[Record]] = {}
        stream = records[0].stream
        there = self._at.meeting(stream.address)
        stream.kind.settled(records, there)
        resuming = self._settle_resuming(records, there)
        settle(records)
        for record in records:
            for subscriber, state in record.locals.items():
                if subscriber in resuming and record in subscriber.resuming:
                    continue
                if state == QUEUED:
                    subscriber.skip_settled()
                # A record in `attempts` was released on this link.
                # It has to be settled on this link even if it is queued again.
                if state not in (QUEUED, WITHHELD) or record in subscriber.attempts:
                    batches.setdefault(subscriber, []).append(record)
        for subscriber, settled in batches.items():
            self._settle_at(subscriber, settled)
        for subscriber in resuming:
            self._transfers.pump(subscriber)

    def _settle_resuming(self, records: list[Record], there: Iterable[LocalSubscriber]) -> list[LocalSubscriber]:
        """Keep these settled records for the subscribers that still have to get them by a resumed transfer. The
        transfer tells such a subscriber of the settlement. Returns these subscribers."""
        resuming = [subscriber for subscriber in there if subscriber.resuming]
        for subscriber in resuming:
            for record in records:
                if record in subscriber.resuming:
                    record.unread += 1
                    subscriber.owe(record)
        return resuming

    def _settle_at(self, subscriber: LocalSubscriber, settled: list[Record]) -> None:
        if subscriber.attempts:
            for record in settled:
                subscriber.attempts.pop(record, None)
        if subscriber.link is not None:
            self.outlet.actions.append(SettleSubscriber(subscriber.link, settled))
        owing = self._owing_receipts(subscriber, settled)
        if subscriber.lifetime.timeout:
            if subscriber.marker in settled:
                subscriber.unmark()
            for record in owing:
                self.receipts.remember(subscriber, record)
            self.receipts.ask(subscriber)

    @staticmethod
    def _owing_receipts(subscriber: LocalSubscriber, settled: list[Record]) -> list[Record]:
        """The given records, except records that the client has settled itself."""
        over = subscriber.client_has_settled
        if not over:
            return settled
        owing = [record for record in settled if record not in over]
        over.difference_update(settled)
        return owing
