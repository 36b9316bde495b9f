"""One router's replica of one set: a Raft, the state with the queues, and the requests that the replica proposes.

A router outside the set has a replica, too: it learns whether the set has begun, and the set may admit it (protocol
13).
"""

import json
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import attrs

from topic.errors import BreachError
from topic.journal import Event
from topic.queues.actions import Logged, SetAction, SetChange, SetEvent, SetNote, Tell
from topic.queues.copying.pieces import Section, SnapshotRows, begins_behind, read_piece, section_of
from topic.queues.logged.message_log import ReplicaLog
from topic.queues.operations import Browse, Commit, Declare, Delete, Done, QueueId, Refused, RefusedFor, Reply, decode
from topic.queues.operations import encode as encode_operation
from topic.queues.positions import position_of
from topic.queues.proposals import Decided, Proposal, Transact, Transacted, encode_proposal
from topic.queues.rows import Changes, PackedRows, Row, StateRows
from topic.queues.set_map import SetPlan
from topic.queues.state import SetState, entry
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, Renew, SetContent, Write
from topic.queues.wire import encode
from topic.raft.configuration import Replica
from topic.raft.errors import BusyError, NotLeaderError
from topic.raft.life import SetLife
from topic.raft.log import Entry
from topic.raft.messages import (
    Action,
    Agreed,
    Alarm,
    Committed,
    Envelope,
    Persist,
    Piece,
    Read,
    Restore,
    Send,
    StoreContent,
)
from topic.raft.raft import Raft

KEPT: Final = 8
"""The highest number of compared states that the replica keeps. It keeps the latest ones, and any of them may become
the snapshot."""
CHANGED: Final = 4 << 20
"""The bytes of changed rows after which replicas compare their states. The state that they compare may also be written
as a snapshot. This constant must be equal at all replicas.

Most of these bytes are bodies, which the store already has in its log entries. So the write of a snapshot is short, and
later entries do not wait long for the disk. A message that comes and goes between two comparisons is
not written for the snapshot.
"""
MOST_STATE: Final = 1 << 30
"""The highest number of bytes of all pieces of a state together, without the bodies of messages."""
KEPT_BODIES: Final = 8 << 20
"""The highest number of bytes of a set's bodies in memory. Above this limit, the replica drops bodies that its disk
has."""
DROPPED: Final = 2 << 20
"""The bytes of bodies that the replica drops at a time."""
BEHIND: Final = 16 << 20
"""The bytes of entries that stay in the log for replicas out of contact, at most a quarter of the bytes of all
messages. A replica that comes back soon then needs no snapshot."""
RESTORED: Final = 4000
"""The number of rows of a leader's snapshot that the replica reads in one turn. A snapshot may have millions of rows,
and other events of the router wait for the turn."""
DELAYED: Final = 64 << 20
"""The bytes of entries after which a leader makes a snapshot in any case, even if another replica lacks some of these
entries, or has only a part of the former snapshot. The leader then sends that replica the new snapshot, without the
messages that the replica already has."""


@attrs.frozen(slots=True)
class _Restoring:
    """A leader's snapshot that the replica reads, in turns."""

    index: int
    """The log index of the snapshot."""
    left: Iterator[Row]
    """The rows that the replica has not read."""
    rows: StateRows
    """The rows that the replica has read."""
    decided: list[Committed]
    """The entries behind the snapshot that were decided meanwhile."""


