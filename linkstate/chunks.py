"""Cuts payloads into chunks, and joins them again (protocol 3, layer 2).

Each chunk except the last one of its payload says that more follows. Chunks are numbered, acknowledged and sent again
one by one, and relays pass them on as they come. So a large payload does not block a link for long, and is not sent as
a whole again when a path changes. A joiner belongs to one channel and ends with it.

`channel` numbers the chunks and keeps their order; `frames` puts them into frames.
"""

from typing import NamedTuple

# The highest number of bytes of a chunk. A payload with no more bytes is sent as one chunk.
CHUNK = 64 * 1024

Buffer = bytes | memoryview


class OversizedError(Exception):
    """A payload from the other end of the channel is larger than this end accepts."""


class Chunk(NamedTuple):
    content: Buffer
    more: bool = False


def cut(payload: bytes) -> list[Chunk]:
    size = len(payload)
    if size <= CHUNK:
        return [Chunk(payload)]
    view = memoryview(payload)
    return [Chunk(view[start : start + CHUNK], start + CHUNK < size) for start in range(0, size, CHUNK)]


class Joiner:
    """Joins the chunks of one payload at a time. The sender may cut a payload into any number of chunks."""

    __slots__ = ("_joined", "_most")

    def __init__(self, most: int) -> None:
        """`most`: the highest number of bytes of a payload."""
        self._most = most
        self._joined = bytearray()

    def join(self, chunk: Chunk) -> bytes | None:
        """Add the next chunk. Returns the payload if this chunk completes it; None if more chunks follow. Raises
        OversizedError."""
        if not chunk.more and not self._joined:
            return bytes(chunk.content)
        if len(self._joined) + len(chunk.content) > self._most:
            raise OversizedError(f"it sent a payload of more than {self._most} bytes")
        self._joined += chunk.content
        if chunk.more:
            return None
        payload = bytes(self._joined)
        self._joined.clear()
        return payload
