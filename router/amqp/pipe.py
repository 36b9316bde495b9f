"""The bytes of one connection, read and written with as few calls of the kernel as its stream lets.

A socket is read once the loop says that there is something, and takes what it has room for at once: a stream of trio's
looks before it waits, and lets others run after it has written. One that encrypts has a pipe of its own
(`router.amqp.tls`). Of any other stream only what trio has is used.
"""

import os
from abc import abstractmethod
from typing import Protocol

import trio

PIECE = 64 * 1024  # of what is written, by which is told whether the peer takes any of it


class Pipe(Protocol):
    """A broken one raises what trio's streams raise."""

    taken: int
    """Bytes that the socket has given."""

    @abstractmethod
    async def read(self, size: int) -> bytes:
        """What has come, at most so many bytes; nothing at the end."""

    @abstractmethod
    def write(self, data: bytes | memoryview) -> int:
        """How many bytes of this have gone at once."""

    @abstractmethod
    async def write_on(self, data: bytes | memoryview) -> int:
        """How many bytes of this have gone, once some have."""


class SocketPipe(Pipe):
    """Of a socket that nothing lies above."""

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
        except OSError:  # it has no room, or is broken, as who waits for room finds out
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
    """Of whatever trio calls a stream."""

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


def pipe_of(stream: trio.abc.Stream) -> Pipe:
    """The shortest way to this stream's bytes."""
    return SocketPipe(stream) if os.name == "posix" and isinstance(stream, trio.SocketStream) else StreamPipe(stream)
