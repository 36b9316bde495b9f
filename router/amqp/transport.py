"""Drives one AMQP or MQTT connection over a trio stream: with a reader, a writer and a ticker, and without a task or an
await for each message.

A fault of the peer ends this connection, with one line in the log. Any other exception of a handler is a fault of ours:
it is passed on, and ends the owner of the connections.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import trio

from router.amqp import tcp
from router.amqp.driven import DrivenConnection, Outbound
from router.amqp.format.errors import RESOURCE_LIMIT, AmqpError, PeerFaultError
from router.amqp.format.values import StreamFigures
from router.amqp.pipe import LayeredStream, pipe_of, socket_of
from router.events.kind import EventKind, event

log = logging.getLogger("oncemesh.amqp")
used_s = time.thread_time

# The highest number of bytes of a read. A read asks for fewer if handling the last one took long, because other clients
# wait.
READ_SIZE = 512 * 1024
READ_FIRST = 16 * 1024
READ_LEAST = 4 * 1024
# The longest processor time to handle one read, in seconds.
TURN_S = 0.006
LATE_S = 0.1
# The first pause between two looks at the bytes that the peer's machine has acknowledged.
PROOF_FIRST_S = 0.001
PROOF_MOST_S = 0.25  # the longest pause between two such looks
# The seconds after which a peer that takes none of our output is disconnected, even if its machine lives.
STALL_S = 30.0
# The seconds that a peer has to answer a close, and to take the last output.
GOODBYE_S = 1.0


async def read_first(deadline: float) -> None:
    """Call this after a sleep until `deadline`, before you judge a peer by its silence. If the sleep took much longer,
    this process was stopped or had no processor; then all tasks with input read first."""
    if trio.current_time() > deadline + LATE_S:
        # The first pass may have looked at the sockets before the stop, so a second one follows.
        for _ in range(2):
            await trio.lowlevel.checkpoint()


def next_size(size: int, came: int, took_s: float) -> int:
    """The bytes to ask for in the next read. The last read asked for `size`, got `came`, and its handling took
    `took_s`. The next size fits into a turn (TURN_S), but is at least half of `size`. After a full read it may be twice
    `size`."""
    fits = int(came * TURN_S / took_s) if took_s > 0 else READ_SIZE
    wanted = 2 * size if came >= size else size
    return max(READ_LEAST, size // 2, min(wanted, fits, READ_SIZE))


async def at_once() -> None:
    """The default of `turn`: do not wait."""


async def serve(
    stream: trio.abc.Stream,
    connection: DrivenConnection,
    *,
    clock: Callable[[], float] = trio.current_time,
    after_input: Callable[[], None] = lambda: None,
    before_output: Callable[[], None] = lambda: None,
    turn: Callable[[], Awaitable[None]] = at_once,
    outbound: Outbound | None = None,
    peer: str = "a peer without a name",
) -> None:
    """Run a connection until it is over. Then `on_close` has been called, the stream is closed, and the connection is
    freed.

    `after_input`: called after each step that may have called the handler, to act on its results. `before_output`:
    called before output is written to the stream. `turn`: awaited before input is handled; the waits must be short.
    `outbound`: shared by all connections whose handlers cause output on each other's connections. `peer`: the name of
    the other end in the log, until its open has named it.
    """
    outbound = outbound or Outbound()
    driver = _Driver(stream, connection, clock, after_input, before_output, turn, outbound, peer)
    cipher = stream.cipher if isinstance(stream, LayeredStream) else None
    connection.begin(driver, peer, tcp.remote_address(socket_of(stream)), cipher, can_prove=driver.can_prove)
    try:
        async with trio.open_nursery() as ticking:
            driver.scope = ticking.cancel_scope
            driver.nursery = ticking
            ticking.start_soon(driver.tick)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(driver.write)
                await driver.read()
            ticking.cancel_scope.cancel()
    finally:
        connection.lose_stream()
        with outbound:
            connection.release()
            after_input()
        await trio.aclose_forcefully(stream)


class _Driver:
    def __init__(
        self,
        stream: trio.abc.Stream,
        connection: DrivenConnection,
        clock: Callable[[], float],
        after_input: Callable[[], None],
        before_output: Callable[[], None],
        turn: Callable[[], Awaitable[None]],
        outbound: Outbound,
        peer: str,
    ) -> None:
        self._stream = stream
        self._pipe = pipe_of(stream)
        self._outbound = outbound
        self._peer = peer
        self._connection = connection
        self._clock = clock
        self._after_input = after_input
        self._before_output = before_output
        self._turn = turn
        self._woken = trio.Event()
        self._patience = math.inf
        self._read = 0  # the number of bytes read from the socket
        self._handled = 0  # how many of the bytes read were handled
        self._unsent = memoryview(b"")  # output that is not written yet
        self._is_fresh = False  # True while no byte of `_unsent` was written
        self._written = 0
        # The seconds for which the peer has taken no output.
        self._stalled = 0.0
        self._kernel = tcp.kernel_of(socket_of(stream))
        self.can_prove = self._kernel is not None
        self._asked: dict[Callable[[], None], None] = {}
        self._proving = False
        self._opened = False
        self._pause = trio.CancelScope()  # a scope that ends at the next tick
        self.scope = trio.CancelScope()
        self.nursery: trio.Nursery

    def wake(self) -> None:
        self._outbound.wake(self)

    def figures(self) -> StreamFigures | None:
        return self._kernel.figures() if self._kernel is not None else None

    def request_write(self) -> None:
        self._woken.set()

    async def read(self) -> None:
        """Read until the end of the stream. Input after the connection's end is read and ignored, because closing a
        socket with unread input would discard our last output."""
        connection = self._connection
        size = READ_FIRST
        try:
            while data := await self._pipe.read(size):
                came, self._read = self._pipe.taken - self._read, self._pipe.taken
                await self._turn()
                # Small reads are not timed, because reading the clock is a system call.
                is_timed = len(data) >= READ_LEAST
                began = used_s() if is_timed else 0.0
                if not connection.closed:
                    self._step(connection.receive, data, self._clock())
                self._handled = self._read
                size = next_size(size, came, used_s() - began if is_timed else 0.0)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.debug("%s: %s", self._named(), error)
        except PeerFaultError as error:
            self._complain(error)
            self._step(connection.receive_eof)
            await self._drain()
            return
        self._step(connection.receive_eof)

    async def _drain(self) -> None:
        """Read and drop all input, for at most GOODBYE_S."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while await self._pipe.read(READ_FIRST):
                pass

    def _step(self, act: Callable[..., object], *arguments: Any) -> None:
        """Call the engine once, and do everything that follows from the call (`router.amqp.driven`)."""
        with self._outbound:
            try:
                act(*arguments)
            except PeerFaultError as error:
                self._complain(error)
            self._follow()

    def _complain(self, error: PeerFaultError) -> None:
        told = event(EventKind.ENDED, origin=self._named(), why=str(error))
        log.warning("connection of %s ended: %s", self._named(), error, extra=told)

    def _follow(self) -> None:
        self._after_input()
        self.wake()
        if self._connection.opened and not self._opened:
            self._opened = True
            self._pause.cancel()
        if self._connection.closed:
            self.scope.deadline = min(self.scope.deadline, trio.current_time() + GOODBYE_S)

    def _named(self) -> str:
        name = self._connection.remote_container
        return f"{name!r}, {self._peer}" if name else self._peer

    def flush(self) -> None:
        """Write as much as the stream takes at once. The writer task writes the rest."""
        if not self._unsent and self._pull():
            self._sent(self._pipe.write(self._unsent))
        connection = self._connection
        if self._unsent or connection.proofs or connection.closing or connection.closed:
            self.request_write()

    async def write(self) -> None:
        connection = self._connection
        try:
            while True:
                self._woken = trio.Event()
                while self._pull():
                    self._sent(self._pipe.write(self._unsent))
                    if self._unsent:
                        self._sent(await self._pipe.write_on(self._unsent))
                    else:
                        await trio.lowlevel.cancel_shielded_checkpoint()
                if connection.closed:
                    break
                await self._wait(connection)
            await self._end()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._step(connection.receive_eof)
            self.scope.cancel()

    def _pull(self) -> bool:
        """Whether there is output to write. If all former output is written, take new output from the connection."""
        if not self._unsent:
            data = self._connection.data_to_send()
            if self._connection.has_failed:
                self.nursery.start_soon(self._tick_now)
            if data:
                self._before_output()
            elif self._connection.proofs and not (self._connection.closing or self._connection.closed):
                data = self._probe()
            self._unsent = memoryview(data)
            self._is_fresh = True
        return len(self._unsent) > 0

    def _sent(self, size: int) -> None:
        self._unsent = self._unsent[size:]
        self._written += size
        if self._is_fresh:
            self._is_fresh = False
            self._connection.is_behind = len(self._unsent) > 0

    async def _wait(self, connection: DrivenConnection) -> None:
        # Every tick ends this wait and begins it anew, but the deadline for a closing connection stays the first one.
        if connection.closing:
            self._patience = min(self._patience, trio.current_time() + GOODBYE_S)
        with trio.move_on_at(self._patience) as patience:
            await self._woken.wait()
        # The peer has not answered our close in time.
        if patience.cancelled_caught:
            self._step(connection.receive_eof)

    def _probe(self) -> bytes:
        """Bytes that the peer's machine will acknowledge, as a proof (`DrivenConnection.prove`). Empty if the stream
        does not show acknowledgements."""
        asked, self._connection.proofs = self._connection.proofs, {}
        if self._kernel is None:
            return b""
        self._asked |= asked
        if not self._proving:
            self._proving = True
            self.nursery.start_soon(self._prove, self._kernel)
        return self._connection.heartbeat

    async def _prove(self, kernel: tcp.Kernel) -> None:
        while self._asked:
            asked, self._asked = self._asked, {}
            if not await self._has_come_through(kernel) or self._connection.closed:
                return
            for told in asked:
                self._step(told)
        self._proving = False

    async def _has_come_through(self, kernel: tcp.Kernel) -> bool:
        """Whether the peer still had the connection: returns after the peer's machine has acknowledged all bytes
        written so far, and after all input up to then is handled. False if the connection is not open any more."""
        to_come, pause = self._written + len(self._unsent), PROOF_FIRST_S
        while self._written - kernel.unacknowledged() < to_come:
            await trio.sleep(pause)
            pause = min(2 * pause, PROOF_MOST_S)
        if not kernel.is_open():
            return False
        # During the sleep, `read` counts the input that it has taken.
        await trio.sleep(PROOF_FIRST_S)
        come = self._pipe.taken + kernel.unread()
        while self._handled + self._pipe.ignored < come:
            await trio.sleep(pause)
        return True

    async def _end(self) -> None:
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            await self._stream.send_eof()
        else:
            self.scope.cancel()

    async def _tick_now(self) -> None:
        self._step(self._connection.tick, self._clock())

    async def tick(self) -> None:
        """Call the connection's tick when it is due. A tick without work must be cheap, as there are many idle
        connections."""
        connection = self._connection
        deadline: float | None = self._clock()
        while not connection.closed and (deadline is not None or not connection.opened):
            written, began = self._written, trio.current_time()
            left = math.inf if deadline is None else deadline - self._clock()
            with trio.CancelScope(deadline=began + max(0.0, left)) as self._pause:
                await trio.sleep_forever()
            await read_first(self._pause.deadline)
            # Input waits to be handled, so the peer is not silent.
            if self._handled < self._read:
                deadline = self._clock() + LATE_S
                continue
            with self._outbound:
                try:
                    deadline = connection.tick(self._clock())
                    stalls = len(self._unsent) > 0 and written == self._written
                    self._judge(stalls, min(trio.current_time() - began, left))
                except PeerFaultError as error:
                    self._complain(error)
                    self._follow()
                if connection.has_output:
                    self.wake()

    def _judge(self, stalls: bool, lasted: float) -> None:
        """End the connection if the peer has read nothing for STALL_S. `lasted`: the intended length of the last pause;
        the real pause is longer if the process was stopped, for which the peer is not to blame."""
        self._stalled = self._stalled + lasted if stalls else 0.0
        if self._stalled >= STALL_S:
            self._connection.receive_eof()
            self.scope.cancel()
            raise AmqpError(RESOURCE_LIMIT, f"the peer read nothing for {STALL_S:g} s while data waited for it")
