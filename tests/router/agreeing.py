"""Replica sets whose members agree at once: routers of a mesh with queues, as management sees them.

Each set has one list of queues, its leader's. The other replicas have the same list, unless a test makes them fall
behind.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import attrs

from failover.client.management import Management, RefusedError
from router.amqp.format.codec import Raw, encode
from router.amqp.format.message import sections_of
from router.entities.queues import DECLARED_QUEUE
from router.entities.replicas import SET
from router.entities.routers import PLAN_ROUTER
from router.management.agent import Agent
from router.management.entity import EntityType, type_of
from router.management.queues import QueueOperations, SetOperations
from router.management.recent_events import RecentEvents
from router.management.requests import GOOD, Request
from topic.delivery.kinds import AddressKinds
from topic.identity import shown_address
from topic.queues.actions import SetView
from topic.queues.leader.egress import Resting
from topic.queues.operations import Answer, Done, Operation, QueueId, Refused, RefusedFor
from topic.queues.operations import encode as encode_operation
from topic.queues.proposals import Proposal, encode_proposal
from topic.queues.set_map import SetMap, SetPlan
from topic.queues.state import Queue, SetState, entry
from topic.raft.errors import NotLeaderError, NotReadyError
from topic.raft.life import NO_LIFE, SetLife
from topic.settings import QUEUE, TOPIC

LIFE = SetLife(0x66A2F3C1B0001, "a")
PATIENCE_S = 10
EU = SetPlan("eu", ("a", "b", "c"), "queue/eu/")
HASHED = SetPlan("q0", ("b", "c", "d"))


async def at_once() -> None:
    pass


@attrs.define
class Behind:
    """The state of a router that lacks the latest entries of a set."""

    queues: SetState
    commit: int


class AgreeingMesh:
    """Routers a, b, c and d. Set `eu` has a, b and c, the other one b, c and d; the first of each leads."""

    def __init__(self) -> None:
        self.routers = list("abcd")
        self.map = SetMap([EU, HASHED])
        self.leaders: dict[str, str] = {plan.name: plan.voters[0] for plan in self.map.plans.values()}
        """Keyed by set: the leader. A set without an entry has none."""
        self.voters = {plan.name: plan.voters for plan in self.map.plans.values()}
        self.copies: dict[str, tuple[str, ...]] = {}
        """Keyed by set: the routers with an asynchronous copy."""
        self.unbegun: set[str] = set()
        """Sets that have not begun."""
        self.empty: dict[str, str] = {}
        """Keyed by set: the router whose store has the life of the set and no entry."""
        self.lists = {name: SetState() for name in self.map.plans}
        self.indices = dict.fromkeys(self.lists, 1)
        self.behind: dict[tuple[str, str], Behind] = {}
        """Keyed by router and set."""
        self.copied: dict[str, dict[str, int]] = {}
        """Keyed by set: per cent, by router to which the leader copies everything."""
        self.changing: dict[str, tuple[str, ...]] = {}
        """Keyed by set: the present voters, while others are to replace them."""
        self.aside: dict[tuple[str, str], str] = {}
        self.absent: set[str] = set()
        """Routers that do not answer."""
        self.consumers: dict[str, int] = {}
        """Keyed by queue."""
        self.oldest_s = 0.0
        """The age of all messages, as leaders know it, in seconds."""
        self.resting = Resting()
        """The messages of each queue that wait for a time, as leaders know it."""
        self.changes: list[tuple[str, Operation]] = []
        """Decided operations, each with the router to which the request went."""
        self._agents = {router: self._agent(router) for router in self.routers}

    def _agent(self, router: str) -> Agent:
        at = agreeing_at(self, router)

        async def ask(operation: Operation) -> Answer:
            return self.decide(router, operation)

        async def read(set_: str, queue: QueueId, positions: Sequence[int]) -> Mapping[int, bytes]:
            raise AssertionError("all bodies are in memory")

        planned: Mapping[str, Callable[[str], str]] = {"identity": str, "name": str}
        kinds: list[EntityType[Any]] = [
            EntityType[str](PLAN_ROUTER.managed, planned, lambda: self.routers),
            type_of(SET, at, SetOperations(at).all),
            type_of(DECLARED_QUEUE, at, QueueOperations(ask, read, at).all),
        ]
        return Agent(kinds, list, RecentEvents(router, 1), lambda: b"{}", lambda _: Raw(b""), at_once)

    def decide(self, router: str, operation: Operation) -> Answer:
        plan = self.map.plan_of(operation.name)
        if plan is None or not operation.name.startswith("queue/"):
            return Refused(RefusedFor.NO_SET, f'no replica set may have a queue "{operation.name}"')
        if plan.name not in self.leaders:
            return Refused(RefusedFor.NO_ANSWER, f"no router led set {plan.name}, for {PATIENCE_S} s")
        self.indices[plan.name] += 1
        answer = self.lists[plan.name].apply(self.indices[plan.name], entry(LIFE, encode_operation(operation)))
        self.changes.append((router, operation))
        assert isinstance(answer, Done | Refused)
        return answer

    def propose(self, set_: str, proposal: Proposal) -> None:
        """Apply a proposal, as the leader of a set does."""
        self.indices[set_] += 1
        self.lists[set_].apply(self.indices[set_], entry(LIFE, encode_proposal(proposal)))

    async def answer(self, router: str, request: Request) -> bytes:
        return await self._agents[router].answer(request)


class AgreeingRouter:
    """What one of these routers knows."""

    def __init__(self, mesh: AgreeingMesh, name: str) -> None:
        self.limit = 8 << 30
        self._mesh = mesh
        self._name = name

    def overview(self) -> list[SetView]:
        return [self._view(plan) for plan in self._mesh.map.plans.values()]

    @property
    def set_map(self) -> SetMap:
        return self._mesh.map

    def queues(self) -> Iterator[Queue]:
        for plan in self._mesh.map.plans.values():
            if self._name in plan.voters:
                known = self._mesh.behind.get((self._name, plan.name))
                yield from known.queues if known is not None else self._mesh.lists[plan.name]

    def state(self, name: str) -> SetState:
        return self._mesh.lists[name] if self._name in self._mesh.voters[name] else SetState()

    # an operator's commands take effect at once

    def choose(self, name: str, ring: Sequence[str], now: float, copies: Sequence[str] | None = None) -> None:
        if self._mesh.leaders.get(name) != self._name:
            raise NotLeaderError("this replica is not the leader", None)
        if strange := {*ring} - {*self._mesh.routers}:
            raise ValueError(f"there is no router {strange}")
        self._mesh.voters[name] = tuple(ring)
        self._mesh.leaders[name] = ring[0]
        if copies is not None:
            self._mesh.copies[name] = tuple(copies)

    def begin_anew(self, name: str) -> None:
        if name not in self._mesh.unbegun and self._mesh.empty.pop(name, None) != self._name:
            raise NotReadyError("it has begun")
        self._mesh.unbegun.discard(name)
        self._mesh.leaders[name] = self._name

    def recover(self, name: str, now: float) -> None:
        if name in self._mesh.leaders:
            raise NotLeaderError("somebody leads", None)
        self._mesh.leaders[name] = self._name

    def _view(self, plan: SetPlan) -> SetView:
        mesh, place = self._mesh, (self._name, plan.name)
        plan = attrs.evolve(plan, voters=mesh.voters[plan.name])
        leader = mesh.leaders.get(plan.name, "")
        role = "proxy" if self._name not in plan.voters else "leader" if self._name == leader else "follower"
        known, life = mesh.behind.get(place), NO_LIFE if plan.name in mesh.unbegun else LIFE
        commit = known.commit if known is not None else mesh.indices[plan.name]
        if mesh.empty.get(plan.name) == self._name:
            role, commit = "learner", 0
        others = [router for router in plan.voters if router != self._name]
        lacks = {router: mesh.indices[plan.name] - behind.commit for (router, name), behind in mesh.behind.items()
            if name == plan.name}  # fmt: skip
        copies = mesh.copies.get(plan.name, ())
        missing = [router for router in plan.voters if router in mesh.absent]
        return SetView(
            name=plan.name, prefix=plan.prefix, ring=plan.voters, life=life, term=3, leader=leader, role=role,
            voters=mesh.changing.get(plan.name, plan.voters) if role != "proxy" else (), learners=copies, copies=copies,
            commit=commit, applied=commit,
            behind={router: lacks.get(router, 0) for router in others} if role == "leader" else {},
            learning={}, away=dict.fromkeys((router for router in missing if router != self._name), 0.0),
            copied=mesh.copied.get(plan.name, {}) if role == "leader" else {},
            queues=len(known.queues if known is not None else mesh.lists[plan.name]), unstored=0, asked=0,
            why_aside=mesh.aside.get(place, ""), may_stop=tuple(missing) if missing else plan.voters,
        )  # fmt: skip


class AgreeingNode:
    """The node of one of these routers, as management sees it."""

    def __init__(self, mesh: AgreeingMesh, name: str) -> None:
        self.sets = AgreeingRouter(mesh, name)
        self._mesh = mesh
        self._name = name
        kinds = AddressKinds([("topic/", TOPIC), ("queue/", QUEUE)])
        self.topic = SimpleNamespace(directory=self, kinds=kinds)

    @property
    def led(self) -> dict[str, Any]:
        named = SimpleNamespace(
            oldest_s=lambda queue, now: self._mesh.oldest_s, resting=lambda queue: self._mesh.resting
        )
        return {one: named for one, leader in self._mesh.leaders.items() if leader == self._name}

    def subscribers(self, address: str) -> range:
        return range(self._mesh.consumers.get(shown_address(address), 0))

    def in_contact(self, subscriber: int) -> bool:
        return True

    def now(self) -> float:
        return 0.0

    def pump(self) -> None:
        """Nothing to do: everything takes effect at once."""


def agreeing_at(mesh: AgreeingMesh, name: str) -> Any:
    """The router of this name, as a test inspects it."""
    return SimpleNamespace(node=AgreeingNode(mesh, name))


class AskingMesh(Management):
    """A client of `$management` of such a mesh, without connections."""

    def __init__(self, mesh: AgreeingMesh, at: str = "a") -> None:
        self._mesh = mesh
        self._at = at

    async def ask(self, operation: str, router: str | None = None, body: Any = None, **asked: Any) -> Any:
        if router in self._mesh.absent:
            raise RefusedError(503, f"router {self._at} is not in contact with router {router}")
        encode({"body": body, **asked})  # it must be encodable, as it would have to be sent
        request = Request("reply", None, {"operation": operation, **asked}, body or {})
        told = dict(sections_of(await self._mesh.answer(router or self._at, request)))
        if told[0x74]["statusCode"] not in GOOD:
            raise RefusedError(told[0x74]["statusCode"], told[0x74]["statusDescription"])
        return told[0x77]
