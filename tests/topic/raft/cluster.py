"""A set of replicas in virtual time, with a network and disks that a test breaks.

A disk finishes writes in order, when the test says so. A crash keeps any number of those that were not finished: the
kernel may have written them, or not. A contact begins and ends at each of its two ends separately. Messages on a
channel arrive in order while the contact lasts, and are lost with it. `check` holds after each step. The state of a
replica is the list of entries that it has applied, and perhaps rot, so a snapshot shows which entries it stands for.
"""

import contextlib
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, count

import attrs

from topic.raft.configuration import Replica
from topic.raft.errors import BusyError
from topic.raft.life import SetLife
from topic.raft.limits import RaftLimits
from topic.raft.log import NOTHING, Entry
from topic.raft.messages import (
    Action,
    Agreed,
    Committed,
    Envelope,
    Greeting,
    Hard,
    Led,
    Persist,
    Propose,
    Read,
    Restore,
    Send,
    SetAside,
    StagedPiece,
    StoreContent,
    Voted,
)
from topic.raft.raft import Raft, RaftRole

MAPPING = b"map"
MOST_STEPS = 5_000
"""Steps until a set is at rest: ten times as many as any test needs. A broken rule may let a set step for ever."""


@attrs.frozen(slots=True)
class State:
    """What the applied entries have made of a replica."""

    applied: tuple[Entry, ...] = ()
    rot: int = 0
    """How often the state was changed by a fault, without a decision."""

    @property
    def digest(self) -> bytes:
        return f"{len(self.applied)} {self.rot}".encode()

    def piece(self, read: Read) -> tuple[bytes, bytes, bool]:
        """The two entries behind those that a member has, and the rot. Also returns the end of the piece, which is the
        number of the entries up to there, and whether it is the last one."""
        has = int(read.after) if read.after else read.has
        end = min(has + 2, len(self.applied))
        return pickle.dumps((has, self.applied[has:end], self.rot)), b"%d" % end, end == len(self.applied)

    def with_pieces(self, pieces: Sequence[bytes]) -> "State":
        """The state of a leader's snapshot: what this one, a former state, has before the pieces stays."""
        applied, rot = self.applied, 0
        for place, piece in enumerate(pieces):
            has, part, rot = pickle.loads(piece)
            assert has <= len(applied) if not place else has == len(applied), "a piece is missing"
            applied = (*applied[:has], *part)
        return State(applied, rot)


def put_aside(pieces: list[bytes], more: Sequence[StagedPiece]) -> None:
    """Put pieces of a leader's snapshot aside."""
    for piece in more:
        if not piece.place:
            pieces.clear()
        assert len(pieces) == piece.place, "a piece is put aside out of order"
        if piece.index:
            pieces.append(piece.data)


class Disk:
    """One store: its durable content, and the writes and reads under way."""

    def __init__(self, store: bytes) -> None:
        self.store = store
        self.hard = Hard()
        self.snapshot = NOTHING
        self.state = State()
        """The state at the snapshot."""
        self.aside: dict[int, State] = {}
        """Keyed by index: states that may become the snapshot."""
        self.pieces: list[bytes] = []
        """The pieces of a leader's snapshot that have come."""
        self.entries: list[Entry] = []
        self.writes: deque[Persist | Read] = deque()

    @property
    def content(self) -> StoreContent:
        return StoreContent(self.hard, self.snapshot, tuple(self.entries))

    def has(self, index: int, entry: Entry) -> bool:
        place = index - self.snapshot.index
        return place <= 0 or self.entries[place - 1 : place] == [entry]

    def finish(self) -> Persist | Read:
        """Finish the oldest write or read."""
        write = self.writes.popleft()
        if isinstance(write, Persist):
            self.hard = write.hard
            put_aside(self.pieces, write.pieces)
            if write.snapshot is not None:
                del self.entries[: write.snapshot.index - self.snapshot.index]
                self.snapshot = write.snapshot
                made = self.aside.pop(write.snapshot.index, None)
                if made is None:
                    made = self.state.with_pieces(self.pieces)
                    self.pieces.clear()
                self.state = made
                assert len(self.state.applied) == write.snapshot.index
            self.entries[write.first - self.snapshot.index - 1 :] = write.entries
        return write

    def crash(self, kept: int) -> None:
        """The process ends. Of the writes under way, the first `kept` have reached the disk."""
        for _ in range(min(kept, len(self.writes))):
            self.finish()
        self.writes.clear()


