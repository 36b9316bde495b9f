"""The messages in the queues of one set, and the answers to the deliveries that brought them (protocol 14.3).

A message has a *position* in its queue: the log index of the entry that has enqueued it, and its place in this entry.
So the messages have the same order at all replicas.

A delivery is enqueued only once. For this the state keeps the delivery's key and answer until its publisher has settled
it, even if in the meantime the message leaves the queue or the queue is deleted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, takewhile
from typing import Final

import attrs
import msgpack

from topic.directory.entry import LinkEntry
from topic.identity import KEY_LENGTH, Epoch
from topic.queues.bodies.message_rows import NONE, QueueRows, SentRows
from topic.queues.bound.bindings import BINDING_KEY
from topic.queues.logged.message_log import MessageEnd, MessageLog, Unlogged
from topic.queues.operations import QueueId, QueueSettings, read_id, unpack
from topic.queues.outgoing.outbox import LETTER, Letter, Sending, SetOutbox, Why, read_sendings
from topic.queues.positions import POSITION_LENGTH, Run, delivery_tag, each_of, position_key, position_of
from topic.queues.proposals import Enqueue, Enqueued
from topic.queues.reservations import CONSUMER, RESERVED, Reservations
from topic.queues.rows import StateRows

RETURNS, KEY, PURGED = b"f", b"k", b"p"
"""The first bytes of the keys of three kinds of rows. `RETURNS` begins the key of a row with the returns of a message;
the message's position follows. `KEY` begins the key of a row with an answer; the delivery key follows. `PURGED` begins
the key of a row about a purge; the id of the queue follows."""
KEY_LENGTHS: Final = (KEY_LENGTH, BINDING_KEY + KEY_LENGTH)
"""The possible lengths of a delivery key in a row: without and with the key of a binding before it."""
MOST_ANNOTATED: Final = 16 << 20
"""The highest number of bytes of annotations that consumers have added to all messages of a set. This constant must be
equal at all replicas."""
ROWS: Final = (RETURNS, KEY, PURGED, RESERVED, CONSUMER, LETTER)
"""The first bytes of the keys of all rows of this module, apart from the rows of messages."""


@attrs.frozen(slots=True)
class DeliveryAnswer:
    """The answer that the set has given to a delivery."""

    taken: bool
    """Whether the queue took the message. If not, it refused the message, because it was full or the set had too many
    queues."""
    attach: Epoch
    """The publisher's attach in which the home last forwarded the delivery."""
    place: int
    """The delivery's place in the publisher's order, in that attach."""

    def is_for(self, attach: Epoch, place: int) -> bool:
        """Whether a delivery with the same key, in this attach and at this place, is the delivery that was answered.

        A delivery at a later place of the same attach is another one: the publisher has settled the answered delivery
        and has used its tag again, and the leader has not read the settlement yet. A delivery in another attach is the
        answered one, because a home reports to the leader all deliveries that were settled before the attach.
        """
        return attach != self.attach or place <= self.place

    @property
    def row(self) -> bytes:
        """The value of the row that keeps this answer."""
        return bytes(msgpack.packb((self.taken, *self.attach, self.place)))


@attrs.frozen(slots=True)
class Returns:
    """How often a message has come back: from consumers to its queue, or from its address to the outbox."""

    times: int = 0
    failed: int = 0
    """How many of these times a consumer may have begun to process the message (AMQP 1.0 3.2.1, delivery-count)."""
    annotations: bytes = b""
    """The annotations that consumers have added to the message, as the shell encodes them (AMQP 1.0 3.4.5)."""

    @classmethod
    def read(cls, value: bytes) -> "Returns":
        """Read the value of a row. Raises ValueError if it is malformed."""
        parts = unpack(value, "a row of the state of a set")
        if [type(part) for part in parts] != [int, int, bytes] or not 0 <= parts[1] <= parts[0] or not parts[0]:
            raise ValueError("a row of the state of a set has a number of returns that is none")
        return cls(*parts)

    @property
    def row(self) -> bytes:
        """The value of the row that keeps the returns of a message."""
        return bytes(msgpack.packb((self.times, self.failed, self.annotations)))


