"""The egress of a queue: the publisher that gives the queue's messages to its consumers, at the leader's router
(protocol 14.5).

    queue ── publish ─▶ home ── chosen ─▶ Egress ── Reserve ─▶ log of the set ── decided ─▶ home ── offer ─▶ consumer
    queue ◀── decided ── log of the set ◀── Dequeue ── Egress ◀── accepted ── home ◀── accepted ── consumer
    queue ── publish ◀── decided ── log of the set ◀── Free ── Egress ◀── released ── home ◀── released ── consumer

The messages of a queue are deliveries of one publisher, the egress. The leader's router is its home. The home chooses a
consumer for each message. It offers the message to the consumer when a majority has the `Reserve`, and settles the
delivery to the consumer when a majority has the `Dequeue`.

The next leader attaches the same link. Its map has the reserved messages, so that the home asks the consumers that may
have them.

A delivery also ends if its consumer gives the message back, or ends while it has the message. When a majority has the
`Free`, the egress publishes the message again, in its old place. This is another delivery, with another key: its tag
has the number of times that the message has come back.

The home chooses a consumer as soon as an `Enqueue` is proposed. So if a consumer waits for a message, the message needs
only one round of the log: its `Reserve` follows its `Enqueue` at once, and a majority decides both together.

This module does not choose consumers, and does not change the state of the set.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from topic.queues.leader.locks import Locks
from topic.queues.leader.log import Marking, MessageView, Proposer
from topic.queues.leader.publisher import Proposed, SetPublisher, Wanted
from topic.queues.operations import QueueId
from topic.queues.positions import index_of, position_of, runs_of
from topic.queues.proposals import Dequeue, Enqueue, Expire, Free, Reject, Reserve, Unreserve
from topic.queues.state import SetState


@attrs.frozen(slots=True)
class Resting:
    """How many messages of a queue may not go to consumers before a certain time. The leader counts only messages that
    it has looked at."""

    paused: int = 0
    """Messages that have failed, and that rest before a consumer gets them again."""
    scheduled: int = 0
    """Messages that wait for the delivery time that their publishers have stated."""


NOBODY: Final = frozenset[bytes]()
NO_DEMAND: Final = Demand(NOBODY, NO_ROOM, NO_ROOM)
MOST_REFUSED: Final = SubscriberRoom(100, publisher.AHEAD)
"""About how many messages the home may have although all consumers with room have refused them. The egress does not
publish more of them; they stay in the queue."""


@attrs.define(slots=True)
class Draining:
    """A consumer that drains."""

    asked: Drain
    coming_back: Collection[Record]
    """Deliveries that had ended, or were about to end, when the consumer began to drain. Their messages may come to it
    again."""
    is_told: bool = False
    """Whether the egress has reported to the home that more messages may come for the consumer."""


class Egress(SetPublisher):
    """The egress of one queue, in one term in which this router leads."""

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
        """The positions of messages that were reserved before this router led, and that the home does not have yet."""
        self._named: dict[int, bytes] = {}
        """Maps each position in `_doubted` to the tag of its delivery. The map of the attach names these deliveries."""
        self._free: list[int] = []
        """A heap with the positions of the messages that the home does not have, except the positions in `_doubted`."""
        self._last = -1
        """The highest position in the queue when this egress was attached."""
        self._expected: dict[int, dict[int, bytes]] = {}
        """The messages of `Enqueue`s that are proposed but not decided yet, keyed by log index and then by position."""
        self._transactions: set[int] = set()
        """The log indices of undecided transactions that may put messages into the queue."""
        self._ends: dict[int, int] = {}
        """Maps the position of each message in `_expected` to the end of the message's time to live, in milliseconds
        since 1970. Messages whose time does not end are left out."""
        self._chosen: dict[bytes, list[Record]] = {}
        """Maps the name of each consumer to the deliveries that the egress has to reserve for the consumer."""
        self._over: list[Record] = []
        """The deliveries that consumers have accepted, and whose messages the egress has to dequeue."""
        self._rejected: list[Record] = []
        """The deliveries that consumers have rejected, and whose messages have to leave the queue."""
        self._back: list[Record] = []
        """The deliveries that consumers have given back, and whose messages have to be freed."""
        self._late: set[int] = set()
        """The positions of messages whose time to live is over, and that no consumer has."""
        self._for_nobody: set[int] = set()
        """The positions of messages that no consumer has, and that no consumer may get. The state of the set may still
        have them as reserved."""
        self._lacks_body = False
        """Whether a body is missing in memory: the body of the first message that waits to be published."""
        self._refusers: dict[int, frozenset[bytes]] = {}
        """Maps the position of each message to the consumers that have refused the message for themselves, as far as
        this leader knows."""
        self._aside: dict[frozenset[bytes], list[int]] = {}
        """The messages that this egress keeps from the home, because all consumers with room have refused them. For
        each set of consumers that have refused the same messages, a heap of the positions of these messages. They are
        published again when another consumer has room."""

        self._ended_with: set[bytes] = set()
        """The consumers that have ended, and for which the state still keeps messages."""
        self._failed: set[int] = set()
        """The positions of messages whose deliveries have failed and are just ending."""
        self._resting: dict[int, bool] = {}
        """Maps the position of each resting message (`Proposer.rest`) to True if the message waits for its delivery
        time."""
        self._some_are_gone = False
        """Whether some messages in `_resting` may have left the queue."""
        self._locks = Locks(self, log, lambda: node.topic.outlet.time_ms)
        self._taken_back: set[Record] = set()
        """The deliveries whose messages consumers held for too long, and that have not ended yet."""
        self._draining: dict[bytes, Draining] = {}
        """The consumers of the queue that drain, keyed by name."""

    def attach_as_leader(self, clock: int, now: float) -> None:
        """Attach the link, because this router begins to lead. `clock`: the clock of the attach (`term_clock`)."""
        for position in self._messages.of(self.queue):
            self._last = position
            is_free = not self._messages.reserved.has(position)
            (self._free if is_free else self._doubted).append(position)
        self._come(self.queue, self._doubted, clock, now)
        self._named = {at: self._tag(at) for at in self._doubted}
        self.stream.reserved_before({tag: self._messages.reserved.at(at) for at, tag in self._named.items()})
        self._show_gap()

    def expect(self, index: int, asked: Enqueue) -> None:
        """Publish the messages of an `Enqueue` that the leader has proposed at this log index.

        The egress ignores the call if it has found these messages in the queue already. This happens if one step
        decides two entries: the first entry makes the leader attach the egress, which then finds the messages of both.
        """
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

    def await_transaction(self, index: int) -> None:
        """The transaction at this log index may put messages into the queue. Publish no message behind this index until
        the entry is decided."""
        self._transactions.add(index)

    def transacted(self, index: int) -> None:
        """The transaction at this log index is decided. If it has put messages into the queue, `came` was called
        before."""
        if index in self._transactions:
            self._transactions.remove(index)
            self.go_on()

    def came(self, positions: Iterable[int]) -> None:
        """A transaction has put messages into the queue at these positions. The egress ignores messages that it found
        there when it was attached."""
        for position in positions:
            if position > self._last:
                heappush(self._free, position)
        self._show_gap()
        self.go_on()

    def left(self, positions: Iterable[int]) -> None:
        """Give up the deliveries of these messages, which a transaction has taken out of the queue. The egress does not
        wait for the outcomes of these deliveries: the consumer's router may be lost before it reports them."""
        gone = {*positions}
        for position in gone:
            self._locks.free(position)
        self._withdraw(gone)
        self.go_on()

    def positions_of(self, keys: Iterable[bytes], consumer: bytes) -> list[int] | None:
        """The positions of the messages that deliveries with these keys have brought to this consumer; None if the
        consumer no longer has one of these messages."""
        by_key, reserved = self.node.topic.records.by_key, self._messages.reserved
        positions = {key: self.open.get(by_key[key]) if key in by_key else None for key in keys}
        if None in positions.values():  # perhaps this leader has not published the message again yet
            theirs = (at for at in self._rows if reserved.has(at) and reserved.at(at) == consumer)
            positions |= {key: at for at in theirs if (key := self.stream.keys.key(self._tag(at))) in positions}
        found = [position for position in positions.values() if position is not None]
        return found if len(found) == len(positions) else None

    def expire(self, positions: Sequence[int]) -> None:
        """Propose that these messages, whose time to live is over, leave the queue, unless a consumer may have them."""
        waiting = self._unassigned()
        self._for_nobody.update(waiting.intersection(positions))
        self._late.update(at for at in positions if at in waiting or not self._messages.reserved.has(at))
        self.go_on()

    def _unassigned(self) -> set[int]:
        """The positions of messages for which the home has no consumer yet."""
        return {self.open[record] for record in self.stream.unassigned if record in self.open}

    # The methods from here on are about consumers that drain.

    def drain(self, asked: Drain) -> None:
        """Begin the drain of a consumer. The egress answers when the consumer has got all messages for it, including
        messages that are just coming back."""
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
        """Answer all drains, because this egress ends and has no more messages for consumers."""
        draining, self._draining = self._draining, {}
        for one in draining.values():
            self.node.topic.given(one.asked)

    def _answer_drains(self) -> None:
        """Answer the drains of consumers that get nothing more for now. A leader that hands over gives nothing: the
        next leader's disk may take long."""
        for consumer, one in [*self._draining.items()]:
            is_over = self._log.hands_over or not self._has_more_for(consumer, one.coming_back)
            if is_over:
                del self._draining[consumer]
            if is_over or not one.is_told:
                one.is_told = True
                aside = sum(len(positions) for refusers, positions in self._aside.items() if consumer not in refusers)
                self.node.topic.given(one.asked, len(self._free) + aside, is_all=is_over)

    def _has_more_for(self, consumer: bytes, coming_back: Collection[Record]) -> bool:
        """Whether the home may soon offer the consumer a message, even if no further message comes and the egress
        proposes nothing."""
        is_looking = not self.is_answered or self._doubted or self._lacks_body
        return bool(is_looking or self.stream.reserving.get(consumer)) or any(map(self.open.__contains__, coming_back))

    def withdraw_gone(self) -> None:
        """Give up the deliveries of messages that have left the queue in another way than by a consumer. The egress
        knows all decided entries at this moment."""
        self._withdraw({position for position in self.open.values() if not self._has(position)})
        self._some_are_gone = True
        self._for_nobody.update(at for at in self._unassigned() if self._messages.is_purged(self.queue, at))
        self.go_on()

    def _follow(self, proposed: Proposed) -> None:
        if proposed.consumer is not None:
            at = map(self.open.__getitem__, proposed.records)
            self._withdraw({position for position in at if not self._has(position)})
            self.node.topic.reserved(self.stream, proposed.consumer, proposed.records)
            self._locks.hold(self.open[record] for record in proposed.records if record in self.open)
            if self._draining:
                self.go_on()
        else:
            super()._follow(proposed)

    def _ended(self, position: int) -> None:
        """Handle the end of a delivery of the message at this position. If the message still exists, it waits to be
        published again."""
        self._locks.free(position)
        if position not in self._messages.of(self.queue):
            self._refusers.pop(position, None)
        elif not self._pauses(position):
            heappush(self._free, position)
            self._show_gap()

    def _pauses(self, position: int) -> bool:
        """Whether the message, which has just come back, has to wait before it is published again (protocol 14.17)."""
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

    def take_back(self, positions: set[int]) -> None:
        waiting = {*self._over, *self._rejected, *self._back}
        waiting |= {record for one in self._asked.values() if one.consumer is None for record in one.records}
        held = [
            record
            for record, position in self.open.items()
            if position in positions and record.chosen and record not in waiting
        ]
        self._taken_back.update(held)
        self._back += held
        self.go_on()

    def _end(self, records: list[Record]) -> None:
        self._taken_back.difference_update(records)
        self._failed = {self.open[record] for record in records if _has_failed(record)}
        super()._end(records)
        self._failed = set()

    def _show_gap(self) -> None:
        """Report to the home the first message that the home does not have. Later messages that wait at the home must
        not overtake this message."""
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
        if kept := self._kept_in_vain():
            wanted.append((Unreserve(self.queue, runs_of(kept)), Proposed([], kept=kept)))
        if self._for_nobody:
            wanted.append((Free(self.queue, runs_of(sorted(self._for_nobody)), failed=False), Proposed([])))
        if self._late:
            wanted.append((Expire(self.queue, runs_of(sorted(self._late))), Proposed([])))
        if self._is_due and self._rejected:
            wanted += self._rejects(self._rejected)
        # If the core has sent an echo, propose an entry even if it is empty: its decision answers the echo.
        if self._is_due and (self._over or self._is_asked):
            dequeue = Dequeue(self.queue, self._runs(self._over))
            wanted.append((dequeue, Proposed(self._over, answers_echo=self._is_asked)))
        return wanted

    def _kept_in_vain(self) -> list[int]:
        """The positions of messages that the state keeps for a consumer that has ended. The home has no consumer for
        these messages. Messages in proposed entries are left out."""
        reserved = self._messages.reserved
        self._ended_with = {*filter(reserved.holds, self._ended_with)}
        if not self._ended_with:
            return []
        asked = chain.from_iterable(one.kept for one in self._asked.values())
        waiting = (self._unassigned() - self._for_nobody).difference(asked)
        return sorted(at for at in waiting if reserved.has(at) and reserved.at(at) in self._ended_with)

    def _frees(self, records: Iterable[Record], *, failed: bool) -> Wanted:
        return [
            (Free(self.queue, self._runs(freed), failed, added), Proposed(freed))
            for freed, added in self._with_annotations(records)
        ]

    def _rejects(self, records: Iterable[Record]) -> Wanted:
        if self._state.settings_of(self.queue).dead_letter is None:
            rejected = [*records]
            return [(Reject(self.queue, self._runs(rejected)), Proposed(rejected))]
        return [
            (Reject(self.queue, self._runs(rejected), added), Proposed(rejected))
            for rejected, added in self._with_annotations(records)
        ]

    def _with_annotations(self, records: Iterable[Record]) -> list[tuple[list[Record], dict[int, bytes]]]:
        """Split the deliveries into groups, for an entry each, with the annotations of their messages. An entry has
        some 256 KiB of annotations at most. The annotations of all entries together fit into the room that the set has
        left for annotations; annotations that do not fit are left out."""
        frees: list[tuple[list[Record], dict[int, bytes]]] = [([], {})]
        size, left = 0, self._messages.annotations_left
        for record in records:
            if size >= publisher.AHEAD:
                frees.append(([], {}))
                size = 0
            freed, added = frees[-1]
            freed.append(record)
            annotations = self._annotations(self.open[record], record.annotations)
            if annotations and left >= len(annotations):
                added[self.open[record]] = annotations
                size += len(annotations)
                left -= len(annotations)
        return frees

    def _annotations(self, position: int, added: bytes) -> bytes:
        """The annotations that the message has so far, merged with the annotations of the last consumer. Empty if the
        last consumer has none, or if they are too long or malformed."""
        if not added:
            return b""
        try:
            merged = self._marking.merged(self._messages.returns(position).annotations, added)
        except ValueError:  # the consumer has sent malformed annotations
            return b""
        return merged if len(merged) <= MOST_ANNOTATIONS else b""

    def annotations_of(self, added: Mapping[int, bytes]) -> dict[int, bytes]:
        """The annotations of messages that a transaction rejects, for its entry. `added`: by position, the annotations
        of the consumer. The annotations that do not fit into the room of the set are left out."""
        found, left = dict[int, bytes](), self._messages.annotations_left
        for position, more in added.items():
            annotations = self._annotations(position, more)
            if annotations and left >= len(annotations):
                found[position] = annotations
                left -= len(annotations)
        return found

    def _was_proposed(self, *, is_due: bool) -> None:
        self._chosen, self._back, self._late, self._for_nobody = {}, [], set(), set()
        if is_due:
            self._over, self._rejected, self._is_asked, self._is_due = [], [], False, False

    def _consumers(self) -> list[tuple[LinkEntry, list[Record]]]:
        """The consumers that the home has chosen, each with its deliveries. If a consumer has ended since, the home
        chooses another one."""
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
        """Remove messages whose time to live is over from the deliveries that wait to be reserved for consumers."""
        now_ms = self.node.topic.outlet.time_ms
        for name, records in list(self._chosen.items()) if self._messages.expiring or self._ends else ():
            over = {at for record in records if self._end_of(at := self.open[record]) <= now_ms}
            self._for_nobody |= over
            self._late |= over
            self._chosen[name] = [record for record in records if self.open[record] not in over]
            if not self._chosen[name]:
                del self._chosen[name]

    def _end_of(self, position: int) -> float:
        """When the message's time to live ends, in milliseconds since 1970; infinite if it has none."""
        return self._messages.expiring.get(position, (None, self._ends.get(position, inf)))[1]

    def _publish(self) -> None:
        """Publish the messages that consumers may already have, and as many others as consumers have room for."""
        settings = self._state.settings_of(self.queue)
        serves_one = settings.serves_one
        self._locks.set(settings.lock_ms, self.open.values())
        # Set this first, because `_publish_some` publishes messages for the room of all consumers that the stream
        # serves.
        if serves_one and not self.stream.serves_one:
            self.stream.serve(None)
        is_to_choose = serves_one != self.stream.serves_one or (serves_one and self.stream.served is None)
        gap, received = self.stream.gap, self.stream.received
        self._publish_some()
        # Report a change of the gap (`_show_gap`), unless a new message shows it to the home.
        # This comes last, so that messages that were given back are published before the home chooses.
        is_gone = gap != self.stream.gap and received == self.stream.received
        if is_to_choose or is_gone:
            self.node.topic.serve_one(self.stream, only=serves_one)
        if settings.exclusive:
            self.node.topic.end_others(self.stream)

    def _publish_some(self) -> None:
        """Publish the messages that consumers may already have first, then others, as long as their bodies are in
        memory."""
        doubted = [*self._take(self._doubted, self._doubted.popleft)]
        self._give(doubted)
        for position, _ in doubted:
            del self._named[position]
        self._locks.hold(position for position, _ in doubted)
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
        """Remove and yield waiting messages with their positions, up to the first one whose body is not in memory.

        No free message behind an undecided transaction is taken. A message that all consumers with room have refused
        goes into `_aside`, if the home already has as many such messages as it may have. A message whose delivery time
        is in the future rests until then (protocol 14.18).
        """
        self._lacks_body = False
        left, now_ms = MOST_REFUSED - demand.refused, self.node.topic.outlet.time_ms
        waits = waiting is self._free and self._transactions
        behind = position_of(min(self._transactions), 0) if waits else inf
        while waiting and waiting[0] < behind:
            position = waiting[0]
            is_refused = bool(demand.able) and demand.able <= self._refusers.get(position, NOBODY)
            if not self._has(position):
                self._forget_body(pop())
                self._refusers.pop(position, None)
                # If a transaction has taken the message, routers may still ask about the delivery that an earlier
                # leader has made of it.
                if (tag := self._named.pop(position, None)) is not None:
                    self.node.topic.abort(self.stream, tag)
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
        """Let messages in `_aside` wait to be published again, because there are now consumers with room that have not
        refused them. Take as many messages as these consumers have room for."""
        for names in [names for names in self._aside if not demand.able <= names]:
            positions = self._aside[names]
            for _ in range(min(len(positions), demand.room.deliveries)):
                position = heappop(positions)
                self._refusers[position] = names
                heappush(self._free, position)
            if not positions:
                del self._aside[names]

    def _has(self, position: int) -> bool:
        """Whether the queue has a message at this position, or will get it by an undecided `Enqueue`."""
        return position in self._messages.of(self.queue) or position in self._expected.get(index_of(position), ())

    def _message(self, position: int) -> bytes | None:
        """The message at this position in the form that the next consumer gets; None if its body is not in memory."""
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

    # The methods from here on are called for the core.

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
        if self._messages.reserved.holds(subscriber):  # perhaps the consumer had no room when the `Reserve` was decided
            self._ended_with.add(subscriber)
            self.go_on()

    def want(self) -> None:
        self.go_on()

    def send_outcomes(self, action: AnswerDeliveries) -> None:
        """Take the outcomes of deliveries from the home: consumers have accepted or rejected the messages, or the
        messages come back to the queue."""
        records = action.records
        if self._taken_back:  # the queue is already taking these deliveries back
            records = [record for record in records if record not in self._taken_back]
        if action.outcome in GIVEN_BACK:
            self._back += records
            self._note_refusers(records)
            self.go_on()
        else:
            is_rejected = action.outcome is DeliveryOutcome.REJECTED
            (self._rejected if is_rejected else self._over).extend(records)
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
