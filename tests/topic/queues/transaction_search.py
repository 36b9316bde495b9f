"""A transaction of two enqueues and two dequeues, in every interleaving with cuts, restarts and new leaders.

python -m tests.topic.queues.transaction_search [NAME…]

    client ── declare, transfers, outcomes, discharge ─▶ Transactions ── Commit ─▶ leader: Commits ── Transact ─▶ log
    client ◀── committed or rolled back ── Transactions ◀── answer ── leader ◀── decided ── log

The coordinator, the requests, the replicas with their states, and the transactions of the leader are those of
production. The search is that of sets (`tests/topic/raft/search.py`); `tests/topic/raft/world.py` says what else may
happen, and checks the logs. The queue has two messages, which the client's consumer has. The client takes both in its
transaction, and puts two others into the queue.

The links of the leader are left out. A delivery is named by its position and by how often its message came back, and no
other consumer gets a message that came back. The simulation has the links.

These rules hold (protocol 14.20):

- A replica has the whole transaction, once, or nothing of it. It has nothing if a message has come back before.
- If a replica has it, its client has asked for a commit, and has not read *rolled back*.
- If the client has read *committed*, the leader has the transaction when nothing is under way.
- When nothing is under way, a client that has its link has its answer, if its router is in contact with the leader.
- Each delivery is told once whether its outcome counts.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, Final

import attrs

from tests.exhaustive import state
from tests.set_store import MemorySets, SetPart
from tests.topic.raft.search import play
from tests.topic.raft.steps import FOREVER, Facts, Step, Steps, facts_of, forget_times, is_dead, may_die
from tests.topic.raft.world import Draft, Event, Model, Scope, Walker
from topic.actions import Discharged, LinkAction, RetirementsOver, TransactionEnd
from topic.delivery.allowance import unbounded
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Lifetime, LinkEntry, Role
from topic.identity import KEY_LENGTH, Epoch, LinkIdentity, egress_address, link_name
from topic.queues.actions import Answered, Logged, SetAction, SetEvent, SetNote, Tell
from topic.queues.leader.commits import Commits
from topic.queues.leader.leaders import NOT_LED
from topic.queues.operations import Declare, QueueId
from topic.queues.proposals import Enqueue, Free, Reserve, Transact
from topic.queues.replica import SetReplica
from topic.queues.requests import Requests
from topic.queues.rows import Row
from topic.queues.set_map import SetMap, SetPlan
from topic.queues.sets import ReplicaSets
from topic.queues.state import SetState
from topic.queues.storing import Write
from topic.queues.transactions.transactions import Retired, Transaction, Transactions
from topic.queues.wire import decode
from topic.raft.life import NO_LIFE, SetLife
from topic.raft.limits import RaftLimits
from topic.raft.log import Entry
from topic.raft.messages import Envelope
from topic.raft.raft import Raft

SET: Final = "q0"
QUEUE: Final = "queue/1"
BEFORE: Final = (b"1", b"2")
AFTER: Final = (b"3", b"4")
NEVER: Final = 1 << 30
_CONSUMER: Final = LinkIdentity("client", "link", egress_address(SET, QUEUE))
CONSUMER: Final = LinkEntry(Role.SUBSCRIBER, link_name(_CONSUMER), _CONSUMER, Epoch(1, "a", 1), lifetime=Lifetime(60))
STEPS: Final = ("declare", "post", "retire", "post", "retire", "discharge")
"""What the client does, in this order. Nothing of a transaction leaves its router before the discharge, so another
order makes no difference to other routers."""


@attrs.frozen(slots=True, kw_only=True)
class TransactionScope(Scope):
    """The bounds of a search. `entries`: how often a message may come back from its consumer."""

    client: str = "c"
    """The router of the client."""
    fails: bool = False
    """Whether the client discharges the transaction to roll it back."""
    leaves: bool = False
    """Whether the client may lose its link to the coordinator, at any time."""


@attrs.frozen(slots=True, kw_only=True)
class TransactionFacts(Facts):
    """The facts about a router, its replica, and the client there."""

    has_all: bool = False
    """Whether the replica has carried out the transaction."""
    is_busy: bool = False
    """Whether a request waits because the leader was busy."""
    step: int = 0
    """The number of steps that the client has done."""
    is_here: bool = False
    """Whether the client has its link to the coordinator."""
    is_restarted: bool = False
    """Whether the router has been restarted since the client came."""
    asks: bool = False
    """Whether the client has asked for a commit."""
    end: TransactionEnd | None = None
    """What the client has read."""
    told: tuple[tuple[bool, ...], ...] = ()
    """For each outcome, what the end of the consumer's link was told: whether the outcome counts."""


