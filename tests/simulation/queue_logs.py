"""Follows the messages of queues in the logs of the sets: enqueued, reserved, taken out (protocol 14).

Each entry is applied once more, when the first replica applies it. So the judge knows which messages a set has before
any client gets an answer. An entry has taken a message out of a queue if the state after it lacks the message. A
`Book`, which is made from the entries alone, decides whether the entry may do so.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Protocol

import attrs

from tests.failures import added, bare
from topic.queues.bound.bindings import DEAD_LETTERS
from topic.queues.operations import (
    Delete,
    Operation,
    Purge,
    QueueId,
    QueueSettings,
    Retry,
    read_operation,
)
from topic.queues.outgoing.outbox import Letter, Sending, Why
from topic.queues.positions import each_of, position_of
from topic.queues.proposals import (
    FIRST,
    Dequeue,
    Enqueue,
    Enqueued,
    Expire,
    Free,
    Posted,
    Proposal,
    Reject,
    Reserve,
    Retire,
    Transact,
    Transacted,
    Unreserve,
    read_proposal,
)
from topic.queues.state import SetState, read_entry
from topic.raft.life import SetLife
from topic.raft.log import Entry

WHY: Mapping[type, Why] = {Reject: Why.REJECTED, Expire: Why.EXPIRED, Free: Why.REDELIVERIES}
"""The type of a proposal that takes a message out of its queue -> why the message is then a dead letter."""
OF_QUEUES = "queue/"
"""The prefix of all addresses of kind queue."""
OF_MANY = 2
"""The rounds of the log in which a leader may still reserve messages as its home chose before it served only one
consumer.
"""


def asked_in(entry: Entry) -> Operation | Proposal:
    """The operation, or the proposal, of an entry that has one."""
    _, parts = read_entry(entry.data)
    return read_proposal(parts) if parts[0] >= FIRST else read_operation(parts)


@attrs.frozen
class Proposed:
    """When a leader proposed an entry."""

    wall_ms: int
    """The wall clock of the leader's router, in milliseconds."""
    applied: int
    """The last log index in the leader's state."""


@attrs.define(eq=False)
class Book:
    """The effects of the entries of one life of a set, as the judge counts them."""

    state: SetState = attrs.Factory(SetState)
    entries: list[Entry] = attrs.Factory(list)
    """The applied entries, from index 1 on."""
    waiting: dict[int, Entry] = attrs.Factory(dict)
    """Keyed by index: entries that wait for an earlier one."""
    reserved: dict[int, bytes] = attrs.Factory(dict)
    """Keyed by position: the name of the consumer that has the message, or may have it."""
    expires: dict[int, int] = attrs.Factory(dict)
    """Keyed by position: when the message expires, for messages that do."""
    failed: dict[int, int] = attrs.Factory(dict)
    """Keyed by position: how often the message came back as failed."""
    purged: dict[QueueId, int] = attrs.Factory(dict)
    """The last position that a purge has taken."""
    single: dict[QueueId, list[int]] = attrs.Factory(dict)
    """Keyed by queue with a single active consumer: the index of the entry since which it has one, and the indices of
    the first `Reserve`s after it, one of each round of the log."""
    settings: dict[str, list[tuple[int, QueueSettings]]] = attrs.Factory(dict)
    """Keyed by queue: its settings, each with the index from which on it has had them."""

    def settings_at(self, queue: str, index: int) -> QueueSettings:
        """The settings of the queue in the state with this index; default settings if there was no queue."""
        found = [settings for since, settings in self.settings.get(queue, []) if since <= index]
        return found[-1] if found else QueueSettings()

    def count(self, index: int, asked: Operation | Proposal) -> None:
        """Record the effects of an entry that was applied."""
        name = asked.queue if isinstance(asked, Enqueue) else asked.name if isinstance(asked, Operation) else ""
        if name:
            queue = self.state.get(name)
            settings = queue.settings if queue is not None else QueueSettings()
            if self.settings_at(name, index) != settings:
                self.settings.setdefault(name, []).append((index, settings))
            if queue is not None and settings.single_active:
                self.single.setdefault(queue.id, [index])
            elif queue is not None:
                self.single.pop(queue.id, None)
        if isinstance(asked, Reserve):
            self.reserved.update(dict.fromkeys(self._there(asked.queue, asked.runs), asked.consumer.name))
        elif isinstance(asked, Free):
            for position in each_of(asked.runs):
                if self.reserved.pop(position, None) is not None:
                    self.failed[position] = self.failed.get(position, 0) + asked.failed
        elif isinstance(asked, Unreserve):
            for position in each_of(asked.runs):
                self.reserved.pop(position, None)

    def forget_gone(self) -> None:
        """Forget the facts about messages that are in no queue."""
        there = {position for queue in self.state for position in self.state.messages.of(queue.id).kept}
        for known in (self.reserved, self.expires):
            for position in known.keys() - there:
                del known[position]

    def _there(self, queue: QueueId, runs: Iterable[tuple[int, int]]) -> list[int]:
        messages = self.state.messages.of(queue).kept
        return [position for position in each_of(runs) if position in messages]


