"""The connections between processes of the bare line: sockets that are written after a wake-up, and a relay."""

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgpack
import trio

LENGTH = struct.Struct(">I")


class Writer:
    """Writes what `pull` returns after each wake-up."""

    def __init__(self, stream: trio.SocketStream) -> None:
        stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
        self.stream, self.wake = stream, trio.Event()

    def pull(self) -> bytes:
        raise NotImplementedError

    async def write(self) -> None:
        with suppress(trio.BrokenResourceError):  # the reader notices that, too
            while True:
                await self.wake.wait()
                self.wake = trio.Event()
                while data := self.pull():
                    await self.stream.send_all(data)


class Neighbour(Writer):
    """One connection between two routers: messages with their lengths in front. The relay passes them on unchanged."""

    def __init__(self, stream: trio.SocketStream, handle: Callable[[Any], None], *, decodes: bool = True) -> None:
        super().__init__(stream)
        self.handle, self.decodes, self.queue = handle, decodes, list[bytes]()

    def put(self, *parts: bytes) -> None:
        self.queue += parts
        self.wake.set()

    def pull(self) -> bytes:
        data, self.queue = b"".join(self.queue), []
        return data

    async def run(self, after: Callable[[], None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.write)
            held = bytearray()
            while data := await self.stream.receive_some(1 << 20):
                held += data
                at = 0
                while len(held) - at >= 4 and len(held) - at - 4 >= (size := LENGTH.unpack_from(held, at)[0]):
                    if self.decodes:
                        self.handle(msgpack.unpackb(memoryview(held)[at + 4 : at + 4 + size]))
                    at += 4 + size
                if at and not self.decodes:
                    self.handle(bytes(held[:at]))
                del held[:at]
                after()
            nursery.cancel_scope.cancel()


async def relay(*ports: int) -> None:
    one, two = [await trio.open_tcp_stream("127.0.0.1", port) for port in ports]
    first = Neighbour(one, lambda data: second.put(data), decodes=False)
    second = Neighbour(two, first.put, decodes=False)
    async with trio.open_nursery() as nursery:
        for end in (first, second):
            nursery.start_soon(end.run, lambda: None)
        print("[]", flush=True)