@attrs.frozen(slots=True)
class Said:
    """A message about the set, from this router."""

    sender: str
    payload: bytes

    @property
    def envelope(self) -> Envelope | None:
        _, message = decode(self.payload)
        return message if isinstance(message, Envelope) else None

    @property
    def body(self) -> object:
        return self.envelope and self.envelope.body


class SiteDisk(SetPart):
    """The disk of one router, and the writes under way."""

    def __init__(self, store: bytes) -> None:
        super().__init__(store)
        self.writes: deque[Write] = deque()

    def finish(self) -> Write:
        write = self.writes.popleft()
        self.write(write.persist, write.changes)
        return write


class SiteClient:
    """The client of the transaction. It is its own connection, its link to the coordinator, and its consumer's link."""

    def __init__(self) -> None:
        self.step = 0
        self.name = b""
        self.is_here = True
        self.is_restarted = False
        self.asks = False
        self.end: TransactionEnd | None = None
        self.positions: list[int] = []
        """The positions of the messages that it has, which name its deliveries."""
        self.told: dict[int, list[bool]] = {}

    def hear(self, action: LinkAction) -> None:
        if isinstance(action, RetirementsOver):
            for one in action.outcomes:
                self.told[one.record].append(action.committed)
        else:
            assert isinstance(action, Discharged)
            assert self.end is None, "a discharge is answered twice"
            self.end = action.end if self.is_here else None


class SiteEgress:
    """The deliveries of the queue, for `Commits`."""

    def __init__(self, queue: QueueId, known: SetState) -> None:
        self.queue = queue
        self._state = known

    def positions_of(self, keys: Iterable[bytes], consumer: bytes) -> list[int] | None:
        """As `Egress.positions_of`."""
        found: list[int] = []
        for position, times in (map(int, key.split()) for key in keys):
            messages = self._state.messages
            has = messages.has_for(self.queue, consumer, [(position, position)])
            if not has or messages.returns(position).times != times:
                return None
            found.append(position)
        return found

    def annotations_of(self, added: Mapping[int, bytes]) -> dict[int, bytes]:
        """As `Egress.annotations_of`."""
        return {}


def key_of(position: int, times: int = 0) -> bytes:
    return b"%d %d" % (position, times) + b" " * (KEY_LENGTH - len(b"%d %d" % (position, times)))


def _half() -> float:
    return 0.5


def _read_clock() -> int:
    return 100


def _no_store() -> bytes:
    raise AssertionError("a store is set aside")


def _no_time(messages: object, wall_ms: int) -> None:
    return None


