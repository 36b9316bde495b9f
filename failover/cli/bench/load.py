"""The load of `oncemesh bench`: publishers and subscribers of `failover.client` in one process, and what they measure.

Each message carries the time when it was due. With a rate, a latency includes the time for which the message waited for
earlier messages. Without a rate, a message is due when it is sent. Messages that were due in the warm-up do not count.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import trio
from attrs import Factory, define, frozen

from failover.cli.bench.histogram import QUANTILES, Histogram
from failover.client import Delivery, Event, Outcome, Publisher, Subscriber
from failover.client.workload import Pace, publish, subscribe
from router.amqp.sasl.credentials import Credentials

STAMP: Final = 8
"""The number of bytes at the beginning of a body that hold the time when the message was due."""
BUSY: Final = 0.9
"""If the process uses more than this share of a processor, its own speed limits the results."""
MS: Final = 1e6


@frozen
class BenchPlan:
    """The load that a run of bench puts on the mesh.

    `rate` is the number of messages per second of all publishers together. None means as many as possible.
    """

    address: str
    publishers: int
    subscribers: int
    size: int
    rate: float | None
    warm_up_s: float
    duration_s: float


@define
class Measured:
    plan: BenchPlan
    sent: int = 0
    outcomes: dict[str, int] = Factory(dict)
    delivered: int = 0
    acceptance: Histogram = Factory(Histogram)
    """The time from when a message was due until its publisher had the outcome, in ns."""
    delivery: Histogram = Factory(Histogram)
    """The time from when a message was due until a subscriber had the message, in ns."""
    seconds: float = 0.0
    """The seconds from the end of the warm-up until the last outcome."""
    processor_s: float = 0.0
    """The seconds of processor time that this process used in the measured time."""

    @property
    def is_busy(self) -> bool:
        return self.processor_s > BUSY * self.seconds

    def as_json(self) -> dict[str, Any]:
        """The results as JSON. Latencies are in ms (`figures`)."""
        seconds = self.seconds or 1.0
        return {
            "address": self.plan.address,
            "publishers": self.plan.publishers,
            "subscribers": self.plan.subscribers,
            "size": self.plan.size,
            "rate_wanted": self.plan.rate,
            "seconds": round(self.seconds, 3),
            "sent": self.sent,
            "outcomes": self.outcomes,
            "delivered": self.delivered,
            "accepted_per_s": round(self.outcomes.get("accepted", 0) / seconds, 1),
            "delivered_per_s": round(self.delivered / seconds, 1),
            "acceptance_ms": figures(self.acceptance),
            "delivery_ms": figures(self.delivery),
            "client_processor": round(self.processor_s / seconds, 3),
            "client_is_the_limit": self.is_busy,
        }


def figures(histogram: Histogram) -> dict[str, float] | None:
    """The quantiles and the maximum of the latencies, in ms. None if nothing was measured."""
    if not histogram.count:
        return None
    quantiles = {name: histogram.quantile(part) for name, part in QUANTILES.items()}
    return {name: round(value / MS, 3) for name, value in (quantiles | {"max": histogram.most}).items()}


def body_of(due_ns: int, size: int) -> bytes:
    return due_ns.to_bytes(STAMP, "big").ljust(size, b".")


class Load:
    def __init__(
        self, plan: BenchPlan, urls: Sequence[str], credentials: Credentials, events: Callable[[Event], None]
    ) -> None:
        """Make the clients. Their first attaches go to the routers in turn."""
        self.measured = Measured(plan)
        self._plan = plan
        self._urls = urls
        self._credentials = credentials
        self._events = events
        self._from_ns = 0

    async def run(self) -> Measured:
        """Put the load on the mesh until its time is over. Raises the errors of its clients."""

        plan, name = self._plan, f"bench-{time.time_ns():x}"
        async with trio.open_nursery() as readers:
            for number in range(plan.subscribers):
                await readers.start(self._subscribe, self._client(Subscriber, f"{name}-s{number}", number))
            writers = [self._client(Publisher, f"{name}-p{number}", number) for number in range(plan.publishers)]
            begin = time.monotonic_ns()
            self._from_ns = begin + round(plan.warm_up_s * 1e9)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_processor)
                for number, writer in enumerate(writers):
                    nursery.start_soon(self._publish, writer, number, begin)
            self.measured.seconds = (time.monotonic_ns() - self._from_ns) / 1e9
            self.measured.processor_s += time.process_time()
            readers.cancel_scope.cancel()
        return self.measured

    def _client(self, kind: Any, name: str, number: int) -> Any:
        urls = [*self._urls[number % len(self._urls) :], *self._urls[: number % len(self._urls)]]
        # The clients do not move when a router asks for it, because a move would distort the figures.
        options = {"credentials": self._credentials, "events": self._events, "moves": False}
        return kind(urls, self._plan.address, container=name, link="bench", **options)

    async def _watch_processor(self) -> None:
        await trio.sleep((self._from_ns - time.monotonic_ns()) / 1e9)
        self.measured.processor_s = -time.process_time()

    async def _subscribe(self, subscriber: Subscriber, task_status: trio.TaskStatus[None]) -> None:
        async with subscriber:
            task_status.started()
            await subscribe(subscriber, self._received)

    def _received(self, delivery: Delivery) -> None:
        due, now = int.from_bytes(delivery.body[:STAMP], "big"), time.monotonic_ns()
        if self._from_ns <= due <= now:  # a message that was due earlier belongs to the warm-up
            self.measured.delivered += 1
            self.measured.delivery.add(now - due)

    async def _publish(self, publisher: Publisher, number: int, begin: int) -> None:
        """Publish at an even pace. The publishers take turns, so that together they have the rate of the plan."""
        plan, until = self._plan, self._from_ns + round(self._plan.duration_s * 1e9)
        rate = plan.rate / plan.publishers if plan.rate is not None else None
        turn = round((number - plan.publishers) / plan.rate * 1e9) if plan.rate is not None else 0
        pace = Pace(rate, since=begin + turn, until=until, arrears=math.inf, tick=0.0)
        async with publisher:
            await publish(publisher, pace, lambda _, due: body_of(due, plan.size), self, trio.Event())

    def sent(self, number: int, due: int) -> None:
        self.measured.sent += due >= self._from_ns

    def told(self, number: int, due: int, outcome: Outcome) -> None:
        if due >= self._from_ns:
            outcomes = self.measured.outcomes
            outcomes[str(outcome)] = outcomes.get(str(outcome), 0) + 1
            self.measured.acceptance.add(time.monotonic_ns() - due)
