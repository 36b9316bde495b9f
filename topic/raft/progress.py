"""The progress of one other member as its leader knows it, and the next message to this member (protocol 13.4)."""

import math
from typing import Final

import attrs

from topic.raft.log import Entry, RaftLog
from topic.raft.messages import PIECE, Append, Lead, Piece

BATCH: Final = 256 * 1024
"""The highest number of bytes of entries in one `Append`. A single entry may be larger."""
MOST_PIECE: Final = 1 << 20
"""The approximate highest number of bytes of a piece of a snapshot."""
MOST_REST: Final = 1.0
"""The longest rest of a leader between two pieces of a snapshot, in seconds."""
AHEAD: Final = 2
"""The number of bytes of a snapshot that the leader sends for each byte by which the log grows meanwhile (protocol
13.6)."""


@attrs.frozen(slots=True)
class SnapshotPart:
    """The part of a snapshot that a member has (`Lacking`)."""

    index: int
    pieces: int
    end: bytes


class FollowerProgress:
    """The progress of one member under this leader. Within a contact, a channel keeps order and loses nothing, so the
    leader sends nothing twice."""

    def __init__(self, last: int, now: float) -> None:
        """`last`: the last index of the leader's log. The first round of catching up ends when the member has it."""
        self.stored = 0
        """The last index that the member's disk has, as the member last reported."""
        self.next = 0
        """The index of the first entry that has not been sent; 0 while the leader does not know up to where the two
        logs are equal."""
        self.probe: int | None = None
        """The index about which the leader has asked the member, and got no answer yet."""
        self._told = 0
        """The last commit index that this leader has sent to the member."""
        self._piece: SnapshotPart | None = None
        """The part of a snapshot that the member's disk has; the next piece begins where this part ends. None while the
        member needs no snapshot."""
        self._sent: SnapshotPart | None = None
        """The part of a snapshot that the member will have when it has stored the piece that is under way; None if no
        piece is under way."""
        self._is_reading = False
        """Whether the shell is reading the next piece."""
        self.copied = 0
        """The bytes of the pieces that this leader has sent to the member. The sum begins anew if the member has
        dropped the pieces."""
        self._asked: tuple[float, int] | None = None
        """When this leader last asked the shell for a piece, and the last index of the log at that time. None if the
        leader has not asked for a piece since the last `send_snapshot`."""
        self._size = 0
        """The bytes of the piece that this leader has sent last."""
        self._rests_until: float | None = None
        """When the rest after the last piece ends. None if the member has not stored this piece yet."""
        self.since = now
        """When this leader began to keep the member's progress."""
        self._round_began, self._round_to = now, last
        """For a learner, when its present round of catching up began, and the index at which the round ends."""

    def disconnected(self) -> None:
        """Handle the end of the contact. Messages under way are lost, perhaps also messages that were sent shortly
        before."""
        self.next = self._told = 0
        self.probe = self._piece = self._sent = None

    def ask(self, log: RaftLog, index: int, term: int) -> Lead:
        """Make the first message of a contact, which asks the member whether its log has this entry."""
        self.probe = index
        self._told = min(log.commit, index)
        return Lead(term, index, log.term(index), log.commit)

    def ask_again(self, log: RaftLog, term: int) -> Lead:
        """Ask the member again which entries it has, as in a new contact, because the log no longer has the next entry
        for the member. The member receives all earlier messages before this question, so its answer counts them."""
        self.disconnected()
        return self.ask(log, log.last, term)

    def learn(self, agreed: int, stored: int) -> None:
        """The member's log is equal to the leader's up to `agreed`, and its disk has the log up to `stored`."""
        if self.probe is not None and agreed >= self.probe:
            self.next, self.probe = agreed + 1, None
        self.stored = stored

    @property
    def is_in_contact(self) -> bool:
        """Whether the member is in contact. Then the leader awaits the member's answer about an entry, sends a
        snapshot, or knows the next entry to send."""
        return bool(self.next) or self.probe is not None or self.needs_snapshot

    def lacks(self, index: int) -> bool:
        """Whether the member is in contact, and its disk lacks an entry up to this index. The leader still has to send
        it these entries, or a snapshot."""
        return self.is_in_contact and self.stored < index

    def is_caught_up(self, last: int, now: float, quick: float) -> bool:
        """Whether the member stores entries about as fast as they come (Raft, 4.2.1).

        A round of catching up ends when the member has all entries that were in the log when the round began. The
        member has caught up if the round took at most `quick` seconds, or if the member now has all entries.
        """
        if self.stored < self._round_to:
            return False
        lasted, self._round_began, self._round_to = now - self._round_began, now, last
        return self.stored == last or lasted <= quick

    def lacks_commit(self, log: RaftLog) -> bool:
        """Whether the leader can tell the member a higher commit index than the last one."""
        return bool(self.next) and self._told < min(log.commit, self.next - 1)

    # The methods from here on are about messages to the member.

    def next_append(self, log: RaftLog, term: int, window: int, *, is_due: bool) -> Append | None:
        """The next `Append`; None if there is none to send now. Entries are sent while less than `window` bytes are
        under way to the member's disk. `is_due`: send the commit index even without entries."""
        if not self.next:
            return None
        assert self.next > log.snapshot.index, "it is to be asked what it has of the snapshot"
        entries: tuple[Entry, ...] = ()
        is_window_open = self.stored >= log.snapshot.index and log.size(self.stored, self.next - 1) < window
        if self.next <= log.last and is_window_open:
            entries = log.batch(self.next, BATCH)
        if not entries and not (is_due and self.lacks_commit(log)):
            return None
        previous, self.next = self.next - 1, self.next + len(entries)
        self._told = min(log.commit, self.next - 1)
        return Append(term, previous, log.term(previous), entries, log.commit)

    def lacks_entries(self, log: RaftLog) -> bool:
        """Whether the log no longer has the entries that the leader has to send next."""
        return 0 < self.next <= log.snapshot.index

    def send_snapshot(self, has: SnapshotPart) -> None:
        """Begin to send the snapshot, because the log no longer has the entries that the member lacks. `has`: the part
        of a snapshot that the member has. The first piece begins where this part ends."""
        self.next, self.probe = 0, None
        self._piece, self._sent, self._is_reading = has, None, False
        self._asked = self._rests_until = None
        if not has.pieces:
            self.copied = 0

    @property
    def needs_snapshot(self) -> bool:
        return self._piece is not None

    @property
    def end(self) -> bytes | None:
        """The end of the pieces that the member has, or will have with the piece under way. Empty if it will have none;
        None if it needs no snapshot."""
        part = self._sent or self._piece
        return part.end if part is not None else None

    @property
    def reads_at(self) -> float:
        """When the rest ends after which the leader asks the shell for the next piece; infinite if the leader does not
        rest."""
        return self._rests_until if self._is_waiting and self._rests_until is not None else math.inf

    @property
    def _is_waiting(self) -> bool:
        """Whether the member needs another piece, and none is under way."""
        return self._piece is not None and self._sent is None and not self._is_reading

    def next_piece(self, log: RaftLog, now: float) -> tuple[SnapshotPart, int] | None:
        """The part of a snapshot after which the shell has to read a piece now, and the approximate number of bytes of
        that piece. None if the shell has to read no piece.

        If the log has grown since the leader last asked for a piece, the leader rests before it asks for the next one.
        The rest is as long as the last piece took, at most `MOST_REST`. The rest ends early when `AHEAD` times the
        growth of the log reaches the size of the last piece. If the log grows even faster, the next piece is larger.
        """
        if not self._is_waiting or self._piece is None:
            return None
        size = PIECE
        if self._asked is not None:
            asked, last = self._asked
            needed = AHEAD * log.size(last, log.last)
            if self._rests_until is None:
                self._rests_until = now + min(now - asked, MOST_REST) if needed else now
            if now < self._rests_until and needed < self._size:
                return None
            size = max(PIECE, min(needed, MOST_PIECE))
        self._is_reading = True
        self._rests_until = None
        self._asked = now, log.last
        return self._piece, size

    def read_anew(self) -> None:
        """The leader has a new snapshot. It does not send the piece of the former snapshot that the shell is reading,
        so the shell has to read the next piece again."""
        self._is_reading = False

    def take_piece(self, has: SnapshotPart, piece: Piece) -> bool:
        """Take a piece that the shell has read. `has`: the part of a snapshot that is before the piece. Returns whether
        the leader has to send the piece to the member. The leader does not send a piece twice, although the shell may
        have read it both for an earlier contact and for this one."""
        if self._piece != has or self._sent is not None:
            return False
        self._sent, self._is_reading = SnapshotPart(piece.snapshot.index, piece.place + 1, piece.end), False
        self._size = len(piece.data)
        self.copied += self._size
        if piece.is_last:
            self._piece, self._sent, self.probe = None, None, piece.snapshot.index
        return True

    def staged(self, place: int) -> None:
        """Note that the member's disk has the piece of the snapshot with this number."""
        if self._sent is not None and place + 1 == self._sent.pieces:
            self._piece, self._sent = self._sent, None
