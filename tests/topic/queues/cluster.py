"""The sets of a few routers in virtual time, with a network and disks that a test breaks.

A disk does its work in order, when the test says so. Messages on a channel arrive in order while the contact lasts, and
are lost with it. `check` holds after each step.
"""

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from tests.set_store import MemorySets, StoreNames
from topic.journal import Event
from topic.queues.actions import Answered, BodiesFound, Logged, PageFound, SetEvent, SetNote, Tell
from topic.queues.operations import Answer, Operation
from topic.queues.set_map import SetMap, SetPlan
from topic.queues.sets import ReplicaSets
from topic.queues.storing import ReadBodies, ReadPiece, StoreChange, StoreRead, Write
from topic.raft.life import SetLife
from topic.raft.limits import RaftLimits
from topic.raft.log import Entry

Q = SetPlan("q0", ("a", "b", "c"))


class SetHost:
    """One router: its disk, and its process while the process lives."""

    def __init__(self, disk: MemorySets) -> None:
        self.disk = disk
        self.waiting: deque[StoreChange | StoreRead] = deque()
        """Changes and reads that the disk has not done."""
        self.sets: ReplicaSets | None = None
        self.contacts: dict[str, int] = {}
        """Router in contact -> number of the contact."""
        self.answers: dict[int, Answer] = {}
        self.notes: list[str] = []
        self.found: dict[int, Mapping[int, bytes]] = {}
        """Keyed by the number of the read: the bodies."""


