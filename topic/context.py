"""What the home rules and the edge rules of one router share: names, directory, records by key, and the ways out."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from linkstate.clock import HybridClock
from topic.actions import Action
from topic.delivery.record import Record, Stream
from topic.directory.directory import Directory
from topic.directory.entry import Change, LinkEntry
from topic.identity import Epoch
from topic.journal import Block, Event
from topic.wire.outgoing import Outgoing


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
        self.busy_keys: dict[bytes, Stream] = {}
        """Keys still held for an older delivery, and the stream whose next delivery waits for that to be forgotten."""
        self.freed: list[Stream] = []
        """Streams whose next delivery need not wait any longer."""
        self.spent: list[Record] = []
        """Settled, and kept until other routers know: the messages are dropped once the shell has sent them."""
        self._journal = journal

    def enter(self, records: list[Record]) -> bool:
        """Enters new records by key; False, and nothing entered, if an older delivery holds one of the keys: a tag
        must not be used again before the network has forgotten it (protocol 10, Limits)."""
        keys = [record.key for record in records]
        if len(set(keys)) < len(keys) or not self.records.keys().isdisjoint(keys):
            return False
        self.records.update(zip(keys, records, strict=True))
        return True

    def drop_spent(self) -> None:
        for record in self.spent:
            record.message = None
        self.spent.clear()

    def forget(self, record: Record) -> None:
        """Nobody needs the record any more."""
        if self.records.get(record.key) is record:
            del self.records[record.key]
            if self.busy_keys and record.key in self.busy_keys:
                self.freed.append(self.busy_keys.pop(record.key))
        record.stream.records.pop(record.n, None)

    def trace(self, event: Event, **columns: Any) -> None:
        """One entry of the delivery log (docs/architecture.md)."""
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

    def tell(self, entry: LinkEntry) -> Change:
        """Change our own section; contacts first, so that what follows finds them informed."""
        change = self.directory.write(entry)
        self.outgoing.delta(self.directory.contacts, self.directory.version, [entry], [])
        return change

    def new_epoch(self, known: LinkEntry | None) -> Epoch:
        """For an attach now: above the one known of that link, even if a clock too far ahead to be believed gave it."""
        stamp = self.clock.stamp()
        if known is not None:
            stamp = max(stamp, known.epoch.hlc + 1)
        return Epoch(stamp, self.router, self.directory.incarnation)


def by_stream(records: Iterable[Record]) -> Iterator[tuple[Stream, list[Record]]]:
    """Runs of records of the same stream, order kept."""
    for stream, run in groupby(records, key=_stream_of):
        yield stream, list(run)


def in_ranges(stream: Stream, ranges: list[int]) -> list[Record]:
    """The records held of `[low, high, low, high, …]`, bounds included, each once."""
    records = stream.records
    found: list[Record] = []
    for low, high in zip(ranges[::2], ranges[1::2], strict=True):
        if high - low < 2 * len(records) + 16:
            found += [record for n in range(low, high + 1) if (record := records.get(n)) is not None]
        else:
            found += [record for n, record in records.items() if low <= n <= high]
    return found if len(ranges) <= 2 else list(dict.fromkeys(found))


def ranges_without(ranges: list[int], left_out: set[int]) -> list[int]:
    """The ranges less some numbers."""
    left: list[int] = []
    for low, high in zip(ranges[::2], ranges[1::2], strict=True):
        for out in sorted(n for n in left_out if low <= n <= high):
            left += [low, out - 1] if low < out else []
            low = out + 1
        left += [low, high] if low <= high else []
    return left


def _stream_of(record: Record) -> Stream:
    return record.stream
