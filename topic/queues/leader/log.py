"""The interfaces between the ends of a leader and the log of its set."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from topic.outlet import Outlet
from topic.queues.messages import QueuedMessages
from topic.queues.operations import QueueId
from topic.queues.outgoing.outbox import Why
from topic.queues.proposals import Enqueued, Proposal


class ProposingEnd(Protocol):
    """An end that proposes entries: `topic.queues.leader.ingress`, `topic.queues.leader.publisher`."""

    def decided(self, index: int, answer: Enqueued | None) -> None:
        """The entry of the end at this log index is decided."""

    def go_on(self) -> None:
        """Propose again: the leader was busy before."""

    def propose_now(self) -> None:
        """Propose what has waited since `Proposer.wait`."""


class ReadingEnd(Protocol):
    """An end that needs bodies of messages that are not in memory: `topic.queues.leader.egress`."""

    def found(self, bodies: Mapping[int, bytes]) -> None:
        """Bodies were read (`Proposer.read`). `bodies`: the bodies of the messages that still exist, keyed by
        position."""


class RestingEnd(Protocol):
    """An end whose messages pause after a failure: `topic.queues.leader.egress`."""

    def rested(self, position: int) -> None:
        """The pause of the message at this position is over (`Proposer.rest`). It may be gone."""


class Marking(Protocol):
    """Writes marks into messages that consumers have had. The shell of a node does this, because it knows the form of
    messages."""

    def came_back(self, message: bytes, failures: int, annotations: bytes) -> bytes:
        """The message for the next consumer, after it has come back. It states how often consumers have failed, and has
        these annotations besides its own; nothing else in it changes."""

    def delivery_ms(self, message: bytes) -> int:
        """The time from which consumers may have the message, in milliseconds since 1970; 0 if it does not say."""

    def aged(self, message: bytes, left_ms: int) -> bytes:
        """The message with this time to live, in milliseconds, in place of its own. A message without one gets
        none."""

    def annotated(self, message: bytes, annotations: bytes) -> bytes:
        """The message with these annotations besides its own."""

    def merged(self, annotations: bytes, more: bytes) -> bytes:
        """Both annotations together. If both have a name, the value in `more` counts. Raises ValueError if they are
        malformed."""

    def dead_letter(self, message: bytes, queue: str, why: Why, now_ms: int) -> bytes | None:
        """The message as a dead letter of this queue: it states the queue, the reason, and how often it was a dead
        letter. None if it was one too often."""


class MessageView:
    """The messages of one set as their next consumers get them."""

    def __init__(self, messages: QueuedMessages, marking: Marking, outlet: Outlet) -> None:
        """`outlet` has the time of the present event."""
        self._messages = messages
        self._marking = marking
        self._outlet = outlet

    def of(self, position: int, body: bytes) -> bytes:
        """The message at this position, which has this body."""
        returns = self._messages.returns(position)
        message = self._marking.came_back(body, returns.failed, returns.annotations) if returns.times else body
        if position not in self._messages.expiring:
            return message
        _, end_ms = self._messages.expiring[position]
        return self._marking.aged(message, max(end_ms - self._outlet.time_ms, 1))


class Proposer(Protocol):
    """The log of one set that this router leads: `topic.queues.leader.leaders`."""

    def may_propose(self, end: ProposingEnd) -> bool:
        """Whether all entries of earlier rounds of the log are decided. If not, the end's `go_on` is called when they
        are. So each round takes everything that came during the round before it."""

    def propose(self, end: ProposingEnd, proposals: Sequence[Proposal]) -> int | None:
        """Append entries to the log. Returns the index of the first; None if the leader is busy, or leads no longer.
        Then the end's `go_on` is called later."""

    def wait(self, end: ProposingEnd) -> None:
        """The end has a proposal that nobody waits for. Its `hurry` is called when any end proposes an entry, so that
        one round of the log decides both, and after `PATIENCE_S` at the latest."""

    @property
    def is_far_ahead(self) -> bool:
        """Whether the ends of this set have read so much ahead that an end should read only as much as its consumers
        take now."""

    def read(self, end: ReadingEnd, queue: QueueId | None, positions: Sequence[int]) -> None:
        """Start a read of the bodies of these messages, which are in this queue, or in the outbox if `queue` is None.
        The end's `found` gets them."""

    def rest(self, end: RestingEnd, position: int, until_ms: int, *, must: bool = False) -> bool:
        """Give the message at this position back to the end at this time of the wall clock, in milliseconds since
        1970. Returns False if too many messages rest, unless the message `must`: then the end has it at once."""

    def reads_ahead(self, size: int) -> None:
        """The bytes that ends have read ahead change by `size`, which may be negative."""
