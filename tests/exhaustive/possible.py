"""All events that are enabled in a world.

Time does not pass, with two exceptions. `boot_wait` can happen if the scope has it, or if the routers that the router
waits for are gone for good. The fault `expire` lets nothing happen anywhere for longer than any timeout; all batches
between routers in contact have arrived before. A router looks at any time for what is due after that.

Each source yields some of the events, and reads as few columns of the world as it can (`kernel`).
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, permutations, product

from tests.exhaustive.clients import Client
from tests.exhaustive.memo import Clients
from tests.exhaustive.scope import FAULTS, Scope
from tests.exhaustive.world import DOWN, HIGH_LOST, HIGH_UP, IN_CONTACT, LOW_LOST, LOW_UP, UP, Draft, Event, is_apart

Source = Callable[[Draft], Iterator[Event]]


class Possible:
    """The possible events of one scope."""

    def __init__(self, scope: Scope, clients: Clients) -> None:
        self._names = scope.routers
        self._restarts = scope.restarts
        self._boot_wait = scope.boot_wait
        self._grows = bool(scope.joins)
        self._clients = clients
        roles = len(scope.publishers) * "p" + len(scope.subscribers) * "s"
        routers, indexes = range(len(scope.routers)), range(len(roles))
        victims = [scope.routers.index(router) for router in scope.victims or scope.routers]
        movers = scope.movers if len(scope.routers) > 1 else ""
        self.sources: list[Source] = [
            *(partial(self._contacts, low, high) for low, high in combinations(routers, 2)),
            *(partial(self._batches, source, target) for source, target in permutations(routers, 2)),
            *(partial(self._of_router, router) for router in routers),
            *(partial(self._of_client, index) for index in indexes),
            *(partial(self._attaches, index, router) for index, router in product(indexes, routers)),
        ]
        """The sources of all events except faults."""
        kinds: dict[str, list[Source]] = {
            "expire": [self._expire],
            "partial": [partial(self._partial, index, router) for index, router in product(indexes, routers)],
            "kill": [partial(self._kills, router) for router in victims],
            "lose": [partial(self._loses, low, high) for low, high in combinations(routers, 2)],
            "cut": [partial(self._breaks, "cut", index) for index in indexes],
            "move": [partial(self._breaks, "move", index) for index in indexes if roles[index] in movers],
        }
        budget = dict(zip(FAULTS, scope.budget[1:], strict=True))
        self.fault_sources = [source for kind, sources in kinds.items() for source in sources if budget[kind]]

    def events(self, world: Draft) -> list[Event]:
        """All enabled events except faults."""
        return [event for source in self.sources for event in source(world)]

    def faults(self, world: Draft) -> list[Event]:
        return [event for source in self.fault_sources for event in source(world)]

    # routers

    def _contacts(self, low: int, high: int, world: Draft) -> Iterator[Event]:
        status = world.status(low, high)
        if status == DOWN and world.lives[low] > 0 < world.lives[high] and world.planned[low] == world.planned[high]:
            yield "contact", low, high
            yield "contact", high, low
        elif status in (LOW_LOST, HIGH_UP):
            yield ("lost", high, low) if status == LOW_LOST else ("contact", low, high)
        elif status in (HIGH_LOST, LOW_UP):
            yield ("lost", low, high) if status == HIGH_LOST else ("contact", high, low)

    def _batches(self, source: int, target: int, world: Draft) -> Iterator[Event]:
        if IN_CONTACT[world.status(source, target)][target > source] and world.queue(source, target):
            yield "receive", source, target

    def _of_router(self, router: int, world: Draft) -> Iterator[Event]:
        if world.deaf[router]:
            yield "die", router
        life = world.lives[router]
        if life < 0:
            yield from [("restart", router, True), ("restart", router, False)] * self._restarts
        elif life > 0 and world.live_facts(router).due:
            yield "look", router
        elif life > 0 and self._goes_on(world, world.live_facts(router).awaited):
            yield "boot_wait", router
        if self._grows and life > 0 and not world.planned[router]:
            yield "replan", router

    def _goes_on(self, world: Draft, awaited: frozenset[str]) -> bool:
        """Whether a router may stop waiting for these routers. It always may if they can never come back."""
        if not awaited or self._boot_wait:
            return bool(awaited)
        return not self._restarts and all(world.lives[self._names.index(name)] < 0 for name in sorted(awaited))

    # clients

    def _client(self, world: Draft, index: int) -> Client:
        return self._clients.states.values[world.clients[index]]

    def _of_client(self, index: int, world: Draft) -> Iterator[Event]:
        client = self._client(world, index)
        for act in self._clients.acts(world.clients[index]):
            yield "act", index, act
        for router, deaf in enumerate(world.deaf):
            if deaf and listens(client, world.wires[index], router):
                yield "deaf", router, index
        for serial, _, frames in world.wires[index]:
            if serial < client.serial or client.cut:
                if frames:
                    yield "arrive", index, serial
                if serial < client.serial or not self._is_deaf(world, index):
                    yield "notice", index, serial

    def _is_deaf(self, world: Draft, index: int) -> bool:
        return any(deaf >> index & 1 for deaf in world.deaf)

    def _attaches(self, index: int, router: int, world: Draft) -> Iterator[Event]:
        client = self._client(world, index)
        if client.attaches and not self._is_deaf(world, index) and self._is_chosen(world, client, router):
            yield "attach", index, router

    def _is_chosen(self, world: Draft, client: Client, router: int) -> bool:
        """Whether the client may attach at the router: at one of its choices, or at any router if none of its choices
        is open.
        """
        if not self._is_open(world, router):
            return False
        return router in client.choices or not any(self._is_open(world, choice) for choice in client.choices)

    def _is_open(self, world: Draft, router: int) -> bool:
        return world.lives[router] > 0 and world.live_facts(router).admits

    # faults

    def _may(self, world: Draft, fault: str) -> bool:
        return world.faults[0] > 0 and world.faults[1 + FAULTS.index(fault)] > 0

    def _expire(self, world: Draft) -> Iterator[Event]:
        """Time may pass if a client or a router is out of reach, and nothing is under way between routers."""
        if self._may(world, "expire") and not any(world.queues) and not any(world.deaf):
            connected = all(self._client(world, index).is_connected for index in range(len(world.clients)))
            if is_apart(world.pairs, world.lives) or not connected:
                yield ("expire",)

    def _partial(self, index: int, router: int, world: Draft) -> Iterator[Event]:
        if self._may(world, "partial"):
            client = self._client(world, index)
            if client.attaches and client.resumes and client.unsettled() and not self._is_deaf(world, index):
                yield from [("partial", index, router)] * self._is_chosen(world, client, router)

    def _kills(self, router: int, world: Draft) -> Iterator[Event]:
        if self._may(world, "kill") and world.lives[router] > 0 and not world.deaf[router]:
            yield "kill", router
            for index in range(len(world.clients)):
                if listens(self._client(world, index), world.wires[index], router):
                    yield "doom", router, index

    def _loses(self, low: int, high: int, world: Draft) -> Iterator[Event]:
        if self._may(world, "lose") and world.status(low, high) == UP:
            yield "lose", low, high
            yield "lose", high, low

    def _breaks(self, fault: str, index: int, world: Draft) -> Iterator[Event]:
        if self._may(world, fault) and self._client(world, index).is_connected:
            yield fault, index


def listens(client: Client, wires: tuple[tuple[int, int, object], ...], router: int) -> bool:
    """Whether the client receives frames of this router."""
    return client.is_connected and wires[-1][1] == router
