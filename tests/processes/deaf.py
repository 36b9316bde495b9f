"""A client that writes and does not read. It is alive and grants credit, but takes nothing."""

import trio


class Deaf(trio.abc.HalfCloseableStream):
    """A stream that does not read for a while. Writing continues."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._hears = trio.Event()
        self._hears.set()
        self._stream = stream

    def deafen(self) -> None:
        """Stop reading, from the next read on."""
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
