"""AMQP clients that do exactly what a test says. They use the engine directly, and many share the test's trio run.

A client keeps all events. A test that waits in `Clients.until` checks its condition after every input of any client.
Actions that must happen in the very instant of an event are callbacks: `Subscriber.on_attached`, `Subscriber.respond`.
"""

import functools
import json
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import trio

from router.amqp.batches import Dispositions, Transfers
from router.amqp.connection import Connection
from router.amqp.format.message import body_of, data_message, in_envelope
from router.amqp.format.values import ACCEPTED, RCV_FIRST, RCV_SECOND, SND_MIXED, ErrorCondition, Handle, OutcomeDetails
from router.amqp.handler import Handler
from router.amqp.proton.link import Link
from router.amqp.sasl.credentials import NOBODY, Credentials
from router.amqp.transport import serve
from router.mesh.quantities import Address
from tests.hangs import HANGS_S

TIMEOUT_S = HANGS_S


@attrs.frozen(eq=False)
class Delivery:
    """A message that a subscriber received."""

    subscriber: "Subscriber"
    handle: Handle
    tag: bytes
    message: bytes
    at: float

    @property
    def body(self) -> bytes:
        return body_of(self.message)

    def accept(self) -> None:
        """Accept the message. A subscriber in mode first settles with that; one in mode second waits for the router to
        settle.
        """
        self.give(ACCEPTED)

    def give(self, state: int) -> None:
        link = self.subscriber.link
        link.update(self.handle, state, settle=self.subscriber.first)
        link.connection.wake()


def accept(delivery: Delivery) -> None:
    delivery.accept()


def hold(delivery: Delivery) -> None:
    """Send no outcome; the test sends it later."""


class Subscriber:
    """The receiving end of a link from a router."""

    def __init__(self, credit: int, respond: Callable[[Delivery], None], *, first: bool) -> None:
        self.link: Link
        self.first = first
        self.credit = credit
        self.respond = respond
        self.attached = False
        self.detached: ErrorCondition | None = None
        self.ended = False
        self.received: list[Delivery] = []
        self.settled: list[Handle] = []
        self.on_attached: Callable[[], object] = lambda: None

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.received]

    @property
    def numbers(self) -> list[int]:
        return [int(body) for body in self.bodies]


class Publisher:
    """The sending end of a link to a router. It settles a delivery once it knows the outcome, unless `keep` is set."""

    def __init__(self) -> None:
        self.link: Link
        self.attached = False
        self.detached: ErrorCondition | None = None
        self.ended = False
        self.sent = 0
        self.keep = False
        self.outcomes: dict[int, OutcomeDetails] = {}
        self.accepted: list[int] = []
        self.numbers: dict[Handle, int] = {}
        self.kept: list[Handle] = []
        self.feed: Iterator[bytes] = iter(())
        self.in_flight = 1000
        self._waiting: deque[tuple[int, bytes, bool]] = deque()

    def send(self, body: bytes, *, settled: bool = False, message_format: int = 0) -> int:
        """Send as soon as there is credit. Returns the index of this message. With a format other than 0, `body` is the
        whole message."""
        return self.send_message(in_envelope(body, message_format) if message_format else data_message(body), settled)

    def send_message(self, message: bytes, settled: bool = False) -> int:
        number = self.sent
        self.sent += 1
        self._waiting.append((number, message, settled))
        self._transfer()
        return number

    def _transfer(self) -> None:
        while self._waiting and self.link.credit > 0:
            number, message, settled = self._waiting.popleft()
            handle = self.link.send(b"%d" % number, message, settled)
            if handle is not None:
                self.numbers[handle] = number
            self.link.connection.wake()

    def pump(self) -> None:
        """Send waiting messages, and messages from `feed` as far as credit and `in_flight` allow."""
        self._transfer()
        while self.link.credit > 0 and self.sent - len(self.outcomes) < self.in_flight:
            body = next(self.feed, None)
            if body is None:
                break
            self.send(body)

    def settle(self) -> None:
        """Settle the deliveries that were kept."""
        self.link.settle_many(self.kept)
        self.kept.clear()
        self.link.connection.wake()


