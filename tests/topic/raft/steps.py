"""Computes every local state and every local step of a replica only once: this makes the search fast.

An event touches one router. States of a set are many because local ones combine; local states are few. So each state of
a router with its disk has a number, and what an event does to it is computed, by the production core, the first time
only.

A state has no clock times and no numbers of writes (`_forget_times`): a timer that runs may end at any time, no disk
hangs, and rounds of a learner are quick. It has contacts and members in the order of their names. Their order decides
only in which order messages to different routers leave, and these go on different channels.
"""

from collections.abc import Mapping
from itertools import count
from math import inf
from typing import Any

import attrs

from tests.exhaustive import state
from tests.exhaustive.memo import Numbers
from tests.topic.raft.cluster import MAPPING, Cluster, Host, State
from topic.raft import messages as say
from topic.raft.configuration import Configuration, Replica
from topic.raft.errors import BusyError, NotLeaderError
from topic.raft.leadership import Leadership
from topic.raft.life import NO_LIFE, SetLife
from topic.raft.limits import RaftLimits
from topic.raft.log import Entry, RaftLog
from topic.raft.messages import Committed, Envelope, Voted
from topic.raft.raft import Raft
from topic.raft.storage import Storage
from topic.raft.stores import KnownStores

FOREVER = 1e9
"""Seconds until a transfer fails. It fails when the search says so."""
LATER = 1.0
"""When writes under way were begun, in seconds. Their disk does not hang when a transfer fails."""

state.IGNORED.update({
    Host: frozenset(("keys",)),
    KnownStores: frozenset(("_me", "_routers", "mapping")),  # constant
    Leadership: frozenset(("_limits", "_life", "_log", "_me", "_stores", "term")),  # belongs to its replica
    Raft: frozenset(("_draw", "_led", "_limits", "_read_clock", "me")),  # constant, or derived
    RaftLog: frozenset(("_configurations", "_sizes")),  # derived
    Storage: frozenset(("_log",)),  # belongs to its replica
})  # fmt: skip

Event = tuple[Any, ...]


@attrs.frozen(slots=True)
class Facts:
    """The facts about a router that determine which events are possible."""

    runs: bool
    under_way: int = 0
    """Writes and reads of its disk. Those of a process that has ended are lost."""
    begun: bool = False
    life: SetLife = NO_LIFE
    term: int = 0
    ticks: bool = False
    """Whether it has no leader, and a timer."""
    leads: bool = False
    stands: bool = False
    """Whether it asks for votes, as opposed to pre-votes."""
    hands: tuple[str, ...] = ()
    """The routers to which it may hand over."""
    is_handing: bool = False
    compacts: bool = False
    """Whether its state may become its snapshot."""
    stores: int = 1
    """The number of stores that the router has had."""


@attrs.frozen(slots=True)
class View:
    """What a replica knows about itself and its leader."""

    me: Replica
    leader: Replica | None
    leads: bool
    begun: bool
    ticks: bool
    term: int
    configuration: Configuration
    last: int
    last_term: int
    commit: int


@attrs.frozen(slots=True)
class Step:
    """The effect of an event on a router."""

    state: int
    said: tuple[tuple[str, int], ...]
    """(receiver, number of the message), in order."""
    decided: tuple[tuple[SetLife, int, Entry, int], ...]
    """(life, index, entry, term of the replica)"""
    won: tuple[SetLife, int, Replica] | None
    """(life, term, replica) if the replica leads from now on."""
    is_leaders: bool
    """Whether a majority has these entries, as the leader of the term of the last one has decided them."""


_alone: list["_Alone"] = []


def _half() -> float:
    return 0.5


def _read_clock() -> int:
    return _alone[0].read_clock()