class Listener(Protocol):
    """Is told the effects of entries on the messages of a set, after the entries were applied."""

    def enqueued(self, set_: str, queue: str, text: bytes, asked: Enqueue, annotations: bytes) -> None:
        """A message that was not there before is in a queue. A dead letter has annotations of consumers."""

    def refused(self, set_: str, queue: str, text: bytes, asked: Enqueue) -> None:
        """A queue has no room for a message."""

    def transacted(self, set_: str, asked: Transact, parts: list[tuple[str, bytes, bytes]]) -> None:
        """An entry with a transaction was applied. `parts`: for each message that the entry has put into a queue, or
        taken out of one, the queue, the message, and the name of the consumer that takes it; empty if nobody does."""

    def has_older_answer(self, text: bytes) -> bool:
        """Whether the answer to an older delivery may count for the message (protocol 14.3, Limit)."""

    def is_unwanted(self, queue: str, text: bytes, consumer: bytes) -> bool:
        """Whether the consumer of this name has refused the message for itself."""

    def reserved(self, queue: str, text: bytes) -> None:
        """A message is reserved for a consumer."""

    def freed(self, set_: str, queue: str, text: bytes, consumer: bytes, annotations: bytes) -> None:
        """A message comes back from a consumer. `annotations`: as in `Free`."""

    def processed(self, set_: str, queue: str, text: bytes) -> None:
        """A `Dequeue` has taken a message out of its queue."""

    def removed(self, set_: str, queue: str, text: bytes, asked: Operation | Proposal) -> None:
        """Another entry has taken a message out of its queue. The rules for that hold."""

    def died(self, set_: str, queue: str, text: bytes, sending: Sending) -> None:
        """A message has left its queue, and goes to another one. The rules for that hold."""

    def posted(self, set_: str, queue: str, text: bytes, sending: Sending, *, taken: bool) -> None:
        """A message that goes to an address has left the outbox, as the address has it, or an operator has ended it."""


Check = Callable[[str, bool, str], None]
"""Gets the set, whether a rule holds, and the rule."""


