"""All records of one router, keyed by delivery, and the streams that wait until a key is free (protocol 5, Reused
tags).

A key belongs to one delivery at a time. The record itself keeps its state.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from topic.delivery.record import Record, State, Stream
from topic.directory.addresses import ByAddress
from topic.identity import Epoch


class RecordTable:
    """The records of one router incarnation."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, Record] = {}
        """Keyed by delivery key: all records, with placeholders, without presettled records."""
        self._at: ByAddress[bytes, Record] = ByAddress()
        """The same records by address."""
        self.busy_keys: dict[bytes, Stream] = {}
        """Keys that an older delivery holds, and the stream whose next delivery waits for each."""
        self.received: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        """Statistics by the name of the kind of address: transfers from publishers, transfers to subscribers, and
        transfers that subscribers have accepted."""
        self.unblocked: list[Stream] = []
        """Streams whose next delivery need not wait any longer."""
        self.settled: list[Record] = []
        """Settled records. Their messages are dropped once the shell has sent them. A record may be needed for longer:
        until another router has settled it, a subscriber has read the settlement, or an end of a link has forgotten
        it."""

    def enter(self, records: list[Record]) -> bool:
        """Enter new records of one stream. False, and nothing entered, if an older delivery holds one of the keys: a
        tag must not be used again before the network has forgotten it (protocol 10)."""
        keys = [record.key for record in records]
        if len(set(keys)) < len(keys) or not self.by_key.keys().isdisjoint(keys):
            return False
        self._enter(dict(zip(keys, records, strict=True)), records[0].stream.address)
        return True

    def name(self, record: Record) -> None:
        """Enter a record that a subscriber's map names, and that is not here or waits behind others."""
        assert record.key not in self.by_key
        self._enter({record.key: record}, record.stream.address)

    def _enter(self, records: dict[bytes, Record], address: str) -> None:
        self.by_key.update(records)
        self._at.at(address).update(records)

    def at(self, address: str) -> Collection[Record]:
        """The records of an address, or of all addresses that a pattern covers, in the order of entry."""
        return self._at.meeting(address)

    def readdress(self, records: list[Record], former: str) -> None:
        """Move records from the address or pattern at which they were until their publisher was known."""
        self._at.discard(former, *(record.key for record in records))
        for record in records:
            self._at.at(record.stream.address)[record.key] = record

    def forget(self, stream: Stream, records: list[Record]) -> None:
        """Forget records of the stream that are not needed any more, and free their keys."""
        by_key, in_order, at_address = self.by_key, stream.records, self._at.at(stream.address)
        for record in records:
            key = record.key
            if by_key.get(key) is record:
                del by_key[key], at_address[key]
                if self.busy_keys and key in self.busy_keys:
                    self.unblocked.append(self.busy_keys.pop(key))
            in_order.pop(record.n, None)
        self._at.discard(stream.address)

    def drop_messages(self) -> None:
        """Drop the messages of settled records, because the shell has sent them."""
        for record in self.settled:
            assert record.state is State.SETTLED
            record.message = None
        self.settled.clear()


def sizes(records: Iterable[Record]) -> list[int]:
    """Bytes of each message that is here; 0 for a missing one."""
    return [len(record.message or b"") for record in records]


def by_stream(records: Iterable[Record]) -> Iterator[tuple[Stream, list[Record]]]:
    """Runs of records of the same stream, in the given order."""
    for stream, run in groupby(records, key=attrgetter("stream")):
        yield stream, list(run)


def in_ranges(stream: Stream, ranges: list[int]) -> list[Record]:
    """The stream's records in `[low, high, low, high, …]`, bounds included, each once. The cost depends on the number
    of records and ranges, not on the length of the ranges, which another router has chosen."""
    records = stream.records
    spans = list(zip(ranges[::2], ranges[1::2], strict=True))
    if sum(max(0, high - low) for low, high in spans) < 2 * len(records) + 16 * len(spans):
        found = [record for low, high in spans for n in range(low, high + 1) if (record := records.get(n)) is not None]
        return found if len(spans) <= 1 else list(dict.fromkeys(found))
    spans = _disjoint(spans)
    lows = [low for low, _ in spans]
    return [record for n, record in records.items() if (at := bisect_right(lows, n)) and n <= spans[at - 1][1]]


def given_in(stream: Stream, epoch: Epoch, ranges: list[int]) -> list[Record]:
    """The stream's unconfirmed records whose last Forward was for the attach `epoch` of the publisher, with a place in
    `ranges` (pairs of a first and a last place)."""
    spans = list(zip(ranges[::2], ranges[1::2], strict=True))
    given = [record for record in stream.unconfirmed.values() if record.given and record.given[0] == epoch]
    return [record for record in given if record.given and any(low <= record.given[1] <= high for low, high in spans)]


def ranges_without(ranges: list[int], left_out: set[int]) -> list[int]:
    """The ranges without these numbers."""
    left: list[int] = []
    out = sorted(left_out)
    for low, high in _disjoint(list(zip(ranges[::2], ranges[1::2], strict=True))):
        for number in out[bisect_left(out, low) : bisect_right(out, high)]:
            left += [low, number - 1] if low < number else []
            low = number + 1
        left += [low, high] if low <= high else []
    return left


def _disjoint(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in disjoint spans, ascending."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        elif low <= high:
            found.append((low, high))
    return found
