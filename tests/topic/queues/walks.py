"""Random walks of a queue: one seed determines all acts of routers, disks, contacts and clients, and a judge checks
them.

python -m tests.topic.queues.walks 4711 --trace      one seed, with everything that happened
python -m tests.topic.queues.walks 0 --count 1000    many: those that fail, and how to see each again

a, b, c   the first voters of the set
d, e      have no replica, unless an operator chooses them

A step of a walk is an act of a client or a fault. After it either everything comes to rest, or only a few of the
batches, disk writes and frames under way advance. In the end all faults are healed. Then publishers send nothing new,
and consumers accept all messages until the queue is empty.

The rules for messages are those of `tests.topic.queues.judge`. A plain client is in doubt if it has lost its link, or
some router was out of contact with its router. A lasting consumer is in doubt if it was away for longer than its
timeout. The walk also checks:

1. All messages are processed within `BOUND_S` after the faults, although nothing new is sent.
2. At rest no router keeps finished deliveries, and replicas with the same applied index are equal at any time.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import combinations, product
from random import Random
from unittest.mock import patch

from tests.failures import died
from tests.garbage import collect_seldom
from tests.topic.bench import LASTING, Station
from tests.topic.queues.bench import QUEUE, SET
from tests.topic.queues.judge import Judge, Message
from tests.topic.queues.walk_bench import FAR_SET, Move, WalkBench
from tests.topic.queues.walkers import ACCEPTED, REJECTED, Client, Consumer, Link, Publisher, PublisherLink
from topic.delivery.outcomes import GIVEN_BACK
from topic.delivery.room import SubscriberRoom
from topic.directory.entry import Lifetime
from topic.identity import LinkIdentity, egress_address, ingress_address
from topic.queues import replica
from topic.queues.leader import egress, publisher
from topic.queues.leader.letters import LONGEST_PAUSE_S
from topic.queues.operations import Declare, Delete, Purge
from topic.queues.state import SetState
from topic.raft.errors import BusyError, NotLeaderError
from topic.raft.life import SetLife

ROUTERS = "abcde"
VOTERS = "abc"
"""The voters of the set at the beginning."""
STEPS = 100
LEADER_S = 10
"""Seconds after the faults within which a router has to lead."""
BOUND_S = 30
"""Seconds after that within which all deliveries have to be done."""
FORGOTTEN_S = 350
"""The same bound if a publisher does not come back, or if all routers may have forgotten a publisher of dead letters:
its keys stay placeholders for this time (protocol 6.10, 14.11)."""
TRIED_S = 11
"""Seconds after which no request is retried any more."""
OTHER = "queue/2"
TOPIC = "topic/orders"
BINDINGS = TOPIC, "topic/*"
"""The possible bindings of a queue. A message to the topic comes by both."""


DEAD, FAR, DEAD_TOPIC = "queue/dead", "queue/far/dead", "topic/dead/letters"
"""Addresses for dead letters: a queue of the same set, a queue of another set, and a topic."""


class JudgeError(Exception):
    """A promise does not hold."""


def expects(holds: bool, what: str) -> None:
    if not holds:
        raise JudgeError(what)


class Walk(WalkBench):
    _haste = 1.0
    expects = staticmethod(expects)

    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        self.dead_letter = ""
        """The address for dead letters of the first queue, if it has one."""
        self.verbose = verbose
        self.trace: list[str] = []
        self.is_over = False
        """Publishers send nothing new, and nothing fails."""
        self._stopped: set[str] = set()
        """The routers that were stopped at least once."""
        self.links: list[Link] = []
        self.publishers: list[Publisher] = []
        self.consumers: list[Consumer] = []
        self.judge = Judge(expects, self.note, lambda: self.consumers)
        self._digests: dict[tuple[SetLife, int], bytes] = {}
        """The digest of the state, keyed by life and applied index."""
        self._looked: dict[str, tuple[SetState, tuple[SetLife, int]]] = {}
        """Keyed by router: the state that was checked last."""
        super().__init__(ROUTERS, seed=seed, compare_every=5 if seed % 2 else 1000, grace=seed % 3)
        dice = self.random
        self._haste = dice.choice((0.1, 0.4, 0.8))
        """How often all comes to rest after a step."""
        often = partial(dice.choice, (0, 0, 1, 3))
        self._steps: dict[Callable[[], None], int] = {
            self._publish: 14, self._consume: 26, self._pass_time: 8, self._break: 2 * often(),
            self._stop: often(), self._stop_all: dice.choice((0, 0, 0, 1)), self._start: 3,
            self._hand_over: often(), self._choose: dice.choice((0, 0, 0, 2)), self._lose: often(), self._cut: often(),
            self._meet: 4, self._hold: often(), self._let_go: 2, self._hang: often(), self._disks_go_on: 2,
        }  # fmt: skip
        self.queues = [QUEUE] if dice.random() < 0.7 else [QUEUE, OTHER]
        if OTHER in self.queues:
            self.declare(OTHER)
        self.doomed = dice.choice(self.queues) if dice.random() < 0.2 else ""
        """A queue that an operator deletes and declares again."""
        self._steps[self._delete] = 3 if self.doomed else 0
        self._steps[self._purge] = dice.choice((0, 0, 0, 0, 2))
        self._mortal = dice.choice((0, 0, 0, 0.3))
        """The share of messages with a time to live."""
        self._timeout, self._plain = dice.choice((60, 60, 8)), dice.choice((0, 0.1, 0.5))
        other_dice = Random(f"bound {seed}")
        is_bound = not self.doomed and other_dice.random() < 0.3
        if is_bound:
            self.bind(QUEUE, *BINDINGS)
        for number in range(dice.randint(1, 3)):
            queue = dice.choice(self.queues)
            is_of_topic = is_bound and queue == QUEUE and other_dice.random() < 0.7
            address = TOPIC if is_of_topic else ingress_address(SET, queue)
            self.publishers.append(Publisher(self, f"p{number}", address, self._lifetime()))
        for number in range(dice.randint(len(self.queues), 4)):
            queue = self.queues[number % len(self.queues)]
            self.consumers.append(Consumer(self, f"c{number}", egress_address(SET, queue), self._lifetime()))
        for consumer in self.consumers[len(self.queues) :]:
            consumer.is_choosy = dice.random() < 0.3
        self._staying = len(self.queues)
        """The number of consumers, from the first one on, that come back in the end: each queue has one."""
        if not self.doomed and other_dice.random() < 0.4:
            self._have_dead_letters(other_dice)

    def _have_dead_letters(self, dice: Random) -> None:
        self.dead_letter = dice.choice((DEAD, FAR, DEAD_TOPIC))
        self.configure(QUEUE, dead_letter=self.dead_letter, redeliveries=dice.choice((0, 1, 3)))
        address, lifetime = self.dead_letter, LASTING
        if address != DEAD_TOPIC:
            self.declare(address)
            address, lifetime = egress_address(SET if address == DEAD else FAR_SET.name, address), self._lifetime()
        reader = Consumer(self, "dead", address, lifetime)
        if address == DEAD_TOPIC:
            reader.fussiness, reader.is_picky = 0, False
        self.consumers.insert(0, reader)
        self._staying += 1

    def _lifetime(self) -> Lifetime:
        return Lifetime() if self.random.random() < self._plain else Lifetime(self._timeout, "connection-close", 1)

    @property
    def clients(self) -> list[Client]:
        return [*self.publishers, *self.consumers]

    def suffix(self) -> bytes:
        """The suffix of the next message (`tests.topic.queues.bench.left_ms`)."""
        return b"!%d" % self.random.choice((0, 1, 5)) if self.random.random() < self._mortal else b""

    def message(self, publisher: Publisher, text: bytes) -> Message:
        """The judge's message for a text that the publisher sends now."""
        assert publisher.link is not None
        is_doomed = publisher.identity.address == ingress_address(SET, self.doomed)
        return Message(
            may_be_gone=is_doomed or b"!" in text, is_loose=publisher.link.is_doubted and not publisher.is_lasting
        )

    def is_doomed(self, consumer: LinkIdentity) -> bool:
        """Whether the consumer's queue may be deleted."""
        return consumer.address == egress_address(SET, self.doomed)

    def note(self, what: str) -> None:
        if self.verbose:
            self.trace.append(f"{self.now:8.3f} {what}")

    @property
    def led_in(self) -> object:
        """The latest life and term in which a router leads the set."""
        nodes = (self.at(name).node for name in self.stations)
        return max((node.led[SET].since for node in nodes if SET in node.led), default=None)

    def times_back(self, text: bytes) -> int:
        """How often the message has come back to its queue, as far as any router knows."""
        there = [(self.sets(name).state(set_), set_) for name in self.stations for set_ in self.set_map.plans]
        found = [
            (state, at)
            for state, set_ in there
            for queue in state
            for at in state.messages.of(queue.id)
            if self.texts_of[set_][at] == text
        ]
        return max((state.messages.returns(at).times for state, at in found), default=0)

    def others(self) -> list[Move]:
        """Reads of routers and clients that are possible now."""
        moves: list[Move] = []
        for link in self.links:
            if link.is_open and link.outbox:
                moves.append(link.serve)
            if link.client.link is link and link.inbox:
                moves.append(link.read)
            if isinstance(link, PublisherLink) and link.owes_sign and link.is_open and not link.is_left:
                moves.append(link.acknowledge)
        return moves

    def rest(self) -> None:
        if self.is_over or self.random.random() < self._haste:
            self.flow()
        else:
            self.go_on(self.random.randrange(8))
        self.links = [link for link in self.links if link.client.link is link or (link.is_open and link.outbox)]
        for client in self.clients:
            is_seen = client.link is not None and self._sees_all(client.link.station)
            if client.is_here() and is_seen:
                client.seen_at = self.now
            elif self.now - client.seen_at >= 0.9 * client.lifetime.timeout:
                client.may_be_over = True
                if isinstance(client, Consumer):
                    self.judge.loosen(client.in_doubt)
            if not (is_seen or client.is_lasting):
                self._doubt(client)
        self._look()

    def _look(self) -> None:
        """Check the state of all routers."""
        for name, station in self.stations.items():
            station.node.topic.check()
            sets = self.sets(name)
            sets.check()
            replica = sets._replicas[SET]
            at = replica.raft.hard.life, replica.applied
            if self._looked.get(name) == (replica.state, at):
                continue
            self._looked[name] = replica.state, at
            replica.state.check()
            for position, letter in replica.state.messages.outbox.letters.items():
                self.note(f"{name} has {self.texts[position].decode()} in its outbox")
                self.judge.died(self.texts[position], letter.sending.why.value)
            digest = replica.state.rows.digest
            expects(self._digests.setdefault(at, digest) == digest, f"{name} has another state at {at[1]}")

    def _sees_all(self, station: Station) -> bool:
        names = {*self.names} - {station.name}
        return self.stations.get(station.name) is station and all(self.is_whole(station.name, name) for name in names)

    def has_lost(self, here: str, there: str) -> None:
        self.note(f"{here} has lost {there}")
        for client in self.clients:
            if not client.is_lasting and client.link is not None and client.link.station.name in (here, there):
                self._doubt(client)

    def _doubt(self, client: Client) -> None:
        """Some router considers the plain client gone, or may do so."""
        if client.link is not None:
            client.link.is_doubted = True
            self.judge.loosen(client.in_doubt)

    # steps of the walk

    def play(self) -> None:
        kinds, weights = [*self._steps], [*self._steps.values()]
        for _ in range(STEPS):
            [step] = self.random.choices(kinds, weights)
            step()
            self.rest()
        self._end()

    def _publish(self) -> None:
        one, dice = self.random.choice(self.publishers), self.random
        if one.link is None:
            self._attach(one)
            return
        if dice.random() < 0.7:
            one.send(dice.randint(1, 3))
        if dice.random() < 0.4:
            one.settle(dice.randint(1, 3))

    def _consume(self) -> None:
        one, dice = self.random.choice(self.consumers), self.random
        if one.link is None and dice.random() < 0.8:
            self._attach(one)
        if dice.random() < 0.6:
            one.grant(dice.randint(1, 4))
        for key in dice.sample(one.todo, min(len(one.todo), dice.randint(0, 2))):
            is_given_back = key in one.handles.values() and dice.random() < one.fussiness
            final = (ACCEPTED, ACCEPTED, ACCEPTED, REJECTED if one.is_picky else ACCEPTED)
            one.answer(key, dice.choice(GIVEN_BACK if is_given_back else final))

    def _attach(self, client: Client) -> None:
        if self.stations and (self.now >= client.asleep_until or self.is_over):
            client.attach(self.random.choice([*self.stations]))

    def _break(self) -> None:
        client = self.random.choice(self.clients)
        if client.link is not None:
            if client.is_in and self.random.random() < 0.1:
                self._close(client)
            else:
                client.lose()
                client.asleep_until = self.now + self.random.choice((0, 0, 1, 10))

    def _close(self, client: Client) -> None:
        self.note(f"{client.name} closes its link")
        client.link.leave()
        self.judge.loosen(client.in_doubt)
        client.begin_afresh()
        client.left()

    def _pass_time(self) -> None:
        self.wait(self.random.choice((0.05, 0.2, 0.5, 2)))

    def _stop(self) -> None:
        """Stop a router, so that at most a minority of the first voters is stopped by this."""
        may = [name for name in self.names if name not in VOTERS or {*VOTERS} <= {*self.names}]
        if may:  # often a leader
            self.stop(self.random.choice([*may, *(name for name in 2 * self.leaders() if name in may)]))

    def _stop_all(self) -> None:
        for name in self.names:
            self.stop(name)

    def stop(self, name: str) -> None:
        self.note(f"{name} stops")
        self._stopped.add(name)
        station = self.at(name)
        super().stop(name)
        for link in self.links:
            if link.station is station:
                link.end(self.random.randint(0, len(link.inbox)))

    def _start(self) -> None:
        gone = [name for name in ROUTERS if name not in self.names]
        if gone:
            self.start(self.random.choice(gone))

    def start(self, name: str, incarnation: int = 0) -> None:
        self.note(f"{name} starts")
        super().start(name, incarnation)
        for other in self.names:
            if other != name and self.random.random() < 0.8:
                self.meet(name, other)

    def _hand_over(self) -> None:
        """A leader that is about to stop hands over to another router. Perhaps it does not stop."""
        if self.leaders():
            name = self.random.choice(self.leaders())
            self.note(f"{name} hands over")
            self.sets(name).leave(self.now)
            self.collect(name)

    def _choose(self) -> None:
        """An operator chooses other voters."""
        for name in self.leaders():
            ring = self.random.sample(ROUTERS, 3)
            with suppress(BusyError, NotLeaderError):
                self.sets(name).choose(SET, ring, self.now)
                self.note(f"the voters are to be {ring}")
            self.collect(name)

    def _voters(self) -> list[str]:
        """The voters that the leader knows."""
        configuration = self.sets(self.leader)._replicas[SET].raft.log.configuration
        return [voter.router for voter in configuration.voters]

    def _parted(self) -> list[tuple[str, str]]:
        return [pair for pair in combinations(self.names, 2) if not self.is_whole(*pair)]

    def _lose(self) -> None:
        """One of two routers notices that they have lost contact, and perhaps the other one, too."""
        if len(self.names) > 1:
            self.random.choice((self.lose, self.part))(*self.random.sample(self.names, 2))

    def _cut(self) -> None:
        """Some routers are cut off from the others. The routers on one side notice, or all."""
        side = [name for name in self.names if self.random.random() < 0.4]
        act = self.random.choice((self.lose, self.part))
        for here, there in product([name for name in self.names if name not in side], side):
            act(here, there)

    def _meet(self) -> None:
        for pair in self._parted()[: self.random.choice((1, 99))]:
            self.note(f"{pair[0]} and {pair[1]} are in contact")
            self.meet(*pair)

    def _delete(self) -> None:
        """Ask any router to delete the queue, or to declare it again if it is deleted."""
        if self.names:
            name = self.random.choice(self.names)
            queue = self.sets(name).state(SET).get(self.doomed)
            self.note(f"{name} is asked to {'delete' if queue else 'declare'} {self.doomed}")
            self.at(name).node.ask(Delete(queue.name, queue.id) if queue is not None else Declare(self.doomed))
            self.collect(name)

    def _purge(self) -> None:
        """Ask any router to purge all messages that it knows in a queue."""
        if self.names:
            name = self.random.choice(self.names)
            state = self.sets(name).state(SET)
            queue = state.get(self.random.choice(self.queues))
            there = {at: self.texts[at] for at in state.messages.of(queue.id)} if queue is not None else {}
            if queue is not None and there:
                self.note(f"{name} is asked to purge {[text.decode() for text in there.values()]}")
                letters = state.messages.outbox.letters
                for text in [*there.values(), *map(self.texts.__getitem__, letters)]:
                    for one in (text, died(text)):
                        if one in self.judge.messages:
                            self.judge.messages[one].may_be_gone = True
                self.at(name).node.ask(Purge(queue.name, queue.id, max(there)))
                self.collect(name)

    def _hold(self) -> None:
        if len(self.names) > 1:
            here, there = self.random.sample(self.names, 2)
            self.note(f"what {here} says to {there} is held")
            self.hold(here, there)

    def _let_go(self) -> None:
        self._held.clear()

    def _hang(self) -> None:
        if self.names:
            self.hanging.add(self.random.choice(self.names))
            self.note(f"disks hang: {sorted(self.hanging)}")

    def _disks_go_on(self) -> None:
        self.hanging.clear()

    # the end

    def _end(self) -> None:
        self.note("all faults are healed")
        self.is_over = True
        self.hanging.clear()
        self._held.clear()
        for name in [name for name in ROUTERS if name not in self.names]:
            self.start(name)
        for pair in self._parted():
            self.meet(*pair)
        if self._timeout < BOUND_S and self.random.random() < 0.5:
            self._part_with(self.random.choice([*self.publishers, *self.consumers[self._staying :]]))
        self.flow()
        self._until(lambda: "" if len(self.leaders()) == 1 else f"{self.leaders()} lead", LEADER_S)
        if self.doomed:
            self.wait(TRIED_S)
            self.declare(self.doomed)
            for consumer in self.consumers:  # the leader looks for consumers when they attach, not when it declares
                if consumer.link is not None:
                    consumer.lose()
        self._until(self._in_doubt, BOUND_S if self.dead_letter != DEAD_TOPIC else BOUND_S + LONGEST_PAUSE_S)
        is_whole = not any(publisher.is_gone for publisher in self.publishers)
        is_whole &= not (self.dead_letter and self._stopped == {*ROUTERS})
        self._until(self._left, BOUND_S if is_whole else FORGOTTEN_S)

    def _part_with(self, client: Client) -> None:
        """The client leaves for good."""
        self.note(f"{client.name} is gone")
        client.is_gone = client.may_be_over = True
        if client.link is not None:
            client.lose()
        self.judge.loosen(client.in_doubt)

    def _until(self, what: Callable[[], str], seconds: float) -> None:
        end = self.now + seconds
        while left := what():
            expects(self.now < end, f"after {seconds} s: {left}")
            self.wait(1)
            while [client for client in self.clients if not client.is_gone and self._goes_on(client)]:
                self.flow()

    def _goes_on(self, client: Client) -> bool:
        """Let the client do its open work. Returns whether there was some."""
        if client.link is None:
            self._attach(client)
            return True
        before = len(client.link.outbox)
        client.finish()
        return len(client.link.outbox) > before

    def _in_doubt(self) -> str:
        """What is not over yet, as far as clients can see; empty if all is."""
        if missing := self.judge.missing:
            return f"{missing} are not processed"
        if busy := [one.name for one in self.clients if not one.is_gone and (one.unsettled or not one.is_in)]:
            return f"{busy} have something in doubt, or no answer"
        return ""

    def _left(self) -> str:
        """What routers still keep; empty if nothing."""
        if records := self.records():
            return f"records are left: {records}"
        rows = {name: [key for key, _ in self.sets(name).state(SET).rows] for name in self._voters()}
        bindings = len(self.sets(self.leader).state(SET).bindings)
        queues = len(self.queues) + (self.dead_letter == DEAD)
        if any(len(keys) != queues + bindings for keys in rows.values()):
            return f"rows are left: {rows}"
        far = {name: [key for key, _ in self.sets(name).state(FAR_SET.name).rows] for name in FAR_SET.voters}
        if any(len(keys) != (self.dead_letter == FAR) for keys in far.values()):
            return f"rows are left in the other set: {far}"
        return ""


