"""SASL (AMQP 1.0 5.3), in front of proton: it never sees a SASL frame.

Proton's own server side dies of a damaged sasl-init, process and all, and offers little. This one offers ANONYMOUS and
lets clients that skip SASL do so. Sans-I/O: `receive` takes bytes until `done` and returns those that belong to AMQP.
"""

from typing import Any, Final

from router.amqp.format.codec import Described, Raw, Symbol, decode, encode, ubyte
from router.amqp.format.errors import FRAMING_ERROR, UNAUTHORIZED, AmqpError

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
MECHANISMS, INIT, OUTCOME = 0x40, 0x41, 0x44
ANONYMOUS: Final = Symbol("ANONYMOUS")
OFFERED: Final = Raw(b"\xe0\x0c\x01\xa3\x09" + ANONYMOUS.encode())  # an array: some clients know no lone symbol
MAX_FRAME: Final = 512  # AMQP 1.0 5.3.1


def _frame(code: int, *fields: Any) -> bytes:
    body = encode(Described(code, list(fields)))
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


class SaslLayer:
    """What both ends share: a buffer, and frames out of it. `out` is what is to be written."""

    def __init__(self) -> None:
        self.done = False
        self.out = b""
        self._buffer = b""
        self._greeted = False

    def receive(self, data: bytes) -> bytes:
        """Raises AmqpError if this is not SASL, or SASL fails; `out` may still hold the reason for the peer."""
        self._buffer += data
        if not self._greeted and len(self._buffer) >= 8:
            self._greet()
        while self._greeted and not self.done and (frame := self._next_frame()) is not None:
            self._handle(frame)
        if not self.done:
            return b""
        rest, self._buffer = self._buffer, b""
        return rest

    def _greet(self) -> None:
        if self._buffer[:8] != SASL_HEADER:
            self.out += SASL_HEADER
            raise AmqpError(FRAMING_ERROR, f"not AMQP: {self._buffer[:8]!r}")
        self._buffer = self._buffer[8:]
        self._greeted = True

    def _next_frame(self) -> Described | None:
        if len(self._buffer) < 4:
            return None
        size = int.from_bytes(self._buffer[:4], "big")
        if not 8 <= size <= MAX_FRAME:
            raise AmqpError(FRAMING_ERROR, f"a SASL frame of {size} bytes")
        if len(self._buffer) < size:
            return None
        frame, self._buffer = self._buffer[:size], self._buffer[size:]
        value, _ = decode(frame, 4 * frame[4])
        if frame[5] != 1 or not isinstance(value, Described) or not isinstance(value.value, list):
            raise AmqpError(FRAMING_ERROR, "not a SASL frame")
        return value

    def _handle(self, frame: Described) -> None:
        raise NotImplementedError


class SaslServer(SaslLayer):
    def _greet(self) -> None:
        if self._buffer[:8] == AMQP_HEADER:  # a client may go without
            self.done = self._greeted = True
            return
        super()._greet()
        self.out += SASL_HEADER + _frame(MECHANISMS, OFFERED)

    def _handle(self, frame: Described) -> None:
        if frame.descriptor != INIT or not frame.value:
            raise AmqpError(FRAMING_ERROR, "not a sasl-init")
        if frame.value[0] != ANONYMOUS:
            self.out += _frame(OUTCOME, ubyte(1))
            raise AmqpError(UNAUTHORIZED, "a SASL mechanism that was not offered")
        self.out += _frame(OUTCOME, ubyte(0))
        self.done = True


class SaslClient(SaslLayer):
    def __init__(self) -> None:
        super().__init__()
        self.out = SASL_HEADER
        self._chosen = False

    def _handle(self, frame: Described) -> None:
        if frame.descriptor == MECHANISMS and frame.value and not self._chosen:
            self._chosen = True
            self._choose(frame.value[0])
        elif frame.descriptor == OUTCOME and frame.value:
            if frame.value[0] != 0:
                raise AmqpError(UNAUTHORIZED, "the server refused ANONYMOUS")
            self.done = True
        else:
            raise AmqpError(FRAMING_ERROR, "an unexpected SASL frame")

    def _choose(self, offered: Any) -> None:
        if offered != ANONYMOUS and not (isinstance(offered, list) and ANONYMOUS in offered):
            raise AmqpError(UNAUTHORIZED, f"the server offers no ANONYMOUS: {offered!r}")
        self.out += _frame(INIT, ANONYMOUS, b"anonymous")