class Site:
    """One router: its disk, its process while it runs, and perhaps the client. It implements `TransactingLog`."""

    is_full = False

    def __init__(self, scope: TransactionScope, router: str) -> None:
        self.scope, self.router = scope, router
        self.disk = SiteDisk(f"{router}1".encode())
        self.sets: Any = None
        self.transactions: Any = None
        self.incarnation = 0
        self.contacts: dict[str, int] = {}
        self.client = SiteClient() if router == scope.client else None
        self.is_back = False
        """Whether the replica has seen that the first message has come back."""
        self.rows: list[Row] = []
        """The rows of the replica's state."""
        self.begin()

    def begin(self) -> None:
        """Forget the effects of the last event."""
        self.sent: list[tuple[str, bytes]] = []
        self.found: list[tuple[SetLife, int, Entry, int]] = []
        self.is_leaders = False

    @property
    def replica(self) -> SetReplica:
        found: SetReplica = self.sets._replicas[SET]
        return found

    @property
    def raft(self) -> Raft | None:
        return self.replica.raft if self.sets is not None else None

    # the process

    def start(self) -> None:
        self.incarnation += 1
        plans = SetMap([SetPlan(SET, tuple(self.scope.ring))])
        contents = MemorySets({SET: self.disk}).contents
        self.sets = ReplicaSets(
            self.router, plans, self.scope.routers, contents, RaftLimits(dead=FOREVER), _half, _read_clock, _no_store,
            0.0, compare_every=NEVER, left_ms=_no_time,
        )  # fmt: skip
        self.transactions = Transactions(self.router, self.incarnation, self.sets, NEVER)
        self._after()

    def crash(self, kept: int) -> None:
        for _ in range(min(kept, len(self.disk.writes))):
            self.disk.finish()
        self.disk.writes.clear()
        self.contacts.clear()
        self.sets = self.transactions = None
        self.is_back = False
        if self.client is not None and self.client.step:
            self.client.is_here, self.client.is_restarted = False, True

    def finish(self) -> None:
        self.sets.stored(self.disk.finish(), 0.0)
        self._after()

    # contacts and time

    def connect(self, other: str) -> None:
        self.lose(other)
        self.contacts[other] = 1
        self.sets.contact(other, 0.0)
        self._after()

    def lose(self, other: str) -> None:
        if self.contacts.pop(other, None):
            self.sets.contact_lost(other, 0.0)
            self._after()

    def receive(self, said: Said) -> None:
        self.sets.receive(said.sender, said.payload, 0.0)
        self._after()

    def tick(self) -> None:
        self.replica.raft.tick(0.0)
        self.sets._touched[SET] = None
        self._after()

    def again(self) -> None:
        """Ask the busy leader again."""
        self.requests._again_at = -inf
        self.sets._touched[SET] = None
        self._after()

    @property
    def requests(self) -> Requests:
        found: Requests = self.sets._requests[SET]
        return found

    # the leader

    def fill(self) -> None:
        """Put two messages into the queue, and reserve them for the client's consumer."""
        self.sets.propose(SET, [Declare(QUEUE), Enqueue(QUEUE, (), (), BEFORE)])
        self._after()

    def reserve(self) -> None:
        queue, positions = self.queue
        self.sets.propose(SET, [Reserve(queue, CONSUMER, [(positions[0], positions[-1])])])
        self._after()

    @property
    def queue(self) -> tuple[QueueId, list[int]]:
        """The queue, and the positions of its messages."""
        known = self.replica.state.get(QUEUE)
        assert known is not None
        return known.id, [*self.replica.state.messages.of(known.id)]

    def free(self) -> None:
        """The first message comes back from its consumer."""
        queue, positions = self.queue
        self.sets.propose(SET, [Free(queue, [(positions[0], positions[0])], failed=True)])
        self._after()

    @property
    def egresses(self) -> Mapping[QueueId, Any]:
        state_ = self.replica.state
        return {one.id: SiteEgress(one.id, state_) for one in state_}

    def timed(self, asked: Enqueue) -> Enqueue:
        return asked

    def transact(self, number: int, proposal: Transact) -> bool:
        return self.sets.propose_for(SET, proposal.router, number, proposal) is not None

    def _lead(self) -> None:
        """Do what `SetLeaders.follow` does for transactions."""
        self.sets.take_decided(SET)
        for router, number, commit in self.sets.take_commits(SET):
            if self.sets.ready(SET) is not None:
                Commits(self.sets, SET, self).take(router, number, commit)
            else:
                self.sets.answer(SET, router, number, NOT_LED)

    # the client

    def act(self) -> None:
        """The next step of the client."""
        client = self.client
        assert client is not None
        verb = STEPS[client.step]
        client.step += 1
        if verb == "declare":
            client.name = self.transactions.declare(client, client, unbounded())
        else:
            getattr(self, f"_{verb}")(client, self.transactions.find(client, client.name))
        self._after()

    def _post(self, client: SiteClient, one: Transaction) -> None:
        self.transactions.post(one, SET, QUEUE, AFTER[one.count], 0.0)

    def _retire(self, client: SiteClient, one: Transaction) -> None:
        place = len(one.retired)
        client.told[place] = []
        key, outcome = key_of(client.positions[place]), DeliveryOutcome.ACCEPTED
        retired = Retired(one, client, place, QUEUE, CONSUMER.name, key, outcome, False, False, b"", False)
        self.transactions.retire(retired, SET, 0.0)

    def _discharge(self, client: SiteClient, one: Transaction) -> None:
        client.asks = not self.scope.fails
        self.transactions.discharge(one, fail=self.scope.fails)

    def leave(self) -> None:
        """The client loses its link to the coordinator."""
        assert self.client is not None
        self.client.is_here = False
        self.transactions.leave(self.client)
        self._after()

    # the effects

    def _after(self) -> None:
        before = self.replica.applied
        for _ in range(100):
            self.sets.flush(0.0)
            out, self.sets.out[:] = [*self.sets.out], []
            for action in out:
                self._do(action)
            self._lead()
            for told in self.transactions.flush(0.0):
                told.link.hear(told)
            if not self.sets.has_work:
                break
        else:
            raise AssertionError("a router asks for more and more")
        self.sets.check()
        raft = self.replica.raft
        for index in range(before + 1, self.replica.applied + 1):
            [entry] = raft.log.entries(index, index)
            self.found.append((raft.hard.life, index, entry, raft.hard.term))
        self.is_leaders = bool(self.found) and raft.leadership is not None and self.found[-1][2].term == raft.hard.term
        assert self.texts in ((), BEFORE, AFTER), f"{self.router} has a part of the transaction: {self.texts}"
        if self.texts == BEFORE:
            _, positions = self.queue
            self.is_back = self.replica.state.messages.returns(positions[0]).times > 0
            if self.client is not None:
                self.client.positions = positions
        assert not (self.is_back and self.texts == AFTER), "a transaction takes a message that has come back"

    def _do(self, action: SetAction) -> None:
        if isinstance(action, Tell):
            self.sent.append((action.router, action.payload))
        elif isinstance(action, Write):
            self.disk.writes.append(action)
        elif isinstance(action, Answered):
            self.transactions.answered(action.number, action.answer)
        else:
            assert isinstance(action, SetNote | SetEvent | Logged), action

    @property
    def texts(self) -> tuple[bytes, ...]:
        """The messages of the queue."""
        state_ = self.replica.state
        state_.check()
        known = state_.get(QUEUE)
        return tuple(state_.messages.of(known.id).kept.values()) if known is not None else ()