class QueueLogs:
    def __init__(self, check: Check, listener: Listener, times: Callable[[bytes, float], float]) -> None:
        """`times`: maps a message and a wall time to the time that the message has left, in milliseconds."""
        self._check = check
        self._listener = listener
        self._times = times
        self._books: dict[tuple[str, SetLife], Book] = {}
        """Keyed by set and life."""
        self.changes = 0
        """How often the state of a set has changed."""
        self._proposed: dict[tuple[str, SetLife, int, int], Proposed] = {}
        """Keyed by set, life, term and index."""
        self._reserved: set[tuple[str, bytes, bytes]] = set()
        """(queue, message, name of a consumer): the message was reserved for this consumer at some time."""
        self._reservations: Counter[tuple[str, bytes]] = Counter()
        """How often a message was reserved."""
        self._times_back: Counter[tuple[str, bytes]] = Counter()
        self._places: dict[tuple[str, bytes], list[tuple[SetLife, int]]] = {}
        """Keyed by message: the lives that have it, and its places in their logs."""
        self._there: Counter[tuple[str, bytes]] = Counter()
        """How often a message is in its queue."""
        self._sent: Counter[tuple[str, bytes]] = Counter()
        """How often a message of this queue is in the outbox."""
        self._refused: set[tuple[str, bytes]] = set()
        """(queue, message): the queue had no room for the message. That answer stands."""
        self.counts: dict[Purge | Retry, list[int]] = {}
        """Keyed by operation: how many messages each entry with it has taken."""
        self.seen: Counter[str] = Counter()
        """How often entries did each action, for tests of the model."""

    def proposed(self, name: str, life: SetLife, term: int, indices: range, proposed: Proposed) -> None:
        """A leader has proposed entries."""
        self._proposed.update(dict.fromkeys(((name, life, term, index) for index in indices), proposed))

    def decided(self, name: str, life: SetLife, index: int, entry: Entry) -> None:
        book = self._books.setdefault((name, life), Book())
        book.waiting[index] = entry
        while (following := book.waiting.pop(len(book.entries) + 1, None)) is not None:
            book.entries.append(following)
            self._apply(name, life, book, following)

    def recovered(self, name: str, life: SetLife, kept: Iterable[Entry]) -> None:
        """A set has a new life, which begins with these entries of an earlier one."""
        book = self._books[name, life] = Book()
        self.changes += 1
        for entry in kept:
            book.entries.append(entry)
            if entry.data:
                index, asked = len(book.entries), asked_in(entry)
                answer = book.state.apply(index, entry.data)
                book.count(index, asked)
                if isinstance(asked, Enqueue) and isinstance(answer, Enqueued):
                    self._note_times(book, index, asked, answer)
                if isinstance(asked, Transact) and isinstance(answer, Transacted):
                    for post, enqueued, first in _posts(asked, answer):
                        self._note_times(book, index, post, enqueued, first)
                if isinstance(asked, Purge):
                    self._note_purge(book, index, asked)
        book.forget_gone()

    def book(self, name: str) -> Book:
        """The book of the latest life."""
        lives = [life for which, life in self._books if which == name]
        return self._books[name, max(lives)] if lives else Book()

    def state(self, name: str) -> SetState:
        """The state of the latest life."""
        return self.book(name).state

    def has(self, queue: str, text: bytes) -> bool:
        """Whether the message is in its queue."""
        return self._there[queue, text] > 0

    def is_sent(self, queue: str, text: bytes) -> bool:
        """Whether the message, which is from this queue, is in the outbox."""
        return self._sent[queue, text] > 0

    def was_reserved(self, queue: str, text: bytes, consumer: bytes) -> bool:
        return (queue, text, consumer) in self._reserved

    def place(self, queue: str, text: bytes) -> tuple[SetLife, int] | None:
        """The message's place in the order of its queue, if it was enqueued once and reserved once."""
        places = self._places.get((queue, text), [])
        return places[0] if len(places) == 1 and self._reservations[queue, text] == 1 else None

    def times_back(self, queue: str, text: bytes) -> int:
        """How often a message came back to its queue."""
        return self._times_back[queue, text]

    # entries

    def _apply(self, name: str, life: SetLife, book: Book, entry: Entry) -> None:
        if not entry.data:
            return
        index, asked, state = len(book.entries), asked_in(entry), book.state
        before = {queue.id: (queue.name, dict(state.messages.of(queue.id).kept)) for queue in state}
        sent = [(at, letter, state.messages.sent[at]) for at, letter in state.messages.outbox.letters.items()]
        names = {id_: queue for id_, (queue, _) in before.items()}
        proposed = self._proposed.pop((name, life, entry.term, index), None)
        if isinstance(asked, Reserve):
            self._check_in_time(name, book, asked, proposed)
            self._check_single(name, book, index, asked, proposed)
        if isinstance(asked, Free) and asked.queue in before:
            self._free(name, book, asked)
        answer = state.apply(index, entry.data)
        self.changes += 1
        self.seen[type(asked).__name__] += 1
        if isinstance(asked, Purge):
            self._note_purge(book, index, asked)
        if isinstance(asked, Transact):
            assert isinstance(answer, Transacted)
            self._transacted(name, book, asked, answer, before)
        for id_, (queue, messages) in before.items():
            there = state.messages.of(id_)
            gone = [position for position in messages if position not in there]
            for position in gone:
                letter = state.messages.outbox.letters.get(position)
                self._check_letter(name, queue, book, position, bare(messages[position]), asked, letter)
                self._goes(name, queue, book, position, bare(messages[position]), asked, proposed, letter)
            if isinstance(asked, Purge | Retry) and id_ == asked.id:
                is_of = sum(letter.queue == id_ for _, letter, _ in sent)
                purged = is_of - state.messages.outbox.count_of(id_) if isinstance(asked, Purge) else 0
                self.counts.setdefault(asked, []).append(len(gone) + purged)
            for position in gone:
                book.reserved.pop(position, None)
                book.expires.pop(position, None)
        for position, letter, text in sent:
            if position not in state.messages.outbox.letters:
                assert text is not None
                self._leaves_outbox(name, names[letter.queue], book, position, bare(text), asked, letter)
        book.count(index, asked)
        if isinstance(asked, Free):
            self._check_failures(name, book, asked)
        if isinstance(asked, Reserve) and (queue_ := state.name_of(asked.queue)) is not None:
            kept = state.messages.of(asked.queue).kept
            texts = [(queue_, bare(kept[position])) for position in each_of(asked.runs) if position in kept]
            self._reserved.update((*one, asked.consumer.name) for one in texts)
            self._reservations.update(texts)
            for one in texts:
                self._listener.reserved(*one)
        if isinstance(asked, Enqueue):
            assert isinstance(answer, Enqueued)
            self._enqueue(name, life, book, index, asked, answer, before, proposed)
        if isinstance(answer, Transacted) and isinstance(asked, Transact):
            for post, enqueued, first in _posts(asked, answer):
                self._enqueue(name, life, book, index, post, enqueued, before, proposed, first, asked.retires)
        for id_, last in book.purged.items():
            stays = [at for at in state.messages.of(id_) if at <= last and at not in book.reserved]
            self._check(name, not stays, f"14.8 purge: {stays} stay, and nobody has them")

    def _enqueue(
        self,
        name: str,
        life: SetLife,
        book: Book,
        index: int,
        asked: Enqueue,
        answer: Enqueued,
        before: Mapping[QueueId, tuple[str, Mapping[int, bytes]]],
        proposed: Proposed | None,
        first: int = 0,
        retires: Sequence[Retire] = (),
    ) -> None:
        """`first`: the place of the first message in the entry. `retires`: what the entry has taken before."""
        self._note_times(book, index, asked, answer, first)
        _, messages = before.get(answer.queue, ("", {})) if answer.queue is not None else ("", {})
        gone = {at for one in retires if one.queue == answer.queue for at in each_of(one.runs)}
        messages = {at: message for at, message in messages.items() if at not in gone}
        settings = book.settings_at(asked.queue, index)
        count, size = len(messages), sum(map(len, messages.values()))
        for place, message in enumerate(asked.messages):
            position, text = position_of(index, first + place), bare(message)
            has_room = asked.binding == DEAD_LETTERS or _has_room(settings, count + 1, size + len(message))
            if position in answer.positions:
                count, size = count + 1, size + len(message)
                self._check(name, has_room, f"14.3 limit: {text.decode()} is in {asked.queue}, which is full")
                self._there[asked.queue, text] += 1
                self._places.setdefault((asked.queue, text), []).append((life, position))
                self._check_time(name, book, asked, place, proposed)
                self.seen["dead letters" if asked.binding == DEAD_LETTERS else "bound"] += bool(asked.binding)
                self._listener.enqueued(name, asked.queue, text, asked, added(message))
            elif place in answer.refused:
                is_full = not has_room or (asked.queue, text) in self._refused or self._listener.has_older_answer(text)
                self._check(name, is_full, f"14.3 limit: {asked.queue} has room for {text.decode()}")
                self._refused.add((asked.queue, text))
                self.seen["refused"] += 1
                self._listener.refused(name, asked.queue, text, asked)

    def _goes(
        self,
        name: str,
        queue: str,
        book: Book,
        position: int,
        text: bytes,
        asked: Operation | Proposal,
        proposed: Proposed | None,
        letter: Letter | None,
    ) -> None:
        """An entry has taken a message out of its queue, perhaps into the outbox."""
        self._there[queue, text] -= 1
        if isinstance(asked, Dequeue | Reject | Transact) and letter is None:
            self._listener.processed(name, queue, text)
            return
        label = f"{text.decode()} leaves {queue}"
        is_held = position in book.reserved
        match asked:
            case Expire():
                over_ms = book.expires.get(position)
                is_over = over_ms is not None and (proposed is None or over_ms <= proposed.wall_ms)
                self._check(name, not is_held, f"14.9 expired: {label}, and a consumer has it")
                self._check(name, is_over, f"14.9 expired: {label} before its time is over")
            case Purge():
                self._check(name, not is_held, f"14.8 purge: {label}, and a consumer has it")
                self._check(name, position <= book.purged.get(asked.id, -1), f"14.8 purge: {label}, behind the purge")
            case Reject():
                pass
            case Transact():
                is_rejected = any(one.rejected and position in each_of(one.runs) for one in asked.retires)
                self._check(name, is_rejected, f"14.20 rejected: {label}, and the transaction does not reject it")
            case Free() if letter is not None:
                settings = book.settings_at(queue, len(book.entries))
                has_failed = asked.failed and book.failed.get(position, 0) + 1 > _most_failed(settings)
                self._check(name, is_held and has_failed, f"14.11 redeliveries: {label}, and has not failed so often")
            case Free() | Reserve() | Unreserve():
                is_purged = position <= book.purged.get(asked.queue, -1)
                self._check(name, is_purged, f"14.8 purge: {label} as it comes back, and was not purged")
            case Retry():
                is_asked = not is_held and position in each_of(asked.runs)
                self._check(name, is_asked, f"14.12 retry: {label}, held {is_held}")
            case Delete():
                self._check(name, asked.name == queue, f"14 deleted: {label}, and {asked.name} is deleted")
            case _:
                self._check(name, False, f"14 queue: {label} by {asked!r:.100}")
        if letter is not None:
            self._sent[queue, text] += 1
            self.seen[f"dead: {letter.sending.why.value}"] += 1
            self._listener.died(name, queue, text, letter.sending)
            return
        self.seen[f"left by {type(asked).__name__}"] += 1
        self._listener.removed(name, queue, text, asked)

    def _transacted(
        self,
        name: str,
        book: Book,
        asked: Transact,
        answer: Transacted,
        before: Mapping[QueueId, tuple[str, Mapping[int, bytes]]],
    ) -> None:
        """An entry with a transaction was applied: find what it has put and taken."""
        parts, of = list[tuple[str, bytes, bytes]](), book.state.messages.of
        for id_, (queue, messages) in before.items():
            gone = [at for at in messages if at not in of(id_)]
            takers = {at: one.consumer for one in asked.retires if one.queue == id_ for at in each_of(one.runs)}
            parts += [(queue, bare(messages[at]), takers.get(at, b"")) for at in gone]
            for at in gone:
                is_right = at in takers and book.reserved.get(at) == takers[at]
                self._check(
                    name, is_right, f"14.20 taken: {bare(messages[at])!r} of {queue}, which is not the client's"
                )
            new = [message for at, message in of(id_).kept.items() if at not in messages]
            parts += [(queue, bare(message), b"") for message in new]
        self.seen["carried out"] += bool(parts)
        self._listener.transacted(name, asked, parts)

    # reservations

    def _free(self, name: str, book: Book, asked: Free) -> None:
        queue = book.state.name_of(asked.queue)
        assert queue is not None
        kept = book.state.messages.of(asked.queue).kept
        for position in each_of(asked.runs):
            if position in kept:
                text, annotations = bare(kept[position]), asked.annotations.get(position, b"")
                self._times_back[queue, text] += 1
                self.seen["annotated"] += bool(annotations)
                if position in book.reserved:
                    self._listener.freed(name, queue, text, book.reserved[position], annotations)

    def _check_single(self, name: str, book: Book, index: int, asked: Reserve, proposed: Proposed | None) -> None:
        """Check that no earlier message is kept for another consumer, if the leader knew two rounds of the log before
        that only one consumer is served. An earlier message does not count if this consumer does not want it, its time
        is over, or it is purged."""
        since, queue = book.single.get(asked.queue), book.state.name_of(asked.queue)
        if since is None or queue is None or proposed is None or proposed.applied < since[-1]:
            return
        if len(since) <= OF_MANY:
            since.append(index)
            return
        self.seen["for one"] += 1
        kept = book.state.messages.of(asked.queue).kept
        consumer, positions = asked.consumer.name, {*each_of(asked.runs)} & kept.keys()
        before = {at for at in kept if at < max(positions, default=0)} - positions
        others = {at for at in before & book.reserved.keys() if book.reserved[at] != consumer}
        ended = {at for at in others if book.expires.get(at, inf) <= proposed.wall_ms}
        ended |= {at for at in others if at <= book.purged.get(asked.queue, -1)}
        had = [text for at in others - ended if not self._listener.is_unwanted(queue, text := bare(kept[at]), consumer)]
        self._check(name, not had, f"14.14 single: {had} of {queue} are for others, and {positions} for {consumer!r}")

    # dead letters

    def _check_letter(
        self,
        name: str,
        queue: str,
        book: Book,
        position: int,
        text: bytes,
        asked: Operation | Proposal,
        letter: Letter | None,
    ) -> None:
        """Check that a message that leaves its queue goes to the outbox if, and only if, it is a dead letter."""
        address = book.settings_at(queue, len(book.entries)).dead_letter
        expected: tuple[str, Why] | None = None
        if isinstance(asked, Retry):
            expected = asked.address, Why.RETRIED
        elif isinstance(asked, Transact):
            of = next(one for one in asked.retires if position in each_of(one.runs))
            is_dead = of.rejected and position > book.purged.get(of.queue, -1)
            expected = (address, Why.REJECTED) if is_dead and address is not None else None
        elif isinstance(asked, Reject | Expire | Free) and position > book.purged.get(asked.queue, -1):
            expected = (address, WHY[type(asked)]) if address is not None else None
        found = (letter.sending.address, letter.sending.why) if letter is not None else None
        label = f"{text.decode()} leaves {queue} by {type(asked).__name__}"
        self._check(name, found == expected, f"14.11 dead letter: {label} for {found}, not {expected}")

    def _check_failures(self, name: str, book: Book, asked: Free) -> None:
        """Check that no message stays that has failed too often."""
        queue = book.state.name_of(asked.queue)
        settings = book.settings_at(queue, len(book.entries)) if queue is not None else QueueSettings()
        if asked.failed and settings.dead_letter is not None:
            there, most = book.state.messages.of(asked.queue).kept, _most_failed(settings)
            stays = [at for at in each_of(asked.runs) if at in there and book.failed.get(at, 0) > most]
            self._check(name, not stays, f"14.11 redeliveries: {stays} stay in {queue}")

    def _leaves_outbox(
        self,
        name: str,
        queue: str,
        book: Book,
        position: int,
        text: bytes,
        asked: Operation | Proposal,
        letter: Letter,
    ) -> None:
        self._sent[queue, text] -= 1
        is_posted = isinstance(asked, Posted) and asked.taken
        is_purged = isinstance(asked, Purge) and position <= book.purged.get(letter.queue, -1)
        is_deleted = isinstance(asked, Delete) and asked.name == queue
        label = f"{text.decode()} of {queue} leaves the outbox by {type(asked).__name__}"
        self._check(name, is_posted or is_purged or is_deleted, f"14.11 outbox: {label}")
        self.seen[f"sent: {type(asked).__name__}"] += 1
        self._listener.posted(name, queue, text, letter.sending, taken=is_posted)

    # times

    def _note_times(self, book: Book, index: int, asked: Enqueue, answer: Enqueued, first: int = 0) -> None:
        for position in answer.positions:
            if asked.expires and (over_ms := asked.expires[position - position_of(index, first)]):
                book.expires[position] = over_ms

    def _check_time(self, name: str, book: Book, asked: Enqueue, place: int, proposed: Proposed | None) -> None:
        """Check that a message's time counts from the moment in which its `Enqueue` was proposed."""
        if proposed is None:
            return
        ttl_ms = book.settings_at(asked.queue, proposed.applied).ttl_ms
        text, given = asked.messages[place], asked.expires[place] if asked.expires else 0
        own = inf if asked.binding == DEAD_LETTERS else self._times(text, proposed.wall_ms)
        left = min(own, inf if ttl_ms is None else ttl_ms)
        expected = int(proposed.wall_ms + max(left, 0)) if left < inf else 0
        self._check(name, given == expected, f"14.9 time: {text.decode()} is over at {given}, not at {expected}")

    def _check_in_time(self, name: str, book: Book, asked: Reserve, proposed: Proposed | None) -> None:
        """Check that no message is offered whose time was over when its `Reserve` was proposed."""
        there = book.state.messages.of(asked.queue).kept
        for position in each_of(asked.runs):
            if position in there and proposed is not None:
                over_ms, text = book.expires.get(position, inf), there[position]
                late = f"{text.decode()} is reserved at {proposed.wall_ms}, and its time was over at {over_ms}"
                self._check(name, proposed.wall_ms < over_ms, f"14.9 offered: {late}")

    @staticmethod
    def _note_purge(book: Book, index: int, asked: Purge) -> None:
        """Note the last position that a purge takes. It takes no later message."""
        queue = book.state.get(asked.name)
        if queue is not None and queue.id == asked.id:
            last = min(asked.position, position_of(index, 0))
            book.purged[asked.id] = max(last, book.purged.get(asked.id, -1))


def _has_room(settings: QueueSettings, count: int, size: int) -> bool:
    """Whether a queue with these settings may have `count` messages of `size` bytes in total."""
    most, most_bytes = settings.limit_messages, settings.limit_bytes
    return (most is None or count <= most) and (most_bytes is None or size <= most_bytes)


def _posts(asked: Transact, answer: Transacted) -> Iterable[tuple[Enqueue, Enqueued, int]]:
    """For each queue that a transaction puts messages into: what was asked, the answer, and the first place. None if
    the entry has no effect."""
    first = 0
    for post, enqueued in zip(asked.enqueues, answer.enqueued, strict=False):
        yield post, enqueued, first
        first += len(post.messages)


def _most_failed(settings: QueueSettings) -> int:
    """How often a message of a queue with these settings may fail before it is a dead letter."""
    return 20 if settings.redeliveries is None else settings.redeliveries
