"""The writes under way to the disk of one replica, and the messages that wait for them (protocol 13.5).

A vote or an acknowledgement is sent only when the disk has what the message promises. Writes have numbers and end in
order, so a message waits for one number.
"""

import math

from topic.raft.log import RaftLog
from topic.raft.messages import Envelope, Hard, Persist, StagedPiece


class Storage:
    """The writes of one replica to its store, and the messages that wait for them."""

    def __init__(self, hard: Hard, log: RaftLog) -> None:
        self.hard = hard
        """The values of `Hard` (such as the term and the vote) that the disk has."""
        self._log = log
        self._last = hard
        """The values of `Hard` in the write that was begun last."""
        self._number = 0
        self._writes: dict[int, tuple[float, Hard]] = {}
        """The writes under way, keyed by number. Each has the time at which it was begun, and its values of `Hard`."""
        self._pieces: list[StagedPiece] = []
        """The pieces of a snapshot that no write has yet."""
        self._held: list[tuple[int, Envelope]] = []
        """The waiting messages, each with the number of the write for which it waits."""

    def write(self, hard: Hard, now: float) -> Persist | None:
        """Begin a write of everything that no write has yet; None if there is nothing to write."""
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
        """Note that the disk has finished this write and all earlier ones."""
        for earlier in [write for write in self._writes if write <= number]:
            _, self.hard = self._writes.pop(earlier)
        self._log.written(number)

    def oldest(self) -> float:
        """The time at which the oldest write under way was begun; infinite if no write is under way."""
        return next((began for began, _ in self._writes.values()), math.inf)

    def hold(self, envelope: Envelope, hard: Hard) -> None:
        """Let a message wait until the disk has these values and the present log."""
        self._held.append((self._number if self._has_all(hard) else self._number + 1, envelope))

    def supersede(self, kind: type) -> None:
        """Drop the waiting messages of the same kind, because a later message replaces them."""
        self._held = [(number, envelope) for number, envelope in self._held if not isinstance(envelope.body, kind)]

    def drop(self, router: str) -> None:
        """Drop the waiting messages to a router whose contact has ended. They are lost like messages under way."""
        self._held = [(number, envelope) for number, envelope in self._held if envelope.receiver.router != router]

    def release(self) -> list[Envelope]:
        """Take the messages that need not wait any longer, in their order."""
        oldest = next(iter(self._writes), self._number + 1)
        ready = [envelope for number, envelope in self._held if number < oldest]
        self._held = self._held[len(ready) :]
        return ready

    def _has_all(self, hard: Hard) -> bool:
        return self._last == hard and self._log.is_written and not self._pieces
