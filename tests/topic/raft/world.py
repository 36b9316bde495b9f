"""A set as one value, and what may happen to it: the model that the search visits.

| column | for | has |
| --- | --- | --- |
| state | each router | the number of its local state (`steps.py`) |
| facts, log, disk | each router | what follows from the state, to be looked at alone |
| contact | each two routers | who sees it: 1 the first, 2 the second |
| queue | each router and other | the messages that may still arrive, oldest first |
| decided | all | entries, by life and index, and the term in which each was decided first |
| led | all | who has led, by life and term |
| budget | each kind in `COSTS` | how often it may still happen |
| ring | each router | how many changes of the ring it has read; the first: how many were chosen |

Each end of a contact notices its end by itself, at any time. What was sent before may arrive until then. Each function
looks at as few columns as it can: the kernel learns what it comes to by these (`tests/exhaustive/kernel.py`).

What is left out, and why nothing is lost:

- A message that its receiver never acts on is taken off its channel at once (`steps.is_dead`): it would change nothing
  whenever it arrives.
- Of two runs that are mirror images of each other, one is visited (`Scope.mirrored`). The core treats two followers
  alike that have the same history. It uses their order for the first timers alone, and states have no times.
- A timer that only begins anew is no event.
- If greetings are not slow, a contact begins for both ends at once. If a set has begun, greetings do not change, and a
  greeting that arrives late is a contact that begins late. What the two ends may do while only one of them has the
  contact is left out there; scopes with slow greetings have it.
- If disks are not slow, a write ends at once; if both ends see a loss, they do so at once. These are bounds, like the
  numbers of a scope: other scopes have slow disks, and losses that one end notices first.
- A replica flushes after each event. Time has no length: a disk never hangs. The walk and scenarios have both.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, permutations
from typing import Any, Final

import attrs

from tests.exhaustive.memo import Numbers
from tests.topic.raft.steps import Facts, Step, Steps, View, is_dead, may_die
from topic.raft.configuration import Replica
from topic.raft.life import SetLife
from topic.raft.log import Entry
from topic.raft.messages import Greeting

COSTS: Final = ("tick", "propose", "cut", "crash", "replace", "hand", "recover", "compact")

GOES_ON: Final = ("receive", "finish", "notice")
"""Events that happen without a fault, a client or an operator."""

Event = tuple[Any, ...]
Values = tuple[int, ...]
Decided = tuple[tuple[tuple[SetLife, int], tuple[Entry, int]], ...]
Led = tuple[tuple[tuple[SetLife, int], Replica], ...]


@attrs.frozen(slots=True, kw_only=True)
class Scope:
    """The bounds of a search."""

    name: str
    routers: str = "abc"
    ring: str = "abc"
    begun: bool = True
    """Whether the search begins with a set that has begun, led by its first router."""
    prepare: "Callable[[Walker], None]" = lambda _: None
    terms: int = 2
    """The highest term that a timer may lead to."""
    elections: int = 0
    """How many timers may end with an effect."""
    entries: int = 0
    cuts: int = 0
    """How many contacts may be lost, one end first."""
    crashes: int = 0
    replaced: int = 0
    """How many disks may be lost."""
    losable: str = ""
    """The routers whose disk may be lost, and whose process may end. Empty: all."""
    transfers: int = 0
    recoveries: int = 0
    compactions: int = 0
    rings: tuple[str, ...] = ()
    """An operator has a leader choose each of these rings, in this order. If the set has not begun, each router reads
    them in its file, at times of its own."""
    meets: bool = True
    """Whether contacts begin, at any time."""
    mirrored: str = ""
    """Two routers that differ only by their names. Each run has a mirror image, with their roles exchanged. Of the two
    runs the search visits the one in which the first of these routers is affected first by an event."""
    clocks: str = "abcd"
    """The order of routers by their clocks: if neither of two routers knew the other's life, the later one here gives
    its life the higher name."""
    is_disk_slow: bool = True
    """Whether a write may end at any later time. Otherwise it ends at once."""
    is_loss_seen_by_both: bool = False
    """Whether both ends notice the end of a contact at once."""
    are_greetings_slow: bool = False
    """Whether a greeting may arrive at any time. Otherwise it arrives when the contact begins."""
    expect: "Callable[[Draft, Model], None]" = lambda draft, model: None
    """Checks each state. It may look only at facts and at the decided entries."""
    at_rest: "Callable[[Draft, Model], None]" = lambda draft, model: None
    """Checks each state in which nothing is under way."""


class Draft:
    """A world in use: it records the columns that were read, and those that were changed."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.read_first: list[int] = []
        """The columns that were read before they were changed, in this order."""
        self.changes: dict[int, int] = {}

    def __getitem__(self, column: int) -> int:
        if column in self.changes:
            return self.changes[column]
        if column not in self.read_first:
            self.read_first.append(column)
        return self.values[column]

    def __setitem__(self, column: int, value: int) -> None:
        self.changes[column] = value

    def world(self) -> Values:
        return tuple([self.changes.get(column, value) for column, value in enumerate(self.values)])


