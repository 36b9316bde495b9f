"""A TCP proxy on one link between two routers, which makes the link bad without privileges.

    the lower name ---dials---> LinkProxy ---dials---> the higher name's listener for routers

The proxy carries bytes unchanged, and knows no AMQP. A link takes on all of an `Impairment` at once:

- *silent*: no byte gets through and neither end is informed, as when a cable is pulled. Existing connections stay open,
  and new ones can be opened, but no end reads a byte of the other end. Bytes under way come late, after the link is
  healed, as with TCP.
- *severed*: connections are reset, and new ones are reset at once.
- *latency*, *jitter*: every byte comes later, by a time that may vary. Bytes never overtake each other.
- *rate*: the link carries at most this number of bytes per second in each direction.
"""

import math
import socket
import struct
from collections.abc import Callable
from random import Random
from typing import Final

import trio

from failover.chaos.carrier import Impairment
from router.mesh.quantities import Address

HOST: Final = "127.0.0.1"
CHUNK: Final = 64 << 10
LEAST: Final = 1 << 10
TURN_S: Final = 0.01
"""On a narrow link, a chunk has the bytes that the link carries in this many seconds, but at least LEAST bytes."""
UNDER_WAY: Final = 64
"""The highest number of chunks that a delayed link holds in each direction. A sender of more has to wait."""
REFUSED_S: Final = 0.1
"""The proxy accepts a connection before it knows whether the far end listens. If the far end does not, the proxy closes
the connection after this many seconds. Without this pause, the dialler would dial again at once: it only pauses if its
connection is refused."""
# If SO_LINGER is set to no time at all, closing a socket resets the connection.
RESET: Final = struct.pack("ii", 1, 0)


class LinkProxy:
    """The proxy of one link. `target` returns the address where the far end listens. The address may become known late,
    so the proxy asks for it at each connection."""

    def __init__(self, target: Callable[[], Address], random: Random | None = None) -> None:
        self._target = target
        self._random = random or Random(0)
        self.condition = Impairment()
        self._flows = trio.Event()
        self._flows.set()
        self._carried: set[trio.CancelScope] = set()
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """The address that the router at the near end dials."""
        assert self._address is not None, "it does not listen yet"
        return self._address

    def become(self, condition: Impairment) -> None:
        """Put the link into this condition. All parts change at the same time, so a link that is first slow and then
        silent lets no byte through in between."""
        was, self.condition = self.condition, condition
        if not condition.silent:
            self._flows.set()
        elif not was.silent:
            self._flows = trio.Event()
        if condition.severed and not was.severed:
            self.reset()

    def reset(self) -> None:
        for scope in self._carried:
            scope.cancel()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen on a free port, and carry bytes until this task is cancelled."""
        (listener,) = await trio.open_tcp_listeners(0, host=HOST)
        self._address = Address(*listener.socket.getsockname()[:2])
        task_status.started()
        await trio.serve_listeners(self._carry, [listener])

    async def _carry(self, near: trio.SocketStream) -> None:
        with trio.CancelScope() as scope:
            self._carried.add(scope)
            try:
                if self.condition.severed:
                    scope.cancel()
                await self._join(near, scope)
            finally:
                self._carried.discard(scope)
                if scope.cancel_called:
                    _reset(near)

    async def _join(self, near: trio.SocketStream, scope: trio.CancelScope) -> None:
        await self._flows.wait()
        target = self._target()
        try:
            far = await trio.open_tcp_stream(target.host, target.port)
        except OSError:
            await trio.sleep(REFUSED_S)
            _reset(near)
            return
        async with far:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._copy, near, far, nursery.cancel_scope)
                    nursery.start_soon(self._copy, far, near, nursery.cancel_scope)
            finally:
                if scope.cancel_called:
                    _reset(far)

    async def _copy(self, here: trio.SocketStream, there: trio.SocketStream, both: trio.CancelScope) -> None:
        """Copy the bytes of one direction. If the stream ends, pass the end on. If the stream breaks, end both
        directions."""
        put, take = trio.open_memory_channel[tuple[float, bytes]](UNDER_WAY)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, here, put)
                nursery.start_soon(self._write, take, there)
        except* trio.BrokenResourceError:
            both.cancel()

    async def _read(self, here: trio.SocketStream, put: trio.MemorySendChannel[tuple[float, bytes]]) -> None:
        with put:
            free = 0.0
            while data := await here.receive_some(int(min(CHUNK, max(LEAST, self.condition.rate * TURN_S)))):
                if self.condition.rate < math.inf:
                    free = max(free, trio.current_time()) + len(data) / self.condition.rate
                    await trio.sleep_until(free)
                delay = self.condition.latency + self._random.uniform(0, self.condition.jitter)
                await put.send((trio.current_time() + delay, data))

    async def _write(self, take: trio.MemoryReceiveChannel[tuple[float, bytes]], there: trio.SocketStream) -> None:
        async for due, data in take:
            if due > trio.current_time():
                await trio.sleep_until(due)
            await self._flows.wait()
            await there.send_all(data)
        await self._flows.wait()
        await there.send_eof()


def _reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    stream.socket.close()