class SetCluster:
    """Routers by name."""

    def __init__(
        self,
        routers: str = "abc",
        plans: Sequence[SetPlan] = (Q,),
        *,
        limits: RaftLimits | None = None,
        compare_every: int = 1000,
        draw: Callable[[], float] = lambda: 0.5,
        names: str = "",
        prefer_s: float = math.inf,
    ) -> None:
        """`names`: the routers that start, which consider themselves the whole mesh. Empty: all."""
        self.now = 0.0
        self.routers = tuple(names or routers)
        self.map = SetMap(plans)
        self.limits = limits or RaftLimits()
        self._compare_every = compare_every
        self._draw = draw
        self._prefer_s = prefer_s
        self._clock = 99
        self._contact = 0
        self.new_store = StoreNames()
        self.channels: dict[tuple[str, str], deque[tuple[int, bytes]]] = {}
        self.hosts = {name: SetHost(MemorySets(self.new_store.parts(self.map.plans))) for name in routers}
        self.decided: dict[tuple[str, SetLife, int], Entry] = {}
        """Keyed by set, life and index."""
        self.digests: dict[tuple[str, SetLife, int], bytes] = {}
        """Keyed by set, life and index: the digest of the state."""
        self.contents: dict[tuple[str, SetLife, int], tuple[int, int]] = {}
        """Keyed by set, life and index: the content that replicas have logged."""
        for name in self.routers:
            self.start(name)

    def read_clock(self) -> int:
        self._clock += 1
        return self._clock

    def sets(self, router: str) -> ReplicaSets:
        sets = self.hosts[router].sets
        assert sets is not None, f"{router} does not run"
        return sets

    # processes

    def start(self, router: str, plans: SetMap | None = None) -> None:
        host = self.hosts[router]
        host.sets = ReplicaSets(
            router,
            plans or self.map,
            self.routers,
            host.disk.contents,
            self.limits,
            self._draw,
            self.read_clock,
            self.new_store,
            self.now,
            compare_every=self._compare_every,
            prefer_s=self._prefer_s,
        )
        self.after(router)

    def crash(self, router: str, kept: int = 0) -> None:
        """The process ends. Of the work of the disk, the first `kept` changes are done."""
        host = self.hosts[router]
        host.sets = None
        for _ in range(min(kept, len(host.waiting))):
            self._do_on_disk(host)
        host.waiting.clear()
        host.contacts.clear()
        host.answers.clear()
        for channel in self.channels:
            if channel[0] == router:
                self.channels[channel].clear()

    def replace_disk(self, router: str) -> None:
        """The process ends, and the next one finds an empty store."""
        self.crash(router)
        self.hosts[router].disk = MemorySets(self.new_store.parts(self.map.plans))

    @staticmethod
    def _do_on_disk(host: SetHost) -> StoreChange | StoreRead:
        change = host.waiting.popleft()
        if not isinstance(change, StoreRead):
            host.disk.write([change])
        return change

    def finish(self, router: str) -> None:
        """The disk does its oldest change or read."""
        disk, change = self.hosts[router].disk, self._do_on_disk(self.hosts[router])
        if isinstance(change, Write):
            self.sets(router).stored(change, self.now)
        elif isinstance(change, ReadPiece):
            self.sets(router).piece_read(change, disk.read(change), self.now)
        elif isinstance(change, ReadBodies):
            self.sets(router).bodies_read(change, disk.bodies(change), self.now)
        self.after(router)

    # contacts

    def lose(self, router: str, other: str) -> None:
        """The router notices that its contact with the other has ended."""
        host = self.hosts[router]
        if host.contacts.pop(other, None) is not None and host.sets is not None:
            host.sets.contact_lost(other, self.now)
            self.after(router)

    def meet(self, router: str, other: str) -> None:
        self.cut(router, other)
        self._contact += 1
        for one, two in ((router, other), (other, router)):
            self.channels[one, two] = deque()
            self.hosts[one].contacts[two] = self._contact
        for one, two in ((router, other), (other, router)):
            self.sets(one).contact(two, self.now)
            self.after(one)

    def meet_all(self) -> None:
        alive = [name for name, host in self.hosts.items() if host.sets is not None]
        for one, two in combinations(alive, 2):
            if not (two in self.hosts[one].contacts and one in self.hosts[two].contacts):
                self.meet(one, two)

    def cut(self, router: str, *others: str) -> None:
        for other in others or [name for name in self.hosts if name != router]:
            self.lose(router, other)
            self.lose(other, router)

    def deliver(self, sender: str, receiver: str) -> None:
        number, payload = self.channels[sender, receiver].popleft()
        host = self.hosts[receiver]
        if host.contacts.get(sender) == number:
            self.sets(receiver).receive(sender, payload, self.now)
            self.after(receiver)

    # clients and time

    def ask(self, router: str, operation: Operation) -> int:
        number = self.sets(router).ask(operation, self.now)
        self.after(router)
        return number

    def answer(self, router: str, operation: Operation) -> Answer:
        """The answer, once all has come to rest."""
        number = self.ask(router, operation)
        self.settle()
        return self.hosts[router].answers[number]

    def leader(self, name: str = "q0") -> str:
        """The router that leads."""
        leaders = [router for router, host in self.hosts.items() if host.sets and self._leads(router, name)]
        assert len(leaders) == 1, f"{leaders} lead"
        return leaders[0]

    def _leads(self, router: str, name: str) -> bool:
        return self.sets(router)._replicas[name].raft.leadership is not None

    def step(self, hanging: Sequence[str] = ()) -> bool:
        for (sender, receiver), channel in self.channels.items():
            if channel and self.hosts[receiver].sets is not None:
                self.deliver(sender, receiver)
                return True
        for name, host in self.hosts.items():
            if host.waiting and host.sets is not None and name not in hanging:
                self.finish(name)
                return True
        return False

    def settle(self, *, hanging: Sequence[str] = (), seconds: float = 30.0) -> None:
        """Let messages arrive and disks write, and time pass, until nothing is left to do."""
        end = self.now + seconds
        for _ in range(100_000):
            if not self.step(hanging):
                alive = [name for name, host in self.hosts.items() if host.sets is not None]
                at, router = min((self.sets(name).deadline(), name) for name in alive)
                if at > end:
                    return
                self.now = max(self.now, at)
                self.sets(router).handle_timer(self.now)
                self.after(router)
        raise AssertionError("the sets do not come to rest")

    # actions of the sets

    def after(self, router: str) -> None:
        host, sets = self.hosts[router], self.sets(router)
        sets.flush(self.now)
        out, sets.out[:] = sets.out[:], []
        for action in out:
            if isinstance(action, Tell):
                if action.router in host.contacts:
                    self.channels[router, action.router].append((host.contacts[action.router], action.payload))
            elif isinstance(action, Answered):
                assert action.number not in host.answers, "a request is answered twice"
                host.answers[action.number] = action.answer
            elif isinstance(action, SetNote | SetEvent):
                host.notes.append(action.text)
            elif isinstance(action, Logged):
                self._check_logged(action)
            elif isinstance(action, BodiesFound):
                host.found[action.number] = action.bodies
            else:
                assert not isinstance(action, PageFound), "nobody browses"
                host.waiting.append(action)
        assert not sets.has_work
        sets.check()
        self._check(sets)

    def _check_logged(self, entry: Logged) -> None:
        """Check that all replicas log one content at an index of a life."""
        if entry.event is Event.CONTENT:
            told = json.loads(entry.columns["detail"])
            content, at = (told["messages"], told["positions"]), (told["set"], told["life"], told["index"])
            assert self.contents.setdefault(at, content) == content, f"{at} has two contents"

    def _check(self, sets: ReplicaSets) -> None:
        """Check that only one entry is decided at an index of a life, and that all replicas that have applied it have
        one state.
        """
        for name, replica in sets._replicas.items():
            raft = replica.raft
            log, life = raft.log, raft.hard.life
            for index in range(log.snapshot.index + 1, log.commit + 1):
                entry = log.entries(index, index)[0]
                assert self.decided.setdefault((name, life, index), entry) == entry, f"two entries at {index} of {name}"
            digest = replica.state.rows.digest
            assert self.digests.setdefault((name, life, replica.applied), digest) == digest, f"{name} has two states"
