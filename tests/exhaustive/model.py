"""One step of a mesh: the world after an event."""

from itertools import combinations
from typing import Any

from tests.exhaustive.clients import Client, Did, Frame, Phase, Publisher, check
from tests.exhaustive.memo import Clients, Routers, Step
from tests.exhaustive.possible import Possible, listens
from tests.exhaustive.promises import Promises
from tests.exhaustive.router import Router
from tests.exhaustive.scope import FAULTS, Scope
from tests.exhaustive.subscriber import Subscriber
from tests.exhaustive.world import BEGUN, DOWN, IN_CONTACT, LOST, UP, Draft, Event, Layout, World
from topic.actions import EXPIRED

PROMPT = ("echo", "settle")
"""The acts that a client does at once in a scope with prompt clients."""


class Model:
    """The mesh of one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.names = tuple(scope.routers)
        self.count = len(self.names)
        self.joining = [self.names.index(name) for name in scope.joins]
        self.starters = [router for router in range(self.count) if router not in self.joining]
        self.publishers = range(len(scope.publishers))
        self.subscribers = range(len(scope.publishers), len(scope.publishers + scope.subscribers))
        self.routers = Routers()
        self.clients = Clients()
        self.promises = Promises(scope, self.clients)
        self.possible = Possible(scope, self.clients)
        messages = len(scope.publishers) * scope.messages
        ends = len(scope.publishers + scope.subscribers)
        self.layout = Layout(self.count, ends, messages, len(FAULTS), self.routers.facts)

    def first(self) -> World:
        """All routers have just started, except routers that join. None is in contact, and all clients are away."""
        draft = Draft(self.layout, (0,) * self.layout.size)
        begin = tuple(name for name in self.names if name not in self.scope.joins)
        for place, name in enumerate(self.names):
            joins = name in self.scope.joins
            state = self.routers.add(Router(name, self.names if joins else begin, joins, self.scope.balanced))
            self._become(draft, place, state if joins else self.routers.apply(state, ("start", False)).state)
            draft.lives[place], draft.planned[place] = int(not joins), int(joins)
        for one, other in combinations(range(self.count), 2):
            draft.set_status(one, other, DOWN)
        for index in (*self.publishers, *self.subscribers):
            client = self._publisher(index) if index in self.publishers else self._subscriber(index)
            draft.clients[index] = self.clients.states.number(client)
        for place in range(len(draft.promised)):
            draft.promised[place] = -1
        for place, budget in enumerate(self.scope.budget):
            draft.faults[place] = budget
        return draft.world()

    def look(self, world: World) -> Draft:
        return Draft(self.layout, self.layout.unpack(world))

    def _publisher(self, index: int) -> Client:
        here = self.names.index(self.scope.publishers[index])
        phases = (Phase.UNSENT,) * self.scope.messages
        return Publisher(index, (here,), phases=phases, echoes=self.scope.echoes)

    def _subscriber(self, index: int) -> Client:
        here = self.names.index(self.scope.subscribers[index - len(self.publishers)])
        return Subscriber(index, (here,), refusals=self.scope.refusals)

    def step(self, world: World, event: Event) -> World:
        """The world after the event. Raises `Violation`."""
        draft = self.look(world)
        self.change(draft, event)
        return draft.world()

    def change(self, draft: Draft, event: Event) -> None:
        """Apply the event to the draft. Raises `Violation`."""
        kind, *arguments = event
        fault = "kill" if kind == "doom" else kind
        if fault in FAULTS:
            draft.faults[0] -= 1
            draft.faults[1 + FAULTS.index(fault)] -= 1
        getattr(self, f"_on_{kind}")(draft, *arguments)
        if self.scope.prompt:
            self._react(draft)
        self._forget_who_is_known(draft)

    def _react(self, draft: Draft) -> None:
        """Let the changed clients do their acts in `PROMPT` at once. All other clients have no such act left."""
        busy = True
        while busy:
            busy = False
            for index in draft.clients.changed():
                number = draft.clients[index]
                acts = () if self.clients.states.values[number].cut else self.clients.acts(number)
                if act := next((act for act in acts if act in PROMPT), None):
                    busy = True
                    self._on_act(draft, index, act)

    def _forget_who_is_known(self, draft: Draft) -> None:
        """If no message will be promised any more and no router joins, forget which subscribers routers know: the
        search needs it no more."""
        changed = any(row.changed() for row in (draft.promised, draft.knows, draft.planned))
        if changed and -1 not in draft.promised and not any(draft.planned):
            for router in range(self.count):
                draft.knows[router] = 0

    # contacts

    def _on_contact(self, draft: Draft, one: int, other: int) -> None:
        draft.set_status(one, other, BEGUN if draft.status(one, other) == DOWN else UP)
        self._router(draft, one, ("contact", self.names[other], draft.lives[other]))

    def _on_lose(self, draft: Draft, one: int, other: int) -> None:
        draft.set_status(one, other, LOST)
        draft.clear(other, one)
        self._router(draft, one, ("lost", self.names[other]))

    def _on_lost(self, draft: Draft, one: int, other: int) -> None:
        draft.set_status(one, other, DOWN)
        draft.clear(other, one)
        self._router(draft, one, ("lost", self.names[other]))

    def _on_receive(self, draft: Draft, source: int, target: int) -> None:
        self._router(draft, target, ("receive", self.names[source], draft.pop(source, target)))

    # routers

    def _on_doom(self, draft: Draft, router: int, index: int) -> None:
        """The router will die before its further frames reach this client. Other clients may still receive frames."""
        self._on_deaf(draft, router, index)

    def _on_deaf(self, draft: Draft, router: int, index: int) -> None:
        draft.deaf[router] |= 1 << index
        self._client(draft, index, "lose", tuple(range(self.count)))

    def _on_die(self, draft: Draft, router: int) -> None:
        draft.deaf[router] = 0
        self._on_kill(draft, router)

    def _on_kill(self, draft: Draft, router: int) -> None:
        self._become(draft, router, self.routers.apply(draft.routers[router], ("kill",)).state)
        draft.lives[router] *= -1
        draft.knows[router] = 0
        for other in range(self.count):
            if other != router:
                self._part(draft, router, other)
        for index in range(len(draft.wires)):
            wires = draft.wires[index]
            if listens(self.clients.states.values[draft.clients[index]], wires, router):
                self._client(draft, index, "lose", tuple(range(self.count)))
            draft.wires[index] = tuple(wire for wire in wires if wire[1] != router)

    def _part(self, draft: Draft, dead: int, other: int) -> None:
        """If the other router is in contact, the last batches of the dead router may still arrive there until it
        notices the death."""
        draft.clear(other, dead)
        if IN_CONTACT[draft.status(dead, other)][other > dead]:
            draft.set_status(dead, other, LOST)
        else:
            draft.set_status(dead, other, DOWN)
            draft.clear(dead, other)

    def _on_restart(self, draft: Draft, router: int, with_store: bool) -> None:
        """The router knows the plan from its store or from its file."""
        if not with_store and router in self.starters:
            draft.planned[router] = 0
        draft.lives[router] = 1 - draft.lives[router]
        self._router(draft, router, ("start", with_store))

    def _on_replan(self, draft: Draft, router: int) -> None:
        """The router learns of the grown mesh, from an operator or from another router. A router that joins knows it
        from its file.
        """
        self._router(draft, router, ("replan", self.names))
        draft.planned[router] = 1
        for joining in self.joining:
            if draft.lives[joining] == 0:
                draft.lives[joining] = 1
                self._router(draft, joining, ("start", False))

    def _on_boot_wait(self, draft: Draft, router: int) -> None:
        self._router(draft, router, ("boot_wait",))

    # time

    def _on_expire(self, draft: Draft) -> None:
        self.promises.expire(draft)
        for router in range(self.count):
            self._router(draft, router, ("expire",))

    def _on_look(self, draft: Draft, router: int) -> None:
        self._router(draft, router, ("look",))

    def _router(self, draft: Draft, router: int, event: Event, rank: int = 0) -> None:
        step = self.routers.apply(draft.routers[router], event, rank)
        admitted = router in self.joining and self._admits(draft, router)
        self._become(draft, router, step.state)
        if router in self.joining and self._admits(draft, router) > admitted:
            self.promises.admitted(draft, router)
        for target, batch in step.to_routers:
            draft.push(router, self.names.index(target), batch)
        for name in step.joined:
            self.promises.joined(draft, router, name)
        for ending in step.expired:
            self.promises.expired(draft, router, *ending)
        for index, serial, frame in step.to_clients:
            self._hear(draft, router, index, serial, frame, step)

    def _become(self, draft: Draft, router: int, state: int) -> None:
        draft.routers[router], draft.facts[router] = state, self.routers.facts_of(state)

    def _admits(self, draft: Draft, router: int) -> bool:
        facts = draft.facts[router]
        return facts is not None and facts.admits

    # clients

    def _client(self, draft: Draft, index: int, method: str, *arguments: Any) -> Did:
        draft.clients[index], did = self.clients.apply(draft.clients[index], method, *arguments)
        return did

    def _on_act(self, draft: Draft, index: int, act: str) -> None:
        did = self._client(draft, index, "act", act)
        if act == "process" and self.scope.balanced:
            self.promises.processed(draft)
        wires, client = draft.wires[index], did.client
        if did.frame is None or not wires or wires[-1][0] != client.serial:
            return
        serial, router, frames = wires[-1]
        if client.cut:
            draft.wires[index] = (*wires[:-1], (serial, router, (*frames, did.frame)))
        else:
            self.promises.sent(draft, router, did.frame)
            self._router(draft, router, ("frame", index, serial, did.frame))

    def _on_partial(self, draft: Draft, index: int, router: int) -> None:
        self._on_attach(draft, index, router, complete=False)

    def _on_attach(self, draft: Draft, index: int, router: int, complete: bool = True) -> None:
        did = self._client(draft, index, "attach", complete)
        assert did.frame is not None
        draft.rank += 1
        serial = did.client.serial
        draft.wires[index] += ((serial, router, ()),)
        role = "publisher" if index in self.publishers else "subscriber"
        self._router(draft, router, (role, index, serial, *did.frame[1:]), draft.rank)

    def _on_cut(self, draft: Draft, index: int) -> None:
        self._client(draft, index, "lose", (draft.wires[index][-1][1],))

    def _on_move(self, draft: Draft, index: int) -> None:
        here = draft.wires[index][-1][1]
        self._client(draft, index, "lose", tuple(router for router in range(self.count) if router != here))

    def _on_notice(self, draft: Draft, index: int, serial: int) -> None:
        self._router(draft, draft.unplug(index, serial), ("gone", index, serial))

    def _on_arrive(self, draft: Draft, index: int, serial: int) -> None:
        """A frame arrives that was sent on a connection that is cut."""
        wires = list(draft.wires[index])
        place = [wire[0] for wire in wires].index(serial)
        _, router, (frame, *later) = wires[place]
        wires[place] = (serial, router, tuple(later))
        draft.wires[index] = tuple(wires)
        if serial == self.clients.states.values[draft.clients[index]].serial:
            self.promises.sent(draft, router, frame)
        self._router(draft, router, ("frame", index, serial, frame))

    def _hear(self, draft: Draft, router: int, index: int, serial: int, frame: Frame, step: Step) -> None:
        client = self.clients.states.values[draft.clients[index]]
        current = client.serial == serial and not client.cut
        if frame[0] == "detached":
            draft.unplug(index, serial)
            if current:
                check(frame[1] == EXPIRED, "stolen", f"the latest link of client {index} is detached: {frame[2]}")
                self._client(draft, index, "leave", draft.rank + 1)
                self.promises.told(draft, index)
            self._router(draft, router, ("left", index, serial, current))
        elif current:
            did = self._client(draft, index, "hear", frame)
            if frame[0] == "answered":
                self.promises.answered(draft, router, index, step.contacts)
            self.promises.check(draft, router, index, did)
