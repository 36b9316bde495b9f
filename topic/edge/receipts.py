"""Decides when an edge may forget a settled delivery (protocol 5, Forget).

If a subscriber's terminus outlives its connection, the client may come back with an old unsettled map that names a
delivery settled meanwhile. If the publisher has used the key for a new message by then, the edge would take the
acceptance in the map for an answer to the new message. So the edge keeps a record until every such subscriber has read
the settlement.

A subscriber has read a settlement when it gives an outcome for a delivery that was transferred later, or answers an
echo that was sent later. If a subscriber cannot come back, the edge counts the settlement as read once it is written.
If a subscriber has settled the delivery itself, together with its outcome, it needs no receipt.

`topic.edge.settlement` sends the settlements.
"""

from collections.abc import Mapping

from topic.actions import Echo
from topic.delivery.record import HomeStream, Record, State
from topic.delivery.records import RecordTable, by_stream
from topic.directory.addresses import meets
from topic.edge.subscriber import LocalSubscriber
from topic.edge.unconfirmed import FINAL
from topic.journal import Event
from topic.outlet import Outlet


class Receipts:
    """The settled records of one router that are kept because a local subscriber may not have read their settlement."""

    def __init__(self, outlet: Outlet, records: RecordTable) -> None:
        self.outlet = outlet
        self.records = records

    def remember(self, subscriber: LocalSubscriber, record: Record) -> None:
        """Keep the record until the subscriber has read its settlement, which is under way or waits until the
        subscriber comes back."""
        assert record.state is State.SETTLED
        record.unread += 1
        self.settlement_sent(subscriber, record)

    def settled_by_client(self, subscriber: LocalSubscriber, records: list[Record]) -> None:
        """The client has settled these deliveries. If the client's outcome of a delivery is final, this router does not
        transfer the delivery to the client again. So the router need not wait until the client has read the publisher's
        settlement."""
        if subscriber.lifetime.timeout:
            over = [record for record in records if record.locals.get(subscriber) in FINAL]
            subscriber.client_has_settled.update(over)

    def settlement_sent(self, subscriber: LocalSubscriber, record: Record) -> None:
        """The record's settlement has been written to the subscriber's link."""
        subscriber.unread.append(record)
        subscriber.armed = subscriber.marker is None

    def ask(self, subscriber: LocalSubscriber) -> None:
        """Send the subscriber an echo if it may not have read some settlements, and no echo is under way."""
        if subscriber.unread and subscriber.echo_covers is None and subscriber.answered:
            subscriber.echo_covers = len(subscriber.unread)
            self.outlet.actions.append(Echo(subscriber.link))

    def echoed(self, subscriber: LocalSubscriber) -> None:
        """Handle the subscriber's answer to the echo: the subscriber has read all settlements that were sent before the
        echo. If settlements were sent after it, send another echo."""
        count, subscriber.echo_covers = subscriber.echo_covers, None
        self.known(subscriber, count or 0)
        self.ask(subscriber)

    def known(self, subscriber: LocalSubscriber, count: int) -> None:
        """The subscriber has read the `count` oldest settlements in its `unread`."""
        assert count <= len(subscriber.unread)
        if subscriber.echo_covers is not None:
            subscriber.echo_covers = max(0, subscriber.echo_covers - count)
        for _ in range(count):
            self._knows(subscriber.unread.popleft())
        subscriber.unmark()

    def attached_again(self, subscriber: LocalSubscriber, client_map: Mapping[bytes, int] | None) -> None:
        """Handle a new attach of the subscriber with this map.

        If the map lacks a settled delivery, the subscriber has read the settlement. The edge assumes the same if the
        map is incomplete, which is a known limit (10). If the map names the delivery, this router's answer leaves it
        out. The subscriber then learns of the settlement from this answer.
        """
        unread = list(subscriber.unread)
        subscriber.unread.clear()
        for record in unread:
            if client_map is not None and record.key in client_map:
                subscriber.unread.append(record)
            else:
                self._knows(record)
        if subscriber.lifetime.timeout:
            self._remember_named(subscriber, client_map or {})
        subscriber.unmark()

    def _remember_named(self, subscriber: LocalSubscriber, client_map: Mapping[bytes, int]) -> None:
        """Keep the settled records that the map names for this subscriber, too, even if the edge has kept them only for
        other subscribers so far.

        Without this, the key could be used for a new message before this router answers the attach. The old outcome in
        the map would then count for the new message.
        """
        known, by_key = set(subscriber.unread), self.records.by_key
        for record in [by_key[key] for key in client_map if key in by_key]:
            is_meant = record.state is State.SETTLED and meets(record.stream.address, subscriber.identity.address)
            if is_meant and record not in known:
                self.remember(subscriber, record)

    def _knows(self, record: Record) -> None:
        """One more subscriber has read the settlement. If it was the last one, forget the record."""
        record.unread -= 1
        assert record.unread >= 0
        if not record.unread and (not record.awaited or not isinstance(record.stream, HomeStream)):
            self.forget([record])

    def forget(self, records: list[Record]) -> None:
        """Forget these records, whose settlement all subscribers have read."""
        for stream, run in by_stream(records):
            self.outlet.trace_records(Event.FORGOTTEN, stream, run)
            for record in run:
                assert not record.unread
                for home in record.awaited:
                    self.outlet.batches.forgotten(home, stream, record.n)
            self.records.forget(stream, run)
            if stream.is_withholding:
                self.records.unblocked.append(stream)
