"""What the home rules and the edge rules of one router share: names, directory, records by key, and the ways out."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from linkstate.clock import HybridClock
from topic.actions import Action
from topic.directory import Directory
from topic.identity import Epoch
from topic.journal import Block, Event
from topic.record import Record, Stream
from topic.wire import Outgoing


class Context:
    """One per router incarnation."""

    def __init__(self, directory: Directory, clock: HybridClock, journal: Block, redeliveries: int) -> None:
        self.router = directory.router
        self.directory = directory
        self.clock = clock
        self.redeliveries = redeliveries
        self.out: list[Action] = []
        self.outgoing = Outgoing()
        self.records: dict[bytes, Record] = {}
        """Every record here, by delivery key; placeholders too, presettled ones not."""
        self.booted = False
        """Acceptances are withheld until then (protocol 8, Boot)."""
        self.time_us = 0
        """Wall clock of the event being handled, for the delivery log only."""
        self._journal = journal

    def forget(self, record: Record) -> None:
        """Nobody needs the record any more."""
        if self.records.get(record.key) is record:
            del self.records[record.key]
        record.stream.records.pop(record.n, None)

    def trace(self, event: Event, **columns: Any) -> None:
        """One entry of the delivery log (protocol 10)."""
        self._journal.append(event, time_us=self.time_us, hlc=self.clock.stamp(), **columns)

    def trace_records(self, event: Event, stream: Stream, records: list[Record], **columns: Any) -> None:
        """One entry about deliveries of one stream; at an edge it names the home as the peer (`topic.journal`)."""
        if stream.home != self.router and "peer" not in columns and event is not Event.OUTCOME:
            columns["peer"] = stream.home
        self._journal.append(
            event,
            time_us=self.time_us,
            hlc=self.clock.stamp(),
            keys=[record.key for record in records],
            address=stream.identity.address,
            publisher=stream.publisher,
            epoch=stream.label,
            **columns,
        )

    def new_epoch(self) -> Epoch:
        return Epoch(self.clock.stamp(), self.router, self.directory.incarnation)


def by_stream(records: Iterable[Record]) -> Iterator[tuple[Stream, list[Record]]]:
    """Runs of records of the same stream, order kept."""
    for stream, run in groupby(records, key=_stream_of):
        yield stream, list(run)


def in_ranges(stream: Stream, ranges: list[int]) -> list[Record]:
    """The records held of `[low, high, low, high, …]`, bounds included."""
    records = stream.records
    found: list[Record] = []
    for low, high in zip(ranges[::2], ranges[1::2], strict=True):
        if high - low < 2 * len(records) + 16:
            found += [record for n in range(low, high + 1) if (record := records.get(n)) is not None]
        else:
            found += [record for n, record in records.items() if low <= n <= high]
    return found


def _stream_of(record: Record) -> Stream:
    return record.stream
