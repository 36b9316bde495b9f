"""The client for scripts and web workers: each method blocks its thread until the result is there.

Several threads may use one client. Ctrl-C ends a method that waits; at the end of the block it makes the client leave
without waiting for outcomes.
"""

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import trio
from outcome import Error

from failover.client.delivery import Delivery
from failover.client.handle import Handle
from failover.client.outcome import Outcome
from failover.client.threaded.thread import Call, ClientThread, Ended
from failover.client.threaded.views import DeliveryView, HandleView, PublisherView, SubscriberView

Result = TypeVar("Result")


class _Line(Generic[Result]):
    """The thread that makes a call, and waits for its result. While it waits, it runs all functions that the client
    posts to it."""

    def __init__(self) -> None:
        self.call: Call[Result] = Call(self._post, self._done)
        self.ended: Ended[Result] | None = None
        # An interrupt may end a function before it is done. The function then stays in this queue, and runs again.
        self._posted: deque[Callable[[], object]] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_open = True

    def wait(self, cancel: Callable[[Call[Result]], None]) -> Result:
        """Wait for the result, and return it. An interrupt (ctrl-C) cancels the call. When the call has ended,
        this method raises the interrupt again."""
        try:
            try:
                self._serve()
            except BaseException:
                cancel(self.call)
                self._serve()
                raise
        finally:
            self._close()
        assert self.ended is not None
        return self.ended.unwrap()

    def _serve(self) -> None:
        while True:
            while self._posted:
                self._posted[0]()
                self._posted.popleft()
            if self.ended is not None:
                return
            self._bell.get()

    def _close(self) -> None:
        """Called when this thread no longer waits for the call. Refuse further functions, but run the functions that
        the client has posted already. After a second interrupt, the call still runs in the client's thread, and may
        wait for these functions."""
        with self._lock:
            self._is_open = False
        while self._posted:
            self._posted.popleft()()

    def _post(self, act: Callable[[], object]) -> None:
        with self._lock:
            if not self._is_open:
                raise RuntimeError("the caller waits no longer")
            self._posted.append(act)
        self._bell.put(None)

    def _done(self, ended: Ended[Result]) -> None:
        self.ended = ended


async def _within(timeout: float | None, act: Callable[[], Awaitable[Result]]) -> Result:
    if timeout is None:
        return await act()
    try:
        with trio.fail_after(timeout):
            return await act()
    except trio.TooSlowError:
        raise TimeoutError(f"no result within {timeout:g} s") from None


class Blocking:
    """The common part of the clients that block: how a program enters and leaves the block of a client, and how a
    client makes a call."""

    _thread: ClientThread

    def __enter__(self) -> Self:
        line: _Line[None] = _Line()
        self._thread.enter(line.call)
        try:
            line.wait(self._thread.hurry)
        except BaseException:
            self._thread.join()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        line: _Line[None] = _Line()
        self._thread.leave(line.call, failed=error is not None)
        line.wait(self._thread.hurry)
        self._thread.join()

    def _call(
        self,
        act: Callable[[], Awaitable[Result]],
        timeout: float | None = None,
        undo: Callable[[Result], None] = lambda result: None,
    ) -> Result:
        """Make a call, and return its result. After `timeout` seconds, raise TimeoutError. If an exception ends this
        method although the call has a result, `undo` is called with the result."""
        line: _Line[Result] = _Line()
        self._thread.start(line.call, partial(_within, timeout, act))
        try:
            return line.wait(self._thread.cancel)
        except BaseException:
            if line.ended is not None and not isinstance(line.ended, Error):
                undo(line.ended.value)
            raise


