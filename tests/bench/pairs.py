"""`python -m tests.bench.pairs URL... --pairs N --rate N`: the clients of `tests.bench.applied`.

Each pair has a topic. A line on standard input begins a stretch; the process prints the figures of the last stretch as
JSON. At the end of the input it waits for all outcomes and messages, and prints their number and what was wrong.
"""

import argparse
import json
import math
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import trio
from attrs import Factory, define

from failover.client import Handle, Outcome, Publisher, Subscriber

TIMEOUT_S: Final = 60


@define
class Gaps:
    """The longest time without an event of a continuing series."""

    last: float = Factory(time.perf_counter)
    longest: float = 0.0

    def tick(self) -> None:
        now = time.perf_counter()
        self.longest, self.last = max(self.longest, now - self.last), now

    def take_ms(self) -> float:
        """The longest gap in milliseconds. Counts anew from then on."""
        longest = max(self.longest, time.perf_counter() - self.last)
        self.longest = 0.0
        return longest * 1000


class Pair:
    """A publisher and a subscriber of a topic. Each starts at one of the routers."""

    def __init__(self, number: int, urls: list[str]) -> None:
        self._name = f"pair{number}"
        self._urls = [urls[number % len(urls) :] + urls[: number % len(urls)] for number in (number, number + 1)]
        self.sent = 0
        self.got: list[int] = []
        self.refused = 0
        self.accepted, self.delivered = Gaps(), Gaps()
        self._complete = trio.Event()
        self._is_over = False

    def _client(self, kind: Any, urls: list[str]) -> Any:
        return kind(urls, f"topic/{self._name}", container=f"{self._name}-{kind.role}", link="l", timeout=TIMEOUT_S)

    async def subscribe(self, task_status: trio.TaskStatus[None]) -> None:
        subscriber: Subscriber
        async with self._client(Subscriber, self._urls[0]) as subscriber:
            task_status.started()
            async for delivery in subscriber:
                await delivery.accept()
                self.got.append(int(delivery.body))
                self.delivered.tick()
                if self._is_over and len(self.got) >= self.sent:
                    self._complete.set()

    async def publish(self, period_s: float, over: trio.Event) -> None:
        publisher: Publisher
        sending, handles = trio.open_memory_channel[Handle](math.inf)  # `send` bounds it
        async with self._client(Publisher, self._urls[1]) as publisher, trio.open_nursery() as nursery:
            nursery.start_soon(self._await_outcomes, handles)
            async with sending:
                due = trio.current_time()
                while not over.is_set():
                    sending.send_nowait(await publisher.send(b"%d" % self.sent))
                    self.sent += 1
                    due += period_s
                    await trio.sleep_until(due)
        self._is_over = True

    async def _await_outcomes(self, handles: trio.MemoryReceiveChannel[Handle]) -> None:
        async for handle in handles:
            self.refused += await handle.outcome() is not Outcome.ACCEPTED
            self.accepted.tick()

    async def complete(self) -> None:
        """Wait until as many messages have come as were sent, or more. A message is accepted only when it has come."""
        if len(self.got) < self.sent:
            await self._complete.wait()

    @property
    def wrong(self) -> int:
        """The number of messages that were refused, lost, doubled, or out of order."""
        misplaced = sum(place != number for place, number in enumerate(self.got))
        return self.refused + misplaced + abs(self.sent - len(self.got))


async def lines() -> AsyncIterator[None]:
    rest = b""
    async with trio.lowlevel.FdStream(0) as stream:
        async for data in stream:
            *whole, rest = (rest + data).split(b"\n")
            for _ in whole:
                yield


def tell(**said: Any) -> None:
    print(json.dumps(said), flush=True)


async def run(urls: list[str], count: int, rate: float) -> None:
    pairs, over = [Pair(number, urls) for number in range(count)], trio.Event()
    kinds = [pair.accepted for pair in pairs], [pair.delivered for pair in pairs]
    async with trio.open_nursery() as subscribers:
        for pair in pairs:
            await subscribers.start(pair.subscribe)
        async with trio.open_nursery() as publishers:
            for pair in pairs:
                publishers.start_soon(pair.publish, count / rate, over)
            async for _ in lines():
                accepted, delivered = ([gaps.take_ms() for gaps in of_kind] for of_kind in kinds)
                tell(accepted_ms=max(accepted), delivered_ms=max(delivered))
            over.set()
        with trio.move_on_after(TIMEOUT_S):
            for pair in pairs:
                await pair.complete()
        tell(sent=sum(pair.sent for pair in pairs), wrong=sum(pair.wrong for pair in pairs))
        subscribers.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pairs", description=__doc__)
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--pairs", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="Messages a second, of all pairs.")
    options = parser.parse_args()
    trio.run(run, options.urls, options.pairs, options.rate)


if __name__ == "__main__":
    main()
