"""The links of the sets that one router leads (protocol 14). It attaches them when it leads, and suspends them when it
leads no more."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

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
from topic.queues.leader.egress import Egress
from topic.queues.leader.expiry import ExpiryTimes
from topic.queues.leader.ingress import Ingress, term_clock
from topic.queues.leader.letters import Letters, is_of_letters, letters_to
from topic.queues.leader.log import Marking, ProposingEnd, ReadingEnd
from topic.queues.operations import MOST, Declare, QueueId
from topic.queues.proposals import Enqueue, Enqueued, Proposal, Settled
from topic.queues.sets import ReplicaSets

PAUSE_MS: Final = 100
"""Between two looks at the messages whose time is over."""
SLOW_S: Final = 1.0
"""How long the disk may read before the leader doubts it."""
MOST_AHEAD: Final = 4 << 20
"""Bytes of bodies that the ends of a set may have read ahead."""
PATIENCE_S: Final = 0.005
"""How long something that nobody waits for may wait for the next entry of the set."""


class LedSet:
    """The links of a set while this router leads it, in one term."""

    def __init__(
        self, node: EndNode, sets: ReplicaSets, marking: Marking, name: str, since: tuple[int, int], now: float
    ) -> None:
        """`since`: life and term."""
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
        """As far as the egresses know."""
        self._attaches = 0
        """How often links were attached in this term."""
        self._proposed: dict[int, ProposingEnd] = {}
        """By log index: the end that has proposed the entry."""
        self._enqueues: dict[int, Enqueue] = {}
        """The entries among these that put messages into a queue, by log index."""
        self._busy: dict[ProposingEnd, None] = {}
        """Ends that the leader was too busy for."""
        self._is_under_way = False
        """Something that was proposed in an earlier round is not decided."""
        self._patient: dict[ProposingEnd, None] = {}
        """Ends with something to propose that nobody waits for."""
        self.deadline = math.inf
        """When these are told to hurry; infinite if there are none."""
        self._undeclared: dict[str, bool] = {}
        """Queues that have consumers, and are not declared: whether their `Declare` is proposed."""
        self.egresses: dict[QueueId, Egress] = {}
        self._reading: dict[int, ReadingEnd] = {}
        """By number: the end that has asked for the read (`ReplicaSets.read`)."""
        self.doubts_disk_at = math.inf
        """When `test_disk` is due; infinite if nothing is read."""
        self._ahead = 0
        """Bytes of bodies that ends have read, and not published."""
        self._times = DecidedTimes(sets.applied(name), now)
        self._expiry = ExpiryTimes(sets.state(name).messages)
        self.look_at = self._next_look(now)
        """When `expire` is due; infinite if it is not."""
        lasting = [entry for entry in sets.state(name).messages.reserved.consumers if entry.lifetime.timeout]
        node.topic.peers.remember(lasting)
        unsettled = sets.state(name).messages.unsettled
        self.ingress = Ingress(node, ingress_of(name), sets.state(name).messages, self, sets.limit)
        self.ingress.come(unsettled.get(b"", ()), self._next_clock(), node.now())
        self.dead_letters = Ingress(
            node, dead_letter_ingress_of(name), sets.state(name).messages, self, sets.limit, binding=DEAD_LETTERS
        )
        self.dead_letters.come(unsettled.get(DEAD_LETTERS, ()), self._next_clock(), node.now())
        self.bound: dict[bytes, Ingress] = {}
        """The subscribers of the bindings, by the keys of these."""
        self._bind(unsettled)
        self._take_over_egresses()
        self.letters: dict[str, Letters] = {}
        """The publishers of the outbox, by the address that messages go to."""
        self.take_over_letters()
        self._look_into_outbox(doubts=True)

    def _next_clock(self) -> int:
        self._attaches += 1
        return term_clock(*self.since, self._attaches)

    def _bind(self, unsettled: Mapping[bytes, Sequence[bytes]]) -> None:
        """Attach a subscriber for each new binding, and end those of bindings that are gone. `unsettled`: as
        `QueuedMessages.unsettled`."""
        state, now = self._sets.state(self._name), self._node.now()
        self._changes = state.bindings.changes
        self.bound = {key: end for key, end in self.bound.items() if state.bindings.get(key) is not None}
        for binding in state.bindings:
            queue = state.name_of(binding.queue)
            if binding.key not in self.bound and queue is not None:
                link = binding.link(self._name, queue)
                end = self.bound[binding.key] = Ingress(
                    self._node, link, state.messages, self, self._sets.limit, binding.key, queue
                )
                end.come(unsettled.get(binding.key, ()), self._next_clock(), now)
        self.end_unbound()

    def end_unbound(self) -> None:
        """End the links of bindings that are gone, also of those that an earlier leader has attached: homes would wait
        for them for ever."""
        bound = {end.index for end in self.bound.values()}
        for entry in [*self._node.topic.directory.entries()]:
            if set_of_binding(entry.identity) == self._name and entry.live and entry.index not in bound:
                end_link(self._node, entry, self._next_clock())

    def take_over_letters(self) -> None:
        """Attach the publishers of the outbox that an earlier leader has attached: nobody else settles the deliveries
        that were under way."""
        for entry in [*self._node.topic.directory.entries()]:
            if entry.role is Role.PUBLISHER and entry.live and is_of_letters(entry.identity, self._name):
                self._letters_for(shown_address(entry.identity.address), doubts=True)

    def _look_into_outbox(self, *, doubts: bool) -> None:
        for address in self._sets.state(self._name).messages.outbox.addresses:
            self._letters_for(address, doubts=doubts)
        for letters in self.letters.values():
            letters.look()

    def _letters_for(self, address: str, *, doubts: bool) -> None:
        """Attach a publisher to this address, unless there is one. `doubts`: an earlier leader may have published the
        messages for the address."""
        if address in self.letters:
            return
        state = self._sets.state(self._name)
        identity = letters_to(self._name, self._inside(address))
        letters = Letters(self._node, identity, address, state.name_of, state.messages, self, self._marking)
        self.letters[address] = letters
        letters.come(self.since[0], self._next_clock(), self._node.now(), doubts=doubts)

    def _inside(self, address: str) -> str:
        """The address in the mesh to which the outboxes of sets publish the messages for `address`."""
        is_in_a_set = self._node.topic.kinds.of(address).in_sets
        plan = self._sets.set_map.plan_of(address) if is_in_a_set else None
        return dead_letter_address(plan.name, address) if plan is not None else address

    def _count_taken_out(self) -> tuple[int, ...]:
        """Numbers that change if others than consumers take messages out of queues, or out of the outbox."""
        state = self._sets.state(self._name)
        passed = state.messages.passed
        return state.deletions, state.messages.purges, passed.purged, passed.expired, state.messages.sendings

    def _take_over_egresses(self) -> None:
        """Attach the egresses of queues that have consumers, also if they have no messages: consumers may ask about
        messages that are gone. Attach those of earlier leaders, too, and those of queues with reserved messages: no
        router may know the consumers of these any more. Any other queue has an egress with its first consumer."""
        state = self._sets.state(self._name)
        for queue in sorted(state.messages.reserved_queues):
            name = state.name_of(queue)
            assert name is not None, "a message of a deleted queue is reserved"
            self._begin(name, queue)
        for entry in [*self._node.topic.directory.entries()]:
            if not (entry.live and is_egress(entry.identity.address)):
                continue
            set_, name = queue_of(entry.identity.address)
            if set_ != self._name:
                continue
            if entry.role is Role.PUBLISHER and state.get(name) is None:  # deleted, and its leader died
                end_link(self._node, entry, self._next_clock())
            else:
                self.consumes(name)

    def _has_consumers(self, queue: str) -> bool:
        return bool(self._node.topic.directory.subscribers(egress_address(self._name, queue)))

    def _begin(self, queue: str, id_: QueueId) -> None:
        state = self._sets.state(self._name)
        egress = Egress(self._node, self._name, queue, id_, state, self, self._marking)
        self.egresses[id_] = egress
        egress.come(self._next_clock(), self._node.now())
        for index, asked in self._enqueues.items():
            if asked.queue == queue:
                egress.expect(index, asked)

    def consumes(self, queue: str) -> None:
        """The queue has a consumer. It is declared with the first."""
        known = self._sets.state(self._name).get(queue)
        if known is None:
            is_proposed = self._undeclared.get(queue, False)
            self._undeclared[queue] = is_proposed or self._sets.propose(self._name, [Declare(queue)]) is not None
            return
        self._undeclared.pop(queue, None)
        if known.id not in self.egresses:
            self._begin(queue, known.id)

    def may_propose(self, end: ProposingEnd) -> bool:
        """As `Proposer.may_propose`."""
        if self._is_under_way:
            self._busy[end] = None
        return not self._is_under_way

    def propose(self, end: ProposingEnd, proposals: Sequence[Proposal]) -> int | None:
        """As `Proposer.propose`."""
        proposals = [self._timed(one) if isinstance(one, Enqueue) else one for one in proposals]
        first = self._sets.propose(self._name, proposals)
        if first is None:
            self._busy[end] = None
        else:
            self._proposed.update(dict.fromkeys(range(first, first + len(proposals)), end))
            for index, proposal in enumerate(proposals, first):
                if isinstance(proposal, Enqueue):
                    self._enqueues[index] = proposal
                    self._expect(index, proposal)
            self.hurry()
        return first

    def _timed(self, asked: Enqueue) -> Enqueue:
        """The `Enqueue` with the time at which each message is over. Times to live count from now on."""
        queue, now_ms = self._sets.state(self._name).get(asked.queue), self._wall_ms
        most = (queue.settings.ttl_ms if queue is not None else None) or math.inf
        is_dead = asked.binding == DEAD_LETTERS  # its own time was over with its death
        left = self._sets.left_ms(asked.messages, now_ms) if not is_dead else None
        if left is None and most == math.inf:
            return asked
        left = [min(ms, most) for ms in left or [math.inf] * len(asked.messages)]
        return attrs.evolve(asked, expires=[int(min(now_ms + max(ms, 0), MOST)) if ms < math.inf else 0 for ms in left])

    @property
    def _wall_ms(self) -> int:
        return self._node.topic.outlet.time_us // 1000

    def _next_look(self, now: float) -> float:
        return now + max(self._expiry.due_ms - self._wall_ms, PAUSE_MS) / 1000

    def expire(self, now: float) -> None:
        """Have the messages taken out whose time is over."""
        for queue, positions in self._expiry.take(self._wall_ms).items():
            name = self._sets.state(self._name).name_of(queue)
            assert name is not None, "a message of a deleted queue expires"
            if queue not in self.egresses:
                self._begin(name, queue)
            self.egresses[queue].expire(positions)
        self.look_at = self._next_look(now)

    @property
    def paused_until(self) -> float:
        """When messages of the outbox are to be published again; infinite if none are."""
        return min((letters.deadline for letters in self.letters.values()), default=math.inf)

    def handle_timer(self, now: float) -> None:
        for letters in self.letters.values():
            if letters.deadline <= now:
                letters.handle_timer(now)

    def wait(self, end: ProposingEnd) -> None:
        """As `Proposer.wait`."""
        self._patient[end] = None
        self.deadline = min(self.deadline, self._node.now() + PATIENCE_S)

    @property
    def is_far_ahead(self) -> bool:
        """As `Proposer.is_far_ahead`."""
        return self._ahead > MOST_AHEAD

    def read(self, end: ReadingEnd, queue: QueueId | None, positions: Sequence[int]) -> None:
        """As `Proposer.read`."""
        self._reading[self._sets.read(self._name, queue, positions)] = end
        self.doubts_disk_at = min(self.doubts_disk_at, self._node.now() + SLOW_S)

    def reads_ahead(self, size: int) -> None:
        """As `Proposer.reads_ahead`."""
        self._ahead += size

    def found(self, found: BodiesFound) -> bool:
        """Give bodies to the end that has asked for them. Returns whether there is one."""
        end = self._reading.pop(found.number, None)
        if end is not None:
            self.doubts_disk_at = self._node.now() + SLOW_S if self._reading else math.inf
            end.found(found.bodies)
        return end is not None

    def test_disk(self) -> None:
        """The disk has not read for long. Have it write something, too: if it hangs, leadership moves for that."""
        self.doubts_disk_at = math.inf
        self._sets.propose(self._name, [Settled([])])

    def hurry(self) -> None:
        """Have the ends propose all that waits."""
        patient, self._patient, self.deadline = self._patient, {}, math.inf
        for end in patient:
            end.hurry()

    def _expect(self, index: int, asked: Enqueue) -> None:
        """Have the consumers of the queue chosen for these messages, if it has an egress."""
        queue = self._sets.state(self._name).get(asked.queue)
        if queue is not None and queue.id in self.egresses:
            self.egresses[queue.id].expect(index, asked)

    def follow(self, decided: Sequence[tuple[int, Enqueued | None]], now: float) -> None:
        """Give the links the answers that were decided."""
        if self._deletions != self._sets.state(self._name).deletions:
            self._close_deleted()  # before it could offer what it expects
        if self._changes != self._sets.state(self._name).bindings.changes:
            self._bind({})
        if self._configured != (configured := self._sets.state(self._name).changes):
            self._configured = configured
            for egress in self.egresses.values():
                egress.go_on()
        for index, answer in decided:
            self._enqueues.pop(index, None)
            if index in self._proposed:  # else it is an entry of an earlier leader
                self._proposed.pop(index).decided(index, answer)
            if answer is not None:
                self._enqueued(index, answer)
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
        """Close the egresses of queues that are deleted: their consumers' deliveries end with them."""
        state = self._sets.state(self._name)
        self._deletions = state.deletions
        for id_ in [id_ for id_ in self.egresses if state.name_of(id_) is None]:
            self.egresses.pop(id_).leave(self._node.now(), closed=True)

    def _take_more(self) -> None:
        """The set may have room: let the ingresses take more messages."""
        for end in (self.ingress, *(end for end in (self.dead_letters, *self.bound.values()) if end.lacks_room)):
            end.go_on()

    def _enqueued(self, index: int, answer: Enqueued) -> None:
        """If the queue was deleted before, its egress is closed with all that it expects."""
        self._expiry.add(answer.positions)
        if answer.queue in self.egresses:
            self.egresses[answer.queue].enqueued(index, answer.positions)
        elif answer.queue is not None and answer.positions:
            name = self._sets.state(self._name).name_of(answer.queue)
            if name is not None and self._has_consumers(name):  # of the queue of this name that was deleted
                self._begin(name, answer.queue)

    def leave(self) -> None:
        """This router leads no more."""
        ingresses = self.ingress, self.dead_letters, *self.bound.values()
        for end in (*ingresses, *self.egresses.values(), *self.letters.values()):
            end.leave(self._node.now(), closed=False)

    # what it shows

    def oldest_s(self, queue: QueueId | None, now: float) -> float:
        """How old the oldest message of the queue is, at least; None: the oldest of all. 0 if there is none."""
        messages = self._sets.state(self._name).messages
        position = messages.first_of(queue) if queue is not None else messages.first()
        return self._times.age_s(position, now) if position is not None else 0.0