class _Alone(Cluster):
    """One router of a set. Its messages are kept in `sent`."""

    def __init__(self, host: Host, routers: tuple[str, ...], ring: tuple[str, ...], clocks: str) -> None:
        self.now = 0.0
        self.ring = ring
        self.limits = RaftLimits(dead=FOREVER)
        self.host: Any = host
        self.replicas = {host.router: host}
        self.channels = {}
        self.said = []
        self.sent: list[Envelope] = []
        self.found: list[tuple[SetLife, int, Entry, int]] = []
        self.is_leaders = False
        self._routers = routers
        self._clocks = clocks
        self._digests = 0

    def read_clock(self) -> int:
        """A clock at which this router begins a life. No router names a life twice. The scope determines which of two
        routers has the higher clock."""
        place = self._clocks.index(self.host.router)
        lives = self.host.raft.hard.life, *(one.life for one in self.host.raft.stores.all())
        self.host.clock = (max(self.host.clock, *(life.clock for life in lives)) // 10 + 1) * 10 + place
        clock: int = self.host.clock
        return clock

    # events

    def start(self, router: str) -> None:
        self._begin(self.host)
        self._after(self.host)

    def _begin(self, host: Any) -> None:
        host.state, host.states, host.received = host.disk.state, {}, []
        me, content = Replica(host.router, host.disk.store), host.disk.content
        host.raft = Raft(me, self._routers, self.ring, MAPPING, content, self.limits, _half, _read_clock, self.now)

    def connect(self, router: str, other: str) -> None:
        self.lose(router, other)
        self.host.contacts[other] = 1
        self.host.raft.connect(other, 0.0)
        self._after(self.host)

    def receive(self, router: str, envelope: Envelope) -> None:
        self.host.raft.receive(envelope, 0.0)
        self._after(self.host)

    def fail(self, router: str) -> None:
        """A transfer has lasted too long."""
        self.now, self.host.raft.deadline = FOREVER, 0.0
        self.host.raft.tick(self.now)
        self._after(self.host)
        self.now = 0.0

    def follow(self, router: str, ring: str) -> None:
        self.do(router, lambda raft: raft.follow_ring(tuple(ring)))

    def ask(self, router: str, what: str, *arguments: Any) -> None:
        """Call a method of the replica, which may refuse."""
        try:
            getattr(self.host.raft, what)(*arguments)
        except (BusyError, NotLeaderError):
            return
        self._after(self.host)

    # effects of events

    def _new_store(self, router: str) -> bytes:
        return f"{router}{int(self.host.disk.store[len(router) :]) + 1}".encode()

    def _after(self, replica: Host) -> None:
        """Run the replica's actions like the shell of production: a void store is replaced while the contacts last."""
        host = self.host
        for flushes in count():
            assert flushes < 100, "a replica asks for more and more"
            if not (actions := host.raft.flush(self.now)):
                break
            for action in actions:
                self._do(host, host.raft, action)
        host.raft.check()
        if host.raft.why_aside:
            former, others = host.raft.stores, list(host.contacts)
            self.replace_disk(host.router)
            self._begin(host)
            for other in others:
                host.contacts[other] = 1
                host.raft.connect(other, 0.0)
            host.raft.stores.inherit(former)
            self._after(host)

    def _transmit(self, replica: Host, envelope: Envelope) -> None:
        self.sent.append(envelope)
        if isinstance(envelope.body, Voted):
            vote = (envelope.sender, envelope.life, envelope.body.term, envelope.receiver)
            voted = self.host.voted
            assert voted[:3] != vote[:3] or voted == vote, f"{envelope.sender} votes twice in term {envelope.body.term}"
            assert self.host.disk.hard.term >= envelope.body.term, "a vote leaves before it is on the disk"
            self.host.voted = vote

    def _decide(self, replica: Host, committed: Committed) -> None:
        raft = self.host.raft
        assert committed.first == len(replica.state.applied) + 1, "an entry is applied out of order"
        for index, entry in enumerate(committed.entries, committed.first):
            self.found.append((raft.hard.life, index, entry, raft.hard.term))
            replica.state = attrs.evolve(replica.state, applied=(*replica.state.applied, entry))
        self.is_leaders = raft.leadership is not None and committed.entries[-1].term == raft.hard.term


class Steps:
    """All states of routers that the search has met."""

    def __init__(self, routers: str, clocks: str) -> None:
        self.messages: Numbers[Envelope] = Numbers()
        self.facts: Numbers[Facts] = Numbers()
        self.logs: Numbers[tuple[SetLife, tuple[Entry, ...]]] = Numbers()
        """The life and the log of a replica that runs."""
        self.disks: Numbers[tuple[bytes, int, tuple[Entry, ...]]] = Numbers()
        """A store, the index of its snapshot, and the entries after it."""
        self.derived: list[tuple[int, int, int]] = []
        """For each state: the numbers of its facts, log and disk."""
        self.views: list[View | None] = []
        """For each state: the view, or None while the process does not run."""
        self.taken = 0
        """The number of steps that were computed."""
        self._routers = tuple(routers)
        self._clocks = clocks
        self._saved: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._steps: dict[tuple[int, Event], Step | Exception] = {}

    def __len__(self) -> int:
        return len(self._saved)

    def first(self, router: str, ring: str) -> int:
        host: Any = Host(router, f"{router}1".encode())
        host.clock, host.voted = 90, ()
        _alone[:] = [_Alone(host, self._routers, tuple(ring), self._clocks)]
        _alone[0].start(router)
        return self._add(host)

    def apply(self, number: int, event: Event) -> Step:
        """The effect of an event at a state. Raises what the core, or a check, raises."""
        step = self._steps.get((number, event))
        if step is None:
            self.taken += 1
            try:
                step = self._run(number, event)
            except Exception as wrong:
                step = wrong
            self._steps[number, event] = step
        if isinstance(step, Exception):
            raise step
        return step

    def _run(self, number: int, event: Event) -> Step:
        host: Any = state.load(self._saved[number])
        verb, ring, *arguments = event
        _alone[:] = [_Alone(host, self._routers, tuple(ring), self._clocks)]
        alone, led = _alone[0], host.raft is not None and host.raft.leadership
        if verb == "receive":
            arguments = [self.messages.value(arguments[0])]
        getattr(alone, verb)(host.router, *arguments)
        raft = host.raft
        won = raft is not None and raft.leadership is not None and raft.leadership is not led
        return Step(
            self._add(host),
            tuple([(one.receiver.router, self.messages.number(one)) for one in alone.sent]),
            tuple(alone.found),
            (raft.hard.life, raft.hard.term, raft.me) if won else None,
            alone.is_leaders,
        )

    def _add(self, host: Any) -> int:
        self._forget_times(host)
        digest = state.digest(host)
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = len(self._saved)
            self._saved.append(state.save(host))
            self.derived.append((
                self.facts.number(self._facts(host)),
                self.logs.number(self._log(host)),
                self.disks.number((host.disk.store, host.disk.snapshot.index, tuple(host.disk.entries))),
            ))  # fmt: skip
            self.views.append(_view(host.raft) if host.raft is not None else None)
        return number

    def _forget_times(self, host: Any) -> None:
        """Remove from a state what makes no difference to its future."""
        host.contacts = _sorted(host.contacts)
        host.keys = None
        raft = host.raft
        if raft is None:
            host.state, host.states, host.received = State(), {}, []
            return
        base = forget_times(raft)
        for numbered in (raft.log._writes, host.disk.writes):
            for place, write in enumerate(numbered):
                if hasattr(write, "number"):
                    numbered[place] = attrs.evolve(write, number=write.number - base)

    def _facts(self, host: Any) -> Facts:
        return facts_of(host)

    def _log(self, host: Any) -> tuple[SetLife, tuple[Entry, ...]]:
        """All entries, including those in the snapshot."""
        if host.raft is None:
            return NO_LIFE, ()
        log = host.raft.log
        before = host.state.applied[: log.snapshot.index]
        return host.raft.hard.life, (*before, *log.entries(log.snapshot.index + 1, log.last))


_ANSWERS = (say.Voted, say.Stored, say.Lacking, say.Staged, say.Resigned, say.StandNow, say.Distrust, say.Outdated)


def may_die(envelope: Envelope) -> bool:
    return isinstance(envelope.body, (say.PreVoted, *_ANSWERS))


def is_dead(envelope: Envelope, receiver: Facts) -> bool:
    """Whether the receiver never acts on the message: it is about an earlier term, or a vote for a replica that no
    longer stands in that term. The term of a replica never falls while its contacts last, and a replica stands in each
    term once. (This holds for a set whose life never changes: a replica in a later life answers every message with a
    greeting.)"""
    body, term = envelope.body, receiver.term
    if isinstance(body, say.PreVoted):
        return body.term <= term
    if isinstance(body, say.Voted | say.Outdated) and body.term == term:
        return not (isinstance(body, say.Voted) and receiver.stands)
    return isinstance(body, _ANSWERS) and body.term < term


def forget_times(raft: Any) -> int:
    """Remove from a replica what makes no difference to its future. Returns the number that its writes begin with:
    their numbers now begin with 1."""
    raft.deadline = 0.0 if raft.deadline < inf and raft.leader is None else inf
    raft._elections_lost = 0
    raft.stores._stores = _sorted(raft.stores._stores)
    storage = raft._storage
    base: int = storage._number - len(storage._writes)
    assert not storage._writes or min(storage._writes) == base + 1
    storage._number -= base
    storage._writes = {number - base: (LATER, hard) for number, (_, hard) in storage._writes.items()}
    storage._held = [(waits - base, envelope) for waits, envelope in storage._held]
    if raft.leadership is not None:
        leadership = raft.leadership
        leadership.progress = _sorted(leadership.progress)
        if leadership._handing_over is not None:
            leadership._handing_over = attrs.evolve(leadership._handing_over, until=FOREVER)
    return base


def _sorted(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
    return dict(sorted(mapping.items()))


def facts_of(host: Any) -> Facts:
    raft = host.raft
    if raft is None:
        return Facts(False)
    leadership, voters = raft.leadership, raft.log.configuration.voters
    return Facts(
        True,
        len(host.disk.writes),
        raft.hard.begun,
        raft.hard.life,
        raft.hard.term,
        raft.leader is None and raft.deadline < inf,
        leadership is not None,
        raft._election is not None and not raft._election.is_pre,
        tuple([one.router for one in voters if one != raft.me and raft.stores.has(one)]) if leadership else (),
        leadership is not None and leadership._handing_over is not None,
        raft._applied > raft.log.snapshot.index,
        int(host.disk.store[len(host.router) :]),
    )


def _view(raft: Raft) -> View:
    return View(
        raft.me, raft.leader, raft.leadership is not None, raft.hard.begun, raft.leader is None, raft.hard.term,
        raft.log.configuration, raft.log.last, raft.log.last_term, raft.log.commit,
    )  # fmt: skip
