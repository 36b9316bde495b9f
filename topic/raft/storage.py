"""The writes under way to the disk of one replica, and the messages that wait for them (protocol 13.5).

A vote or an acknowledgement leaves only when the disk has what it promises. Writes have numbers and end in order, so a
message waits for one number.
"""

import math

from topic.raft.log import RaftLog
from topic.raft.messages import Envelope, Hard, Persist, StagedPiece


class Storage:
    """The writes to the store of one replica."""

    def __init__(self, hard: Hard, log: RaftLog) -> None:
        self.hard = hard
        """The values that the disk has."""
        self._log = log
        self._last = hard
        """The values in the last write that was begun."""
        self._number = 0
        self._writes: dict[int, tuple[float, Hard]] = {}
        """Keyed by number: the writes under way, with the time at which each was begun, and its values."""
        self._pieces: list[StagedPiece] = []
        """The pieces that are in no write yet."""
        self._held: list[tuple[int, Envelope]] = []
        """The messages that wait, each with the number of the write for which it waits."""

    def write(self, hard: Hard, now: float) -> Persist | None:
        """Begin a write of everything that is in no write yet; None if there is nothing."""
        if self._has_all(hard):
            return None
        self._number += 1
        self._writes[self._number] = now, hard
        self._last = hard
        pieces, self._pieces = tuple(self._pieces), []
        return Persist(self._number, hard, pieces, *self._log.write(self._number))

    def stage(self, piece: StagedPiece) -> None:
        """Put a piece of a leader's snapshot into the next write."""
        self._pieces.append(piece)

    def finish(self, number: int) -> None:
        """The disk has this write, and all earlier ones."""
        for earlier in [write for write in self._writes if write <= number]:
            _, self.hard = self._writes.pop(earlier)
        self._log.written(number)

    def oldest(self) -> float:
        """When the oldest write under way was begun; infinite if there is none."""
        return next((began for began, _ in self._writes.values()), math.inf)

    def hold(self, envelope: Envelope, hard: Hard) -> None:
        """Keep a message until the disk has these values and the present log."""
        self._held.append((self._number if self._has_all(hard) else self._number + 1, envelope))

    def supersede(self, kind: type) -> None:
        """Drop the waiting messages of this kind: a later message says more."""
        self._held = [(number, envelope) for number, envelope in self._held if not isinstance(envelope.body, kind)]

    def drop(self, router: str) -> None:
        """The contact with the router has ended: messages to it that wait for the disk are lost, like messages under
        way."""
        self._held = [(number, envelope) for number, envelope in self._held if envelope.receiver.router != router]

    def release(self) -> list[Envelope]:
        """Take the messages that need not wait any longer, in order."""
        oldest = next(iter(self._writes), self._number + 1)
        ready = [envelope for number, envelope in self._held if number < oldest]
        self._held = self._held[len(ready) :]
        return ready

    def _has_all(self, hard: Hard) -> bool:
        return self._last == hard and self._log.is_written and not self._pieces
