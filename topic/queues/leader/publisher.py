"""A publisher of a set, at the router that leads: of the messages of a queue to its consumers
(`topic.queues.leader.egress`), or of the outbox to another address (`topic.queues.leader.letters`).

    state ── publish ─▶ home ─▶ …      home ── outcome ─▶ here ── entry ─▶ log of the set ── decided ─▶ settle

The publisher knows a delivery by the position of its message. It settles a delivery only when a majority has the entry
that says what became of the message. The next leader attaches the same link, in the same life, with the deliveries that
may be under way as its map. So all leaders give a delivery the same key.

Never here: which messages are published when, and which entries are proposed.
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
    """An entry that was proposed, and is not decided."""

    records: list[Record]
    """The deliveries that it reserves or ends."""
    consumer: bytes | None = None
    """The name of the consumer that they are reserved for; None: they end."""
    answers_echo: bool = False


AT_ONCE: Final = 1000
"""The most messages whose bodies an end looks for at once."""
AHEAD: Final = 256 << 10
"""Bytes of bodies, about, that one read gets."""
Wanted = list[tuple[Proposal, Proposed]]


class SetPublisher(PublishingEnd[int], InsideEnd):
    """In one term of this router."""

    def __init__(
        self, node: EndNode, identity: LinkIdentity, messages: QueuedMessages, log: Proposer, marking: Marking
    ) -> None:
        super().__init__(node, identity, CONFIGURED, settles_first=False)
        self._messages = messages
        self._log = log
        self._marking = marking
        self._is_due = False
        """The end proposes all that waits: `PATIENCE_S` is over, or another end proposes."""
        self._is_asked = False
        """The core asks whether this end is still there."""
        self._asked: dict[int, Proposed] = {}
        """By log index."""
        self._read: dict[int, bytes] = {}
        """By position: bodies that were read for the next messages, and are not published."""
        self._is_reading = False
        self._reads_of: QueueId | None = None
        """The queue whose messages are published; None: they are in the outbox."""

    @property
    def is_there(self) -> bool:
        return self.epoch is not None and not self.is_detached and not self.stream.abandoned

    @property
    def answers(self) -> bool:
        return True

    def _come(self, life: object, doubted: Iterable[int], clock: int, now: float) -> None:
        """This router leads: attach the link, in this life. `doubted`: the positions of the messages that may be under
        way. `clock`: of the attach (`term_clock`)."""
        generation, known = generation_of(life), self.known()
        seen = known.epoch if known is not None else NOWHERE  # also of a former life: this one has another generation
        self.attach(Claim(generation, dict.fromkeys(map(self._tag, doubted), 0), True, seen, clock), now)
        assert self.stream.generation == generation, "the keys are those of all leaders"

    def _tag(self, position: int) -> bytes:
        return delivery_tag(position, self._messages.returns(position).times)

    def _runs(self, records: Iterable[Record]) -> Sequence[tuple[int, int]]:
        return runs_of(sorted(self.open[record] for record in records))

    def go_on(self) -> None:
        """With the end of the pump, publish what may be published, and propose all that waits."""
        self.node.later(self._go_on)

    def hurry(self) -> None:
        self._is_due = True
        self.go_on()

    def _go_on(self) -> None:
        if not self.is_there:
            return
        if self.is_answered:
            self._publish()
        if not self._log.may_propose(self):
            return
        is_due = self._is_due  # a proposal hurries all ends, this one too
        wanted = self._wanted()
        if not wanted:
            return
        first = self._log.propose(self, [proposal for proposal, _ in wanted])
        if first is not None:
            self._asked.update(enumerate((proposed for _, proposed in wanted), first))
            self._was_proposed(is_due=is_due)

    def _publish(self) -> None:
        """Publish what is to be published now."""
        raise NotImplementedError

    # bodies that are not in memory

    @property
    def _rows(self) -> QueueRows | SentRows:
        """The messages that this end may publish."""
        raise NotImplementedError

    def _read_bodies(self, positions: Iterable[int], most: int) -> None:
        """Have the bodies of messages at these positions read, up to `most` bytes with those that were read before."""
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
        """Bodies were read."""
        self._is_reading = False
        self._read |= bodies
        self._log.reads_ahead(sum(map(len, bodies.values())))
        self.go_on()

    def _forget_body(self, position: int) -> None:
        """The message is published, or gone: its body is not needed any more."""
        body = self._read.pop(position, None)
        if body is not None:
            self._log.reads_ahead(-len(body))

    def leave(self, now: float, *, closed: bool) -> None:
        for position in [*self._read]:
            self._forget_body(position)
        super().leave(now, closed=closed)

    def _wanted(self) -> Wanted:
        """The proposals of this end, each with the deliveries that it is about."""
        raise NotImplementedError

    def _was_proposed(self, *, is_due: bool) -> None:
        """All that `_wanted` has returned was proposed. `is_due`: also what had to wait for another entry."""
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
        """The entry is decided."""
        if proposed.records:
            self._end(proposed.records)

    def _end(self, records: list[Record]) -> None:
        """These deliveries are over. Their messages may still be there."""
        for record in records:
            self._ended(self.open.pop(record))
        self.node.topic.settle(self.stream, records)
        self.go_on()

    def _ended(self, position: int) -> None:
        """The delivery of the message at this position is over."""
        raise NotImplementedError

    def _withdraw(self, positions: Set[int]) -> None:
        """The messages at these positions are not to be published: they are gone, or were never there."""
        records = [record for record, position in self.open.items() if position in positions] if positions else []
        for record in records:
            del self.open[record]
        if records and self.is_there:
            asked = (one.records for one in self._asked.values())
            for waiting in (*self._waiting(), *asked):
                waiting[:] = [record for record in waiting if record in self.open]
            self.node.topic.settle(self.stream, records)

    # what the core asks

    def begin(self, action: AnswerPublisher) -> None:
        self.go_on()

    def grant(self, count: int) -> None:
        """The window of a publisher bounds what a client may send. An end inside a router bounds that itself."""

    def ask(self) -> None:
        self._is_asked = True
        self._log.wait(self)

    def detach(self, action: Detach) -> None:
        """A later leader has the link."""
