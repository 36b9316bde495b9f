"""What a leader knows of one other member, and what it sends next (protocol 13.4)."""

from typing import Final

from topic.raft.log import Entry, RaftLog
from topic.raft.messages import Append, Lead

BATCH: Final = 256 * 1024
"""Bytes of the entries of one `Append`, unless a single entry is larger."""


class FollowerProgress:
    """One member, for as long as this leader leads. Channels keep order and lose nothing while a contact lasts, so
    nothing is sent twice in a contact."""

    def __init__(self) -> None:
        self.stored = 0
        """The last index that the member's disk has, by its own word to this leader."""
        self.next = 0
        """The first index that was not sent. 0: it is not known where the two logs agree."""
        self.probe: int | None = None
        """The index that the member was asked about, and has not answered."""
        self._told = 0
        """The commit index that the member was sent last."""

    def disconnected(self) -> None:
        """Nothing that is under way arrives, and nothing that was sent lately may have."""
        self.next = self._told = 0
        self.probe = None

    def ask(self, log: RaftLog, index: int, term: int) -> Lead:
        """Ask the member whether its log has this entry. It is the first message of a contact."""
        self.probe = index
        self._told = min(log.commit, index)
        return Lead(term, index, log.term(index), log.commit)

    def learn(self, agreed: int, stored: int) -> None:
        """The member's log is equal to this one up to `agreed`, and its disk has it up to `stored`."""
        if self.probe is not None and agreed >= self.probe:
            self.next, self.probe = agreed + 1, None
        self.stored = stored

    def next_append(self, log: RaftLog, term: int, window: int) -> Append | None:
        """The next message, if there is something to say and at most `window` bytes are on their way to its disk."""
        if not self.next:
            return None
        entries: tuple[Entry, ...] = ()
        if self.next <= log.last and log.size(self.stored, self.next - 1) < window:
            entries = log.batch(self.next, BATCH)
        if not entries and self._told >= min(log.commit, self.next - 1):
            return None
        previous, self.next = self.next - 1, self.next + len(entries)
        self._told = min(log.commit, self.next - 1)
        return Append(term, previous, log.term(previous), entries, log.commit)
