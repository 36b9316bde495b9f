"""When an edge may forget a settled delivery (protocol 5, Forget).

A subscriber whose terminus outlives its connection may come back with an unsettled map that names what was settled
meanwhile. If the key was used again by then, its old acceptance would be taken for that of the new message. So a record
is kept until such a subscriber has read of its settlement: it gave an outcome of something that was transferred
afterwards, or answered an echo that was sent afterwards. To one that cannot come back, written is read. Sending
settlements is `topic.edge.settlement`'s business.
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
    """The settlements of one router that some local subscriber may not have read."""

    def __init__(self, outlet: Outlet, records: RecordTable) -> None:
        self.outlet = outlet
        self.records = records

    def remember(self, subscriber: LocalSubscriber, record: Record) -> None:
        """The record's settlement is on its way to the subscriber, or waits for it to come back."""
        assert record.state is State.SETTLED
        record.unread += 1
        self.told(subscriber, record)

    def told(self, subscriber: LocalSubscriber, record: Record) -> None:
        """The record's settlement has just been written to the subscriber's link."""
        subscriber.unread.append(record)
        subscriber.armed = subscriber.marker is None

    def ask(self, subscriber: LocalSubscriber) -> None:
        """Ask the subscriber for a sign that it has read its settlements, unless one is under way."""
        if subscriber.unread and subscriber.echo_covers is None and subscriber.answered:
            subscriber.echo_covers = len(subscriber.unread)
            self.outlet.actions.append(Echo(subscriber.link))

    def echoed(self, subscriber: LocalSubscriber) -> None:
        """The subscriber has answered the echo: it has read what was settled before that was sent. What was settled
        later takes another echo."""
        count, subscriber.echo_covers = subscriber.echo_covers, None
        self.known(subscriber, count or 0)
        self.ask(subscriber)

    def known(self, subscriber: LocalSubscriber, count: int) -> None:
        """The subscriber has read its `count` oldest settlements."""
        assert count <= len(subscriber.unread)
        if subscriber.echo_covers is not None:
            subscriber.echo_covers = max(0, subscriber.echo_covers - count)
        for _ in range(count):
            self._knows(subscriber.unread.popleft())
        subscriber.unmark()

    def attached_again(self, subscriber: LocalSubscriber, client_map: Mapping[bytes, int] | None) -> None:
        """The subscriber has attached with this map. What the map lacks it has read of, also if the map is incomplete:
        a limit (10). What the map names our answer leaves out, so it reads of that with its next answer."""
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
        """What the map names, and is settled, may be kept here for others alone: it is for this subscriber, too, or its
        old outcome could be taken for that of a new message before our answer is made."""
        known, by_key = set(subscriber.unread), self.records.by_key
        for record in [by_key[key] for key in client_map if key in by_key]:
            is_meant = record.state is State.SETTLED and meets(record.stream.address, subscriber.identity.address)
            if is_meant and record not in known:
                self.remember(subscriber, record)

    def _knows(self, record: Record) -> None:
        """One subscriber more has read of the settlement; the last one lets the record go."""
        record.unread -= 1
        assert record.unread >= 0
        if not record.unread and (not record.awaited or not isinstance(record.stream, HomeStream)):
            self.forget([record])

    def forget(self, records: list[Record]) -> None:
        """Forget records that nobody needs any more."""
        for stream, run in by_stream(records):
            self.outlet.trace_records(Event.FORGOTTEN, stream, run)
            for record in run:
                assert not record.unread
                for home in record.awaited:
                    self.outlet.batches.forgotten(home, stream, record.n)
            self.records.forget(stream, run)
            if stream.is_withholding:
                self.records.unblocked.append(stream)
