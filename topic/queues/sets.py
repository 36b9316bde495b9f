"""All replica sets of a mesh, as one router has them, without I/O (protocol 13).

    ask ─▶ Requests ── Requested ─▶ leader's router ─▶ SetReplica ─▶ Raft ── decided ─▶ SetState ─▶ answer, and back

The shell that drives the sets

1. reports events to them: `contact`, `lost`, `receive`, `stored`, `piece_read`, `bodies_read`, `ask`, `read`, with the
   time in seconds;
2. calls `flush` when no more events are at hand, and performs the actions in `out`, in order;
3. calls `handle_timer` at `deadline`, which each `flush` may move, and then `flush`;
4. gives `Write`, `Renew`, `ReadPiece` and `ReadBodies` to the store, in order. When one of them is done, it calls
   `stored`, `piece_read` or `bodies_read`; nothing for `Renew` (`topic.queues.storing`). No call here waits for the
   store.

Each router has a replica of each set (`topic.queues.replica`). A leader tells all routers that it leads, so each router
knows the leader for its requests.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Final

from topic.errors import BreachError
from topic.queues.actions import (
    Answered,
    BodiesFound,
    PageFound,
    SetAction,
    SetChange,
    SetEvent,
    SetNote,
    SetView,
    Tell,
)
from topic.queues.moving.moves import SetMoves
from topic.queues.operations import (
    Browse,
    Commit,
    Declare,
    Delete,
    MessagePage,
    Operation,
    QueueId,
    Refused,
    RefusedFor,
    Reply,
    encode,
)
from topic.queues.proposals import Decided, Proposal, Transact
from topic.queues.replica import SetReplica
from topic.queues.requests import Requests
from topic.queues.set_map import SetMap, SetPlan
from topic.queues.state import Queue, SetState
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, SetContent, Write
from topic.queues.wire import Answers, Leads, Message, Requested, decode, read_operation
from topic.queues.wire import encode as encode_message
from topic.raft.configuration import Configuration, Replica
from topic.raft.life import SetLife
from topic.raft.limits import RaftLimits
from topic.raft.messages import Envelope, StoreContent
from topic.raft.raft import Raft

COMPARE_EVERY: Final = 1000
"""The number of entries from one comparison of states to the next. All replicas must compare at the same entries."""
MOST_ASKED: Final = 20_000
"""The highest number of unanswered requests of one router."""


LeftMs = Callable[[Sequence[bytes], int], list[float] | None]
"""A function that returns, for each message, the rest of its time to live at this time of the wall clock, in
milliseconds (AMQP 1.0 3.2.1, 3.2.4). For a message without a time to live, the value is infinity. If no message has a
time to live, the function returns None."""


class ReplicaSets:
    """One router's replicas of all replica sets of a mesh."""

    def __init__(
        self,
        router: str,
        set_map: SetMap,
        routers: Collection[str],
        contents: Mapping[str, SetContent],
        limits: RaftLimits,
        draw: Callable[[], float],
        read_clock: Callable[[], int],
        new_store: Callable[[], bytes],
        now: float,
        *,
        compare_every: int = COMPARE_EVERY,
        limit: int = 8 << 30,
        prefer_s: float = math.inf,
        left_ms: LeftMs = lambda messages, wall_ms: None,
    ) -> None:
        """`routers`: the names of all routers of the mesh. `contents`: what the store has of each set. `draw`: returns
        a random number from 0 to 1. `read_clock`: returns a hybrid clock above all clocks that this router knows.
        `new_store`: returns an identity that no store has had. `limit`: the limit of the bytes of a set's messages;
        homes keep all further ones. `prefer_s`: for how many seconds the preferred voter has to be in contact before a
        leader hands its set over to it.

        Raises ValueError if a set in the store began with another map of names, or has a damaged state.
        """
        self.out: list[SetAction] = []
        self.set_map = set_map
        self.left_ms = left_ms
        self.limit = limit
        self._router = router
        self._routers = list(routers)
        self._limits = limits
        self._draw = draw
        self._read_clock = read_clock
        self._contacts: dict[str, None] = {}
        self._lost_at: dict[str, float] = {}
        """Maps each router that was in contact and no longer is to the time when the contact ended."""
        self._began = now
        self._strangers: set[str] = set()
        """The routers in contact that have named a set which this router does not know."""
        self._numbers = count()
        self._requests = {name: Requests(name, limits.tried) for name in set_map.plans}
        self._leads: dict[str, tuple[SetLife, int]] = {}
        """Maps each set that this router leads to the life and the term of the leadership that it has announced to all
        routers."""
        self._replicas = {
            name: SetReplica(router, plan, contents[name], compare_every, self._raft, new_store, now)
            for name, plan in set_map.plans.items()
        }
        self._moves = {name: SetMoves(router, plan.policy, prefer_s) for name, plan in set_map.plans.items()}
        self._leaderless_at: dict[str, float] = {}
        """Maps each set that no router leads to the time when this router reports this to the operator; infinite after
        the report."""
        self._touched = dict.fromkeys(self._replicas)
        """The sets that have had an event since the last call of `flush`."""
        self._due = now

    def _raft(self, me: Replica, plan: SetPlan, content: StoreContent, now: float) -> Raft:
        digest = self.set_map.digest
        try:
            given = (digest, content, self._limits, self._draw, self._read_clock, now, plan.copies)
            return Raft(me, self._routers, plan.voters, *given)
        except ValueError as error:
            raise ValueError(f"set {plan.name}: {error}") from None

    def follow(self, routers: Collection[str]) -> None:
        """Follow a changed plan; `routers`: the routers of the mesh now. Hashed sets (protocol 13.1) that have not
        begun yet get their replicas at these routers."""
        self._routers[:] = routers
        self.set_map = self.set_map.among(routers)
        self._lost_at = {router: at for router, at in self._lost_at.items() if router in self._routers}
        for name, plan in self.set_map.plans.items():
            if self._replicas[name].follow(plan):
                self._touched[name] = None

    # The methods from here on are about contacts.

    def contact(self, router: str, now: float) -> None:
        """Begin a contact with the router."""
        self._contacts[router] = None
        self._lost_at.pop(router, None)
        for name, replica in self._replicas.items():
            replica.raft.connect(router, now)
            self._touched[name] = None
            if name in self._leads:
                self._tell(router, name, Leads(*self._leads[name], leads=True))

    def contact_lost(self, router: str, now: float) -> None:
        """Handle the end of the contact with the router."""
        if router in self._contacts:
            del self._contacts[router]
            self._lost_at[router] = now
        self._strangers.discard(router)
        for name, replica in self._replicas.items():
            replica.forget(router)
            replica.raft.disconnect(router, now)
            self._requests[name].contact_lost(router)
            self._touched[name] = None

    def receive(self, router: str, payload: bytes, now: float) -> None:
        """Take a payload of a router in contact. Raises BreachError if it is malformed; the caller then drops the
        contact."""
        name, message = decode(payload)
        if name not in self._replicas:
            self._note_stranger(router, name)
            return
        self._touched[name] = None
        if isinstance(message, Envelope):
            if message.sender.router != router:
                raise BreachError(f"it sends a message of router {message.sender.router}")
            self._replicas[name].receive(message, now)
        elif isinstance(message, Leads):
            self._requests[name].learn(router, message)
        elif isinstance(message, Requested):
            self._take_requests(router, name, message)
        else:
            self._take_answers(router, name, message.answers, now)

    def _note_stranger(self, router: str, name: str) -> None:
        if router not in self._strangers:
            self._strangers.add(router)
            known = ", ".join(self._replicas)
            self.out.append(
                SetNote(f"router {router} has a set {name} in its topology, expected one of {known}: it is ignored")
            )

    def _tell(self, router: str, name: str, message: Message) -> None:
        self.out.append(Tell(router, encode_message(name, message)))

    # The methods from here on are about requests.

    def ask(self, operation: Operation, now: float, *, lasts: bool = False) -> int:
        """Start an operation. Returns the number of the request. Its answer comes as an `Answered` in `out`, within
        `RaftLimits.tried` seconds; the answer to a `Commit` comes when a majority has decided it. Raises ValueError if
        the queue's name is too long, or no text.

        `lasts`: whether the operation waits for a leader without end, also if `MOST_ASKED` requests wait already. The
        caller limits the number of these operations."""
        number, data = next(self._numbers), encode(operation)
        plan = self.set_map.plan_of(operation.name)
        if plan is None:
            self._answer(number, self._no_set(operation.name))
        elif len(self._requests[plan.name]) >= MOST_ASKED and not lasts:
            why = f"{MOST_ASKED} requests of router {self._router} to set {plan.name} wait for answers"
            self._answer(number, Refused(RefusedFor.BUSY, f"{why}: try again later"))
        else:
            self._requests[plan.name].add(number, data, now, lasts=lasts or isinstance(operation, Commit))
            self._touched[plan.name] = None
        return number

    def _answer(self, number: int, answer: Reply) -> None:
        self.out.append(PageFound(number, answer) if isinstance(answer, MessagePage) else Answered(number, answer))

    def _no_set(self, queue: str) -> Refused:
        prefixes = " or ".join(f'"{prefix}"' for prefix in self.set_map.prefixes)
        why = f'no set may have a queue "{queue}", expected a name that begins with {prefixes}'
        return Refused(RefusedFor.NO_SET, why)

    def _take_requests(self, router: str, name: str, asked: Requested) -> None:
        """Take operations that a router requests. Refuse the operations on a queue that, by this router's map, belongs
        to another set."""
        ours: list[tuple[int, bytes]] = []
        others: list[tuple[int, Reply]] = []
        for number, data in asked.requests:
            queue = read_operation(data).name
            plan = self.set_map.plan_of(queue)
            if plan is not None and plan.name == name:
                ours.append((number, data))
            elif plan is None:
                others.append((number, self._no_set(queue)))
            else:
                why = f'queue "{queue}" is in set {plan.name} by the topology of router {self._router}, not in {name}'
                others.append((number, Refused(RefusedFor.NO_SET, why)))
        self._replicas[name].ask(router, ours)
        if others:
            self._tell(router, name, Answers(tuple(others)))

    def _take_answers(self, router: str, name: str, answers: Iterable[tuple[int, Reply]], now: float) -> None:
        for number, answer in self._requests[name].answer(router, answers, now):
            self._answer(number, answer)

    # The methods from here on are requests of an operator.

    def choose(self, name: str, ring: Sequence[str], now: float, copies: Sequence[str] | None = None) -> None:
        """Make these routers the voters of a set that this router leads, and the first of them its leader. The leader
        changes the voters step by step: a new router gets all decided entries before it votes. `copies`: the routers
        that are to keep an asynchronous copy; None: the present ones that do not become voters.

        Raises NotLeaderError; BusyError while an earlier change is under way; ValueError if these routers cannot have
        replicas.
        """
        raft = self._replicas[name].raft
        present = raft.log.configuration
        if copies is None:
            copies = [router for router in present.copies if router not in ring]
        if strange := [router for router in (*ring, *copies) if router not in self._routers]:
            raise ValueError(f'there is no router "{strange[0]}", expected some of {", ".join(self._routers)}')
        if not ring or len(set(ring)) < len(ring):
            raise ValueError(f"the voters are {', '.join(ring) or 'none'}, expected one router or more, each once")
        if twice := [router for n, router in enumerate(copies) if router in (*ring, *copies[:n])]:
            what = "would be a voter or have another copy"
            raise ValueError(
                f"router {twice[0]}, which is to keep an asynchronous copy, {what}, expected another router"
            )
        if raft.leadership is None or (present.ring, present.copies) != (tuple(ring), tuple(copies)):
            raft.choose(ring, now, copies)
        self._moves[name].order()
        self._touched[name] = None

    def begin_anew(self, name: str) -> None:
        """Begin a set by an operator's order, although some stores have accepted a life that never came into effect, or
        a router is away (`Raft.begin_anew`). Raises NotReadyError."""
        self._replicas[name].raft.begin_anew()
        self._touched[name] = None

    def recover(self, name: str, now: float) -> None:
        """Make the content of this router's store the whole set, by an operator's order (`Raft.recover`). Raises
        NotLeaderError if a replica leads, or if this store has never been part of the set."""
        self._touched[name] = None
        self._replicas[name].raft.recover(now)

    def lead_anew(self, name: str, after: int, now: float) -> None:
        """Stop leading the set, and lead it again only in a term after this one (`Raft.lead_anew`)."""
        self._replicas[name].raft.lead_anew(after, now)
        self._touched[name] = None

    def leave(self, now: float, *, all_stop: bool = False) -> None:
        """Hand over the sets that this router leads, because it is about to stop. `to_hand_over` has the sets that
        still have to be handed over. No other router hands a set over to this one any more. `all_stop`: all routers of
        the mesh are about to stop, so no set moves."""
        for name, replica in self._replicas.items():
            replica.leave()
            self._moves[name].leave(all_stop=all_stop)
            self._move(name, now)

    @property
    def to_hand_over(self) -> Collection[str]:
        """The sets that this router leads and still has to hand over before it stops."""
        return [name for name in self._leads if self._moves[name].is_over(self._replicas[name].raft.leadership)]

    @property
    def led(self) -> Collection[str]:
        """The sets that this router leads, and has told all routers that it leads."""
        return self._leads.keys()

    # The ends of the sets that this router leads call the methods from here on.

    def ready(self, name: str) -> tuple[SetLife, int] | None:
        """The life and the term in which this router leads the set, once its state has everything that was decided
        before. Otherwise None."""
        return self._replicas[name].ready

    def state(self, name: str) -> SetState:
        """The state of the set, up to the log entry that this router has applied last. The object changes as more
        entries are applied."""
        return self._replicas[name].state

    def applied(self, name: str) -> int:
        """The last log index that is applied to the state."""
        return self._replicas[name].applied

    def propose(self, name: str, proposals: Iterable[Proposal | Declare | Delete]) -> int | None:
        """Propose entries to a set that this router leads (`SetReplica.propose`)."""
        first = self._replicas[name].propose(proposals)
        if first is not None:
            self._touched[name] = None
        return first

    def hands_over(self, name: str) -> bool:
        """Whether this router leads the set and hands its lead over."""
        leadership = self._replicas[name].raft.leadership
        return leadership is not None and leadership.is_handing_over

    def propose_for(self, name: str, router: str, number: int, proposal: Transact) -> int | None:
        """Propose a transaction that a router has requested (`SetReplica.propose_for`). `number`: the number of the
        request at that router."""
        first = self._replicas[name].propose_for(router, number, proposal)
        if first is not None:
            self._touched[name] = None
        return first

    def take_decided(self, name: str) -> list[tuple[int, Decided | None]]:
        """Take the proposals that were decided since the last call while this router led. Each has the log index and
        the answer."""
        decided, self._replicas[name].decided = self._replicas[name].decided, []
        return decided

    def leader_of(self, queue: str) -> str:
        """The router that leads the set of a queue of this name; empty if this router knows none."""
        plan = self.set_map.plan_of(queue)
        return self._requests[plan.name].leader if plan is not None else ""

    def take_browses(self, name: str) -> list[tuple[str, int, Browse]]:
        """Take the requests to browse queues of the set. Each has the router that asks, its number of the request, and
        the request. The caller has to answer each."""
        browses, self._replicas[name].browses = self._replicas[name].browses, []
        return browses

    def take_commits(self, name: str) -> list[tuple[str, int, Commit]]:
        """Take the transactions on queues of the set. The caller proposes each (`propose_for`), or answers it."""
        commits, self._replicas[name].commits = self._replicas[name].commits, []
        return commits

    def answer(self, name: str, router: str, number: int, answer: MessagePage | Refused) -> None:
        """Send a router the answer to its request to browse, or to commit a transaction."""
        self._replicas[name].answers.append((router, number, answer))
        self._touched[name] = None

    def watches(self, name: str) -> bool:
        """Whether the leader of the set moves with the consumers. If so, the caller has to call `see` from time to
        time."""
        return self._moves[name].watches

    def see(self, name: str, routers: Iterable[str], now: float) -> None:
        """Store the routers at which the set's consumers with room or deliveries are (`SetMoves.see`). This router
        leads the set."""
        self._moves[name].see(routers, now)
        self._touched[name] = None

    # The methods from here on are about the store.

    def stored(self, write: Write, now: float) -> None:
        """Handle the end of a write: the store has finished this write and all earlier ones."""
        self._replicas[write.set].stored(write, now)
        self._touched[write.set] = None

    def piece_read(self, piece: ReadPiece, found: FoundPiece | None, now: float) -> None:
        """Take a piece of a snapshot that the store has read. `found`: None if the store no longer had the snapshot at
        this index."""
        self._replicas[piece.set].piece_read(piece, found)
        self._touched[piece.set] = None

    def read(self, name: str, queue: QueueId | None, positions: Sequence[int]) -> int:
        """Start a read of bodies that are not in memory. `queue`: the queue of the messages; None for the outbox.
        Returns the number of the read. Its answer comes as a `BodiesFound` in `out` when the store has read them."""
        number = next(self._numbers)
        self._replicas[name].read_bodies(number, queue, positions)
        self._touched[name] = None
        return number

    def bodies_read(self, read: ReadBodies, found: FoundBodies, now: float) -> None:
        """Take bodies of messages that the store has read."""
        self._replicas[read.set].bodies_read(read, found)
        self._touched[read.set] = None

    def damaged(self, name: str, why: str) -> None:
        """Begin a replica anew, because the store has found that its data of the set differ from what it wrote."""
        self._replicas[name].raft.set_aside(why)
        self._touched[name] = None

    # The methods from here on are about time.

    def handle_timer(self, now: float) -> None:
        for name, replica in self._replicas.items():
            if replica.deadline <= now:
                replica.raft.tick(now)
                self._touched[name] = None
            if self._moves[name].deadline <= now:
                self._move(name, now)
            if self._requests[name].deadline <= now:
                self._touched[name] = None
                for number, answer in self._requests[name].give_up(now):
                    self._answer(number, answer)
            if self._leaderless_at.get(name, math.inf) <= now:
                self._leaderless_at[name] = math.inf
                self._touched[name] = None
                text = f"set {name}: no router has led it for {self._limits.tried:g} s"
                why = self._why_leaderless(replica.raft)
                self.out.append(SetEvent(SetChange.LEADERLESS, name, f"{text}: {why}" if why else text, why=why))

    def _move(self, name: str, now: float) -> None:
        raft = self._replicas[name].raft
        self._touched[name] = None
        if raft.leadership is not None and (target := self._moves[name].take(raft.leadership, now)) is not None:
            raft.hand_over(target, now)

    @staticmethod
    def _why_leaderless(raft: Raft) -> str:
        """The reason for which no router leads the set, as far as this router knows it; empty if this router knows
        nothing of the set."""
        if not raft.hard.begun:
            return "it has not begun" if raft.me.router in raft.stores.ring else ""
        voters = raft.log.configuration.voters
        missing = [voter.router for voter in voters if not raft.stores.has(voter)]
        what = f", not {', '.join(missing)}" if missing else ""
        return f"this router reaches {len(voters) - len(missing)} of its {len(voters)} voters{what}"

    def deadline(self) -> float:
        """When `handle_timer` is due; infinite if never."""
        return self._due

    # The methods from here on make the actions for the shell.

    @property
    def has_work(self) -> bool:
        """Whether `flush` has something to do, or `out` has actions."""
        return bool(self._touched or self.out)

    def flush(self, now: float) -> None:
        """Put the actions that follow from the events since the last call into `out`."""
        while self._touched:
            touched, self._touched = self._touched, {}
            for name in touched:
                self._flush(name, now)
            self._due = min((self._due_of(name) for name in self._replicas), default=math.inf)

    def _due_of(self, name: str) -> float:
        leaderless_at = self._leaderless_at.get(name, math.inf)
        deadlines = self._replicas[name].deadline, self._requests[name].deadline, self._moves[name].deadline
        return min(*deadlines, leaderless_at)

    def _flush(self, name: str, now: float) -> None:
        requests, replica = self._requests[name], self._replicas[name]
        while batch := requests.next_batch(now):
            if requests.leader == self._router:
                replica.ask(self._router, batch)
            else:
                self._tell(requests.leader, name, Requested(tuple(batch)))
        replica.flush(self._contacts, now)
        self.out += replica.out
        replica.out.clear()
        self.out += (BodiesFound(*found) for found in replica.bodies)
        replica.bodies.clear()
        self._moves[name].follow(replica.raft.leadership, now)
        self._spread_leadership(name, replica.leads)
        self._spread_answers(name, replica, now)
        if requests.leader:
            self._leaderless_at.pop(name, None)
        else:
            self._leaderless_at.setdefault(name, now + self._limits.tried)

    def _spread_leadership(self, name: str, leads: tuple[SetLife, int] | None) -> None:
        """Announce to all routers, including this one, that this router has begun or ceased to lead a set."""
        former = self._leads.get(name)
        if former == leads:
            return
        if leads is None:
            assert former is not None
            del self._leads[name]
            told = Leads(*former, leads=False)
            text = f"set {name}: this router leads it no more"
            self.out.append(SetEvent(SetChange.LEADS_NO_MORE, name, text, former[1]))
        else:
            self._leads[name] = leads
            told = Leads(*leads, leads=True)
            text = f"set {name}: this router leads it, in term {leads[1]}"
            self.out.append(SetEvent(SetChange.LEADS, name, text, leads[1]))
        for router in self._contacts:
            self._tell(router, name, told)
        self._requests[name].learn(self._router, told)
        self._touched[name] = None

    def _spread_answers(self, name: str, replica: SetReplica, now: float) -> None:
        by_router: dict[str, list[tuple[int, Reply]]] = {}
        for router, number, answer in replica.answers:
            by_router.setdefault(router, []).append((number, answer))
        replica.answers.clear()
        for router, answers in by_router.items():
            if router == self._router:
                self._take_answers(router, name, answers, now)
                continue
            # Each page is a message of its own, because a page may be as large as the largest message.
            pages = [one for one in answers if isinstance(one[1], MessagePage)]
            others = [one for one in answers if not isinstance(one[1], MessagePage)]
            for some in (*([page] for page in pages), others):
                if some:
                    self._tell(router, name, Answers(tuple(some)))

    # The methods from here on are for the status.

    def overview(self) -> list[SetView]:
        """A view of each set, as this router sees it."""
        return [self._view(name) for name in self._replicas]

    def _view(self, name: str) -> SetView:
        replica, requests = self._replicas[name], self._requests[name]
        raft, plan = replica.raft, replica.plan
        log, configuration = raft.log, raft.log.configuration
        voters = tuple(member.router for member in configuration.voters)
        learners = tuple(member.router for member in configuration.learners)
        progress = raft.leadership.progress if raft.leadership is not None else {}
        behind = {member.router: log.last - one.stored for member, one in progress.items()}
        decided = min(log.commit, log.stable) if raft.leadership is not None else log.stable
        if raft.me in configuration.voters:
            role = raft.role.value
        else:
            role = "learner" if raft.me in configuration.members or (raft.hard.begun and not log.last) else "proxy"
        return SetView(
            name=name,
            prefix=plan.prefix,
            ring=configuration.ring or (() if requests.led_in[0] else plan.voters),
            life=max(raft.hard.life, requests.led_in[0]),
            term=max(raft.hard.term, requests.led_in[1]),
            leader=requests.leader,
            role=role,
            copies=configuration.copies or (() if configuration.ring or requests.led_in[0] else plan.copies),
            voters=voters,
            learners=learners,
            commit=log.commit,
            applied=replica.applied,
            behind=behind,
            learning={
                one.router: progress[one].since
                for one in configuration.learners
                if one in progress and one.router not in configuration.copies
            },
            away={
                router: self._lost_at.get(router, self._began)
                for router in (*voters, *learners)
                if router != self._router and router not in self._contacts
            },
            copied=replica.copied,
            queues=len(replica.state),
            unstored=log.size(decided, log.last),
            asked=len(requests),
            why_aside=replica.why_aside,
            may_stop=self._may_stop(raft, configuration),
            policy=plan.policy,
        )

    @staticmethod
    def _may_stop(raft: Raft, configuration: Configuration) -> tuple[str, ...]:
        reached = [voter for voter in configuration.voters if raft.stores.has(voter)]
        return tuple(
            voter.router
            for voter in configuration.voters
            if configuration.is_majority([one for one in reached if one != voter])
        )

    def queues(self) -> Iterator[Queue]:
        """The declared queues in the replicas of this router. Returns an iterator, because there may be many."""
        return chain.from_iterable(replica.state for replica in self._replicas.values())

    def check(self, names: Iterable[str] | None = None) -> None:
        """Assert the invariants that hold between two events, for these sets or for all sets."""
        for name in self._replicas if names is None else names:
            replica = self._replicas[name]
            replica.check()
            assert name in self._touched or replica.leads == self._leads.get(name), "who leads is not told"
