"""Every interleaving of a small set of replicas: messages, disks, cuts, restarts and operators, in each order.

python -m tests.topic.raft.search [NAME…] [--most STATES]

The replicas are those of production. A state is all that they, their disks and their channels have, without clock times
and numbers of writes and contacts: a timer that runs may end at any time. States that differ by the names of routers
alone are one (symmetry). A scope bounds how often something may happen; within that, each state is visited once.
"""

import argparse
import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations
from typing import Any

import attrs

from tests.topic.raft.cluster import Cluster, Host
from topic.raft.configuration import Replica
from topic.raft.errors import BusyError, NotLeaderError
from topic.raft.leadership import Leadership
from topic.raft.limits import RaftLimits
from topic.raft.log import RaftLog
from topic.raft.messages import Greeting, Persist
from topic.raft.raft import Raft, _Election

FOREVER = 1e9
"""No disk hangs, and a transfer fails only where a scope says so."""


@attrs.frozen(slots=True, kw_only=True)
class Scope:
    """How much may happen."""

    name: str
    routers: str = "abc"
    ring: str = "abc"
    begun: bool = True
    """It begins with a set that has begun, and its first router leads."""
    prepare: Callable[[Cluster], None] = lambda _: None
    terms: int = 2
    """The highest term that somebody may stand for."""
    elections: int = 2
    """How many timers end."""
    entries: int = 0
    cuts: int = 0
    restarts: int = 0
    replaced: int = 0
    """How many disks are lost."""
    losable: str = ""
    """The routers whose disk may be lost; empty: all."""
    transfers: int = 0
    recoveries: int = 0
    compactions: int = 0
    rings: tuple[str, ...] = ()
    """The ring becomes each of these, in this order."""
    symmetric: str = ""
    """Routers that differ by their names alone."""
    is_disk_slow: bool = True
    """A write ends at any later time; otherwise at once."""
    expect: Callable[[Cluster], None] = lambda _: None
    """What holds in each state."""


Budget = tuple[int, ...]
"""How often each of `COSTS` may still happen."""
COSTS = ("tick", "propose", "cut", "restart", "replace", "hand", "recover", "compact")
Action = tuple[str, ...]


_SIMPLE = {int, bool, str, bytes, float, type(None)}


class World(Cluster):
    """A set that shares with the state before it each router that has not changed."""

    def __init__(self, scope: Scope) -> None:
        self.own = set(scope.routers)
        """The routers that this state has for itself."""
        super().__init__(tuple(scope.routers), ring=tuple(scope.ring), limits=RaftLimits(dead=FOREVER))

    def following(self) -> "World":
        new = object.__new__(World)
        new.__dict__.update(self.__dict__)
        new.own = set()
        new.replicas, new._stores = dict(self.replicas), dict(self._stores)
        new.channels = {pair: channel.copy() for pair, channel in self.channels.items()}
        new.decided, new._leaders, new._votes = dict(self.decided), dict(self._leaders), dict(self._votes)
        new.said = []
        return new

    def changing(self, router: str) -> Host:
        if router not in self.own:
            self.own.add(router)
            self.replicas[router] = host = _copy(self.replicas[router], {})
            host.keys = {}
            if host.raft is not None:
                host.raft._new_life = self.new_life
        return self.replicas[router]


_FROZEN: set[type] = {int, bool, str, bytes, float, tuple, frozenset, type(None)}


def _copy(value: Any, made: dict[int, Any]) -> Any:
    """The value again. What never changes is shared."""
    kind = type(value)
    if kind in _FROZEN:
        return value
    if kind is dict:
        return {key: one if type(one) in _FROZEN else _copy(one, made) for key, one in value.items()}
    if kind is list:
        return value.copy()  # of frozen ones
    if kind is deque:
        return value.copy()
    if kind is set:
        return value.copy()
    if kind is _Election:
        return attrs.evolve(value, granted=set(value.granted))
    if not hasattr(value, "__dict__") or callable(value):
        if not callable(value):
            _FROZEN.add(kind)
        return value
    if id(value) not in made:
        made[id(value)] = new = object.__new__(kind)
        new.__dict__.update(
            (name, one if type(one) in _FROZEN else _copy(one, made)) for name, one in value.__dict__.items()
        )
    return made[id(value)]


