"""The proposals that the ends of a leader make to their set, as bytes (protocol 14.3). Other routers request operations
(`topic.queues.operations`); they cannot request a proposal.

| proposal | does | answer |
| --- | --- | --- |
| `Enqueue(queue, keys, given, messages, expires, binding)` | puts messages into a queue, each once | `Enqueued` |
| `Settled(keys, binding)` | forgets how these deliveries were answered | none |
| `Reserve(queue, consumer, runs)` | reserves messages for one consumer | none |
| `Free(queue, runs, failed, annotations)` | consumers have given messages back | none |
| `Dequeue(queue, runs)` | takes messages out of a queue | none |
| `Reject(queue, runs, annotations)` | consumers have rejected messages | none |
| `Expire(queue, runs)` | takes messages whose time is over out of a queue, if they are not reserved | none |
| `Unreserve(queue, runs)` | ends reservations of messages that no consumer has had | none |
| `Posted(queue, runs, taken)` | another address has taken messages of the outbox, or has not | none |
| `Transact(router, number, …)` | carries out a transaction: all of it or nothing, once | `Transacted` |

If the queue has an address for dead letters, a message that is rejected, that has failed too often, or whose time is
over goes to the outbox (`topic.queues.outgoing.outbox`).

A proposal is one msgpack array, [kind, …]. Its kind is a number that no operation has.
"""

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import msgpack

from topic.delivery.outcomes import MOST_ANNOTATIONS
from topic.directory.entry import LinkEntry, Role, unpack_entry
from topic.identity import KEY_LENGTH, NAME_LENGTH, Epoch
from topic.queues.bound.bindings import BINDING_KEY
from topic.queues.operations import MOST, MOST_NAME, Answer, QueueId, read_id
from topic.queues.positions import MOST_PLACES, Run, read_runs
from topic.wire.segments import is_entry

FIRST: Final = 16
"""The lowest number that stands for a kind of proposal."""
ENQUEUE, SETTLED, RESERVE, FREE, DEQUEUE, EXPIRE, REJECT, POSTED, UNRESERVE, TRANSACT = range(FIRST, FIRST + 10)


@attrs.frozen(slots=True)
class Given:
    """A run of consecutive deliveries of one publisher, as its home forwarded them."""

    epoch: Epoch
    """The epoch of the publisher's attach, in which the home forwarded the deliveries."""
    first: int
    """The place of the first delivery in the publisher's order. Places grow with each delivery of an attach."""
    count: int

    def each(self) -> Iterator[tuple[Epoch, int]]:
        """For each delivery of the run: the attach, and the delivery's place in it."""
        return ((self.epoch, self.first + i) for i in range(self.count))


@attrs.frozen(slots=True)
class Enqueue:
    """Put messages into a queue."""

    queue: str
    keys: Sequence[bytes]
    """The delivery keys, one for each message. Empty if the publishers want no answers; the state then keeps no
    answers."""
    given: Sequence[Given]
    """The runs of the deliveries in `keys`, in the same order. Together they have as many deliveries as there are
    keys."""
    messages: Sequence[bytes]
    expires: Sequence[int] = ()
    """When the time of each message ends, in milliseconds since 1970; 0 for never. The list is empty if no message has
    an end."""
    binding: bytes = b""
    """The key of the binding by which the messages came, or `DEAD_LETTERS`. Empty if publishers have sent the messages
    to the queue itself. An `Enqueue` by a binding declares no queue."""


@attrs.frozen(slots=True)
class Settled:
    """Forget the answers to these deliveries, which their publishers have settled and so will not transfer again."""

    keys: Sequence[bytes]
    binding: bytes = b""
    """The binding by which the deliveries came, as in `Enqueue`."""


@attrs.frozen(slots=True)
class Reserve:
    """Reserve these messages for one consumer. Messages that no longer exist are ignored."""

    queue: QueueId
    consumer: LinkEntry
    runs: Sequence[Run]


@attrs.frozen(slots=True)
class Free:
    """End the reservations of these messages, because their consumers have given them back or are gone."""

    queue: QueueId
    runs: Sequence[Run]
    failed: bool
    """Whether the consumers may have begun to process the messages. If so, each message counts a failure (AMQP 1.0
    3.2.1, delivery-count)."""
    annotations: Mapping[int, bytes] = attrs.Factory(dict)
    """The annotations of messages to which the last consumer has added some. Maps the position of each such message to
    all annotations that the message has so far."""


