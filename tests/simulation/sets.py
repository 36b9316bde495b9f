"""Replica sets in a simulated mesh: their disks, what breaks them, clients that declare queues, and a judge of it all.

A disk does its writes in order, beside its router, quickly or slowly. When the router dies, the disk has done some of
the first writes under way. Before a router starts, its disk may be replaced by an empty one. At a start, or while the
router runs, the disk's part of a set may turn out damaged: then the store begins that part anew. A full disk counts as
one that hangs. A disk that fails ends its router. Clients send requests to any router. `watch` checks the invariants
after each step of a router, `unrest` the final conditions (protocol 13).
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import attrs

from tests.failures import TextMarking
from tests.set_store import MemorySets, StoreNames
from tests.simulation.parties import Violation
from tests.simulation.queue_logs import Proposed, asked_in
from tests.simulation.set_copies import SetCopies
from tests.simulation.set_operators import SetOperators
from tests.simulation.ttl import left_ms
from topic.directory.entry import Role
from topic.identity import CONTAINER, LinkIdentity, ingresses_of, queue_of
from topic.node import SetPort
from topic.queues.actions import Answered, BodiesFound, SetView
from topic.queues.bound.bindings import set_of_binding
from topic.queues.leader import leaders
from topic.queues.moving import moves
from topic.queues.moving.policy import FOLLOW, PREFER, PREFERS, SHARE, MovePolicy
from topic.queues.operations import (
    Answer,
    Configure,
    Declare,
    Delete,
    Done,
    Operation,
    Purge,
    QueueId,
    QueueSettings,
    Refused,
    RefusedFor,
    Retry,
)
from topic.queues.proposals import Enqueue, Proposal
from topic.queues.replica import SetReplica
from topic.queues.set_map import SetMap, SetPlan, hashed_plans
from topic.queues.sets import ReplicaSets
from topic.queues.state import SetState
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, Renew, StoreChange, StoreRead, Write
from topic.raft.configuration import Configuration, Replica
from topic.raft.life import SetLife
from topic.raft.limits import RaftLimits
from topic.raft.log import Entry

if TYPE_CHECKING:
    from tests.simulation.router import Router
    from tests.simulation.world import World

SHARED = 4
"""Names that all clients use."""
LAST_S = 40.0
"""Seconds after the last fault at which each router sends a last request to each set. The set has to do it. Most runs
send them as soon as all sets are in their final condition: after that the mesh only sends HELLOs. On links of few bytes
a second messages may take longer than an election, for minutes (protocol 13.3, How soon): there routers ask again."""
PATIENT = 8
"""One run in this many waits for the full `LAST_S`."""


class SetDisk(TextMarking):
    """The disk of one router, with the parts of all sets."""

    def __init__(self, world: "SetWorld", router: "Router") -> None:
        self._world = world
        self._router = router
        self.store = world.new_disk()
        self.copy = self.store.copy()
        """A copy of the store from some time ago."""
        self.hangs_until = 0.0
        self.slow = world.knobs.disk
        """Longest time that a write takes."""
        self._life = 0
        """The number of processes that have used the disk."""
        self._waiting: deque[StoreChange | StoreRead] = deque()
        self._under_way: list[StoreChange | StoreRead] = []

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way)

    # the interface for the node (`topic.node.SetShell`)

    def keep(self, changes: Sequence[StoreChange | StoreRead]) -> None:
        self._waiting.extend(changes)
        if not self._under_way:
            self._begin()

    def answered(self, answered: Answered) -> None:
        self._world.answered(self._router, answered)

    def found(self, found: BodiesFound) -> None:
        """Not needed: nobody else reads."""

    # the disk

    def _begin(self) -> None:
        """Begin one transaction for all that waits."""
        self._under_way.extend(self._waiting)
        self._waiting.clear()
        schedule = self._router.schedule
        at = max(schedule.now, self.hangs_until) + self._world.dice.random() * self.slow
        schedule.at(at, self._end, self._life)

    def _end(self, life: int) -> None:
        if life != self._life:
            return
        if self._router.schedule.now < self.hangs_until:  # the disk has begun to hang meanwhile
            self._router.schedule.at(self.hangs_until, self._end, life)
            return
        done, self._under_way = self._under_way, []
        told = [(change, self._do(change)) for change in done]
        if self._waiting:
            self._begin()
        self._router.handle(self._tell, told)

    def _do(self, change: StoreChange | StoreRead) -> FoundPiece | FoundBodies | None:
        if isinstance(change, ReadPiece):
            return self.store.read(attrs.evolve(change, size=min(change.size, self._world.copies.piece)))
        if isinstance(change, ReadBodies):
            return self.store.bodies(change)
        self.store.write([change])
        part = self.store.parts[change.set]
        if part.hard.life:
            self._world.accepted.add((change.set, Replica(self._router.name, part.store)))
        return None

    def _tell(self, done: list[tuple[StoreChange | StoreRead, Any]]) -> None:
        for change, found in done:
            if isinstance(change, Write):
                self._router.node.stored(change)
            elif isinstance(change, ReadPiece):
                self._router.node.piece_read(change, found)
            elif isinstance(change, ReadBodies):
                self._router.node.bodies_read(change, found)

    def crash(self) -> None:
        """The process ends. Of the writes under way, the disk has those up to some point."""
        self._life += 1
        changes = [*self._under_way, *self._waiting]
        for change in changes[: self._world.dice.randrange(len(changes) + 1)]:
            self._do(change)
        self._under_way.clear()
        self._waiting.clear()

    def replace(self) -> None:
        for name in self.store.parts:
            self._world.gone.add(self._part(name))
        self.store = self._world.new_disk()
        self.copy = self.store.copy()

    def _part(self, name: str) -> tuple[str, Replica]:
        return name, Replica(self._router.name, self.store.parts[name].store)

    def damage(self, name: str) -> None:
        """The store finds that its part of a set is damaged, and begins the part anew."""
        self._world.gone.add(self._part(name))
        self.store.write([Renew(name, self._world.new_store(), "it is damaged")])


@attrs.define
class _Request:
    router: str
    incarnation: int
    number: int
    operation: Operation
    at: float
    is_last: bool
    """Whether it was made when the faults were long over."""
    answer: Answer | None = None


@attrs.define(eq=False)
class _Model:
    """The state after the first decided entries of a life of a set. Decided entries do not change, so each is applied
    once."""

    state: SetState = attrs.Factory(SetState)
    applied: int = 0
    created: dict[str, int] = attrs.Factory(dict)
    """Keyed by queue: how often it was declared."""

    def apply(self, index: int, entry: Entry) -> None:
        self.applied = index
        if not entry.data:
            return
        operation, before = asked_in(entry), len(self.state)
        answer = self.state.apply(index, entry.data)
        if isinstance(operation, Declare) and len(self.state) > before:
            self.created[operation.name] = self.created.get(operation.name, 0) + 1
        assert isinstance(answer, Done | Refused) == isinstance(operation, Operation)


class SetWorld:
    """All sets of a mesh and their clients. Its random numbers are its own."""

    def __init__(self, world: "World") -> None:
        self.dice = Random(f"sets {world.seed}")
        self._rot = Random(f"rot {world.seed}")
        self._scrubbed: set[tuple[str, bytes]] = set()
        """(router, store): parts that were found damaged, and that the disk may still have."""
        self.knobs = world.knobs
        self._world = world
        self._schedule = world.schedule
        self._check = world.judge.check
        self.new_store = StoreNames()
        self.copies = SetCopies(world, self)
        self.map = self._draw_map(tuple(world.routers)[: self.knobs.routers])
        self.operators = SetOperators(world, self)
        self._old = Random(f"old disks {world.seed}")
        dice = self.dice
        self._limits = RaftLimits(
            dead=self.knobs.dead,
            told=(0.0, 0.05)[world.seed % 2],
            window=dice.choice((200, 1000, 1 << 20)),
            unstored=max(dice.choice((300, 2000, 8 << 20)), 2000 if self.knobs.queues else 0),
        )
        self._compare_every = dice.choice((3, 10, 10, 1000))
        self.disks = {name: SetDisk(self, router) for name, router in world.routers.items()}
        for name, router in world.routers.items():
            router.sets = self
            router.disk = self.disks[name]
        self.requests: list[_Request] = []
        self._open: dict[tuple[str, int, int], _Request] = {}
        """Keyed by router, incarnation and number."""
        self._done: list[tuple[_Request, QueueId]] = []
        """Requests that were answered in the present step of a router."""
        self._names = 0
        self._decided: dict[tuple[str, SetLife], list[Entry | None]] = {}
        """Keyed by set and life: the entries from index 1 on."""
        self._decided_in: dict[tuple[str, SetLife, int], int] = {}
        """Keyed by set, life and index: the term of the leader that has decided the entry."""
        self._models: dict[tuple[str, SetLife], _Model] = {}
        """Keyed by set and life."""
        self._digests: dict[tuple[str, SetLife, int], bytes] = {}
        """Keyed by set, life and index."""
        self.leaders: dict[tuple[str, SetLife, int], str] = {}
        """Keyed by set, life and term."""
        self._handed: set[tuple[Any, ...]] = set()
        """Router, set, term and transfer: those that were seen."""
        self.is_lost: set[str] = set()
        """Sets that have lost so many disks that they may never have a leader again."""
        self.accepted: set[tuple[str, Replica]] = set()
        """(set, replica) that has accepted a life. Others may know that, or may soon know it."""
        self.gone: set[tuple[str, Replica]] = set()
        """(set, replica) that faults have destroyed."""
        self.may_have_lost: set[str] = set()
        """Sets that an operator has recovered. They may have lost some of what was answered before."""
        self._last: list[tuple[float, Router, str]] = []
        """Requests to make when all is at rest: after how many seconds, at which router, to which set."""
        self._flushed: dict[str, dict[str, None]] = {name: {} for name in world.routers}
        """Keyed by router: the sets that were flushed since the last step without waiting flushes."""

    def _draw_map(self, routers: tuple[str, ...]) -> SetMap:
        dice = self.dice
        replicas = dice.choice((1, 2, 3, 3, 3, 5))
        plans = hashed_plans(routers, self.knobs.sets, replicas)
        if dice.random() < 0.3 or self.knobs.moves or self.knobs.copies:
            voters = tuple(dice.sample(routers, min(3, len(routers))))
            plan = SetPlan("eu", voters, "queue/eu/", self._draw_policy())
            plans.insert(0, self.copies.planned(plan, routers) if self.knobs.copies else plan)
        return SetMap(plans, replicas=replicas)

    def _draw_policy(self) -> MovePolicy:
        if not self.knobs.moves:
            return PREFERS
        dice = Random(f"policy {self._world.seed}")
        return MovePolicy(dice.choice((PREFER, FOLLOW, FOLLOW, SHARE)), dice.choice((0.2, 1.0)))

    @contextmanager
    def quicker(self) -> Iterator[None]:
        """In runs whose sets move: they move soon, and often."""
        if not self.knobs.moves:
            with self.copies.slower():
                yield
            return
        quick = patch.multiple(moves, RETRY_S=0.5, PAUSE_S=0.5, MOST_PAUSE_S=4.0, SEEN_S=1.0)
        with quick, patch.object(leaders, "WATCH_S", 0.1), self.copies.slower():
            yield

    def new_disk(self) -> MemorySets:
        return MemorySets(self.new_store.parts(self.map.plans))

    def port(self, router: "Router") -> SetPort:
        """The set port for the node of a router that starts."""
        members = sorted(router.mesh.plan.members)
        sets = ReplicaSets(
            router.name,
            self.map.among(members),
            members,
            self.disks[router.name].store.contents,
            self._limits,
            self.dice.random,
            router.topic.outlet.clock.stamp,
            self.new_store,
            self._schedule.now,
            compare_every=self._compare_every,
            prefer_s=1.0 if self.knobs.voters else math.inf,
            left_ms=self._left_ms,
        )
        sets.propose = partial(self._propose, router, sets.propose)  # type: ignore[method-assign]
        for replica in sets._replicas.values():
            replica._apply = partial(self._apply, router.name, replica, replica._apply)  # type: ignore[method-assign]
        flushed = self._flushed[router.name] = dict.fromkeys(self.map.plans)
        sets._flush = partial(self._flush, flushed, sets._flush)  # type: ignore[method-assign]
        return SetPort(sets, self.disks[router.name])

    def _left_ms(self, messages: Sequence[bytes], wall_ms: float) -> list[float] | None:
        known = self._world.judge.messages
        lefts = [left_ms(known[message], wall_ms) if message in known else inf for message in messages]
        return lefts if min(lefts) < inf else None

    def _propose(
        self,
        router: "Router",
        propose: Callable[[str, Iterable[Proposal | Declare]], int | None],
        name: str,
        proposals: Iterable[Proposal | Declare],
    ) -> int | None:
        assert router.node.sets is not None
        proposals, replica = [*proposals], router.node.sets._replicas[name]
        first = propose(name, proposals)
        if first is not None:
            indices, hard = range(first, first + len(proposals)), replica.raft.hard
            proposed = Proposed(router.topic.outlet.time_us // 1000, replica.applied)
            self._world.judge.queues.logs.proposed(name, hard.life, hard.term, indices, proposed)
        return first

    # faults of disks

    def starts(self, router: "Router") -> None:
        """A router is about to start: its disk may have been replaced or damaged meanwhile."""
        if self.dice.random() < self.knobs.disk_loss and self._may_lose(router, list(self.map.plans)):
            self._world.note(router.name, "its disk is replaced")
            self.disks[router.name].replace()
        elif self.knobs.old_disks and self._old.random() < self.knobs.old_disks:
            self._put_back(router, self.disks[router.name])
        if (name := self._damaged(router)) is not None:
            self.disks[router.name].damage(name)

    def _put_back(self, router: "Router", disk: SetDisk) -> None:
        """Replace the disk of a router with its older copy."""
        changed = disk.store.changed_since(disk.copy)
        if changed and self._may_lose(router, changed):
            self._world.note(router.name, f"its disk is an older copy of itself, without changes of {changed}")
            disk.store = disk.store.put_back(disk.copy, self.new_store)

    def _copy(self, disk: SetDisk) -> None:
        disk.copy = disk.store.copy()

    def _damaged(self, router: "Router") -> str | None:
        """The set in which the router's disk is found to have damaged rows, if any."""
        name = self._rot.choice(list(self.map.plans))
        if self._rot.random() >= self.knobs.disk_loss or not self._may_lose(router, [name]):
            return None
        self._world.note(router.name, f"its disk has damaged rows of {name}")
        return name

    def _scrub(self, router: "Router") -> None:
        """Scrub the disk of a router that runs."""
        if router.alive and (name := self._damaged(router)) is not None:
            store = self.disks[router.name].store.parts[name].store
            self._scrubbed.add((router.name, store))
            self.gone.add((name, Replica(router.name, store)))
            router.handle(router.node.damaged, name, "a scrub found it")

    def _may_lose(self, router: "Router", names: Sequence[str]) -> bool:
        """Whether the disk of a router may lose these sets. Seldom true if one of them could be lost for ever."""
        endangered = [name for name in names if not self._can_spare(name, router.name)]
        if endangered and self.dice.random() >= 0.1:
            return False
        if endangered:
            self.lose(endangered)
            self._world.note(router.name, f"so much is lost that sets may be lost: {endangered}")
        return True

    def lose(self, names: Sequence[str]) -> None:
        """These sets may never have a leader again, unless an operator recovers them."""
        self.is_lost.update(names)
        for name in names:
            self._world.judge.queues.lost(name)

    def _can_spare(self, name: str, router: str) -> bool:
        """Whether the set has a majority without this router's disk, in all configurations that may count."""
        configurations = self.configurations(name)
        configurations += [later for one in configurations for later in _later(one)]
        parts = [(other, disk.store.parts[name]) for other, disk in self.disks.items()]
        if not any(part.hard.begun for _, part in parts) and not self._takes_effect(name):
            return True  # an operator ends a beginning that cannot be completed
        left = {(other, part.store) for other, part in parts if other != router} - self._scrubbed
        return all(
            2 * sum((voter.router, voter.store) in left for voter in one.voters) > len(one.voters)
            for one in configurations
        )

    def _takes_effect(self, name: str) -> bool:
        """Whether a router knows that the life of the set has taken effect, or may learn it, as all voters have
        accepted it. No disk may record that."""
        known = [one.voters for one in self.configurations(name) if one.voters]
        has_all = any(all((name, voter) in self.accepted for voter in voters) for voters in known)
        return has_all or any(replica.raft.hard.begun for _, replica in self.replicas(name))

    def replicas(self, name: str) -> "Iterator[tuple[Router, SetReplica]]":
        """The replicas that run. A router that starts just now has the replicas from before."""
        for router in self._world.routers.values():
            sets = router.node.sets if router.alive and hasattr(router, "node") else None
            if sets is not None:
                yield router, sets._replicas[name]

    def configurations(self, name: str) -> list[Configuration]:
        """The last decided configuration, and all later ones that are on a disk or will be, in the life that began
        last."""
        parts = [disk.store.parts[name] for disk in self.disks.values()]
        logs = [replica.raft.log for _, replica in self.replicas(name)]
        if name in self.may_have_lost:
            last_life = max(part.hard.life for part in parts)
            parts = [part for part in parts if part.hard.life == last_life]
        decided = max((len(log) for (which, _), log in self._decided.items() if which == name), default=0)
        found: dict[int, list[Configuration]] = {}
        for part in parts:
            found.setdefault(part.snapshot.index, []).append(part.snapshot.configuration)
            for index, entry in enumerate(part.entries, part.snapshot.index + 1):
                if entry.configuration is not None:
                    found.setdefault(index, []).append(entry.configuration)
        for log in logs:
            found.setdefault(log.configured_at, []).append(log.configuration)
        last = max((index for index in found if index <= decided), default=0)
        return [one for index, ones in found.items() if index >= last for one in ones]

    def hang(self) -> None:
        """A disk hangs. Some hang for longer than a contact would last."""
        disk = self.disks[self.dice.choice(list(self.disks))]
        disk.hangs_until = self._schedule.now + self.dice.choice((0.5, 3.0, 30.0))
        self._world.note("world", f"the disk of {disk._router.name} hangs until {disk.hangs_until:.1f}")

    def slow_down(self) -> None:
        disk = self.disks[self.dice.choice(list(self.disks))]
        disk.slow = self.dice.choice((0.2, 2.0))
        self._world.note("world", f"the disk of {disk._router.name} is slow")

    def heal(self) -> None:
        for disk in self.disks.values():
            disk.hangs_until, disk.slow = 0.0, self.knobs.disk

    # clients

    def plan(self) -> None:
        for _ in range(self.knobs.asked):
            self._schedule.at(self.dice.random() * (self.knobs.turmoil + 1.0), self._ask_something)
        for router in self._world.routers.values():
            self._schedule.at(self._rot.random() * (self.knobs.turmoil + 1.0), self._scrub, router)
        if self.knobs.old_disks:
            for disk in self.disks.values():
                self._schedule.at(self._old.random() * self.knobs.turmoil, self._copy, disk)
        self.operators.plan()
        self.copies.plan()

    def plan_last(self) -> None:
        """Plan the last requests, as the faults are over."""
        self.heal()
        self._rest_policies()
        self._schedule.after(LAST_S / 2, self._end_losses, self._schedule.now + LAST_S)
        for router in self._world.routers.values():
            for name in self.map.plans:
                self._last.append((self.dice.random(), router, name))
        self._look_for_rest(self._schedule.now + LAST_S)

    def _rest_policies(self) -> None:
        """Sets that share their lead would move for ever."""
        for router in self._world.routers.values():
            if router.alive and router.node.sets is not None:
                for one in router.node.sets._moves.values():
                    one.policy = PREFERS

    def _end_losses(self, until: float) -> None:
        """When no disk hangs any more, operators mark as lost the sets that lack a majority. Some of these have begun
        after a voter had lost the store with which it had accepted their life. Some have begun as an operator began
        them anew: then the stores that have accepted the other life are void (13.2)."""
        lost = [name for name in self.map.plans if name not in self.is_lost and self._lacks_majority(name)]
        self.lose(lost)
        begins = self.operators.end_losses()
        if self._schedule.now < until and (begins or any(disk.is_busy for disk in self.disks.values())):
            self._schedule.after(1.0, self._end_losses, until)

    def _lacks_majority(self, name: str) -> bool:
        rafts = [replica.raft for _, replica in self.replicas(name)]
        begun = [raft.log.configuration for raft in rafts if raft.hard.begun]
        void = {voter for one in begun for voter in one.voters} - {raft.me for raft in rafts}
        gone = {voter for at, voter in self.gone if at == name} | (void if name in self.operators.begun_anew else set())
        return all(raft.leadership is None for raft in rafts) and any(
            2 * len(gone & {*one.voters}) >= len(one.voters) > 0 for one in begun
        )

    def _look_for_rest(self, until: float) -> None:
        is_patient = self._world.seed % PATIENT == 0 or self.is_lost
        is_busy = any(disk.is_busy for disk in self.disks.values())  # perhaps it hangs
        if self._schedule.now >= until or not (is_patient or is_busy or self._turmoil()):
            for after, router, name in self._last:
                self._schedule.after(after, self._ask_last, router, name)
        else:
            self._schedule.at(min(self._schedule.now + 1.0, until), self._look_for_rest, until)

    def _ask_something(self) -> None:
        """Make some requests at a router. Each client has names of its own, which it deletes when it knows that they
        were declared; all clients share some names.
        """
        router = self.dice.choice(list(self._world.routers.values()))
        for _ in range(self.dice.choice((1, 1, 3, 10))):
            router.handle(self.ask, router, self._draw_operation())

    def _draw_operation(self) -> Operation:
        dice, prefix = self.dice, self.dice.choice(("queue/", "queue/eu/"))
        declared = [(one.operation.name, one.answer) for one in self._own if isinstance(one.answer, Done)]
        kind = dice.choice(("own", "own", "own", "shared", "delete", "configure"))
        settings = QueueSettings(limit_messages=dice.choice((None, 1)))
        if kind == "own" or not declared:
            self._names += 1
            return Declare(f"{prefix}own/{self._names}", settings)
        if kind == "shared":
            return Declare(f"{prefix}{dice.randrange(SHARED)}", settings)
        name, done = dice.choice(declared)
        return Delete(name, done.id) if kind == "delete" else Configure(name, done.id, done.version, settings)

    @property
    def _own(self) -> "list[_Request]":
        """The requests for queues that have no other clients."""
        used = self._world.queues.names if self._world.queues is not None else []
        return [one for one in self.requests if one.operation.name not in used]

    def _ask_last(self, router: "Router", name: str) -> None:
        """Declare one more queue, in this set."""
        for number in range(10_000):
            queue = f"{self.map.plans[name].prefix or 'queue/'}last/{router.name}/{number}"
            plan = self.map.plan_of(queue)
            if plan is not None and plan.name == name:
                router.handle(self.ask, router, Declare(queue), True)
                return

    def ask(self, router: "Router", operation: Operation, is_last: bool = False) -> None:
        number = router.node.ask(operation)
        request = _Request(router.name, router.incarnation, number, operation, self._schedule.now, is_last)
        self.requests.append(request)
        self._open[router.name, router.incarnation, number] = request
        self._world.note(router.name, f"is asked as {number}: {operation}")

    def answered(self, router: "Router", answered: Answered) -> None:
        request = self._open.pop((router.name, router.incarnation, answered.number), None)
        self._world.note(router.name, f"answers {answered.number}: {answered.answer}")
        self._check(request is not None, f"13 answers: {router.name} answers {answered.number} twice")
        assert request is not None
        request.answer = answer = answered.answer
        if isinstance(answer, Done):
            self._done.append((request, answer.id))
            if isinstance(request.operation, Purge | Retry):
                self._world.judge.queues.counted(request.operation, answer.count)
        else:
            expected = {RefusedFor.NO_ANSWER, RefusedFor.DIFFERS, RefusedFor.CHANGED, RefusedFor.NOT_FOUND}
            self._check(answer.reason in expected, f"13 answers: {request.operation} is refused: {answer}")
            if request.is_last and self.knobs.rate < inf:
                request.is_last = False
                plan = self.map.plan_of(request.operation.name)
                assert plan is not None
                self._schedule.after(1.0, self._ask_last, router, plan.name)

    def _check_done(self, request: _Request, id_: QueueId) -> None:
        """Check that an answered request is decided. It stays so from now on."""
        plan = self.map.plan_of(request.operation.name)
        assert plan is not None
        logs = [log for (name, life), log in self._decided.items() if name == plan.name and life >= id_.life]
        entries = [log[id_.index - 1] for log in logs if 0 < id_.index <= len(log)]
        names = [_queue_of(asked_in(entry)) for entry in entries if entry is not None and entry.data]
        if request.operation.name not in names:
            raise Violation(f"13 kept: {request.operation} was answered, {entries} is decided")

    def recovered(self, name: str, former: SetLife, replica: SetReplica) -> None:
        """An operator has made a replica the whole set, in a new life that begins with what the replica had applied."""
        self.is_lost.discard(name)
        self.may_have_lost.add(name)
        self._world.judge.queues.lost(name)
        life = replica.raft.hard.life
        kept = self._decided[name, life] = self._decided.get((name, former), [])[: replica.raft.log.commit]
        self._models.pop((name, life), None)
        for index in range(1, len(kept) + 1):
            self._decided_in[name, life, index] = self._decided_in[name, former, index]
        self._world.judge.queues.logs.recovered(name, life, [entry for entry in kept if entry is not None])

    # what always holds

    def watch(self, router: "Router") -> None:
        """Check the sets after each step of a router. A set without events has not changed."""
        sets = router.node.sets
        assert sets is not None
        flushed = self._flushed[router.name]
        for name in (*flushed, *sets._touched):
            self._watch_leader(router.name, name, sets._replicas[name])
        if flushed and not sets.has_work:  # otherwise it has not flushed yet
            sets.check(flushed)
            flushed.clear()
        while self._done:
            self._check_done(*self._done.pop())

    @staticmethod
    def _flush(flushed: dict[str, None], flush: Callable[[str, float], None], name: str, now: float) -> None:
        flushed[name] = None
        flush(name, now)

    def _apply(
        self, router: str, replica: SetReplica, apply: Callable[[int, Entry], None], index: int, entry: Entry
    ) -> None:
        """Check that only one entry is ever decided at each index, and that all states at one index are equal."""
        name, life = replica.plan.name, replica.raft.hard.life
        known = self._decided.setdefault((name, life), [])
        known.extend([None] * (index - len(known)))
        former = known[index - 1]
        if former is None:
            known[index - 1] = entry
            self._decided_in[name, life, index] = replica.raft.hard.term
            self._world.judge.queues.logs.decided(name, life, index, entry)
        elif former != entry:
            raise Violation(f"13 one log: {router} decides {entry} at {index} of {name}, not {former}")
        apply(index, entry)
        digest = replica.state.rows.digest
        if self._digests.setdefault((name, life, index), digest) != digest:
            raise Violation(f"13 one state: {router} has another at {index} of {name}")

    def _watch_leader(self, router: str, name: str, replica: SetReplica) -> None:
        """Check that only one router leads in a term, and has all entries that were decided in earlier terms. If its
        last vote arrives late, a leader of a later term may have decided some by then."""
        raft = replica.raft
        if raft.leadership is not None and (change := raft.leadership._handing_over) is not None:
            told = raft.stores.get(change.to.router)
            is_new = (router, name, raft.hard.term, change) not in self._handed
            self._handed.add((router, name, raft.hard.term, change))
            wrong = is_new and told is not None and told.leaves
            self._check(
                not wrong, f"13 moves: {router} hands {name} over to {change.to.router}, which is about to stop"
            )
        term = name, raft.hard.life, raft.hard.term
        if raft.leadership is None or self.leaders.get(term) == router:
            return
        self._check(term not in self.leaders, f"13 one leader: {router} leads {term}, as {self.leaders.get(term)} does")
        self.leaders[term] = router
        for index, entry in enumerate(self._decided.get(term[:2], []), 1):
            if entry is None or self._decided_in[name, raft.hard.life, index] >= raft.hard.term:
                continue
            self._check(raft.log.last >= index, f"13 complete: {router} leads {name} without entry {index}")
            if index > raft.log.snapshot.index:
                has = raft.log.entries(index, index)[0]
                self._check(entry == has, f"13 complete: {router} leads {name} with {has} at {index}, not {entry}")

    # in the end

    def links(self) -> set[tuple[tuple[Role, LinkIdentity], str]]:
        """The links of the sets, each with its leader's router. At rest all routers know them."""
        alive = [router for router in self._world.routers.values() if router.alive]
        leaders = [(router.name, router.node._leaders) for router in alive]
        led = [(router, name, one) for router, sets in leaders if sets is not None for name, one in sets.led.items()]
        ingresses = {((Role.SUBSCRIBER, one), router) for router, name, _ in led for one in ingresses_of(name)}
        bound = {((Role.SUBSCRIBER, end.identity), router) for router, _, one in led for end in one.bound.values()}
        ends = [(router, end) for router, _, one in led for end in (*one.egresses.values(), *one.letters.values())]
        return ingresses | bound | {((Role.PUBLISHER, end.identity), router) for router, end in ends}

    def leaderless(
        self, known: set[tuple[tuple[Role, LinkIdentity], str]]
    ) -> set[tuple[tuple[Role, LinkIdentity], str]]:
        """Links that a router knows and that belong to sets which may have lost their logs for good."""
        inside = (link for link in known if link[0][1].container == CONTAINER)
        sets = ((link, set_of_binding(link[0][1]) or queue_of(link[0][1].address)[0]) for link in inside)
        return {link for link, name in sets if name in self.is_lost} - self.links()

    def unrest(self) -> str:
        """The first condition that does not hold though the faults are long over; empty if all hold."""
        self._check_all()
        if turmoil := self._turmoil():
            return turmoil
        last = [one for one in self.requests if one.is_last]
        if len(last) < len(self.map.plans) * sum(router.alive for router in self._world.routers.values()):
            return "13 liveness: the last requests are not made yet"
        for one in last:
            plan = self.map.plan_of(one.operation.name)
            assert plan is not None
            excused = plan.name in self.is_lost
            if not isinstance(one.answer, Done) and not excused:
                return f"13 liveness: {one.operation} at {one.router} came to {one.answer}"
        return ""

    def _turmoil(self) -> str:
        """The first condition that does not hold though all requests are done; empty if all hold."""
        waiting = [one for one in self._open.values() if self._is_alive(one)]
        if waiting:
            return f"13 liveness: {waiting[0].router} has no answer to {waiting[0].operation}"
        return next((why for name in self.map.plans if (why := self._unlike(name))), "")

    def _check_all(self) -> None:
        """Check all sets, also sets that changed and were not flushed, as that is a fault, too."""
        for router in self._world.routers.values():
            if router.alive and router.node.sets is not None and not router.node.sets.has_work:
                router.node.sets.check()

    def _is_alive(self, request: _Request) -> bool:
        router = self._world.routers[request.router]
        return router.alive and router.incarnation == request.incarnation

    def _unlike(self, name: str) -> str:
        """The first difference at rest: all routers have to know the leader, and all replicas have to equal what the
        log leads to. Empty if there is none.
        """
        if name in self.is_lost:
            return ""
        alive = [router for router in self._world.routers.values() if router.alive]
        views = {router.name: self._view(router, name) for router in alive}
        leaders = {view.leader for view in views.values()}
        if len(leaders) != 1 or "" in leaders:
            return f"13 liveness: {leaders} lead {name}"
        life = max(view.life for view in views.values())
        configuration = self._decided_configuration(name, life)
        ring, copies = configuration.ring, configuration.copies
        voters = {view.voters for router, view in views.items() if router in ring}
        if {frozenset(one) for one in voters} != {frozenset(ring)}:
            return f"13 liveness: {name} has the voters {voters}, not {ring}"
        learners = {frozenset(view.learners) for router, view in views.items() if router in ring}
        if learners != {frozenset(copies)}:
            return f"13 liveness: {name} has the learners {learners}, not {copies}"
        sets = [router.node.sets for router in alive if router.name in (*ring, *copies)]
        found = {one._replicas[name].state.rows.digest for one in sets if one is not None}
        if len(found) > 1:
            return f"13 one state: replicas of {name} differ"
        if overdue := [router.name for router in alive if router.node.sets and name in router.node.sets.to_hand_over]:
            return f"13 moves: {overdue} is about to stop, and leads {name}"
        if found - {self._model(name, life).rows.digest}:
            return f"13 one state: replicas have not what the log of {name} leads to"
        return ""

    def _decided_configuration(self, name: str, life: SetLife) -> Configuration:
        """The last decided configuration."""
        entries = [entry for entry in self._decided.get((name, life), []) if entry is not None]
        found = [entry.configuration for entry in entries if entry.configuration is not None]
        return found[-1] if found else Configuration(())

    @staticmethod
    def _view(router: "Router", name: str) -> SetView:
        assert router.node.sets is not None
        return router.node.sets._view(name)

    def _model(self, name: str, life: SetLife) -> SetState:
        """The state that the decided entries lead to. Also checks that no queue of a client's own was declared twice,
        and that no deleted one came back."""
        known = self._models.setdefault((name, life), _Model())
        for index, entry in enumerate(self._decided.get((name, life), [])[known.applied :], known.applied + 1):
            if entry is None:
                raise Violation(f"13 one log: entry {index} of {name} was never decided")
            known.apply(index, entry)
        model, created = known.state, known.created
        deleted = {one.operation.id for one in self.requests if isinstance(one.operation, Delete)}
        for one in self.requests:
            plan = self.map.plan_of(one.operation.name) if isinstance(one.answer, Done) else None
            if plan is not None and plan.name == name and (one.is_last or name not in self.may_have_lost):
                self._check_in_the_end(one, model, deleted)
        twice = [queue for queue, count in created.items() if count > 1 and "own/" in queue]
        self._check(not twice, f"13 once: {twice} were declared twice")
        return model

    @staticmethod
    def _check_in_the_end(request: _Request, model: SetState, deleted: set[QueueId]) -> None:
        queue, id_ = model.get(request.operation.name), request.answer.id  # type: ignore[union-attr]
        is_there = queue is not None and queue.id == id_
        if isinstance(request.operation, Delete):
            if is_there:
                raise Violation(f"13 kept: {request.operation} was answered, and the queue is there")
        elif not is_there and id_ not in deleted:
            raise Violation(f"13 kept: {request.operation} was answered, and the queue is gone")


def _queue_of(asked: Operation | Proposal) -> str:
    """The queue that an entry may declare."""
    if isinstance(asked, Enqueue):
        return asked.queue
    return asked.name if isinstance(asked, Operation) else ""


def _later(one: Configuration) -> list[Configuration]:
    """The configurations that the leader may make of this one before it knows that a store is lost: after each step,
    and after the last one.
    """
    promoted = [one.promoting(learner) for learner in one.learners]
    ring = tuple(member for member in one.members if member.router in one.ring)
    return [*promoted, attrs.evolve(one, voters=ring)] if ring else promoted
