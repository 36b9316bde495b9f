"""The common part of both ends of SASL: a buffer, and the frames in it (AMQP 1.0 5.3).

Proton's own server side crashes the process on a damaged sasl-init, and offers few mechanisms. It starts by itself when
it reads a SASL header, so proton gets only the AMQP header. Sans-I/O: `receive` takes bytes until `over`, and returns
the bytes that belong to AMQP.
"""

from typing import Any, Final

from router.amqp.format.codec import Described, decode, encode
from router.amqp.format.errors import FRAMING_ERROR, AmqpError

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)
OK, DENIED = 0, 1
_NAMES: Final = {
    f"amqp:sasl-{name}:list": MECHANISMS + place
    for place, name in enumerate(("mechanisms", "init", "challenge", "response", "outcome"))
}
MAX_FRAME: Final = 512  # AMQP 1.0 5.3.1


def sasl_frame(code: int, *fields: Any) -> bytes:
    body = encode(Described(code, list(fields)))
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


class SaslLayer:
    """`out` holds the bytes to be written."""

    def __init__(self) -> None:
        self.done = False
        """Whether SASL is complete for output: later output is AMQP."""
        self.over = False
        """Whether SASL is complete for input: later input is AMQP."""
        self.out = b""
        self.user = ""
        """The user that the peer has proven to be; empty if it has proven none."""
        self.mechanism = ""
        """The mechanism that the client chose; empty if it used no SASL."""
        self._buffer = b""
        self._greeted = False

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the peer. Returns the bytes that belong to AMQP. Raises AmqpError if the input is not SASL, or
        if SASL fails; then `out` may still hold an answer for the peer.
        """
        self._buffer += data
        if not self._greeted and len(self._buffer) >= 8:
            self._greet()
        while self._greeted and not self.done and (frame := self._next_frame()) is not None:
            self._handle(frame)
        if not self.done or len(self._buffer) < len(AMQP_HEADER):
            return b""
        if not self._buffer.startswith(AMQP_HEADER):
            raise AmqpError(FRAMING_ERROR, f"the peer does not speak AMQP: it sent {self._buffer[:8]!r}")
        self.over = True
        rest, self._buffer = self._buffer, b""
        return rest

    def write_frame(self, code: int, *fields: Any) -> None:
        self.out += sasl_frame(code, *fields)

    def _greet(self) -> None:
        if self._buffer[:8] != SASL_HEADER:
            self.out += SASL_HEADER
            raise AmqpError(FRAMING_ERROR, f"the peer does not speak AMQP: it sent {self._buffer[:8]!r}")
        self._buffer = self._buffer[8:]
        self._greeted = True

    def _next_frame(self) -> Described | None:
        if len(self._buffer) < 4:
            return None
        size = int.from_bytes(self._buffer[:4], "big")
        if not 8 <= size <= MAX_FRAME:
            raise AmqpError(FRAMING_ERROR, f"the peer sent a SASL frame of {size} bytes, expected 8 to {MAX_FRAME}")
        if len(self._buffer) < size:
            return None
        frame, self._buffer = self._buffer[:size], self._buffer[size:]
        value, _ = decode(frame, 4 * frame[4])
        if frame[5] != 1 or not isinstance(value, Described) or not isinstance(value.value, list):
            raise AmqpError(FRAMING_ERROR, "the peer sent a frame that is not SASL")
        return Described(_NAMES.get(value.descriptor, value.descriptor), value.value)

    def _handle(self, frame: Described) -> None:
        raise NotImplementedError


def binary(frame: Described, place: int) -> bytes | None:
    """A binary field of a frame; None if it is left out."""
    value = frame.value[place] if len(frame.value) > place else None
    if value is not None and not isinstance(value, bytes):
        raise AmqpError(FRAMING_ERROR, "a SASL frame lacks its binary data")
    return value
