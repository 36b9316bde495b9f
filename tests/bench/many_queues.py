"""`python -m tests.bench.many_queues`: 10,000 queues, 100 of them in use, while the leader of most sets is killed.

Runs on the mesh `topologies/queues.yaml`, and prints:

memory  KiB that a router takes for each queue that nobody uses: the difference to the same mesh before the declares.
kill    2,000 publishers over 200 connections send at a steady rate to 100 queues, each of which has a consumer, at all
        routers in turn. The router that leads most sets is killed by SIGKILL: how long is it until all sets are led
        again, and until each queue has delivered a message that was sent after the kill? Then the router is started
        again; `--kills` says how often.

All clients are in one process, and resume. The exit status is 1 if a message is lost or doubled.
"""

import argparse
import math
import re
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import cycle
from pathlib import Path
from typing import Final

import attrs
import psutil
import trio

from failover.client import Subscriber
from failover.client.management import Management
from failover.client.state.comparison import ResumeStep, step
from router.amqp.batches import Dispositions
from router.amqp.connection import Connection
from router.amqp.format.message import data_message
from router.amqp.format.sections import write_message
from router.amqp.format.values import (
    ACCEPTED,
    EXPIRE_CONNECTION,
    NO_STATE,
    RCV_SECOND,
    SND_MIXED,
    DeliveryState,
    ErrorCondition,
)
from router.amqp.handler import Handler
from router.amqp.proton.link import Link
from router.amqp.transport import serve
from router.entities.replicas import SET
from router.mesh.planned import sets_of
from tests.bench.declares import check, declare, mesh_in, url
from tests.bench.links import Clock
from tests.processes.clients import Clients, client_of
from tests.processes.mesh import RunningMesh
from topic.properties import ANSWERS, EPOCH, GENERATION

KIB: Final = 1024
DECLARES_S: Final = 400.0
"""Declares a second."""
REST_S: Final = 5.0
"""Seconds in which earlier requests come to rest."""
LOOK_S: Final = 0.02
IDLE_S: Final = 30.0
"""Seconds of silence that clients allow: all are in one process, which may not get the processor for seconds."""
TIMEOUT_S: Final = 60
AT_ONCE: Final = 200
"""The queues that one publisher fills."""
FILLING: Final = 100
"""The bytes of its messages."""


@attrs.define
class Account:
    """What the clients have seen."""

    queues: Sequence[str]
    sent: dict[bytes, float] = attrs.field(factory=dict)
    """Message -> when it was first sent."""
    accepted: set[bytes] = attrs.field(factory=set)
    refused: int = 0
    received: Counter[bytes] = attrs.field(factory=Counter)
    since: float = math.inf
    """When the router was killed."""
    first: dict[str, float] = attrs.field(factory=dict)
    """Queue -> when it delivered the first message that was sent after that."""

    def killed(self, now: float) -> None:
        self.since, self.first = now, {}

    def takes(self, queue: str, message: bytes) -> None:
        self.received[message] += 1
        if self.sent[message] > self.since and queue not in self.first:
            self.first[queue] = trio.current_time()

    @property
    def lost(self) -> int:
        return len(self.accepted - self.received.keys())

    @property
    def doubled(self) -> int:
        return sum(times > 1 for times in self.received.values())


def routers_of(mesh: RunningMesh, number: int) -> list[str]:
    """The routers in the order in which a client tries them. So the clients of a router go to both others when it
    dies."""
    place, turn = number % len(mesh.routers), 1 if number // len(mesh.routers) % 2 else -1
    first, *others = mesh.routers[place:] + mesh.routers[:place]
    return [first, *others[::turn]]


# publishers