class Search:
    """Depth first, with each state once."""

    def __init__(self, scope: Scope, *, most: int = 10_000_000) -> None:
        self.scope = scope
        self.most = most
        self.states = 0
        self.transitions = 0
        self.deepest = 0
        self.is_complete = False
        names = [name for name in scope.routers if name not in scope.symmetric]
        self._orders = [names + list(order) for order in permutations(scope.symmetric)]
        self._plains = [self._plain(at) for at in range(len(self._orders))]
        self._rings = scope.rings

    def run(self) -> None:
        """Raises AssertionError with the path to what is wrong."""
        scope = self.scope
        cluster = World(scope)
        if scope.begun:
            cluster.meet_all()
            cluster.settle()
        scope.prepare(cluster)
        for host in list[Any](cluster.replicas.values()):
            host.keys = {}
        cluster.said.clear()
        budget: Budget = (
            scope.elections, scope.entries, scope.cuts, scope.restarts, scope.replaced, scope.transfers,
            scope.recoveries, scope.compactions,
        )  # fmt: skip
        seen = {self._key(cluster, budget, 0)}
        path: list[Action] = []
        stack = [(cluster, budget, 0, iter(list(self._actions(cluster, budget, 0))))]
        while stack:
            cluster, budget, ring, actions = stack[-1]
            action = next(actions, None)
            if action is None:
                stack.pop()
                if path:
                    path.pop()
                continue
            self.transitions += 1
            following = cluster.following()
            try:
                left, at = self._do(following, action, budget, ring)
                following.check_matching()
                scope.expect(following)
                if not self._is_busy(following):
                    following.check_rest()
                    check_followers(following)
            except Exception as wrong:
                steps = "\n".join(" ".join(step) for step in [*path, action])
                raise AssertionError(f"{scope.name}: {wrong!r} after\n{steps}") from wrong
            key = self._key(following, left, at)
            if key not in seen:
                seen.add(key)
                if len(seen) >= self.most:
                    self.states = len(seen)
                    return
                path.append(action)
                self.deepest = max(self.deepest, len(path))
                stack.append((following, left, at, iter(list(self._actions(following, left, at)))))
        self.states = len(seen)
        self.is_complete = True

    # what may happen

    @staticmethod
    def _is_busy(cluster: Cluster) -> bool:
        return bool(cluster.waiting()) or any(host.disk.writes for host in cluster.replicas.values())

    def _actions(self, cluster: Cluster, budget: Budget, ring: int) -> Iterator[Action]:
        elections, entries, cuts, restarts, replaced, transfers, recoveries, compactions = budget
        yield from (("deliver", *pair) for pair in cluster.waiting())
        for name, host in cluster.replicas.items():
            raft = host.raft
            assert raft is not None
            if host.disk.writes:
                yield "finish", name
            may_tick = raft.leader is None and raft.deadline < float("inf")
            if elections and may_tick and raft.hard.term < self.scope.terms:
                yield "tick", name
            if restarts:
                yield from (("restart", name, str(kept)) for kept in {0, len(host.disk.writes)})
            if replaced and name in (self.scope.losable or self.scope.routers):
                yield "replace", name
            if recoveries and raft.leader is None and raft.hard.begun:
                yield "recover", name
            if compactions and raft._applied > raft.log.snapshot.index:
                yield "compact", name
            if raft.leadership is not None:
                if entries:
                    yield "propose", name
                if transfers:
                    others = [voter for voter in raft.log.configuration.voters if raft.stores.has(voter)]
                    yield from (("hand", name, voter.router) for voter in others if voter != raft.me)
                if raft.leadership.deadline < float("inf") and not self._is_busy(cluster):
                    yield "tick", name
        for one, two in combinations(cluster.replicas, 2):
            if not cluster.are_in_contact(one, two):
                yield "meet", one, two
            elif cuts:
                yield "cut", one, two
        if ring < len(self._rings):
            yield "ring", self._rings[ring]

    def _do(self, cluster: Cluster, action: Action, budget: Budget, ring: int) -> tuple[Budget, int]:
        verb, *names = action
        if verb == "deliver":
            cluster.deliver(*names)
        elif verb == "finish":
            cluster.finish(*names)
        elif verb == "meet":
            self._meet(cluster, *names)
        elif verb == "cut":
            cluster.cut(*names)
        elif verb == "tick":
            cluster.tick(*names)
        elif verb == "restart":
            cluster.crash(names[0], int(names[1]))
            cluster.cut(names[0])
            cluster.start(names[0])
        elif verb == "replace":
            cluster.replace_disk(names[0])
            cluster.cut(names[0])
            cluster.start(names[0])
        elif verb == "propose":
            self._ask(cluster, names[0], lambda raft: raft.propose([b"%d" % budget[1]]))
        elif verb == "hand":
            to = Replica(names[1], cluster.replicas[names[1]].disk.store)
            self._ask(cluster, names[0], lambda raft: raft.hand_over(to, cluster.now))
        elif verb == "recover":
            self._ask(cluster, names[0], lambda raft: raft.recover(cluster.now))
        elif verb == "compact":
            cluster.compact(*names)
        elif verb == "ring":
            cluster.set_ring(tuple(names[0]))
            return budget, ring + 1
        if not self.scope.is_disk_slow:
            while busy := [name for name, host in cluster.replicas.items() if host.disk.writes]:
                cluster.finish(busy[0])
        return tuple([left - (cost == verb) for left, cost in zip(budget, COSTS, strict=True)]), ring

    @staticmethod
    def _meet(cluster: Cluster, one: str, two: str) -> None:
        """A contact begins, and both have greeted: a greeting that arrives later is a contact that begins later."""
        cluster.meet(one, two)
        for pair in ((one, two), (two, one)):
            while (channel := cluster.channels[pair]) and isinstance(channel[0][1].body, Greeting):
                cluster.deliver(*pair)

    @staticmethod
    def _ask(cluster: Cluster, router: str, what: Callable[[Raft], object]) -> None:
        with contextlib.suppress(BusyError, NotLeaderError):
            cluster.do(router, what)

    # which states are one

    def _key(self, cluster: Cluster, budget: Budget, ring: int) -> int:
        return min(hash((budget, ring, *self._state(cluster, at))) for at in range(len(self._orders)))

    def _plain(self, at: int) -> Callable[[Any], Any]:
        """Values as tuples, with places for routers in this order. A value that does not change is taken once."""
        places = {name: place for place, name in enumerate(self._orders[at])}
        cache: dict[int, tuple[Any, Any]] = {}

        def plain(value: Any) -> Any:
            kind = type(value)
            if kind in _SIMPLE:
                return value
            if kind is tuple or kind is list or kind is deque:
                return tuple([plain(one) for one in value])
            if kind is dict:
                return tuple(sorted([(plain(key), plain(one)) for key, one in value.items()]))
            if kind is set:
                return tuple(sorted([plain(one) for one in value]))
            known = cache.get(id(value))
            if known is None:
                if kind is Replica:
                    made: Any = (places[value.router], value.store[len(value.router) :])
                else:
                    fields = [plain(getattr(value, field.name)) for field in attrs.fields(kind)]
                    made = hash((kind.__name__, *fields))
                known = cache[id(value)] = value, made
            return known[1]

        return plain

    def _state(self, cluster: Cluster, at: int) -> tuple[Any, ...]:
        order, plain = self._orders[at], self._plains[at]
        hosts = [cluster.replicas[name] for name in order]
        return (
            tuple([self._host(host, at) for host in hosts]),
            tuple([(cluster.sees(one, two), cluster.are_in_contact(one, two)) for one in order for two in order]),
            tuple([
                tuple([
                    plain(envelope)
                    for number, envelope in cluster.channels.get((one, two), ())
                    if cluster.replicas[two].contacts.get(one) == number
                ])
                for one in order
                for two in order
            ]),
            plain(dict(cluster.decided.items())),
            plain(cluster._leaders),
        )  # fmt: skip

    def _host(self, host: Any, at: int) -> int:
        if at not in host.keys:
            host.keys[at] = hash(self._host_state(host, self._orders[at], self._plains[at]))
        key: int = host.keys[at]
        return key

    def _host_state(self, host: Host, order: Sequence[str], plain: Callable[[Any], Any]) -> tuple[Any, ...]:
        raft, disk = host.raft, host.disk
        assert raft is not None
        number = raft._storage._number
        writes = [
            (number - one.number, plain(attrs.evolve(one, number=0))) if isinstance(one, Persist) else plain(one)
            for one in disk.writes
        ]
        return (
            disk.store[len(host.router) :],
            plain(disk.hard),
            plain(disk.entries),
            plain(disk.snapshot),
            tuple([(index, len(pieces)) for index, pieces in disk.aside.items()]),
            tuple(writes),
            plain(raft._staging),
            len(host.received),
            plain(raft.hard),
            self._log(raft.log, number, plain),
            plain(raft._storage.hard),
            tuple([(number - waits, plain(envelope)) for waits, envelope in raft._storage._held]),
            raft._matched,
            raft._acknowledged,
            plain(raft._leader),
            plain((raft._election.is_pre, raft._election.granted)) if raft._election is not None else None,
            raft.deadline < float("inf"),
            raft._applied,
            tuple([plain(raft.stores._stores.get(other, 0)) for other in order]),
            self._leadership(raft.leadership, plain) if raft.leadership is not None else None,
        )

    @staticmethod
    def _log(log: RaftLog, number: int, plain: Callable[[Any], Any]) -> tuple[Any, ...]:
        writes = [(number - write.number, write.first, write.last) for write in log._writes]
        is_new = log.snapshot != log._written_snapshot
        return plain(log._entries), plain(log.snapshot), is_new, log.commit, log._last_written, log._unwritten, *writes

    @staticmethod
    def _leadership(leadership: Leadership, plain: Callable[[Any], Any]) -> tuple[Any, ...]:
        change = leadership._handing_over
        progress = {
            member: (one.stored, one.next, one.probe, one._told, one._round_to, one._piece, one._is_piece_under_way)
            for member, one in leadership.progress.items()
        }
        return plain(progress), (plain(change.to), change.is_told) if change is not None else None