state.IGNORED.update({
    SetReplica: frozenset(("state", "_messages", "_new_raft", "_new_store", "plan")),  # `Site.rows`, or constant
    ReplicaSets: frozenset(("_due", "_lost_at", "_leaderless_at", "_limits", "_moves", "_numbers", "set_map")),
    Transactions: frozenset(("_sets", "_names")),
    Site: frozenset(("found", "is_leaders", "scope", "sent")),
})  # fmt: skip
"""Constants, times, and what a router numbers: a client has one transaction."""


class TransactionSteps(Steps):
    """All states of routers that the search has met."""

    def __init__(self, scope: TransactionScope) -> None:
        super().__init__(scope.routers, scope.clocks)
        self._scope = scope

    def first(self, router: str, ring: str) -> int:
        site = Site(self._scope, router)
        site.start()
        return self._add(site)

    def _run(self, number: int, event: Event) -> Step:
        site: Site = state.load(self._saved[number])
        verb, _, *arguments = event
        if verb == "receive":
            arguments = [self.messages.value(arguments[0])]
        led = site.raft and site.raft.leadership
        getattr(site, verb)(*arguments)
        raft = site.raft
        won = raft is not None and raft.leadership is not None and raft.leadership is not led
        said: Any = [(receiver, Said(site.router, payload)) for receiver, payload in site.sent]
        found, is_leaders = tuple(site.found), site.is_leaders
        site.begin()
        return Step(
            self._add(site),
            tuple([(receiver, self.messages.number(one)) for receiver, one in said]),
            found,
            (raft.hard.life, raft.hard.term, raft.me) if won and raft is not None else None,
            is_leaders,
        )

    def _forget_times(self, host: Any) -> None:
        host.contacts = dict(sorted(host.contacts.items()))
        host.disk.number = 0
        if host.sets is None:
            host.rows = []
            return
        replica, requests, raft = host.replica, host.requests, host.raft
        host.rows = sorted(replica.state.rows), host.texts
        base = forget_times(raft)
        numbered = {id(one): attrs.evolve(one, persist=_numbered(one.persist, base)) for one in host.disk.writes}
        host.disk.writes = deque(numbered[id(one)] for one in host.disk.writes)
        replica._writes = deque(numbered[id(one)] for one in replica._writes)
        raft.log._writes = type(raft.log._writes)(_numbered(one, base) for one in raft.log._writes)
        host.sets._contacts = dict(sorted(host.sets._contacts.items()))
        requests._leaders = dict(sorted(requests._leaders.items()))

    def _facts(self, host: Any) -> Facts:
        client, common = host.client or SiteClient(), facts_of(host)
        return TransactionFacts(
            **attrs.asdict(common, recurse=False),
            has_all=host.sets is not None and host.texts == AFTER,
            is_busy=host.sets is not None and bool(host.requests._unsent) and host.requests._again_at > -inf,
            step=client.step,
            is_here=host.client is not None and client.is_here,
            is_restarted=client.is_restarted,
            asks=client.asks,
            end=client.end,
            told=tuple(tuple(told) for told in client.told.values()),
        )

    def _log(self, host: Any) -> tuple[SetLife, tuple[Entry, ...]]:
        if host.raft is None:
            return NO_LIFE, ()
        return host.raft.hard.life, tuple(host.raft.log.entries(1, host.raft.log.last))