@attrs.define(eq=False)
class Publisher:
    """The link of one publisher, on successive connections. It has at most one delivery under way, and settles it when
    it knows the outcome."""

    number: int
    queue: str
    account: Account
    link: Link | None = None
    """None if it is not attached."""
    _properties: dict[str, object] = attrs.field(factory=dict)
    """The generation and the epoch that the router has sent."""
    _sent: int = 0
    _under_way: bytes = b""
    """The message without an outcome; empty if there is none."""
    _is_due: bool = False
    _resumes: bool = False
    """Whether the delivery under way is to be resumed on the link."""
    _theirs: Mapping[bytes, DeliveryState] = attrs.field(factory=dict)
    """The router's states of deliveries at the attach."""

    def attach(self, connection: Connection) -> None:
        name, tag = f"publisher-{self.number}", b"%d" % self._sent
        ours = {tag: NO_STATE} if self._under_way else {}
        link = connection.sender(
            name, self.queue, rcv_settle_mode=RCV_SECOND, snd_settle_mode=SND_MIXED, timeout=TIMEOUT_S,
            expiry_policy=EXPIRE_CONNECTION, unsettled=ours if self._properties else None,
            properties={**self._properties, ANSWERS: True},
        )  # fmt: skip
        link.context = self

    def attached(self, link: Link) -> None:
        self.link, known = link, {name: link.remote_properties[name] for name in (GENERATION, EPOCH)}
        former, self._properties = self._properties, known
        self._theirs = link.remote_unsettled or {}
        self._resumes = bool(self._under_way)
        if self._resumes:
            assert former[GENERATION] == known[GENERATION] and link.remote_unsettled is not None, "a link is forgotten"
        self.go_on()

    def _resume(self, link: Link) -> None:
        """Continue with the delivery under way."""
        self._resumes, tag = False, b"%d" % self._sent
        theirs = self._theirs[tag].state if tag in self._theirs else None
        match step(NO_STATE, theirs):
            case ResumeStep.STATE:
                assert theirs is not None
                link.send(tag, b"", settled=True, resume=True, state=theirs)
                link.connection.wake()
                self._decided(theirs)
            case to_do:
                self._transfer(link, resume=to_do is ResumeStep.WHOLE)

    def due(self) -> None:
        """Send a message, as soon as the publisher may."""
        self._is_due = True
        self.go_on()

    def go_on(self) -> None:
        if self.link is None or not self.link.credit:
            return
        if self._resumes:
            self._resume(self.link)
        elif self._is_due and not self._under_way:
            self._is_due = False
            self._sent += 1
            self._under_way = b"%d %d" % (self.number, self._sent)
            self.account.sent[self._under_way] = trio.current_time()
            self._transfer(self.link)

    def _transfer(self, link: Link, *, resume: bool = False) -> None:
        link.send(b"%d" % self._sent, data_message(self._under_way), resume=resume)
        link.connection.wake()

    def told(self, link: Link, dispositions: Dispositions) -> None:
        for handle, state, _ in dispositions:
            if state and link is self.link:
                link.settle_many([handle])
                self._decided(state)

    def _decided(self, state: int) -> None:
        if state == ACCEPTED:
            self.account.accepted.add(self._under_way)
        else:
            self.account.refused += 1
        self._under_way = b""
        self.go_on()

    @property
    def is_idle(self) -> bool:
        return not (self._is_due or self._under_way)


class Client(Handler):
    """One connection for some publishers."""

    def __init__(self, publishers: Sequence[Publisher]) -> None:
        self._publishers = publishers

    def on_open(self, connection: Connection) -> None:
        for publisher in self._publishers:
            publisher.attach(connection)

    def on_attached(self, link: Link) -> None:
        link.context.attached(link)

    def on_credit(self, link: Link) -> None:
        if link is link.context.link:
            link.context.go_on()

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        link.context.told(link, dispositions)

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        raise AssertionError(f"{link.name} is detached: {condition}")