class Model:
    """All that may happen in one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.steps = Steps(scope.routers, scope.clocks)
        self.queues: Numbers[tuple[int, ...]] = Numbers()
        self.decided: Numbers[Decided] = Numbers()
        self.led: Numbers[Led] = Numbers()
        assert self.queues.number(()) == self.decided.number(()) == self.led.number(()) == 0
        self.graphs: set[tuple[int, ...]] = set()
        """The graphs of contacts in states at rest."""
        self.names = scope.routers
        self.routers = range(len(scope.routers))
        n = len(scope.routers)
        self.states, self.facts, self.logs, self.disks = 0, n, 2 * n, 3 * n
        """The first column of each kind."""
        self.pairs = {pair: 4 * n + at for at, pair in enumerate(combinations(self.routers, 2))}
        first = 4 * n + len(self.pairs)
        self.channels = {pair: first + at for at, pair in enumerate(permutations(self.routers, 2))}
        first += len(self.channels)
        self.decided_at, self.led_at, self.rings_at = first, first + 1, first + 2
        self.budgets = {kind: self.rings_at + n + at for at, kind in enumerate(COSTS)}
        self.may_fail = self.rings_at + n + len(COSTS)
        """Always 1. The kernel allows no event of `faults` in a world where this column is 0."""
        self.mirror_at = self.may_fail + 1
        """0 until an event has affected one of the two mirrored routers alone."""
        self.size = self.may_fail + 2
        self._rings = (scope.ring, *scope.rings)
        self.plain: list[Callable[[Draft], Iterator[Event]]] = [
            *(partial(self._receives, *pair) for pair in self.channels),
            *(partial(self._finishes, router) for router in self.routers),
            *(partial(self._notices, *pair) for pair in self.pairs),
            *(partial(self._check_logs, *pair) for pair in self.pairs),
            self._check_scope,
        ]
        """The events that happen by themselves, and the checks of each state."""
        sources: dict[str, list[Callable[[Draft], Iterator[Event]]]] = {
            "": [
                *(partial(self._starts, router) for router in self.routers),
                *(partial(self._meets, *pair) for pair in self.pairs if scope.meets),
                *(partial(self._follows, router) for router in self.routers if scope.rings),
                *(partial(self._begins, router) for router in self.routers if not scope.begun),
            ],
            "tick": [partial(self._ticks, router) for router in self.routers],
            "propose": [partial(self._proposes, router) for router in self.routers],
            "cut": [partial(self._loses, *pair) for pair in self.pairs],
            "crash": [partial(self._crashes, router) for router in self.routers],
            "replace": [partial(self._replaces, router) for router in self.routers],
            "hand": [partial(self._hands, router) for router in self.routers],
            "recover": [partial(self._recovers, router) for router in self.routers],
            "compact": [partial(self._compacts, router) for router in self.routers],
        }
        self._left = dict(zip(COSTS, (
            scope.elections, scope.entries, scope.cuts, scope.crashes, scope.replaced, scope.transfers,
            scope.recoveries, scope.compactions,
        ), strict=True))  # fmt: skip
        faults = [one for kind, some in sources.items() if not kind or self._left[kind] for one in some]
        self.faults = [partial(self._mirrored, one) for one in faults] if scope.mirrored else faults
        """The events that need a fault, a client or an operator."""
        self._is_one_life = scope.begun and not (scope.recoveries or scope.replaced)
        self._mirror = [scope.routers.index(name) for name in scope.mirrored]

    def first(self) -> Values:
        """All routers have started, and no two are in contact."""
        draft = Draft((0,) * self.size)
        draft[self.may_fail] = 1
        for kind, column in self.budgets.items():
            draft[column] = self._left[kind]
        for router in self.routers:
            self._set_state(draft, router, self.steps.first(self.names[router], self.scope.ring))
        return draft.world()

    # views of a world

    def facts_of(self, draft: Draft, router: int) -> Facts:
        return self.steps.facts.value(draft[self.facts + router])

    def view(self, draft: Draft, router: int) -> View | None:
        return self.steps.views[draft[self.states + router]]

    def contact(self, draft: Draft, one: int, two: int) -> int:
        return draft[self.pairs[min(one, two), max(one, two)]]

    def sees(self, draft: Draft, one: int, two: int) -> bool:
        return bool(self.contact(draft, one, two) & (1 if one < two else 2))

    def ring(self, draft: Draft, router: int) -> str:
        """The ring with which the set is to begin, according to the router's file."""
        is_read = self.scope.rings and not self.scope.begun
        return self._rings[draft[self.rings_at + router]] if is_read else self.scope.ring

    def leaders(self, values: Values) -> list[tuple[Replica, int]]:
        """The replicas that lead, with their terms."""
        views = [self.steps.views[number] for number in values[self.states : self.states + len(self.names)]]
        return [(view.me, view.term) for view in views if view is not None and view.leads]

    def _left_of(self, draft: Draft, kind: str) -> int:
        return draft[self.budgets[kind]]

    def is_losable(self, router: int) -> bool:
        return self.names[router] in (self.scope.losable or self.names)

    # possible events

    def events(self, draft: Draft) -> list[Event]:
        """All possible events, in the kernel's order."""
        return [event for source in (*self.plain, *self.faults) for event in source(draft)]

    def _mirrored(self, source: Callable[[Draft], Iterator[Event]], draft: Draft) -> Iterator[Event]:
        """The events of a source, without mirror images of events that are visited anyway."""
        for event in source(draft):
            if self._first_mirrored(event) != self._mirror[1] or draft[self.mirror_at]:
                yield event

    def _first_mirrored(self, event: Event) -> int | None:
        touched = event[1:2] if event[0] == "crash" else event[1:]
        return next((router for router in touched if router in self._mirror), None)

    def _receives(self, sender: int, receiver: int, draft: Draft) -> Iterator[Event]:
        if draft[self.channels[sender, receiver]]:
            yield "receive", sender, receiver

    def _finishes(self, router: int, draft: Draft) -> Iterator[Event]:
        if self.facts_of(draft, router).under_way:
            yield "finish", router

    def _notices(self, low: int, high: int, draft: Draft) -> Iterator[Event]:
        seen = draft[self.pairs[low, high]]
        if seen in (1, 2):
            yield ("notice", low, high) if seen == 1 else ("notice", high, low)

    def _starts(self, router: int, draft: Draft) -> Iterator[Event]:
        if not self.facts_of(draft, router).runs:
            yield "start", router

    def _meets(self, low: int, high: int, draft: Draft) -> Iterator[Event]:
        if draft[self.pairs[low, high]] != 3 and all(self.facts_of(draft, one).runs for one in (low, high)):
            yield "meet", low, high

    def _follows(self, router: int, draft: Draft) -> Iterator[Event]:
        if not self.scope.begun and draft[self.rings_at + router] < len(self.scope.rings):
            yield "follow", router
        elif self.scope.begun and draft[self.rings_at] < len(self.scope.rings) and self.facts_of(draft, router).leads:
            yield "choose", router

    def _begins(self, router: int, draft: Draft) -> Iterator[Event]:
        """A set that has not begun advances by a timer."""
        facts = self.facts_of(draft, router)
        if facts.runs and not facts.begun:
            yield "begin", router

    def _ticks(self, router: int, draft: Draft) -> Iterator[Event]:
        facts = self.facts_of(draft, router)
        if facts.begun and facts.ticks and facts.term < self.scope.terms and self._left_of(draft, "tick"):
            yield "tick", router

    def _proposes(self, router: int, draft: Draft) -> Iterator[Event]:
        if self.facts_of(draft, router).leads and self._left_of(draft, "propose"):
            yield "propose", router

    def _loses(self, low: int, high: int, draft: Draft) -> Iterator[Event]:
        if draft[self.pairs[low, high]] == 3 and self._left_of(draft, "cut"):
            if self.scope.is_loss_seen_by_both:
                yield "cut", low, high
            else:
                yield "lose", low, high
                yield "lose", high, low

    def _crashes(self, router: int, draft: Draft) -> Iterator[Event]:
        facts = self.facts_of(draft, router)
        if self.is_losable(router) and facts.runs and self._left_of(draft, "crash"):
            yield from (("crash", router, kept) for kept in range(facts.under_way + 1))

    def _replaces(self, router: int, draft: Draft) -> Iterator[Event]:
        if self.is_losable(router) and self.facts_of(draft, router).runs and self._left_of(draft, "replace"):
            yield "replace", router

    def _hands(self, router: int, draft: Draft) -> Iterator[Event]:
        facts = self.facts_of(draft, router)
        if facts.is_handing:
            yield "fail", router
        if facts.hands and self._left_of(draft, "hand"):
            yield from (("hand", router, self.names.index(other)) for other in facts.hands)

    def _recovers(self, router: int, draft: Draft) -> Iterator[Event]:
        facts = self.facts_of(draft, router)
        if facts.ticks and facts.begun and self._left_of(draft, "recover"):
            yield "recover", router

    def _compacts(self, router: int, draft: Draft) -> Iterator[Event]:
        if self.facts_of(draft, router).compacts and self._left_of(draft, "compact"):
            yield "compact", router

    # effects of events

    def change(self, draft: Draft, event: Event) -> None:
        """Apply the event. Raises what the core, or a check, raises."""
        verb, *rest = event
        getattr(self, f"_{verb}")(draft, *rest)
        if self._mirror and verb not in GOES_ON and self._first_mirrored(event) is not None:
            draft[self.mirror_at] = 1
        if not self.scope.is_disk_slow:
            for router in self.routers:
                while self.states + router in draft.changes and self.facts_of(draft, router).under_way:
                    self._local(draft, router, "finish")

    def _receive(self, draft: Draft, sender: int, receiver: int) -> None:
        first, *others = self.queues.value(draft[self.channels[sender, receiver]])
        draft[self.channels[sender, receiver]] = self.queues.number(tuple(others))
        self._local(draft, receiver, "receive", first)

    def _finish(self, draft: Draft, router: int) -> None:
        self._local(draft, router, "finish")

    def _start(self, draft: Draft, router: int) -> None:
        self._local(draft, router, "start")

    def _follow(self, draft: Draft, router: int) -> None:
        draft[self.rings_at + router] += 1
        if self.facts_of(draft, router).runs:
            self._local(draft, router, "follow", self.ring(draft, router))

    def _choose(self, draft: Draft, router: int) -> None:
        draft[self.rings_at] += 1
        self.ask(draft, router, "choose", self._rings[draft[self.rings_at]], 0.0)

    def _begin(self, draft: Draft, router: int) -> None:
        self._local(draft, router, "tick")

    def _tick(self, draft: Draft, router: int) -> None:
        """A timer that only starts again does not count."""
        before = draft[self.states + router]
        step = self._local(draft, router, "tick")
        if step.state != before or step.said:
            draft[self.budgets["tick"]] -= 1

    def _propose(self, draft: Draft, router: int) -> None:
        data = b"%d" % draft[self.budgets["propose"]]
        draft[self.budgets["propose"]] -= 1
        self.ask(draft, router, "propose", (data,))

    def _fail(self, draft: Draft, router: int) -> None:
        self._local(draft, router, "fail")

    def _hand(self, draft: Draft, router: int, to: int) -> None:
        draft[self.budgets["hand"]] -= 1
        store = self.steps.disks.value(draft[self.disks + to])[0]
        self.ask(draft, router, "hand_over", Replica(self.names[to], store), 0.0)

    def _recover(self, draft: Draft, router: int) -> None:
        draft[self.budgets["recover"]] -= 1
        self.ask(draft, router, "recover", 0.0)

    def _compact(self, draft: Draft, router: int) -> None:
        draft[self.budgets["compact"]] -= 1
        self._local(draft, router, "compact")

    def _crash(self, draft: Draft, router: int, kept: int) -> None:
        draft[self.budgets["crash"]] -= 1
        self._end(draft, router, "crash", kept)

    def _replace(self, draft: Draft, router: int) -> None:
        draft[self.budgets["replace"]] -= 1
        self._end(draft, router, "replace_disk")

    def _end(self, draft: Draft, router: int, *event: Any) -> None:
        """A process ends. Its messages may arrive until the other routers notice."""
        for other in self.routers:
            if other != router and self.sees(draft, router, other):
                self._unsee(draft, router, other)
        self._local(draft, router, *event)

    def _unsee(self, draft: Draft, one: int, two: int) -> None:
        draft[self.pairs[min(one, two), max(one, two)]] -= 1 if one < two else 2
        draft[self.channels[two, one]] = 0

    def _notice(self, draft: Draft, one: int, two: int) -> None:
        self._unsee(draft, one, two)
        self._local(draft, one, "lose", self.names[two])

    def _lose(self, draft: Draft, one: int, two: int) -> None:
        draft[self.budgets["cut"]] -= 1
        self._notice(draft, one, two)

    def _cut(self, draft: Draft, one: int, two: int) -> None:
        self._lose(draft, one, two)
        self._notice(draft, two, one)

    def _meet(self, draft: Draft, one: int, two: int) -> None:
        """A new contact begins. An earlier one has ended at both ends by then."""
        for router, other in ((one, two), (two, one)):
            if self.sees(draft, router, other):
                self._notice(draft, router, other)
        draft[self.pairs[one, two]] = 3
        for router, other in ((one, two), (two, one)):
            self._local(draft, router, "connect", self.names[other])
        if not self.scope.are_greetings_slow:
            for router, other in ((one, two), (two, one)):
                while self._is_greeting(draft, router, other):
                    self._receive(draft, router, other)

    def _is_greeting(self, draft: Draft, sender: int, receiver: int) -> bool:
        queue = self.queues.value(draft[self.channels[sender, receiver]])
        return bool(queue) and isinstance(self.steps.messages.value(queue[0]).body, Greeting)

    def ask(self, draft: Draft, router: int, what: str, *arguments: Any) -> None:
        """Call a method of a replica, which may refuse."""
        self._local(draft, router, "ask", what, *arguments)

    def _local(self, draft: Draft, router: int, verb: str, *arguments: Any) -> Step:
        """Apply an event at one router, and send its messages."""
        ring = self.ring(draft, router)
        step = self.steps.apply(draft[self.states + router], (verb, ring, *arguments))
        former = self.facts_of(draft, router)
        self._set_state(draft, router, step.state)
        if self._is_one_life and _has_moved(former, self.facts_of(draft, router)):
            self._bury(draft, router)
        for name, message in step.said:
            other = self.names.index(name)
            if self.contact(draft, router, other) == 3 and not self._is_dead(draft, message, other):
                column = self.channels[router, other]
                draft[column] = self.queues.number((*self.queues.value(draft[column]), message))
        if step.decided:
            self._decide(draft, step)
        if step.won is not None:
            self._win(draft, router, *step.won)
        return step

    def _is_dead(self, draft: Draft, message: int, receiver: int) -> bool:
        envelope = self.steps.messages.value(message)
        return self._is_one_life and may_die(envelope) and is_dead(envelope, self.facts_of(draft, receiver))

    def _bury(self, draft: Draft, receiver: int) -> None:
        """Remove messages from the channels that the receiver would never act on."""
        facts = self.facts_of(draft, receiver)
        for sender in self.routers:
            if sender != receiver and draft[self.channels[sender, receiver]]:
                queue = self.queues.value(draft[self.channels[sender, receiver]])
                alive = [one for one in queue if not is_dead(self.steps.messages.value(one), facts)]
                draft[self.channels[sender, receiver]] = self.queues.number(tuple(alive))

    def _set_state(self, draft: Draft, router: int, number: int) -> None:
        draft[self.states + router] = number
        facts, log, disk = self.steps.derived[number]
        draft[self.facts + router], draft[self.logs + router], draft[self.disks + router] = facts, log, disk

    # what always holds

    def _decide(self, draft: Draft, step: Step) -> None:
        decided = dict(self.decided.value(draft[self.decided_at]))
        for life, index, entry, term in step.decided:
            known, _ = decided.setdefault((life, index), (entry, term))
            assert known == entry, f"two entries are decided at {index} of life {life}: {known}, {entry}"
        draft[self.decided_at] = self.decided.number(tuple(sorted(decided.items(), key=lambda pair: pair[0])))
        if step.is_leaders:
            self._check_durable(draft, step)

    def _check_durable(self, draft: Draft, step: Step) -> None:
        """Check that a majority of disks has the entry that a leader has decided. The majority may be that of the
        configuration before: the leader may have appended a change after it had decided."""
        life, index, entry, _ = step.decided[-1]
        number = step.state
        entries = self.steps.logs.value(self.steps.derived[number][1])[1]
        latest = [one.configuration for one in entries if one.configuration is not None][-2:]
        for configuration in latest:
            count = sum(self._has(draft, voter, index, entry) for voter in configuration.voters)
            if 2 * count > len(configuration.voters):
                return
        raise AssertionError(f"entry {index} of life {life} is on too few disks")

    def _has(self, draft: Draft, member: Replica, index: int, entry: Entry) -> bool:
        """Whether the disk has the entry. A disk that was lost since may have had it."""
        store, snapshot, entries = self.steps.disks.value(draft[self.disks + self.names.index(member.router)])
        place = index - snapshot
        return store != member.store or place <= 0 or entries[place - 1 : place] == (entry,)

    def _win(self, draft: Draft, router: int, life: SetLife, term: int, me: Replica) -> None:
        """Check that only one replica leads in a term, and that a new leader has all entries of earlier terms (Raft,
        3.6.3).
        """
        led = dict(self.led.value(draft[self.led_at]))
        assert led.setdefault((life, term), me) == me, f"two lead in term {term}: {led[life, term]} and {me}"
        draft[self.led_at] = self.led.number(tuple(sorted(led.items(), key=lambda pair: pair[0])))
        _, log = self.steps.logs.value(draft[self.logs + router])
        for (its, index), (entry, decided_in) in self.decided.value(draft[self.decided_at]):
            if its == life and decided_in < term:
                assert len(log) >= index, f"the leader of term {term} lacks entry {index}"
                assert log[index - 1] == entry, f"the leader of term {term} has another entry at {index}"

    def _check_logs(self, low: int, high: int, draft: Draft) -> Iterator[Event]:
        """Check that two logs of a life that share an entry of one index and term are equal up to it (Raft, 3.5)."""
        (life, one), (other, two) = (self.steps.logs.value(draft[self.logs + router]) for router in (low, high))
        if life == other:
            for index in range(min(len(one), len(two)) - 1, -1, -1):
                if one[index].term == two[index].term:
                    assert one[: index + 1] == two[: index + 1], "two logs differ before an entry that they share"
                    break
        yield from ()

    def _check_scope(self, draft: Draft) -> Iterator[Event]:
        self.scope.expect(draft, self)
        yield from ()

    def check_rest(self, draft: Draft) -> None:
        """Nothing is under way: members in contact with a leader must follow it and have its log, and no replica may
        follow another one."""
        views = {self.names[router]: self.view(draft, router) for router in self.routers}
        places = {name: place for place, name in enumerate(self.names)}
        for name, view in views.items():
            if view is None:
                continue
            if view.leader is not None and view.leader != view.me:
                led = views[view.leader.router]
                assert self.contact(draft, places[name], places[view.leader.router]) == 3, "a leader out of contact"
                is_led = led is not None and led.leads and led.me == view.leader
                assert is_led or view.me not in view.configuration.voters, (
                    f"{name} follows {view.leader}, which leads not"
                )
                is_member = led is not None and is_led and view.me in led.configuration.members
                assert not is_member or (led is not None and led.term == view.term), f"{name} follows in another term"
            if view.leads:
                for member in view.configuration.members:
                    other = views[member.router]
                    in_contact = member == view.me or self.contact(draft, places[name], places[member.router]) == 3
                    if other is None or other.me != member or not in_contact:
                        continue
                    assert other.leader == view.me, f"{member.router} does not follow {name}"
                    ends = (other.last, other.commit), (view.last, view.commit)
                    assert ends[0] == ends[1], f"{member.router} is at {ends[0]}, its leader {name} at {ends[1]}"
        self.scope.at_rest(draft, self)


