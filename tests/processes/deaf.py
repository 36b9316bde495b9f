"""A client that writes and does not read: it is alive, grants what it likes, and takes nothing."""

import trio


class Deaf(trio.abc.HalfCloseableStream):
    """A stream that is not read for a while; what is written goes on."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._hears = trio.Event()
        self._hears.set()
        self._stream = stream

    def deafen(self) -> None:
        """From the next read on."""
        self._hears = trio.Event()

    def listen(self) -> None:
        self._hears.set()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await self._hears.wait()
        return bytes(await self._stream.receive_some(max_bytes))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()
