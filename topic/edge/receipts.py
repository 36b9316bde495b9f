"""When an edge may forget a settled delivery (protocol 5, Forget).

A subscriber whose terminus outlives its connection may come back with an unsettled map that names a delivery settled
meanwhile. If the publisher has used the key again by then, the edge would take the old acceptance for an answer to the
new message. So the edge keeps a record until each such subscriber has read of its settlement. A subscriber has read of
it when it gives an outcome of a delivery that was transferred after the settlement, or answers an echo that was sent
after it. A subscriber that cannot come back counts as having read what was written. `topic.edge.settlement` sends the
settlements.
"""

from collections.abc import Mapping

from topic.actions import Echo
from topic.delivery.record import HomeStream, Record, State
from topic.delivery.records import RecordTable, by_stream
from topic.directory.addresses import meets
from topic.edge.subscriber import LocalSubscriber
from topic.journal import Event
from topic.outlet import Outlet


class Receipts:
    """The settlements of one router that some local subscribers may not have read."""

    def __init__(self, outlet: Outlet, records: RecordTable) -> None:
        self.outlet = outlet
        self.records = records

    def remember(self, subscriber: LocalSubscriber, record: Record) -> None:
        """The record's settlement is under way to the subscriber, or waits until the subscriber comes back."""
        assert record.state is State.SETTLED
        record.unread += 1
        self.settlement_sent(subscriber, record)

    def settlement_sent(self, subscriber: LocalSubscriber, record: Record) -> None:
        """The record's settlement has just been written to the subscriber's link."""
        subscriber.unread.append(record)
        subscriber.armed = subscriber.marker is None

    def ask(self, subscriber: LocalSubscriber) -> None:
        """Send the subscriber an echo if it may not have read settlements, unless an echo is under way."""
        if subscriber.unread and subscriber.echo_covers is None and subscriber.answered:
            subscriber.echo_covers = len(subscriber.unread)
            self.outlet.actions.append(Echo(subscriber.link))

    def echoed(self, subscriber: LocalSubscriber) -> None:
        """The subscriber has answered the echo, so it has read the settlements before that echo. Later settlements need
        another echo."""
        count, subscriber.echo_covers = subscriber.echo_covers, None
        self.known(subscriber, count or 0)
        self.ask(subscriber)

    def known(self, subscriber: LocalSubscriber, count: int) -> None:
        """The subscriber has read the `count` oldest settlements of its `unread`."""
        assert count <= len(subscriber.unread)
        if subscriber.echo_covers is not None:
            subscriber.echo_covers = max(0, subscriber.echo_covers - count)
        for _ in range(count):
            self._knows(subscriber.unread.popleft())
        subscriber.unmark()

    def attached_again(self, subscriber: LocalSubscriber, client_map: Mapping[bytes, int] | None) -> None:
        """The subscriber has attached with this map. It has read of a settlement if the map lacks the delivery; we
        assume this also of an incomplete map: a limit (10). If the map names the delivery, our answer leaves it out, so
        the subscriber reads of the settlement with its next answer."""
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
        """The map may name a settled record that is kept here only for other subscribers. Keep it for this subscriber,
        too. Otherwise, before our answer, the old outcome in the map could be taken for the outcome of a new
        message."""
        known, by_key = set(subscriber.unread), self.records.by_key
        for record in [by_key[key] for key in client_map if key in by_key]:
            is_meant = record.state is State.SETTLED and meets(record.stream.address, subscriber.identity.address)
            if is_meant and record not in known:
                self.remember(subscriber, record)

    def _knows(self, record: Record) -> None:
        """One more subscriber has read of the settlement. The record is forgotten after the last one."""
        record.unread -= 1
        assert record.unread >= 0
        if not record.unread and (not record.awaited or not isinstance(record.stream, HomeStream)):
            self.forget([record])

    def forget(self, records: list[Record]) -> None:
        """Forget these records: all subscribers have read of their settlement."""
        for stream, run in by_stream(records):
            self.outlet.trace_records(Event.FORGOTTEN, stream, run)
            for record in run:
                assert not record.unread
                for home in record.awaited:
                    self.outlet.batches.forgotten(home, stream, record.n)
            self.records.forget(stream, run)
            if stream.is_withholding:
                self.records.unblocked.append(stream)
