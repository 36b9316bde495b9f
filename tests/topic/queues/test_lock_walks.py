"""Random walks: consumers of a queue whose messages are locked (protocol 14.19). Now and then the queue is exclusive or
has a single active consumer (protocol 14.14).

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

from random import Random

import pytest

from tests.failures import unmarked
from tests.topic.clients import Reader
from tests.topic.queues.bench import ELECTED_S, QUEUE, QueueBench
from tests.topic.queues.test_egress import lasting, plain
from tests.topic.queues.test_ingress import publisher
from topic.actions import Detach
from topic.delivery.outcomes import DeliveryOutcome

STEPS = 60
LOCK_S = 3
MESSAGES = [b"%d" % number for number in range(8)]
OUTCOMES = [DeliveryOutcome.ACCEPTED] * 4 + [DeliveryOutcome.RELEASED]


class LockWalk:
    """A walk. No message is with two consumers that may answer it, unless a router was killed. Each message is accepted
    once at least."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.bench = bench = QueueBench(*"abcde", seed=seed)
        bench.configure(QUEUE, lock_ms=1000 * LOCK_S)
        pen = publisher(bench, "e")
        pen.send(*MESSAGES)
        pen.settle(*MESSAGES)
        self.readers: list[Reader] = []
        self.accepted: set[bytes] = set()
        self.lives = 1
        self.names = 0

    def walk(self) -> None:
        steps = [self.attach] * 4 + [self.answer] * 8 + [self.wait] * 4 + [self.go] * 2
        steps += [self.configure, self.restart, self.hang]
        for _ in range(STEPS):
            self.dice.choice(steps)()
            self.hear_detaches()
            self.check()

    def check(self) -> None:
        """No message is with two consumers that may answer it."""
        held = [unmarked(message)[0] for reader in self.readers for message in held_by(reader)]
        assert len(held) == len({*held}), held

    def attach(self) -> None:
        if len(self.readers) < 4:
            self.names += 1
            kind = self.dice.choice((plain, lasting))
            router, credit = self.dice.choice(self.bench.names), self.dice.choice((1, 3, 10))
            self.readers.append(kind(self.bench, router, f"s{self.names}", credit=credit))

    def answer(self) -> None:
        for reader in self.readers:
            if held := held_by(reader):
                message, outcome = self.dice.choice(held), self.dice.choice(OUTCOMES)
                reader.answer(outcome, message)
                if outcome is DeliveryOutcome.ACCEPTED:
                    self.accepted.add(unmarked(message)[0])
                if self.dice.random() < 0.8:
                    reader.grant(self.dice.choice((1, 3)))
                return

    def wait(self) -> None:
        self.bench.wait(self.dice.choice((1, LOCK_S - 1, LOCK_S + 1)))

    def go(self) -> None:
        if self.readers:
            reader = self.readers.pop(self.dice.randrange(len(self.readers)))
            self.dice.choice((reader.close, reader.vanish))()

    def hear_detaches(self) -> None:
        """The clients of consumers that were refused answer."""
        for reader in [one for one in self.readers if one.mine(Detach)]:
            self.readers.remove(reader)
            reader.answer_detach()

    def configure(self) -> None:
        lock_s = self.dice.choice((None, 1, LOCK_S))
        lock_ms = 1000 * lock_s if lock_s is not None else None
        single, exclusive = self.dice.choice(((None, None), (True, None), (None, True)))
        self.bench.configure(QUEUE, lock_ms=lock_ms, single_active=single, exclusive=exclusive)

    def restart(self) -> None:
        """The leader stops, with the consumers at its router. Another router leads."""
        leader = self.bench.leader
        self.readers = [one for one in self.readers if one.router != leader]
        self.bench.stop(leader)
        self.bench.wait(ELECTED_S)
        self.lives += 1
        self.bench.start(leader, self.lives)
        self.bench.wait(1)

    def hang(self) -> None:
        """The disks of two voters hang. Meanwhile some locks end, and some consumers answer or go."""
        leader = self.bench.leader
        self.bench.hanging |= {*"abc"} - {leader}
        for step in (self.answer, self.wait, self.answer, self.go, self.wait):
            if self.dice.random() < 0.6:
                step()
        self.bench.hanging.clear()
        self.bench.flow()
        self.bench.wait(ELECTED_S)

    def end(self) -> None:
        """Everybody goes. Then one consumer gets what is left."""
        for reader in self.readers:
            reader.close()
        self.bench.configure(QUEUE, lock_ms=None, single_active=None, exclusive=None)
        self.bench.wait(120)
        last = plain(self.bench, "e", "last", credit=100)
        self.bench.wait(2)
        assert not last.mine(Detach)
        for message in {*last.delivered}:
            last.accept(message or b"")
            self.accepted.add(unmarked(message or b"")[0])
        self.bench.wait(2)
        assert self.accepted >= {*MESSAGES}
        assert self.bench.messages(self.bench.leader) == []


def held_by(reader: Reader) -> list[bytes]:
    """The messages that the consumer has, and may answer."""
    done = {*reader.settled}
    return [message for record, message in reader.handed if record not in done and message is not None]


@pytest.mark.parametrize("seed", range(6))
def test_locked_messages_have_one_consumer_each(seed: int) -> None:
    walk = LockWalk(seed)
    walk.walk()
    walk.end()
