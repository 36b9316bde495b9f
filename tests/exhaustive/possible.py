"""What can happen next: everything that is enabled in a world.

Time does not pass, but for `boot_wait`, if it is asked for or those that are waited for are gone for good, and by the
fault `expire`: nothing happens anywhere for longer than any timeout. By then what was under way between routers in
contact is there. What a router finds due afterwards it does at any time, when it looks.
"""

from collections.abc import Iterator
from itertools import combinations

from tests.exhaustive.clients import Client
from tests.exhaustive.memo import Clients, Routers
from tests.exhaustive.scope import Scope
from tests.exhaustive.world import DOWN, HIGH_LOST, HIGH_UP, IN_CONTACT, LOW_LOST, LOW_UP, UP, Event, World, is_apart


class Possible:
    """In one scope."""

    def __init__(self, scope: Scope, routers: Routers, clients: Clients) -> None:
        self._names = scope.routers
        self._count = len(scope.routers)
        self._victims = {scope.routers.index(router) for router in scope.victims or scope.routers}
        roles = len(scope.publishers) * "p" + len(scope.subscribers) * "s"
        self._moves = [role in scope.movers and self._count > 1 for role in roles]
        self._restarts = scope.restarts
        self._boot_wait = scope.boot_wait
        self._grows = bool(scope.joins)
        self._routers = routers
        self._clients = clients
        self._pairs = list(combinations(range(self._count), 2))

    def events(self, world: World) -> list[Event]:
        """All but faults."""
        events = [*self._contacts(world), *self._batches(world), *self._of_routers(world)]
        for index, number in enumerate(world.clients):
            events += self._of_client(world, index, self._clients.states.values[number])
        return events

    def _contacts(self, world: World) -> Iterator[Event]:
        for (low, high), status in zip(self._pairs, world.pairs, strict=True):
            if status == DOWN and world.lives[low] > 0 < world.lives[high] and self._agree(world, low, high):
                yield "contact", low, high
                yield "contact", high, low
            elif status in (LOW_LOST, HIGH_UP):
                yield ("lost", high, low) if status == LOW_LOST else ("contact", low, high)
            elif status in (HIGH_LOST, LOW_UP):
                yield ("lost", low, high) if status == HIGH_LOST else ("contact", high, low)

    def _agree(self, world: World, low: int, high: int) -> bool:
        """They have the same plan: else neither begins a contact."""
        return not (world.planned >> low ^ world.planned >> high) & 1

    def _batches(self, world: World) -> Iterator[Event]:
        for place, queue in enumerate(world.queues):
            if queue:
                source, target = divmod(place, self._count)
                if IN_CONTACT[world.status(source, target)][target > source]:
                    yield "receive", source, target

    def _of_routers(self, world: World) -> Iterator[Event]:
        for router in sorted({router for router, _ in world.doomed}):
            yield "die", router
        for router, life in enumerate(world.lives):
            if life < 0:
                yield from [("restart", router, True), ("restart", router, False)] * self._restarts
            elif life > 0 and self._routers.live_facts(world.routers[router]).due:
                yield "look", router
            elif life > 0 and self._goes_on(world, self._routers.live_facts(world.routers[router]).awaited):
                yield "boot_wait", router
            if self._grows and life > 0 and not world.planned >> router & 1:
                yield "replan", router

    def _goes_on(self, world: World, awaited: frozenset[str]) -> bool:
        """Whether a router may give up waiting for these: for whom nobody can wait, in any case."""
        if not awaited or self._boot_wait:
            return bool(awaited)
        return not self._restarts and all(world.lives[self._names.index(name)] < 0 for name in awaited)

    def _of_client(self, world: World, index: int, client: Client) -> Iterator[Event]:
        for act in self._clients.acts(world.clients[index]):
            yield "act", index, act
        doomed = {router: deaf for router, deaf in world.doomed if deaf == index}
        if client.attaches and not doomed:
            for router in self._choices(world, client):
                yield "attach", index, router
        for router in {router for router, _ in world.doomed}:
            if listens(client, world.wires[index], router):
                yield "deaf", router, index
        for serial, _, frames in world.wires[index]:
            if serial < client.serial or client.cut:
                if frames:
                    yield "arrive", index, serial
                if serial < client.serial or not doomed:
                    yield "notice", index, serial

    def _choices(self, world: World, client: Client) -> list[int]:
        """Where it may attach."""
        alive = [router for router, life in enumerate(world.lives) if life > 0]
        doors = [router for router in alive if self._routers.live_facts(world.routers[router]).admits]
        return [router for router in client.choices if router in doors] or doors

    def faults(self, world: World) -> Iterator[Event]:
        total, *left = world.faults
        if total:
            kill, lose, cut, move, expire, partial = left
            yield from [("expire",)] * bool(expire and self._may_expire(world))
            yield from self._partial(world) if partial else ()
            yield from self._kills(world) if kill else ()
            for (low, high), status in zip(self._pairs, world.pairs, strict=True):
                if lose and status == UP:
                    yield "lose", low, high
                    yield "lose", high, low
            for index, number in enumerate(world.clients):
                client = self._clients.states.values[number]
                if client.is_connected:
                    yield from [("cut", index)] * bool(cut)
                    yield from [("move", index)] * bool(move and self._moves[index])

    def _may_expire(self, world: World) -> bool:
        """Somebody is out of reach, and nothing is under way between routers."""
        clients = [self._clients.states.values[number] for number in world.clients]
        apart = is_apart(world.pairs, world.lives) or not all(client.is_connected for client in clients)
        return apart and not any(world.queues) and not world.doomed

    def _partial(self, world: World) -> Iterator[Event]:
        doomed = [index for _, index in world.doomed]
        for index, number in enumerate(world.clients):
            client = self._clients.states.values[number]
            if client.attaches and client.resumes and client.unsettled() and index not in doomed:
                for router in self._choices(world, client):
                    yield "partial", index, router

    def _kills(self, world: World) -> Iterator[Event]:
        doomed = {router for router, _ in world.doomed}
        for router, life in enumerate(world.lives):
            if life > 0 and router in self._victims - doomed:
                yield "kill", router
                for index, number in enumerate(world.clients):
                    if listens(self._clients.states.values[number], world.wires[index], router):
                        yield "doom", router, index


def listens(client: Client, wires: tuple[tuple[int, int, object], ...], router: int) -> bool:
    """Whether it hears what this router says."""
    return client.is_connected and wires[-1][1] == router
