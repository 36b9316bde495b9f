"""A connection between two routers: AMQP opens it, closes it and sends heartbeats; between these frames it carries
bodies.

Bodies (`frames/bodies`) are written without a copy and read in place. A container sends bodies only when both ends have
opened. Bodies arrive in order.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from router.amqp.connection import Connection, Owner
from router.amqp.format.values import HEARTBEAT
from router.amqp.frames.bodies import BodyReader, Buffer, framed


class BodyOwner(Owner, Protocol):
    """Receives the events of the connection."""

    def on_body(self, connection: "BodyConnection", lane: int, body: Buffer) -> None:
        """A body has arrived on an open connection. It is a view of the input, so a reference to it keeps the whole
        input in memory."""


class BodyConnection(Connection):
    """A connection between two routers, with bodies between the AMQP frames."""

    handler: BodyOwner

    def __init__(self, handler: BodyOwner, *, max_frame: int, max_body: int, lanes: int, **options: Any) -> None:
        super().__init__(handler, max_frame=max_frame, max_message=max_body, **options)
        self._max_frame = max_frame
        self._bodies = BodyReader(max_frame, max_body, lanes)
        self._out: list[Buffer] = []
        # True after `open`: the owner accepts the peer.
        self._is_open = False
        # True once our open frame is written.
        self._has_opened = False
        # `_has_come` is true if bytes have arrived since the last tick, after the peer's open.
        # `_has_gone` is true if we have sent bodies since the last tick.
        self._has_come = self._has_gone = False
        # True if we sent bodies between the last two ticks.
        self._is_heard = False
        # True if proton may have events or output. Mostly there are only bodies, which proton does not see.
        self._has_amqp = False

    def open(self) -> None:
        super().open()
        self._is_open = True

    def send(self, lane: int, bodies: Sequence[bytes]) -> None:
        """Send one body, which is the concatenation of `bodies`. After a close this does nothing."""
        if not self.closing and not self.closed:
            self._out += framed(lane, bodies, self._max_frame)

    def data_to_send(self) -> bytes:
        """Proton's output: our open comes first, our close last. If both are still unsent, the bodies between them are
        dropped.
        """
        out, self._out = self._out, []
        ends = self.closing or self.closed
        amqp = super().data_to_send() if self._has_amqp or not self.opened or ends else b""
        self._has_amqp = False
        if ends and not self._has_opened:
            out = []
        self._has_opened = self._is_open
        if amqp == HEARTBEAT and self._is_heard:
            amqp = b""
        if not out:
            return amqp
        self._has_gone = True
        return b"".join((*out, amqp) if ends else (amqp, *out))

    def receive_eof(self) -> None:
        self._has_amqp = True
        super().receive_eof()

    def _dispatch(self) -> None:
        if self._has_amqp or self.error is not None:
            super()._dispatch()

    def _take(self, data: bytes) -> None:
        self._has_come = self.opened
        for lane, piece in self._bodies.split(data):
            if self.closed:
                break
            if lane is None:
                self._has_amqp = True
                self._intake.take(bytes(piece))
                self._intake.handle_events()
                self._bodies.are_let_in = self.opened and self._is_open
            else:
                self.handler.on_body(self, lane, piece)

    def release(self) -> None:
        """Free large buffers at once, because the traceback of an error may keep this object alive for a while."""
        super().release()
        self._bodies.forget()
        self._out = []

    def tick(self, now: float) -> float | None:
        """Apply the timeouts. Bodies count as heartbeats, but proton does not see bodies. If the peer has sent bytes
        since the last tick, proton gets a heartbeat as if the peer had written it. While we send bodies, the output
        leaves out proton's own heartbeats."""
        if self._has_come and not self.closed:
            self._engine.push(HEARTBEAT, 0, len(HEARTBEAT))
        self._has_amqp, self._is_heard = True, self._has_gone
        self._has_come = self._has_gone = False
        return super().tick(now)