def _numbered(write: Any, base: int) -> Any:
    return attrs.evolve(write, number=write.number - base) if hasattr(write, "number") else write


class TransactionModel(Model):
    """All that may happen in one scope."""

    scope: TransactionScope

    def __init__(self, scope: Scope) -> None:
        assert isinstance(scope, TransactionScope)
        super().__init__(scope)
        self.steps = TransactionSteps(scope)
        self.client = scope.routers.index(scope.client)
        self.ends: set[tuple[TransactionEnd | None, bool]] = set()
        """How transactions have ended: what the client has read, and whether the leader has the transaction."""
        self.plain.insert(0, self._agains)
        self.faults = [self._acts, *self.faults]

    def of(self, draft: Draft, router: int) -> TransactionFacts:
        facts = self.facts_of(draft, router)
        assert isinstance(facts, TransactionFacts)
        return facts

    # possible events

    def _agains(self, draft: Draft) -> Iterator[Event]:
        for router in self.routers:
            if self.of(draft, router).is_busy:
                yield "again", router

    def _acts(self, draft: Draft) -> Iterator[Event]:
        facts = self.of(draft, self.client)
        if facts.runs and facts.is_here:
            if facts.step < len(STEPS):
                yield "act", self.client
            if facts.step and self.scope.leaves and facts.end is None:
                yield "leave", self.client

    # effects of events

    def _again(self, draft: Draft, router: int) -> None:
        self._local(draft, router, "again")

    def _act(self, draft: Draft, router: int) -> None:
        self._local(draft, router, "act")

    def _leave(self, draft: Draft, router: int) -> None:
        self._local(draft, router, "leave")

    def _fill(self, draft: Draft, router: int) -> None:
        self._local(draft, router, "fill")

    def _reserve(self, draft: Draft, router: int) -> None:
        self._local(draft, router, "reserve")

    def _propose(self, draft: Draft, router: int) -> None:
        draft[self.budgets["propose"]] -= 1
        self._local(draft, router, "free")

    def _proposes(self, router: int, draft: Draft) -> Iterator[Event]:
        return iter(()) if self.of(draft, router).has_all else super()._proposes(router, draft)

    def _is_dead(self, draft: Draft, message: int, receiver: int) -> bool:
        return self._is_over(message, self.facts_of(draft, receiver))

    def _is_over(self, message: int, receiver: Facts) -> bool:
        said: Any = self.steps.messages.value(message)
        envelope = said.envelope
        return envelope is not None and may_die(envelope) and is_dead(envelope, receiver)

    def _bury(self, draft: Draft, receiver: int) -> None:
        facts = self.facts_of(draft, receiver)
        for sender in self.routers:
            if sender != receiver and draft[self.channels[sender, receiver]]:
                queue = self.queues.value(draft[self.channels[sender, receiver]])
                alive = [one for one in queue if not self._is_over(one, facts)]
                draft[self.channels[sender, receiver]] = self.queues.number(tuple(alive))


