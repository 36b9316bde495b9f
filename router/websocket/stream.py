"""WebSocket (RFC 6455) as a stream of bytes, so that AMQP and MQTT above it do not know of it.

The input is the payload of all binary messages, wherever frames and messages end, as both protocols demand (MQTT 5 6.0;
the WebSocket binding of AMQP). Each write leaves as one binary message. The pipe answers pings and a Close. Any fault
of the peer closes the WebSocket with its code. wsproto reads and writes the frames; it passes on the payload of a frame
as it arrives, so the limits of the protocol above bound the memory, and a frame needs no limit of its own.
"""

import time
from typing import Final

import trio
from wsproto import ConnectionType
from wsproto.connection import Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

from router.amqp.format.errors import PeerFaultError
from router.amqp.pipe import PIECE, READ, LayeredStream, Pipe, socket_of
from router.amqp.transport import READ_LEAST, next_size

MOST_REASON: Final = 120
"""The highest number of characters of the reason of a Close. A Close has room for 123 bytes."""


class WebSocketFault(PeerFaultError):
    """The peer broke the WebSocket protocol, or sent text."""


class WebSocketPipe(Pipe):
    """The pipe above WebSocket, for the server's end after the handshake. Output counts as written once its frame has
    gone."""

    def __init__(self, below: Pipe) -> None:
        self._below = below
        self._frames = Connection(ConnectionType.SERVER)
        self._size = READ
        """The bytes to ask for in the next read. It is fewer after a read of tiny frames, which take long to handle."""
        self._given = 0
        """The number of bytes that had come from the pipe below (`taken`) when this pipe last returned input to the
        protocol above."""
        self._fault: WebSocketFault | None = None
        self._is_over = False
        self._out = memoryview(b"")
        """The frames that are being written."""
        self._means = 0
        """The number of bytes of the protocol above that are in the frames in `_out`."""
        self._control = b""
        """The next control frame, which waits to be written. A later one replaces it: only the last ping needs an
        answer (5.5.3)."""
        self._is_writing = False
        """Whether `write_on` waits for room in the pipe below."""

    @property
    def taken(self) -> int:  # type: ignore[override]  # the pipe below counts
        return self._below.taken

    @property
    def ignored(self) -> int:  # type: ignore[override]
        return self._below.taken - self._given

    # The methods from here on take input.

    async def read(self, size: int) -> bytes:
        """Read the payload of the next frames. Raises WebSocketFault after all input before the fault is returned. A
        later read drops input up to the end of the stream."""
        while True:
            if self._fault is not None and not self._is_over:
                self._is_over = True
                raise self._fault
            if self._is_over and self._fault is None:
                return b""
            came = await self._below.read(min(size, self._size))
            if not came:
                return b""
            if not self._is_over and (data := self._take(came)):
                self._given = self._below.taken
                return data

    def _take(self, came: bytes) -> bytes:
        """Decode frames from the bytes `came`. Returns their payload."""
        began = time.thread_time() if len(came) >= READ_LEAST else None
        parts, ping = list[bytes | bytearray](), None
        self._frames.receive_data(came)
        for event in self._frames.events():
            if isinstance(event, BytesMessage):
                parts.append(event.data)
            elif isinstance(event, Ping):
                ping = event
            elif isinstance(event, TextMessage):
                self._fail(CloseReason.UNSUPPORTED_DATA, "a text message came, expected binary messages")
            elif isinstance(event, CloseConnection):
                self._end(event)
            if self._is_over or self._fault is not None:
                break
        if ping is not None and self._frames.state is ConnectionState.OPEN:
            self._say(self._frames.send(ping.response()))
        if began is not None:
            self._size = next_size(self._size, len(came), time.thread_time() - began)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def _end(self, close: CloseConnection) -> None:
        """Handle a Close, which the peer has sent, or by which wsproto reports a fault."""
        if self._frames.state is ConnectionState.REMOTE_CLOSING:
            self._say(self._frames.send(close.response()))
        elif self._frames.state is not ConnectionState.CLOSED:
            self._fail(close.code, close.reason or "it broke the protocol")
            return
        self._is_over = True

    def _fail(self, code: int, why: str) -> None:
        self._fault = WebSocketFault(f"WebSocket: {why}")
        if self._frames.state is ConnectionState.OPEN:
            self._say(self._frames.send(CloseConnection(code=code, reason=why[:MOST_REASON])))

    # The methods from here on make output.

    def _say(self, frame: bytes) -> None:
        """Write a control frame now, or after the frame that is written in part."""
        self._control = frame
        if not self._out and not self._is_writing:
            self._push()

    def _push(self) -> None:
        """Write the waiting control frame as far as there is room. The rest goes with the next write."""
        if self._control:
            self._out, self._control = memoryview(self._control), b""
            self._went(self._below.write(self._out))

    def _load(self, data: bytes | memoryview) -> None:
        """Make the next frame, from the beginning of `data`."""
        if self._out:
            return
        piece = bytes(data[:PIECE])
        self._out = memoryview(self._control + self._frames.send(BytesMessage(data=piece)))
        self._control, self._means = b"", len(piece)

    def _went(self, size: int) -> int:
        """`size` bytes of frames are written. Returns how many output bytes are now written completely."""
        self._out = self._out[size:]
        if self._out:
            return 0
        means, self._means = self._means, 0
        return means

    @property
    def _is_deaf(self) -> bool:
        """Whether output is dropped: a Close was sent, and the frame before it has gone."""
        return self._frames.state is not ConnectionState.OPEN and not self._out

    def write(self, data: bytes | memoryview) -> int:
        written = 0
        while written < len(data):
            if self._is_deaf:
                return len(data)
            self._load(data[written:])
            written += self._went(self._below.write(self._out))
            if self._out:
                break
        return written

    async def write_on(self, data: bytes | memoryview) -> int:
        written = 0
        while not written:
            if self._is_deaf:
                await trio.lowlevel.cancel_shielded_checkpoint()
                return len(data)
            self._load(data)
            written = await self._write_out()
        self._push()
        return written

    async def _write_out(self) -> int:
        self._is_writing = True
        try:
            return self._went(await self._below.write_on(self._out))
        finally:
            self._is_writing = False

    async def close(self) -> None:
        """Send a Close, unless one was sent, and everything that waits."""
        if self._frames.state is ConnectionState.OPEN:
            self._control = self._frames.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE))
        while self._out or self._control:
            if not self._out:
                self._out, self._control = memoryview(self._control), b""
            await self._write_out()


class WebSocketStream(LayeredStream):
    """A stream above a WebSocket, which itself is above a socket or TLS."""

    pipe: WebSocketPipe

    def __init__(self, lower: trio.SocketStream | LayeredStream, below: Pipe) -> None:
        """`below`: the pipe of `lower`, after the handshake."""
        found = socket_of(lower)
        assert isinstance(found, trio.SocketStream)
        self.below = found
        self.pipe = WebSocketPipe(below)
        self.cipher = lower.cipher if isinstance(lower, LayeredStream) else None
        self._lower = lower

    async def send_eof(self) -> None:
        await self.pipe.close()
        await self._lower.send_eof()
