"""The state of one replica set: its queues and their messages (protocol 13, 14).

`apply` accepts any bytes, in any order, and always returns an answer. The same bytes lead to the same state at each
replica. So it reads no clock, and does not use Python's hash of a text, which differs between processes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs
import msgpack

from topic.queues.bound.bindings import BINDING, DEAD_LETTERS, MOST_BINDINGS, Bindings
from topic.queues.logged.message_log import MessageLog
from topic.queues.messages import ROWS, QueuedMessages
from topic.queues.operations import (
    TEMPORARY,
    Answer,
    Browse,
    Commit,
    Configure,
    Declare,
    Delete,
    Done,
    Purge,
    QueueId,
    QueueSettings,
    Refused,
    RefusedFor,
    Retry,
    is_temporary,
    pack,
    read,
    read_operation,
    unpack,
)
from topic.queues.positions import each_of, position_of
from topic.queues.proposals import (
    ENQUEUE,
    FIRST,
    TRANSACT,
    Decided,
    Dequeue,
    Enqueue,
    Enqueued,
    Expire,
    Free,
    Posted,
    Proposal,
    Reject,
    Reserve,
    Settled,
    Transact,
    Transacted,
    Unreserve,
    read_proposal,
)
from topic.queues.rows import Row, StateRows
from topic.queues.transactions.decided import COMMITTED, TRANSACTIONS, DecidedTransactions
from topic.raft.life import SetLife, read_life

MOST_QUEUES: Final = 65_536
"""The highest number of queues in one set. This constant must be equal at all replicas."""
DECLARED: Final = b"q"
"""The first byte of the key of a row about a queue. The name of the queue follows."""
TOO_MANY_BINDINGS: Final = Refused(
    RefusedFor.TOO_MANY, f"the queues of this set may have {MOST_BINDINGS} bindings together, and would have more"
)
_CLOCK: Final = 8
"""The number of bytes of a life's clock in an entry. Each entry begins with the leader's life: the clock, one byte with
the length of the router's name, and the name."""


@attrs.frozen(slots=True)
class Queue:
    """A declared queue: its name, its id and its settings."""

    name: str
    id: QueueId
    version: QueueId
    """The version of the queue's settings."""
    settings: QueueSettings

    @property
    def row(self) -> Row:
        return _key(self.name), bytes(msgpack.packb(pack(self)))


def _key(name: str) -> bytes:
    return DECLARED + name.encode()


def _queue(key: bytes, value: bytes) -> Queue:
    """Read the queue in a row. Raises ValueError if the row is malformed."""
    queue: Queue = read(Queue, unpack(value, "a row of the state of a set"))
    if key != _key(queue.name):
        raise ValueError("a row of the state of a set has the key of another queue")
    return queue


def entry(life: SetLife, operation: bytes) -> bytes:
    """Encode the log entry of an operation; `life`: the life in which the leader proposes it."""
    router = life.router.encode()
    return b"".join((life.clock.to_bytes(_CLOCK), len(router).to_bytes(), router, operation))


def read_entry(data: bytes) -> tuple[SetLife, list[Any]]:
    """Read from an entry the life of the set in which its leader proposed it, and the parts of its operation. Raises
    ValueError if the entry is malformed."""
    begins = _CLOCK + 1 + int.from_bytes(data[_CLOCK : _CLOCK + 1])
    life = read_life([int.from_bytes(data[:_CLOCK]), data[_CLOCK + 1 : begins].decode()])
    return life, unpack(data[begins:], "an operation on queues")


def _may_change(former: QueueSettings, settings: QueueSettings) -> bool:
    """Whether `settings` may replace `former`. The settings of a temporary queue change only when the link that has
    created the queue ends. The router of this link then replaces the settings, and has to know their version, so
    nothing else may change them."""
    is_temporary_queue = former.temporary is not None or settings.temporary is not None
    return not is_temporary_queue or settings == attrs.evolve(former, held_by=None)


def messages_of(data: bytes) -> Sequence[bytes]:
    """The messages that an entry puts into queues, in the order of their places. Empty if the entry does something
    else."""
    try:
        _, parts = read_entry(data)
        proposal = read_proposal(parts) if parts and parts[0] in (ENQUEUE, TRANSACT) else None
    except ValueError:
        return ()
    return proposal.messages if isinstance(proposal, Enqueue | Transact) else ()


