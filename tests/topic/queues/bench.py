"""A bench of routers with the replicas of one set. Each router has a disk that finishes at once."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from random import Random
from typing import Any

import attrs
import pytest

from tests.failures import TextMarking, alive
from tests.set_store import MemorySets, StoreNames
from tests.topic.bench import SETTINGS, Bench, Station
from topic.core import Topic
from topic.identity import ingresses_of
from topic.node import SetPort
from topic.queues.actions import Answered, BodiesFound
from topic.queues.moving.policy import PREFERS, MovePolicy
from topic.queues.operations import Answer, Configure, Declare, Done, QueueId, QueueSettings
from topic.queues.replica import SetReplica
from topic.queues.set_map import SetMap, SetPlan
from topic.queues.sets import COMPARE_EVERY, ReplicaSets
from topic.queues.storing import ReadBodies, ReadPiece, StoreChange, StoreRead, Write
from topic.queues.wire import SETS
from topic.raft.limits import RaftLimits
from topic.raft.log import Entry
from topic.settings import QUEUE as KIND
from topic.settings import TOPIC, Settings

SET = "q0"
QUEUE = "queue/1"
WITH_QUEUES = attrs.evolve(SETTINGS, kinds=(("queue/", KIND), ("topic/", TOPIC)))
STEP_S = 0.05
START_US = 1_700_000_000_000_000
ELECTED_S = 5
"""Seconds within which the set gets a leader."""


def with_patches(scene: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        scene(patch)


def left_ms(messages: Sequence[bytes], wall_ms: int) -> list[float] | None:
    """The time that messages have left. A message that ends in `!3` has three seconds to live."""
    texts = [alive(message)[0].partition(b"!")[2] for message in messages]
    return [1000 * int(text) if text else math.inf for text in texts] if any(texts) else None


class QueueStation(TextMarking, Station):
    """A station whose disk confirms changes in the next turn."""

    bench: "QueueBench"

    def port(self, core: Topic) -> SetPort:
        self.answers: dict[int, Answer] = {}
        self.waiting: list[StoreChange | StoreRead] = []
        self.found_bodies: dict[int, Mapping[int, bytes]] = {}
        """Keyed by the number of the read: bodies that were read for no link end."""
        bench, disk = self.bench, self.bench.disks[self.name]
        sets = ReplicaSets(
            self.name,
            bench.set_map,
            sorted(bench.names),
            disk.contents,
            RaftLimits(),
            bench.random.random,
            core.outlet.clock.stamp,
            bench.new_store,
            bench.now,
            compare_every=bench.compare_every,
            left_ms=left_ms,
        )
        for replica in sets._replicas.values():
            replica._apply = partial(self._apply, replica, replica._apply)  # type: ignore[method-assign]
        return SetPort(sets, self)

    def _apply(self, replica: SetReplica, apply: Callable[[int, Entry], None], index: int, decided: Entry) -> None:
        """Note the messages that are in queues now."""
        apply(index, decided)
        for rows in replica.state.rows.messages.queues.values():
            self.bench.texts_of[replica.plan.name] |= rows.kept

    def wall_us(self) -> int:
        """The station's clock: it follows the time of the bench, and advances at each call."""
        self.bench.wall_us = max(self.bench.wall_us + 1000, START_US + int(self.bench.now * 1e6))
        return self.bench.wall_us

    def keep(self, changes: Sequence[StoreChange | StoreRead]) -> None:
        self.waiting += changes

    def found(self, found: BodiesFound) -> None:
        self.found_bodies[found.number] = found.bodies

    def answered(self, answered: Answered) -> None:
        self.answers[answered.number] = answered.answer

    def write(self) -> bool:
        """Let the disk do its work. Returns whether there was some."""
        waiting, self.waiting = self.waiting, []
        for change in waiting:
            self.do(change)
        self.node.pump()
        return bool(waiting)

    def do(self, change: StoreChange | StoreRead) -> None:
        """Let the disk make this change or read, and confirm it."""
        disk = self.bench.disks[self.name]
        if isinstance(change, ReadPiece):
            self.node.piece_read(change, disk.read(change))
        elif isinstance(change, ReadBodies):
            self.node.bodies_read(change, disk.bodies(change))
        else:
            disk.write([change])
            if isinstance(change, Write):
                self.node.stored(change)


