"""The queues of a simulated mesh, the clients that use them, and what operators do to them (protocol 14).

Publishers and consumers of the model behave as at any address. `tests.simulation.queue_judge` judges what their
messages are promised.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import attrs

from tests.failures import bare
from tests.simulation.client import Client
from tests.simulation.publisher import Publisher
from tests.simulation.subscriber import SubscriberClient
from tests.simulation.transactions import DealingClient
from topic.delivery.room import SubscriberRoom
from topic.identity import INSIDE, egress_address, ingress_address
from topic.queues import replica
from topic.queues.leader import egress, ingress
from topic.queues.operations import MOST, Configure, Declare, Delete, Operation, Purge, QueueSettings, Retry
from topic.queues.positions import runs_of
from topic.queues.state import Queue, SetState

if TYPE_CHECKING:
    from tests.simulation.router import Router
    from tests.simulation.world import World

OF_TOPICS = 0.2
"""The share of clients that use a topic instead, once each queue has its first clients."""
PUBLISH_TO_TOPICS = 0.8
"""The share of publishers that publish to topics if a queue is bound to topics. Of the first publishers the other share
does.
"""
TOPICS = "topic/0", "topic/1"
BINDINGS = ("topic/0",), ("topic/*",), ("topic/#",), ("topic/0", "topic/*"), TOPICS


LOOK_S = 0.5
"""Seconds between checks whether a client is attached."""


class QueueWorld:
    """Chooses queues, their clients and operations. Its random numbers are its own."""

    def __init__(self, world: "World") -> None:
        assert world.sets is not None
        self._world = world
        self._sets = world.sets
        dice = self._dice = Random(f"queues {world.seed}")
        prefixes = ["queue/", "queue/eu/"] if "eu" in world.sets.map.plans else ["queue/"]
        self.names = [f"{dice.choice(prefixes)}c/{i}" for i in range(world.knobs.queues)]
        self._letters = Random(f"dead letters {world.seed}")
        """Dice of operators that let queues give their dead letters to each other."""
        self.has_letters = self._letters.random() < world.knobs.dead_letters
        if self.has_letters and len(self.names) == 1:
            self.names.append(f"{self._letters.choice(prefixes)}c/1")
        self.sets = sorted({self.set_of(name) for name in self.names})
        """The sets that have a queue of this mesh's clients."""
        limits = {name: dice.choice((1, 3)) for name in self.names if dice.random() < 0.15}
        self.doomed = {name for name in self.names if dice.random() < 0.1}
        """Queues that operators delete now and then."""
        self._full = dice.choice((inf, inf, inf, 10, 100, 1000))
        """Bytes of messages at which a set is full."""
        self._keeps_bodies = Random(f"bodies {world.seed}").random() < 0.5
        self._most_refused = Random(f"refused {world.seed}").choice((100, 100, 1, 0))
        """How many messages that all consumers with room have refused a home may keep."""
        self._is_left = self._full == inf and dice.random() < 0.2
        """All consumers of a queue may leave for good."""
        self._deletions = dice.choice((1, 3, 10))
        self._operators = Random(f"operators of queues {world.seed}")
        """Dice of operators that purge queues and change their settings."""
        self.bound = {name for name in self.names if self._operators.random() < world.knobs.bound}
        """Queues that are bound to topics now and then."""
        self.of_topics: list[Client] = []
        """The clients that use topics."""
        self._first = {name: QueueSettings(limit_messages=limit) for name, limit in limits.items()}
        """Settings with which an operator declares a queue, unless a client declares it first."""
        for name in sorted(self.bound):
            former = self._first.get(name, QueueSettings())
            self._first[name] = attrs.evolve(former, bind=self._operators.choice(BINDINGS))
        for name in self.names if self.has_letters else ():
            if self._letters.random() < 0.7:
                former = self._first.get(name, QueueSettings())
                self._first[name] = attrs.evolve(former, **self._draw_letters(name))
        self._retries = Random(f"retries {world.seed}")
        """Dice of operators that send dead letters back to their original queues."""
        self._switches = Random(f"single active {world.seed}")
        """Dice of operators that turn the single active consumer of a queue on or off."""
        self.single = [name for name in self.names if self._switches.random() < world.knobs.single]
        for name in self.single:
            if self._switches.random() < 0.7:
                self._first[name] = attrs.evolve(self._first.get(name, QueueSettings()), single_active=True)

    def address(self, name: str) -> str:
        """The address of a client's link inside a set, as its router has it (`router.edge.queue_address`). The first
        clients have a queue each."""
        number = int(name[1:])
        if self.bound and name.startswith("p"):
            often = PUBLISH_TO_TOPICS if number >= len(self.names) else 1 - PUBLISH_TO_TOPICS
            if self._operators.random() < often:
                return self._operators.choice(TOPICS)
        if number >= len(self.names) and self._dice.random() < OF_TOPICS:
            return "topic/0"
        queue = self.names[number] if number < len(self.names) else self._dice.choice(self.names)
        return (egress_address if name.startswith("s") else ingress_address)(self.set_of(queue), queue)

    def set_of(self, queue: str) -> str:
        plan = self._sets.map.plan_of(queue)
        assert plan is not None
        return plan.name

    def add(self, clients: list[Client]) -> None:
        """Add the clients. Some consumers have to stay until the end, to take what is in the queues."""
        subscribers = [client for client in clients if isinstance(client, SubscriberClient)]
        for number, subscriber in enumerate(subscribers):
            subscriber.stays = number < len(self.names) and not self._is_left
            subscriber.refuses_for_good = number >= len(self.names)
            if self._world.knobs.annotated:
                subscriber.adds = Random(f"annotations {self._world.seed} {subscriber.name}")
        self._world.judge.queues.begin(self)
        self.of_topics = [client for client in clients if not client.identity.address.startswith(INSIDE)]
        for client in self.of_topics if self.bound else ():  # mostly later than the first bindings
            if isinstance(client, Publisher):
                client.asleep_until = self._operators.random() * self._world.knobs.turmoil
        for client in clients:
            self._world.judge.queues.add(client, publisher=isinstance(client, Publisher))
        for subscriber in subscribers if self._world.knobs.transactions else ():
            if subscriber.name in self._world.judge.queues.consumers:
                subscriber.dealing = DealingClient(subscriber, self, self._world.seed)

    @contextmanager
    def smaller(self) -> Iterator[None]:
        """Sets are full earlier, and may keep no bodies in memory that are on their disks. A home may keep few messages
        of a queue that consumers have refused."""
        kept = replica.KEPT_BODIES if self._keeps_bodies else -1
        with (
            patch.object(ingress, "FULL", int(min(self._full, ingress.FULL))),
            patch.object(replica, "KEPT_BODIES", kept),
            patch.object(egress, "MOST_REFUSED", SubscriberRoom(self._most_refused, egress.MOST_REFUSED.size)),
        ):
            yield

    # operators

    def plan(self) -> None:
        """Plan operations: declare queues with their settings unless a client is quicker, change settings, purge, and
        delete.
        """
        schedule, dice, until = self._world.schedule, self._dice, self._world.knobs.turmoil
        for subscriber in self._world.subscribers:
            if subscriber.dealing is not None:
                subscriber.dealing.plan(until)
        for name, settings in self._first.items():
            declare = Declare(name, settings)
            schedule.at(dice.random() * until * 0.3, self._ask, dice.choice(self._routers), declare)
            if _is_special(settings):  # else the queue stays without settings if a client was quicker
                schedule.at(until * 0.3, self._insist, name, settings)
        for name in sorted(self.doomed):
            for _ in range(self._deletions):
                schedule.at(dice.random() * until, self._delete, dice.choice(self._routers), name)
        for name in self.single:
            for _ in range(self._switches.choice((0, 1, 3, 8))):
                schedule.at(self._switches.random() * until, self._switch, name)
        for _ in range(self._world.knobs.retries if self.has_letters else 0):
            schedule.at(self._retries.random() * until, self._retry, self._retries.choice(self.names))
        dice = self._operators
        for times, act in ((self._world.knobs.purges, self._purge), (self._world.knobs.settings, self._configure)):
            for _ in range(times):
                schedule.at(dice.random() * until, act, dice.choice(self.names))

    @property
    def _routers(self) -> "list[Router]":
        return list(self._world.routers.values())

    def _ask(self, router: "Router", operation: Operation) -> None:
        router.handle(partial(self._sets.ask, router), operation)

    def _delete(self, router: "Router", name: str) -> None:
        queue = self._world.judge.queues.logs.state(self.set_of(name)).get(name)
        if queue is not None:
            self._ask(router, Delete(name, queue.id))

    def _known(self, name: str) -> tuple[SetState, Queue | None]:
        """The state of a set, and a queue of it, as some router has them: an operator has looked there."""
        states = [replica.state for _, replica in self._sets.replicas(self.set_of(name))]
        state = self._operators.choice(states) if states else SetState()
        return state, state.get(name)

    def _purge(self, name: str) -> None:
        """Purge up to the last message that a router knows, or without an end."""
        state, queue = self._known(name)
        if queue is not None:
            last = max(state.messages.of(queue.id), default=0)
            position = self._operators.choice((last, last, MOST))
            self._ask(self._operators.choice(self._routers), Purge(name, queue.id, position))

    def _retry(self, name: str) -> None:
        """Retry dead letters of one other queue. By the decision some may be gone, or reserved for consumers."""
        judge = self._world.judge.queues
        state, places = judge.logs.state(self.set_of(name)), dict[str, list[int]]()
        queue = state.get(name)
        if queue is None:
            return
        for position, message in state.messages.of(queue.id).kept.items():
            for origin in judge.may_go_back(name, bare(message)):
                places.setdefault(origin, []).append(position)
        if places:
            address = self._retries.choice([*places])
            operation = Retry(name, queue.id, address, tuple(runs_of(places[address])))
            self._ask(self._retries.choice(self._routers), operation)

    def _configure(self, name: str) -> None:
        """Ask some router for other settings. That declares a queue that does not exist."""
        _, queue = self._known(name)
        self._give(name, queue, self._draw_settings(name, queue.settings if queue is not None else QueueSettings()))

    def _insist(self, name: str, settings: QueueSettings) -> None:
        _, queue = self._known(name)
        if queue is None or not _is_special(queue.settings):
            self._give(name, queue, settings)

    def _switch(self, name: str) -> None:
        _, queue = self._known(name)
        former, single = queue.settings if queue is not None else QueueSettings(), (True, True, None)
        self._give(name, queue, attrs.evolve(former, single_active=self._switches.choice(single)))

    def calm_down(self) -> None:
        """The faults are over. A message that an active consumer has refused for itself waits until the consumer's link
        ends.
        """
        for consumer in self._world.judge.queues.consumers.values():
            if consumer.queue in self.single and consumer.refused:
                self._end_refusals(consumer.client)

    def _end_refusals(self, client: SubscriberClient) -> None:
        if client.link is not None and client.answered:
            client.end_link(client.link)
        elif not client.gone:
            self._world.schedule.after(LOOK_S, self._end_refusals, client)

    def _give(self, name: str, queue: Queue | None, settings: QueueSettings) -> None:
        operation: Operation = Declare(name, settings)
        if queue is not None:
            operation = Configure(name, queue.id, queue.version, settings)
        self._ask(self._operators.choice(self._routers), operation)

    def _draw_settings(self, name: str, former: QueueSettings) -> QueueSettings:
        """The former settings with one of them changed."""
        dice = self._operators
        if self.has_letters and self._letters.random() < 0.3:
            return attrs.evolve(former, **self._draw_letters(name, None))
        changed: dict[str, Any] = dice.choice(
            (
                {"limit_messages": dice.choice((None, None, 1, 3, 10))},
                {"limit_bytes": dice.choice((None, None, 20, 100))},
                {"ttl_ms": dice.choice((None, None, 1, 300, 3000))},
                {"bind": dice.choice((None, *BINDINGS)) if name in self.bound else former.bind},
            )
        )
        return attrs.evolve(former, **changed)

    def _draw_letters(self, name: str, *more: None) -> dict[str, Any]:
        """Where dead letters of a queue go (perhaps one of `more`), and after how many redeliveries."""
        others = [other for other in self.names if other != name]
        return {
            "dead_letter": self._letters.choice((*others, *more)),
            "redeliveries": self._letters.choice((0, 0, 1, 3, None)),
        }


def _is_special(settings: QueueSettings) -> bool:
    return bool(settings.bind or settings.dead_letter or settings.single_active)
