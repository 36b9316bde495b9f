"""All records of one router, by delivery key, and who waits for a key to become free (protocol 5, Reused tags).

A key belongs to one delivery at a time. What becomes of a record while it is here is the record's own business.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby

from topic.delivery.record import Record, State, Stream


class RecordTable:
    """The records of one router incarnation."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, Record] = {}
        """Placeholders too; presettled records not."""
        self.busy_keys: dict[bytes, Stream] = {}
        """Keys that an older delivery holds, and the stream whose next delivery waits for each."""
        self.unblocked: list[Stream] = []
        """Streams whose next delivery need not wait any longer."""
        self.settled: list[Record] = []
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
                self.unblocked.append(self.busy_keys.pop(record.key))
        record.stream.records.pop(record.n, None)

    def drop_messages(self) -> None:
        """Drop the messages of settled records: the shell has sent them."""
        for record in self.settled:
            assert record.state is State.SETTLED
            record.message = None
        self.settled.clear()


def by_stream(records: Iterable[Record]) -> Iterator[tuple[Stream, list[Record]]]:
    """Runs of records of the same stream, in the given order."""
    for stream, run in groupby(records, key=_stream_of):
        yield stream, list(run)


def in_ranges(stream: Stream, ranges: list[int]) -> list[Record]:
    """The stream's records in `[low, high, low, high, …]`, bounds included, each once. Costs what there are of either,
    not how far the ranges, which another router has named, reach."""
    records = stream.records
    spans = list(zip(ranges[::2], ranges[1::2], strict=True))
    if sum(max(0, high - low) for low, high in spans) < 2 * len(records) + 16 * len(spans):
        found = [record for low, high in spans for n in range(low, high + 1) if (record := records.get(n)) is not None]
        return found if len(spans) <= 1 else list(dict.fromkeys(found))
    spans = _disjoint(spans)
    lows = [low for low, _ in spans]
    return [record for n, record in records.items() if (at := bisect_right(lows, n)) and n <= spans[at - 1][1]]


def ranges_without(ranges: list[int], left_out: set[int]) -> list[int]:
    """The ranges less some numbers."""
    left: list[int] = []
    out = sorted(left_out)
    for low, high in _disjoint(list(zip(ranges[::2], ranges[1::2], strict=True))):
        for number in out[bisect_left(out, low) : bisect_right(out, high)]:
            left += [low, number - 1] if low < number else []
            low = number + 1
        left += [low, high] if low <= high else []
    return left


def _disjoint(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers, ascending, each once."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        elif low <= high:
            found.append((low, high))
    return found


def _stream_of(record: Record) -> Stream:
    return record.stream
