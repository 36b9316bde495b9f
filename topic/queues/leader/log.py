"""The log of a set, as the ends of its leader use it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from topic.queues.operations import QueueId
from topic.queues.outgoing.outbox import Why
from topic.queues.proposals import Enqueued, Proposal


class ProposingEnd(Protocol):
    """An end that has entries decided: `topic.queues.leader.ingress`, `topic.queues.leader.publisher`."""

    def decided(self, index: int, answer: Enqueued | None) -> None:
        """The entry of the end at this log index is decided."""

    def go_on(self) -> None:
        """Propose again what waits: the leader was busy."""

    def hurry(self) -> None:
        """Propose what `Proposer.wait` was called for."""


class ReadingEnd(Protocol):
    """An end that needs bodies of messages that are not in memory: `topic.queues.leader.egress`."""

    def found(self, bodies: Mapping[int, bytes]) -> None:
        """Bodies were read (`Proposer.read`). `bodies`: by position, those of the messages that are still there."""


class Marking(Protocol):
    """Marks messages that consumers have had: the shell of a node knows their form."""

    def came_back(self, message: bytes, failures: int, annotations: bytes) -> bytes:
        """The message as the next consumer gets it, after it has come back. It says that consumers have failed so many
        times, and has these annotations besides its own; nothing else in it changes."""

    def annotated(self, message: bytes, annotations: bytes) -> bytes:
        """The message with these annotations besides its own."""

    def merged(self, annotations: bytes, more: bytes) -> bytes:
        """Both annotations as one. If two have one name, the value of `more` counts. Raises ValueError if they are no
        annotations."""

    def dead_letter(self, message: bytes, queue: str, why: Why) -> bytes | None:
        """The message as a dead letter of this queue: it says where it is from, why it is a dead letter, and how often
        it was one. None: it was one too often."""


class Proposer(Protocol):
    """The log of one set that this router leads: `topic.queues.leader.leaders`."""

    def may_propose(self, end: ProposingEnd) -> bool:
        """Whether all entries of earlier rounds of the log are decided. Else the end is told to go on when they are. So
        a round takes all that has come during the round before it."""

    def propose(self, end: ProposingEnd, proposals: Sequence[Proposal]) -> int | None:
        """Append entries to the log. Returns the index of the first. None: the leader is busy, or leads no more; the
        end is told to go on."""

    def wait(self, end: ProposingEnd) -> None:
        """The end has something to propose that nobody waits for. It is told to hurry when an entry of any end is
        proposed, so that one round of the log decides both, and after `PATIENCE_S` at the latest."""

    @property
    def is_far_ahead(self) -> bool:
        """The ends of this set have read so much that an end reads no more than its consumers take now."""

    def read(self, end: ReadingEnd, queue: QueueId | None, positions: Sequence[int]) -> None:
        """Have the bodies of these messages read, which are in this queue; None: in the outbox. The end is told
        them."""

    def reads_ahead(self, size: int) -> None:
        """The bodies that an end has read and not published have grown by `size` bytes, which may be negative."""
