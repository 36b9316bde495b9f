"""The log of one replica: its entries, how far they are committed, and how far the disk has them (protocol 13.5).

The disk works asynchronously. Each write has a number and replaces all entries from one index on. `stable` is the last
index up to which the disk and this log are equal, whatever writes are under way: an entry that was overwritten in the
meantime is not stable because an earlier write of it ends.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import attrs

from topic.raft.configuration import Configuration

OVERHEAD: Final = 64
"""Bytes that an entry counts beside its data."""


@attrs.frozen(slots=True)
class Entry:
    """One decision of a set. An entry with neither data nor configuration begins a leader's term."""

    term: int
    data: bytes = b""
    configuration: Configuration | None = None

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.data)


@attrs.frozen(slots=True)
class _Write:
    number: int
    first: int
    """The lowest index that the write replaces."""
    last: int
    """The last index of the log that it leaves on the disk."""


class RaftLog:
    """Entries from index 1 on. Index 0 stands before all of them, and has term 0."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self._entries: list[Entry] = []
        self._sizes = [0]
        """Bytes of all entries up to an index."""
        self._configurations: list[tuple[int, Configuration]] = []
        self.commit = 0
        self._writes: deque[_Write] = deque()
        self._last_written = 0
        """The last index of the log that the last finished write has left."""
        self._extend(entries)
        self._unwritten = self._last_written = self.last + 1
        self._last_written -= 1

    @property
    def last(self) -> int:
        return len(self._entries)

    @property
    def last_term(self) -> int:
        return self.term(self.last)

    @property
    def configuration(self) -> Configuration:
        """The latest one. A replica acts on it as soon as it is in the log (Raft, 4.1)."""
        return self._configurations[-1][1] if self._configurations else Configuration(())

    @property
    def configured_at(self) -> int:
        """The index of the latest configuration; 0: there is none."""
        return self._configurations[-1][0] if self._configurations else 0

    @property
    def stable(self) -> int:
        """The last index up to which the disk has what is here."""
        changed = min((write.first for write in self._writes), default=self._unwritten)
        return min(self._last_written, min(changed, self._unwritten) - 1)

    def term(self, index: int) -> int:
        return self._entries[index - 1].term if index else 0

    def has(self, index: int, term: int) -> bool:
        return index <= self.last and self.term(index) == term

    def is_no_newer_than(self, last: int, last_term: int) -> bool:
        """Whether a log that ends there is at least as up to date as this one (Raft, 3.6.1)."""
        return (last_term, last) >= (self.last_term, self.last)

    def latest_up_to(self, index: int, term: int) -> int:
        """The highest index, at most `index`, whose term is at most `term`: where two logs may still agree."""
        index = min(index, self.last)
        while self.term(index) > term:
            index -= 1
        return index

    def size(self, above: int, to: int) -> int:
        """Bytes of the entries above one index, up to another."""
        return self._sizes[to] - self._sizes[above]

    def entries(self, first: int, last: int) -> tuple[Entry, ...]:
        return tuple(self._entries[first - 1 : last])

    def batch(self, first: int, most: int) -> tuple[Entry, ...]:
        """Entries from `first` on, of `most` bytes together, but at least one if there is one."""
        last = min(first, self.last)
        while last < self.last and self.size(first - 1, last + 1) <= most:
            last += 1
        return self.entries(first, last)

    def append(self, entries: Sequence[Entry]) -> None:
        self._unwritten = min(self._unwritten, self.last + 1)
        self._extend(entries)

    def merge(self, previous: int, entries: Sequence[Entry]) -> None:
        """Put the entries of a leader behind the index `previous`. Entries that are here already stay; from the first
        one that differs on, the leader's replace what is here (Raft, 3.5)."""
        for index, entry in enumerate(entries, previous + 1):
            if not self.has(index, entry.term):
                assert index > self.commit, f"a leader replaces entry {index}, which is committed"
                self._truncate(index)
                self.append(entries[index - previous - 1 :])
                return

    def begin(self, entry: Entry) -> None:
        """Have this entry alone: the set is to begin with it. What was here has never come into effect."""
        assert not self.commit
        self._truncate(1)
        self.append([entry])

    # the disk

    def write(self, number: int) -> tuple[int, tuple[Entry, ...]]:
        """Begin a write of all that no write has: from which index on, and the entries."""
        first = self._unwritten
        self._writes.append(_Write(number, first, self.last))
        self._unwritten = self.last + 1
        return first, self.entries(first, self.last)

    def written(self, number: int) -> None:
        """This write is on the disk, and so are all before it."""
        while self._writes and self._writes[0].number <= number:
            self._last_written = self._writes.popleft().last

    @property
    def is_written(self) -> bool:
        """Whether each entry is on the disk, or in a write under way."""
        return self._unwritten > self.last

    # the entries

    def _extend(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._entries.append(entry)
            self._sizes.append(self._sizes[-1] + entry.size)
            if entry.configuration is not None:
                self._configurations.append((self.last, entry.configuration))

    def _truncate(self, first: int) -> None:
        """Remove the entries from this index on. A configuration among them is none any more."""
        del self._entries[first - 1 :]
        del self._sizes[first:]
        self._unwritten = min(self._unwritten, first)
        while self._configurations and self._configurations[-1][0] >= first:
            self._configurations.pop()

    def check(self) -> None:
        """Assert what holds whenever no event is being handled."""
        assert 0 <= self.commit <= self.last and 0 <= self.stable <= self.last
        assert all(a.term <= b.term for a, b in zip(self._entries, self._entries[1:], strict=False)), "a term goes back"
