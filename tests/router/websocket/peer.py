"""The client's end of a WebSocket, and a pipe in memory below the server's end."""

from collections import deque

import trio
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Event, Message, Ping, TextMessage

from router.amqp.pipe import Pipe


class Wire(Pipe):
    """A pipe whose input the test gives, and that takes `room` bytes of output at once. A write that waits takes at
    most `step` bytes."""

    def __init__(self, room: int = 1 << 30, step: int = 1 << 30) -> None:
        self.taken = 0
        self.come: deque[bytes] = deque()
        self.room, self.step = room, step
        self.written = bytearray()

    async def read(self, size: int) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self.come:
            return b""
        piece, rest = self.come[0][:size], self.come[0][size:]
        self.come.popleft()
        if rest:
            self.come.appendleft(rest)
        self.taken += len(piece)
        return piece

    def write(self, data: bytes | memoryview) -> int:
        took = min(len(data), self.room)
        self.room -= took
        self.written += data[:took]
        return took

    async def write_on(self, data: bytes | memoryview) -> int:
        await trio.lowlevel.checkpoint()
        took = min(len(data), self.step)
        self.written += data[:took]
        return took


class WebSocketPeer:
    """A client after the handshake, sans-I/O."""

    def __init__(self) -> None:
        self._frames = Connection(ConnectionType.CLIENT)
        self.received = b""
        self.events: list[Event] = []
        """All events but binary messages."""

    def say(self, *parts: bytes, ends: bool = True) -> bytes:
        """The frames of one message of these fragments."""
        last = len(parts) - 1
        told = (BytesMessage(data=part, message_finished=ends and at == last) for at, part in enumerate(parts))
        return b"".join(map(self._frames.send, told))

    def tell(self, event: Ping | CloseConnection | TextMessage) -> bytes:
        return self._frames.send(event)

    def hear(self, data: bytes) -> None:
        """Take the server's output, in which no control frame may be within another frame."""
        self._frames.receive_data(data)
        for event in self._frames.events():
            if isinstance(event, BytesMessage):
                self.received += event.data
            else:
                assert not isinstance(event, Message)
                self.events.append(event)

    @property
    def closed(self) -> tuple[int, str | None] | None:
        """The code and the reason of the server's Close."""
        found = [(event.code, event.reason) for event in self.events if isinstance(event, CloseConnection)]
        return found[0] if found else None
