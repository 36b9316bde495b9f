"""The simplest mesh that honours unsettled maps: routers with one memory, which cut connections when a seed says so."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define, field

from failover.comparison import TERMINAL
from router.amqp.batches import Dispositions, ResumedTransfers, Transfers
from router.amqp.connection import Connection
from router.amqp.handler import Handler
from router.amqp.link import Link
from router.amqp.transport import serve
from router.amqp.values import ACCEPTED, EXPIRE_CONNECTION, NO_STATE, ErrorCondition, Handle
from topic.identity import KeyMaker, LinkIdentity, link_name

WINDOW = 20


@define(eq=False)
class Record:
    """A delivery that its publisher has not settled."""

    publisher: "PublisherEnd"
    tag: bytes
    key: bytes
    message: bytes
    awaited: set[LinkIdentity]
    handle: Handle = None  # on the publisher's link, if transferred there


@define(eq=False)
class PublisherEnd:
    generation: bytes
    keys: KeyMaker
    link: Link | None = None
    records: dict[bytes, Record] = field(factory=dict)


@define(eq=False)
class SubscriberEnd:
    link: Link | None = None
    records: dict[bytes, Record] = field(factory=dict)
    queue: list[tuple[bytes, bool]] = field(factory=list)  # keys to be transferred, and whether resumed
    handles: dict[Handle, bytes] = field(factory=dict)
    by_key: dict[bytes, Handle] = field(factory=dict)


class ResumingMesh(Handler):
    """Its routers take any link; who attaches first is first."""

    def __init__(self, seed: int, cuts: int) -> None:
        self.urls: list[str] = []
        self.cuts = cuts
        self._random = random.Random(seed)
        self._until_cut = self._random.randrange(10, 40)
        self._scopes: dict[Connection, trio.CancelScope] = {}
        self._publishers: dict[LinkIdentity, PublisherEnd] = {}
        self._subscribers: dict[LinkIdentity, SubscriberEnd] = {}
        self._generations = 0
        self._steps = 0
        self._awaited: list[tuple[int, trio.Event]] = []

    async def steps(self, count: int) -> None:
        """Wait until so many more things have happened."""
        event = trio.Event()
        self._awaited.append((self._steps + count, event))
        await event.wait()

    @property
    def is_empty(self) -> bool:
        return not any(end.records for end in self._publishers.values())

    def _step(self) -> None:
        """Something has happened: perhaps a connection is cut now, with what is on its way in it."""
        self._steps += 1
        for due, event in self._awaited:
            if due <= self._steps:
                event.set()
        self._awaited = [entry for entry in self._awaited if entry[0] > self._steps]
        self._until_cut -= 1
        if self._until_cut <= 0 and self.cuts and self._scopes:
            self.cuts -= 1
            self._until_cut = self._random.randrange(1, 40)
            self._random.choice(list(self._scopes.values())).cancel()

    # connections and links

    def on_open(self, connection: Connection) -> None:
        connection.open()

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        for link in connection.links:
            self._gone(link)

    def on_attached(self, link: Link) -> None:
        raise AssertionError

    def on_attach(self, link: Link) -> None:
        self._step()
        identity = LinkIdentity(link.connection.remote_container, link.name, link.address or "")
        if link.is_sender:
            self._attach_subscriber(link, self._subscribers.setdefault(identity, SubscriberEnd()))
        else:
            self._attach_publisher(link, identity)

    def _answer(self, link: Link, unsettled: dict[bytes, int] | None, properties: dict[str, Any]) -> None:
        link.answer(expiry_policy=EXPIRE_CONNECTION, timeout=60, unsettled=unsettled, properties=properties)
        link.connection.wake()

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        self._gone(link)

    def _gone(self, link: Link) -> None:
        end = link.context
        if end is None or end.link is not link:
            return
        end.link = None
        if isinstance(end, PublisherEnd):
            for record in end.records.values():
                record.handle = None
        else:
            end.queue.clear()
            end.handles.clear()
            end.by_key.clear()

    # publishers

    def _attach_publisher(self, link: Link, identity: LinkIdentity) -> None:
        ours = link.remote_unsettled
        end = self._publishers.get(identity)
        if end is not None and end.link is not None:
            self._gone(end.link)
        if ours is None or end is None:
            assert end is None or not end.records
            self._generations += 1
            generation = self._generations.to_bytes(8, "big")
            end = self._publishers[identity] = PublisherEnd(generation, KeyMaker(link_name(identity), generation))
        else:
            assert link.remote_properties["oncemesh:generation"] == end.generation
            for record in list(end.records.values()):
                if record.tag not in ours or ours[record.tag].state in TERMINAL:
                    self._settle(record)
        link.context, end.link = end, link
        properties = {"oncemesh:generation": end.generation}
        self._answer(link, None if ours is None else dict.fromkeys(end.records, NO_STATE), properties)
        link.flow(WINDOW)

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        end = link.context
        for handle, tag, message, _ in transfers:
            self._step()
            assert tag not in end.records
            record = Record(end, tag, end.keys.key(tag), message, set(self._subscribers), handle)
            end.records[tag] = record
            for subscriber in self._subscribers.values():
                subscriber.records[record.key] = record
                subscriber.queue.append((record.key, False))
            self._evaluate(record)
        self._send_all()

    def on_resumed(self, link: Link, resumed: ResumedTransfers) -> None:
        self._step()
        for handle, tag, _, _, _, is_aborted in resumed:
            record = link.context.records[tag]
            if is_aborted:
                self._settle(record)
                link.flow(1)
            else:
                record.handle = handle
                self._evaluate(record)

    def _evaluate(self, record: Record) -> None:
        link = record.publisher.link
        if not record.awaited and record.handle is not None and link is not None:
            link.update(record.handle, ACCEPTED)
            link.connection.wake()

    def _settle(self, record: Record) -> None:
        assert not record.awaited
        del record.publisher.records[record.tag]
        for end in self._subscribers.values():
            end.records.pop(record.key, None)
            handle = end.by_key.pop(record.key, None)
            if handle is not None and end.link is not None:
                del end.handles[handle]
                end.link.settle(handle)
                end.link.connection.wake()

    # subscribers

    def _attach_subscriber(self, link: Link, end: SubscriberEnd) -> None:
        if end.link is not None:
            self._gone(end.link)
        link.context, end.link = end, link
        ours = link.remote_unsettled
        for key, state in (ours or {}).items():
            if key in end.records and state.state in TERMINAL:
                self._accepted(end, end.records[key])
        end.queue = [(key, key in (ours or {})) for key in end.records]
        end.queue.sort(key=lambda entry: not entry[1])  # resumed ones first, otherwise in order
        known = {key: NO_STATE for key in end.records if key in (ours or {})}
        self._answer(link, None if ours is None else known, {})
        self._send_all()

    def on_credit(self, link: Link) -> None:
        self._send_all()

    def _send_all(self) -> None:
        for identity, end in self._subscribers.items():
            while end.link is not None and end.link.credit and end.queue:
                key, resumed = end.queue.pop(0)
                if key in end.records:
                    self._send(identity, end, end.link, end.records[key], resumed)

    def _send(self, identity: LinkIdentity, end: SubscriberEnd, link: Link, record: Record, resumed: bool) -> None:
        self._step()
        if identity in record.awaited:
            handle = link.send(record.key, record.message, resume=resumed)
        else:
            assert resumed
            handle = link.send(record.key, b"", resume=True, state=ACCEPTED)
        end.handles[handle], end.by_key[record.key] = record.key, handle
        link.connection.wake()

    def _accepted(self, end: SubscriberEnd, record: Record) -> None:
        identity = next(identity for identity, one in self._subscribers.items() if one is end)
        record.awaited.discard(identity)
        self._evaluate(record)

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        end = link.context
        for handle, state, is_settled in dispositions:
            self._step()
            if isinstance(end, SubscriberEnd):
                assert (state, is_settled) == (ACCEPTED, False)
                if handle in end.handles:
                    self._accepted(end, end.records[end.handles[handle]])
                continue
            assert is_settled
            record = next(record for record in end.records.values() if record.handle == handle)
            link.settle(handle)
            link.flow(1)
            self._settle(record)

    def on_echo(self, link: Link) -> None:
        raise AssertionError

    # life

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        async def connected(stream: trio.SocketStream) -> None:
            connection = Connection(self, container="mesh", server=True)
            with trio.CancelScope() as scope:
                self._scopes[connection] = scope
                try:
                    await serve(stream, connection)
                finally:
                    del self._scopes[connection]

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
                self.urls.append(f"amqp://127.0.0.1:{listener.socket.getsockname()[1]}")
                nursery.start_soon(trio.serve_listeners, connected, [listener])
            task_status.started()


@asynccontextmanager
async def running_mesh(seed: int, cuts: int) -> AsyncIterator[ResumingMesh]:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            mesh = ResumingMesh(seed, cuts)
            await nursery.start(mesh.serve)
            yield mesh
            nursery.cancel_scope.cancel()
