"""The log of one replica: its entries, up to where they are committed, and up to where the disk has them (protocol
13.5).

The disk works asynchronously. Each write has a number and replaces all entries from one index on. `stable` is the last
index up to which the disk and this log are surely equal, whatever writes are under way. If an entry was replaced after
a write had begun, the end of this write does not make the new entry stable.

A snapshot stands for all entries up to its index.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import attrs

from topic.raft.configuration import Configuration, Replica

OVERHEAD: Final = 64
"""The bytes by which an entry counts in addition to its data."""
NOBODY: Final = Configuration(())


@attrs.frozen(slots=True)
class Entry:
    """One entry of the log. A leader begins its term with an entry that has neither data nor a configuration."""

    term: int
    data: bytes = b""
    configuration: Configuration | None = None

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.data)


@attrs.frozen(slots=True)
class Snapshot:
    """Names the state after all entries up to an index. The shell has the state itself, in pieces."""

    index: int = 0
    term: int = 0
    """The term of the entry at the snapshot's index."""
    configuration: Configuration = NOBODY
    """The members at the snapshot's index."""


NOTHING: Final = Snapshot()


@attrs.frozen(slots=True)
class _Write:
    number: int
    first: int
    """The lowest index that the write replaces on the disk."""
    last: int
    """The last index that the disk has after the write."""