NEVER: Final = Returns()


@attrs.define(slots=True)
class Passed:
    """How many messages have passed through one queue, or through all queues of a set."""

    enqueued: int = 0
    dequeued: int = 0
    """The messages that consumers have accepted or finally rejected. Messages that went with a deleted queue do not
    count."""
    given_back: int = 0
    """How often a consumer has given a message back, or has ended while it had one."""
    purged: int = 0
    """The messages that operators have purged."""
    expired: int = 0
    """Messages whose time to live ended and that did not become dead letters."""
    dead: int = 0
    """The dead letters that another address has taken."""


class QueuedMessages:
    """The messages of all queues of a set."""

    def __init__(self, rows: StateRows, log: MessageLog | None = None) -> None:
        """Read the messages in `rows`, and keep all later ones there. Raises ValueError if a row is wrong."""
        self._rows = rows
        self._log = log or Unlogged()
        self._messages = rows.messages
        self._answers: dict[bytes, DeliveryAnswer] = {}
        """The answers by delivery key. If the delivery came by a binding, the binding's key precedes the delivery
        key."""
        self._returns: dict[int, Returns] = {}
        """Maps the position of each message that has come back to the number of its returns."""
        self._annotated = 0
        """The sum of the bytes of all annotations in `_returns`."""
        self._purged: dict[QueueId, int] = {}
        """Maps each purged queue to the position up to which it was purged. The position is kept as long as the queue
        has a reserved message up to it."""
        self.outbox = SetOutbox(rows)
        for key, value in rows.small:
            if key[:1] == KEY:
                self._answers[key[1:]] = _answered(key, value)
            elif key[:1] == RETURNS:
                self._returns[_position(key)] = returns = Returns.read(value)
                self._annotated += len(returns.annotations)
            elif key[:1] == PURGED:
                self._purged[_queue(key)] = _count(value)
        sendings = read_sendings(rows.small)
        for queue, at in self._messages.find(sendings.keys()):
            self._messages.send(queue, at)
            self.outbox.restore(at, Letter(queue, sendings.pop(at)))
        if sendings:
            raise ValueError("a row of the state of a set has a message in the outbox that is not there")
        self.positions_sum = sum(map(sum, self._messages.queues.values()))
        """The sum of the positions of all messages in queues. It shows whether replicas have the same messages."""
        self.reserved = Reservations(rows, merge(*self._messages.queues.values()))
        filled = self._messages.queues if self.reserved.count else {}
        held = {queue: sum(map(self.reserved.has, rows)) for queue, rows in filled.items()}
        self._reserved = {queue: count for queue, count in held.items() if count}
        """Maps each queue with reserved messages to their number."""
        self.purges = 0
        """How often queues have been purged since this object was made."""
        self.sendings = 0
        """How many messages have come into the outbox since this object was made."""
        self.count_anew()

    def count_anew(self) -> None:
        """Set the counts of `passed` and `passed_of` to 0. These counts do not belong to the state, so they differ
        between replicas."""
        self.passed = Passed()
        """The sum of the counts of all queues, including deleted ones."""
        self._passed: dict[QueueId, Passed] = {}

    def of(self, queue: QueueId) -> QueueRows:
        """The messages of a queue by position, in order. The body is None if it is not in memory."""
        return self._messages.queues.get(queue, NONE)

    @property
    def sent(self) -> SentRows:
        """The messages in the outbox by position. The body is None if it is not in memory."""
        return self._messages.sent

    @property
    def total(self) -> int:
        """The number of all messages, in queues and outbox."""
        return len(self._messages)

    @property
    def count(self) -> int:
        """The number of the messages in queues."""
        return self.total - len(self.sent)

    @property
    def size(self) -> int:
        """The bytes of all messages, in queues and outbox."""
        return self._messages.size

    @property
    def expiring(self) -> dict[int, tuple[QueueId, int]]:
        """Maps the position of each message that expires to the message's queue, and to the end of its time to live
        (`Enqueue.expires`)."""
        return self._messages.expiring

    def size_of(self, queue: QueueId) -> int:
        """The bytes of all messages of a queue."""
        return self.of(queue).size

    @property
    def reserved_queues(self) -> set[QueueId]:
        """The queues of the set that have a reserved message."""
        return {*self._reserved}

    def reserved_of(self, queue: QueueId) -> int:
        """The number of reserved messages of a queue."""
        return self._reserved.get(queue, 0)

    def passed_of(self, queue: QueueId) -> Passed:
        return self._passed.get(queue) or Passed()

    def last_of(self, queue: QueueId) -> int | None:
        """The position of the last message that came into this queue and still exists, in the queue or in the outbox;
        None if there is none."""
        last = next(reversed(self.of(queue)), None)
        return max((at for at in (last, *self.outbox.of(queue)[-1:]) if at is not None), default=None)

    def first_of(self, queue: QueueId) -> int | None:
        """The position of the oldest message of a queue; None if there is none."""
        return self.of(queue).first

    def first(self) -> int | None:
        """The position of the oldest message in all queues; None if there is none."""
        return min((rows.first for rows in self._messages.queues.values() if rows.first is not None), default=None)

    def counts(self) -> Iterator[tuple[QueueId, int]]:
        """Each queue that has messages, with their number."""
        return ((queue, len(rows)) for queue, rows in self._messages.queues.items())

    @property
    def queues(self) -> set[QueueId]:
        """The queues that have at least one message."""
        return {*self._messages.queues}

    @property
    def unsettled(self) -> dict[bytes, list[bytes]]:
        """The deliveries that were answered, and that their publishers have not settled yet. Maps the key of each
        binding to the keys of the deliveries that came by this binding. In place of the key of a binding, deliveries to
        a queue itself have an empty key, and dead letters have `DEAD_LETTERS`."""
        found: dict[bytes, list[bytes]] = {}
        for key in self._answers:
            found.setdefault(key[:-KEY_LENGTH], []).append(key[-KEY_LENGTH:])
        return found

    def enqueue(
        self,
        queue: QueueId | None,
        settings: QueueSettings,
        index: int,
        asked: Enqueue,
        others: Sequence[bytes] = (),
        place: int = 0,
    ) -> Enqueued:
        """Put messages into a queue with these settings; `queue` is None if the queue does not exist.

        If the queue has no room for a message, it refuses the message. A message without a delivery key is dropped
        instead. `others`: the keys of the queue's other bindings. If one of these bindings has already answered a
        delivery, the message is not enqueued again. `place`: the place of the first message in the entry.
        """
        refused: set[int] = set()
        fresh: list[int] = []
        brought: list[bytes] = []
        """The keys of the deliveries that brought the new messages."""
        times = asked.expires or [0] * len(asked.messages)
        if not asked.keys:
            for at, (message, expires) in enumerate(zip(asked.messages, times, strict=True), place):
                self._take(queue, settings, position_of(index, at), message, expires, fresh)
            return self._enqueued(queue, brought, fresh, frozenset())
        given = chain.from_iterable(run.each() for run in asked.given)
        for place, (key, (attach, n), message, expires) in enumerate(
            zip(asked.keys, given, asked.messages, times, strict=True)
        ):
            known = own = self._answers.get(asked.binding + key)
            for other in others:
                if known is None or not known.is_for(attach, n):
                    known = self._answers.get(other + key)
            if known is not None and known.is_for(attach, n):
                is_taken = known.taken
            else:
                is_taken, known = self._take(queue, settings, position_of(index, place), message, expires, fresh), None
                brought += [key] * is_taken
            if known is None or known is not own or known.attach < attach:
                answered = self._answers[asked.binding + key] = DeliveryAnswer(is_taken, attach, n)
                self._rows.put(KEY + asked.binding + key, answered.row)
            if not is_taken:
                refused.add(place)
        return self._enqueued(queue, brought, fresh, frozenset(refused))

    def _enqueued(
        self, queue: QueueId | None, keys: Sequence[bytes], fresh: Sequence[int], refused: frozenset[int]
    ) -> Enqueued:
        if queue is not None and fresh:
            self._count(queue, enqueued=len(fresh))
            self._log.enqueued(queue, keys, fresh)
        return Enqueued(refused, queue, fresh)

    def has_answered(self, asked: Enqueue) -> bool:
        """Whether the set has already answered all deliveries of this `Enqueue`."""
        given = chain.from_iterable(run.each() for run in asked.given)
        known = (
            (self._answers.get(asked.binding + key), attach, n)
            for key, (attach, n) in zip(asked.keys, given, strict=True)
        )
        return bool(asked.keys) and all(answer is not None and answer.is_for(attach, n) for answer, attach, n in known)

    def _take(
        self,
        queue: QueueId | None,
        settings: QueueSettings,
        position: int,
        message: bytes,
        expires: int,
        fresh: list[int],
    ) -> bool:
        if queue is None or not settings.has_room(len(self.of(queue)) + 1, self.size_of(queue) + len(message)):
            return False
        fresh.append(position)
        self._messages.put(queue, position, message, expires)
        self.positions_sum += position
        return True

    def settled(self, keys: Sequence[bytes]) -> None:
        """Forget the answers to the deliveries with these keys, which are settled. Their messages stay."""
        for key in keys:
            if self._answers.pop(key, None) is not None:
                self._rows.delete(KEY + key)

    def forget(self, binding: bytes) -> None:
        """Forget the answers to all deliveries that came by this binding."""
        self.settled([key for key in self._answers if key[:-KEY_LENGTH] == binding])

    # The methods from here on reserve, return and remove messages.

    @property
    def annotations_left(self) -> int:
        """The number of bytes that consumers may still add as annotations to messages of the set."""
        return MOST_ANNOTATED - self._annotated

    def returns(self, position: int) -> Returns:
        """How often the message at this position has come back."""
        return self._returns.get(position, NEVER)

    def _tags(self, positions: Iterable[int]) -> list[bytes]:
        """For each of these messages, the tag of its last delivery; if no consumer has it, the tag of its next one."""
        return [delivery_tag(position, self.returns(position).times) for position in positions]

    def reserve(self, queue: QueueId, consumer: LinkEntry, runs: Sequence[Run]) -> None:
        """Reserve the messages at these positions for one consumer."""
        positions = self._not_purged(queue, self._there(queue, runs))
        self._hold(queue, len(positions) - self.reserved.reserve(positions, consumer))

    def unreserve(self, queue: QueueId, runs: Sequence[Run]) -> None:
        """End the reservations of these messages. No consumer has had the messages since they were reserved."""
        positions = self._not_purged(queue, self._there(queue, runs))
        self._hold(queue, -self.reserved.free(positions))

    def free(
        self,
        queue: QueueId,
        runs: Sequence[Run],
        settings: QueueSettings,
        *,
        failed: bool,
        annotations: Mapping[int, bytes],
    ) -> None:
        """Take messages back that were reserved for consumers.

        `failed`: each return counts as a failure. If a message has failed more often than the settings of its queue
        allow, it goes to the outbox. `annotations`: as in `Free`. They are dropped if the set already has
        `MOST_ANNOTATED` bytes of them.
        """
        back = [position for position in self._there(queue, runs) if self.reserved.has(position)]
        positions = self._not_purged(queue, back)
        self.reserved.free(positions)
        self._hold(queue, -len(positions))
        self._count(queue, given_back=len(positions))
        if positions:
            self._log.returned(queue, self._tags(positions), positions)
        for position in positions:
            self._came_back(position, failed=failed, annotations=annotations.get(position, b""))
        if failed and settings.dead_letter is not None:
            given_up = [at for at in positions if self.returns(at).failed > settings.most_failed]
            self._send(queue, given_up, settings.dead_letter, Why.REDELIVERIES)

    def _came_back(self, position: int, *, failed: bool, annotations: bytes = b"") -> None:
        before = self.returns(position)
        more = len(annotations) - len(before.annotations)
        if not annotations or self._annotated + more > MOST_ANNOTATED:
            annotations, more = before.annotations, 0
        self._annotated += more
        self._returns[position] = returns = Returns(before.times + 1, before.failed + failed, annotations)
        self._rows.put(RETURNS + position_key(position), returns.row)

    def dequeue(self, queue: QueueId, runs: Sequence[Run]) -> None:
        """Remove messages from their queue, because consumers have accepted them."""
        self._take_out(queue, self._there(queue, runs), MessageEnd.DEQUEUED)

    def reject(
        self, queue: QueueId, runs: Sequence[Run], settings: QueueSettings, annotations: Mapping[int, bytes]
    ) -> None:
        """Handle messages that consumers have rejected. They leave the queue. If the settings have an address for dead
        letters, they go to the outbox.

        `annotations`: as in `Reject`. If a message gets annotations, it counts one more return, because the row of its
        returns keeps the annotations.
        """
        if settings.dead_letter is None:
            self.dequeue(queue, runs)
        else:
            rejected = self._not_purged(queue, self._there(queue, runs))
            self._send(queue, rejected, settings.dead_letter, Why.REJECTED)
            for position in rejected if annotations else ():
                if position in annotations:
                    self._came_back(position, failed=False, annotations=annotations[position])

    def has_for(self, queue: QueueId, consumer: bytes, runs: Sequence[Run]) -> bool:
        """Whether the queue has messages at all these positions, reserved for the consumer of this name."""
        there, reserved = self.of(queue), self.reserved
        return all(at in there and reserved.has(at) and reserved.at(at) == consumer for at in each_of(runs))

    def retire(
        self,
        queue: QueueId,
        runs: Sequence[Run],
        settings: QueueSettings,
        *,
        rejected: bool,
        annotations: Mapping[int, bytes],
    ) -> None:
        """Remove messages that a consumer takes out of their queue in a transaction. A rejected message goes into the
        outbox if the settings have an address for dead letters. `annotations`: as in `Reject`."""
        if rejected and settings.dead_letter is not None:
            self.reject(queue, runs, settings, annotations)
        else:
            self._take_out(queue, self._there(queue, runs), MessageEnd.TRANSACTED)

    def purge(self, queue: QueueId, position: int) -> int:
        """Remove the messages of a queue up to this position, also from the outbox. Returns how many were removed now.

        A reserved message stays. The queue removes it when its consumer gives it back, or when a leader proposes to
        reserve it again.
        """
        self.purges += 1
        there = [*takewhile(lambda at: at <= position, self.of(queue))]
        free = [at for at in there if not self.reserved.has(at)]
        if len(free) < len(there) and position > self._purged.get(queue, 0):
            self._purged[queue] = position
            self._rows.put(_purge_key(queue), msgpack.packb((position,)))
        sent = [at for at in self.outbox.of(queue) if at <= position]
        for at in sent:
            self._forget_sent(at)
        self._count(queue, purged=len(sent))
        return self._take_out(queue, free, MessageEnd.PURGED) + len(sent)

    def expire(self, queue: QueueId, runs: Sequence[Run], settings: QueueSettings) -> None:
        """Handle messages whose time to live is over: remove all of them from the queue, except reserved ones. If the
        queue has an address for dead letters, they go to the outbox."""
        if settings.dead_letter is None:
            self._take_out(queue, self._free(queue, runs), MessageEnd.EXPIRED)
        else:
            self._send(queue, self._free(queue, runs), settings.dead_letter, Why.EXPIRED)

    def retry(self, queue: QueueId, runs: Sequence[Run], address: str) -> int:
        """Move these messages into the outbox, for this address, except reserved ones. Returns how many are moved."""
        return self._send(queue, self._free(queue, runs), address, Why.RETRIED)

    def _send(self, queue: QueueId, positions: Sequence[int], address: str, why: Why) -> int:
        """Move these messages, which must be in the queue, into the outbox. Returns their number."""
        self.sendings += len(positions)
        return self._take_out(queue, positions, MessageEnd.SENT, Sending(address, why))

    def published(self, queue: QueueId, runs: Sequence[Run], *, taken: bool) -> None:
        """Handle messages of the outbox that were published to their address. `taken`: whether the address has taken
        them. If not, they stay in the outbox."""
        letters = self.outbox.letters
        there = [at for at in each_of(runs) if at in letters and letters[at].queue == queue]
        for position in there:
            if taken:
                self._forget_sent(position)
            else:
                self._came_back(position, failed=False)
        self._count(queue, dead=len(there) if taken else 0)

    def _free(self, queue: QueueId, runs: Sequence[Run]) -> list[int]:
        """The positions in these runs at which the queue has a message that is not reserved."""
        return [position for position in self._there(queue, runs) if not self.reserved.has(position)]

    def is_purged(self, queue: QueueId, position: int) -> bool:
        """Whether the reserved message at this position has been purged. If so, it leaves the queue when it comes
        back."""
        return position <= self._purged.get(queue, 0)

    def _not_purged(self, queue: QueueId, back: list[int]) -> list[int]:
        """Remove the messages at these positions that were purged meanwhile. Returns the positions of the others."""
        if queue not in self._purged:
            return back
        last = self._purged[queue]
        purged = [position for position in back if position <= last]
        self._take_out(queue, purged, MessageEnd.PURGED)
        return [position for position in back if position > last]

    def _take_out(
        self, queue: QueueId, positions: Sequence[int], why: MessageEnd, sending: Sending | None = None
    ) -> int:
        """Remove these messages, which must be in the queue. With a `sending` they go into the outbox. Returns their
        number."""
        if sending is None:
            self._count(queue, **{"dequeued" if why is MessageEnd.TRANSACTED else why.value: len(positions)})
        if positions:
            self._log.left(queue, self._tags(positions), positions, why)
        reserved = 0
        for position in positions:
            reserved += self._out_of_queue(position)
            if sending is None:
                self._messages.delete(queue, position)
                self._forget_returns(position)
            else:
                self._messages.send(queue, position)
                self.outbox.put(position, Letter(queue, sending))
        self._hold(queue, -reserved)
        if queue in self._purged:
            first = self.first_of(queue)
            if first is None or first > self._purged[queue]:
                self._end_purge(queue)
        return len(positions)

    def _end_purge(self, queue: QueueId) -> None:
        if self._purged.pop(queue, 0):
            self._rows.delete(_purge_key(queue))

    def delete(self, queue: QueueId) -> None:
        """Delete all messages of a queue, because the queue is deleted."""
        messages = [*self.of(queue)]
        if messages:
            self._log.left(queue, self._tags(messages), messages, MessageEnd.DELETED)
        for position in messages:
            self._out_of_queue(position)
            self._messages.delete(queue, position)
            self._forget_returns(position)
        for position in self.outbox.of(queue):
            self._forget_sent(position)
        self._reserved.pop(queue, None)
        self._passed.pop(queue, None)
        self._end_purge(queue)

    def _there(self, queue: QueueId, runs: Sequence[Run]) -> list[int]:
        """The positions in these runs at which the queue has a message, reserved or not."""
        return self.of(queue).within(runs)

    def _out_of_queue(self, position: int) -> bool:
        """Handle a message that leaves its queue. Returns whether it was reserved."""
        self.positions_sum -= position
        return self.reserved.gone(position)

    def _forget_sent(self, position: int) -> None:
        """Delete a message from the outbox."""
        self.outbox.gone(position)
        self._messages.delete_sent(position)
        self._forget_returns(position)

    def _forget_returns(self, position: int) -> None:
        if (returns := self._returns.pop(position, None)) is not None:
            self._annotated -= len(returns.annotations)
            self._rows.delete(RETURNS + position_key(position))

    def _hold(self, queue: QueueId, more: int) -> None:
        """Add `more`, which may be negative, to the number of reserved messages of the queue."""
        if more:
            count = self._reserved[queue] = self.reserved_of(queue) + more
            if not count:
                del self._reserved[queue]

    def _count(self, queue: QueueId | None, **more: int) -> None:
        """Add these numbers to the counts of the set and of the queue. If all numbers are 0, do nothing, so that a
        deleted queue gets no counts."""
        if queue is not None and any(more.values()):
            of = self._passed.get(queue) or self._passed.setdefault(queue, Passed())
            for passed in (self.passed, of):
                for name, count in more.items():
                    setattr(passed, name, getattr(passed, name) + count)

    def check(self) -> None:
        """Assert the invariants that hold between two proposals."""
        fresh = QueuedMessages(StateRows(self._rows))
        found = [{queue: [*one.of(queue)] for queue in one.queues} for one in (self, fresh)]
        assert found[0] == found[1], "the rows are not those of the messages"
        assert all(fresh.size_of(queue) == self.size_of(queue) for queue in self.queues) and fresh.size == self.size
        assert (fresh.count, fresh.total) == (self.count, self.total), "the rows have other numbers of messages"
        assert fresh.positions_sum == self.positions_sum, "the rows have other positions"
        assert fresh._answers == self._answers, "the rows are not those of the answers"
        assert fresh._returns == self._returns, "the rows are not those of the messages that came back"
        assert fresh._reserved == self._reserved, "the rows have other numbers of reserved messages"
        assert fresh.expiring == self.expiring, "the rows have other times"
        assert fresh._purged == self._purged, "the rows are not those of purges"
        for queue, last in self._purged.items():
            purged = [position for position in self.of(queue) if position <= last]
            assert purged and all(map(self.reserved.has, purged)), "a purged message is there, and nobody has it"
        there = sorted(chain.from_iterable(self._messages.queues.values()))
        assert fresh.outbox.letters == self.outbox.letters, "the rows are not those of the outbox"
        assert fresh.outbox._counts == self.outbox._counts and self.outbox.letters.keys() == self._messages.sent.keys()
        assert {*fresh.outbox.addresses} == {*self.outbox.addresses}
        assert {*there, *self.outbox.letters} >= self._returns.keys(), "a message that is gone came back"
        self.reserved.check(there)


