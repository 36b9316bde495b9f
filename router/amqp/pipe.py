"""Reads and writes the bytes of one connection with as few system calls as its stream allows.

A socket is read once the loop reports input, and is written to at once as far as it has room. A trio stream would poll
before it waits, and would yield to other tasks after each write. A TLS stream has a pipe of its own
(`router.amqp.tls`). Any other stream is used through trio's interface alone.
"""

import os
from abc import abstractmethod
from typing import Protocol

import trio

# The bytes that a read asks for if its caller names no size.
READ = 16 * 1024
# The highest number of bytes of one write to a trio stream. Each completed write shows that the peer takes output.
PIECE = 64 * 1024


class HandshakeError(OSError):
    """A handshake below AMQP or MQTT failed, for example the handshake of TLS. The text says why, for the log."""


class Pipe(Protocol):
    """A stream's bytes. A broken pipe raises the exceptions of trio's streams."""

    taken: int
    """Bytes read from the socket so far."""
    ignored: int = 0
    """The number of bytes at the end of `taken` that are no input for the connection, such as a ping of WebSocket."""

    @abstractmethod
    async def read(self, size: int) -> bytes:
        """Input of at most `size` bytes, after a wait if there is none yet; empty at the end of the stream."""

    @abstractmethod
    def write(self, data: bytes | memoryview) -> int:
        """Write without a wait. Returns how many bytes were written."""

    @abstractmethod
    async def write_on(self, data: bytes | memoryview) -> int:
        """Write, after a wait if there is no room. Returns how many bytes were written, at least one."""


class SocketPipe(Pipe):
    """The pipe of a plain socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.taken = 0
        self._socket = stream.socket

    def _descriptor(self) -> int:
        descriptor = self._socket.fileno()
        if descriptor < 0:
            raise trio.ClosedResourceError("the socket was closed")
        return descriptor

    async def read(self, size: int) -> bytes:
        while True:
            await trio.lowlevel.wait_readable(self._descriptor())
            try:
                data = os.read(self._socket.fileno(), size)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error
            self.taken += len(data)
            return data

    def write(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._socket.fileno(), data)
        # The socket has no room, or is broken. In the second case, the following `write_on` raises the error.
        except OSError:
            return 0

    async def write_on(self, data: bytes | memoryview) -> int:
        if sent := self.write(data):
            await trio.lowlevel.cancel_shielded_checkpoint()
            return sent
        while True:
            await trio.lowlevel.wait_writable(self._descriptor())
            try:
                return os.write(self._socket.fileno(), data)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error


class StreamPipe(Pipe):
    """The pipe of any other trio stream, through trio's interface."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.taken = 0
        self._stream = stream

    async def read(self, size: int) -> bytes:
        data = bytes(await self._stream.receive_some(size))
        self.taken += len(data)
        return data

    def write(self, data: bytes | memoryview) -> int:
        return 0

    async def write_on(self, data: bytes | memoryview) -> int:
        piece = data[:PIECE]
        await self._stream.send_all(piece)
        return len(piece)


class LayeredStream(trio.abc.HalfCloseableStream):
    """A stream with a pipe of its own, TLS or WebSocket, above the stream `below`."""

    below: trio.SocketStream
    pipe: Pipe
    cipher: tuple[str, str, int] | None
    """The cipher of TLS: its name, its protocol, and the bits of its secret. None: the stream has no TLS."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self.pipe.read(max_bytes or READ)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with memoryview(data) as view:
            at = 0
            while at < len(view):
                at += await self.pipe.write_on(view[at:])

    async def wait_send_all_might_not_block(self) -> None:
        await self.below.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.below.aclose()


def socket_of(stream: trio.abc.Stream) -> trio.abc.Stream:
    """The stream of the socket below this stream."""
    return stream.below if isinstance(stream, LayeredStream) else stream


def pipe_of(stream: trio.abc.Stream) -> Pipe:
    """The fastest pipe for this stream."""
    if isinstance(stream, LayeredStream):
        return stream.pipe
    return SocketPipe(stream) if os.name == "posix" and isinstance(stream, trio.SocketStream) else StreamPipe(stream)