@attrs.frozen(slots=True)
class Dequeue:
    """Remove these messages, which a consumer has accepted."""

    queue: QueueId
    runs: Sequence[Run]


@attrs.frozen(slots=True)
class Reject:
    """Consumers have rejected these messages."""

    queue: QueueId
    runs: Sequence[Run]
    annotations: Mapping[int, bytes] = attrs.Factory(dict)
    """The annotations, as in `Free`, with the errors of the consumers."""


@attrs.frozen(slots=True)
class Expire:
    """Remove these messages, whose time to live is over, except reserved ones."""

    queue: QueueId
    runs: Sequence[Run]


@attrs.frozen(slots=True)
class Unreserve:
    """End the reservations of these messages: their consumer has ended, and has had none of them. The messages' numbers
    of returns stay, so the next consumer gets the same deliveries."""

    queue: QueueId
    runs: Sequence[Run]


@attrs.frozen(slots=True)
class Posted:
    """The leader has published these messages of the outbox to their address, and has read their outcomes."""

    queue: QueueId
    """The queue from which the messages of the outbox came."""
    runs: Sequence[Run]
    taken: bool
    """Whether the address has taken the messages, so that they leave the outbox. If not, they stay there, and each
    counts one more return."""


@attrs.frozen(slots=True)
class Retire:
    """A consumer takes messages out of one queue in a transaction, if they are reserved for it."""

    queue: QueueId
    consumer: bytes
    """The name of the link of the consumer that takes the messages."""
    rejected: bool
    runs: Sequence[Run]
    annotations: Mapping[int, bytes] = attrs.Factory(dict)
    """The annotations, as in `Reject`."""


@attrs.frozen(slots=True)
class Transact:
    """Carry out a transaction: all of it, or nothing if one of its messages is no longer its consumer's, or if one of
    its queues has no room. `router`, `incarnation`, `number` and `floor` as in `Commit`: the state keeps the answer
    under this number, and gives it again if the transaction is decided again."""

    router: str
    incarnation: int
    number: int
    floor: int
    why: str
    """The reason for which the set has to roll the transaction back; empty if it may carry the transaction out."""
    enqueues: Sequence[Enqueue]
    """An `Enqueue` without keys for each queue that gets messages. The queue has to be declared."""
    retires: Sequence[Retire]

    @property
    def messages(self) -> list[bytes]:
        """The messages of the entry, in the order of their places."""
        return [message for enqueue in self.enqueues for message in enqueue.messages]


Proposal = Enqueue | Settled | Reserve | Free | Dequeue | Reject | Expire | Posted | Unreserve | Transact
_OF_RUNS: Final[dict[int, type[Any]]] = {DEQUEUE: Dequeue, EXPIRE: Expire, UNRESERVE: Unreserve}
"""The kinds of proposals that have a queue and runs, and nothing else. Maps each kind to its class."""
_KIND_OF: Final = {proposal: kind for kind, proposal in _OF_RUNS.items()}


@attrs.frozen(slots=True)
class Enqueued:
    """The answer to an `Enqueue`: the queue has each of these messages that it has not refused."""

    refused: frozenset[int]
    """The places of the refused messages: the queue had no room for them, or the set has too many queues. If a message
    comes again, it gets the same answer."""
    queue: QueueId | None
    """The queue of the messages; None if it does not exist."""
    positions: Sequence[int]
    """The positions of the messages that the queue got by this `Enqueue`."""


@attrs.frozen(slots=True)
class Transacted:
    """The answer to a `Transact`, that is, to a transaction."""

    answer: Answer
    """`Done` if the transaction is carried out; otherwise the reason for which it is rolled back."""
    enqueued: Sequence[Enqueued] = ()
    """The messages that the queues have got by this entry, if they have not got them by an earlier one."""
    retires: Sequence[Retire] = ()
    """The messages that this entry has taken out of their queues."""


Decided = Enqueued | Transacted
"""The answer to an `Enqueue` or a `Transact`. Other proposals have no answer."""


