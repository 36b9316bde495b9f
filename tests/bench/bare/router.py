"""A router of the bare line: one address, and every subscriber gets every message. It keeps only messages under way."""

import json
from collections.abc import Sequence
from typing import Any

import msgpack
import trio
from cproton_ffi import ffi, lib

from tests.bench.bare.wires import LENGTH, Neighbour, Writer

READ = 256 * 1024
SCRATCH_SIZE = 4 << 20
SCRATCH = ffi.new("char[]", SCRATCH_SIZE)
PREFIX = bytes(16)  # makes tags as long as delivery keys
CREDIT = 1000
SESSION_BYTES = 64 << 20


class Delivery:
    """One message: its incoming delivery at the publisher's router, its outgoing one at the subscribers' router."""

    __slots__ = ("came", "client", "n", "sent", "waits")

    def __init__(self, n: int, came: Any = None, client: "Client | None" = None) -> None:
        self.n, self.came, self.client = n, came, client
        self.waits = 0
        self.sent: list[tuple[Any, Client]] = []


class Client(Writer):
    """One AMQP connection."""

    def __init__(self, stream: trio.SocketStream, router: "Router") -> None:
        super().__init__(stream)
        self.router, self.got = router, 0
        self.transport, self.connection = lib.pn_transport(), lib.pn_connection()
        self.collector = lib.pn_collector()
        lib.pn_transport_set_server(self.transport)
        lib.pn_transport_set_max_frame(self.transport, 65536)
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_sasl_allowed_mechs(lib.pn_sasl(self.transport), ffi.new("char[]", b"ANONYMOUS"))
        lib.pn_transport_require_auth(self.transport, False)
        lib.pn_transport_bind(self.transport, self.connection)
        lib.pn_connection_set_container(self.connection, ffi.new("char[]", b"bare"))

    def feed(self, data: bytes) -> None:
        source, at = ffi.from_buffer(data), 0
        while at < len(data) and (size := min(lib.pn_transport_capacity(self.transport), len(data) - at)) > 0:
            lib.pn_transport_push(self.transport, source + at, size)
            at += size
            while event := lib.pn_collector_peek(self.collector):
                self.handle(lib.pn_event_type(event), event)
                lib.pn_collector_pop(self.collector)
        self.router.dirty[self] = None

    def handle(self, kind: int, event: Any) -> None:
        if kind == lib.PN_DELIVERY:
            self.delivery(event)
        elif kind == lib.PN_LINK_FLOW:
            self.router.drain(lib.pn_event_link(event))
        elif kind == lib.PN_CONNECTION_REMOTE_OPEN:
            lib.pn_connection_open(self.connection)
        elif kind == lib.PN_SESSION_REMOTE_OPEN:
            session = lib.pn_event_session(event)
            lib.pn_session_set_incoming_capacity(session, SESSION_BYTES)
            lib.pn_session_open(session)
        elif kind == lib.PN_LINK_REMOTE_OPEN:
            self.attach(lib.pn_event_link(event))
        elif kind == lib.PN_CONNECTION_REMOTE_CLOSE:
            lib.pn_connection_close(self.connection)

    def attach(self, link: Any) -> None:
        lib.pn_terminus_copy(lib.pn_link_source(link), lib.pn_link_remote_source(link))
        lib.pn_terminus_copy(lib.pn_link_target(link), lib.pn_link_remote_target(link))
        lib.pn_link_set_rcv_settle_mode(link, lib.pn_link_remote_rcv_settle_mode(link))
        lib.pn_link_open(link)
        if lib.pn_link_is_receiver(link):
            lib.pn_link_flow(link, CREDIT)
        else:
            self.router.subscribers[link] = self, []

    def delivery(self, event: Any) -> None:
        handle, router = lib.pn_event_delivery(event), self.router
        if lib.pn_delivery_readable(handle):
            if not lib.pn_delivery_partial(handle):
                self.transfer(handle, lib.pn_event_link(event))
        elif (delivery := router.incoming.get(handle)) is not None:
            if lib.pn_delivery_settled(handle):
                del router.incoming[handle]
                lib.pn_delivery_settle(handle)
                router.settle(delivery)
        elif (delivery := router.outgoing.get(handle)) is not None:
            delivery.waits -= lib.pn_delivery_remote_state(handle) == lib.PN_ACCEPTED
            if not delivery.waits:
                router.done(delivery)

    def transfer(self, handle: Any, link: Any) -> None:
        tag = lib.pn_delivery_tag(handle)
        key = PREFIX + ffi.unpack(tag.start, tag.size)
        body = ffi.unpack(SCRATCH, lib.pn_link_recv(link, SCRATCH, SCRATCH_SIZE))
        lib.pn_link_advance(link)
        self.got += 1
        if self.got % (CREDIT // 10) == 0:
            lib.pn_link_flow(link, CREDIT // 10)
        self.router.publish(self, handle, key, body)

    def pull(self) -> bytes:
        chunks = []
        while (pending := lib.pn_transport_pending(self.transport)) > 0:
            size = lib.pn_transport_peek(self.transport, SCRATCH, min(pending, SCRATCH_SIZE))
            chunks.append(ffi.unpack(SCRATCH, size))
            lib.pn_transport_pop(self.transport, size)
        return b"".join(chunks)


def ranges(numbers: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for n in numbers:
        if found and found[-1][1] == n - 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return found


class Router:
    """A router. `role`: alone, home (of the publisher), edge (of the subscribers) or relay."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.subscribers: dict[Any, tuple[Client, list[tuple[Delivery, bytes, bytes]]]] = {}
        self.dirty: dict[Client, None] = {}
        self.incoming: dict[Any, Delivery] = {}
        self.outgoing: dict[Any, Delivery] = {}
        self.records: dict[int, Delivery] = {}
        self.next = self.first = 0
        self.keys: list[bytes] = []
        self.bodies: list[bytes] = []
        self.settled: list[int] = []
        self.outcomes: list[int] = []
        self.neighbour: Neighbour | None = None

    # the publisher's side

    def publish(self, client: Client, handle: Any, key: bytes, body: bytes) -> None:
        delivery = self.incoming[handle] = Delivery(self.next, handle, client)
        if self.role == "alone":
            self.deliver(delivery, key, body)
            return
        self.records[self.next] = delivery
        self.next += 1
        self.keys.append(key)
        self.bodies.append(body)

    def settle(self, delivery: Delivery) -> None:
        if self.role == "alone":
            self.finish(delivery)
        else:
            del self.records[delivery.n]
            self.settled.append(delivery.n)

    def accept(self, delivery: Delivery) -> None:
        assert delivery.client is not None
        lib.pn_delivery_update(delivery.came, lib.PN_ACCEPTED)
        self.dirty[delivery.client] = None

    def accepted(self, message: Any) -> None:
        for low, high in message:
            for n in range(low, high + 1):
                self.accept(self.records[n])

    # the subscribers' side

    def forwarded(self, message: Any) -> None:
        first, keys, bodies, settled = message
        for n, (key, body) in enumerate(zip(keys, bodies, strict=True), first):
            delivery = self.records[n] = Delivery(n)
            self.deliver(delivery, key, body)
        for low, high in settled:
            for n in range(low, high + 1):
                self.finish(self.records.pop(n))

    def deliver(self, delivery: Delivery, key: bytes, body: bytes) -> None:
        delivery.waits = len(self.subscribers)
        for link, (_, queue) in self.subscribers.items():
            queue.append((delivery, key, body))
            self.drain(link)

    def drain(self, link: Any) -> None:
        if link not in self.subscribers:
            return
        client, queue = self.subscribers[link]
        at = 0
        while at < len(queue) and lib.pn_link_credit(link) > 0:
            delivery, key, body = queue[at]
            at += 1
            handle = lib.pn_delivery(link, (len(key), ffi.from_buffer(key)))
            lib.pn_link_send(link, body, len(body))
            lib.pn_link_advance(link)
            delivery.sent.append((handle, client))
            self.outgoing[handle] = delivery
            self.dirty[client] = None
        del queue[:at]

    def done(self, delivery: Delivery) -> None:
        if self.role == "alone":
            self.accept(delivery)
        else:
            self.outcomes.append(delivery.n)

    def finish(self, delivery: Delivery) -> None:
        for handle, client in delivery.sent:
            del self.outgoing[handle]
            lib.pn_delivery_settle(handle)
            self.dirty[client] = None

    # the loop

    def flush(self) -> None:
        message: Any = None
        if self.keys or self.settled:
            message = self.first, self.keys, self.bodies, ranges(self.settled)
            self.first += len(self.keys)
            self.keys, self.bodies, self.settled = [], [], []
        elif self.outcomes:
            message, self.outcomes = ranges(self.outcomes), []
        if message is not None and self.neighbour is not None:
            packed = msgpack.packb(message)
            self.neighbour.put(LENGTH.pack(len(packed)), packed)
        for client in self.dirty:
            client.wake.set()
        self.dirty.clear()

    async def serve(self, stream: trio.SocketStream) -> None:
        client = Client(stream, self)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.write)
            try:
                while data := await stream.receive_some(READ):
                    client.feed(data)
                    self.flush()
            except trio.BrokenResourceError:
                pass
            self.subscribers = {link: pair for link, pair in self.subscribers.items() if pair[0] is not client}
            nursery.cancel_scope.cancel()

    async def link(self, stream: trio.SocketStream) -> None:
        self.neighbour = Neighbour(stream, self.accepted if self.role == "home" else self.forwarded)
        await self.neighbour.run(self.flush)

    async def run(self) -> None:
        """Prints the ports for clients and for the relay on stdout."""
        async with trio.open_nursery() as nursery:
            ports = []
            for handler in (self.serve, self.link):
                listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
                ports.append(listeners[0].socket.getsockname()[1])
                nursery.start_soon(trio.serve_listeners, handler, listeners)
            print(json.dumps(ports), flush=True)