def _answered(key: bytes, value: bytes) -> DeliveryAnswer:
    """Read the answer in a row. Raises ValueError if the row is malformed."""
    parts = unpack(value, "a row of the state of a set")
    if [type(part) for part in parts] != [bool, int, str, int, int] or len(key) - len(KEY) not in KEY_LENGTHS:
        raise ValueError("a row of the state of a set has an answer that is none")
    return DeliveryAnswer(parts[0], Epoch(*parts[1:4]), parts[4])


def _purge_key(queue: QueueId) -> bytes:
    return PURGED + bytes(msgpack.packb(queue.parts))


def _queue(key: bytes) -> QueueId:
    """Read the queue in the key of a row about a purge. Raises ValueError if the key is malformed."""
    queue = read_id(unpack(key[1:], "the key of a row of the state of a set"))
    if _purge_key(queue) != key:
        raise ValueError("a row of the state of a set has a purge of no queue")
    return queue


def _position(key: bytes) -> int:
    """Read the position in the key of a row. Raises ValueError if the key is malformed."""
    if len(key) != 1 + POSITION_LENGTH:
        raise ValueError("a row of the state of a set has a position that is none")
    return int.from_bytes(key[1:])


def _count(value: bytes) -> int:
    """Read the number in the value of a row. Raises ValueError if the value is malformed."""
    parts = unpack(value, "a row of the state of a set")
    if [type(part) for part in parts] != [int] or parts[0] < 1:
        raise ValueError("a row of the state of a set has a number that is none")
    return int(parts[0])
