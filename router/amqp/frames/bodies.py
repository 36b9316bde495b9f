"""Frames that carry bodies between two routers. AMQP leaves their frame types free for such use (2.3.1).

    size (4 bytes) | 2 | type: BODY or PART | lane (2 bytes) | bytes of a body

A body that is longer than a frame is sent as PARTs and a last BODY. Lanes are independent streams of bodies: one
continues while another has an incomplete body. AMQP frames may stand between these frames. Proton sees no body frame,
and bodies need no session, link or credit: the senders limit the bytes under way themselves.

The callers know what bodies mean.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from router.amqp.format.errors import FRAMING_ERROR, NOT_ALLOWED, RESOURCE_LIMIT, AmqpError, LimitError
from router.amqp.format.performative import AMQP_HEADER

BODY: Final = 2
PART: Final = 3

Buffer = bytes | memoryview

_HEAD: Final = 8  # bytes at the beginning of a frame that precede its content
_DOFF: Final = 2
_OURS: Final = (BODY, PART)


def framed(lane: int, bodies: Sequence[bytes], max_frame: int) -> list[Buffer]:
    """The frames of one body, to be written in this order. The body is the concatenation of `bodies`."""
    size, room = sum(map(len, bodies)), max_frame - _HEAD
    if size <= room:
        return [_head(size, BODY, lane), *bodies]
    whole, frames = memoryview(b"".join(bodies)), list[Buffer]()
    for start in range(0, size, room):
        part = whole[start : start + room]
        frames += _head(len(part), PART if start + room < size else BODY, lane), part
    return frames


def _head(size: int, kind: int, lane: int) -> bytes:
    return ((size + _HEAD) << 32 | _DOFF << 24 | kind << 16 | lane).to_bytes(_HEAD, "big")


class BodyReader:
    """Reads the bodies and AMQP frames of one direction of a connection."""

    __slots__ = (
        "_held",
        "_held_size",
        "_is_begun",
        "_lanes",
        "_max_body",
        "_max_frame",
        "_parts",
        "_parts_size",
        "_wanted",
        "are_let_in",
    )

    def __init__(self, max_frame: int, max_body: int, lanes: int) -> None:
        """`max_frame`: bytes of the largest frame. `max_body`: the highest number of bytes of incomplete bodies, of all
        lanes together. `lanes`: the number of lanes."""
        self.are_let_in = False
        """Whether bodies are allowed. Before both ends are open, the peer must not send any."""
        self._max_frame = max_frame
        self._max_body = max_body
        self._lanes = lanes
        self._is_begun = False  # True once the AMQP header has arrived
        self._held: list[bytes] = []  # the bytes so far of an incomplete frame
        self._held_size = 0
        # The bytes of this frame that are needed next: first the bytes of its head, then all.
        self._wanted = _HEAD
        self._parts: dict[int, bytearray] = {}  # lane -> the parts so far of its incomplete body
        self._parts_size = 0

    def split(self, data: bytes) -> Iterator[tuple[int | None, Buffer]]:
        """Yields the complete bodies and AMQP frames of the input, in order: each body with its lane; AMQP frames and
        the AMQP header with None. Raises AmqpError if a frame of bodies is invalid, or a frame is too large."""
        view, at, end = memoryview(data), 0, len(data)
        while at < end:
            if not self._held and end - at >= _HEAD and (size := self._size_of(data, at)) <= end - at:
                frame: Buffer = view[at : at + size]
                at += size
            else:
                piece = data[at : at + self._wanted - self._held_size]
                at += len(piece)
                self._held.append(piece)
                self._held_size += len(piece)
                if self._held_size < self._wanted:
                    return
                frame = b"".join(self._held)
                if self._wanted == _HEAD and (size := self._size_of(frame, 0)) > _HEAD:
                    self._held, self._wanted = [frame], size
                    continue
                self._held, self._held_size, self._wanted = [], 0, _HEAD
            if not self._is_begun or frame[5] not in _OURS:
                self._is_begun = True
                follow = self._behind(data, at)
                yield None, b"".join((frame, view[at:follow])) if follow > at else frame
                at = follow
            elif (whole := self._joined(memoryview(frame))) is not None:
                yield frame[6] << 8 | frame[7], whole

    def forget(self) -> None:
        """Drop incomplete bodies, because the input has ended."""
        self._held, self._parts = [], {}

    def _behind(self, data: bytes, at: int) -> int:
        """The offset after the complete and valid AMQP frames that begin at `at`."""
        end = len(data)
        while end - at >= _HEAD and data[at + 5] not in _OURS:
            size = int.from_bytes(data[at : at + 4], "big")
            if not _HEAD <= size <= min(self._max_frame, end - at):
                break
            at += size
        return at

    def _size_of(self, data: bytes, at: int) -> int:
        if not self._is_begun:
            return len(AMQP_HEADER)
        size = int.from_bytes(data[at : at + 4], "big")
        if size < _HEAD:
            raise AmqpError(FRAMING_ERROR, f"a frame has {size} bytes, less than its own header")
        if size > self._max_frame:
            raise LimitError(
                "max_frame", f"a frame has {size} bytes, expected at most {self._max_frame}", FRAMING_ERROR
            )
        return size

    def _joined(self, frame: memoryview) -> Buffer | None:
        """The body that this frame completes, or None."""
        if not self.are_let_in:
            raise AmqpError(NOT_ALLOWED, "the neighbour sent data before both ends were open")
        if frame[4] != _DOFF:
            raise AmqpError(FRAMING_ERROR, f"a data frame of the neighbour has a header of {4 * frame[4]} bytes")
        lane = frame[6] << 8 | frame[7]
        if lane >= self._lanes:
            what = f"a data frame of the neighbour has the lane number {lane}, expected less than {self._lanes}"
            raise AmqpError(FRAMING_ERROR, what)
        if frame[5] == PART and len(frame) == _HEAD:
            raise AmqpError(FRAMING_ERROR, "the neighbour sent an empty part of a message, expected content")
        if frame[5] == BODY and lane not in self._parts:
            return frame[_HEAD:]
        self._parts_size += len(frame) - _HEAD
        if self._parts_size > self._max_body:
            raise AmqpError(RESOURCE_LIMIT, f"the neighbour sent a body of more than {self._max_body} bytes")
        parts = self._parts.setdefault(lane, bytearray())
        parts += frame[_HEAD:]
        if frame[5] == PART:
            return None
        del self._parts[lane]
        self._parts_size -= len(parts)
        return bytes(parts)