class Client(Handler):
    """One connection of a client, and the handler of its events."""

    def __init__(self, container: str, stream: trio.abc.Stream, **settings: Any) -> None:
        self.connection = Connection(self, container=container, server=False, **settings)
        self.container = container
        self.opened = False
        self.closed: ErrorCondition | None = None
        self.stream = stream

    def publisher(
        self,
        address: str,
        name: str | None = None,
        *,
        second: bool = False,
        snd_settle_mode: int = SND_MIXED,
        **options: Any,
    ) -> Publisher:
        """`options`: more fields of its attach."""
        publisher = Publisher()
        mode = RCV_SECOND if second else RCV_FIRST
        publisher.link = self.connection.sender(
            name or address, address, rcv_settle_mode=mode, snd_settle_mode=snd_settle_mode, **options
        )
        publisher.link.context = publisher
        self.connection.wake()
        return publisher

    def subscriber(
        self,
        address: str,
        name: str | None = None,
        *,
        credit: int = 100,
        first: bool = False,
        respond: Callable[[Delivery], None] = accept,
        snd_settle_mode: int = SND_MIXED,
        makes_up: bool = True,
        **options: Any,
    ) -> Subscriber:
        """`makes_up`: whether it renews the credit that messages use. `options`: more fields of its attach."""
        subscriber = Subscriber(credit, respond, first=first)
        mode = RCV_FIRST if first else RCV_SECOND
        subscriber.link = self.connection.receiver(
            name or address, address, rcv_settle_mode=mode, snd_settle_mode=snd_settle_mode, **options
        )
        subscriber.link.context = subscriber
        subscriber.link.flow(credit)
        if not makes_up:
            subscriber.credit = 0
        self.connection.wake()
        return subscriber

    def close(self) -> None:
        self.connection.close()
        self.connection.wake()

    def vanish(self) -> None:
        """Drop the connection without a word: the peer gets a reset."""
        assert isinstance(self.stream, trio.SocketStream)
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.socket.close()

    # events of the engine

    def on_open(self, connection: Connection) -> None:
        self.opened = True

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        self.closed = condition

    def on_attach(self, link: Link) -> None:
        """The other end opens a link, as only routers do at their neighbours."""
        link.context = Subscriber(1000, hold, first=True)
        link.context.link = link
        link.answer()
        link.flow(1000)

    def on_attached(self, link: Link) -> None:
        link.context.attached = True
        if isinstance(link.context, Subscriber):
            link.context.on_attached()

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        link.context.detached = condition
        link.context.ended = True

    def on_credit(self, link: Link) -> None:
        link.context.pump()

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        subscriber: Subscriber = link.context
        now = trio.current_time()
        for handle, tag, message, _ in transfers:
            delivery = Delivery(subscriber, handle, tag, message, now)
            subscriber.received.append(delivery)
            if handle is not None:
                subscriber.respond(delivery)
        if link.credit <= subscriber.credit // 2:
            link.flow(subscriber.credit - link.credit)

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        end: Subscriber | Publisher = link.context
        if isinstance(end, Publisher):
            self._outcomes(end, dispositions.handles, dispositions.states)
            return
        gone = [handle for handle, _, is_settled in dispositions if is_settled]
        end.settled += gone
        link.settle_many(gone)

    def on_resumed(self, *arguments: Any, **named: Any) -> None:
        raise AssertionError("nothing is resumed without a map")

    @staticmethod
    def _outcomes(end: Publisher, deliveries: list[Handle], states: list[int]) -> None:
        for handle, state in zip(deliveries, states, strict=True):
            if state:
                number = end.numbers.pop(handle)
                assert number not in end.outcomes
                end.outcomes[number] = end.link.remote_outcome(handle)
                if state == ACCEPTED:
                    end.accepted.append(number)
        if end.keep:
            end.kept += deliveries
        else:
            end.link.settle_many(deliveries)
        end.pump()


def client_of(end: Publisher | Subscriber) -> Client:
    connection = end.link.connection
    assert isinstance(connection, Connection) and isinstance(connection.handler, Client)
    return connection.handler


class Clients:
    """The clients of one test. They end with the nursery. With credentials to show, they use TLS."""

    def __init__(self, nursery: trio.Nursery, shown: Credentials = NOBODY) -> None:
        self._nursery = nursery
        self._shown = shown
        self._changed = trio.Event()

    async def connect(self, address: Address, container: str, *, expect_open: bool = True, **settings: Any) -> Client:
        """A client whose connection is open, or has ended if that is expected."""
        client = await self.over(await self.stream(address), container, **settings)
        assert client.opened or not expect_open, client.closed
        return client

    async def stream(self, address: Address) -> trio.abc.Stream:
        """A stream for a client, or for a test that writes frames itself."""
        below = await trio.open_tcp_stream(address.host, address.port)
        return below if self._shown == NOBODY else await self._shown.secure(below, address.host)

    async def over(self, stream: trio.abc.Stream, container: str, **settings: Any) -> Client:
        """A client on a stream, once its connection is open or has ended."""
        client = Client(container, stream, **settings)
        client.connection.open()
        self._nursery.start_soon(functools.partial(serve, stream, client.connection, after_input=self._note))
        await self.until(lambda: client.opened or client.connection.closed)
        return client

    async def publisher(
        self,
        address: Address,
        topic: str,
        container: str = "publisher",
        *,
        second: bool = False,
        timeout: int = 0,
        asked: Callable[[Link], None] | None = None,
    ) -> Publisher:
        """A publisher on a connection of its own, attached and with credit."""
        client = await self.connect(address, container, asked=asked)
        publisher = client.publisher(topic, second=second, timeout=timeout)
        await self.until(lambda: publisher.link.credit > 0)
        return publisher

    async def subscriber(
        self, address: Address, topic: str, container: str = "subscriber", **settings: Any
    ) -> Subscriber:
        """A subscriber on a connection of its own, attached."""
        subscriber = (await self.connect(address, container)).subscriber(topic, **settings)
        await self.until(lambda: subscriber.attached)
        return subscriber

    async def until(self, condition: Callable[[], bool], timeout: float = TIMEOUT_S) -> None:
        with trio.fail_after(timeout):
            while not condition():
                await self._changed.wait()

    def _note(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


async def fetch_status(host: str, port: int, timeout: float) -> dict[str, Any]:
    """The router's status, as any AMQP client could ask for it."""
    answers: list[bytes] = []
    with trio.fail_after(timeout):
        stream = await trio.open_tcp_stream(host, port)
        async with trio.open_nursery() as nursery:
            clients = Clients(nursery)
            client = await clients.over(stream, "status")
            if not client.connection.closed:
                subscriber = client.subscriber("$status", credit=1)
                await clients.until(lambda: bool(subscriber.received) or client.connection.closed)
                answers = subscriber.bodies
                client.close()
    if not answers:
        raise trio.BrokenResourceError
    return dict(json.loads(answers[0]))
