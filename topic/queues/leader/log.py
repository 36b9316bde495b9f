"""The interfaces between the ends of a leader and the log of its set: the functions of the log for the ends, and the
functions of the ends for the log."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from topic.outlet import Outlet
from topic.queues.messages import QueuedMessages
from topic.queues.operations import QueueId
from topic.queues.outgoing.outbox import Why
from topic.queues.proposals import Decided, Proposal


class ProposingEnd(Protocol):
    """An end that proposes entries; `topic.queues.leader.ingress` and `topic.queues.leader.publisher` implement it."""

    def decided(self, index: int, answer: Decided | None) -> None:
        """Called when the entry that this end has proposed at this log index is decided."""

    def go_on(self) -> None:
        """Called when this end may propose again. The leader was busy before."""

    def propose_now(self) -> None:
        """Called when this end has to propose what has waited since `Proposer.wait`."""


class ReadingEnd(Protocol):
    """An end that needs bodies of messages that are not in memory; `topic.queues.leader.egress` implements it."""

    def found(self, bodies: Mapping[int, bytes]) -> None:
        """Called when a read of bodies is done (`Proposer.read`). `bodies`: the bodies of the messages that still
        exist, by position."""


class RestingEnd(Protocol):
    """An end whose messages rest after a failure; `topic.queues.leader.egress` implements it."""

    def rested(self, position: int) -> None:
        """Called when the rest of the message at this position is over (`Proposer.rest`). The message may be gone by
        then."""


class Marking(Protocol):
    """Reads and changes the sections of messages that concern queues, such as times and annotations. The shell of a
    node implements it, because it knows the format of messages."""

    def came_back(self, message: bytes, failures: int, annotations: bytes) -> bytes:
        """The form in which a message that has come back goes to its next consumer. It states how often consumers have
        failed, and has these annotations in addition to its own; everything else stays."""

    def delivery_ms(self, message: bytes) -> int:
        """The time, in milliseconds since 1970, from which consumers may have the message; 0 if the message does not
        state one."""

    def aged(self, message: bytes, left_ms: int) -> bytes:
        """The message with this time to live, in milliseconds, in place of its own. If it had no time to live, it gets
        none."""

    def addressed(self, message: bytes, address: str) -> bytes:
        """The message with an annotation that names the address to which it was published."""

    def annotated(self, message: bytes, annotations: bytes) -> bytes:
        """The message with these annotations in addition to its own."""

    def merged(self, annotations: bytes, more: bytes) -> bytes:
        """Merge two sets of annotations. If both sets have an annotation of the same name, the result has the value in
        `more`. Raises ValueError if a set is malformed."""

    def dead_letter(self, message: bytes, queue: str, why: Why, now_ms: int, added: bytes) -> bytes | None:
        """The message as a dead letter of this queue. It states the queue, the reason, and how often the message was a
        dead letter. None if the message was a dead letter too often. `added`: the annotations of consumers of this
        queue, which the message already has. They may have the error with which the last consumer has rejected the
        message."""


class MessageView:
    """Shows the messages of one set in the form in which their next consumers get them."""

    def __init__(self, messages: QueuedMessages, marking: Marking, outlet: Outlet) -> None:
        """`outlet`: its clock shows the time of the present event."""
        self._messages = messages
        self._marking = marking
        self._outlet = outlet

    def of(self, position: int, body: bytes) -> bytes:
        """The message at this position, with this body, in the form for its next consumer."""
        returns = self._messages.returns(position)
        message = self._marking.came_back(body, returns.failed, returns.annotations) if returns.times else body
        if position not in self._messages.expiring:
            return message
        _, end_ms = self._messages.expiring[position]
        return self._marking.aged(message, max(end_ms - self._outlet.time_ms, 1))


class Proposer(Protocol):
    """The log of a set that this router leads, as the ends of the set use it; `topic.queues.leader.leaders` implements
    it."""

    def may_propose(self, end: ProposingEnd) -> bool:
        """Whether all entries of earlier rounds of the log are decided. If not, the end's `go_on` is called later, when
        they are. In this way each round takes everything that came during the round before."""

    def propose(self, end: ProposingEnd, proposals: Sequence[Proposal]) -> int | None:
        """Append entries to the log. Returns the index of the first one. If the leader is busy, or does not lead any
        more, the result is None, and the end's `go_on` is called later."""

    def wait(self, end: ProposingEnd) -> None:
        """Let a proposal of this end wait, because no client waits for it. When any end proposes an entry, this end's
        `propose_now` is called, so that one round of the log decides both proposals. It is called after `PATIENCE_S` at
        the latest."""

    def stolen(self, end: ProposingEnd, latest: int) -> None:
        """Called when the link of this end is attached elsewhere, with a higher clock. `latest`: that clock."""

    @property
    def hands_over(self) -> bool:
        """Whether this router hands its lead over, and so adds no entries."""

    @property
    def is_far_ahead(self) -> bool:
        """Whether the ends of this set have read very many bodies ahead. If so, an end should read only as many as its
        consumers take now."""

    def read(self, end: ReadingEnd, queue: QueueId | None, positions: Sequence[int]) -> None:
        """Start a read of the bodies of these messages. They are in this queue, or in the outbox if `queue` is None.
        The end's `found` gets the bodies."""

    def rest(self, end: RestingEnd, position: int, until_ms: int, *, must: bool = False) -> bool:
        """Let the message at this position rest until this time of the wall clock, in milliseconds since 1970. Then the
        end's `rested` is called.

        Returns False if too many messages rest already; the end then keeps the message. With `must` the message rests
        in any case.
        """

    def reads_ahead(self, size: int) -> None:
        """Change the number of bytes that ends have read ahead by `size`, which may be negative."""