class RaftLog:
    """A snapshot and the entries after it. The snapshot of a new log is at index 0, in term 0, without members."""

    def __init__(self, entries: Sequence[Entry] = (), snapshot: Snapshot = NOTHING) -> None:
        self.snapshot = snapshot
        self.commit = self.snapshot.index
        self._entries: list[Entry] = []
        self._sizes = [0]
        """For each index after the snapshot, the sum of the bytes of the entries from the snapshot up to it."""
        self._configurations = [(self.snapshot.index, self.snapshot.configuration)]
        self._writes: deque[_Write] = deque()
        self._extend(entries)
        self._last_written = self.last
        """The last index that the disk had after the last finished write."""
        self._unwritten = self.last + 1
        """The first index whose entry is neither on the disk nor in a write under way."""
        self._written_snapshot = self.snapshot

    @property
    def last(self) -> int:
        return self.snapshot.index + len(self._entries)

    @property
    def last_term(self) -> int:
        return self.term(self.last)

    @property
    def configuration(self) -> Configuration:
        """The latest configuration in the log. A replica acts on it at once, even before it is decided (Raft, 4.1)."""
        return self._configurations[-1][1]

    @property
    def configured_at(self) -> int:
        """The index of the latest configuration, or of the snapshot with it; 0 if there is none."""
        return self._configurations[-1][0]

    def may_stand(self, member: Replica) -> bool:
        """Whether the member may stand for election. It may if it is a voter, or was one before an undecided change: it
        may be the only voter that has this change (Raft, 4.2.2)."""
        open_changes = 2 if self.configured_at > self.commit else 1
        return any(member in configuration.voters for _, configuration in self._configurations[-open_changes:])

    @property
    def stable(self) -> int:
        """The last index up to which the disk has the entries of this log."""
        changed = min((write.first for write in self._writes), default=self._unwritten)
        return min(self._last_written, min(changed, self._unwritten) - 1)

    def term(self, index: int) -> int:
        """The term of the entry at this index; it must be in the log, or be the last entry that the snapshot stands
        for."""
        place = index - self.snapshot.index
        assert place >= 0, f"entry {index} is in the snapshot"
        return self._entries[place - 1].term if place else self.snapshot.term

    def has(self, index: int, term: int) -> bool:
        """Whether this log has the entry. An entry before the snapshot is decided, so every leader has the same one."""
        return index < self.snapshot.index or (index <= self.last and self.term(index) == term)

    def is_no_newer_than(self, last: int, last_term: int) -> bool:
        """Whether another log, with this last index and term, is at least as up to date as this one (Raft, 3.6.1)."""
        return (last_term, last) >= (self.last_term, self.last)

    def latest_up_to(self, index: int, term: int) -> int | None:
        """The highest index up to which this log may be equal to another log that ends at `index` in `term`. This is
        the last index, up to `index`, whose term is at most `term`. None if it would be before the snapshot."""
        index = min(index, self.last)
        while index >= self.snapshot.index and self.term(index) > term:
            index -= 1
        return index if index >= self.snapshot.index else None

    def size(self, above: int, to: int) -> int:
        """The bytes of the entries above one index and up to another. Entries that the snapshot stands for do not
        count."""
        first = self.snapshot.index
        return self._sizes[max(to - first, 0)] - self._sizes[max(above - first, 0)]

    def entries(self, first: int, last: int) -> tuple[Entry, ...]:
        assert first > self.snapshot.index, f"entry {first} is in the snapshot"
        return tuple(self._entries[first - self.snapshot.index - 1 : last - self.snapshot.index])

    def batch(self, first: int, most: int) -> tuple[Entry, ...]:
        """The entries from index `first` on, as many as fit into `most` bytes, but at least one if there is one."""
        last = min(first, self.last)
        while last < self.last and self.size(first - 1, last + 1) <= most:
            last += 1
        return self.entries(first, last)

    def append(self, entries: Sequence[Entry]) -> None:
        self._unwritten = min(self._unwritten, self.last + 1)
        self._extend(entries)

    def merge(self, previous: int, entries: Sequence[Entry]) -> None:
        """Put a leader's entries after the index `previous`. Entries that are equal stay. From the first different one
        on, the leader's entries replace the entries of this log (Raft, 3.5)."""
        for index, entry in enumerate(entries, previous + 1):
            if not self.has(index, entry.term):
                assert index > self.commit, f"a leader replaces entry {index}, which is committed"
                self._truncate(index)
                self.append(entries[index - previous - 1 :])
                return

    def begin(self, entry: Entry) -> None:
        """Replace all entries by this one, with which the set is to begin. The former entries belong to a life that
        never came into effect."""
        assert not self.commit
        self._truncate(1)
        self.append([entry])

    # The methods from here on are about snapshots.

    def compact(self, index: int) -> None:
        """Replace the entries up to a decided index by a snapshot."""
        assert self.snapshot.index <= index <= min(self.commit, self._unwritten - 1)
        configured = [one for one in self._configurations if one[0] <= index]
        snapshot = Snapshot(index, self.term(index), configured[-1][1])
        gone = index - self.snapshot.index
        del self._entries[:gone]
        self._sizes = [size - self._sizes[gone] for size in self._sizes[gone:]]
        self._configurations[: len(configured)] = [(index, snapshot.configuration)]
        self.snapshot = snapshot

    def install(self, snapshot: Snapshot) -> None:
        """Replace the whole log by a leader's snapshot. No entry of this log stays: the leader has found that its log
        and this one already differ before the snapshot's index."""
        assert snapshot.index > self.commit, f"a snapshot at {snapshot.index} replaces entries that are decided"
        self.snapshot = snapshot
        self.commit = snapshot.index
        self._entries.clear()
        self._sizes = [0]
        self._configurations = [(snapshot.index, snapshot.configuration)]
        self._unwritten = min(self._unwritten, snapshot.index)

    # The methods from here on are about the disk.

    def write(self, number: int) -> tuple[Snapshot | None, int, tuple[Entry, ...]]:
        """Begin a write of everything that no write has yet. Returns the snapshot if it is new, the first index that
        the write replaces, and the entries from this index on."""
        first = max(self._unwritten, self.snapshot.index + 1)
        is_new = self.snapshot != self._written_snapshot
        self._writes.append(_Write(number, self._unwritten, self.last))
        self._unwritten = self.last + 1
        self._written_snapshot = self.snapshot
        return self.snapshot if is_new else None, first, self.entries(first, self.last)

    def written(self, number: int) -> None:
        """Note that the disk has finished this write and all earlier ones."""
        while self._writes and self._writes[0].number <= number:
            self._last_written = self._writes.popleft().last

    @property
    def is_written(self) -> bool:
        """Whether all of this log is on the disk or in a write under way."""
        return self._unwritten > self.last and self.snapshot == self._written_snapshot

    # The methods from here on are about the entries.

    def _extend(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._entries.append(entry)
            self._sizes.append(self._sizes[-1] + entry.size)
            if entry.configuration is not None:
                self._configurations.append((self.last, entry.configuration))

    def _truncate(self, first: int) -> None:
        """Remove the entries from this index on, with the configurations among them."""
        place = first - self.snapshot.index
        del self._entries[place - 1 :]
        del self._sizes[place:]
        self._unwritten = min(self._unwritten, first)
        while self._configurations[-1][0] >= first:
            self._configurations.pop()

    def check(self) -> None:
        """Assert the invariants that hold between two events."""
        assert self.snapshot.index <= self.commit <= self.last and 0 <= self.stable <= self.last
        terms = [self.snapshot.term, *[entry.term for entry in self._entries]]
        assert terms == sorted(terms), "a term goes back"
        assert len(self._sizes) == len(self._entries) + 1
