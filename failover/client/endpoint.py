"""What publisher and subscriber share: one link on one connection of its own, from attach to detach.

The link is attached to the first router of the list that can be reached. It is not resumed: when it is lost, whoever
waits gets a `ClientError`.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import urlsplit

import trio

from failover.client.errors import ClientError
from failover.client.log import ClientLog
from router.amqp.connection import Connection
from router.amqp.handler import Condition, Handle
from router.amqp.link import Link
from router.amqp.transport import serve
from topic.identity import GENERATION_LENGTH, LinkIdentity

GENERATION = "oncemesh:generation"
AMQP_PORT = 5672
CONNECT_S = 5.0  # for one router to take the connection, and again to answer the attach's open
IDLE_S = 10.0  # silence after which a router counts as gone


def parse_url(url: str) -> tuple[str, int]:
    """Host and port of amqp://host:port; scheme and port may be left out."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    if parts.scheme not in ("", "amqp") or not parts.hostname:
        raise ValueError(f"not a router's URL: {url!r}, expected amqp://host:port")
    return parts.hostname, parts.port or AMQP_PORT


class Endpoint:
    """A handler of one connection with one link. Used as an async context manager."""

    role: ClassVar[str]

    def __init__(
        self, urls: Sequence[str], address: str, *, container: str, link: str, log: Path | None = None
    ) -> None:
        self.identity = LinkIdentity(container, link, address)
        self.generation: bytes | None = None  # as the router's attach says
        self._routers = [parse_url(url) for url in urls]
        self._link: Link
        self._attached = trio.Event()
        self._log_scope = trio.CancelScope()
        self._error: ClientError | None = None
        self._log = ClientLog(log, self.role, self.identity) if log is not None else None
        self._news = trio.lowlevel.ParkingLot()  # whoever waits for something to change

    # -- for subclasses

    def _attach(self, connection: Connection) -> Link:
        raise NotImplementedError

    def _granted(self) -> None:
        """The router has answered our attach."""

    async def _finish(self) -> None:
        """An orderly end begins: what is still to be waited for."""

    async def _change(self) -> None:
        """Wait until something has changed; raises ClientError if that is that the link is gone."""
        self._check()
        await self._news.park()
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # -- life

    async def __aenter__(self) -> Self:
        stream = await self._connect()
        connection = Connection(
            self, container=self.identity.container, server=False, hostname=self._host, idle_timeout=IDLE_S
        )
        connection.open()
        self._link = self._attach(connection)
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(serve, stream, connection)
        self._nursery.start_soon(self._write_log)
        try:
            await self._attached.wait()
            self._check()
        except BaseException:
            await self._stop()
            raise
        return self

    async def _connect(self) -> trio.SocketStream:
        error: OSError = ConnectionError("no router to attach to")
        for host, port in self._routers:
            try:
                with trio.fail_after(CONNECT_S):
                    stream = await trio.open_tcp_stream(host, port)
            except (OSError, trio.TooSlowError) as reason:
                error = ConnectionError(f"cannot reach a router at {host}:{port}: {reason}")
            else:
                self._host = host
                return stream
        raise error

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self._finish()
                self._detach()
        finally:
            await self._stop()

    def _detach(self) -> None:
        if not self._link.ended:
            if self._log is not None and self.role == "subscriber":
                self._log.closed()
            self._link.detach()
            self._link.connection.close()
            self._link.connection.wake()

    async def _write_log(self) -> None:
        with self._log_scope:
            if self._log is not None:
                await self._log.run()

    async def _stop(self) -> None:
        """The nursery gets no exception of the caller's, so that it does not come out wrapped in a group."""
        self._log_scope.cancel()
        if not self._link.connection.closing:
            self._nursery.cancel_scope.cancel()
        try:
            await self._manager.__aexit__(None, None, None)
        finally:
            if self._log is not None:
                self._log.close()

    # -- handler

    def on_open(self, connection: Connection) -> None:
        pass

    def on_close(self, connection: Connection, condition: Condition | None) -> None:
        self._lost(condition)

    def on_attach(self, link: Link) -> None:
        link.refuse("amqp:not-allowed", "a client takes no links")

    def on_attached(self, link: Link) -> None:
        terminus = link.remote_target if link.is_sender else link.remote_source
        if terminus is None:
            return  # refused: the reason comes with the detach
        generation = link.remote_properties.get(GENERATION)
        if isinstance(generation, bytes) and len(generation) == GENERATION_LENGTH:
            self.generation = generation
        self._granted()
        self._attached.set()

    def on_detach(self, link: Link, closed: bool, condition: Condition | None) -> None:
        self._lost(condition)

    def _lost(self, condition: Condition | None) -> None:
        if self._error is None:
            self._error = ClientError(condition.name, condition.description) if condition else ClientError(None)
        self._attached.set()
        self._news.unpark_all()

    def on_credit(self, link: Link) -> None:
        self._news.unpark_all()

    def on_transfers(
        self, link: Link, deliveries: list[Handle], tags: list[bytes], messages: list[bytes], settled: list[bool]
    ) -> None:
        raise NotImplementedError

    def on_resumed(
        self,
        link: Link,
        deliveries: list[Handle],
        tags: list[bytes],
        messages: list[bytes],
        settled: list[bool],
        states: list[int],
        aborted: list[bool],
    ) -> None:
        """This client attaches with null maps: there is nothing to resume."""

    def on_echo(self, link: Link) -> None:
        """Never asked for."""

    def on_dispositions(self, link: Link, deliveries: list[Handle], states: list[int], settled: list[bool]) -> None:
        raise NotImplementedError
