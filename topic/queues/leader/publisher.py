"""A publisher of a set, at the router that leads. It publishes the messages of a queue to its consumers
(`topic.queues.leader.egress`), or messages of the outbox to another address (`topic.queues.leader.letters`).

    state ── publish ─▶ home ─▶ …      home ── outcome ─▶ here ── entry ─▶ log of the set ── decided ─▶ settle

The publisher knows a delivery by the position of its message. It settles a delivery only when a majority has the entry
with the message's new state. The next leader attaches the same link, in the same life, with the deliveries that may be
under way as its map. So all leaders give a delivery the same key.

Never here: the choice of messages to publish, and of entries to propose.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

import attrs

from topic.actions import AnswerPublisher, Detach
from topic.delivery.record import Record
from topic.directory.entry import CONFIGURED
from topic.ends.end import EndNode, InsideEnd
from topic.ends.publishing import PublishingEnd
from topic.identity import NOWHERE, LinkIdentity
from topic.queues.bodies.message_rows import QueueRows, SentRows
from topic.queues.leader.log import Marking, Proposer
from topic.queues.logged.message_log import generation_of
from topic.queues.messages import QueuedMessages
from topic.queues.operations import QueueId
from topic.queues.positions import delivery_tag, runs_of
from topic.queues.proposals import Enqueued, Proposal
from topic.termini.attaches import Claim


@attrs.define(slots=True)
class Proposed:
    """An entry that is proposed and not decided."""

    records: list[Record]
    """The deliveries that the entry reserves or ends."""
    consumer: bytes | None = None
    """The name of the consumer for which they are reserved; None if they end."""
    answers_echo: bool = False


AT_ONCE: Final = 1000
"""The most messages whose bodies one read is for."""
AHEAD: Final = 256 << 10
"""Bytes of bodies, approximately, in one read."""
Wanted = list[tuple[Proposal, Proposed]]


class SetPublisher(PublishingEnd[int], InsideEnd):
    """A publisher of a set, in one term of this router."""

    def __init__(
        self, node: EndNode, identity: LinkIdentity, messages: QueuedMessages, log: Proposer, marking: Marking
    ) -> None:
        super().__init__(node, identity, CONFIGURED, settles_first=False)
        self._messages = messages
        self._log = log
        self._marking = marking
        self._is_due = False
        """Whether the end proposes everything that waits: `PATIENCE_S` is over, or another end proposes."""
        self._is_asked = False
        """Whether the core has sent an echo to this end."""
        self._asked: dict[int, Proposed] = {}
        """The undecided entries, keyed by log index."""
        self._read: dict[int, bytes] = {}
        """Keyed by position: bodies that were read ahead and are not published."""
        self._is_reading = False
        self._reads_of: QueueId | None = None
        """The queue whose messages this end publishes; None for the outbox."""

    @property
    def is_there(self) -> bool:
        return self.epoch is not None and not self.is_detached and not self.stream.abandoned

    @property
    def answers(self) -> bool:
        return True

    def _come(self, life: object, doubted: Iterable[int], clock: int, now: float) -> None:
        """This router leads: attach the link. `life`: as in `generation_of`. `doubted`: the positions of the messages
        that may be under way. `clock`: the clock of the attach (`term_clock`)."""
        generation, known = generation_of(life), self.known()
        seen = known.epoch if known is not None else NOWHERE  # another life does no harm: its generation differs
        self.attach(Claim(generation, dict.fromkeys(map(self._tag, doubted), 0), True, seen, clock), now)
        assert self.stream.generation == generation, "the keys are those of all leaders"

    def _tag(self, position: int) -> bytes:
        return delivery_tag(position, self._messages.returns(position).times)

    def _runs(self, records: Iterable[Record]) -> Sequence[tuple[int, int]]:
        return runs_of(sorted(self.open[record] for record in records))

    def go_on(self) -> None:
        """At the end of the pump, publish messages that may be published, and propose everything that waits."""
        self.node.later(self._go_on)

    def propose_now(self) -> None:
        self._is_due = True
        self.go_on()

    def _go_on(self) -> None:
        if not self.is_there:
            return
        if self.is_answered:
            self._publish()
        if not self._log.may_propose(self):
            return
        is_due = self._is_due  # a proposal hurries all ends, also this one
        wanted = self._wanted()
        if not wanted:
            return
        first = self._log.propose(self, [proposal for proposal, _ in wanted])
        if first is not None:
            self._asked.update(enumerate((proposed for _, proposed in wanted), first))
            self._was_proposed(is_due=is_due)

    def _publish(self) -> None:
        """Publish the messages that may be published now."""
        raise NotImplementedError

    # bodies that are not in memory

    @property
    def _rows(self) -> QueueRows | SentRows:
        """The messages that this end may publish."""
        raise NotImplementedError

    def _read_bodies(self, positions: Iterable[int], most: int) -> None:
        """Start a read of the bodies at these positions, up to `most` bytes with the bodies that were read before."""
        if self._is_reading:
            return
        rows, size, lacking = self._rows, 0, list[int]()
        for position in positions:
            if size >= most:
                break
            if position in rows and rows[position] is None:
                size += rows.about(position)[0]
                if position not in self._read:
                    lacking.append(position)
        self._is_reading = True
        self._log.read(self, self._reads_of, lacking)

    def found(self, bodies: Mapping[int, bytes]) -> None:
        """The read is done."""
        self._is_reading = False
        self._read |= bodies
        self._log.reads_ahead(sum(map(len, bodies.values())))
        self.go_on()

    def _forget_body(self, position: int) -> None:
        """The message is published or gone: drop its body."""
        body = self._read.pop(position, None)
        if body is not None:
            self._log.reads_ahead(-len(body))

    def leave(self, now: float, *, closed: bool) -> None:
        for position in [*self._read]:
            self._forget_body(position)
        super().leave(now, closed=closed)

    def _wanted(self) -> Wanted:
        """The proposals of this end, each with its deliveries."""
        raise NotImplementedError

    def _was_proposed(self, *, is_due: bool) -> None:
        """Everything that `_wanted` returned was proposed. `is_due`: also the parts that had to wait for another
        entry."""
        raise NotImplementedError

    def _waiting(self) -> Iterable[list[Record]]:
        """The deliveries that wait for a proposal."""
        raise NotImplementedError

    def decided(self, index: int, answer: Enqueued | None) -> None:
        proposed = self._asked.pop(index)
        if not self.is_there:
            return
        self._follow(proposed)
        if proposed.answers_echo:
            self.alive(answered=True)

    def _follow(self, proposed: Proposed) -> None:
        """Apply the decision of an entry of this end."""
        if proposed.records:
            self._end(proposed.records)

    def _end(self, records: list[Record]) -> None:
        """End these deliveries. Their messages may still exist."""
        for record in records:
            self._ended(self.open.pop(record))
        self.node.topic.settle(self.stream, records)
        self.go_on()

    def _ended(self, position: int) -> None:
        """The delivery of the message at this position has ended."""
        raise NotImplementedError

    def _withdraw(self, positions: Set[int]) -> None:
        """Give up the deliveries of the messages at these positions: the messages are gone, or never existed."""
        records = [record for record, position in self.open.items() if position in positions] if positions else []
        for record in records:
            del self.open[record]
        if records and self.is_there:
            asked = (one.records for one in self._asked.values())
            for waiting in (*self._waiting(), *asked):
                waiting[:] = [record for record in waiting if record in self.open]
            self.node.topic.settle(self.stream, records)

    # actions of the core

    def begin(self, action: AnswerPublisher) -> None:
        self.go_on()

    def grant(self, count: int) -> None:
        """Ignored: the window limits clients. An end inside a router limits itself."""

    def ask(self) -> None:
        self._is_asked = True
        self._log.wait(self)

    def detach(self, action: Detach) -> None:
        """A later leader has the link."""
