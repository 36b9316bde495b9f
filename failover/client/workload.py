"""A load for chaos and for `oncemesh bench`: a publisher that keeps an even pace, and a subscriber that accepts every
message.

Both report each event to an account at once. The subscriber tells the account of a delivery before it accepts the
delivery. If the store has transactions, one transaction has both the account's entry and the acceptance.
"""

import math
import time
from collections.abc import Callable
from typing import Protocol

import trio

from failover.client import Delivery, Handle, Outcome, Publisher, Subscriber

TICK_S = 0.02
"""The seconds between two bursts of messages that the publisher sends. The work of the mesh for a burst is little more
than its work for one message."""
ARREARS_S = 1.0
"""If the publisher could send nothing for a time, it then sends only the messages that were due in the last `ARREARS_S`
seconds, and skips earlier messages."""
AT_ONCE = 1000
LEAST_SLEEP_S = 0.005


class LoadAccount(Protocol):
    """Takes the events of a publisher. `number` is the number of the message. `due` is the time when it was to be sent,
    in ns of the monotonic clock."""

    def sent(self, number: int, due: int) -> None: ...

    def told(self, number: int, due: int, outcome: Outcome) -> None: ...


class Pace:
    """The times when messages are due, in ns. There are `rate` messages per second. The first one is due one step after
    `since`. `number` is the number of the next message."""

    def __init__(
        self,
        rate: float | None,
        number: int = 0,
        most: float = math.inf,
        *,
        since: int | None = None,
        until: int | None = None,
        arrears: float = ARREARS_S,
        tick: float = TICK_S,
    ) -> None:
        """`most` is the number of messages. `until` is the time when the pace ends, in ns. `arrears` and `tick` are in
        seconds. Without a rate, a message is always due."""
        self.number = number
        self._until = until
        self._most = most
        self._step = round(1e9 / rate) if rate is not None else 0
        self._since = since if since is not None else time.monotonic_ns()
        # The arrears cover at least two steps: if they covered less than one step, no message would ever be due.
        self._arrears = max(arrears * 1e9, 2 * self._step)
        self._tick = tick

    def due(self, now: int) -> list[int]:
        """The times at which messages were due, for all messages that are due by now."""
        if self.is_over(now):
            assert self._until is not None
            now = self._until - 1
        if not self._step:
            return [now]
        if now - self._since > self._arrears:
            self._since = round(now - self._arrears)
        count, began = max(0, (now - self._since) // self._step), self._since
        self._since += count * self._step
        return [began + at * self._step for at in range(1, 1 + int(min(count, self._most - self.number)))]

    def is_over(self, now: int) -> bool:
        return self._until is not None and now >= self._until

    async def rest(self) -> None:
        """Sleep until the next tick. Without ticks, sleep until the next message is due."""
        if self._step:
            await trio.sleep(self._tick or max(0, self._since + self._step - time.monotonic_ns()) / 1e9)


async def publish(
    publisher: Publisher, pace: Pace, make: Callable[[int, int], bytes], account: LoadAccount, finish: trio.Event
) -> None:
    """Publish numbered messages at this pace. The numbers go on from the last number in the publisher's store.

    `make` returns the body of a message, for its number and the time when it is due. The function stops sending when
    `finish` is set or the pace is over, and returns when all outcomes are known. It awaits outcomes in the order of
    sending, so `account` gets an outcome only after all earlier outcomes.
    """
    to_await, awaited = trio.open_memory_channel[tuple[Handle, int]](AT_ONCE)
    async with trio.open_nursery() as nursery, to_await:
        nursery.start_soon(_tell, awaited, account)
        for handle in publisher.resumed:
            await to_await.send((handle, time.monotonic_ns()))
        while not finish.is_set():
            now = time.monotonic_ns()
            for due in pace.due(now):
                handle = await publisher.send(make(pace.number, due))
                assert number_of(handle) == pace.number
                account.sent(pace.number, due)
                pace.number += 1
                await to_await.send((handle, due))
            if pace.is_over(now):
                return
            await pace.rest()


def number_of(handle: Handle) -> int:
    """The number of the delivery, which the client uses as its tag."""
    return int.from_bytes(handle.tag, "big")


async def _tell(awaited: "trio.MemoryReceiveChannel[tuple[Handle, int]]", account: LoadAccount) -> None:
    async for handle, due in awaited:
        account.told(number_of(handle), due, await handle.outcome())


async def subscribe(subscriber: Subscriber, received: Callable[[Delivery], None], think: float = 0.0) -> None:
    """Accept every message, and take `think` seconds for each. A sleep takes at least a millisecond, so the task adds
    short times up, and then sleeps once."""
    busy = 0.0
    async for delivery in subscriber:
        if think:
            now = trio.current_time()
            busy = max(busy, now) + think
            if busy > now + LEAST_SLEEP_S:
                await trio.sleep_until(busy)
        received(delivery)
        await delivery.accept()