class SetState:
    """The queues of one set, by name, and their messages."""

    def __init__(
        self, rows: Iterable[Row] = (), log: MessageLog | None = None, *, read: StateRows | None = None
    ) -> None:
        """`rows`: the rows of the state to restore. `log`: gets what happens to messages. `read`: the rows that were
        read before, to which `rows` are added. Raises ValueError if the rows are not a valid state."""
        self.rows = read if read is not None else StateRows()
        self.rows.read(rows)
        if any(key[:1] not in (DECLARED, BINDING, TRANSACTIONS, *ROWS) for key, _ in self.rows.small):
            raise ValueError("a row of the state of a set has a key of an unknown kind")
        queues = [_queue(*row) for row in self.rows.small if row[0].startswith(DECLARED)]
        if len(queues) > MOST_QUEUES:
            raise ValueError(f"the state of a set has {len(queues)} queues, expected {MOST_QUEUES} at most")
        self._queues = {queue.name: queue for queue in sorted(queues, key=lambda queue: queue.id)}
        self._names = {queue.id: queue.name for queue in queues}
        self.temporary = {queue.name: queue for queue in queues if queue.settings.temporary is not None}
        """The temporary queues of the set."""
        self.deletions = 0
        """How many queues have been deleted since this object was made."""
        self.changes = 0
        """How often settings of queues have changed since this object was made."""
        self.messages = QueuedMessages(self.rows, log)
        self.bindings = Bindings(self.rows)
        self._transactions = DecidedTransactions(self.rows)

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        """Yield the queues in the order in which they were declared."""
        return iter(self._queues.values())

    def get(self, name: str) -> Queue | None:
        return self._queues.get(name)

    def name_of(self, queue: QueueId) -> str | None:
        """The name of the queue with this id; None if the queue is deleted."""
        return self._names.get(queue)

    def settings_of(self, queue: QueueId) -> QueueSettings:
        """The settings of the queue with this id. If the queue is deleted, no setting is set."""
        name = self.name_of(queue)
        return self._queues[name].settings if name is not None else QueueSettings()

    # The methods from here on carry out operations and proposals.

    def apply(self, index: int, data: bytes) -> Answer | Decided | None:
        """Apply the log entry at this index: an operation or a proposal. Returns its answer; None if it has none."""
        try:
            life, parts = read_entry(data)
            is_proposal = bool(parts) and isinstance(parts[0], int) and parts[0] >= FIRST
            asked = read_proposal(parts) if is_proposal else read_operation(parts)
        except ValueError as error:
            return Refused(RefusedFor.MALFORMED, str(error))
        if isinstance(asked, Declare):
            return self._declare(asked, QueueId(life, index))
        if isinstance(asked, Browse | Commit):
            return Refused(RefusedFor.MALFORMED, "no log has a request that only a leader takes")
        if isinstance(asked, Configure | Delete | Purge | Retry):
            return self._change(asked, QueueId(life, index))
        return self._carry_out(asked, QueueId(life, index))

    def _carry_out(self, proposal: Proposal, entry: QueueId) -> Decided | None:
        match proposal:
            case Transact():
                return self._transact(proposal, entry)
            case Enqueue() if proposal.binding and proposal.binding != DEAD_LETTERS:
                return self._enqueue_bound(proposal, entry)
            case Enqueue():
                queue = self._queue_for(proposal, entry)
                id_, settings = (queue.id, queue.settings) if queue is not None else (None, QueueSettings())
                if proposal.binding:
                    settings = QueueSettings()  # a queue takes dead letters even beyond its limits
                return self.messages.enqueue(id_, settings, entry.index, proposal)
            case Settled():
                self.messages.settled([proposal.binding + key for key in proposal.keys])
            case Reserve():
                self.messages.reserve(proposal.queue, proposal.consumer, proposal.runs)
            case Free():
                settings = self.settings_of(proposal.queue)
                self.messages.free(
                    proposal.queue, proposal.runs, settings, failed=proposal.failed, annotations=proposal.annotations
                )
            case Dequeue():
                self.messages.dequeue(proposal.queue, proposal.runs)
            case Reject():
                settings = self.settings_of(proposal.queue)
                self.messages.reject(proposal.queue, proposal.runs, settings, proposal.annotations)
            case Expire():
                self.messages.expire(proposal.queue, proposal.runs, self.settings_of(proposal.queue))
            case Unreserve():
                self.messages.unreserve(proposal.queue, proposal.runs)
            case Posted():
                self.messages.published(proposal.queue, proposal.runs, taken=proposal.taken)
        return None

    def _transact(self, asked: Transact, entry: QueueId) -> Transacted:
        """Carry out a transaction: all of it or nothing, and only once (protocol 14.20)."""
        why, is_fresh = self._transactions.answer(asked), False
        if why is None:
            why, is_fresh = asked.why or self._why_not(asked), True
            self._transactions.decide(asked, why)
        if why != COMMITTED:
            return Transacted(Refused(RefusedFor.ROLLED_BACK, why))
        done = Done(entry, entry)
        return Transacted(done, self._commit(asked, entry), asked.retires) if is_fresh else Transacted(done)

    def _why_not(self, asked: Transact) -> str:
        """The reason for which the transaction is rolled back; `COMMITTED` if it is not."""
        taken = [(one.queue, position) for one in asked.retires for position in each_of(one.runs)]
        has = all(self.messages.has_for(one.queue, one.consumer, one.runs) for one in asked.retires)
        if not has or len(set(taken)) < len(taken):
            return "its client has a message no longer that it takes"
        for one in asked.enqueues:
            queue = self._queues.get(one.queue)
            if queue is None:
                return f'there is no queue "{one.queue}"'
            there = self.messages.of(queue.id)
            left = [position for of, position in taken if of == queue.id]
            count = len(there) - len(left) + len(one.messages)
            size = there.size - sum(there.about(at)[0] for at in left) + sum(map(len, one.messages))
            if not queue.settings.has_room(count, size):
                return f'queue "{one.queue}" is full'
        return COMMITTED

    def _commit(self, asked: Transact, entry: QueueId) -> list[Enqueued]:
        """Take the messages of all retirements out of their queues. Then put the new messages of the transaction into
        their queues."""
        for one in asked.retires:
            settings, annotations = self.settings_of(one.queue), one.annotations
            self.messages.retire(one.queue, one.runs, settings, rejected=one.rejected, annotations=annotations)
        enqueued, place = list[Enqueued](), 0
        for post in asked.enqueues:
            queue = self._queues[post.queue].id
            enqueued.append(self.messages.enqueue(queue, QueueSettings(), entry.index, post, place=place))
            place += len(post.messages)
        return enqueued

    def _enqueue_bound(self, asked: Enqueue, entry: QueueId) -> Enqueued:
        """Put messages into the queue of the binding by which they came. If the binding no longer exists, do
        nothing."""
        binding, queue = self.bindings.get(asked.binding), self._queues.get(asked.queue)
        if binding is None or queue is None or binding.queue != queue.id:
            return Enqueued(frozenset(), queue.id if queue is not None else None, ())
        others = [one.key for one in self.bindings.of(queue.id) if one != binding]
        return self.messages.enqueue(queue.id, queue.settings, entry.index, asked, others)

    def _queue_for(self, asked: Enqueue, entry: QueueId) -> Queue | None:
        """The queue for these messages. If the queue does not exist, the first new message declares it. None if the set
        has too many queues, or if no message is new."""
        is_there = asked.queue in self._queues or len(self._queues) >= MOST_QUEUES or is_temporary(asked.queue)
        if not is_there and not self.messages.has_answered(asked):
            self._put(Queue(asked.queue, entry, entry, QueueSettings()))
        return self._queues.get(asked.queue)

    def _declare(self, operation: Declare, fresh: QueueId) -> Answer:
        known = self._queues.get(operation.name)
        if known is None and is_temporary(operation.name) and operation.settings.temporary is None:
            return Refused(RefusedFor.NOT_FOUND, f'there is no temporary queue "{operation.name}", or no longer')
        if operation.settings.temporary is not None and not is_temporary(operation.name):
            why = f'queue "{operation.name}" cannot be temporary, expected a name with {TEMPORARY}'
            return Refused(RefusedFor.MALFORMED, why)
        if known is None and len(self._queues) >= MOST_QUEUES:
            return Refused(RefusedFor.TOO_MANY, f"this set has {MOST_QUEUES} queues, which is the most")
        if known is None and not self._may_bind(fresh, operation.settings):
            return TOO_MANY_BINDINGS
        if known is None:
            self._put(Queue(operation.name, fresh, fresh, operation.settings))
            return Done(fresh, fresh)
        if known.settings == operation.settings:
            return Done(known.id, known.version)
        return Refused(
            RefusedFor.DIFFERS, f'queue "{known.name}" exists with {known.settings}, expected {operation.settings}'
        )

    def _change(self, operation: Configure | Delete | Purge | Retry, fresh: QueueId) -> Answer:
        known = self._queues.get(operation.name)
        if known is None:
            return Refused(RefusedFor.NOT_FOUND, f'there is no queue "{operation.name}"')
        if known.id != operation.id:
            why = f'queue "{known.name}" has the id {known.id}, expected {operation.id}: it was declared anew'
            return Refused(RefusedFor.NOT_FOUND, why)
        if isinstance(operation, Configure):
            return self._configure(known, operation, fresh)
        if isinstance(operation, Purge):
            # a purge does not remove messages that come after it
            position = min(operation.position, position_of(fresh.index, 0))
            return Done(known.id, known.version, self.messages.purge(known.id, position))
        if isinstance(operation, Retry):
            return Done(known.id, known.version, self.messages.retry(known.id, operation.runs, operation.address))
        self._bind(known.id, QueueSettings(), fresh)
        self.messages.delete(known.id)
        self.rows.delete(_key(known.name))
        del self._queues[known.name], self._names[known.id]
        self.temporary.pop(known.name, None)
        self.deletions += 1
        return Done(known.id, known.version)

    def _configure(self, known: Queue, operation: Configure, fresh: QueueId) -> Answer:
        if known.settings == operation.settings:
            return Done(known.id, known.version)
        if known.version != operation.former:
            what = f"has {known.settings} (version {known.version})"
            return Refused(RefusedFor.CHANGED, f'queue "{known.name}" was changed meanwhile: it {what}')
        if not _may_change(known.settings, operation.settings):
            why = "a temporary queue keeps its settings, and another queue does not become temporary"
            return Refused(RefusedFor.DIFFERS, f'queue "{known.name}" has {known.settings}: {why}')
        if not self._may_bind(known.id, operation.settings):
            return TOO_MANY_BINDINGS
        self._put(attrs.evolve(known, settings=operation.settings, version=fresh))
        self.changes += 1
        return Done(known.id, fresh)

    def _put(self, queue: Queue) -> None:
        self._queues[queue.name] = queue
        self._names[queue.id] = queue.name
        if queue.settings.temporary is not None:
            self.temporary[queue.name] = queue
        else:
            self.temporary.pop(queue.name, None)
        self.rows.put(*queue.row)
        self._bind(queue.id, queue.settings, queue.version)

    def _may_bind(self, queue: QueueId, settings: QueueSettings) -> bool:
        """Whether the set has room for the bindings in these settings. They would replace the queue's present
        bindings."""
        return len(self.bindings) - len(self.bindings.of(queue)) + len(settings.bind or ()) <= MOST_BINDINGS

    def _bind(self, queue: QueueId, settings: QueueSettings, since: QueueId) -> None:
        for over in self.bindings.bind(queue, settings.bind or (), since):
            self.messages.forget(over.key)

    def check(self) -> None:
        """Assert the invariants that hold between two operations."""
        self.rows.check()
        self.messages.check()
        self.bindings.check()
        self._transactions.check()
        bound = {(queue.id, address) for queue in self for address in queue.settings.bind or ()}
        assert {(one.queue, one.address) for one in self.bindings} == bound, "the bindings are not those of the queues"
        found = {key: _queue(key, value) for key, value in self.rows.small if key.startswith(DECLARED)}
        assert found == {_key(queue.name): queue for queue in self}, "the rows are not those of the queues"
        assert self.temporary == {queue.name: queue for queue in self if queue.settings.temporary is not None}
        assert self._names == {queue.id: queue.name for queue in self}
        assert self.messages.queues | self.messages.outbox.queues <= {queue.id for queue in self}, (
            "messages of a queue that is not there"
        )
