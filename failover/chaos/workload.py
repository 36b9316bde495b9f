"""The load of a run: a publisher at an even pace, a subscriber that accepts everything; in whichever process.

What they see they tell their ledger at once: a subscriber before it accepts, in one transaction if there is any.
Messages are sent in bursts, a tick apart: on the way through the mesh a burst costs little more than one message.
"""

import math
import time

import trio

from failover.chaos.ledger import Ledger
from failover.client import Handle, Publisher, Subscriber

TICK_S = 0.02
ARREARS_S = 1.0
"""Of time in which nothing could be sent: so much is made up for, what is more is let go."""
AT_ONCE = 1000
LEAST_SLEEP_S = 0.005


def body(publisher: str, number: int, size: int) -> bytes:
    return f"{publisher} {number} ".encode().ljust(size, b".")


def parsed(message: bytes) -> tuple[str, int]:
    publisher, number, _ = message.split(b" ", 2)
    return publisher.decode(), int(number)


class Pace:
    """How many messages are due by now, `most` in all; `number` is that of the next."""

    def __init__(self, rate: float, number: int = 0, most: float = math.inf) -> None:
        self.number = number
        self._most = most
        self._rate = rate
        self._since = time.monotonic()

    def due(self, now: float) -> int:
        self._since = max(self._since, now - max(ARREARS_S, 2 / self._rate))  # a slow one is due after all
        count = math.floor((now - self._since) * self._rate)
        self._since += count / self._rate
        return int(max(0, min(count, self._most - self.number)))


async def publish(
    publisher: Publisher, name: str, ledger: Ledger, pace: Pace, finish: trio.Event, size: int = 100
) -> None:
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
                handle = await publisher.send(body(name, pace.number, size))
                assert number_of(handle) == pace.number
                ledger.sent(pace.number)
                pace.number += 1
                await to_await.send(handle)
            await trio.sleep(TICK_S)


def number_of(handle: Handle) -> int:
    """The client numbers its deliveries by their tags."""
    return int.from_bytes(handle.tag, "big")


async def _tell(awaited: trio.MemoryReceiveChannel[Handle], ledger: Ledger) -> None:
    async for handle in awaited:
        ledger.told(number_of(handle), await handle.outcome())


async def subscribe(subscriber: Subscriber, ledger: Ledger, think: float = 0.0) -> None:
    """Each message takes `think` seconds. Short ones are slept for together: a sleep takes a millisecond at least."""
    busy = 0.0
    async for delivery in subscriber:
        if think:
            now = trio.current_time()
            busy = max(busy, now) + think
            if busy > now + LEAST_SLEEP_S:
                await trio.sleep_until(busy)
        ledger.received(*parsed(delivery.body))
        await delivery.accept()
