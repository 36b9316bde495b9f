"""The mesh as one value, and all that can happen to it next.

Routers are in contact in pairs; a contact begins and ends on one side first, and what was under way dies with it.
Between two routers batches are under way in order. A client has a connection, or a cut one: what it does then may still
arrive at its router until that notices. Timers do not fire, but for `boot_wait` if the scope says so.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from tests.exhaustive.clients import Client, Did, Frame, Phase, Publisher, Stage, Subscriber, Violation, check
from tests.exhaustive.memo import Clients, Routers
from tests.exhaustive.router import Facts, Router, container
from tests.exhaustive.scope import FAULTS, Scope

UP, LOW_LOST, HIGH_LOST, DOWN, LOW_UP, HIGH_UP = range(6)
"""States of the contact of two routers, the lower and the higher: who noticed its end, or has begun the next, first."""
LOST, BEGUN = (LOW_LOST, HIGH_LOST), (LOW_UP, HIGH_UP)
IN_CONTACT = {UP: (True, True), LOW_LOST: (False, True), HIGH_LOST: (True, False), DOWN: (False, False),
              LOW_UP: (True, False), HIGH_UP: (False, True)}  # fmt: skip
FLOWS = {UP: (True, True), LOW_UP: (True, False), HIGH_UP: (False, True)}
"""Whether what the lower, and the higher, says is not lost for certain."""
NOBODY = (False, False)

Event = tuple[Any, ...]
Wire = tuple[int, int, tuple[Frame, ...]]
"""A client's connection: its serial, the router, and what the client sent that has not arrived."""


class World(NamedTuple):
    """Plain tuples of numbers, so that it is hashed fast; routers, clients and batches by their numbers in `Model`."""

    routers: tuple[int, ...]
    lives: tuple[int, ...]
    """Incarnation of each router; negative while it is dead."""
    pairs: tuple[int, ...]
    queues: tuple[tuple[int, ...], ...]
    """From each router to each other: batches under way."""
    clients: tuple[int, ...]
    """Publishers first."""
    wires: tuple[tuple[Wire, ...], ...]
    """Of each client, oldest first; only the last one, if it has the client's serial, is more than a memory."""
    promised: tuple[int, ...]
    """For each message, the subscribers that it is promised to, as bits; -1 before it is published."""
    missed: tuple[int, ...]
    """For each message, those of them that it was accepted without: nobody in contact with home knew them."""
    knows: tuple[int, ...]
    """For each router, the subscribers that what is published there is promised to."""
    faults: tuple[int, ...]
    """What may still happen: in all, and of each kind."""
    rank: int
    """How many attaches there were."""


class Draft:
    """A world being changed."""

    __slots__ = World._fields

    def __init__(self, world: World) -> None:
        self.routers = list(world.routers)
        self.lives = list(world.lives)
        self.pairs = list(world.pairs)
        self.queues = list(world.queues)
        self.clients = list(world.clients)
        self.wires = list(world.wires)
        self.promised = list(world.promised)
        self.missed = list(world.missed)
        self.knows = list(world.knows)
        self.faults = list(world.faults)
        self.rank = world.rank

    def world(self) -> World:
        if -1 not in self.promised:  # nothing will be promised any more
            self.knows = [0] * len(self.knows)
        return World(
            tuple(self.routers), tuple(self.lives), tuple(self.pairs), tuple(self.queues), tuple(self.clients),
            tuple(self.wires), tuple(self.promised), tuple(self.missed), tuple(self.knows), tuple(self.faults),
            self.rank,
        )  # fmt: skip


