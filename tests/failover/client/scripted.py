"""A router that does what a test says, step by step: the test takes each act of a client and answers it."""

import math
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import trio
from attrs import frozen

from failover.client.endpoint import Endpoint
from failover.client.state.store import Change, MemoryStore, Role
from router.amqp.batches import Dispositions, ResumedTransfers, Transfers
from router.amqp.connection import Connection
from router.amqp.format.message import body_of, data_message
from router.amqp.format.sections import write_message
from router.amqp.format.values import ACCEPTED, EXPIRE_CONNECTION, NO_STATE, DeliveryState, ErrorCondition, Handle
from router.amqp.handler import Handler
from router.amqp.proton.link import Link
from router.amqp.transport import serve
from tests.hangs import HANGS_S
from topic.identity import LinkIdentity
from topic.properties import MOVE, ROUTERS

GENERATION = b"8 bytes!"
EPOCH = "1.a.1"


@frozen
class Transferred:
    """A publisher's transfer."""

    tag: bytes
    body: bytes | None
    handle: Handle
    resume: bool = False
    state: int = NO_STATE
    aborted: bool = False


@frozen
class Stated:
    """A disposition."""

    handle: Handle
    state: int
    settled: bool


@frozen
class Detached:
    closed: bool


@frozen
class Echoed:
    """The client has answered our echo."""


@frozen
class Gone:
    """The client has closed the connection."""


Kind = TypeVar("Kind")


class Peer(Handler):
    """The handler of one listener. `next` waits for the client's next act, which must be of the expected kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self.properties: dict[str, Any] = {"router": name}
        self.max_frame = 64 * 1024
        self.has_list = True  # it has a node `$routers`
        self.listening: Link | None = None  # the last link from there
        self.dead = False  # takes connections and closes them at once
        self._news: trio.MemorySendChannel[Any]
        self._news, self._done = trio.open_memory_channel[Any](math.inf)
        self._scopes: set[trio.CancelScope] = set()
        self._connections: list[Connection] = []

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    async def next(self, kind: type[Kind]) -> Kind:
        done = await self._done.receive()
        assert isinstance(done, kind), done
        return done

    async def until(self, kind: type[Kind]) -> Kind:
        """The client's next act of this kind, whatever it does before."""
        while not isinstance(done := await self._done.receive(), kind):
            pass
        return done

    def has_nothing(self) -> bool:
        return self._done.statistics().current_buffer_used == 0

    def cut(self) -> None:
        """Cut all connections without a word."""
        for scope in self._scopes:
            scope.cancel()

    def stop(self) -> None:
        """Write nothing more on any connection of this router."""
        for connection in self._connections:
            connection.data_to_send = bytes  # type: ignore[method-assign]

    # acts of the router

    async def answer(
        self,
        unsettled: Mapping[bytes, int] | None = None,
        *,
        incomplete: bool = False,
        generation: bytes | None = GENERATION,
        epoch: str = EPOCH,
        credit: int = 10,
    ) -> Link:
        """Take an attach and answer it."""
        link = await self.next(Link)
        properties: dict[str, Any] = {"oncemesh:epoch": epoch}
        if not link.is_sender and generation is not None:
            properties["oncemesh:generation"] = generation
        link.answer(
            expiry_policy=EXPIRE_CONNECTION,
            timeout=60,
            properties=properties,
            unsettled=unsettled,
            incomplete_unsettled=incomplete,
        )
        if not link.is_sender:
            link.flow(credit)
        link.connection.wake()
        return link

    def outcome(self, link: Link, handle: Handle, state: int = ACCEPTED) -> None:
        link.update(handle, state)
        link.connection.wake()

    def settle(self, link: Link, *handles: Handle) -> None:
        link.settle_many(handles)
        link.connection.wake()

    def ask(self, link: Link) -> None:
        link.echo()
        link.connection.wake()

    async def tell(self, servers: object, *, move: bool = False) -> None:
        """Send a list of routers on the link from `$routers`."""
        while self.listening is None or not self.listening.credit:
            await trio.lowlevel.checkpoint()
        said = {"application-properties": {MOVE: True}} if move else {}
        self.listening.send(b"list", write_message({**said, "value": servers}), settled=True)
        self.listening.connection.wake()

    async def send(self, link: Link, tag: bytes, body: bytes | None, **options: Any) -> Handle:
        while not link.credit:
            await trio.lowlevel.checkpoint()
        handle = link.send(tag, data_message(body) if body is not None else b"", **options)
        link.connection.wake()
        return handle

    # handler

    def on_open(self, connection: Connection) -> None:
        connection.open()

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        self._news.send_nowait(Gone())

    def on_attach(self, link: Link) -> None:
        """Report the attach to the test. A link from `$routers` is answered at once; the test sends the lists."""
        if link.remote_source is not None and link.remote_source.address == ROUTERS:
            if self.has_list:
                link.answer()
            else:
                link.refuse("amqp:not-found", "no such node")
            self.listening = link
        else:
            self._news.send_nowait(link)

    def on_attached(self, link: Link) -> None:
        raise AssertionError

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        self._news.send_nowait(Detached(closed))

    def on_credit(self, link: Link) -> None:
        pass

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        for handle, tag, message, _ in transfers:
            self._news.send_nowait(Transferred(tag, body_of(message), handle))

    def on_resumed(self, link: Link, resumed: ResumedTransfers) -> None:
        for handle, tag, message, _, state, is_aborted in resumed:
            body = body_of(message) if message else None
            self._news.send_nowait(Transferred(tag, body, handle, True, state, is_aborted))

    def on_echo(self, link: Link) -> None:
        self._news.send_nowait(Echoed())

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        for handle, state, is_settled in dispositions:
            self._news.send_nowait(Stated(handle, state, is_settled))
            if is_settled:
                link.settle(handle)

    def _connection(self) -> Connection:
        connection = Connection(
            self, container="mesh", server=True, properties=self.properties, max_frame=self.max_frame
        )
        self._connections.append(connection)
        return connection

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]

        async def connected(stream: trio.SocketStream) -> None:
            if self.dead:
                await trio.aclose_forcefully(stream)
                return
            with trio.CancelScope() as scope:
                self._scopes.add(scope)
                await serve(stream, self._connection())
            self._scopes.discard(scope)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, connected, listeners)
            task_status.started()


