"""A TCP proxy on one link between two routers, so that the link can be cut without privileges.

    the lower name ---dials---> LinkProxy ---dials---> the higher name's listener for routers

Bytes are carried as they come; nothing here knows AMQP. A link can fail in two ways, which routers notice differently:

- `silence`: nothing goes through any more and nobody is told, as when a cable is pulled. Connections stay open, and so
  do new ones, without a word from the other side. What is under way comes late, once the link is healed: that is what
  TCP does.
- `sever`: connections are reset, and new ones at once as well.

`heal` ends both.
"""

import socket
import struct
from collections.abc import Callable
from typing import Final

import trio

from router.quantities import Address

HOST: Final = "127.0.0.1"
CHUNK: Final = 64 << 10
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of no time at all: closing tells the peer at once


class LinkProxy:
    """One link. `target` says where its far end listens; it is asked at every connection, as that may be known late."""

    def __init__(self, target: Callable[[], Address]) -> None:
        self._target = target
        self._flows = trio.Event()
        self._flows.set()
        self._severed = False
        self._carried: set[trio.CancelScope] = set()
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """Where the near end is to dial."""
        assert self._address is not None, "it does not listen yet"
        return self._address

    @property
    def whole(self) -> bool:
        return self._flows.is_set() and not self._severed

    def silence(self) -> None:
        if self._flows.is_set():
            self._flows = trio.Event()

    def sever(self) -> None:
        self._severed = True
        for scope in self._carried:
            scope.cancel()

    def heal(self) -> None:
        self._severed = False
        self._flows.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen on a free port and carry, until cancelled."""
        (listener,) = await trio.open_tcp_listeners(0, host=HOST)
        self._address = Address(*listener.socket.getsockname()[:2])
        task_status.started()
        await trio.serve_listeners(self._carry, [listener])

    async def _carry(self, near: trio.SocketStream) -> None:
        with trio.CancelScope() as scope:
            self._carried.add(scope)
            try:
                if self._severed:
                    scope.cancel()
                await self._join(near)
            finally:
                self._carried.discard(scope)
                if scope.cancel_called:
                    _reset(near)

    async def _join(self, near: trio.SocketStream) -> None:
        await self._flows.wait()
        target = self._target()
        try:
            far = await trio.open_tcp_stream(target.host, target.port)
        except OSError:
            _reset(near)
            return
        async with far:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._copy, near, far, nursery.cancel_scope)
                    nursery.start_soon(self._copy, far, near, nursery.cancel_scope)
            finally:
                if self._severed:
                    _reset(far)

    async def _copy(self, here: trio.SocketStream, there: trio.SocketStream, both: trio.CancelScope) -> None:
        """One direction. Its end is passed on; an end without a goodbye is one of both directions."""
        try:
            while data := await here.receive_some(CHUNK):
                await self._flows.wait()
                await there.send_all(data)
            await self._flows.wait()
            await there.send_eof()
        except trio.BrokenResourceError:
            both.cancel()


def _reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    stream.socket.close()
