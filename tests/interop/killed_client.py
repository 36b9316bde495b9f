"""A client of another make in a chaos run. Its input and output are those of `failover.chaos.client`.

    python -m tests.interop.killed_client rhea|proton SPEC        # JSON of `failover.chaos.client.Spec`

rhea resumes by hand, as docs/clients.md says: it brings its unsettled map to any router, and so is promised exactly
once. proton reconnects as its documentation teaches: it has no map. Its publisher sends unanswered messages again, and
its consumer gets messages under way again. Both keep the same account as our clients.
"""

import json
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import cycle
from typing import Any

import trio
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from failover.chaos.client import BEGIN, COUNT_S, FINISH, GAVE_UP, LINK, Spec, tell
from failover.chaos.ledger import Ledger, body, open_database
from failover.client import Outcome, SqliteStore
from failover.client.state.store import Added, Removed, tag_of
from failover.client.workload import TICK_S, Pace
from router.mesh.quantities import Address
from tests.interop.resuming import Life, PublishingLife, ResumingLink, RheaPublisher, RheaSubscriber, SubscribingLife
from topic.identity import LinkIdentity

AGAIN_S = 0.1
CREDIT = 100
"""The credit of a consumer, and the most messages that a publisher has in doubt."""


class Account:
    """The messages that a client has sent and processed, and their outcomes, stored as `failover.chaos.ledger` stores
    them.
    """

    def __init__(self, spec: Spec, connection: sqlite3.Connection) -> None:
        self._identity = LinkIdentity(spec.name, LINK, spec.address)
        self._connection = connection
        self._store = SqliteStore(connection)
        self._ledger = Ledger(connection)
        before = self._store.load("publisher", self._identity)
        self.number = before.next_number
        """The number of the next message, which continues a former life of the process."""
        self.doubtful = [int.from_bytes(tag) for tag in before.unsettled]
        """The numbers of messages without an outcome."""

    def sent(self, number: int) -> None:
        """Note a message that is sent for the first time."""
        self._ledger.sent(number, 0)
        self._store.write("publisher", self._identity, [Added(number, b"")])

    def told(self, number: int, outcome: Outcome) -> None:
        self._ledger.told(number, 0, outcome)
        self._store.write("publisher", self._identity, [Removed(tag_of(number))])

    def processed(self, message: bytes) -> None:
        self._ledger.processed(message)
        self._connection.commit()

    def tell(self) -> None:
        tell(counts=self._ledger.counts)


# rhea


class Roaming(ResumingLink):
    """Attaches at the first router that answers, again and again."""

    routers: Iterator[Address]
    resumed = False
    """Whether the router has answered the map of this life."""

    async def find(self) -> None:
        while not self.life.attached or self.life.closed:
            await self.vanish()
            await self.attach(next(self.routers), credit=CREDIT)
            await trio.sleep(0 if self.life.attached else AGAIN_S)

    async def news(self) -> None:
        """Wait for an event, or for a moment."""
        with trio.move_on_after(TICK_S):
            await self.life.changed.wait()

    def _hear(self, life: Life, event: str, **what: Any) -> None:
        if event == "attached":
            tell(attached=what["router"])
        elif event in ("closed", "disconnected"):
            tell(lost=event)
        super()._hear(life, event, **what)


class Publisher(Roaming, RheaPublisher):
    """A publisher whose tags begin with the number of the message."""

    account: Account

    def _on_outcome(self, life: PublishingLife, tag: str, outcome: str) -> None:
        if self.unsettled[tag] is None:
            self.account.told(int(tag.split()[1]), Outcome(outcome))
        super()._on_outcome(life, tag, outcome)

    async def play(self, spec: Spec) -> None:
        """Publish until all messages have their outcomes."""
        pace = Pace(spec.rate, 0, spec.count)
        while pace.number < spec.count or self.unsettled:
            if self.life.closed:
                await self.find()
                await self.resume()
            await self.settle(*self._told())
            room = CREDIT - len(self.unsettled)
            for _ in pace.due(time.monotonic_ns()) if room > 0 and self.life.sendable else ():
                self.account.sent(pace.number)
                await self.send(body(spec.name, pace.number, 0).decode())
                pace.number += 1
            await self.news()


class Subscriber(Roaming, RheaSubscriber):
    answers = True
    account: Account

    def __init__(self, nursery: trio.Nursery, container: str, address: str) -> None:
        super().__init__(nursery, container, address)
        self._due: deque[tuple[Life, str, str]] = deque()

    def _on_transfer(self, life: SubscribingLife, **what: Any) -> None:
        super()._on_transfer(life, **what)
        if self.unsettled.get(what["tag"], "settled") is None:
            self._due.append((life, what["tag"], what["body"]))

    async def play(self, finish: trio.Event) -> None:
        """Consume until `finish` is set."""
        while not finish.is_set():
            if self.life.closed:
                await self.find()
            while self._due:
                life, tag, message = self._due.popleft()
                if life is self.life:  # otherwise it comes again, as our map names it
                    self.unsettled[tag] = "accepted"
                    self.account.processed(message.encode())
                    await life.tell("accept", tag=tag)
            await self.news()