async def publish(publishers: Sequence[Publisher], number: int, mesh: RunningMesh) -> None:
    """Serve these publishers. When their connection has ended, continue at the next router."""
    container, routers = f"publishers-{number}", cycle(routers_of(mesh, number))

    def asked(link: Link) -> None:
        link.answer_echo()
        link.connection.wake()

    while True:
        client, at = Client(publishers), mesh.address(next(routers))
        connection = Connection(client, container=container, server=False, idle_timeout=IDLE_S, asked=asked)
        connection.open()
        try:
            stream = await trio.open_tcp_stream(at.host, at.port)
        except OSError:
            await trio.sleep(LOOK_S)
        else:
            await serve(stream, connection)
        for publisher in publishers:
            publisher.link = None


async def pace(publishers: Sequence[Publisher], rate: float) -> None:
    """Let publishers send in turn, `rate` messages a second."""
    began, number = trio.current_time(), 0
    while True:
        await trio.sleep(LOOK_S)
        while number < (trio.current_time() - began) * rate:
            publishers[number % len(publishers)].due()
            number += 1


# consumers


async def consume(number: int, mesh: RunningMesh, account: Account, ready: Counter[str]) -> None:
    queue, name = account.queues[number], f"consumer-{number}"
    urls = [url(mesh, router) for router in routers_of(mesh, number)]
    async with Subscriber(urls, queue, container=name, link=name, idle=IDLE_S, moves=False) as consumer:
        ready[queue] += 1
        async for delivery in consumer:
            account.takes(queue, delivery.body)
            await delivery.accept()


async def fill(mesh: RunningMesh, queues: Sequence[str]) -> None:
    """Put one message into each of these queues."""
    async with trio.open_nursery() as nursery:
        clients = Clients(nursery)
        for first in range(0, len(queues), AT_ONCE):
            publisher = await clients.publisher(mesh.address(mesh.routers[0]), "", f"filling-{first}")
            for queue in queues[first : first + AT_ONCE]:
                publisher.send_message(write_message({"properties": {"to": queue}, "data": bytes(FILLING)}))
            await clients.until(lambda filling=publisher: len(filling.accepted) == filling.sent)  # type: ignore[misc]
            client_of(publisher).close()
        nursery.cancel_scope.cancel()


# sets


async def leaders(management: Management) -> dict[str, str]:
    """Set -> the router that leads it according to this router; empty if it knows none."""
    rows = await management.query(SET.managed, ("name", "leader"))
    return {row["name"]: row["leader"] or "" for row in rows}


LEADS: Final = re.compile(r"^(\S+ \S+) INFO set (\S+): this router leads it, in term \d+$", re.MULTILINE)


def led_since(mesh: RunningMesh, routers: Sequence[str], since: float) -> dict[str, float]:
    """Set -> seconds from this wall time until one of these routers led it, according to its log."""
    found: dict[str, float] = {}
    for router in routers:
        for text, set_ in LEADS.findall(mesh.log(router)):
            after = datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").timestamp() - since
            if after > 0:
                found[set_] = min(found.get(set_, after), after)
    return found


# the measurements


def memory(mesh: RunningMesh) -> list[float]:
    """The memory of each router, in KiB."""
    return [psutil.Process(mesh.pid(router)).memory_info().rss / KIB for router in mesh.routers]


