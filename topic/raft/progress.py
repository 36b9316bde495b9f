"""What a leader knows about one other member, and the next message to this member (protocol 13.4)."""

from typing import Final

from topic.raft.log import Entry, RaftLog
from topic.raft.messages import Append, Lead, Piece

BATCH: Final = 256 * 1024
"""The limit of the bytes of entries in one `Append`. A single entry may be larger."""


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
        """The last commit index that the leader has sent to the member."""
        self._piece: int | None = None
        """The number of the next piece of the snapshot that the member gets; None while it needs no snapshot."""
        self._is_piece_under_way = False
        """Whether the shell is reading the piece `_piece`, or the member is storing it."""
        self.since = now
        """When this leader began to keep the member's progress."""
        self._round_began, self._round_to = now, last
        """For a learner, when its present round of catching up began, and the index at which the round ends."""

    def disconnected(self) -> None:
        """Handle the end of the contact. Messages under way are lost, perhaps also messages that were sent shortly
        before."""
        self.next = self._told = 0
        self.probe = self._piece = None

    def ask(self, log: RaftLog, index: int, term: int) -> Lead:
        """Make the first message of a contact, which asks the member whether its log has this entry."""
        self.probe = index
        self._told = min(log.commit, index)
        return Lead(term, index, log.term(index), log.commit)

    def learn(self, agreed: int, stored: int) -> None:
        """Note that the member's log is equal to the leader's up to `agreed`, and that its disk has the log up to
        `stored`."""
        if self.probe is not None and agreed >= self.probe:
            self.next, self.probe = agreed + 1, None
        self.stored = stored

    @property
    def is_in_contact(self) -> bool:
        """Whether the member is in contact: a message is under way to it, or may be sent at once."""
        return bool(self.next) or self.probe is not None or self.needs_snapshot

    def is_caught_up(self, last: int, now: float, quick: float) -> bool:
        """Whether the member stores entries about as fast as they come (Raft, 4.2.1).

        A round of catching up ends when the member has all entries that were in the log when the round began. The
        member has caught up if the round took at most `quick` seconds, or if the member now lacks nothing.
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
        if self.next <= log.snapshot.index:
            self.send_snapshot()
            return None
        entries: tuple[Entry, ...] = ()
        is_window_open = self.stored >= log.snapshot.index and log.size(self.stored, self.next - 1) < window
        if self.next <= log.last and is_window_open:
            entries = log.batch(self.next, BATCH)
        if not entries and not (is_due and self.lacks_commit(log)):
            return None
        previous, self.next = self.next - 1, self.next + len(entries)
        self._told = min(log.commit, self.next - 1)
        return Append(term, previous, log.term(previous), entries, log.commit)

    def send_snapshot(self) -> None:
        """Begin to send the snapshot from its first piece, because the log no longer has entries that the member
        lacks."""
        self.next, self.probe = 0, None
        self._piece, self._is_piece_under_way = 0, False

    @property
    def needs_snapshot(self) -> bool:
        return self._piece is not None

    def next_piece(self) -> int | None:
        """The number of the piece that the shell has to read now; None if none."""
        if self._piece is None or self._is_piece_under_way:
            return None
        self._is_piece_under_way = True
        return self._piece

    def take_piece(self, piece: Piece) -> bool:
        """Take a piece that the shell has read. Returns whether the member still needs it."""
        if self._piece != piece.place:
            return False
        if piece.is_last:
            self._piece, self.probe = None, piece.snapshot.index
        return True

    def staged(self, place: int) -> None:
        """Note that the member's disk has this piece."""
        if self._piece == place:
            self._piece, self._is_piece_under_way = place + 1, False