class SetLeaders:
    """The sets that one router leads. `follow` is to be called after each flush of the sets."""

    def __init__(self, node: EndNode, sets: ReplicaSets, marking: Marking) -> None:
        self._node = node
        self._sets = sets
        self._marking = marking
        self.led: dict[str, LedSet] = {}
        self._told: set[str] = set()
        """The routers in contact that have told their sections, as of the last `follow`."""

    def consumes(self, address: str) -> None:
        """A consumer has attached to this address (`egress_address`)."""
        set_, queue = queue_of(address)
        if set_ in self.led:
            self.led[set_].consumes(queue)

    def found(self, found: BodiesFound) -> bool:
        """Give bodies to the end that has asked for them. Returns whether a set that this router leads has it."""
        return any(led.found(found) for led in self.led.values())

    @property
    def deadline(self) -> float:
        """When `handle_timer` is due; infinite if nothing is."""
        due = ((led.deadline, led.look_at, led.paused_until, led.doubts_disk_at) for led in self.led.values())
        return min(map(min, due), default=math.inf)

    def handle_timer(self, now: float) -> None:
        for led in self.led.values():
            if led.deadline <= now:
                led.hurry()
            if led.look_at <= now:
                led.expire(now)
            if led.doubts_disk_at <= now:
                led.test_disk()
            led.handle_timer(now)

    def follow(self, now: float) -> None:
        """Attach links of sets that this router leads now, suspend links of sets that it leads no more, and give the
        links the answers that were decided."""
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
                    led.end_unbound()
                    led.take_over_letters()
            elif ready is not None:
                self.led[name] = LedSet(self._node, self._sets, self._marking, name, ready, now)
