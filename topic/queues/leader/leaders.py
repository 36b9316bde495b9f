"""The links for the sets that one router leads (protocol 14). The router attaches these links when it begins to lead a
set, and suspends them when it no longer leads."""

import math
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, count
from typing import Final

import attrs

from topic.actions import DELETED, ConsumerDrains
from topic.delivery.room import Drain
from topic.directory.entry import Role
from topic.ends.end import EndNode
from topic.ends.nobody import end_link
from topic.identity import (
    dead_letter_address,
    dead_letter_ingress_of,
    egress_address,
    ingress_of,
    is_egress,
    queue_of,
    shown_address,
)
from topic.queues.actions import BodiesFound
from topic.queues.bound.bindings import DEAD_LETTERS, set_of_binding
from topic.queues.leader.ages import DecidedTimes
from topic.queues.leader.commits import Commits
from topic.queues.leader.egress import Egress, Resting
from topic.queues.leader.expiry import ExpiryTimes
from topic.queues.leader.ingress import Ingress, term_clock, term_with
from topic.queues.leader.letters import Letters, is_of_letters, letters_to
from topic.queues.leader.log import Marking, MessageView, ProposingEnd, ReadingEnd, RestingEnd
from topic.queues.leader.pages import Pages
from topic.queues.leader.publisher import SetPublisher
from topic.queues.leader.temporary import LOOK_S, TemporaryQueues
from topic.queues.operations import MOST, Declare, QueueId, Refused, RefusedFor, is_temporary
from topic.queues.positions import each_of
from topic.queues.proposals import Decided, Enqueue, Enqueued, Proposal, Settled, Transact, Transacted
from topic.queues.sets import ReplicaSets
from topic.raft.life import SetLife

PAUSE_MS: Final = 100
"""The milliseconds between two searches for messages whose time to live is over."""
SLOW_S: Final = 1.0
"""The seconds after which a read is slow: the leader then checks whether its disk hangs."""
MOST_SWEPT: Final = 1000
"""The highest number of temporary queues that the leader deletes in one step."""
MOST_RESTING: Final = 65_536
"""The highest number of messages of a set that may rest after a failure. The leader publishes further messages that
have failed again at once, without a rest."""
WATCH_S: Final = 1.0
"""The seconds after which the leader again finds out at which routers the consumers are, if it moves with them."""
MOST_AHEAD: Final = 4 << 20
"""The highest number of bytes of bodies that the ends of a set may have read ahead of their publication."""
PATIENCE_S: Final = 0.005
"""The seconds for which a proposal may wait for the next entry of the set, if no client waits for it."""

NOT_LED: Final = Refused(RefusedFor.BUSY, "this router does not lead the set, or has just begun to")


