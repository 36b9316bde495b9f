"""The client for asyncio. A program awaits each method, in any event loop.

The client has a trio loop in a thread of its own, so it stays attached while the event loop is busy. If a task is
cancelled while it awaits a method, the method is cancelled, too.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from outcome import Error

from failover.client.delivery import Delivery
from failover.client.endpoint import Options
from failover.client.handle import Handle
from failover.client.link_events import Event, Listener
from failover.client.outcome import Outcome
from failover.client.threaded.thread import Call, ClientThread, Ended
from failover.client.threaded.views import DeliveryView, HandleView, PublisherView, SubscriberView

Result = TypeVar("Result")


async def _result(
    begin: Callable[[Call[Result]], None],
    cancel: Callable[[Call[Result]], None],
    undo: Callable[[Result], None] = lambda result: None,
) -> Result:
    """Begin a call, and await its result.

    If the task is cancelled, cancel the call, and raise the cancellation when the call has ended. If the call
    nevertheless has a result, `undo` is called with the result.
    """
    loop = asyncio.get_running_loop()
    results: list[Ended[Result]] = []
    waiter = loop.create_future()

    def done(ended: Ended[Result]) -> None:
        results.append(ended)
        if not waiter.done():
            waiter.set_result(None)

    call: Call[Result] = Call(loop.call_soon_threadsafe, done)
    begin(call)
    try:
        await waiter
    except asyncio.CancelledError:
        cancel(call)
        while not results:
            waiter = loop.create_future()
            with suppress(asyncio.CancelledError):
                await waiter
        if not isinstance(results[0], Error):
            undo(results[0].value)
        raise
    return results[0].unwrap()


class Awaiting:
    """The common part of the clients for asyncio: how a program enters and leaves the block of a client, and how a
    client makes a call."""

    _thread: ClientThread
    _loop: asyncio.AbstractEventLoop
    _events: Listener

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        try:
            await _result(self._thread.enter, self._thread.hurry)
        except BaseException:
            self._thread.join()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await _result(partial(self._thread.leave, failed=error is not None), self._thread.hurry)
        self._thread.join()

    async def _call(
        self, act: Callable[[], Awaitable[Result]], undo: Callable[[Result], None] = lambda result: None
    ) -> Result:
        return await _result(partial(self._thread.start, act=act), self._thread.cancel, undo)

    def _adapted(self, options: Options) -> Options:
        """Return the options with a listener that lets the program's event loop call the program's own listener."""
        events = options.get("events")
        if events is None:
            return options
        self._events = events
        return {**options, "events": self._tell}

    def _tell(self, event: Event) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._events, event)


class AsyncioHandle(HandleView):
    """A message that a publisher has sent, and its outcome once it is known."""

    def __init__(self, handle: Handle, publisher: "AsyncioPublisher") -> None:
        super().__init__(handle)
        self._publisher = publisher

    async def outcome(self) -> Outcome:
        """Wait for the outcome. Raises ConnectionError if the publisher gives up first: the delivery is in doubt."""
        known = self.result
        return known if known is not None else await self._publisher._call(self._handle.outcome)


class AsyncioDelivery(DeliveryView):
    """One message, which the program has to answer once. Its methods raise the errors that `Delivery` raises."""

    def __init__(self, delivery: Delivery, subscriber: "AsyncioSubscriber") -> None:
        super().__init__(delivery)
        self._subscriber = subscriber

    async def accept(self) -> None:
        """State that the message is processed."""
        await self._subscriber._call(self._delivery.accept)

    async def reject(self, condition: str = "amqp:not-allowed", description: str = "") -> None:
        """Refuse the message for good: it does not come again, and its publisher reads the rejection."""
        await self._subscriber._call(partial(self._delivery.reject, condition, description))

    async def release(self) -> None:
        """Let the router deliver the message to this subscriber again, later."""
        await self._subscriber._call(self._delivery.release)

    async def fail(self) -> None:
        """State that the message could not be processed. It comes again later, and counts as failed."""
        await self._subscriber._call(self._delivery.fail)


class AsyncioPublisher(Awaiting, PublisherView):
    """`async with AsyncioPublisher(urls, address, container=..., link=...) as p: handle = await p.send(body)`

    Like `Publisher`, for asyncio.
    """

    @property
    def resumed(self) -> tuple[AsyncioHandle, ...]:
        """The deliveries that the store had when the client started."""
        return tuple(AsyncioHandle(handle, self) for handle in self._client.resumed)

    async def send(self, body: bytes, properties: Mapping[str, Any] | None = None) -> AsyncioHandle:
        """Send a message, as soon as a router has credit for it and fewer than `in_flight` deliveries are unsettled.
        Raises ConnectionError if the publisher gives up first: the message is not sent. A cancelled call may have sent
        the message; `sent` counts it then."""
        return AsyncioHandle(await self._call(partial(self._client.send, body, properties)), self)

    async def send_message(self, message: bytes) -> AsyncioHandle:
        """Send a whole message, in AMQP's encoding, as `send` does."""
        return AsyncioHandle(await self._call(partial(self._client.send_message, message)), self)

    async def drain(self) -> None:
        """Wait until no delivery is unsettled. Raises ConnectionError if the publisher gives up first."""
        await self._call(self._client.drain)

    async def subscribers(self) -> int:
        """The number of subscribers that the address has. From now on the mesh waits for each of them with each
        message."""
        return await self._call(self._client.subscribers)


class AsyncioSubscriber(Awaiting, SubscriberView):
    """`async with AsyncioSubscriber(urls, address, container=..., link=...) as s: async for delivery in s: ...`

    Like `Subscriber`, for asyncio.
    """

    def __aiter__(self) -> AsyncIterator[AsyncioDelivery]:
        return self

    async def __anext__(self) -> AsyncioDelivery:
        """Return the next message. Raises ConnectionError when the subscriber has given up finding a router. If the
        task is cancelled just when a message comes, the next call returns this message."""
        return AsyncioDelivery(await self._call(self._next, self._returned.appendleft), self)

    async def here(self, most: int) -> list[AsyncioDelivery]:
        """Return the messages that have come and wait, but at most `most` of them. The program may answer them together
        (`accept_all`)."""
        deliveries = await self._call(partial(self._here, most), self._return_all)
        return [AsyncioDelivery(delivery, self) for delivery in deliveries]

    async def accept_all(self, deliveries: Sequence[AsyncioDelivery]) -> None:
        """State that these messages are processed, in this order. One commit makes all answers durable."""
        await self._call(partial(self._client.accept_all, [delivery._delivery for delivery in deliveries]))
