"""What is on its way to the disk of one replica, and the messages that wait for it (protocol 13.5).

A vote or an acknowledgement leaves only when the disk has what it promises. Writes have numbers and end in order, so
one number says what a message waits for.
"""

import math

from topic.raft.log import RaftLog
from topic.raft.messages import Envelope, Hard, Persist, StagedPiece


class Storage:
    """The writes of one store, as far as this replica knows of them."""

    def __init__(self, hard: Hard, log: RaftLog) -> None:
        self.hard = hard
        """What the disk has."""
        self._log = log
        self._last = hard
        """What the last write has that was begun."""
        self._number = 0
        self._writes: dict[int, tuple[float, Hard]] = {}
        """Those under way, by number: when each was begun, and what it has."""
        self._pieces: list[StagedPiece] = []
        """Those that no write has."""
        self._held: list[tuple[int, Envelope]] = []
        """Messages, each with the number of the write that it waits for."""

    def write(self, hard: Hard, now: float) -> Persist | None:
        """Begin a write of all that no write has; None if there is nothing of the kind."""
        if self._has_all(hard):
            return None
        self._number += 1
        self._writes[self._number] = now, hard
        self._last = hard
        pieces, self._pieces = tuple(self._pieces), []
        return Persist(self._number, hard, pieces, *self._log.write(self._number))

    def stage(self, piece: StagedPiece) -> None:
        """Put a piece of a leader's snapshot aside, with the next write."""
        self._pieces.append(piece)

    def finish(self, number: int) -> None:
        """The disk has this write, and all before it."""
        for earlier in [write for write in self._writes if write <= number]:
            _, self.hard = self._writes.pop(earlier)
        self._log.written(number)

    def oldest(self) -> float:
        """When the oldest write under way was begun; infinite if there is none."""
        return next((began for began, _ in self._writes.values()), math.inf)

    def hold(self, envelope: Envelope, hard: Hard) -> None:
        """Keep a message until the disk has what is here now."""
        self._held.append((self._number if self._has_all(hard) else self._number + 1, envelope))

    def supersede(self, kind: type) -> None:
        """A later message of this kind says more than those that wait: they are void."""
        self._held = [(number, envelope) for number, envelope in self._held if not isinstance(envelope.body, kind)]

    def drop(self, router: str) -> None:
        """The contact with the router has ended: what waits for the disk is lost with it, like what is under way."""
        self._held = [(number, envelope) for number, envelope in self._held if envelope.receiver.router != router]

    def release(self) -> list[Envelope]:
        """The messages that wait for nothing any more, in order."""
        oldest = next(iter(self._writes), self._number + 1)
        ready = [envelope for number, envelope in self._held if number < oldest]
        self._held = self._held[len(ready) :]
        return ready

    def _has_all(self, hard: Hard) -> bool:
        return self._last == hard and self._log.is_written and not self._pieces