def attempt(seed: int, *, verbose: bool = False) -> tuple[Walk, Exception | None]:
    """Play a walk. In two of three walks replicas keep no bodies in memory that are on their disks, and read a few at
    once. In half of the walks a home keeps at most one message that all consumers with room have refused."""
    with ExitStack() as smaller:
        if seed % 2:
            smaller.enter_context(patch.object(egress, "MOST_REFUSED", SubscriberRoom(1, 1000)))
        if seed % 3:
            smaller.enter_context(patch.object(replica, "KEPT_BODIES", -1))
            smaller.enter_context(patch.object(publisher, "AHEAD", 8))
            smaller.enter_context(patch.object(publisher, "AT_ONCE", 3))
        walk = Walk(seed, verbose=verbose)
        try:
            walk.play()
        except Exception as error:
            return walk, error
        return walk, None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.topic.queues.walks", description="random walks of a queue")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    options = parser.parse_args()
    collect_seldom()
    began, failed, messages, reads = time.monotonic(), 0, 0, [0, 0]
    for seed in range(options.first, options.first + options.count):
        walk, error = attempt(seed, verbose=options.trace)
        messages += len(walk.judge.messages)
        reads = [sum(both) for both in zip(reads, walk.reads, strict=True)]
        if walk.trace:
            print("\n".join(walk.trace))
        if error is not None:
            failed += 1
            print(tell(seed, error), flush=True)
    pace = 60 * options.count / (time.monotonic() - began)
    told = f"{messages} messages, {reads[1]} reads and {reads[0]} for nobody, {failed} failed"
    print(f"{options.count} seeds, {told}, {pace:.0f} seeds a minute")
    return 1 if failed else 0


def tell(seed: int, error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__} {error!s:.200} ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})"
    return f"seed {seed}: {what}\nreplay with: python -m tests.topic.queues.walks {seed} --trace"


if __name__ == "__main__":
    sys.exit(main())