class LedSet:
    """The links for one set, in one term in which this router leads the set. This class implements `Proposer`."""

    def __init__(
        self, node: EndNode, sets: ReplicaSets, marking: Marking, name: str, since: tuple[SetLife, int], now: float
    ) -> None:
        """`since`: the life and the term in which this router leads."""
        self.since = since
        self._node = node
        self._sets = sets
        self._marking = marking
        self._name = name
        sets.state(name).messages.count_anew()
        self._deletions = sets.state(name).deletions
        self._changes = sets.state(name).bindings.changes
        self._configured = sets.state(name).changes
        self._taken_out = self._count_taken_out()
        """The result of `_count_taken_out` at the last call of the egresses' `withdraw_gone`."""
        self._attaches = 0
        """The number of attaches that this leader has made in this term."""
        self._proposed: dict[int, ProposingEnd] = {}
        """Maps the log index of each undecided entry to the end that has proposed the entry."""
        self._enqueues: dict[int, Enqueue] = {}
        """The undecided entries of this leader that enqueue messages, keyed by log index."""
        self._transacts: dict[int, Transact] = {}
        """The undecided entries of this leader that have transactions, keyed by log index."""
        self._busy: dict[ProposingEnd, None] = {}
        """The ends that have to propose again because the leader was busy."""
        self._is_under_way = False
        """Whether a proposal from an earlier round of the log is still undecided."""
        self._patient: dict[ProposingEnd, None] = {}
        """The ends with proposals that can wait, because no client waits for them."""
        self.deadline = math.inf
        """The latest time at which the ends in `_patient` propose; infinite if there are none."""
        self._undeclared: dict[str, bool] = {}
        """Maps each undeclared queue that has consumers to True if its `Declare` has been proposed."""
        self.egresses: dict[QueueId, Egress] = {}
        self._reading: dict[int, ReadingEnd] = {}
        """Maps the number of each read of bodies (`ReplicaSets.read`) to the end that has asked for the read."""
        self.doubts_disk_at = math.inf
        """When `test_disk` is due; infinite if no read is under way."""
        self._ahead = 0
        """The bytes of bodies that ends have read but not published yet."""
        self._resting: list[tuple[int, int, int, RestingEnd]] = []
        """A heap of resting messages. For each message: when its rest ends, in milliseconds of the wall clock; its
        position; and the end of the link by which consumers get the message."""
        self._rests = count()
        self._rested_at = math.inf
        """When the first rest in `_resting` ends; infinite if no message rests."""
        self._temporary = TemporaryQueues(name, lambda: sets.state(name), node.topic.directory)
        self._sweep_at = now
        self._times = DecidedTimes(sets.applied(name), now)
        self._expiry = ExpiryTimes(sets.state(name).messages)
        self.look_at = self._next_look(now)
        """When `expire` is due; infinite if never."""
        self.watch_at = now if sets.watches(name) else math.inf
        """When `watch` is due; infinite if the leader of the set does not move with the consumers."""
        lasting = [entry for entry in sets.state(name).messages.reserved.consumers if entry.lifetime.timeout]
        node.topic.peers.remember(lasting)
        unsettled = sets.state(name).messages.unsettled
        self.ingress = Ingress(node, ingress_of(name), sets.state(name).messages, self, sets.limit)
        self.ingress.attach_as_leader(unsettled.get(b"", ()), self._next_clock(), node.now())
        self.dead_letters = Ingress(
            node, dead_letter_ingress_of(name), sets.state(name).messages, self, sets.limit, binding=DEAD_LETTERS
        )
        self.dead_letters.attach_as_leader(unsettled.get(DEAD_LETTERS, ()), self._next_clock(), node.now())
        self.bound: dict[bytes, Ingress] = {}
        """The subscribers of the bindings, by the key of the binding."""
        self._bind(unsettled)
        self._begin_reserved()
        self.pages = Pages(
            sets.state(name),
            self,
            MessageView(sets.state(name).messages, marking, node.topic.outlet),
            lambda router, number, answer: sets.answer(name, router, number, answer),
        )
        self.commits = Commits(sets, name, self)
        self.letters: dict[str, Letters] = {}
        """The publishers of the outbox, by the address to which they publish."""
        self.take_over()
        self._look_into_outbox(doubts=True)

    def _next_clock(self) -> int:
        self._attaches += 1
        return term_clock(*self.since, self._attaches)

    def _bind(self, unsettled: Mapping[bytes, Sequence[bytes]]) -> None:
        """Attach a subscriber for each new binding, and end the subscribers of bindings that have ended. `unsettled`:
        as `QueuedMessages.unsettled`."""
        state, now = self._sets.state(self._name), self._node.now()
        self._changes = state.bindings.changes
        self.bound = {key: end for key, end in self.bound.items() if state.bindings.get(key) is not None}
        for binding in state.bindings:
            queue = state.name_of(binding.queue)
            if binding.key not in self.bound and queue is not None:
                link = binding.link(self._name, queue)
                end = self.bound[binding.key] = Ingress(
                    self._node, link, state.messages, self, self._sets.limit, binding.key, queue, self._marking
                )
                end.attach_as_leader(unsettled.get(binding.key, ()), self._next_clock(), now)

    def take_over(self) -> None:
        """Take over the links that earlier leaders of the set have attached, or end them."""
        self._end_unbound()
        self._take_over_egresses()
        self._take_over_letters()

    def _end_unbound(self) -> None:
        """End the links of bindings that have ended, including links that an earlier leader has attached. Otherwise
        homes would wait for these links for ever."""
        bound = {end.index for end in self.bound.values()}
        for entry in [*self._node.topic.directory.entries()]:
            if set_of_binding(entry.identity) == self._name and entry.live and entry.index not in bound:
                end_link(self._node, entry, self._next_clock())

    def _take_over_letters(self) -> None:
        """Attach the publishers of the outbox that an earlier leader had attached. Otherwise no router would settle
        their deliveries that are under way."""
        for entry in [*self._node.topic.directory.entries()]:
            if entry.role is Role.PUBLISHER and entry.live and is_of_letters(entry.identity, self._name):
                self._letters_for(shown_address(entry.identity.address), doubts=True)

    def _look_into_outbox(self, *, doubts: bool) -> None:
        for address in self._sets.state(self._name).messages.outbox.addresses:
            self._letters_for(address, doubts=doubts)
        for letters in self.letters.values():
            letters.outbox_changed()

    def _letters_for(self, address: str, *, doubts: bool) -> None:
        """Attach a publisher of the outbox for this address, unless there is one. `doubts`: whether an earlier leader
        may already have published the messages for the address."""
        if address in self.letters:
            return
        state = self._sets.state(self._name)
        identity = letters_to(self._name, self._inside(address))
        letters = Letters(self._node, identity, address, state.name_of, state.messages, self, self._marking)
        self.letters[address] = letters
        letters.attach_as_leader(self.since[0], self._next_clock(), self._node.now(), doubts=doubts)

    def _inside(self, address: str) -> str:
        """The address inside the mesh to which outboxes publish messages for `address`."""
        is_in_a_set = self._node.topic.kinds.of(address).in_sets
        plan = self._sets.set_map.plan_of(address) if is_in_a_set else None
        return dead_letter_address(plan.name, address) if plan is not None else address

    def _count_taken_out(self) -> tuple[int, ...]:
        """Counts all events that take messages out of a queue or the outbox, except the events of consumers."""
        state = self._sets.state(self._name)
        passed = state.messages.passed
        return state.deletions, state.messages.purges, passed.purged, passed.expired, state.messages.sendings

    def _begin_reserved(self) -> None:
        """Attach the egresses of queues with reserved messages. Perhaps no router knows the consumers of these messages
        any more, so no consumer would make the leader attach the egress."""
        state = self._sets.state(self._name)
        for queue in sorted(state.messages.reserved_queues):
            name = state.name_of(queue)
            assert name is not None, "a message of a deleted queue is reserved"
            self._begin(name, queue)

    def _take_over_egresses(self) -> None:
        """Attach the egresses of queues that have consumers, and of queues whose egress an earlier leader had attached.

        A queue with consumers gets its egress even without messages, because consumers may ask about messages that are
        gone. Any other queue gets its egress with its first consumer.
        """
        state = self._sets.state(self._name)
        for entry in [*self._node.topic.directory.entries()]:
            if not (entry.live and is_egress(entry.identity.address)):
                continue
            set_, name = queue_of(entry.identity.address)
            if set_ != self._name:
                continue
            # An earlier leader died after the queue was deleted, but before the queue's egress had ended.
            if entry.role is Role.PUBLISHER and state.get(name) is None:
                end_link(self._node, entry, self._next_clock())
            else:
                self.consumes(name)

    def _begin(self, queue: str, id_: QueueId) -> None:
        state = self._sets.state(self._name)
        egress = Egress(self._node, self._name, queue, id_, state, self, self._marking)
        self.egresses[id_] = egress
        egress.attach_as_leader(self._next_clock(), self._node.now())
        for index, asked in self._enqueues.items():
            if asked.queue == queue:
                egress.expect(index, asked)
        for index, transact in self._transacts.items():
            if egress in self._egresses_behind(transact):
                egress.await_transaction(index)

    @property
    def sweep_at(self) -> float:
        """The time at which `sweep` is due; infinite if the set has no temporary queues."""
        return self._sweep_at if self._sets.state(self._name).temporary else math.inf

    def sweep(self, now: float) -> None:
        """Delete the temporary queues whose time is over."""
        self._sweep_at = now + LOOK_S
        if self._node.topic.booted and (over := [*self._temporary.over(now)][:MOST_SWEPT]):
            self._sets.propose(self._name, over)

    def consumes(self, queue: str) -> None:
        """Attach the egress of a queue that has a consumer. If the queue does not exist, its first consumer declares
        it."""
        known = self._sets.state(self._name).get(queue)
        if known is None and is_temporary(queue):
            self._end_consumers(queue)
            return
        if known is None:
            is_proposed = self._undeclared.get(queue, False)
            self._undeclared[queue] = is_proposed or self._sets.propose(self._name, [Declare(queue)]) is not None
            return
        self._undeclared.pop(queue, None)
        if known.id not in self.egresses:
            self._begin(queue, known.id)
        elif known.settings.exclusive:
            self.egresses[known.id].go_on()

    def drains(self, queue: str, asked: Drain) -> None:
        """Begin the drain of a consumer. If the queue is not declared, it has no messages, and the drain ends at
        once."""
        self.consumes(queue)
        known = self._sets.state(self._name).get(queue)
        if known is None:
            self._node.topic.given(asked)
        else:
            self.egresses[known.id].drain(asked)

    def may_propose(self, end: ProposingEnd) -> bool:
        if self._is_under_way:
            self._busy[end] = None
        return not self._is_under_way

    def propose(self, end: ProposingEnd, proposals: Sequence[Proposal]) -> int | None:
        proposals = [self.timed(one) if isinstance(one, Enqueue) else one for one in proposals]
        first = self._sets.propose(self._name, proposals)
        if first is None:
            self._busy[end] = None
        else:
            self._proposed.update(dict.fromkeys(range(first, first + len(proposals)), end))
            for index, proposal in enumerate(proposals, first):
                if isinstance(proposal, Enqueue):
                    self._enqueues[index] = proposal
                    self._expect(index, proposal)
            self.propose_now()
        return first

    def transact(self, number: int, proposal: Transact) -> bool:
        """See `TransactingLog.transact`."""
        index = self._sets.propose_for(self._name, proposal.router, number, proposal)
        if index is not None:
            self._transacts[index] = proposal
            for egress in self._egresses_behind(proposal):
                egress.await_transaction(index)
            self.propose_now()
        return index is not None

    def _egresses_behind(self, asked: Transact) -> list[Egress]:
        """The egresses of the queues that the transaction may put messages into. They publish no later message of these
        queues before the transaction is decided."""
        state = self._sets.state(self._name)
        queues = [state.get(post.queue) for post in asked.enqueues]
        return [self.egresses[queue.id] for queue in queues if queue is not None and queue.id in self.egresses]

    @property
    def is_full(self) -> bool:
        """See `TransactingLog.is_full`."""
        return self.ingress.is_at_its_limit

    def timed(self, asked: Enqueue) -> Enqueue:
        """Return the `Enqueue` with the time at which each message expires: now, plus the message's time to live."""
        queue, now_ms = self._sets.state(self._name).get(asked.queue), self._node.topic.outlet.time_ms
        most = (queue.settings.ttl_ms if queue is not None else None) or math.inf
        # A dead letter no longer has its own time to live.
        is_dead = asked.binding == DEAD_LETTERS
        left = self._sets.left_ms(asked.messages, now_ms) if not is_dead else None
        if left is None and most == math.inf:
            return asked
        left = [min(ms, most) for ms in left or [math.inf] * len(asked.messages)]
        return attrs.evolve(asked, expires=[int(min(now_ms + max(ms, 0), MOST)) if ms < math.inf else 0 for ms in left])

    def _next_look(self, now: float) -> float:
        return now + max(self._expiry.due_ms - self._node.topic.outlet.time_ms, PAUSE_MS) / 1000

    def expire(self, now: float) -> None:
        """Propose that messages whose time to live is over leave their queues."""
        for queue, positions in self._expiry.take(self._node.topic.outlet.time_ms).items():
            name = self._sets.state(self._name).name_of(queue)
            assert name is not None, "a message of a deleted queue expires"
            if queue not in self.egresses:
                self._begin(name, queue)
            self.egresses[queue].expire(positions)
        self.look_at = self._next_look(now)

    @property
    def paused_until(self) -> float:
        """When the next resting message, of a queue or of the outbox, has to be published again; infinite if none
        rests."""
        return min(self._rested_at, min((letters.deadline for letters in self.letters.values()), default=math.inf))

    def handle_timer(self, now: float) -> None:
        for letters in self.letters.values():
            if letters.deadline <= now:
                letters.handle_timer(now)
        if self._rested_at <= now:
            wall_ms = self._node.topic.outlet.time_ms
            while self._resting and self._resting[0][0] <= wall_ms:
                _, position, _, end = heappop(self._resting)
                end.rested(position)
            self._await_rested(now)

    def _await_rested(self, now: float) -> None:
        left_ms = max(self._resting[0][0] - self._node.topic.outlet.time_ms, 1) if self._resting else math.inf
        self._rested_at = now + left_ms / 1000

    def rest(self, end: RestingEnd, position: int, until_ms: int, *, must: bool = False) -> bool:
        if len(self._resting) >= MOST_RESTING and not must:
            return False
        heappush(self._resting, (until_ms, position, next(self._rests), end))
        if self._resting[0][1] == position:
            self._await_rested(self._node.now())
        return True

    def wait(self, end: ProposingEnd) -> None:
        self._patient[end] = None
        self.deadline = min(self.deadline, self._node.now() + PATIENCE_S)

    def stolen(self, end: ProposingEnd, latest: int) -> None:
        """See `Proposer.stolen`. Stop leading, and lead again only in a term in which the attaches have higher clocks.

        If another router leads the set, no majority votes for this router, so this router does not lead again. If `end`
        is no longer an end of this set, do nothing: its binding has ended, and this leader itself has attached the
        link, to end it.
        """
        if end in self._ends and self._sets.ready(self._name) == self.since:
            self._sets.lead_anew(self._name, term_with(self.since[0], latest), self._node.now())

    @property
    def hands_over(self) -> bool:
        return self._sets.hands_over(self._name)

    @property
    def is_far_ahead(self) -> bool:
        return self._ahead > MOST_AHEAD

    def read(self, end: ReadingEnd, queue: QueueId | None, positions: Sequence[int]) -> None:
        self._reading[self._sets.read(self._name, queue, positions)] = end
        self.doubts_disk_at = min(self.doubts_disk_at, self._node.now() + SLOW_S)

    def reads_ahead(self, size: int) -> None:
        self._ahead += size

    def found(self, found: BodiesFound) -> bool:
        """Give the bodies to the end that has asked for them. Returns whether an end of this set has asked."""
        end = self._reading.pop(found.number, None)
        if end is not None:
            self.doubts_disk_at = self._node.now() + SLOW_S if self._reading else math.inf
            end.found(found.bodies)
        return end is not None

    def watch(self, now: float) -> None:
        """Tell the set at which routers its consumers are, because its leader may move to one of them."""
        self.watch_at = now + WATCH_S
        streams = (egress.stream for egress in self.egresses.values() if egress.is_there)
        self._sets.see(self._name, chain.from_iterable(map(self._node.topic.busy, streams)), now)

    def test_disk(self) -> None:
        """Check the disk, which has not finished a read for long: propose an entry that the disk has to write. If the
        disk hangs, another router becomes the leader."""
        self.doubts_disk_at = math.inf
        self._sets.propose(self._name, [Settled([])])

    def propose_now(self) -> None:
        """Let all ends propose everything that has waited since a call of `wait`."""
        patient, self._patient, self.deadline = self._patient, {}, math.inf
        for end in patient:
            end.propose_now()

    def _expect(self, index: int, asked: Enqueue) -> None:
        """If the queue has an egress, let it publish these messages now, so that the home can choose consumers for
        them."""
        queue = self._sets.state(self._name).get(asked.queue)
        if queue is not None and queue.id in self.egresses:
            self.egresses[queue.id].expect(index, asked)

    def follow(self, decided: Sequence[tuple[int, Decided | None]], now: float) -> None:
        """Pass the answers to decided proposals on to the ends that made the proposals."""
        if self._deletions != self._sets.state(self._name).deletions:
            # Close the egresses of deleted queues first, so that they publish none of the messages that they expect.
            self._close_deleted()
        if self._changes != self._sets.state(self._name).bindings.changes:
            self._bind({})
            self._end_unbound()
        if self._configured != (configured := self._sets.state(self._name).changes):
            self._configured = configured
            for egress in self.egresses.values():
                egress.go_on()
        for index, answer in decided:
            self._enqueues.pop(index, None)
            if index in self._proposed:  # no end of this leader has proposed an entry of an earlier leader
                self._proposed.pop(index).decided(index, answer)
            if isinstance(answer, Transacted):
                self._transacted(index, answer)
            elif answer is not None:
                self._enqueued(index, answer)
            if (transact := self._transacts.pop(index, None)) is not None:
                for egress in self._egresses_behind(transact):
                    egress.transacted(index)
        self._is_under_way = bool(self._proposed)
        if not self._is_under_way:
            busy, self._busy = self._busy, {}
            for end in busy:
                end.go_on()
        for name in [*self._undeclared]:
            self.consumes(name)
        if decided:
            self._times.mark(decided[-1][0], now)
            self._take_more()
        if self._taken_out != (taken_out := self._count_taken_out()):
            self._taken_out = taken_out
            self._withdraw_gone()
            self._look_into_outbox(doubts=False)
        self.look_at = min(self.look_at, self._next_look(now))

    def _withdraw_gone(self) -> None:
        for egress in self.egresses.values():
            egress.withdraw_gone()
        self._take_more()

    def _close_deleted(self) -> None:
        """Close the egresses of deleted queues. This ends the deliveries to their consumers."""
        state = self._sets.state(self._name)
        self._deletions = state.deletions
        gone = [queue_of(self.egresses[id_].identity.address)[1] for id_ in self.egresses if state.name_of(id_) is None]
        for id_ in [id_ for id_ in self.egresses if state.name_of(id_) is None]:
            self.egresses.pop(id_).leave(self._node.now(), closed=True)
        for name in gone:
            self._end_consumers(name)

    def _end_consumers(self, queue: str) -> None:
        """End the links of the consumers of a deleted queue."""
        for entry in [*self._node.topic.directory.subscribers(egress_address(self._name, queue))]:
            self._node.topic.end_consumer(entry, DELETED)

    def _take_more(self) -> None:
        """Let the ingresses take more messages, because the set may have room."""
        for end in (self.ingress, *(end for end in (self.dead_letters, *self.bound.values()) if end.lacks_room)):
            end.go_on()

    def _transacted(self, index: int, answer: Transacted) -> None:
        """Tell the egresses what a transaction has changed."""
        for retired in answer.retires:
            if retired.queue in self.egresses:
                self.egresses[retired.queue].left(each_of(retired.runs))
        for enqueued in answer.enqueued:
            self._enqueued(index, enqueued, is_expected=False)

    def _enqueued(self, index: int, answer: Enqueued, *, is_expected: bool = True) -> None:
        """Tell the egress which messages its queue has got. An egress does not expect the messages of a transaction,
        because the state may roll the transaction back."""
        self._expiry.add(answer.positions)
        if answer.queue in self.egresses and is_expected:
            self.egresses[answer.queue].enqueued(index, answer.positions)
        elif answer.queue in self.egresses:
            self.egresses[answer.queue].came(answer.positions)

    def leave(self) -> None:
        """Suspend all links of the set, because this router no longer leads it."""
        for end in self._ends:
            end.leave(self._node.now(), closed=False)

    @property
    def _ends(self) -> Sequence[Ingress | SetPublisher]:
        ingresses = self.ingress, self.dead_letters, *self.bound.values()
        return *ingresses, *self.egresses.values(), *self.letters.values()

    # The methods from here on are for the status.

    def oldest_s(self, queue: QueueId | None, now: float) -> float:
        """The age, in seconds, that the oldest message has at least; 0 if there is no message. `queue`: None for the
        oldest message in all queues."""
        messages = self._sets.state(self._name).messages
        position = messages.first_of(queue) if queue is not None else messages.first()
        return self._times.age_s(position, now) if position is not None else 0.0

    def resting(self, queue: QueueId) -> Resting:
        return self.egresses[queue].resting if queue in self.egresses else Resting()