def encode_proposal(proposal: Proposal) -> bytes:
    """Encode a proposal. In a log entry, the life of the leader precedes these bytes."""
    if isinstance(proposal, Enqueue):
        assert len(proposal.keys) in (0, len(proposal.messages)) and 0 < len(proposal.messages) <= MOST_PLACES
        assert sum(run.count for run in proposal.given) == len(proposal.keys)
        given = [(*run.epoch, run.first, run.count) for run in proposal.given]
        more = [proposal.expires] if proposal.expires else []
        parts = ENQUEUE, proposal.queue, proposal.keys, given, proposal.messages, *more, *_of(proposal)
        return bytes(msgpack.packb(parts))
    if isinstance(proposal, Settled):
        return bytes(msgpack.packb((SETTLED, proposal.keys, *_of(proposal))))
    if isinstance(proposal, Transact):
        return _encode_transact(proposal)
    queue = proposal.queue.parts
    if isinstance(proposal, Reserve):
        return bytes(msgpack.packb((RESERVE, *queue, proposal.runs, proposal.consumer.pack())))
    if isinstance(proposal, Free):
        return bytes(msgpack.packb((FREE, *queue, proposal.runs, proposal.failed, [*proposal.annotations.items()])))
    if isinstance(proposal, Reject):
        return bytes(msgpack.packb((REJECT, *queue, proposal.runs, [*proposal.annotations.items()])))
    if isinstance(proposal, Posted):
        return bytes(msgpack.packb((POSTED, *queue, proposal.runs, proposal.taken)))
    return bytes(msgpack.packb((_KIND_OF[type(proposal)], *queue, proposal.runs)))


def _encode_transact(asked: Transact) -> bytes:
    enqueues = [(one.queue, one.messages, one.expires) for one in asked.enqueues]
    retires = [(*one.queue.parts, one.consumer, one.rejected, one.runs, *_annotated(one)) for one in asked.retires]
    by = asked.router, asked.incarnation, asked.number, asked.floor
    return bytes(msgpack.packb((TRANSACT, *by, asked.why, enqueues, retires)))


def _annotated(retire: Retire) -> list[list[tuple[int, bytes]]]:
    """A list with the annotations of a `Retire`, which is the last element of the proposal's array. Without annotations
    the list is empty, and the array has no such element."""
    return [[*retire.annotations.items()]] if retire.annotations else []


def _of(proposal: Enqueue | Settled) -> list[bytes]:
    """The binding of a proposal as the last element of its array. Without a binding the array has no such element."""
    return [proposal.binding] if proposal.binding else []


def read_proposal(parts: list[Any]) -> Proposal:
    """Read the proposal in a decoded array. Raises ValueError if the array is malformed."""
    if parts[0] == ENQUEUE and len(parts) in (5, 6, 7):
        _, queue, keys, given, messages, *more = parts
        binding = _binding(more.pop()) if more and not isinstance(more[-1], list) else b""
        if not isinstance(queue, str) or not 0 < len(queue.encode()) <= MOST_NAME:
            raise ValueError(f"Enqueue has the queue {reprlib.repr(queue)}, expected a text of 1 to {MOST_NAME} bytes")
        if not isinstance(messages, list) or not all(type(one) is bytes for one in messages):
            raise ValueError("Enqueue has messages that are no bytes")
        if not 0 < len(messages) <= MOST_PLACES or len(_keys(keys)) not in (0, len(messages)):
            expected = f"expected one for each of {len(keys)} keys, and {MOST_PLACES} at most"
            raise ValueError(f"Enqueue has {len(messages)} messages, {expected}")
        return Enqueue(queue, keys, _given(given, len(keys)), messages, _times(more, len(messages)), binding)
    if parts[0] == SETTLED and len(parts) in (2, 3):
        return Settled(_keys(parts[1]), *map(_binding, parts[2:]))
    if parts[0] == RESERVE and len(parts) == 5:
        return Reserve(_queue(parts), consumer_of(parts[4]), _runs(parts[3]))
    if parts[0] == FREE and len(parts) == 6 and type(parts[4]) is bool:
        return Free(_queue(parts), _runs(parts[3]), parts[4], _annotations(parts[5]))
    if parts[0] == REJECT and len(parts) == 5:
        return Reject(_queue(parts), _runs(parts[3]), _annotations(parts[4]))
    if parts[0] == POSTED and len(parts) == 5 and type(parts[4]) is bool:
        return Posted(_queue(parts), _runs(parts[3]), parts[4])
    if parts[0] == TRANSACT and len(parts) == 8:
        return _transact(*parts[1:])
    if parts[0] in _OF_RUNS and len(parts) == 4:
        proposal: Proposal = _OF_RUNS[parts[0]](_queue(parts), _runs(parts[3]))
        return proposal
    raise ValueError(f"a proposal begins with {reprlib.repr(parts[0])} and has {len(parts)} parts")


