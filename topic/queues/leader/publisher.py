"""A publisher that belongs to a set, at the leader's router. It publishes the messages of a queue to the queue's
consumers (`topic.queues.leader.egress`), or messages of the outbox to another address (`topic.queues.leader.letters`).

    state ── publish ─▶ home ─▶ …
    home ── outcome ─▶ here ── entry ─▶ log of the set ── decided ─▶ settle

The publisher names a delivery by the position of its message. It settles a delivery only when a majority has the entry
with the message's new state.

The next leader attaches the same link, in the same life. Its map has the deliveries that may be under way. So all
leaders give a delivery the same key.

This module does not choose the messages to publish, nor the entries to propose.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

import attrs

from topic.actions import STOLEN, AnswerPublisher, Detach
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
from topic.queues.proposals import Decided, Proposal
from topic.termini.attaches import Claim


@attrs.define(slots=True)
class Proposed:
    """An entry that is proposed but not decided yet."""

    records: list[Record]
    """The deliveries that the entry reserves, or that it ends."""
    consumer: bytes | None = None
    """The name of the consumer for which the entry reserves them; None if the entry ends them."""
    answers_echo: bool = False
    kept: Sequence[int] = ()
    """The positions of messages that the entry frees. They were kept for a consumer that has ended."""


AT_ONCE: Final = 1000
"""The highest number of messages whose bodies one read fetches."""
AHEAD: Final = 256 << 10
"""The approximate number of bytes of bodies in one read."""
Wanted = list[tuple[Proposal, Proposed]]


class SetPublisher(PublishingEnd[int], InsideEnd):
    """A publisher that belongs to a set, in one term in which this router leads."""

    def __init__(
        self, node: EndNode, identity: LinkIdentity, messages: QueuedMessages, log: Proposer, marking: Marking
    ) -> None:
        super().__init__(node, identity, CONFIGURED, settles_first=False)
        self._messages = messages
        self._log = log
        self._marking = marking
        self._is_due = False
        """Whether this end proposes everything that waits, because `PATIENCE_S` is over, or because another end
        proposes."""
        self._is_asked = False
        """Whether the core has sent an echo that this end has not answered yet."""
        self._asked: dict[int, Proposed] = {}
        """The entries that this end has proposed and that are not decided yet, keyed by log index."""
        self._read: dict[int, bytes] = {}
        """The bodies that were read ahead and are not published yet, keyed by position."""
        self._is_reading = False
        self._reads_of: QueueId | None = None
        """The queue whose messages this publisher publishes; None for the outbox."""

    @property
    def is_there(self) -> bool:
        return self.epoch is not None and not self.is_detached and not self.stream.abandoned

    @property
    def answers(self) -> bool:
        return True

    def _come(self, life: object, doubted: Iterable[int], clock: int, now: float) -> None:
        """Attach the link, because this router begins to lead.

        `life`: as in `generation_of`. `doubted`: the positions of the messages that may be under way. `clock`: the
        clock of the attach (`term_clock`).
        """
        generation, known = generation_of(life), self.known()
        # The known entry may be of a former life of the set.
        # The epoch of a former life does no harm, because the claim names the generation of this life.
        seen = known.epoch if known is not None else NOWHERE
        self.attach(Claim(generation, dict.fromkeys(map(self._tag, doubted), 0), True, seen, clock), now)
        assert self.stream.generation == generation, "the keys are those of all leaders"

    def _tag(self, position: int) -> bytes:
        return delivery_tag(position, self._messages.returns(position).times)

    def _runs(self, records: Iterable[Record]) -> Sequence[tuple[int, int]]:
        return runs_of(sorted(self.open[record] for record in records))

    def go_on(self) -> None:
        """Let this end publish what it may, and propose everything that waits, at the end of the pump."""
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
        # Read `_is_due` first: `propose` calls the `propose_now` of all patient ends, which sets `_is_due`.
        is_due = self._is_due
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

    # The methods from here on are about bodies that are not in memory.

    @property
    def _rows(self) -> QueueRows | SentRows:
        """The messages from which this end publishes: the messages of its queue, or of the outbox."""
        raise NotImplementedError

    def _read_bodies(self, positions: Iterable[int], most: int) -> None:
        """Start a read of the bodies at these positions that were not read yet. `most`: the highest number of bytes of
        bodies, including bodies that were read before."""
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
        """Take the bodies that a read has found in the store."""
        self._is_reading = False
        self._read |= bodies
        self._log.reads_ahead(sum(map(len, bodies.values())))
        self.go_on()

    def _forget_body(self, position: int) -> None:
        """Drop the body of a message that is published or gone."""
        body = self._read.pop(position, None)
        if body is not None:
            self._log.reads_ahead(-len(body))

    def leave(self, now: float, *, closed: bool) -> None:
        for position in [*self._read]:
            self._forget_body(position)
        super().leave(now, closed=closed)

    def _wanted(self) -> Wanted:
        """The proposals that this end wants to make, each with its deliveries."""
        raise NotImplementedError

    def _was_proposed(self, *, is_due: bool) -> None:
        """Called when all proposals that `_wanted` returned have been made. `is_due`: whether they include the
        proposals that may wait for another entry."""
        raise NotImplementedError

    def _waiting(self) -> Iterable[list[Record]]:
        """The lists of this end's deliveries that wait to be proposed."""
        raise NotImplementedError

    def decided(self, index: int, answer: Decided | None) -> None:
        proposed = self._asked.pop(index)
        if not self.is_there:
            return
        self._follow(proposed)
        if proposed.answers_echo:
            self.alive(answered=True)

    def _follow(self, proposed: Proposed) -> None:
        """Apply a decided entry of this end."""
        if proposed.records:
            self._end(proposed.records)

    def _end(self, records: list[Record]) -> None:
        """Settle these deliveries, which have ended. Their messages may still exist."""
        for record in records:
            self._ended(self.open.pop(record))
        self.node.topic.settle(self.stream, records)
        self.go_on()

    def _ended(self, position: int) -> None:
        """Handle the end of a delivery of the message at this position."""
        raise NotImplementedError

    def _withdraw(self, positions: Set[int]) -> None:
        """Give up the deliveries of the messages at these positions, which are gone or never existed."""
        records = [record for record, position in self.open.items() if position in positions] if positions else []
        for record in records:
            del self.open[record]
        if records and self.is_there:
            asked = (one.records for one in self._asked.values())
            for waiting in (*self._waiting(), *asked):
                waiting[:] = [record for record in waiting if record in self.open]
            self.node.topic.settle(self.stream, records)

    # The methods from here on are called for the core.

    def begin(self, action: AnswerPublisher) -> None:
        self.go_on()

    def grant(self, count: int) -> None:
        """Ignore the credit: it limits clients, but an end inside a router limits itself."""

    def ask(self) -> None:
        self._is_asked = True
        self._log.wait(self)

    def detach(self, action: Detach) -> None:
        """Handle the loss of the link. If another leader has attached the link, that leader answers all undecided
        deliveries."""
        if action.condition == STOLEN:
            self._log.stolen(self, self.node.topic.directory.latest(self.index))