class QueueBench(Bench):
    """Routers with the voters of one set. The set has one queue, unless `declares` is false."""

    station = QueueStation

    def __init__(
        self,
        *names: str,
        voters: str = "abc",
        declares: bool = True,
        seed: int = 0,
        compare_every: int = COMPARE_EVERY,
        settings: Settings = WITH_QUEUES,
        others: Sequence[SetPlan] = (),
        policy: MovePolicy = PREFERS,
    ) -> None:
        """`others`: further sets, with prefixes."""
        self.compare_every = compare_every
        plans = [SetPlan(SET, tuple(voters), policy=policy), *others]
        self.set_map = SetMap(plans)
        self.new_store = StoreNames()
        self.disks = {name: MemorySets(self.new_store.parts(self.set_map.plans)) for name in names}
        self.random = Random(seed)
        self.texts_of: dict[str, dict[int, bytes]] = {name: {} for name in self.set_map.plans}
        """Keyed by set and position: all messages that ever were in a queue."""
        self.texts = self.texts_of[SET]
        self.is_patient = False
        self.hanging: set[str] = set()
        """Routers whose disks hang."""
        configured = [one for plan in plans for one in ingresses_of(plan.name)]
        super().__init__(*names, settings=settings, configured=configured)
        self.wait(ELECTED_S)
        if declares:
            self.queue = self.declare(QUEUE)

    def at(self, router: str) -> QueueStation:
        station = self.stations[router]
        assert isinstance(station, QueueStation)
        return station

    def carry(self, here: str, there: str, payload: bytes) -> None:
        if payload.startswith(SETS):
            self._wires[here, there].append(payload)
        else:
            super().carry(here, there, payload)

    def flow(self) -> None:
        """Also let leaders propose entries without delay, unless the bench is patient."""
        super().flow()
        while sum(self.at(name).write() for name in self.stations if name not in self.hanging) or self._hurry():
            super().flow()

    def _hurry(self) -> bool:
        """Let leaders propose what waits for the next entry. Returns whether there was something."""
        nodes = [self.at(name).node for name in self.stations]
        leds = [] if self.is_patient else [(node, led) for node in nodes for led in node.led.values()]
        waiting = [(node, led) for node, led in leds if led.deadline < math.inf]
        for node, led in waiting:
            led.propose_now()
            node.pump()
        return bool(waiting)

    def wait(self, seconds: int, *routers: str) -> None:
        """Let time pass, in steps shorter than the time between two candidates."""
        end = self.now + seconds
        while self.now < end:
            self.now += STEP_S
            for name in routers or self.names:
                self._time(name)
                self.flow()

    def declare(self, name: str, **settings: Any) -> QueueId:
        number = self.at("a").node.ask(Declare(name, QueueSettings(**settings)))
        self.collect("a")
        self.flow()
        answer = self.at("a").answers[number]
        assert isinstance(answer, Done), answer
        return answer.id

    def bind(self, name: str, *addresses: str) -> None:
        """Bind the queue to these addresses only."""
        self.configure(name, bind=addresses or None)

    def configure(self, name: str, **changed: Any) -> None:
        """Change these settings of the queue."""
        queue = self.sets(self.leader).state(SET).get(name)
        assert queue is not None
        settings = attrs.evolve(queue.settings, **changed)
        at = self.at(self.names[0])
        number = at.node.ask(Configure(name, queue.id, queue.version, settings))
        self.collect(at.name)
        self.flow()
        assert isinstance(at.answers[number], Done)

    def leaders(self) -> list[str]:
        """The routers that consider themselves leader."""
        return [name for name in self.stations if SET in self.sets(name).led]

    @property
    def leader(self) -> str:
        [leader] = self.leaders()
        return leader

    def sets(self, router: str) -> ReplicaSets:
        sets = self.at(router).node.sets
        assert sets is not None
        return sets

    def messages(self, router: str) -> list[bytes]:
        """The messages of the queue, as that router knows them."""
        return [*map(self.texts.__getitem__, self.sets(router).state(SET).messages.of(self.queue))]

    def stop(self, name: str) -> None:
        """The process ends, and the other routers notice. `start` starts the next one."""
        self.kill(name)
        del self.stations[name]
        self.names = tuple(other for other in self.names if other != name)

    def start(self, name: str, incarnation: int) -> None:
        self.names = (*self.names, name)
        self.boot(name, incarnation)
        for other in self.names[:-1]:
            self.meet(name, other)
        self.flow()

    def part_from_all(self, router: str) -> None:
        for other in self.names:
            if other != router:
                self.part(router, other)

    def restart_all_but(self, router: str) -> None:
        """Restart all other routers, out of contact with this one. So this router alone remembers links."""
        self.part_from_all(router)
        others = [name for name in self.names if name != router]
        for name in others:
            self.stop(name)
        for name in others:
            self.boot(name, 2)
            self.names = (*self.names, name)
        for one, other in combinations(others, 2):
            self.meet(one, other)
        self.flow()
        self.wait(ELECTED_S + 15, *others)

    def meet_again(self, router: str) -> None:
        """Let the router, and all others, be in contact."""
        for other in self.names:
            if other != router:
                self.meet(router, other)
        self.flow()
