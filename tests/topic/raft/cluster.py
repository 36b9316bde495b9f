"""A set of replicas with a network and disks that a test breaks, in virtual time.

A disk finishes writes in order, when the test says so. A crash keeps any number of those that were not finished: the
kernel may have written them, or not. A contact begins and ends at each of its two ends by itself. What is on a channel
arrives in order while the contact lasts, and is lost with it. `check` holds after each step.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, count

import attrs

from topic.raft.configuration import Replica
from topic.raft.limits import RaftLimits
from topic.raft.log import Entry
from topic.raft.messages import (
    Committed,
    Envelope,
    Greeting,
    Hard,
    Led,
    Persist,
    Propose,
    Send,
    SetAside,
    Voted,
)
from topic.raft.raft import Raft, RaftRole

MAPPING = b"map"


class Disk:
    """One store: what it has for certain, and the writes that are under way."""

    def __init__(self, store: bytes) -> None:
        self.store = store
        self.hard = Hard()
        self.entries: list[Entry] = []
        self.writes: deque[Persist] = deque()

    def finish(self) -> int:
        """The oldest write is on the disk. Returns its number."""
        write = self.writes.popleft()
        self.hard = write.hard
        if write.entries:
            self.entries[write.first - 1 :] = write.entries
        return write.number

    def crash(self, kept: int) -> None:
        """Of the writes under way, the first `kept` have reached the disk."""
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
        """Routers that it sees, and the number of the contact."""
        self.applied: list[Entry] = []


class Cluster:
    """Replicas by router; the ring is in the order of their names."""

    def __init__(
        self,
        routers: Sequence[str],
        *,
        ring: Sequence[str] = (),
        draw: Callable[[], float] = lambda: 0.5,
        limits: RaftLimits | None = None,
    ) -> None:
        self.now = 0.0
        self.ring = tuple(ring or routers)
        self.limits = limits or RaftLimits()
        self._draw = draw
        self._numbers = count(1)
        self._lives = count(100)
        self.replicas = {router: Host(router, self._new_store(router)) for router in routers}
        self.channels: dict[tuple[str, str], deque[tuple[int, Envelope]]] = {}
        """By sender and receiver: the contact's number and the message, in order."""
        self.said: list[str] = []
        """A line for each message that has arrived, and each change of a leader: for golden scripts."""
        self._leaders: dict[tuple[int, int], Replica] = {}
        self._votes: dict[tuple[Replica, int, int], Replica] = {}
        self.decided: dict[tuple[int, int], Entry] = {}
        """By life and index."""
        for router in routers:
            self.start(router)

    def _new_store(self, router: str) -> bytes:
        return f"{router}{next(self._numbers)}".encode()

    # processes and disks

    def start(self, router: str) -> None:
        replica = self.replicas[router]
        disk = replica.disk
        me = Replica(router, disk.store)
        replica.applied = []
        replica.raft = Raft(
            me,
            self.ring,
            MAPPING,
            disk.hard,
            disk.entries,
            self.limits,
            self._draw,
            lambda: next(self._lives),
            self.now,
        )
        self._after(replica)

    def crash(self, router: str, kept: int = 0) -> None:
        """The process ends. Its contacts end at once at its own end, and later at the others'."""
        replica = self.replicas[router]
        replica.raft = None
        replica.disk.crash(kept)
        replica.contacts.clear()
        for channel in self.channels:
            if channel[0] == router:
                self.channels[channel].clear()

    def replace_disk(self, router: str) -> None:
        """A crash, and the next process finds an empty store."""
        self.crash(router)
        self.replicas[router].disk = Disk(self._new_store(router))

    def finish(self, router: str) -> None:
        """The oldest write of the router's disk is done."""
        replica = self.replicas[router]
        number = replica.disk.finish()
        assert replica.raft is not None
        replica.raft.persisted(number, self.now)
        self._after(replica)

    # contacts

    def sees(self, router: str, other: str) -> bool:
        return other in self.replicas[router].contacts

    def lose(self, router: str, other: str) -> None:
        """The router notices that its contact with the other has ended."""
        replica = self.replicas[router]
        if replica.contacts.pop(other, None) is not None and replica.raft is not None:
            replica.raft.disconnect(other, self.now)
            self._after(replica)

    def meet(self, router: str, other: str) -> None:
        """A new contact: an earlier one has ended for both by then."""
        self.lose(router, other)
        self.lose(other, router)
        number = next(self._numbers)
        for one, two in ((router, other), (other, router)):
            self.channels[one, two] = deque()
            self.replicas[one].contacts[two] = number
        for one, two in ((router, other), (other, router)):
            raft = self.replicas[one].raft
            assert raft is not None
            raft.connect(two, self.now)
            self._after(self.replicas[one])

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
        """Channels on which a message can arrive now."""
        return [
            (sender, receiver)
            for (sender, receiver), channel in self.channels.items()
            if channel and self.replicas[receiver].raft is not None
        ]

    def deliver(self, sender: str, receiver: str) -> None:
        """The next message arrives; it is dropped if the receiver has another contact by now, or none."""
        number, envelope = self.channels[sender, receiver].popleft()
        replica = self.replicas[receiver]
        if replica.contacts.get(sender) == number and replica.raft is not None:
            self.said.append(f"{sender} → {receiver}  {_text(envelope)}")
            replica.raft.receive(envelope, self.now)
            self._after(replica)

    # time and clients

    def tick(self, router: str) -> None:
        """Time goes on to the router's deadline."""
        replica = self.replicas[router]
        assert replica.raft is not None
        self.now = max(self.now, replica.raft.deadline)
        replica.raft.tick(self.now)
        self._after(replica)

    def do(self, router: str, what: Callable[[Raft], object]) -> None:
        """Something is asked of the router's replica."""
        replica = self.replicas[router]
        assert replica.raft is not None
        what(replica.raft)
        self._after(replica)

    def propose(self, router: str, *data: bytes) -> None:
        self.do(router, lambda raft: raft.propose(data))

    def hand_over(self, router: str, to: str) -> None:
        self.do(router, lambda raft: raft.hand_over(Replica(to, self.replicas[to].disk.store), self.now))

    def set_ring(self, ring: Sequence[str]) -> None:
        """An operator wants these voters: all routers read it, those that do not run as they start."""
        self.ring = tuple(ring)
        for replica in self.replicas.values():
            if replica.raft is not None:
                replica.raft.stores.ring = self.ring
                self._after(replica)

    def leaders(self) -> list[str]:
        return [
            name
            for name, replica in self.replicas.items()
            if replica.raft is not None and replica.raft.role is RaftRole.LEADER
        ]

    def settle(self, *, hanging: Sequence[str] = (), seconds: float = 30.0) -> None:
        """Let messages arrive and disks write, and time pass, until nothing is left to do."""
        end = self.now + seconds
        for _ in range(100_000):
            if not self.step_without_time(hanging):
                due = self.next_deadline()
                if due is None or due[0] > end:
                    self.check_rest()
                    return
                self.tick(due[1])
        raise AssertionError("the set does not come to rest")

    def check_rest(self) -> None:
        """Nothing is under way: members in contact with a leader follow it, and nobody follows anybody else."""
        rafts = {name: replica.raft for name, replica in self.replicas.items() if replica.raft is not None}
        for name, raft in rafts.items():
            if raft.leader is not None and raft.leader != raft.me and self.are_in_contact(name, raft.leader.router):
                led = rafts[raft.leader.router]
                is_member = raft.me in led.log.configuration.members or led.role is not RaftRole.LEADER
                assert led.role is RaftRole.LEADER or not self._has_vote(raft), (
                    f"{name} follows {led.me.router}, which leads not"
                )
                assert led.hard.term == raft.hard.term or not is_member, f"{name} follows a leader of another term"
        for name in self.leaders():
            for member in rafts[name].log.configuration.members:
                if self.are_in_contact(name, member.router):
                    assert rafts[member.router].leader == rafts[name].me, f"{member.router} does not follow {name}"

    def are_in_contact(self, one: str, two: str) -> bool:
        """Whether both have noticed that their contact has begun, and neither that it has ended."""
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
        """Of the replicas without a leader, and of leaders with a timer: whose time is next."""
        due = [
            (replica.raft.deadline, name)
            for name, replica in self.replicas.items()
            if replica.raft is not None and replica.raft.deadline != float("inf")
        ]
        return min(due, default=None)

    # what replicas do

    def _after(self, replica: Host) -> None:
        raft = replica.raft
        assert raft is not None
        for action in raft.flush(self.now):
            if isinstance(action, Persist):
                replica.disk.writes.append(action)
            elif isinstance(action, Send):
                self._transmit(replica, action.envelope)
            elif isinstance(action, Committed):
                self._decide(replica, action)
            elif isinstance(action, Led):
                leader = action.leader.router if action.leader else "nobody"
                self.said.append(f"{replica.router}: {leader} leads in term {action.term}")
            elif isinstance(action, SetAside):
                self.said.append(f"{replica.router}: set aside, {action.why}")
        raft.check()
        self.check()
        if raft.why_aside:
            others = dict(replica.contacts)
            self.replace_disk(replica.router)
            self.start(replica.router)
            for other in others:
                if self.replicas[other].raft is not None:
                    self.meet(replica.router, other)

    def _transmit(self, replica: Host, envelope: Envelope) -> None:
        to = envelope.receiver.router
        if to in replica.contacts:
            self.channels[replica.router, to].append((replica.contacts[to], envelope))
        if isinstance(envelope.body, Voted) and envelope.body.granted:
            key = (envelope.sender, envelope.life, envelope.body.term)
            assert self._votes.setdefault(key, envelope.receiver) == envelope.receiver, f"{key} votes twice"
            hard = replica.disk.hard
            assert hard.term >= envelope.body.term, "a vote leaves before it is on the disk"

    def _decide(self, replica: Host, committed: Committed) -> None:
        assert replica.raft is not None
        life = replica.raft.hard.life
        if replica.raft.role is RaftRole.LEADER:
            self._check_durable(replica.raft)
        assert committed.first == len(replica.applied) + 1, "an entry is applied out of order"
        for index, entry in enumerate(committed.entries, committed.first):
            known = self.decided.setdefault((life, index), entry)
            assert known == entry, f"two entries are decided at {index} of life {life}: {known}, {entry}"
            replica.applied.append(entry)

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
        """A leader that begins has all that was decided in its life (Raft, 3.6.3)."""
        for (life, index), entry in self.decided.items():
            if life == raft.hard.life:
                assert raft.log.last >= index, f"the leader of term {raft.hard.term} lacks entry {index}"
                assert raft.log.entries(index, index)[0] == entry, f"the leader has another entry at {index}"

    def _check_durable(self, raft: Raft) -> None:
        """A majority of disks has what a leader has decided, by its configuration, or by the one before: the leader may
        have appended a change when it had decided."""
        commit = raft.log.commit
        if raft.log.term(commit) != raft.hard.term:
            return
        entry = raft.log.entries(commit, commit)[0]
        entries = raft.log.entries(1, raft.log.last)
        latest = [one.configuration for one in entries if one.configuration is not None][-2:]
        assert any(self._has_majority(one.voters, commit, entry) for one in latest), (
            f"entry {commit} is on too few disks"
        )

    def _has_majority(self, voters: Sequence[Replica], index: int, entry: Entry) -> bool:
        """Whether a majority of disks has the entry. Disks that were lost since may have had it."""
        count = 0
        for voter in voters:
            disk = self.replicas[voter.router].disk
            count += disk.store != voter.store or disk.entries[index - 1 : index] == [entry]
        return 2 * count > len(voters)

    def logs(self) -> Iterator[tuple[int, tuple[Entry, ...]]]:
        """The life and the log of each replica that runs."""
        for replica in self.replicas.values():
            if replica.raft is not None:
                yield replica.raft.hard.life, replica.raft.log.entries(1, replica.raft.log.last)

    def check_matching(self) -> None:
        """Two logs of a life that have an entry of the same index and term have the same up to it (Raft, 3.5)."""
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
    fields.pop("mapping", None)
    if isinstance(body, Greeting):
        fields["life"] = envelope.life
    if isinstance(body, Propose):
        fields = {
            "life": envelope.life,
            "voters": " ".join(member.router for member in body.configuration.voters),
            "anew": body.anew,
        }
    told = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{type(body).__name__} {told}".strip()


def _entry(entry: Entry) -> str:
    if entry.configuration is not None:
        voters = "".join(member.router for member in entry.configuration.voters)
        learners = "".join(member.router for member in entry.configuration.learners)
        return f"{entry.term}:voters={voters}" + (f"+{learners}" if learners else "")
    return f"{entry.term}:{entry.data.decode() or 'begin'}"
