"""The simplest router there could be, for clients to talk to: one process, one topic each address, nothing survives."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from router.amqp.batches import Dispositions, ResumedTransfers, Transfers
from router.amqp.connection import Connection
from router.amqp.handler import Handler
from router.amqp.link import Link
from router.amqp.message import data_message
from router.amqp.transport import serve
from router.amqp.values import ACCEPTED, RCV_FIRST, REJECTED, ErrorCondition, Handle
from topic.identity import KeyMaker, LinkIdentity, link_name

GENERATION = b"8 bytes!"


class Item:
    """A delivery between its publisher and its subscribers."""

    def __init__(self, link: Link, handle: Handle, waiting: int) -> None:
        self.link, self.handle, self.waiting = link, handle, waiting
        self.rejected = False
        self.sent: list[tuple[Link, Handle]] = []


class Relay(Handler):
    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.subscribers: list[Link] = []
        self.keys: dict[Link, KeyMaker] = {}
        self.backlog: dict[Link, list[tuple[bytes, bytes, Item]]] = {}
        self.by_subscriber: dict[Handle, Item] = {}
        self.by_publisher: dict[Handle, Item] = {}
        self.credit = 100
        self.port = 0

    def on_open(self, connection: Connection) -> None:
        self.connections.append(connection)
        connection.open()

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        self.connections.remove(connection)
        for link in connection.links:
            self._gone(link)

    def on_attach(self, link: Link) -> None:
        address = link.address or ""
        if link.is_sender and address == "$status":
            link.answer()
        elif not address.startswith("topic/"):
            link.refuse("amqp:not-found", "expected topic/…")
        elif link.is_sender:
            link.answer()
            self.backlog[link] = []
            self.subscribers.append(link)
        else:
            name = link_name(LinkIdentity(link.connection.remote_container, link.name, address))
            self.keys[link] = KeyMaker(name, GENERATION)
            link.answer(properties={"oncemesh:generation": GENERATION})
            link.flow(self.credit)

    def on_attached(self, link: Link) -> None:
        raise AssertionError

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        self._gone(link)

    def _gone(self, link: Link) -> None:
        if link in self.backlog:
            self.subscribers.remove(link)
            del self.backlog[link]

    def on_credit(self, link: Link) -> None:
        if link.address == "$status":
            link.send(b"s", data_message(json.dumps({"router": "relay"}).encode()), settled=True)
            return
        backlog = self.backlog[link]
        while link.credit and backlog:
            key, message, item = backlog.pop(0)
            handle = link.send(key, message)
            item.sent.append((link, handle))
            self.by_subscriber[handle] = item
            link.connection.wake()

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        audience = [other for other in self.subscribers if other.address == link.address]
        for handle, tag, message, _ in transfers:
            item = self.by_publisher[handle] = Item(link, handle, len(audience))
            for other in audience:
                self.backlog[other].append((self.keys[link].key(tag), message, item))
            self._answer(item)
        for other in audience:
            self.on_credit(other)

    def _answer(self, item: Item) -> None:
        if item.waiting == 0:
            item.link.update(item.handle, REJECTED if item.rejected else ACCEPTED)
            item.link.connection.wake()

    def on_resumed(self, link: Link, resumed: ResumedTransfers) -> None:
        raise AssertionError

    def on_echo(self, link: Link) -> None:
        raise AssertionError

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        for handle, state, is_settled in dispositions:
            if not link.is_sender:
                assert is_settled
                self._settle(self.by_publisher.pop(handle))
                continue
            item = self.by_subscriber[handle]
            assert is_settled == (link.remote_rcv_settle_mode == RCV_FIRST)
            item.rejected |= state != ACCEPTED
            item.waiting -= 1
            if is_settled:
                link.settle(handle)
                item.sent.remove((link, handle))
            self._answer(item)

    def _settle(self, item: Item) -> None:
        item.link.settle(item.handle)
        item.link.flow(1)
        item.link.connection.wake()
        for link, handle in item.sent:
            link.settle(handle)
            link.connection.wake()

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"


@asynccontextmanager
async def running_relay() -> AsyncIterator[Relay]:
    relay = Relay()
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    relay.port = listeners[0].socket.getsockname()[1]

    async def connected(stream: trio.SocketStream) -> None:
        await serve(stream, Connection(relay, container="mesh", server=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, connected, listeners)
        yield relay
        nursery.cancel_scope.cancel()