class Host:
    """One router: its disk, and its process while it lives."""

    def __init__(self, router: str, store: bytes) -> None:
        self.router = router
        self.disk = Disk(store)
        self.raft: Raft | None = None
        self.contacts: dict[str, int] = {}
        """Router in contact -> number of the contact."""
        self.state = State()
        self.states: dict[int, State] = {}
        """Keyed by index: states whose digest was sent."""
        self.received: list[bytes] = []
        """Pieces of a leader's snapshot that are stored aside."""

    @property
    def applied(self) -> list[Entry]:
        return list(self.state.applied)


class Cluster:
    """Replicas by router; the ring is in the order of their names."""

    def __init__(
        self,
        routers: Sequence[str],
        *,
        ring: Sequence[str] = (),
        draw: Callable[[], float] = lambda: 0.5,
        limits: RaftLimits | None = None,
        digests: int = 0,
        compacts: Callable[[], bool] = lambda: True,
    ) -> None:
        """`digests`: after how many entries each replica sends its digest; 0: never. `compacts`: whether a state that a
        majority has becomes the snapshot."""
        self.now = 0.0
        self.ring = tuple(ring or routers)
        self.limits = limits or RaftLimits()
        self._draw = draw
        self._digests = digests
        self._compacts = compacts
        self._contact = 0
        """Number of the latest contact."""
        self._clock = 99
        self._stores = dict.fromkeys(routers, 0)
        """The number of stores that each router has had."""
        self.replicas = {router: Host(router, self._new_store(router)) for router in routers}
        self.channels: dict[tuple[str, str], deque[tuple[int, Envelope]]] = {}
        """Keyed by sender and receiver: the contact's number and the message, in order."""
        self.said: list[str] = []
        """For golden scripts: a line for each message that has arrived, and for each change of a leader."""
        self._leaders: dict[tuple[SetLife, int], Replica] = {}
        self._votes: dict[tuple[Replica, SetLife, int], Replica] = {}
        self.decided: dict[tuple[SetLife, int], Entry] = {}
        """Keyed by life and index."""
        self._decided_in: dict[tuple[SetLife, int], int] = {}
        """Keyed by life and index: the term of the leader that has decided the entry."""
        for router in routers:
            self.start(router)

    def _new_store(self, router: str) -> bytes:
        self._stores[router] += 1
        return f"{router}{self._stores[router]}".encode()

    def read_clock(self) -> int:
        self._clock += 1
        return self._clock

    def changing(self, router: str) -> Host:
        """The host of the router, which is about to change."""
        return self.replicas[router]

    # processes and disks

    def start(self, router: str) -> None:
        replica = self.changing(router)
        disk = replica.disk
        me = Replica(router, disk.store)
        replica.state, replica.states, replica.received = disk.state, {}, []
        replica.raft = Raft(
            me,
            tuple(self.replicas),
            self.ring,
            MAPPING,
            disk.content,
            self.limits,
            self._draw,
            self.read_clock,
            self.now,
        )
        self._after(replica)

    def crash(self, router: str, kept: int = 0) -> None:
        """The process ends. Its contacts end at once at its own end, and later at the other ends."""
        replica = self.changing(router)
        replica.raft = None
        replica.disk.crash(kept)
        replica.contacts.clear()
        for channel in self.channels:
            if channel[0] == router:
                self.channels[channel].clear()

    def replace_disk(self, router: str) -> None:
        """The process ends, and the next one finds an empty store."""
        self.crash(router)
        self.changing(router).disk = Disk(self._new_store(router))

    def finish(self, router: str) -> None:
        """The oldest write or read of the router's disk is done."""
        replica = self.changing(router)
        disk, raft = replica.disk, replica.raft
        done = disk.finish()
        assert raft is not None
        if isinstance(done, Persist):
            raft.persisted(done.number, self.now)
        elif done.index == disk.snapshot.index:
            raft.read(done, *disk.state.piece(done))
        self._after(replica)

    # contacts

    def sees(self, router: str, other: str) -> bool:
        return other in self.replicas[router].contacts

    def lose(self, router: str, other: str) -> None:
        """The router notices that its contact with the other has ended."""
        replica = self.changing(router)
        if replica.contacts.pop(other, None) is not None and replica.raft is not None:
            replica.raft.disconnect(other, self.now)
            self._after(replica)

    def meet(self, router: str, other: str) -> None:
        """Begin a new contact. An earlier one ends at both ends first."""
        self.lose(router, other)
        self.lose(other, router)
        self._contact += 1
        for one, two in ((router, other), (other, router)):
            self.channels[one, two] = deque()
            self.changing(one).contacts[two] = self._contact
        for one, two in ((router, other), (other, router)):
            replica = self.changing(one)
            assert replica.raft is not None
            replica.raft.connect(two, self.now)
            self._after(replica)

    def meet_all(self) -> None:
        for one, two in combinations(self.replicas, 2):
            if (
                self.replicas[one].raft
                and self.replicas[two].raft
                and not (self.sees(one, two) and self.sees(two, one))
            ):
                self.meet(one, two)

    def cut(self, router: str, *others: str) -> None:
        for other in others or [name for name in self.replicas if name != router]:
            self.lose(router, other)
            self.lose(other, router)

    def waiting(self) -> list[tuple[str, str]]:
        """The channels on which a message can arrive now."""
        return [
            (sender, receiver)
            for (sender, receiver), channel in self.channels.items()
            if channel and self.replicas[receiver].raft is not None
        ]

    def deliver(self, sender: str, receiver: str) -> None:
        """The next message arrives. It is dropped if the receiver has lost the contact in which it was sent."""
        number, envelope = self.channels[sender, receiver].popleft()
        replica = self.changing(receiver)
        if replica.contacts.get(sender) == number and replica.raft is not None:
            self.said.append(f"{sender} → {receiver}  {_text(envelope)}")
            replica.raft.receive(envelope, self.now)
            self._after(replica)

    # time and clients

    def tick(self, router: str) -> None:
        """Let time pass until the router's deadline."""
        replica = self.changing(router)
        assert replica.raft is not None
        self.now = max(self.now, replica.raft.deadline)
        replica.raft.tick(self.now)
        self._after(replica)

    def do(self, router: str, what: Callable[[Raft], object]) -> None:
        """Call a method of the router's replica."""
        replica = self.changing(router)
        assert replica.raft is not None
        what(replica.raft)
        self._after(replica)

    def propose(self, router: str, *data: bytes) -> None:
        self.do(router, lambda raft: raft.propose(data))

    def compact(self, router: str) -> None:
        """Make the router's state its snapshot, whatever the other replicas have."""
        replica = self.changing(router)
        index = len(replica.state.applied)
        replica.disk.aside[index] = replica.state
        self.do(router, lambda raft: raft.compact(index))

    def hand_over(self, router: str, to: str) -> None:
        self.do(router, lambda raft: raft.hand_over(Replica(to, self.replicas[to].disk.store), self.now))

    def set_ring(self, ring: Sequence[str]) -> None:
        """An operator wants these voters. Leaders of a set that has begun take them if they can. Otherwise all routers
        read them, those that do not run when they start."""
        self.ring = tuple(ring)
        for router in self.replicas:
            if self.replicas[router].raft is not None:
                self.do(router, lambda raft: raft.follow_ring(self.ring))
        for router in self.leaders():
            with contextlib.suppress(BusyError):
                self.do(router, lambda raft: raft.choose(self.ring, self.now))

    def leaders(self) -> list[str]:
        return [
            name
            for name, replica in self.replicas.items()
            if replica.raft is not None and replica.raft.role is RaftRole.LEADER
        ]

    def settle(self, *, hanging: Sequence[str] = (), seconds: float = 30.0) -> None:
        """Let messages arrive and disks write, and time pass, until nothing is left to do."""
        end = self.now + seconds
        for _ in range(MOST_STEPS):
            if not self.step_without_time(hanging):
                due = self.next_deadline()
                if due is None or due[0] > end:
                    self.check_rest(hanging)
                    return
                self.tick(due[1])
        raise AssertionError("the set does not come to rest")

    def check_rest(self, hanging: Sequence[str] = ()) -> None:
        """Nothing is under way, unless a disk hangs: members in contact with a leader must follow it, and no replica
        may follow another one."""
        rafts = {name: replica.raft for name, replica in self.replicas.items() if replica.raft is not None}
        for name, raft in rafts.items():
            if raft.leader is not None and raft.leader != raft.me and self.are_in_contact(name, raft.leader.router):
                led = rafts[raft.leader.router]
                is_member = raft.me in led.log.configuration.members and led.role is RaftRole.LEADER
                assert led.role is RaftRole.LEADER or not self._has_vote(raft), (
                    f"{name} follows {led.me.router}, which leads not"
                )
                assert led.hard.term == raft.hard.term or not is_member, f"{name} follows a leader of another term"
        for name in self.leaders():
            for member in rafts[name].log.configuration.members:
                is_there = self.are_in_contact(name, member.router) and rafts[member.router].me == member
                if is_there and member.router not in hanging:  # a replaced store is no member yet
                    assert rafts[member.router].leader == rafts[name].me, f"{member.router} does not follow {name}"

    def are_in_contact(self, one: str, two: str) -> bool:
        """Whether both routers consider their present contact intact."""
        return self.sees(one, two) and self.replicas[one].contacts[two] == self.replicas[two].contacts.get(one)

    @staticmethod
    def _has_vote(raft: Raft) -> bool:
        return raft.me in raft.log.configuration.voters

    def step_without_time(self, hanging: Sequence[str] = ()) -> bool:
        for sender, receiver in self.waiting():
            self.deliver(sender, receiver)
            return True
        for name, replica in self.replicas.items():
            if replica.raft is not None and replica.disk.writes and name not in hanging:
                self.finish(name)
                return True
        return False

    def next_deadline(self) -> tuple[float, str] | None:
        """The next deadline of a replica, with its router. None if there is none."""
        due = [
            (replica.raft.deadline, name)
            for name, replica in self.replicas.items()
            if replica.raft is not None and replica.raft.deadline != float("inf")
        ]
        return min(due, default=None)

    # actions of replicas

    def _after(self, replica: Host) -> None:
        raft = replica.raft
        assert raft is not None
        for flushes in count():
            assert flushes < 100, "a replica asks for more and more"
            if not (actions := raft.flush(self.now)):
                break
            for action in actions:
                self._do(replica, raft, action)
        raft.check()
        self.check()
        if raft.why_aside:
            others = dict(replica.contacts)
            self.replace_disk(replica.router)
            self.start(replica.router)
            for other in others:
                if self.replicas[other].raft is not None:
                    self.meet(replica.router, other)

    def _do(self, replica: Host, raft: Raft, action: Action) -> None:
        if isinstance(action, Persist):
            replica.disk.writes.append(action)
            put_aside(replica.received, action.pieces)
        elif isinstance(action, Read):
            replica.disk.writes.append(action)
        elif isinstance(action, Send):
            self._transmit(replica, action.envelope)
        elif isinstance(action, Committed):
            self._decide(replica, action)
        elif isinstance(action, Restore):
            replica.state, replica.states = replica.state.with_pieces(replica.received), {}
            replica.received.clear()
            assert len(replica.state.applied) == action.snapshot.index
        elif isinstance(action, Agreed):
            if action.index > raft.log.snapshot.index and self._compacts():
                replica.disk.aside[action.index] = replica.states[action.index]
                raft.compact(action.index)
        elif isinstance(action, Led):
            leader = action.leader.router if action.leader else "nobody"
            self.said.append(f"{replica.router}: {leader} leads in term {action.term}")
        elif isinstance(action, SetAside):
            self.said.append(f"{replica.router}: set aside, {action.why}")
        else:
            self.said.append(f"{replica.router}: alarm, {action.why}")

    def _transmit(self, replica: Host, envelope: Envelope) -> None:
        to = envelope.receiver.router
        if to in replica.contacts:
            self.channels[replica.router, to].append((replica.contacts[to], envelope))
        if isinstance(envelope.body, Voted):
            key = (envelope.sender, envelope.life, envelope.body.term)
            assert self._votes.setdefault(key, envelope.receiver) == envelope.receiver, f"{key} votes twice"
            hard = replica.disk.hard
            assert hard.term >= envelope.body.term, "a vote leaves before it is on the disk"

    def _decide(self, replica: Host, committed: Committed) -> None:
        assert replica.raft is not None
        life = replica.raft.hard.life
        if replica.raft.role is RaftRole.LEADER:
            self._check_durable(replica.raft)
        assert committed.first == len(replica.state.applied) + 1, "an entry is applied out of order"
        for index, entry in enumerate(committed.entries, committed.first):
            known = self.decided.setdefault((life, index), entry)
            assert known == entry, f"two entries are decided at {index} of life {life}: {known}, {entry}"
            self._decided_in.setdefault((life, index), replica.raft.hard.term)
            replica.state = attrs.evolve(replica.state, applied=(*replica.state.applied, entry))
            if self._digests and index % self._digests == 0:
                replica.states[index] = replica.state
                replica.raft.digested(index, replica.state.digest)

    # what always holds

    def check(self) -> None:
        living = [replica for replica in self.replicas.values() if replica.raft is not None]
        for replica in living:
            assert replica.raft is not None
            raft = replica.raft
            if raft.role is RaftRole.LEADER:
                key = (raft.hard.life, raft.hard.term)
                if key not in self._leaders:
                    self._check_complete(raft)
                assert self._leaders.setdefault(key, raft.me) == raft.me, f"two lead in term {key[1]}"

    def _check_complete(self, raft: Raft) -> None:
        """Check that a new leader has all entries of earlier terms of its life (Raft, 3.6.3). If its last vote arrives
        late, a leader of a later term may have decided some by then."""
        for (life, index), entry in self.decided.items():
            if life == raft.hard.life and self._decided_in[life, index] < raft.hard.term:
                assert raft.log.last >= index, f"the leader of term {raft.hard.term} lacks entry {index}"
                assert self._log(raft)[index - 1] == entry, f"the leader has another entry at {index}"

    def _check_durable(self, raft: Raft) -> None:
        """Check that a majority of disks has what a leader has decided. The majority may be that of the configuration
        before: the leader may have appended a change after it had decided."""
        commit = raft.log.commit
        if raft.log.term(commit) != raft.hard.term:
            return
        entries = self._log(raft)
        entry = entries[commit - 1]
        latest = [one.configuration for one in entries if one.configuration is not None][-2:]
        assert any(self._has_majority(one.voters, commit, entry) for one in latest), (
            f"entry {commit} is on too few disks"
        )

    def _has_majority(self, voters: Sequence[Replica], index: int, entry: Entry) -> bool:
        """Whether a majority of disks has the entry. Disks that were lost since may have had it."""
        count = 0
        for voter in voters:
            disk = self.replicas[voter.router].disk
            count += disk.store != voter.store or disk.has(index, entry)
        return 2 * count > len(voters)

    def logs(self) -> Iterator[tuple[SetLife, tuple[Entry, ...]]]:
        """The life and the log of each replica that runs."""
        for replica in self.replicas.values():
            if replica.raft is not None:
                yield replica.raft.hard.life, self._log(replica.raft)

    def _log(self, raft: Raft) -> tuple[Entry, ...]:
        """All entries, including those in the snapshot."""
        first = raft.log.snapshot.index + 1
        before = self.replicas[raft.me.router].state.applied[: first - 1]
        return (*before, *raft.log.entries(first, raft.log.last))

    def check_matching(self) -> None:
        """Check that two logs of a life that share an entry of one index and term are equal up to it (Raft, 3.5)."""
        for (life, one), (other, two) in combinations(self.logs(), 2):
            for index in range(min(len(one), len(two)) - 1, -1, -1) if life == other else ():
                if one[index].term == two[index].term:
                    assert one[: index + 1] == two[: index + 1], "two logs differ before an entry that they share"
                    break


def _text(envelope: Envelope) -> str:
    body = envelope.body
    fields = attrs.asdict(body, recurse=False)
    if "entries" in fields:
        fields["entries"] = "[" + " ".join(_entry(entry) for entry in fields["entries"]) + "]"
    for name in ("mapping", "ring", "data"):
        fields.pop(name, None)
    if "snapshot" in fields:
        fields["snapshot"] = fields["snapshot"].index
    if "digest" in fields:
        fields["digest"] = fields["digest"].decode().replace(" ", "+")
    if isinstance(body, Greeting):
        fields["life"] = envelope.life or "none"
    if isinstance(body, Propose):
        fields = {
            "life": envelope.life,
            "voters": " ".join(member.router for member in body.configuration.voters),
            "anew": body.anew,
        }
    told = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{type(body).__name__} {told}".strip()


def _entry(entry: Entry) -> str:
    if (members := entry.configuration) is not None:
        voters, learners = ("".join(member.router for member in some) for some in (members.voters, members.learners))
        return f"{entry.term}:voters={voters}" + (f"+{learners}" if learners else "") + f"/{''.join(members.ring)}"
    return f"{entry.term}:{entry.data.decode() or 'begin'}"
