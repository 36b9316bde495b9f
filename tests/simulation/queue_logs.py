"""The messages of queues, as the logs of the sets have them: enqueued, reserved, taken out (protocol 14).

Each entry is applied once more, when the first replica applies it. So the judge knows which messages a set has before
any client is answered.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from topic.queues.operations import Delete, Operation, QueueId, read_operation, unpack
from topic.queues.positions import each_of
from topic.queues.proposals import FIRST, Dequeue, Enqueue, Enqueued, Free, Proposal, Reserve, read_proposal
from topic.queues.state import LIFE, SetState
from topic.raft.log import Entry

OF_QUEUES = "queue/"
"""The beginning of all addresses of kind queue."""


def asked_in(entry: Entry) -> Operation | Proposal:
    """The operation, or the proposal, of an entry that has one."""
    parts = unpack(entry.data[LIFE:], "an operation on queues")
    return read_proposal(parts) if parts[0] >= FIRST else read_operation(parts)


class QueueLogs:
    def __init__(self, enqueued: Callable[[str, bytes], None], taken: Callable[[str, bytes], None]) -> None:
        """These are told of each message that an entry of a set enqueues, or takes out of its queue."""
        self._enqueued = enqueued
        self._taken = taken
        self._states: dict[tuple[str, int], SetState] = {}
        """By set and life."""
        self._entries: dict[tuple[str, int], list[Entry]] = {}
        """The entries that each of these has applied, from index 1 on."""
        self._waiting: dict[tuple[str, int], dict[int, Entry]] = {}
        """By index: entries that wait for an earlier one."""
        self._reserved: set[tuple[bytes, bytes]] = set()
        """Message and name of a consumer: for whom it was ever reserved."""
        self._reservations: Counter[bytes] = Counter()
        """How often a message was reserved."""
        self._times_back: Counter[bytes] = Counter()
        self._places: dict[bytes, list[tuple[int, int]]] = {}
        """By message: the lives that have it, and where it is in their logs."""
        self._there: Counter[bytes] = Counter()
        """How often a message is in a queue."""

    def decided(self, name: str, life: int, index: int, entry: Entry) -> None:
        at = name, life
        waiting = self._waiting.setdefault(at, {})
        waiting[index] = entry
        done = self._entries.setdefault(at, [])
        while (following := waiting.pop(len(done) + 1, None)) is not None:
            done.append(following)
            self._apply(at, len(done), following)

    def recovered(self, name: str, life: int, kept: Iterable[Entry]) -> None:
        """A set has a new life, which begins with these entries of a former one."""
        state = self._states[name, life] = SetState()
        entries = self._entries[name, life] = list(kept)
        for index, entry in enumerate(entries, 1):
            if entry.data:
                state.apply(index, entry.data)

    def state(self, name: str) -> SetState:
        """The log of the latest life."""
        lives = [life for which, life in self._states if which == name]
        return self._states[name, max(lives)] if lives else SetState()

    def has(self, text: bytes) -> bool:
        """Whether the message is in its queue."""
        return self._there[text] > 0

    def was_reserved(self, text: bytes, consumer: bytes) -> bool:
        return (text, consumer) in self._reserved

    def place(self, text: bytes) -> tuple[int, int] | None:
        """Where a message is in the order of its queue, if it was enqueued once and reserved once."""
        places = self._places.get(text, [])
        return places[0] if len(places) == 1 and self._reservations[text] == 1 else None

    def times_back(self, text: bytes) -> int:
        """How often a message came back to its queue."""
        return self._times_back[text]

    def _apply(self, at: tuple[str, int], index: int, entry: Entry) -> None:
        if not entry.data:
            return
        state, asked = self._states.setdefault(at, SetState()), asked_in(entry)
        gone = self._going(state, asked)
        answer = state.apply(index, entry.data)
        if isinstance(asked, Enqueue):
            assert isinstance(answer, Enqueued)
            for position in answer.positions:
                assert answer.queue is not None
                text = state.messages.of(answer.queue)[position]
                self._there[text] += 1
                self._places.setdefault(text, []).append((at[1], position))
                self._enqueued(at[0], text)
        for text in gone:
            self._there[text] -= 1
            self._taken(at[0], text)

    def _going(self, state: SetState, asked: Operation | Proposal) -> list[bytes]:
        """The messages that the entry takes out of a queue."""
        if isinstance(asked, Reserve):
            texts = _texts(state, asked.queue, asked.runs)
            self._reserved.update((text, asked.consumer.name) for text in texts)
            self._reservations.update(texts)
        if isinstance(asked, Free):
            self._times_back.update(_texts(state, asked.queue, asked.runs))
        if isinstance(asked, Dequeue):
            return _texts(state, asked.queue, asked.runs)
        queue = state.get(asked.name) if isinstance(asked, Delete) else None
        is_deleted = queue is not None and isinstance(asked, Delete) and queue.id == asked.id
        return [*state.messages.of(queue.id).values()] if queue is not None and is_deleted else []


def _texts(state: SetState, queue: QueueId, runs: Iterable[tuple[int, int]]) -> list[bytes]:
    there = state.messages.of(queue)
    return [there[position] for position in each_of(runs) if position in there]
