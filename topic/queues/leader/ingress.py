"""The ingress of a set: the subscriber that takes messages into all queues of the set, at the leader's router (protocol
14).

The subscriber of a binding does the same for the topics that a queue is bound to (14.10). The ingress of dead letters
does it for messages that the outboxes of sets publish to these queues (14.11).

    publishers ─▶ home ─▶ Ingress ── Enqueue ─▶ log of the set ── decided ─▶ Ingress ── accepted ─▶ home ─▶ publishers

The leader answers a delivery when a majority has its `Enqueue`.

The next leader attaches the same link. Its map names, without outcomes, the deliveries that were answered and whose
settlement is not known. Homes forward these deliveries again, and the leader answers them like any other. So a former
leader that does not know of the next one answers no delivery.

This module knows nothing of elections, and does not change the state of the set.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import attrs

from topic.actions import STOLEN, AnswerSubscriber, Detach, Note, Resume
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.directory.addresses import is_pattern
from topic.directory.entry import CONFIGURED
from topic.ends.end import EndNode, InsideEnd
from topic.ends.subscribing import SubscribingEnd
from topic.identity import LinkIdentity, queue_of
from topic.queues.bound.bindings import BOUND, DEAD_LETTERS
from topic.queues.leader.log import Marking, Proposer
from topic.queues.messages import QueuedMessages
from topic.queues.proposals import Decided, Enqueue, Enqueued, Given, Proposal, Settled
from topic.raft.life import SetLife

CREDIT: Final = 1 << 30
"""The credit of an ingress, in deliveries. It is no real limit, because `UNDECIDED` limits the bytes."""
UNDECIDED: Final = 1 << 20
"""The highest number of bytes of messages that wait for a majority. Homes keep all further messages."""
UNDECIDED_BOUND: Final = 256 << 10
"""The highest number of bytes of one binding's messages that wait for a majority. This limit is lower than `UNDECIDED`,
because a set may have many bindings."""
FULL: Final = 1 << 40
"""The highest number of bytes of a set's messages, in its queues and its outbox. A set that has reached it, or the
limit in its topology, is full: homes keep all further messages."""
FULL_COUNT: Final = 1 << 22
"""The number of messages, in queues and outbox, with which a set is full. Each of them takes some memory at each
replica, even if its body is only on the disk."""
FULL_OF_LETTERS: Final = 16 << 20
"""The bytes of dead letters that a full set still takes. Other publishers cannot fill this room, so messages can go
from one full set to another and back."""
FULL_COUNT_OF_LETTERS: Final = 1 << 16
"""The number of dead letters that a full set still takes, for the same reason as `FULL_OF_LETTERS`."""
TERM_BITS: Final = 24
"""The number of low bits of a clock that count the attaches of a link within one term. So a link can be attached 2^24
times in a term."""


def term_clock(life: SetLife, term: int, count: int) -> int:
    """The clock of the leader's attach number `count` in this term. An attach in a later term has a higher clock.

    The clock of a life is the reading of a hybrid clock at the beginning of the life. Each term adds 2^`TERM_BITS` to
    the clocks of attaches; this is the time of 256 ms in a hybrid clock. A set has fewer elections than that, so its
    clocks of attaches nearly always stay behind the time, and a later life begins above them. Otherwise the leader of
    the later life leads anew (`LedSet.stolen`).
    """
    assert 0 <= count < 1 << TERM_BITS
    return life.clock + (term << TERM_BITS) + count


def term_with(life: SetLife, clock: int) -> int:
    """The term of this life after which all attaches have clocks above this one."""
    return (clock - life.clock) >> TERM_BITS


@attrs.define(slots=True)
class _Asked:
    """An entry that is proposed but not decided yet."""

    records: list[Record]
    """The deliveries whose messages the entry enqueues."""
    size: int = 0
    """The bytes of the deliveries' messages. They are kept here because a settled delivery no longer has its
    message."""
    answers_echo: bool = False
    """Whether the decision of the entry answers an echo that the core had sent before the entry was proposed."""


class Ingress(SubscribingEnd, InsideEnd):
    """An ingress of one set, or the subscriber of one binding, in one term in which this router leads."""

    def __init__(
        self,
        node: EndNode,
        identity: LinkIdentity,
        messages: QueuedMessages,
        log: Proposer,
        limit: int,
        binding: bytes = b"",
        queue: str = "",
        marking: Marking | None = None,
    ) -> None:
        """`marking`: writes its address into each message, if the binding is to a pattern. `limit`: as in
        `ReplicaSets`. `binding`, `queue`: the key of the binding, and its queue's name. For an
        ingress, `queue` is empty, and `binding` is empty or `DEAD_LETTERS`."""
        lifetime = BOUND if queue else CONFIGURED
        super().__init__(node, identity, lifetime, settles_first=False, sends_settled=False)
        self._binding = binding
        self._queue = queue
        self._marking = marking if is_pattern(identity.address) else None
        self._messages = messages
        self._log = log
        self._limit = min(limit, FULL)
        self._new: dict[Record, int] = {}
        """The deliveries that wait to be enqueued, in order, each with the bytes of its message."""
        self._over: dict[bytes, None] = {}
        """The keys of settled deliveries for which no `Settled` has been proposed yet."""
        self._is_due = False
        """Whether this end proposes everything that waits, because `PATIENCE_S` is over, or because another end
        proposes."""
        self._is_asked = False
        """Whether the core has sent an echo, which asks whether this end has read all settlements so far."""
        self._asked: dict[int, _Asked] = {}
        """The entries that this end has proposed and that are not decided yet, keyed by log index."""
        self._held = 0
        """The bytes of messages that no decided entry has enqueued yet."""
        self._is_full = False
        """Whether this end has reported to the operator that the set is full."""
        self.lacks_room = False
        """Whether the set is nearly full. If so, this end computes its room again after each entry."""

    @property
    def is_there(self) -> bool:
        return self.epoch is not None and self.subscriber.link is self

    def attach_as_leader(self, unsettled: Sequence[bytes], clock: int, now: float) -> None:
        """Attach the link, because this router begins to lead.

        `unsettled`: the keys of the deliveries that were answered, and whose settlement is not known. `clock`: the
        clock of the attach (`term_clock`). The link of a new binding begins afresh.
        """
        known = self.known()
        is_new = not unsettled and (known is None or not known.live)
        claim = self.claim(None if is_new else dict.fromkeys(unsettled, 0))
        self.attach(attrs.evolve(claim, clock=clock), now)

    def decided(self, index: int, answer: Decided | None) -> None:
        asked = self._asked.pop(index)
        if not self.is_there:
            return
        records = asked.records
        self._held -= asked.size
        if isinstance(answer, Enqueued) and not records[0].presettled:
            for is_refused, places in groupby(range(len(records)), key=lambda place: place in answer.refused):
                outcome = DeliveryOutcome.REJECTED if is_refused else DeliveryOutcome.ACCEPTED
                self.node.topic.outcomes(self.subscriber, [records[place] for place in places], outcome)
        if asked.answers_echo:
            self.node.topic.echoed(self.subscriber)
        self.go_on()

    def go_on(self) -> None:
        """At the end of the pump, propose everything that waits, and take more messages if there is room for them."""
        self.node.later(self._go_on)

    def propose_now(self) -> None:
        self._is_due = True
        self.go_on()

    def _go_on(self) -> None:
        if not self.is_there:
            return
        if self._log.may_propose(self) and not self._propose():
            return
        self.node.topic.credit(self.subscriber, CREDIT)
        most = UNDECIDED_BOUND if self._binding else UNDECIDED
        left = 0 if self.is_at_its_limit else self._most - self._messages.size
        self.lacks_room = min(left, self._most_messages - self._messages.total) < most
        self.node.topic.room(self.subscriber, max(0, min(most, left) - self._held))
        if not self._binding:
            self._tell_if_full()

    def _propose(self) -> bool:
        """Propose everything that waits. Returns False if the leader is too busy."""
        proposals: list[Proposal] = []
        asked: list[_Asked] = []
        # This end answers the core's echo when the `Settled` entry is decided.
        if (self._over or self._is_asked) and (self._new or self._is_due):
            proposals.append(Settled([*self._over], self._binding))
            asked.append(_Asked([], answers_echo=self._is_asked))
        for (queue, is_settled), run in groupby(self._new, key=lambda one: (self._queue_for(one), one.presettled)):
            records = list(run)
            kept = [] if is_settled else records
            keys, messages = [record.key for record in kept], [self._message(record) for record in records]
            proposals.append(Enqueue(queue, keys, _runs(kept), messages, binding=self._binding))
            asked.append(_Asked(records, sum(map(self._new.__getitem__, records))))
        if proposals:
            first = self._log.propose(self, proposals)
            if first is None:
                return False
            self._asked.update(enumerate(asked, first))
            self._new, self._over, self._is_due, self._is_asked = {}, {}, False, False
        return True

    def _message(self, record: Record) -> bytes:
        """The message as the queue keeps it. If the queue is bound to a pattern, an annotation tells the consumers to
        which address the message was published."""
        assert record.message is not None, "what waits to be enqueued is not settled"
        marking = self._marking
        return marking.addressed(record.message, record.stream.address) if marking is not None else record.message

    def _queue_for(self, record: Record) -> str:
        return self._queue or queue_of(record.stream.address)[1]

    @property
    def is_at_its_limit(self) -> bool:
        """Whether the set takes no more messages by this end."""
        return self._messages.size >= self._most or self._messages.total >= self._most_messages

    @property
    def _most(self) -> int:
        """The set is full for this end if the messages in its queues and its outbox have this many bytes."""
        return self._limit + (FULL_OF_LETTERS if self._binding == DEAD_LETTERS else 0)

    @property
    def _most_messages(self) -> int:
        """The set is full for this end if its queues and its outbox have this many messages."""
        return FULL_COUNT + (FULL_COUNT_OF_LETTERS if self._binding == DEAD_LETTERS else 0)

    def _tell_if_full(self) -> None:
        is_full = self.is_at_its_limit
        if is_full and not self._is_full:
            there = f"{self._messages.total} messages of {self._messages.size >> 20} MiB"
            what = f"its queues and its outbox have {there}, which is the most"
            text = f"set {self.identity.link} is full: {what}; publishers wait until consumers have taken some"
            self.node.topic.outlet.actions.append(Note(text))
        self._is_full = is_full

    # The methods from here on are called for the core.

    def begin(self, action: AnswerSubscriber) -> None:
        self.go_on()

    def deliver(self, records: list[Record]) -> None:
        for record in records:
            self._new[record] = record.size
            self._held += record.size
        self.go_on()

    def redeliver(self, record: Record) -> None:
        raise AssertionError("the ingress gives nothing back")

    def resume(self, action: Resume) -> None:
        """Take a resumed delivery. If it has a state, this router has answered it in an earlier term, and that answer
        stays."""
        if action.settled:
            self.forget([action.record.key])
        elif not action.state:
            self.deliver([action.record])

    def settle(self, records: Sequence[Record]) -> None:
        for record in records:
            if record in self._new:  # the publisher abandoned the delivery before this end proposed it
                self._held -= self._new.pop(record)
        self.forget([record.key for record in records])

    def forget(self, keys: Sequence[bytes]) -> None:
        self._over.update(dict.fromkeys(keys))
        self._log.wait(self)

    def ask(self) -> None:
        self._is_asked = True
        self._log.wait(self)

    def detach(self, action: Detach) -> None:
        """Handle the loss of the link. If another leader has attached the link, that leader answers all undecided
        deliveries."""
        if action.condition == STOLEN:
            self._log.stolen(self, self.node.topic.directory.latest(self.index))


def _runs(records: Iterable[Record]) -> list[Given]:
    """Group these deliveries into runs. The deliveries of a run have consecutive places in one attach of their
    publisher (`Record.last_given`). The order stays."""
    given = enumerate(record.last_given for record in records)
    found = (list(run) for _, run in groupby(given, key=lambda one: (one[1][0], one[1][1] - one[0])))
    return [Given(*run[0][1], len(run)) for run in found]
