"""The load of a soak: a publisher at an even pace, a subscriber that accepts everything; in whichever process.

What they see they tell their ledger at once: a subscriber before it accepts, in one transaction if there is any.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import attrs
import trio

from failover.client import Connected, Event, Handle, Outcome, Publisher, Subscriber
from failover.client.endpoint import Options
from failover.client.store import Store
from tests.soak.accounts import Attachment
from topic.identity import LinkIdentity

LINK = "soak"
SIZE = 100
TICK_S = 0.005
ARREARS_S = 1.0
"""Of time in which nothing could be sent: so much is made up for, what is more is let go."""
AT_ONCE = 1000


@attrs.frozen
class Place:
    """Who a client is and where it attaches: first at the router where it belongs, then at others."""

    name: str
    urls: tuple[str, ...]
    address: str
    log: Path

    @property
    def identity(self) -> LinkIdentity:
        return LinkIdentity(self.name, LINK, self.address)

    def options(self, store: Store | None, attached: Callable[[Attachment], object]) -> Options:
        def listen(event: Event) -> None:
            if isinstance(event, Connected):
                attached(Attachment(event.router, time.monotonic()))

        return {"log": self.log, "store": store, "events": listen}

    def publisher(self, store: Store | None, attached: Callable[[Attachment], object]) -> Publisher:
        return Publisher(self.urls, self.address, container=self.name, link=LINK, **self.options(store, attached))

    def subscriber(self, store: Store | None, attached: Callable[[Attachment], object]) -> Subscriber:
        return Subscriber(self.urls, self.address, container=self.name, link=LINK, **self.options(store, attached))


class PublisherLedger(Protocol):
    def sent(self, number: int) -> None:
        """It is the publisher's to deliver, whatever happens."""

    def told(self, number: int, outcome: Outcome) -> None:
        """What became of it."""


class SubscriberLedger(Protocol):
    def received(self, publisher: str, number: int) -> None:
        """It is accepted next."""


def body(publisher: str, number: int) -> bytes:
    return f"{publisher} {number} ".encode().ljust(SIZE, b".")


def parsed(message: bytes) -> tuple[str, int]:
    publisher, number, _ = message.split(b" ", 2)
    return publisher.decode(), int(number)


async def publish(publisher: Publisher, name: str, ledger: PublisherLedger, pace: "Pace", finish: trio.Event) -> None:
    """From the number where the publisher's store stands on, until told to finish and all outcomes are known.

    Outcomes are awaited in the order of sending: an acceptance counts when all before it are known as well.
    """
    to_await, awaited = trio.open_memory_channel[Handle](AT_ONCE)
    async with trio.open_nursery() as nursery, to_await:
        nursery.start_soon(_tell, awaited, ledger)
        for handle in publisher.resumed:
            await to_await.send(handle)
        while not finish.is_set():
            for _ in range(pace.due(time.monotonic())):
                handle = await publisher.send(body(name, pace.number))
                assert number_of(handle) == pace.number
                ledger.sent(pace.number)
                pace.number += 1
                await to_await.send(handle)
            await trio.sleep(TICK_S)


def number_of(handle: Handle) -> int:
    """The client numbers its deliveries by their tags."""
    return int.from_bytes(handle.tag, "big")


async def _tell(awaited: trio.MemoryReceiveChannel[Handle], ledger: PublisherLedger) -> None:
    async for handle in awaited:
        ledger.told(number_of(handle), await handle.outcome())


async def subscribe(subscriber: Subscriber, ledger: SubscriberLedger) -> None:
    async for delivery in subscriber:
        ledger.received(*parsed(delivery.body))
        await delivery.accept()


class Pace:
    """How many messages are due by now; `number` is that of the next."""

    def __init__(self, rate: float, number: int = 0) -> None:
        self.number = number
        self._rate = rate
        self._since = time.monotonic()

    def due(self, now: float) -> int:
        self._since = max(self._since, now - ARREARS_S)
        count = math.floor((now - self._since) * self._rate)
        self._since += count / self._rate
        return count