async def measured(mesh: RunningMesh, asked: argparse.Namespace) -> bool:
    """Returns whether no message was lost or doubled."""
    await trio.sleep(REST_S)
    before = memory(mesh)
    names = [f"queue/{number}" for number in range(asked.queues)]
    told = await declare(mesh, names, DECLARES_S)
    await check(mesh, told)
    assert len(told.ids) == asked.queues, told.refused[:3]
    await trio.sleep(REST_S)
    each = [(now - was) / asked.queues for now, was in zip(memory(mesh), before, strict=True)]
    print(f"{asked.queues:,} queues: {', '.join(f'{one:.2f}' for one in each)} KiB each", flush=True)
    account = Account(names[:: max(len(names) // asked.used, 1)][: asked.used])
    if asked.filled:
        before = memory(mesh)
        await fill(mesh, [name for name in names if name not in account.queues][: asked.filled])
        await trio.sleep(REST_S)
        each = [(now - was) / asked.filled for now, was in zip(memory(mesh), before, strict=True)]
        print(f"a message in each of {asked.filled:,}: {', '.join(f'{one:.2f}' for one in each)} KiB each", flush=True)
    publishers = [Publisher(number, account.queues[number % asked.used], account) for number in range(asked.publishers)]
    async with trio.open_nursery() as nursery:
        ready = Counter[str]()
        for number in range(asked.used):
            nursery.start_soon(consume, number, mesh, account, ready)
        for number in range(asked.connections):
            nursery.start_soon(publish, publishers[number :: asked.connections], number, mesh)
        while len(ready) < asked.used or any(publisher.link is None for publisher in publishers):
            await trio.sleep(LOOK_S)
        print(f"all are attached: {', '.join(f'{one:,.0f}' for one in memory(mesh))} KiB", flush=True)
        async with trio.open_nursery() as pacing:
            pacing.start_soon(pace, publishers, asked.rate)
            for _ in range(asked.kills):
                await trio.sleep(REST_S)
                await one_kill(mesh, account)
            pacing.cancel_scope.cancel()
        while account.lost or not all(publisher.is_idle for publisher in publishers):
            await trio.sleep(LOOK_S)
        await trio.sleep(1)  # time for the second copy of a message
        nursery.cancel_scope.cancel()
    counts = f"{len(account.sent):,} sent, {len(account.accepted):,} accepted, {account.refused} refused"
    print(f"{counts}, {account.lost} lost, {account.doubled} doubled", flush=True)
    return not account.lost and not account.doubled


async def one_kill(mesh: RunningMesh, account: Account) -> None:
    async with Management([url(mesh, mesh.routers[0])]) as management:
        while "" in (led := await leaders(management)).values():
            await trio.sleep(LOOK_S)
    (victim, count), *_ = Counter(led.values()).most_common(1)
    sets = sets_of(mesh.directory.topology())
    theirs = [queue for queue in account.queues if (plan := sets.plan_of(queue)) and led[plan.name] == victim]
    others = [router for router in mesh.routers if router != victim]
    clock, spent = Clock([mesh.pid(router) for router in others]), time.process_time()
    wall, since = time.time(), trio.current_time()
    mesh.signal(victim, signal.SIGKILL)
    account.killed(since)
    while len(account.first) < len(account.queues):
        await trio.sleep(LOOK_S)
    found = led_since(mesh, others, wall)
    led_s = max(found[set_] for set_, router in led.items() if router == victim)
    waits = {queue: at - since for queue, at in account.first.items()}
    print(
        f"{victim} is killed, which led {count} of {len(led)} sets: all are led again after {led_s:.2f} s", flush=True
    )
    for what, queues in (("of these sets", theirs), ("of all sets", account.queues)):
        took = [waits[queue] for queue in queues]
        median, last = statistics.median(took), max(took)
        print(f"    first delivery of {len(took)} queues {what}: median {median:.2f} s, last {last:.2f} s", flush=True)
    print(f"    {clock.look()}, of the clients {time.process_time() - spent:.1f}", flush=True)
    await mesh.ending(victim)
    await mesh.start(victim)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.many_queues", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--queues", type=int, default=10_000, help="(default: %(default)s)")
    parser.add_argument("--filled", type=int, default=0, help="queues with a message and no consumer (default: none)")
    parser.add_argument("--used", type=int, default=100, help="queues in use (default: %(default)s)")
    parser.add_argument("--publishers", type=int, default=2000, help="(default: %(default)s)")
    parser.add_argument("--connections", type=int, default=200, help="of the publishers (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=200, help="messages a second of all (default: %(default)g)")
    parser.add_argument("--kills", type=int, default=3, help="(default: %(default)s)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, mesh_in(Path(folder)) as mesh:
        is_whole = trio.run(measured, mesh, asked)
    raise SystemExit(not is_whole)


if __name__ == "__main__":
    main()
