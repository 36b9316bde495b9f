"""The egress of a queue: the publisher to the consumers of the queue, at the router that leads (protocol 14.5).

    queue ── publish ─▶ home ── chosen ─▶ Egress ── Reserve ─▶ log of the set ── decided ─▶ home ── offer ─▶ consumer
    queue ◀── decided ── log of the set ◀── Dequeue ── Egress ◀── accepted ── home ◀── accepted ── consumer
    queue ── publish ◀── decided ── log of the set ◀── Free ── Egress ◀── released ── home ◀── released ── consumer

The messages of a queue are deliveries of one publisher, whose home is the leader's router. The home chooses a consumer
for each, and offers it when a majority has that. A consumer is settled when a majority has the `Dequeue`. The next
leader attaches the same link with the reserved messages as its map: so the home asks the consumers that have them.

A consumer that gives a message back, or goes with it, ends the delivery. When a majority has the `Free`, the message is
published anew, in its old place. That is another delivery, with another key: how often a message came back is in its
tag.

The home chooses as soon as an `Enqueue` is proposed. So a message whose consumer waits for it costs one round of the
log: its `Reserve` follows its `Enqueue` at once, and a majority decides both together.

Never here: which consumer gets a message, and what becomes of a message in the state.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from heapq import heappop, heappush
from math import inf

import attrs

from topic.actions import AnswerDeliveries, AnswerPublisher, Chosen, Detach
from topic.delivery.outcomes import GIVEN_BACK
from topic.delivery.record import Record
from topic.directory.entry import CONFIGURED, LinkEntry
from topic.ends.end import EndNode, InsideEnd
from topic.ends.publishing import PublishingEnd
from topic.identity import NOWHERE, Epoch, egress_of
from topic.queues.leader.log import Marking, Proposer
from topic.queues.logged.message_log import generation_of
from topic.queues.messages import QueuedMessages
from topic.queues.operations import QueueId
from topic.queues.positions import delivery_tag, index_of, position_of, runs_of
from topic.queues.proposals import Dequeue, Enqueue, Enqueued, Expire, Free, Proposal, Reserve
from topic.termini.attaches import Claim


@attrs.define(slots=True)
class _Proposed:
    """An entry that was proposed, and is not decided."""

    records: list[Record]
    """The deliveries that it reserves or ends."""
    consumer: bytes | None = None
    """The name of the consumer that they are reserved for; None: they end."""
    answers_echo: bool = False


class Egress(PublishingEnd[int], InsideEnd):
    """The egress of one queue, in one term of this router. It knows a delivery by the position of the message."""

    def __init__(
        self,
        node: EndNode,
        set_: str,
        name: str,
        queue: QueueId,
        messages: QueuedMessages,
        log: Proposer,
        marking: Marking,
    ) -> None:
        super().__init__(node, egress_of(set_, name), CONFIGURED, settles_first=False)
        self.queue = queue
        self._messages = messages
        self._log = log
        self._marking = marking
        self._doubted: list[int] = []
        """The positions of messages that were reserved before this router led, and that the home does not have yet."""
        self._free: list[int] = []
        """The positions of all other messages that the home does not have, as a heap."""
        self._last = -1
        """The highest position that this end has found as it came."""
        self._expected: dict[int, dict[int, bytes]] = {}
        """The messages of the `Enqueue`s that are proposed and not decided, by log index and position."""
        self._ends: dict[int, int] = {}
        """When the time of these messages is over, by position, in milliseconds since 1970; without those that have no
        end."""
        self._chosen: dict[bytes, list[Record]] = {}
        """By the name of a consumer: what is to be reserved for it."""
        self._over: list[Record] = []
        """What is to be dequeued."""
        self._is_due = False
        """An entry is proposed, or `PATIENCE_S` is over: what waits is to be proposed."""
        self._back: list[Record] = []
        """What consumers have given back."""
        self._late: set[int] = set()
        """The positions of messages whose time is over, and that nobody has."""
        self._for_nobody: set[int] = set()
        """The positions of messages that may be reserved although nobody has them, and that no consumer is to have."""
        self._refusers: dict[int, dict[bytes, Epoch]] = {}
        """By position: the consumers that have refused the message for themselves, as far as this leader knows, and
        their attaches."""
        self._is_asked = False
        """The core asks whether this end is still there."""
        self._asked: dict[int, _Proposed] = {}
        """By log index."""

    @property
    def is_there(self) -> bool:
        return self.epoch is not None and not self.is_detached and not self.stream.abandoned

    @property
    def answers(self) -> bool:
        return True

    def come(self, clock: int, now: float) -> None:
        """This router leads: attach the link. `clock`: of the attach (`term_clock`)."""
        for position in self._messages.of(self.queue):
            self._last = position
            is_free = not self._messages.reserved.has(position)
            (self._free if is_free else self._doubted).append(position)
        doubted, known = dict.fromkeys(map(self._tag, self._doubted), 0), self.known()
        seen = known.epoch if known is not None else NOWHERE  # also of a former queue: this one has another life
        self.attach(Claim(generation_of(self.queue), doubted, True, seen, clock), now)
        assert self.stream.generation == generation_of(self.queue), "the keys are those of all leaders"
        self.stream.reserved_before({self._tag(at): self._messages.reserved.at(at) for at in self._doubted})

    def _tag(self, position: int) -> bytes:
        return delivery_tag(position, self._messages.returns(position).times)

    def expect(self, index: int, asked: Enqueue) -> None:
        """The `Enqueue` at this log index is proposed. This end may have found its messages as it came: the entry was
        decided together with an earlier one."""
        expected = {position_of(index, place): message for place, message in enumerate(asked.messages)}
        if next(iter(expected)) > self._last:
            self._expected[index] = expected
            self._ends.update({at: end for at, end in zip(expected, asked.expires, strict=False) if end})
            for position in expected:
                heappush(self._free, position)
            self.go_on()

    def enqueued(self, index: int, positions: Sequence[int]) -> None:
        """The `Enqueue` at this log index has put messages into the queue, at these positions."""
        expected = self._expected.pop(index, {})
        for position in expected if self._ends else ():
            self._ends.pop(position, None)
        self._withdraw(expected.keys() - {*positions})
        self.go_on()

    def _withdraw(self, positions: Set[int]) -> None:
        """These messages are for no consumer: the queue had them before, or has no room for them, or they are gone."""
        records = [record for record, position in self.open.items() if position in positions] if positions else []
        for record in records:
            del self.open[record]
        if records and self.is_there:
            asked = (one.records for one in self._asked.values())
            for waiting in (*self._chosen.values(), self._over, self._back, *asked):
                waiting[:] = [record for record in waiting if record in self.open]
            self.node.topic.settle(self.stream, records)

    def expire(self, positions: Sequence[int]) -> None:
        """The time of these messages is over."""
        waiting = self._waiting()
        self._for_nobody.update(waiting.intersection(positions))
        self._late.update(at for at in positions if at in waiting or not self._messages.reserved.has(at))
        self.go_on()

    def _waiting(self) -> set[int]:
        """The positions of messages that home has, and that wait for a consumer there."""
        return {self.open[record] for record in self.stream.unassigned if record in self.open}

    def withdraw_gone(self) -> None:
        """Messages were purged or have expired, and all that was decided before is known here."""
        self._withdraw({position for position in self.open.values() if not self._has(position)})
        self._for_nobody.update(at for at in self._waiting() if self._messages.is_purged(self.queue, at))
        self.go_on()

    def decided(self, index: int, answer: Enqueued | None) -> None:
        asked = self._asked.pop(index)
        if not self.is_there:
            return
        if asked.consumer is not None:
            at = map(self.open.__getitem__, asked.records)
            self._withdraw({position for position in at if not self._has(position)})
            self.node.topic.reserved(self.stream, asked.consumer, asked.records)
        elif asked.records:
            self._end(asked.records)
        if asked.answers_echo:
            self.alive(answered=True)

    def _end(self, records: list[Record]) -> None:
        """These deliveries are over. Messages that are still there came back."""
        for record in records:
            position = self.open.pop(record)
            if position in self._messages.of(self.queue):
                heappush(self._free, position)
            else:
                self._refusers.pop(position, None)
        self.node.topic.settle(self.stream, records)
        self.go_on()

    def go_on(self) -> None:
        """With the end of the pump, publish what there is credit for, and propose all that waits."""
        self.node.later(self._go_on)

    def hurry(self) -> None:
        self._is_due = True
        self.go_on()

    def _go_on(self) -> None:
        if not self.is_there:
            return
        if self.is_answered:
            self._publish()
        is_due = self._is_due
        proposals: list[Proposal] = []
        asked: list[_Proposed] = []
        for consumer, records in self._consumers():
            proposals.append(Reserve(self.queue, consumer, self._runs(records)))
            asked.append(_Proposed(records, consumer.name))
        for failed in (False, True):
            if back := [record for record in self._back if _has_failed(record) is failed]:
                proposals.append(Free(self.queue, self._runs(back), failed))
                asked.append(_Proposed(back))
        if self._for_nobody:
            proposals.append(Free(self.queue, runs_of(sorted(self._for_nobody)), failed=False))
            asked.append(_Proposed([]))
        if self._late:
            proposals.append(Expire(self.queue, runs_of(sorted(self._late))))
            asked.append(_Proposed([]))
        if is_due and (self._over or self._is_asked):  # an echo is answered by an entry
            proposals.append(Dequeue(self.queue, self._runs(self._over)))
            asked.append(_Proposed(self._over, answers_echo=self._is_asked))
        if not proposals:
            return
        first = self._log.propose(self, proposals)
        if first is not None:
            self._asked.update(enumerate(asked, first))
            self._chosen, self._back, self._late, self._for_nobody = {}, [], set(), set()
            if is_due:
                self._over, self._is_asked, self._is_due = [], False, False

    def _consumers(self) -> list[tuple[LinkEntry, list[Record]]]:
        """The consumers that home has chosen, and for what. If one has gone since, home chooses another."""
        found: list[tuple[LinkEntry, list[Record]]] = []
        self._sort_out_expired()
        for name, records in list(self._chosen.items()):
            consumer = self.node.topic.directory.subscriber(name)
            if consumer is not None and consumer.live:
                found.append((consumer, records))
            else:
                del self._chosen[name]
                self.node.topic.not_reserved(self.stream, name, records)
        return found

    def _sort_out_expired(self) -> None:
        """Home has chosen consumers for messages whose time is over: none is to have them."""
        now_ms = self.node.topic.outlet.time_us // 1000
        for name, records in list(self._chosen.items()) if self._messages.expiring or self._ends else ():
            over = {at for record in records if self._end_of(at := self.open[record]) <= now_ms}
            self._for_nobody |= over
            self._late |= over
            self._chosen[name] = [record for record in records if self.open[record] not in over]
            if not self._chosen[name]:
                del self._chosen[name]

    def _end_of(self, position: int) -> float:
        """When the time of the message is over, in milliseconds since 1970; infinite if it has no end."""
        return self._messages.expiring.get(position, (None, self._ends.get(position, inf)))[1]

    def _runs(self, records: Iterable[Record]) -> Sequence[tuple[int, int]]:
        return runs_of(sorted(self.open[record] for record in records))

    def _publish(self) -> None:
        """Publish what consumers may have already, and as much of the rest as they take."""
        doubted, self._doubted = self._doubted, []
        self._give([(position, message) for position in doubted if (message := self._message(position)) is not None])
        if self._free:
            self._give(self.node.topic.wanted(self.stream).fill(self._take_free(), lambda one: len(one[1])))

    def _take_free(self) -> Iterator[tuple[int, bytes]]:
        """Take the messages, with their positions, out of those that the home does not have."""
        while self._free:
            position = heappop(self._free)
            if (message := self._message(position)) is not None:
                yield position, message

    def _has(self, position: int) -> bool:
        """Whether the queue has a message at this position, or is about to."""
        return position in self._messages.of(self.queue) or position in self._expected.get(index_of(position), ())

    def _message(self, position: int) -> bytes | None:
        """The message at this position, as the next consumer gets it; None: it is gone."""
        message = self._messages.of(self.queue).get(position)
        if message is None:
            return self._expected.get(index_of(position), {}).get(position)
        returns = self._messages.returns(position)
        return self._marking.came_back(message, returns.failed) if returns.times else message

    def _give(self, given: list[tuple[int, bytes]]) -> None:
        if given:
            positions, messages = map(list, zip(*given, strict=True))
            if self._refusers:
                self.stream.refused_before({self._tag(at): self._refused_by(at) for at in positions})
            self.publish(positions, [*map(self._tag, positions)], messages)

    def _refused_by(self, position: int) -> tuple[bytes, ...]:
        """The consumers that are not offered the message any more, unless they have ended, and attached anew."""
        refusers, known = self._refusers.get(position, {}), self.node.topic.directory.subscriber
        there = [one for name in refusers if (one := known(name)) is not None and one.live]
        return tuple(one.name for one in there if one.resumed or one.epoch == refusers[one.name])

    # what the core asks

    def begin(self, action: AnswerPublisher) -> None:
        self.go_on()

    def grant(self, count: int) -> None:
        """The window of a publisher bounds what a client may send. Here the consumers bound it: `Topic.wanted`."""

    def choose(self, action: Chosen) -> None:
        self._chosen.setdefault(action.subscriber, []).extend(action.records)
        self.go_on()

    def want(self) -> None:
        self.go_on()

    def tell(self, action: AnswerDeliveries) -> None:
        """Consumers have accepted the messages, or rejected them: they leave the queue. Or they come back to it."""
        if action.outcome in GIVEN_BACK:
            self._back += action.records
            self._note_refusers(action.records)
            self.go_on()
        else:
            self._over += action.records
            self._log.wait(self)

    def _note_refusers(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.refusals is not None and record.refusals[2] and record.chosen:
                consumer = self.node.topic.directory.subscriber(record.chosen)
                if consumer is not None:
                    self._refusers.setdefault(self.open[record], {})[consumer.name] = consumer.epoch

    def ask(self) -> None:
        self._is_asked = True
        self._log.wait(self)

    def detach(self, action: Detach) -> None:
        """A later leader has the link."""


def _has_failed(record: Record) -> bool:
    return record.refusals is not None and record.refusals[3] > 0