def _transact(*parts: Any) -> Transact:
    router, *numbers, why, enqueues, retires = parts
    is_name = isinstance(router, str) and 0 < len(router.encode()) <= MOST_NAME
    if not is_name or not all(type(one) is int and 0 <= one <= MOST for one in numbers) or not isinstance(why, str):
        raise ValueError(f"a transaction is of {reprlib.repr([router, *numbers, why])}")
    if not isinstance(enqueues, list) or not all(isinstance(one, list) and len(one) == 3 for one in enqueues):
        raise ValueError("a transaction enqueues nothing that is known")
    if not isinstance(retires, list) or not all(isinstance(one, list) and len(one) in (5, 6) for one in retires):
        raise ValueError("a transaction retires nothing that is known")
    incarnation, number, floor = numbers
    return Transact(
        router, incarnation, number, floor, why, [_post(*one) for one in enqueues], [*map(_retire, retires)]
    )


def _post(queue: Any, messages: Any, expires: Any) -> Enqueue:
    read = read_proposal([ENQUEUE, queue, [], [], messages, *([expires] if expires else [])])
    assert isinstance(read, Enqueue)
    return read


def _retire(value: list[Any]) -> Retire:
    life, index, consumer, rejected, runs, *annotations = value
    if type(consumer) is not bytes or len(consumer) != NAME_LENGTH or type(rejected) is not bool:
        raise ValueError(f"a transaction has the consumer {reprlib.repr(consumer)}, expected {NAME_LENGTH} bytes")
    added = _annotations(annotations[0]) if annotations else {}
    return Retire(_queue([RESERVE, life, index]), consumer, rejected, _runs(runs), added)


def _annotations(value: Any) -> dict[int, bytes]:
    if not isinstance(value, list) or not all(map(_is_annotated, value)):
        expected = f"expected positions, each with up to {MOST_ANNOTATIONS} bytes"
        raise ValueError(f"a proposal has the annotations {reprlib.repr(value)}, {expected}")
    return dict(value)


def _is_annotated(value: Any) -> bool:
    is_pair = isinstance(value, list) and [type(part) for part in value] == [int, bytes]
    return is_pair and len(value[1]) <= MOST_ANNOTATIONS


def _binding(value: Any) -> bytes:
    if type(value) is not bytes or len(value) != BINDING_KEY:
        raise ValueError(f"a proposal has the binding {reprlib.repr(value)}, expected {BINDING_KEY} bytes")
    return value


def _queue(parts: list[Any]) -> QueueId:
    return read_id(parts[1:3])


def consumer_of(value: Any) -> LinkEntry:
    """Read a consumer's entry in packed form. Raises ValueError if it is malformed."""
    entry = unpack_entry(value) if is_entry(value) else None
    if entry is None or entry.role is not Role.SUBSCRIBER or not entry.live:
        raise ValueError(f"expected the entry of a consumer that is attached, not {reprlib.repr(value)}")
    return entry


def _runs(value: Any) -> list[Run]:
    return read_runs(value, "a proposal")


def _given(value: Any, count: int) -> list[Given]:
    if not isinstance(value, list) or not all(isinstance(run, list) for run in value):
        raise ValueError("Enqueue has runs of deliveries that are no arrays")
    for run in value:
        if [type(part) for part in run] != [int, str, int, int, int] or run[3] < 0 or run[4] < 1:
            raise ValueError(f"Enqueue has the run of deliveries {reprlib.repr(run)}")
    if sum(run[4] for run in value) != count:
        raise ValueError(f"Enqueue has runs of {sum(run[4] for run in value)} deliveries, expected {count}")
    return [Given(Epoch(*run[:3]), *run[3:]) for run in value]


def _times(value: list[Any], count: int) -> Sequence[int]:
    """Read the times at which `count` messages expire; empty if the proposal has no times."""
    if not value:
        return ()
    [times] = value
    if not isinstance(times, list) or len(times) != count:
        raise ValueError(f"Enqueue has the times {reprlib.repr(times)}, expected one for each message")
    if not all(type(time) is int and 0 <= time <= MOST for time in times):
        raise ValueError(f"Enqueue has the times {reprlib.repr(times)}, expected numbers from 0 to {MOST}")
    return times


def _keys(value: Any) -> list[bytes]:
    if not isinstance(value, list) or not all(type(one) is bytes and len(one) == KEY_LENGTH for one in value):
        raise ValueError(f"a proposal has keys that are no {KEY_LENGTH} bytes")
    return value
