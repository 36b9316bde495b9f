"""The ingress of a set: the subscriber to all queues of the set, at the router that leads (protocol 14).

    publishers ─▶ home ─▶ Ingress ── Enqueue ─▶ log of the set ── decided ─▶ Ingress ── accepted ─▶ home ─▶ publishers

A delivery is answered when a majority has its `Enqueue`. The next leader attaches the same link, with the deliveries
that were answered and are not known to be settled as its map. It states no outcome in that map: it is sent such a
delivery again, and answers it like any other. So a leader that was given up, and does not know it, answers nothing.

Never here: who leads, and what becomes of a message.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, Protocol

import attrs

from topic.actions import AnswerSubscriber, Detach, Resume
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.directory.entry import CONFIGURED
from topic.ends.end import EndNode, InsideEnd
from topic.ends.subscribing import SubscribingEnd
from topic.identity import NOWHERE, LinkIdentity
from topic.queues.proposals import Enqueue, Enqueued, Proposal, Settled
from topic.termini.attaches import Claim

INSIDE: Final = "_sets/"
"""What the addresses begin with that only the sets of the mesh have links to."""
CREDIT: Final = 1 << 30
"""Deliveries: without a limit. What waits for a majority is limited in bytes."""
UNDECIDED: Final = 1 << 20
"""Bytes of messages that may wait for a majority: homes keep the rest."""
TERM_BITS: Final = 24
"""A fence has room for so many attaches in one term: 2 to the power of this."""


def ingress_address(set_: str, queue: str) -> str:
    """The address to which the publishers of a queue publish."""
    return f"{INSIDE}{set_}/in/{queue}"


def ingress_of(set_: str) -> LinkIdentity:
    """The link of the ingress of a set."""
    return LinkIdentity(INSIDE, set_, ingress_address(set_, "#"))


def fence_of(life: int, term: int, count: int) -> int:
    """The fence of the leader's attach of this number in the term. A later term, or life, has higher ones: a life is a
    clock at its beginning, and a set has fewer elections than a clock has readings."""
    assert 0 <= count < 1 << TERM_BITS
    return life + (term << TERM_BITS) + count


class Proposer(Protocol):
    """The log of a set, as the ends of its leader use it."""

    def propose(self, proposals: Sequence[Proposal]) -> int | None:
        """Append entries, to be decided. Returns the index of the first. None: the leader is busy, or leads no more;
        ask again later."""


@attrs.define(slots=True)
class _Asked:
    """An entry that was proposed, and is not decided."""

    records: list[Record]
    """Those that it enqueues."""
    is_sign: bool = False
    """When it is decided, this router still led after it was asked for a sign of that."""


class Ingress(SubscribingEnd, InsideEnd):
    """Of one set, in one term of this router."""

    def __init__(self, node: EndNode, set_: str, log: Proposer) -> None:
        super().__init__(node, ingress_of(set_), CONFIGURED, settles_first=False, sends_settled=False)
        self._begins = len(ingress_address(set_, ""))
        self._log = log
        self._new: dict[Record, None] = {}
        """Those that are to be enqueued, in order."""
        self._over: dict[bytes, None] = {}
        """The keys of those that are settled, which the log does not say yet."""
        self._is_asked = False
        """Homes want to know whether it has read what was settled so far."""
        self._asked: dict[int, _Asked] = {}
        """By log index."""
        self._held = 0
        """Bytes of messages that are not decided."""

    @property
    def is_there(self) -> bool:
        return self.epoch is not None and not self.is_detached

    def come(self, unsettled: Iterable[bytes], fence: int, now: float) -> None:
        """This router leads: attach the link. `unsettled`: the keys of the deliveries that were answered, and are not
        known to be settled."""
        self.attach(Claim(None, dict.fromkeys(unsettled, 0), True, NOWHERE, fence), now)

    def decided(self, index: int, answer: Enqueued | None) -> None:
        """An entry is decided, perhaps one of an earlier leader."""
        asked = self._asked.pop(index, None)
        if asked is None or not self.is_there:
            return
        records = asked.records
        self._held -= sum(record.size for record in records)
        if answer is not None and not records[0].presettled:
            for is_refused, places in groupby(range(len(records)), key=lambda place: place in answer.refused):
                outcome = DeliveryOutcome.REJECTED if is_refused else DeliveryOutcome.ACCEPTED
                self.node.topic.outcomes(self.subscriber, [records[place] for place in places], outcome)
        if asked.is_sign:
            self.node.topic.echoed(self.subscriber)
        self.go_on()

    def go_on(self) -> None:
        """Propose what waits, once per pump, and take as much more as there is room for."""
        self.node.later(self._propose)

    def _propose(self) -> None:
        if not self.is_there:
            return
        proposals: list[Proposal] = []
        asked: list[_Asked] = []
        if self._over or self._is_asked:
            proposals.append(Settled([*self._over]))
            asked.append(_Asked([], self._is_asked))
        for (address, is_settled), run in groupby(self._new, key=lambda one: (one.stream.address, one.presettled)):
            records = list(run)
            keys = [] if is_settled else [record.key for record in records]
            proposals.append(Enqueue(address[self._begins :], keys, [_message(record) for record in records]))
            asked.append(_Asked(records))
        if proposals:
            first = self._log.propose(proposals)
            if first is None:
                return
            self._asked.update(enumerate(asked, first))
            self._new, self._over, self._is_asked = {}, {}, False
        self.node.topic.credit(self.subscriber, CREDIT)
        self.node.topic.room(self.subscriber, max(0, UNDECIDED - self._held))

    # what the core asks

    def begin(self, action: AnswerSubscriber) -> None:
        self.go_on()

    def deliver(self, records: list[Record]) -> None:
        for record in records:
            self._new[record] = None
            self._held += record.size
        self.go_on()

    def redeliver(self, record: Record) -> None:
        raise AssertionError("the ingress gives nothing back")

    def resume(self, action: Resume) -> None:
        """With a state, this router has answered the delivery itself, in an earlier term, and the answer stands."""
        if action.settled:
            self.forget([action.record.key])
        elif not action.state:
            self.deliver([action.record])

    def settle(self, records: Sequence[Record]) -> None:
        for record in records:
            if self._new.pop(record, record) is None:  # given up by its publisher before it was proposed
                self._held -= record.size
        self.forget([record.key for record in records])

    def forget(self, keys: Sequence[bytes]) -> None:
        self._over.update(dict.fromkeys(keys))
        self.go_on()

    def ask(self) -> None:
        self._is_asked = True
        self.go_on()

    def detach(self, action: Detach) -> None:
        """A later leader has the link: what is not decided is answered there."""


def _message(record: Record) -> bytes:
    assert record.message is not None, "what waits to be enqueued is not settled"
    return record.message
