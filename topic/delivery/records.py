"""The records of one router by delivery key, and the streams that wait until a key is free (protocol 5, Reused tags).

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
        """All records by delivery key, placeholders included. Presettled records are not here."""
        self._at: ByAddress[bytes, Record] = ByAddress()
        """The records of `by_key`, by the address of their delivery."""
        self.busy_keys: dict[bytes, Stream] = {}
        """Maps each key that an older delivery holds to the stream whose next delivery waits for this key."""
        self.received: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        """Three statistics, each counted by the name of the kind of address: transfers from publishers, transfers to
        subscribers, and transfers that subscribers have accepted."""
        self.unblocked: list[Stream] = []
        """The streams whose next delivery no longer waits for its key."""
        self.settled: list[Record] = []
        """Settled records whose messages the router drops once the shell has sent them. The record itself may stay
        longer: until other routers have settled it, subscribers have read the settlement, and the ends of its links
        have forgotten it."""

    def enter(self, records: list[Record]) -> bool:
        """Enter new records of one stream. If an older delivery holds one of the keys, enter none and return False,
        because a client must not use a tag again before the network has forgotten it (protocol 10)."""
        keys = [record.key for record in records]
        if len(set(keys)) < len(keys) or not self.by_key.keys().isdisjoint(keys):
            return False
        self._enter(dict(zip(keys, records, strict=True)), records[0].stream.address)
        return True

    def name(self, record: Record) -> None:
        """Enter a record that a subscriber's map names, and that the table lacks: it is new, or it is withheld behind
        others."""
        assert record.key not in self.by_key
        self._enter({record.key: record}, record.stream.address)

    def _enter(self, records: dict[bytes, Record], address: str) -> None:
        self.by_key.update(records)
        self._at.at(address).update(records)

    def at(self, address: str) -> Collection[Record]:
        """The records of an address, or of all addresses that a pattern covers, in the order of entry."""
        return self._at.meeting(address)

    def readdress(self, records: list[Record], former: str) -> None:
        """Move records to the address of their publisher. Until the publisher was known, they were at `former`: the
        address or pattern of the subscriber."""
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
    """The number of bytes of each record's message; 0 if the message is not here."""
    return [len(record.message or b"") for record in records]


def by_stream(records: Iterable[Record]) -> Iterator[tuple[Stream, list[Record]]]:
    """Split the records into runs of the same stream, in the given order."""
    for stream, run in groupby(records, key=attrgetter("stream")):
        yield stream, list(run)


def in_ranges(stream: Stream, ranges: list[int]) -> list[Record]:
    """The stream's records whose place is in `ranges` (`[low, high, low, high, …]`, bounds included), each once.

    Another router has chosen the ranges, so their length must not determine the cost. The cost depends on the number of
    records and ranges only.
    """
    records = stream.records
    spans = list(zip(ranges[::2], ranges[1::2], strict=True))
    if sum(max(0, high - low) for low, high in spans) < 2 * len(records) + 16 * len(spans):
        found = [record for low, high in spans for n in range(low, high + 1) if (record := records.get(n)) is not None]
        return found if len(spans) <= 1 else list(dict.fromkeys(found))
    spans = _disjoint(spans)
    lows = [low for low, _ in spans]
    return [record for n, record in records.items() if (at := bisect_right(lows, n)) and n <= spans[at - 1][1]]


def given_in(stream: Stream, epoch: Epoch, ranges: list[int]) -> list[Record]:
    """The stream's unconfirmed records that a home last forwarded in the publisher's attach `epoch`, with a place in
    `ranges` (pairs of a first and a last place)."""
    spans = list(zip(ranges[::2], ranges[1::2], strict=True))
    given = [record for record in stream.unconfirmed.values() if record.given and record.given[0] == epoch]
    return [record for record in given if record.given and any(low <= record.given[1] <= high for low, high in spans)]


def ranges_without(ranges: list[int], left_out: set[int]) -> list[int]:
    """The ranges (pairs of a first and a last number) without the numbers in `left_out`."""
    left: list[int] = []
    out = sorted(left_out)
    for low, high in _disjoint(list(zip(ranges[::2], ranges[1::2], strict=True))):
        for number in out[bisect_left(out, low) : bisect_right(out, high)]:
            left += [low, number - 1] if low < number else []
            low = number + 1
        left += [low, high] if low <= high else []
    return left


def _disjoint(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges of numbers so that none overlap, in ascending order."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        elif low <= high:
            found.append((low, high))
    return found
