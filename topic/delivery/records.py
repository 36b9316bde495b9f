"""All records of one router, by delivery key, and who waits for a key to become free (protocol 5, Reused tags).

A key belongs to one delivery at a time. What becomes of a record while it is here is the record's own business.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

from topic.delivery.record import Record, Stream


class RecordTable:
    """The records of one router incarnation."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, Record] = {}
        """Placeholders too; presettled records not."""
        self.busy_keys: dict[bytes, Stream] = {}
        """Keys that an older delivery holds, and the stream whose next delivery waits for each."""
        self.freed: list[Stream] = []
        """Streams whose next delivery need not wait any longer."""
        self.spent: list[Record] = []
        """Settled records that other routers have yet to settle: their messages are dropped once the shell has sent
        them."""

    def enter(self, records: list[Record]) -> bool:
        """Enter new records by key. False, and nothing entered, if an older delivery holds one of the keys: a tag must
        not be used again before the network has forgotten it (protocol 10)."""
        keys = [record.key for record in records]
        if len(set(keys)) < len(keys) or not self.by_key.keys().isdisjoint(keys):
            return False
        self.by_key.update(zip(keys, records, strict=True))
        return True

    def forget(self, record: Record) -> None:
        """Forget a record that nobody needs, and free its key."""
        if self.by_key.get(record.key) is record:
            del self.by_key[record.key]
            if self.busy_keys and record.key in self.busy_keys:
                self.freed.append(self.busy_keys.pop(record.key))
        record.stream.records.pop(record.n, None)

    def drop_spent(self) -> None:
        """Drop the messages of settled records: the shell has sent them."""
        for record in self.spent:
            record.message = None
        self.spent.clear()


def by_stream(records: Iterable[Record]) -> Iterator[tuple[Stream, list[Record]]]:
    """Runs of records of the same stream, in the given order."""
    for stream, run in groupby(records, key=_stream_of):
        yield stream, list(run)


def in_ranges(stream: Stream, ranges: list[int]) -> list[Record]:
    """The stream's records in `[low, high, low, high, …]`, bounds included, each once."""
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
