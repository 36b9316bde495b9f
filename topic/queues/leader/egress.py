"""The egress of a queue: the publisher to the consumers of the queue, at the router that leads (protocol 14.5).

    queue ── publish ─▶ home ── chosen ─▶ Egress ── Reserve ─▶ log of the set ── decided ─▶ home ── offer ─▶ consumer
    queue ◀── decided ── log of the set ◀── Dequeue ── Egress ◀── accepted ── home ◀── accepted ── consumer
    queue ── publish ◀── decided ── log of the set ◀── Free ── Egress ◀── released ── home ◀── released ── consumer

The messages of a queue are deliveries of one publisher, whose home is the leader's router. The home chooses a consumer
for each message, and offers the message to it when a majority has the `Reserve`. The home settles the delivery to the
consumer when a majority has the `Dequeue`. The next leader attaches the same link with the reserved messages as its
map. So the home asks the consumers that have these messages.

A consumer ends the delivery of a message if it gives the message back, or ends while it has it. When a majority has the
`Free`, the egress publishes the message again, in its old place. This is another delivery, with another key: its tag
has the number of returns of the message.

The home chooses as soon as an `Enqueue` is proposed. So if a consumer waits for a message, the message costs one round
of the log: its `Reserve` follows its `Enqueue` at once, and a majority decides both together.

Never here: the choice of consumers, and the changes of the state.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from math import inf
from typing import Final

import attrs

from topic.actions import AnswerDeliveries, Chosen, Detach
from topic.delivery.outcomes import GIVEN_BACK, MOST_ANNOTATIONS, DeliveryOutcome
from topic.delivery.record import Record
from topic.delivery.room import NO_ROOM, Demand, Drain, SubscriberRoom
from topic.directory.entry import LinkEntry
from topic.ends.end import EndNode
from topic.identity import egress_of
from topic.queues.bodies.message_rows import QueueRows, SentRows
from topic.queues.leader import publisher
from topic.queues.leader.log import Marking, MessageView, Proposer
from topic.queues.leader.publisher import Proposed, SetPublisher, Wanted
from topic.queues.operations import QueueId
from topic.queues.positions import index_of, position_of, runs_of
from topic.queues.proposals import Dequeue, Enqueue, Expire, Free, Reject, Reserve, Unreserve
from topic.queues.state import SetState


@attrs.frozen(slots=True)
class Resting:
    """How many messages of a queue wait for a time, as far as its leader has looked at them."""

    paused: int = 0
    """Messages that have failed, and pause before a consumer gets them again."""
    scheduled: int = 0
    """Messages whose delivery time has not come."""


NOBODY: Final = frozenset[bytes]()
NO_DEMAND: Final = Demand(NOBODY, NO_ROOM, NO_ROOM)
MOST_REFUSED: Final = SubscriberRoom(100, publisher.AHEAD)
"""About so many messages wait at home that all consumers with room have refused. The state keeps the others."""


@attrs.define(slots=True)
class Draining:
    """A consumer that drains."""

    asked: Drain
    coming_back: Collection[Record]
    """The deliveries that had ended when it asked, or were about to, and whose messages may be for it."""
    is_told: bool = False
    """Whether home knows that there may be more for the consumer."""


class Egress(SetPublisher):
    """The egress of one queue in one term of this router."""

    def __init__(
        self,
        node: EndNode,
        set_: str,
        name: str,
        queue: QueueId,
        state: SetState,
        log: Proposer,
        marking: Marking,
    ) -> None:
        super().__init__(node, egress_of(set_, name), state.messages, log, marking)
        self._state = state
        self._view = MessageView(state.messages, marking, node.topic.outlet)
        self.queue = self._reads_of = queue
        self._doubted: deque[int] = deque()
        """The positions of messages that were reserved before this router led. Home does not have them yet."""
        self._free: list[int] = []
        """The positions of all other messages that home does not have, as a heap."""
        self._last = -1
        """The highest position that the queue had when this end began."""
        self._expected: dict[int, dict[int, bytes]] = {}
        """The messages of the `Enqueue`s that are proposed and not decided, keyed by log index and position."""
        self._ends: dict[int, int] = {}
        """Keyed by the position of such a message: the end of its time, in milliseconds since 1970; without messages
        that have none."""
        self._chosen: dict[bytes, list[Record]] = {}
        """Keyed by the name of a consumer: the deliveries to be reserved for it."""
        self._over: list[Record] = []
        """The deliveries that consumers have accepted. Their messages are to be dequeued."""
        self._rejected: list[Record] = []
        """The deliveries that consumers have rejected."""
        self._back: list[Record] = []
        """The deliveries that consumers have given back."""
        self._late: set[int] = set()
        """The positions of messages whose time is over. No consumer has them."""
        self._for_nobody: set[int] = set()
        """The positions of messages that no consumer has, and none may get any more. The state may still have them as
        reserved."""
        self._lacks_body = False
        """Whether the first waiting message has no body in memory."""
        self._refusers: dict[int, frozenset[bytes]] = {}
        """Keyed by position: the names of the consumers that have refused the message for themselves, as far as this
        leader knows."""
        self._aside: dict[frozenset[bytes], list[int]] = {}
        """Keyed by the names of the consumers that have refused them: the positions of messages that home does not get
        while it has none but these consumers, as heaps."""

        self._kept: set[int] = set()
        """The positions of messages that the state keeps for consumers that have ended without them."""
        self._failed: set[int] = set()
        """The positions of messages whose deliveries end now, and have failed."""
        self._resting: dict[int, bool] = {}
        """Keyed by the position of a message that rests (`Proposer.rest`): whether it waits for its delivery time."""
        self._some_are_gone = False
        """Whether messages may be gone that rested."""
        self._draining: dict[bytes, Draining] = {}
        """Keyed by the name of a consumer that drains."""

    def attach_as_leader(self, clock: int, now: float) -> None:
        """This router leads: attach the link. `clock`: the clock of the attach (`term_clock`)."""
        for position in self._messages.of(self.queue):
            self._last = position
            is_free = not self._messages.reserved.has(position)
            (self._free if is_free else self._doubted).append(position)
        self._come(self.queue, self._doubted, clock, now)
        self.stream.reserved_before({self._tag(at): self._messages.reserved.at(at) for at in self._doubted})
        self._show_gap()

    def expect(self, index: int, asked: Enqueue) -> None:
        """The leader has proposed the `Enqueue` at this log index. The egress ignores the entry if it already found the
        entry's messages in the queue when it began: this happens if the entry was decided together with an earlier
        one."""
        expected = {position_of(index, place): message for place, message in enumerate(asked.messages)}
        if next(iter(expected)) > self._last:
            self._expected[index] = expected
            self._ends.update({at: end for at, end in zip(expected, asked.expires, strict=False) if end})
            for position in expected:
                heappush(self._free, position)
            self.go_on()

    def enqueued(self, index: int, positions: Sequence[int]) -> None:
        """The `Enqueue` at this log index is decided, and has put messages into the queue at these positions."""
        expected = self._expected.pop(index, {})
        for position in expected if self._ends else ():
            self._ends.pop(position, None)
        self._withdraw(expected.keys() - {*positions})
        self.go_on()

    def expire(self, positions: Sequence[int]) -> None:
        """The time of these messages is over: have them taken out unless a consumer may have them."""
        waiting = self._unassigned()
        self._for_nobody.update(waiting.intersection(positions))
        self._late.update(at for at in positions if at in waiting or not self._messages.reserved.has(at))
        self.go_on()

    def _unassigned(self) -> set[int]:
        """The positions of messages that wait at home for a consumer."""
        return {self.open[record] for record in self.stream.unassigned if record in self.open}

    # consumers that drain

    def drain(self, asked: Drain) -> None:
        """A consumer drains: tell it when it has been given all that there is for it, also what is just coming back."""
        ending = (one.records for one in self._asked.values() if one.consumer is None)
        coming_back = {*self._back, *chain.from_iterable(ending)}
        self._draining[asked.subscriber] = Draining(asked, coming_back)
        self.go_on()

    def _go_on(self) -> None:
        super()._go_on()
        self._answer_drains()

    def leave(self, now: float, *, closed: bool) -> None:
        super().leave(now, closed=closed)
        self._answer_all_drains()

    def detach(self, action: Detach) -> None:
        super().detach(action)
        self._answer_all_drains()

    def _answer_all_drains(self) -> None:
        """This end gives nobody anything any more."""
        draining, self._draining = self._draining, {}
        for one in draining.values():
            self.node.topic.given(one.asked)

    def _answer_drains(self) -> None:
        for consumer, one in [*self._draining.items()]:
            is_over = not self._has_more_for(consumer, one.coming_back)
            if is_over:
                del self._draining[consumer]
            if is_over or not one.is_told:
                one.is_told = True
                aside = sum(len(positions) for refusers, positions in self._aside.items() if consumer not in refusers)
                self.node.topic.given(one.asked, len(self._free) + aside, is_all=is_over)

    def _has_more_for(self, consumer: bytes, coming_back: Collection[Record]) -> bool:
        """Whether the consumer may be offered something soon, though nothing more is asked for or comes."""
        is_looking = not self.is_answered or self._doubted or self._lacks_body
        return bool(is_looking or self.stream.reserving.get(consumer)) or any(map(self.open.__contains__, coming_back))

    def withdraw_gone(self) -> None:
        """Messages were taken out of the queue other than by consumers, and all decided entries are known here: give up
        the deliveries of messages that are gone."""
        self._withdraw({position for position in self.open.values() if not self._has(position)})
        self._some_are_gone = True
        self._for_nobody.update(at for at in self._unassigned() if self._messages.is_purged(self.queue, at))
        self.go_on()

    def _follow(self, proposed: Proposed) -> None:
        if proposed.consumer is not None:
            at = map(self.open.__getitem__, proposed.records)
            self._withdraw({position for position in at if not self._has(position)})
            self.node.topic.reserved(self.stream, proposed.consumer, proposed.records)
            if self._draining:
                self.go_on()
        else:
            super()._follow(proposed)

    def _ended(self, position: int) -> None:
        """The delivery of the message at this position has ended. If the message still exists, it waits to be published
        again."""
        if position not in self._messages.of(self.queue):
            self._refusers.pop(position, None)
        elif not self._pauses(position):
            heappush(self._free, position)
            self._show_gap()

    def _pauses(self, position: int) -> bool:
        """Whether the message that has just come back waits before it is published again (protocol 14.17)."""
        failed = self._messages.returns(position).failed if position in self._failed else 0
        pause_s = self._state.settings_of(self.queue).pause_s(failed)
        until_ms = self.node.topic.outlet.time_ms + int(1000 * pause_s)
        pauses = pause_s > 0 and self._log.rest(self, position, until_ms)
        if pauses:
            self._resting[position] = False
        return pauses

    @property
    def resting(self) -> Resting:
        if self._some_are_gone:
            self._resting = {at: is_scheduled for at, is_scheduled in self._resting.items() if self._has(at)}
            self._some_are_gone = False
        scheduled = sum(self._resting.values())
        return Resting(len(self._resting) - scheduled, scheduled)

    def rested(self, position: int) -> None:
        self._resting.pop(position, None)
        heappush(self._free, position)
        self._show_gap()
        self.go_on()

    def _end(self, records: list[Record]) -> None:
        self._failed = {self.open[record] for record in records if _has_failed(record)}
        super()._end(records)
        self._failed = set()

    def _show_gap(self) -> None:
        """Tell home the first message that it lacks: later messages that wait there for a consumer must not precede
        it."""
        self.stream.lacks(self._tag(self._free[0]) if self._free else None)

    def _waiting(self) -> Iterable[list[Record]]:
        return (*self._chosen.values(), self._over, self._rejected, self._back)

    def _wanted(self) -> Wanted:
        wanted: Wanted = []
        for consumer, records in self._consumers():
            wanted.append((Reserve(self.queue, consumer, self._runs(records)), Proposed(records, consumer.name)))
        for failed in (False, True):
            if back := [record for record in self._back if _has_failed(record) is failed]:
                wanted += self._frees(back, failed=failed)
        if self._kept and (kept := sorted(self._kept & self._unassigned() - self._for_nobody)):
            wanted.append((Unreserve(self.queue, runs_of(kept)), Proposed([])))
        if self._for_nobody:
            wanted.append((Free(self.queue, runs_of(sorted(self._for_nobody)), failed=False), Proposed([])))
        if self._late:
            wanted.append((Expire(self.queue, runs_of(sorted(self._late))), Proposed([])))
        if self._is_due and self._rejected:
            wanted.append((Reject(self.queue, self._runs(self._rejected)), Proposed(self._rejected)))
        if self._is_due and (self._over or self._is_asked):  # an entry answers an echo
            dequeue = Dequeue(self.queue, self._runs(self._over))
            wanted.append((dequeue, Proposed(self._over, answers_echo=self._is_asked)))
        return wanted

    def _frees(self, records: Iterable[Record], *, failed: bool) -> Wanted:
        """One or more `Free`s for these records: an entry has some 256 KiB of annotations at most, and all together
        have no more than the set may keep."""
        frees: list[tuple[list[Record], dict[int, bytes]]] = [([], {})]
        size, left = 0, self._messages.annotations_left
        for record in records:
            if size >= publisher.AHEAD:
                frees.append(([], {}))
                size = 0
            freed, added = frees[-1]
            freed.append(record)
            annotations = self._annotations(record)
            if annotations and left >= len(annotations):
                added[self.open[record]] = annotations
                size += len(annotations)
                left -= len(annotations)
        return [(Free(self.queue, self._runs(freed), failed, added), Proposed(freed)) for freed, added in frees]

    def _annotations(self, record: Record) -> bytes:
        """The annotations of the message so far, merged with those of the last consumer. Empty if there are none, or if
        they are too large together."""
        if not record.annotations:
            return b""
        try:
            merged = self._marking.merged(self._messages.returns(self.open[record]).annotations, record.annotations)
        except ValueError:  # the consumer has sent malformed annotations
            return b""
        return merged if len(merged) <= MOST_ANNOTATIONS else b""

    def _was_proposed(self, *, is_due: bool) -> None:
        self._chosen, self._back, self._late, self._for_nobody, self._kept = {}, [], set(), set(), set()
        if is_due:
            self._over, self._rejected, self._is_asked, self._is_due = [], [], False, False

    def _consumers(self) -> list[tuple[LinkEntry, list[Record]]]:
        """The consumers that home has chosen, each with its deliveries. If one has ended since, home chooses
        another."""
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
        """Messages whose time is over do not go to the consumers that home has chosen for them."""
        now_ms = self.node.topic.outlet.time_ms
        for name, records in list(self._chosen.items()) if self._messages.expiring or self._ends else ():
            over = {at for record in records if self._end_of(at := self.open[record]) <= now_ms}
            self._for_nobody |= over
            self._late |= over
            self._chosen[name] = [record for record in records if self.open[record] not in over]
            if not self._chosen[name]:
                del self._chosen[name]

    def _end_of(self, position: int) -> float:
        """The end of the message's time, in milliseconds since 1970; infinite if it has none."""
        return self._messages.expiring.get(position, (None, self._ends.get(position, inf)))[1]

    def _publish(self) -> None:
        """Publish the messages that consumers may have already, and as many others as consumers have room for."""
        serves_one = bool(self._state.settings_of(self.queue).single_active)
        if serves_one and not self.stream.serves_one:  # before this end publishes for the room of other consumers
            self.stream.serve(None)
        is_to_choose = serves_one != self.stream.serves_one or (serves_one and self.stream.served is None)
        gap, received = self.stream.gap, self.stream.received
        self._publish_some()
        is_gone = gap != self.stream.gap and received == self.stream.received  # then home does not go on by itself
        if is_to_choose or is_gone:  # after the messages that were given back
            self.node.topic.serve_one(self.stream, only=serves_one)

    def _publish_some(self) -> None:
        """Publish first the messages that consumers may have, then others, as far as their bodies are in memory."""
        self._give([*self._take(self._doubted, self._doubted.popleft)])
        if self._doubted:
            self._read_bodies(islice(self._doubted, publisher.AT_ONCE), publisher.AHEAD)
        elif self._free or self._aside:
            demand, self._lacks_body = self.node.topic.demand(self.stream), False
            room = demand.room
            self._bring_back(demand)
            given = room.fill(self._take(self._free, lambda: heappop(self._free), demand), lambda one: len(one[1]))
            self._show_gap()
            self._give(given)
            if self._lacks_body and not self._is_reading:
                following = [heappop(self._free) for _ in range(min(publisher.AT_ONCE, len(self._free)))]
                for position in following:
                    heappush(self._free, position)
                self._read_bodies(following, room.size if self._log.is_far_ahead else publisher.AHEAD)

    @property
    def _rows(self) -> QueueRows | SentRows:
        return self._messages.of(self.queue)

    def _take(
        self, waiting: Sequence[int], pop: Callable[[], int], demand: Demand = NO_DEMAND
    ) -> Iterator[tuple[int, bytes]]:
        """Take waiting messages, with their positions, up to the first whose body is not in memory. Put a message aside
        that all consumers with room have refused, if home has as many of these as it may have. A message whose time has
        not come rests (protocol 14.18)."""
        self._lacks_body = False
        left, now_ms = MOST_REFUSED - demand.refused, self.node.topic.outlet.time_ms
        while waiting:
            position = waiting[0]
            is_refused = bool(demand.able) and demand.able <= self._refusers.get(position, NOBODY)
            if not self._has(position):
                self._forget_body(pop())
                self._refusers.pop(position, None)
            elif is_refused and not left:
                self._forget_body(pop())
                heappush(self._aside.setdefault(self._refusers.pop(position), []), position)
            elif (message := self._message(position)) is None:
                self._lacks_body = True
                return
            elif waiting is self._free and (until_ms := self._marking.delivery_ms(message)) and until_ms > now_ms:
                self._forget_body(pop())
                self._resting[position] = True
                self._log.rest(self, position, until_ms, must=True)
            else:
                self._forget_body(pop())
                left -= SubscriberRoom.of_sizes([len(message)] if is_refused else [])
                yield position, message

    def _bring_back(self, demand: Demand) -> None:
        """Consumers with room have not refused these messages that were put aside: bring back as many as there is room
        for."""
        for names in [names for names in self._aside if not demand.able <= names]:
            positions = self._aside[names]
            for _ in range(min(len(positions), demand.room.deliveries)):
                position = heappop(positions)
                self._refusers[position] = names
                heappush(self._free, position)
            if not positions:
                del self._aside[names]

    def _has(self, position: int) -> bool:
        """Whether the queue has a message at this position, or gets it by an `Enqueue` that is not decided."""
        return position in self._messages.of(self.queue) or position in self._expected.get(index_of(position), ())

    def _message(self, position: int) -> bytes | None:
        """The message at this position, as the next consumer gets it; None if its body is not in memory."""
        rows = self._messages.of(self.queue)
        if position not in rows:
            return self._expected[index_of(position)][position]
        message = rows[position]
        if message is None and (message := self._read.get(position)) is None:
            return None
        return self._view.of(position, message)

    def _give(self, given: list[tuple[int, bytes]]) -> None:
        if given:
            positions, messages = map(list, zip(*given, strict=True))
            if self._refusers:
                refusers = {self._tag(at): (*self._refusers.get(at, ()),) for at in positions}
                self.stream.refused_before(refusers)
            self.publish(positions, [*map(self._tag, positions)], messages)

    # actions of the core

    def choose(self, action: Chosen) -> None:
        self._chosen.setdefault(action.subscriber, []).extend(action.records)
        self.go_on()

    def forget_refusals(self, subscriber: bytes) -> None:
        refusers = ((at, names - {subscriber}) for at, names in self._refusers.items())
        self._refusers = {at: names for at, names in refusers if names}
        for names in [names for names in self._aside if subscriber in names]:
            positions = self._aside.pop(names) + self._aside.get(names - {subscriber}, [])
            heapify(positions)
            self._aside[names - {subscriber}] = positions
        reserved = self._messages.reserved
        if kept := {at for at in self._unassigned() if reserved.has(at) and reserved.at(at) == subscriber}:
            self._kept |= kept  # it had no room when the `Reserve` was decided
            self.go_on()

    def want(self) -> None:
        self.go_on()

    def send_outcomes(self, action: AnswerDeliveries) -> None:
        """Home tells the outcome of deliveries: consumers have accepted or rejected the messages, or the messages come
        back to the queue."""
        if action.outcome in GIVEN_BACK:
            self._back += action.records
            self._note_refusers(action.records)
            self.go_on()
        else:
            is_rejected = action.outcome is DeliveryOutcome.REJECTED
            (self._rejected if is_rejected else self._over).extend(action.records)
            self._log.wait(self)

    def _note_refusers(self, records: Iterable[Record]) -> None:
        known = self.node.topic.directory.subscriber
        for record in records:
            if record.refusals is not None and record.refusals[2] and record.chosen:
                consumer = known(record.chosen)
                if consumer is not None and consumer.live:
                    position = self.open[record]
                    self._refusers[position] = self._refusers.get(position, NOBODY) | {record.chosen}


def _has_failed(record: Record) -> bool:
    return record.refusals is not None and record.refusals[3] > 0