class Model:
    """The events of one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.names = tuple(scope.routers)
        self.count = len(self.names)
        self.routers = Routers()
        self.clients = Clients()
        self.publishers = len(scope.publishers)
        self.subscribers = len(scope.subscribers)
        self.pairs = list(combinations(range(self.count), 2))
        self.pair = {pair: number for number, pair in enumerate(self.pairs)}
        self._containers = [container(index) for index in range(self.publishers + self.subscribers)]
        self.limits = 0
        """Acceptances that a subscriber was missed in because no router in contact with home knew it."""

    def first(self) -> World:
        """All routers just started, nobody in contact, clients still away."""
        count, scope = self.count, self.scope
        routers = [self.routers.add(Router(name, self.names)) for name in self.names]
        routers = [self.routers.apply(router, ("start", False)).state for router in routers]
        clients: list[Client] = []
        for place in scope.publishers:
            phases = (Phase.UNSENT,) * scope.messages
            clients.append(Publisher(len(clients), (self.names.index(place),), phases=phases))
        for place in scope.subscribers:
            clients.append(Subscriber(len(clients), (self.names.index(place),)))
        messages = self.publishers * scope.messages
        return World(
            tuple(routers), (1,) * count, (DOWN,) * len(self.pairs), ((),) * count**2,
            tuple(self.clients.states.number(client) for client in clients), ((),) * len(clients),
            (-1,) * messages, (0,) * messages, (0,) * count, scope.budget, 0,
        )  # fmt: skip

    # what can happen

    def events(self, world: World) -> list[Event]:
        """All but faults."""
        events = [*self._contacts(world), *self._batches(world)]
        for index, number in enumerate(world.clients):
            events += self._of_client(world, index, number)
        for router, life in enumerate(world.lives):
            if life < 0:
                events += [("restart", router, True), ("restart", router, False)]
            elif self.scope.boot_wait and not self._facts(world.routers[router]).booted:
                events.append(("boot_wait", router))
        return events

    def _contacts(self, world: World) -> Iterator[Event]:
        for (low, high), status in zip(self.pairs, world.pairs, strict=True):
            if status == DOWN and world.lives[low] > 0 < world.lives[high]:
                yield "contact", low, high
                yield "contact", high, low
            elif status in (LOW_LOST, HIGH_UP):
                yield ("lost", high, low) if status == LOW_LOST else ("contact", low, high)
            elif status in (HIGH_LOST, LOW_UP):
                yield ("lost", low, high) if status == HIGH_LOST else ("contact", high, low)

    def _batches(self, world: World) -> Iterator[Event]:
        for place, queue in enumerate(world.queues):
            if queue:
                source, target = divmod(place, self.count)
                if IN_CONTACT[self._status(world, source, target)][target > source]:
                    yield "receive", source, target

    def _of_client(self, world: World, index: int, number: int) -> Iterator[Event]:
        client = self.clients.states.values[number]
        for act in self.clients.acts(number):
            yield "act", index, act
        if client.attaches:
            alive = [router for router, life in enumerate(world.lives) if life > 0]
            for router in [router for router in client.choices if router in alive] or alive:
                yield "attach", index, router
        for serial, _, frames in world.wires[index]:
            if serial < client.serial or client.cut:
                yield "notice", index, serial
                if frames:
                    yield "arrive", index, serial

    def faults(self, world: World) -> Iterator[Event]:
        total, *left = world.faults
        if not total:
            return
        kill, lose, cut, move = left
        for router, life in enumerate(world.lives):
            if kill and life > 0:
                yield "kill", router
        for (low, high), status in zip(self.pairs, world.pairs, strict=True):
            if lose and status == UP:
                yield "lose", low, high
                yield "lose", high, low
        for index, number in enumerate(world.clients):
            client = self.clients.states.values[number]
            if client.stage is not Stage.AWAY and not client.cut:
                yield from [("cut", index)] * bool(cut) + [("move", index)] * bool(move and self.count > 1)

    def step(self, world: World, event: Event) -> World:
        """Raises `Violation`."""
        draft = Draft(world)
        kind, *arguments = event
        if kind in FAULTS:
            draft.faults[0] -= 1
            draft.faults[1 + FAULTS.index(kind)] -= 1
        getattr(self, f"_on_{kind}")(draft, *arguments)
        return draft.world()

    # contacts

    def _status(self, draft: Draft | World, one: int, other: int) -> int:
        return draft.pairs[self.pair[min(one, other), max(one, other)]]

    def _set_status(self, draft: Draft, one: int, other: int, low_high: tuple[int, int] | int) -> None:
        """One of two states that mean the same with the roles changed: that of `one`."""
        status = low_high if isinstance(low_high, int) else low_high[one > other]
        draft.pairs[self.pair[min(one, other), max(one, other)]] = status

    def _clear(self, draft: Draft, source: int, target: int) -> None:
        draft.queues[source * self.count + target] = ()

    def _on_contact(self, draft: Draft, one: int, other: int) -> None:
        first = self._status(draft, one, other) == DOWN
        self._set_status(draft, one, other, BEGUN if first else UP)
        self._router(draft, one, ("contact", self.names[other], draft.lives[other]))

    def _on_lose(self, draft: Draft, one: int, other: int) -> None:
        self._set_status(draft, one, other, LOST)
        self._clear(draft, other, one)
        self._router(draft, one, ("lost", self.names[other]))

    def _on_lost(self, draft: Draft, one: int, other: int) -> None:
        self._set_status(draft, one, other, DOWN)
        self._clear(draft, other, one)
        self._router(draft, one, ("lost", self.names[other]))

    def _on_receive(self, draft: Draft, source: int, target: int) -> None:
        place = source * self.count + target
        batch, *rest = draft.queues[place]
        draft.queues[place] = tuple(rest)
        self._router(draft, target, ("receive", self.names[source], batch))

    # routers

    def _on_kill(self, draft: Draft, router: int) -> None:
        draft.routers[router] = self.routers.apply(draft.routers[router], ("kill",)).state
        draft.lives[router] *= -1
        draft.knows[router] = 0
        for other in range(self.count):
            if other != router:
                self._die(draft, router, other)
        for index, wires in enumerate(draft.wires):
            client = self.clients.states.values[draft.clients[index]]
            if client.stage is not Stage.AWAY and not client.cut and wires and wires[-1][1] == router:
                self._client(draft, index, "lose", tuple(range(self.count)))
            draft.wires[index] = tuple(wire for wire in wires if wire[1] != router)

    def _die(self, draft: Draft, router: int, other: int) -> None:
        status = self._status(draft, router, other)
        self._clear(draft, other, router)
        if IN_CONTACT[status][other > router]:
            self._set_status(draft, router, other, LOST)
        else:
            self._set_status(draft, router, other, DOWN)
            self._clear(draft, router, other)

    def _on_restart(self, draft: Draft, router: int, with_store: bool) -> None:
        draft.lives[router] = 1 - draft.lives[router]
        self._router(draft, router, ("start", with_store))

    def _on_boot_wait(self, draft: Draft, router: int) -> None:
        self._router(draft, router, ("boot_wait",))

    def _router(self, draft: Draft, router: int, event: Event, rank: int = 0) -> None:
        step = self.routers.apply(draft.routers[router], event, rank)
        draft.routers[router] = step.state
        for target, batch in step.to_routers:
            self._push(draft, router, self.names.index(target), batch)
        for name in step.joined:
            self._promise(draft, router, self._containers.index(name))
        for index, serial, frame in step.to_clients:
            self._hear(draft, router, index, serial, frame, step.contacts)

    def _push(self, draft: Draft, source: int, target: int, batch: int) -> None:
        """What is for a router out of contact is left out, as by the mesh."""
        if FLOWS.get(self._status(draft, source, target), NOBODY)[source > target]:
            draft.queues[source * self.count + target] += (batch,)

    # clients

    def _client(self, draft: Draft, index: int, method: str, *arguments: Any) -> Did:
        draft.clients[index], did = self.clients.apply(draft.clients[index], method, *arguments)
        return did

    def _on_act(self, draft: Draft, index: int, act: str) -> None:
        did = self._client(draft, index, "act", act)
        wires, client = draft.wires[index], did.client
        if did.frame is None or not wires or wires[-1][0] != client.serial:
            return
        serial, router, frames = wires[-1]
        if client.cut:
            draft.wires[index] = (*wires[:-1], (serial, router, (*frames, did.frame)))
        else:
            self._sent(draft, router, did.frame)
            self._router(draft, router, ("frame", index, serial, did.frame))

    def _sent(self, draft: Draft, router: int, frame: Frame) -> None:
        """Whom a message is promised to is decided when it arrives first, where its publisher has last attached."""
        if frame[0] == "transfer":
            publisher, number = frame[2]
            place = self._message(publisher, number)
            if draft.promised[place] < 0:
                draft.promised[place] = draft.knows[router]

    def _message(self, publisher: int, number: int) -> int:
        return publisher * self.scope.messages + number

    def _on_attach(self, draft: Draft, index: int, router: int) -> None:
        did = self._client(draft, index, "attach")
        assert did.frame is not None
        draft.rank += 1
        serial = did.client.serial
        draft.wires[index] += ((serial, router, ()),)
        role = "publisher" if index < self.publishers else "subscriber"
        self._router(draft, router, (role, index, serial, *did.frame[1:]), draft.rank)

    def _on_cut(self, draft: Draft, index: int) -> None:
        self._client(draft, index, "lose", (draft.wires[index][-1][1],))

    def _on_move(self, draft: Draft, index: int) -> None:
        here = draft.wires[index][-1][1]
        self._client(draft, index, "lose", tuple(router for router in range(self.count) if router != here))

    def _on_notice(self, draft: Draft, index: int, serial: int) -> None:
        (router,) = [wire[1] for wire in draft.wires[index] if wire[0] == serial]
        draft.wires[index] = tuple(wire for wire in draft.wires[index] if wire[0] != serial)
        self._router(draft, router, ("gone", index, serial))

    def _on_arrive(self, draft: Draft, index: int, serial: int) -> None:
        wires = list(draft.wires[index])
        place = [wire[0] for wire in wires].index(serial)
        _, router, (frame, *later) = wires[place]
        wires[place] = (serial, router, tuple(later))
        draft.wires[index] = tuple(wires)
        if serial == self.clients.states.values[draft.clients[index]].serial:
            self._sent(draft, router, frame)
        self._router(draft, router, ("frame", index, serial, frame))

    def _hear(
        self, draft: Draft, router: int, index: int, serial: int, frame: Frame, contacts: dict[str, int]
    ) -> None:
        client = self.clients.states.values[draft.clients[index]]
        current = client.serial == serial and not client.cut
        if frame[0] == "detached":
            check(not current, "stolen", f"the latest link of client {index} is detached: {frame[1]}")
            draft.wires[index] = tuple(wire for wire in draft.wires[index] if wire[0] != serial)
        elif current:
            did = self._client(draft, index, "hear", frame)
            if frame[0] == "answered" and index >= self.publishers:
                self._promise_all(draft, router, index, contacts)
            for number in did.told:
                self._check_told(draft, router, index, number)
            for message in did.forgot:
                self._check_forgotten(draft, message)
            for message in did.missed:
                excused = draft.missed[self._message(*message)] >> index & 1
                check(bool(excused), "1 nothing lost", f"{message} is settled though {index} has not processed it")

    # invariants

    def _promise(self, draft: Draft, router: int, index: int) -> None:
        """What is published here from now on is for this subscriber, if ever an attach of it was answered."""
        if self.clients.states.values[draft.clients[index]].resumes:
            draft.knows[router] |= 1 << index

    def _promise_all(self, draft: Draft, router: int, index: int, contacts: dict[str, int]) -> None:
        """Its attach is answered: all routers in contact have joined it (6.5)."""
        self._promise(draft, router, index)
        for other, incarnation in contacts.items():
            place = self.names.index(other)
            if draft.lives[place] == incarnation:
                self._promise(draft, place, index)

    def _check_told(self, draft: Draft, home: int, publisher: int, number: int) -> None:
        """2: at the instant the publisher sees `accepted`, everyone it was promised to has processed the message; but
        for subscribers that no router in contact with home knows (protocol 1, known limits)."""
        place = self._message(publisher, number)
        for index in range(self.publishers, self.publishers + self.subscribers):
            subscriber = self.clients.states.values[draft.clients[index]]
            assert isinstance(subscriber, Subscriber)
            if draft.promised[place] >> index & 1 and (publisher, number) not in subscriber.processed:
                known = self._is_known(draft, home, index)
                where = f"router {self.names[home]} accepts {(publisher, number)}"
                check(not known, "2 accepted too early", f"{where}, subscriber {index} has not processed it")
                draft.missed[place] |= 1 << index
                self.limits += 1
        draft.promised[place] = 0

    def _is_known(self, draft: Draft, home: int, subscriber: int) -> bool:
        """By home, where it may be attaching, or by a router in contact where it is not."""
        name = self._containers[subscriber]
        facts = self._facts(draft.routers[home])
        if name in facts.subscribers | facts.attaching:
            return True
        for router, life in enumerate(draft.lives):
            if life > 0 and self.names[router] in facts.applied and self._status(draft, home, router) == UP:
                others = self._facts(draft.routers[router])
                if name in others.subscribers - others.attaching:
                    return True
        return False

    def _facts(self, number: int) -> Facts:
        facts = self.routers.facts[number]
        assert facts is not None
        return facts

    def _check_forgotten(self, draft: Draft, message: tuple[int, int]) -> None:
        """3: a subscriber forgets a key only after its publisher settled it."""
        publisher = self.clients.states.values[draft.clients[message[0]]]
        assert isinstance(publisher, Publisher)
        phase = publisher.phases[message[1]]
        if phase not in (Phase.STATED, Phase.SETTLED):
            raise Violation("3 forgotten too early", f"{message} is settled, its publisher has it {phase.name}")