class SetLeaders:
    """The links for all sets that one router leads. The node calls `follow` after each flush of the sets."""

    def __init__(self, node: EndNode, sets: ReplicaSets, marking: Marking) -> None:
        self._node = node
        self._sets = sets
        self._marking = marking
        self.led: dict[str, LedSet] = {}
        self._told: set[str] = set()
        """The routers in contact that had sent their sections when `follow` was last called."""

    def consumes(self, address: str) -> None:
        """Handle a consumer that has attached to this address (`egress_address`)."""
        set_, queue = queue_of(address)
        if set_ in self.led:
            self.led[set_].consumes(queue)

    def drains(self, action: ConsumerDrains) -> None:
        """Handle a consumer that drains. If this router does not lead the queue's set, the drain ends at once."""
        set_, queue = queue_of(action.address)
        if set_ in self.led:
            self.led[set_].drains(queue, action.asked)
        else:
            self._node.topic.given(action.asked)

    def found(self, found: BodiesFound) -> bool:
        """Give the bodies to the end that has asked for them. Returns whether an end of a set that this router leads
        has asked."""
        return any(led.found(found) for led in self.led.values())

    @property
    def deadline(self) -> float:
        """When `handle_timer` is due; infinite if never."""
        due = (
            (led.deadline, led.look_at, led.paused_until, led.doubts_disk_at, led.watch_at, led.sweep_at)
            for led in self.led.values()
        )
        return min(map(min, due), default=math.inf)

    def handle_timer(self, now: float) -> None:
        for led in self.led.values():
            if led.deadline <= now:
                led.propose_now()
            if led.look_at <= now:
                led.expire(now)
            if led.sweep_at <= now:
                led.sweep(now)
            if led.watch_at <= now:
                led.watch(now)
            if led.doubts_disk_at <= now:
                led.test_disk()
            led.handle_timer(now)

    def follow(self, now: float) -> None:
        """Attach the links for sets that this router has begun to lead, and suspend the links for sets that it no
        longer leads. Give the ends the answers to decided proposals."""
        told = self._node.topic.directory.applied.keys()
        is_told_more, self._told = bool(told - self._told), {*told}
        for name in self._sets.set_map.plans:
            ready, led = self._sets.ready(name), self.led.get(name)
            decided = self._sets.take_decided(name)
            if led is not None and led.since != ready:
                led.leave()
                del self.led[name]
                led = None
            if led is not None:
                led.follow(decided, now)
                if is_told_more:
                    led.take_over()
            elif ready is not None:
                self.led[name] = LedSet(self._node, self._sets, self._marking, name, ready, now)
            for router, number, asked in self._sets.take_browses(name):
                if name in self.led:
                    self.led[name].pages.ask(router, number, asked)
                else:
                    self._sets.answer(name, router, number, NOT_LED)
            for router, number, commit in self._sets.take_commits(name):
                if name in self.led:
                    self.led[name].commits.take(router, number, commit)
                else:
                    self._sets.answer(name, router, number, NOT_LED)
