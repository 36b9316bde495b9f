"""A subscriber: takes messages, and says what became of each (protocol sections 1 and 5).

With settle mode second a delivery is forgotten when the router has settled it, with first when we answer. Credit is
given for what was answered, not for what was settled: settlement waits for other subscribers, and could wait for us.
"""

from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import trio

from failover.client.endpoint import Endpoint
from failover.client.outcome import LOGGED, STATE_OF, Outcome
from router.amqp.connection import Connection
from router.amqp.handler import RCV_FIRST, RCV_SECOND
from router.amqp.handler import Handle as EngineHandle
from router.amqp.link import Link
from router.amqp.message import application_properties, body_of
from topic.journal import Event

SETTLE_S = 2.0  # how long an orderly end waits for the router to settle what we answered


class Delivery:
    """One message: `key` is its delivery-tag, its name in the whole mesh. To be answered once."""

    __slots__ = ("_answered", "_handle", "_subscriber", "key", "message")

    def __init__(self, subscriber: "Subscriber", handle: EngineHandle, key: bytes, message: bytes) -> None:
        self._subscriber = subscriber
        self._handle = handle  # None: the router has settled it, or does not want an answer
        self._answered = False
        self.key = key
        self.message = message  # as it was transferred

    @property
    def body(self) -> bytes:
        """Raises PeerError if the message has neither data nor text for a body."""
        return body_of(self.message)

    @property
    def properties(self) -> dict[str, Any]:
        return application_properties(self.message)

    async def accept(self) -> None:
        await self._subscriber._answer(self, Outcome.ACCEPTED)

    async def reject(self, condition: str = "amqp:not-allowed", description: str = "") -> None:
        await self._subscriber._answer(self, Outcome.REJECTED, condition, description)

    async def release(self) -> None:
        await self._subscriber._answer(self, Outcome.RELEASED)


class Subscriber(Endpoint):
    """`async with Subscriber(urls, address, container=..., link=...) as s: async for delivery in s: ...`

    Leaving the block ends the subscription.
    """

    role: ClassVar[str] = "subscriber"

    def __init__(
        self,
        urls: Sequence[str],
        address: str,
        *,
        container: str,
        link: str,
        credit: int = 100,  # deliveries transferred and not answered
        settle: Literal["first", "second"] = "second",
        log: Path | None = None,
    ) -> None:
        super().__init__(urls, address, container=container, link=link, log=log)
        assert credit > 0
        self._credit = credit
        self._owed = 0  # credit to be given again
        self._settle = settle
        self._waiting: deque[Delivery] = deque()
        self._unsettled: dict[EngineHandle, Delivery] = {}

    def _attach(self, connection: Connection) -> Link:
        mode = RCV_SECOND if self._settle == "second" else RCV_FIRST
        link = connection.receiver(self.identity.link, self.identity.address, rcv_settle_mode=mode)
        link.flow(self._credit)
        return link

    def _granted(self) -> None:
        if self._log is not None:
            self._log.attached(self._settle, 0, None)

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        """The next message. Raises ClientError when the link is lost: what was not answered comes again elsewhere."""
        if self._waiting:
            await trio.lowlevel.checkpoint()
        while not self._waiting:
            await self._change()
        delivery = self._waiting.popleft()
        self._note(Event.DELIVERED, [delivery.key])
        return delivery

    async def _answer(self, delivery: Delivery, outcome: Outcome, condition: str = "", description: str = "") -> None:
        assert not delivery._answered
        delivery._answered = True
        self._note(Event.PROCESSED, [delivery.key], outcome)  # it was, whether the router hears of it or not
        self._check()
        handle, first = delivery._handle, self._settle == "first"
        if handle is not None:
            if outcome is Outcome.REJECTED:
                self._link.reject(handle, condition, description, settle=first)
            else:
                self._link.update(handle, STATE_OF[outcome], settle=first)
            if first:
                self._forget([handle])
        self._replenish()
        self._link.connection.wake()

    def _forget(self, handles: Collection[EngineHandle]) -> None:
        """Settled, by the router or by us: the handles mean nothing any more."""
        settled = [self._unsettled.pop(handle) for handle in handles]
        for delivery in settled:
            delivery._handle = None
        if keys := [delivery.key for delivery in settled if delivery._answered]:
            self._note(Event.SETTLED, keys)

    def _replenish(self) -> None:
        self._owed += 1
        if self._owed * 2 >= self._credit:
            self._link.flow(self._owed)
            self._owed = 0

    async def _finish(self) -> None:
        with trio.move_on_after(SETTLE_S):
            while self._error is None and any(delivery._answered for delivery in self._unsettled.values()):
                await self._news.park()

    def on_transfers(
        self, link: Link, deliveries: list[EngineHandle], tags: list[bytes], messages: list[bytes], settled: list[bool]
    ) -> None:
        for handle, tag, message in zip(deliveries, tags, messages, strict=True):
            delivery = Delivery(self, handle, tag, message)
            self._waiting.append(delivery)
            if handle is not None:
                self._unsettled[handle] = delivery
        self._news.unpark_all()

    def on_dispositions(
        self, link: Link, deliveries: list[EngineHandle], states: list[int], settled: list[bool]
    ) -> None:
        done = [handle for handle, is_settled in zip(deliveries, settled, strict=True) if is_settled]
        self._forget(done)
        link.settle_many(done)
        self._news.unpark_all()

    def _note(self, event: Event, keys: list[bytes], outcome: Outcome = Outcome.UNKNOWN) -> None:
        if self._log is not None:
            self._log.deliveries(event, keys, LOGGED[outcome])