def check_followers(cluster: Cluster) -> None:
    """Nothing is under way: members in contact with a leader have its log, and have applied what it has decided."""
    for name in cluster.leaders():
        leader = cluster.replicas[name].raft
        assert leader is not None
        for member in leader.log.configuration.members:
            raft = cluster.replicas[member.router].raft
            if raft is not None and raft.me == member and cluster.are_in_contact(name, member.router):
                ends = (raft.log.last, raft.log.commit), (leader.log.last, leader.log.commit)
                assert ends[0] == ends[1], f"{member.router} is at {ends[0]}, its leader {name} at {ends[1]}"


def resigned(cluster: Cluster) -> None:
    """Nobody leads."""
    cluster.do("a", lambda raft: raft.resign(cluster.now))
    while cluster.step_without_time():
        pass


def two_lost(cluster: Cluster) -> None:
    """The set has decided something. Then two of three stores are lost at once."""
    cluster.propose("a", b"x")
    cluster.settle()
    for name in "bc":
        cluster.replace_disk(name)
        cluster.cut(name)
        cluster.start(name)


def nobody_leads(cluster: Cluster) -> None:
    assert not cluster.leaders(), "two stores that are empty have elected a leader"


def apart(cluster: Cluster) -> None:
    """The leader has lost its contacts. The others do not lead as yet."""
    cluster.propose("a", b"x")
    cluster.settle()
    cluster.cut("a")
    cluster.cut("b", "c")