@asynccontextmanager
async def running_peers(*names: str) -> AsyncIterator[list[Peer]]:
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            peers = [Peer(name) for name in names]
            for peer in peers:
                await nursery.start(peer.serve)
            yield peers
            nursery.cancel_scope.cancel()


class Enough(Exception):
    """A test has seen enough."""


Client = TypeVar("Client", bound=Endpoint)


@asynccontextmanager
async def attached(
    client: Client, peer: Peer, theirs: Mapping[bytes, int] | None = None, *, orderly: bool = False
) -> AsyncIterator[tuple[Client, Link]]:
    """A client in its block, with its first attach answered. The block ends by an error, which waits for nothing,
    unless `orderly`."""
    links: list[Link] = []

    async def answer() -> None:
        links.append(await peer.answer(theirs))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        with suppress(Enough):
            async with client:
                yield client, links[0]
                if not orderly:
                    raise Enough


def states(unsettled: Mapping[bytes, int]) -> dict[bytes, DeliveryState]:
    return {tag: DeliveryState(state) for tag, state in unsettled.items()}


class Holding(MemoryStore):
    """A store whose writes take as long as the test wants."""

    threaded = True

    def __init__(self) -> None:
        super().__init__()
        self.hold = False
        self._held = threading.Event()
        self._free = threading.Event()

    def write(self, role: Role, identity: LinkIdentity, changes: Sequence[Change]) -> None:
        if self.hold:
            self._held.set()
            self._free.wait(60)
        super().write(role, identity, changes)

    async def until_held(self) -> None:
        await trio.to_thread.run_sync(self._held.wait, 10)

    def release(self) -> None:
        self.hold = False
        self._free.set()
