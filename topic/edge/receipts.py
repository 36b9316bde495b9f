"""When an edge may forget a settled delivery (protocol 5, Forget).

A subscriber whose terminus outlives its connection may come back with an unsettled map that names what we have settled
meanwhile. If the key was used again by then, its old acceptance would be taken for that of the new message. So a record
is kept until such a subscriber is known to know: it gave an outcome of something transferred after the settlement, or
answered an echo that was sent after it. To one that cannot come back, written is known.
"""

from collections.abc import Mapping

from topic.actions import Echo
from topic.delivery.record import Record
from topic.delivery.records import RecordTable, by_stream
from topic.edge.subscriber import LocalSubscriber
from topic.journal import Event
from topic.outlet import Outlet


class Receipts:
    """The settled deliveries of one router that some local subscriber may not know of."""

    def __init__(self, outlet: Outlet, records: RecordTable) -> None:
        self.outlet = outlet
        self.records = records

    def remember(self, subscriber: LocalSubscriber, record: Record) -> None:
        """Its settlement is on its way to the subscriber, or waits for it to come back."""
        record.unknowing += 1
        self.told(subscriber, record)

    def told(self, subscriber: LocalSubscriber, record: Record) -> None:
        """Its settlement has just been written."""
        subscriber.unknowing.append(record)
        subscriber.armed = subscriber.marker is None

    def ask(self, subscriber: LocalSubscriber) -> None:
        """For a sign that it has read what was settled, unless it was asked already."""
        if subscriber.unknowing and subscriber.asked is None and subscriber.answered:
            subscriber.asked = len(subscriber.unknowing)
            self.outlet.actions.append(Echo(subscriber.link))

    def echoed(self, subscriber: LocalSubscriber) -> None:
        """It has answered: what was settled before we asked it knows."""
        count, subscriber.asked = subscriber.asked, None
        self.known(subscriber, count or 0)
        self.ask(subscriber)

    def known(self, subscriber: LocalSubscriber, count: int) -> None:
        """It knows of its `count` oldest settlements."""
        if subscriber.asked is not None:
            subscriber.asked = max(0, subscriber.asked - count)
        for _ in range(count):
            self._knows(subscriber.unknowing.popleft())
        subscriber.unmark()

    def attached_again(self, subscriber: LocalSubscriber, said: Mapping[bytes, int] | None) -> None:
        """What its map lacks it knows of; what it names it will miss in our map, and know when it next answers."""
        unknowing = list(subscriber.unknowing)
        subscriber.unknowing.clear()
        for record in unknowing:
            if said is not None and record.key in said:
                subscriber.unknowing.append(record)
            else:
                self._knows(record)
        subscriber.unmark()

    def _knows(self, record: Record) -> None:
        record.unknowing -= 1
        assert record.unknowing >= 0
        if not record.unknowing and (not record.awaited or not record.stream.here):
            self.forget([record])

    def forget(self, records: list[Record]) -> None:
        """Nobody needs these any more."""
        for stream, run in by_stream(records):
            self.outlet.trace_records(Event.FORGOTTEN, stream, run)
            for record in run:
                for home in record.awaited:
                    self.outlet.batches.forgotten(home, stream, record.n)
                self.records.forget(record)
            if stream.withheld_at_edge or stream.withheld:
                self.records.freed.append(stream)