def other_file(cluster: Cluster) -> None:
    """Router b has another file than a and c."""
    cluster.do("b", lambda raft: raft.follow_ring("bca"))


def one_life(cluster: Cluster) -> None:
    rafts = [host.raft for host in cluster.replicas.values() if host.raft is not None]
    lives = {life for life, _ in cluster.decided} | {raft.hard.life for raft in rafts if raft.hard.begun}
    assert len(lives) <= 1, f"the set has begun in lives {lives}"


def behind(cluster: Cluster) -> None:
    """Router c was away while others decided something, and a has it in its snapshot alone."""
    cluster.cut("c")
    cluster.propose("a", b"x")
    cluster.settle()
    cluster.compact("a")
    cluster.settle()


QUICK = [
    Scope(name="entries", symmetric="bc", entries=2),
    Scope(name="a leader alone", symmetric="bc", elections=0, entries=1, cuts=2, is_disk_slow=False),
    Scope(name="cuts", symmetric="bc", entries=1, elections=1, cuts=1, is_disk_slow=False),
    Scope(name="restarts", symmetric="bc", elections=1, restarts=1, is_disk_slow=False),
    Scope(name="two stores lost", prepare=two_lost, expect=nobody_leads, symmetric="bc", terms=3, cuts=1),
    Scope(name="a set begins", begun=False, symmetric="bc", elections=0, expect=one_life, is_disk_slow=False),
    Scope(name="a snapshot", prepare=behind, elections=0, entries=1, cuts=1, is_disk_slow=False),
]
"""For the suite: seconds."""
LONG = [
    Scope(name="two candidates", prepare=resigned, symmetric="bc", elections=2, is_disk_slow=False),
    Scope(name="a cut leader", symmetric="bc", elections=1, cuts=2, is_disk_slow=False),
    Scope(name="terms", symmetric="bc", entries=3, elections=1, cuts=1, restarts=1, is_disk_slow=False),
    Scope(name="slow disks", symmetric="bc", entries=1, elections=1, cuts=1),
    Scope(name="slow disks and restarts", symmetric="bc", elections=1, restarts=1),
    Scope(name="a transfer", symmetric="bc", elections=1, transfers=1, is_disk_slow=False),
    Scope(name="a transfer and a cut", symmetric="bc", elections=0, transfers=1, cuts=1, is_disk_slow=False),
    Scope(name="a learner", routers="abcd", symmetric="bc", rings=("abcd",), elections=0, is_disk_slow=False),
    Scope(
        name="a learner and an election",
        routers="abcd",
        symmetric="bc",
        rings=("abcd",),
        elections=1,
        restarts=1,
        is_disk_slow=False,
    ),
    Scope(
        name="files that differ",
        begun=False,
        prepare=other_file,
        rings=("abc",),
        elections=0,
        replaced=1,
        expect=one_life,
        is_disk_slow=False,
    ),
    Scope(name="a store replaced", symmetric="bc", elections=1, replaced=1, losable="bc", is_disk_slow=False),
    Scope(
        name="recovered while others return",
        prepare=apart,
        symmetric="bc",
        terms=3,
        elections=1,
        recoveries=1,
        is_disk_slow=False,
    ),
    Scope(name="a snapshot and slow disks", prepare=behind, elections=0, cuts=1, restarts=1),
]
"""By hand."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.topic.raft.search", description="visit all states of a set")
    parser.add_argument("name", nargs="*", help="parts of names of scopes; all if none is given")
    parser.add_argument("--most", type=int, default=10_000_000, help="stop at so many states")
    arguments = parser.parse_args()
    failed = 0
    for scope in QUICK + LONG:
        if arguments.name and not any(name in scope.name for name in arguments.name):
            continue
        began, search = time.monotonic(), Search(scope, most=arguments.most)
        try:
            search.run()
        except AssertionError as wrong:
            failed += 1
            print(wrong)
        seconds = time.monotonic() - began
        done = "complete" if search.is_complete else "stopped"
        print(f"{scope.name}: {search.states} states, {search.transitions} transitions, depth {search.deepest}, "
              f"{done}, {seconds:.0f} s", flush=True)  # fmt: skip
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