class Walker:
    """Brings a set to the first state of a scope: it applies named events, and after each one all that happen by
    themselves.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.values = model.first()

    def do(self, verb: str, *names: str | int) -> None:
        """Apply an event without using up its budget."""
        draft = Draft(self.values)
        places = [self.model.names.index(name) if isinstance(name, str) else name for name in names]
        self.model.change(draft, (verb, *places))
        for column in (*self.model.budgets.values(), self.model.mirror_at):
            draft.changes.pop(column, None)
        self.values = draft.world()
        self.settle()

    def settle(self) -> None:
        self.values = settled(self.model, self.values)

    def meet_all(self) -> None:
        for low, high in self.model.pairs:
            if self.values[self.model.pairs[low, high]] != 3:
                self.do("meet", self.model.names[low], self.model.names[high])

    def cut(self, router: str, *others: str) -> None:
        for other in others or [name for name in self.model.names if name != router]:
            low, high = sorted((router, other))
            if self.values[self.model.pairs[self.model.names.index(low), self.model.names.index(high)]] == 3:
                self.do("cut", low, high)

    def ask(self, router: str, what: str, *arguments: Any) -> None:
        """Call a method of the replica."""
        draft = Draft(self.values)
        self.model.ask(draft, self.model.names.index(router), what, *arguments)
        self.values = draft.world()
        self.settle()


def _has_moved(former: Facts, present: Facts) -> bool:
    return (former.term, former.stands) != (present.term, present.stands)


def settled(model: Model, values: Values) -> Values:
    """The world after all events that happen by themselves."""
    while True:
        draft = Draft(values)
        sources = model.plain[:-1]  # the last source is what the scope expects
        event = next((event for source in sources for event in source(draft)), None)
        if event is None:
            return values
        values = after(model, values, event)


def after(model: Model, values: Values, event: Event) -> Values:
    draft = Draft(values)
    model.change(draft, event)
    return draft.world()