class BlockingHandle(HandleView):
    """A message that a publisher has sent, and its outcome once it is known."""

    def __init__(self, handle: Handle, publisher: "BlockingPublisher") -> None:
        super().__init__(handle)
        self._publisher = publisher

    def outcome(self, timeout: float | None = None) -> Outcome:
        """Wait for the outcome. Raises ConnectionError if the publisher gives up first: the delivery is in doubt.
        Raises TimeoutError after `timeout` seconds; the outcome may still come."""
        known = self.result
        return known if known is not None else self._publisher._call(self._handle.outcome, timeout)


class BlockingDelivery(DeliveryView):
    """One message, which the program has to answer once. Its methods raise the errors that `Delivery` raises."""

    def __init__(self, delivery: Delivery, subscriber: "BlockingSubscriber") -> None:
        super().__init__(delivery)
        self._subscriber = subscriber

    def accept(self) -> None:
        """State that the message is processed."""
        self._subscriber._call(self._delivery.accept)

    def reject(self, condition: str = "amqp:not-allowed", description: str = "") -> None:
        """Refuse the message for good: it does not come again, and its publisher reads the rejection."""
        self._subscriber._call(partial(self._delivery.reject, condition, description))

    def release(self) -> None:
        """Let the router deliver the message to this subscriber again, later."""
        self._subscriber._call(self._delivery.release)

    def fail(self) -> None:
        """State that the message could not be processed. It comes again later, and counts as failed."""
        self._subscriber._call(self._delivery.fail)


class BlockingPublisher(Blocking, PublisherView):
    """`with BlockingPublisher(urls, address, container=..., link=...) as p: outcome = p.send(body).outcome()`

    Like `Publisher`, with methods that block.
    """

    @property
    def resumed(self) -> tuple[BlockingHandle, ...]:
        """The deliveries that the store had when the client started."""
        return tuple(BlockingHandle(handle, self) for handle in self._client.resumed)

    def send(
        self, body: bytes, properties: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> BlockingHandle:
        """Send a message, as soon as a router has credit for it and fewer than `in_flight` deliveries are unsettled.
        Raises ConnectionError if the publisher gives up first, and TimeoutError after `timeout` seconds: the message is
        not sent."""
        return BlockingHandle(self._call(partial(self._client.send, body, properties), timeout), self)

    def send_message(self, message: bytes, timeout: float | None = None) -> BlockingHandle:
        """Send a whole message, in AMQP's encoding, as `send` does."""
        return BlockingHandle(self._call(partial(self._client.send_message, message), timeout), self)

    def drain(self, timeout: float | None = None) -> None:
        """Wait until no delivery is unsettled. Raises ConnectionError if the publisher gives up first."""
        self._call(self._client.drain, timeout)

    def subscribers(self) -> int:
        """The number of subscribers that the address has. From now on the mesh waits for each of them with each
        message."""
        return self._call(self._client.subscribers)


class BlockingSubscriber(Blocking, SubscriberView):
    """`with BlockingSubscriber(urls, address, container=..., link=...) as s: for delivery in s: ...`

    Like `Subscriber`, with methods that block.
    """

    def __iter__(self) -> Iterator[BlockingDelivery]:
        return self

    def __next__(self) -> BlockingDelivery:
        """Return the next message. Raises ConnectionError when the subscriber has given up finding a router."""
        return self.receive()

    def receive(self, timeout: float | None = None) -> BlockingDelivery:
        """Return the next message. Raises TimeoutError if none comes within `timeout` seconds."""
        return BlockingDelivery(self._call(self._next, timeout, self._returned.appendleft), self)

    def here(self, most: int) -> list[BlockingDelivery]:
        """Return the messages that have come and wait, but at most `most` of them. The program may answer them together
        (`accept_all`)."""
        deliveries = self._call(partial(self._here, most), undo=self._return_all)
        return [BlockingDelivery(delivery, self) for delivery in deliveries]

    def accept_all(self, deliveries: Sequence[BlockingDelivery]) -> None:
        """State that these messages are processed, in this order. One commit makes all answers durable."""
        self._call(partial(self._client.accept_all, [delivery._delivery for delivery in deliveries]))