async def rhea(spec: Spec, account: Account) -> None:
    told = {BEGIN: trio.Event(), FINISH: trio.Event()}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_obey, told, nursery.cancel_scope)
        nursery.start_soon(_count, account)
        link = (Publisher if spec.role == "publisher" else Subscriber)(nursery, spec.name, spec.address)
        link.account, link.routers = account, cycle(Address.parse(url.partition("://")[2]) for url in spec.urls)
        await link.attach(next(link.routers), credit=CREDIT)
        if isinstance(link, Publisher):
            await told[BEGIN].wait()
            await link.play(spec)
        else:
            await link.play(told[FINISH])
        await link.end()
        nursery.cancel_scope.cancel()


async def _obey(told: Mapping[bytes, trio.Event], scope: trio.CancelScope) -> None:
    """Obey orders on standard input. Its end means that the process which started us is gone."""
    async with trio.lowlevel.FdStream(sys.stdin.fileno()) as orders:
        async for order in orders:
            for line in order.splitlines(keepends=True):
                told[bytes(line)].set()
    scope.cancel()


async def _count(account: Account) -> None:
    while True:
        await trio.sleep(COUNT_S)
        account.tell()


# proton


class Every:
    """Calls a function again and again."""

    def __init__(self, seconds: float, do: Callable[[], object]) -> None:
        self._seconds = seconds
        self._do = do

    def on_timer_task(self, event: Any) -> None:
        self._do()
        event.container.schedule(self._seconds, self)


class Plain(MessagingHandler):
    def __init__(self, spec: Spec, account: Account) -> None:
        super().__init__(auto_accept=False, prefetch=CREDIT)
        self.spec = spec
        self.account = account
        self.attached = False
        self._orders = EventInjector()

    def on_start(self, event: Any) -> None:
        self._container = event.container
        self.connection = event.container.connect(urls=list(self.spec.urls))
        self.attach(event.container)
        event.container.selectable(self._orders)
        threading.Thread(target=self._obey, daemon=True).start()
        event.container.schedule(COUNT_S, Every(COUNT_S, self.account.tell))

    def attach(self, container: Container) -> None:
        raise NotImplementedError

    def _obey(self) -> None:
        for line in sys.stdin:
            self._orders.trigger(ApplicationEvent(line.strip()))
        self._orders.trigger(ApplicationEvent("abandoned"))

    def on_abandoned(self, event: Any) -> None:
        sys.exit(1)

    def on_link_opened(self, event: Any) -> None:
        self.attached = True
        tell(attached=event.connection.remote_properties["router"])

    def on_disconnected(self, event: Any) -> None:
        self.attached = False
        tell(lost="disconnected")

    def leave(self) -> None:
        self.account.tell()
        self._orders.close()
        self.connection.close()

    def on_connection_closed(self, event: Any) -> None:
        sys.exit(0)


class PlainPublisher(Plain):
    """A publisher that sends messages without an answer again."""

    def attach(self, container: Container) -> None:
        self._sender = container.create_sender(self.connection, self.spec.address)
        self._pace: Pace | None = None
        self._doubtful: dict[str, int] = {}
        self._again = deque(self.account.doubtful)

    def on_begin(self, event: Any) -> None:
        self._pace = Pace(self.spec.rate, self.account.number, self.spec.count)
        self._container.schedule(TICK_S, Every(TICK_S, self.pump))

    def pump(self) -> None:
        assert self._pace is not None
        has_room = self.attached and self._sender.credit > 0 and len(self._doubtful) < CREDIT
        while self._again and has_room:
            self._send(self._again.popleft())
        for _ in self._pace.due(time.monotonic_ns()) if has_room else ():
            self.account.sent(self._pace.number)
            self._send(self._pace.number)
            self._pace.number += 1
        if self._pace.number == self.spec.count and not self._doubtful and not self._again:
            self.leave()

    def _send(self, number: int) -> None:
        sent: Any = self._sender.send(Message(body(self.spec.name, number, self.spec.size), inferred=True))
        self._doubtful[sent.tag] = number

    def on_disconnected(self, event: Any) -> None:
        super().on_disconnected(event)
        self._again.extend(self._doubtful.values())
        self._doubtful.clear()

    def on_accepted(self, event: Any) -> None:
        self._told(event, Outcome.ACCEPTED)

    def on_rejected(self, event: Any) -> None:
        self._told(event, Outcome.REJECTED)

    def on_released(self, event: Any) -> None:
        self._told(event, Outcome.RELEASED)

    def _told(self, event: Any, outcome: Outcome) -> None:
        number = self._doubtful.pop(event.delivery.tag, None)
        if number is not None:  # otherwise proton has resent on its own what it still had
            self.account.told(number, outcome)


class PlainSubscriber(Plain):
    def attach(self, container: Container) -> None:
        container.create_receiver(self.connection, self.spec.address)

    def on_message(self, event: Any) -> None:
        self.account.processed(bytes(event.message.body))
        self.accept(event.delivery)

    def on_finish(self, event: Any) -> None:
        self.leave()


def main(make: str, spec: Spec) -> None:
    with closing(open_database(spec.state)) as connection:
        account = Account(spec, connection)
        if make == "rhea":
            trio.run(rhea, spec, account)
        else:
            plain = (PlainPublisher if spec.role == "publisher" else PlainSubscriber)(spec, account)
            container = Container(plain)
            container.container_id = spec.name
            try:
                container.run()
            except AttributeError as error:  # proton 0.40 may fail so while it reconnects: its transport is None
                tell(gave_up=str(error))
                sys.exit(GAVE_UP)
        account.tell()


if __name__ == "__main__":
    main(sys.argv[1], Spec(**json.loads(sys.argv[2])))