def promised(draft: Draft, model: Model) -> None:
    """Checks each state: a transaction has an effect only if its client may expect one."""
    assert isinstance(model, TransactionModel)
    facts = model.of(draft, model.client)
    if any(model.of(draft, router).has_all for router in model.routers):
        assert facts.asks, "a transaction that was not committed has an effect"
        assert facts.end in (None, TransactionEnd.COMMITTED), "a transaction that was rolled back has an effect"
    assert max(map(len, facts.told), default=0) <= 1, "an outcome is told twice"
    if facts.end is not None:
        whether = (facts.end is TransactionEnd.COMMITTED,)
        assert set(facts.told) <= {whether}, f"outcomes are told {facts.told}, and the transaction is {facts.end}"


def known(draft: Draft, model: Model) -> None:
    """Checks each state in which nothing is under way: the leader has what was committed, and the client knows."""
    assert isinstance(model, TransactionModel)
    facts = model.of(draft, model.client)
    is_over = not facts.is_here and facts.step < len(STEPS)
    if is_over and not facts.is_restarted:
        assert set(facts.told) <= {(False,)}, "an outcome of a transaction that has ended is not told"
    for leader in model.routers:
        if not model.of(draft, leader).leads:
            continue
        has_all = model.of(draft, leader).has_all
        assert has_all or facts.end is not TransactionEnd.COMMITTED, "what was committed is lost"
        is_heard = leader == model.client or model.contact(draft, leader, model.client) == 3
        if facts.step < len(STEPS) or not (is_heard or facts.is_restarted):
            continue
        model.ends.add((facts.end, has_all))
        if facts.is_restarted:
            continue
        assert facts.end is not None or not facts.is_here, "the client waits, and nothing is under way"
        assert set(facts.told) == {(has_all,)}, f"outcomes are told {facts.told}, and the leader has it: {has_all}"


def filled(walker: Walker) -> None:
    """The queue has two messages, and the client's consumer has them."""
    walker.do("fill", walker.model.scope.ring[0])
    walker.do("reserve", walker.model.scope.ring[0])


def acted(walker: Walker, steps: int = len(STEPS)) -> None:
    """The client has done these steps."""
    filled(walker)
    for _ in range(steps):
        draft = Draft(walker.values)
        walker.model.change(draft, ("act", walker.model.names.index(walker.model.scope.client)))  # type: ignore
        walker.values = draft.world()


BASE: Final = TransactionScope(name="", prepare=filled, expect=promised, at_rest=known, is_disk_slow=False)

AT_LEADER: Final = attrs.evolve(BASE, client="a")
DISCHARGED: Final = attrs.evolve(BASE, prepare=acted)

QUICK: Final = [
    attrs.evolve(BASE, name="a link is lost", leaves=True, cuts=1),
    attrs.evolve(BASE, name="a rollback", leaves=True, fails=True, cuts=1, elections=1),
    attrs.evolve(BASE, name="a message comes back", leaves=True, entries=1),
    attrs.evolve(BASE, name="a restart", crashes=1),
    attrs.evolve(BASE, name="a cut and the next leader", cuts=1, elections=1),
    attrs.evolve(AT_LEADER, name="a cut and the next leader, at the leader", cuts=1, elections=1),
    attrs.evolve(BASE, name="the leader dies", losable="a", crashes=1, elections=1, meets=False),
    attrs.evolve(
        BASE,
        name="the leader dies, and disks are slow",
        losable="a",
        crashes=1,
        elections=1,
        meets=False,
        is_disk_slow=True,
    ),
    attrs.evolve(AT_LEADER, name="the leader dies with the client", losable="a", crashes=1, elections=1, meets=False),
]
"""Scopes for the suite; each takes seconds."""
LONG: Final = [
    attrs.evolve(BASE, name="a restart and the next leader", crashes=1, elections=1),
    attrs.evolve(BASE, name="a message comes back, a cut and the next leader", entries=1, cuts=1, elections=1),
    attrs.evolve(DISCHARGED, name="slow disks, a cut and the next leader", is_disk_slow=True, cuts=1, elections=1),
    attrs.evolve(DISCHARGED, name="slow disks and a restart", is_disk_slow=True, crashes=1),
]
"""Scopes for `make exhaustive`."""


def main() -> int:
    return play("tests.topic.queues.transaction_search", QUICK + LONG, TransactionModel)


if __name__ == "__main__":
    sys.exit(main())