class SetReplica:
    """The replica of one set at this router, with the set's state."""

    def __init__(
        self,
        router: str,
        plan: SetPlan,
        content: SetContent,
        compare_every: int,
        raft: Callable[[Replica, SetPlan, StoreContent, float], Raft],
        new_store: Callable[[], bytes],
        now: float,
    ) -> None:
        """`compare_every`: the number of entries from one comparison of the states to the next. `raft`: a function that
        makes a Raft."""
        self.plan = plan
        self.out: list[SetAction] = []
        self.browses: list[tuple[str, int, Browse]] = []
        """Requests to browse. Each has the router that asks, the number of the request at that router, and the
        request."""
        self.commits: list[tuple[str, int, Commit]] = []
        """Requests for transactions. Each has the router that asks, the number of the request at that router, and the
        request."""
        self.answers: list[tuple[str, int, Reply]] = []
        """Answers to requests. Each has the router that asked, its number of the request, and the answer."""
        self.decided: list[tuple[int, Decided | None]] = []
        """The decided proposals, by this leader and by earlier ones. Each has the log index and the answer."""
        self.bodies: list[tuple[int, dict[int, bytes]]] = []
        """Answers to `read_bodies`. Each has the number of the read, and the bodies of the messages that still exist,
        by position. If the state was replaced after the read began, the answer has no bodies."""
        self.why_aside = ""
        """Why the store was last set aside; empty if it never was."""
        self._leaves = False
        """Whether this router is about to stop."""
        self._reading: dict[int, tuple[ReadBodies, QueueId | None]] = {}
        """The reads of bodies under way, keyed by number. Each has its queue; None for the outbox."""
        self._router = router
        self._compare_every = compare_every
        self._new_raft = raft
        self._new_store = new_store
        self._begin(content, now)

    def _begin(self, content: SetContent, now: float) -> None:
        self.raft = self._new_raft(Replica(self._router, content.store), self.plan, content.content, now)
        self.raft.leaves = self._leaves
        self.applied = content.content.snapshot.index
        """The last log index that the replica has applied to the state."""
        self.state = self._state(content.rows)
        self._changes: dict[int, dict[bytes, bytes | None]] = {}
        """Maps each index at which states are compared to the changes of the rows since the index before it, or since
        the snapshot."""
        self._compacted: Changes | None = None
        """The rows that differ from the former snapshot, if the next write has a snapshot that this replica has made.
        Otherwise None."""
        self._agreed: list[int] = []
        """The indices in `_changes` at which a majority has the same state."""
        self._received = SnapshotRows()
        """The rows in the pieces of a leader's snapshot that have come so far."""
        self._restoring: _Restoring | None = None
        """The leader's snapshot that the replica reads; None if it reads none. Meanwhile `state` is the former one."""
        self._restores_at = math.inf
        """When the replica reads more rows of this snapshot; infinite if it reads none."""
        self._on_disk = self.applied
        """The log index of the snapshot that the disk has."""
        self._writes: deque[Write] = deque()
        """The writes that the store has not done, in order."""
        self._reads: list[tuple[ReadPiece, Read]] = []
        """The reads of pieces that the store has not done."""
        self._asked: list[tuple[str, int, bytes]] = []
        """The requests that the replica has to propose. Each has the router, its number of the request, and the
        operation."""
        self._proposed: dict[int, tuple[int, str, int]] = {}
        """Maps the log index of each proposed request to the term of the proposal, the router that asked, and that
        router's number of the request."""

    @property
    def deadline(self) -> float:
        """When `Raft.tick` and `flush` are due; infinite if never."""
        return min(self.raft.deadline, self._restores_at)

    @property
    def leads(self) -> tuple[SetLife, int] | None:
        """The life and the term in which this router leads; None if it does not lead."""
        return (self.raft.hard.life, self.raft.hard.term) if self.raft.leadership is not None else None

    @property
    def ready(self) -> tuple[SetLife, int] | None:
        """The life and the term in which this router leads, once an entry of this term is decided and applied. From
        then on its state has everything that was decided before. Otherwise None."""
        is_ready = self.applied == self.raft.log.commit and self.raft.log.term(self.applied) == self.raft.hard.term
        return self.leads if is_ready else None

    @property
    def copied(self) -> dict[str, int]:
        """The progress of the copies that this leader sends, in per cent; empty if this router does not lead.

        The result has each router that is a learner, or to which the leader sends the snapshot. The number is the part
        of the snapshot and the log that the disk of that router has. It is an estimate: the size of the snapshot is not
        known, so the size of the present messages is taken for it.
        """
        leadership, log = self.raft.leadership, self.raft.log
        if leadership is None:
            return {}
        whole = self.state.messages.size if log.snapshot.index else 0
        copied: dict[str, int] = {}
        for member, progress in leadership.progress.items():
            if not (progress.needs_snapshot or member in log.configuration.learners):
                continue
            if progress.stored >= log.snapshot.index:
                has = whole + log.size(log.snapshot.index, progress.stored)
            else:
                has = min(whole, progress.copied)
            every = whole + log.size(log.snapshot.index, log.last)
            copied[member.router] = 100 if progress.stored == log.last else min(99, 100 * has // max(1, every))
        return copied

    # The methods from here on take events.

    def propose(self, proposals: Iterable[Proposal | Declare | Delete]) -> int | None:
        """Propose entries. The answer to each comes in `decided`. Returns the log index of the first entry; None if
        this router is busy or does not lead."""
        packed = (
            encode_operation(one) if isinstance(one, Declare | Delete) else encode_proposal(one) for one in proposals
        )
        try:
            return self.raft.propose([entry(self.raft.hard.life, data) for data in packed])
        except (NotLeaderError, BusyError):
            return None

    def propose_for(self, router: str, number: int, proposal: Transact) -> int | None:
        """As `propose`, for a router whose request has this number. The router gets the answer, too."""
        index = self.propose([proposal])
        if index is not None:
            self._proposed[index] = self.raft.hard.term, router, number
        return index

    def follow(self, plan: SetPlan) -> bool:
        """Follow the plan of the set, which may have changed. Returns whether it has changed."""
        if plan == self.plan:
            return False
        self.plan = plan
        self.raft.follow_ring(plan.voters, plan.copies)
        return True

    def leave(self) -> None:
        """Note that this router is about to stop."""
        self._leaves = True
        self.raft.leave()

    def receive(self, envelope: Envelope, now: float) -> None:
        """Take a message of another replica. Raises BreachError if it breaks the protocol."""
        if isinstance(envelope.body, Piece):
            size = self._received.size if envelope.body.place else 0
            if size > MOST_STATE:
                what = f"the snapshot of a set has {size} bytes without the bodies of messages"
                raise BreachError(f"{what}, expected {MOST_STATE} at most")
        self.raft.receive(envelope, now)

    def ask(self, router: str, requests: Iterable[tuple[int, bytes]]) -> None:
        """Take operations that a router requests. If this router leads, it proposes them."""
        for number, data in requests:
            operation = decode(data)
            if isinstance(operation, Browse):
                self.browses.append((router, number, operation))
            elif isinstance(operation, Commit):
                self.commits.append((router, number, operation))
            else:
                self._asked.append((router, number, data))

    def forget(self, router: str) -> None:
        """Forget the requests of a router whose contact has ended; they need no answer."""
        self._asked = [asked for asked in self._asked if asked[0] != router]
        self.commits = [asked for asked in self.commits if asked[0] != router]
        self._proposed = {index: asked for index, asked in self._proposed.items() if asked[1] != router}

    def stored(self, write: Write, now: float) -> None:
        """The store has finished a write. A write to a store that has been set aside since does not count."""
        if self._writes and self._writes[0] is write:
            self._writes.popleft()
            if write.persist.snapshot is not None:
                self._on_disk = write.persist.snapshot.index
            self._drop_bodies()
            self.raft.persisted(write.persist.number, now)

    def _drop_bodies(self) -> None:
        """Drop some bodies that the snapshot on the disk has. This takes time, so only a few bodies are dropped after
        each finished write."""
        messages = self.state.rows.messages
        if messages.kept_size > KEPT_BODIES and self._restoring is None:
            messages.drop(position_of(self._on_disk + 1, 0) - 1, DROPPED)

    def read_bodies(self, number: int, queue: QueueId | None, positions: Sequence[int]) -> None:
        """Start a read of the bodies of these messages, which are not in memory. `queue`: the queue of the messages, or
        None for the outbox. The answer comes in `bodies`."""
        read = ReadBodies(self.plan.name, number, positions)
        self._reading[number] = read, queue
        self.out.append(read)

    def bodies_read(self, read: ReadBodies, found: FoundBodies) -> None:
        """Take bodies that the store has read. A body counts only if the present state has asked for it and its message
        still exists. If the store lacks such a body, or has another one, the store is damaged."""
        if read.number not in self._reading:
            return
        _, queue = self._reading.pop(read.number)
        messages, bodies = self.state.messages, dict[int, bytes]()
        rows = messages.of(queue) if queue is not None else messages.sent
        for position, body in zip(read.positions, found, strict=True):
            if position not in rows:
                continue
            if body is None or not rows.is_body(position, body):
                self.raft.set_aside(f"the body of the message at position {position} is missing, or damaged")
                break
            bodies[position] = body
        self.bodies.append((read.number, bodies))

    def _forget_reads(self) -> None:
        """Forget the reads under way, which were for the former state. The state has been replaced."""
        self.bodies += [(number, {}) for number in self._reading]
        self._reading.clear()

    def piece_read(self, piece: ReadPiece, found: FoundPiece | None) -> None:
        """The store has read a piece. `found`: None if the snapshot is at another index."""
        for read in [read for one, read in self._reads if one is piece]:
            self._reads = [one for one in self._reads if one[0] is not piece]
            if found is not None:
                data, is_last = found
                rows = read_piece(data)
                self.raft.read(read, data, rows[-1][0] if rows else b"", is_last)

    # The methods from here on perform actions of the Raft.

    def flush(self, contacts: Collection[str], now: float) -> None:
        """Propose the requests, and perform the actions of the Raft. `contacts`: the routers in contact."""
        self._propose()
        self._go_on_restoring()
        while (actions := self.raft.flush(now)) or self._compact():
            for action in actions:
                self._do(action)
            if self.raft.why_aside:
                self._renew(contacts, now)
        self._restores_at = now if self._restoring is not None else math.inf
        if self.raft.leadership is None:
            # The routers whose requests were proposed learn of the new leader, and send their requests to it.
            self._proposed.clear()

    def _propose(self) -> None:
        """Propose the requests of routers. If this router is busy or does not lead, it answers `BUSY` at once."""
        asked, self._asked = self._asked, []
        if not asked:
            return
        try:
            first = self.raft.propose([entry(self.raft.hard.life, data) for _, _, data in asked])
        except (NotLeaderError, BusyError) as error:
            busy = Refused(RefusedFor.BUSY, str(error))
            self.answers += [(router, number, busy) for router, number, _ in asked]
        else:
            for index, (router, number, _) in enumerate(asked, first):
                self._proposed[index] = self.raft.hard.term, router, number

    def _do(self, action: Action) -> None:
        name = self.plan.name
        if isinstance(action, Send):
            self.out.append(Tell(action.envelope.receiver.router, encode(name, action.envelope)))
        elif isinstance(action, Persist):
            self._write(action)
        elif isinstance(action, Committed):
            self._take_decided(action)
        elif isinstance(action, Restore):
            self._restore(action)
        elif isinstance(action, Read):
            after = begins_behind(action.index, action.has, action.after)
            read = ReadPiece(name, action.index, after, action.size)
            self._reads.append((read, action))
            self.out.append(read)
        elif isinstance(action, Agreed):
            self._agreed.append(action.index)
        elif isinstance(action, Alarm):
            self.out.append(SetNote(f"set {name}: {action.why}"))

    def _write(self, persist: Persist) -> None:
        compacted, self._compacted = self._compacted, None
        self._writes.append(Write(self.plan.name, persist, compacted))
        self.out.append(self._writes[-1])
        for piece in persist.pieces:
            if not piece.place:
                self._drop_received()
            if piece.index:
                self._received.add(piece.index, piece.data)

    def _drop_received(self) -> None:
        """Drop the pieces of a leader's snapshot that have come so far."""
        if self._received.size:
            what = f"the pieces of a copy of the leader's state are dropped: {self._received.came}"
            self.out.append(SetNote(f"set {self.plan.name}: {what}"))
        self._received = SnapshotRows()

    # The methods from here on are about the state of the set.

    def _state(self, rows: Iterable[Row], read: StateRows | None = None) -> SetState:
        """Make the state from these rows, and from the rows in `read`. Together they must be the rows of the state at
        the applied index. Raises ValueError if the rows are not a valid state."""
        self._messages = ReplicaLog(self.plan.name, self._name_of)
        state = SetState(rows, self._messages, read=read)
        if self.applied:
            self._log_content(state, begins=True)
        return state

    def _name_of(self, queue: QueueId) -> str | None:
        return self.state.name_of(queue)

    def _log_content(self, state: SetState, *, begins: bool) -> None:
        """Write into the delivery log how many messages this replica has, and the sum of their positions. All replicas
        have the same numbers at the same index."""
        told = {"set": self.plan.name, "life": str(self.raft.hard.life), "index": self.applied}
        told |= {"messages": state.messages.count, "positions": state.messages.positions_sum}
        told |= {"begins": begins}
        self.out.append(Logged(Event.CONTENT, {"detail": json.dumps(told)}))

    def _take_decided(self, committed: Committed) -> None:
        if self._restoring is not None:
            self._restoring.decided.append(committed)
            return
        for index, decided in enumerate(committed.entries, committed.first):
            self._apply(index, decided)

    def _apply(self, index: int, decided: Entry) -> None:
        if decided.data:
            answer = self.state.apply(index, decided.data)
            self.out += self._messages.out
            self._messages.out.clear()
            term, router, number = self._proposed.pop(index, (0, "", 0))
            told = answer.answer if isinstance(answer, Transacted) else answer
            if isinstance(told, Done | Refused) and term == decided.term:
                self.answers.append((router, number, told))
            if not isinstance(answer, Done | Refused) and self.raft.leadership is not None:
                self.decided.append((index, answer))
        self.applied = index
        if index % self._compare_every == 0 or self.state.rows.changed >= CHANGED:
            self._changes[index] = self.state.rows.take_changes()
            if len(self._changes) > KEPT:
                first, second, *_ = self._changes
                older = self._changes.pop(first)
                older.update(self._changes[second])
                self._changes[second] = older
            self.raft.digested(index, self.state.rows.digest)
            self._log_content(self.state, begins=False)

    def _restore(self, action: Restore) -> None:
        """Begin to read the leader's snapshot, which takes the place of the state (protocol 13.6)."""
        while self._restoring is not None:
            self._go_on_restoring()
        self.out.append(SetNote(f"set {self.plan.name}: a copy of the leader's state has come: {self._received.came}"))
        rows = self._received.read(self.state.rows.messages)
        self._restoring = _Restoring(action.snapshot.index, rows, StateRows(), [])
        self._changes.clear()
        self._agreed.clear()
        self._received = SnapshotRows()
        self._forget_reads()
        self._go_on_restoring()

    def _go_on_restoring(self) -> None:
        """Read some rows of the leader's snapshot. After the last one, take the state that they make, and apply the
        entries that were decided meanwhile."""
        restoring = self._restoring
        if restoring is None:
            return
        try:
            if restoring.rows.read(islice(restoring.left, RESTORED)) == RESTORED:
                return
            self._restoring, self.applied = None, restoring.index
            self.state = self._state((), restoring.rows)
        except ValueError as error:
            self._restoring = None
            self.raft.set_aside(f"the leader's snapshot is damaged: {error}")
            return
        for committed in restoring.decided:
            self._take_decided(committed)

    def _compact(self) -> bool:
        """Choose a state on which a majority agrees, make it the snapshot, and drop the log up to it. Returns whether a
        state was chosen.

        Entries stay if a replica in contact still needs them, or if a replica out of contact may need them.
        """
        self._agreed = [index for index in self._agreed if index in self._changes]
        free = [index for index in self._agreed if not self._is_needed(index)]
        index = max((index for index in free if self._is_far_behind(index)), default=0)
        if not index and len(self._changes) == KEPT:  # `_changes` has no room for a further compared state
            index = min(free, default=0)
        if not index:
            return False
        merged: dict[bytes, bytes | None] = {}
        for earlier in [one for one in self._changes if one <= index]:
            merged.update(self._changes.pop(earlier))
        self._compacted = merged
        self.raft.compact(index)
        return True

    def _is_far_behind(self, index: int) -> bool:
        """Whether the log after this index has so many bytes (`BEHIND`) that the replica may drop the entries up to the
        index. A replica out of contact that lacks dropped entries gets a snapshot."""
        log = self.raft.log
        return log.size(index, log.last) >= min(BEHIND, self.state.messages.size // 4)

    def _is_needed(self, index: int) -> bool:
        """Whether a replica in contact lacks an entry up to this index, and still needs it. A replica to which the
        leader sends messages of a snapshot needs no entry: the leader goes on with messages of a later snapshot. If the
        log has `DELAYED` bytes, the result is False."""
        leadership, log = self.raft.leadership, self.raft.log
        if leadership is None or log.size(log.snapshot.index, log.last) >= DELAYED:
            return False
        lacking = (progress for progress in leadership.progress.values() if progress.lacks(index))
        return any(one.end is None or section_of(one.end) is not Section.MESSAGES for one in lacking)

    def _renew(self, contacts: Collection[str], now: float) -> None:
        """Begin anew with an empty store that has another identity, because the present store is void."""
        why, store = self.raft.why_aside, self._new_store()
        self.why_aside = why
        self.out.append(Renew(self.plan.name, store, why))
        text = f"set {self.plan.name}: its store at this router is set aside: {why}"
        self.out.append(SetEvent(SetChange.ASIDE, self.plan.name, text, why=why))
        self._propose()  # refuses the requests, because this router does not lead
        self._forget_reads()
        former = self.raft.stores
        self._begin(SetContent(store, StoreContent(), PackedRows()), now)
        for router in contacts:
            self.raft.connect(router, now)
        self.raft.stores.inherit(former)

    def check(self) -> None:
        """Assert the invariants that hold between two events."""
        self.raft.check()
        is_equal = self.applied == self.raft._applied
        assert is_equal or self._restoring is not None, "the queues have other entries than the Raft knows"
        assert not self._proposed or self.raft.leadership is not None
        assert len(self._changes) <= KEPT and not self._asked and self._compacted is None
