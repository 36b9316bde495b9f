"""The tail of a delivery log: entries that are in no block yet, kept so that they survive the death of their writer.

A segment begins with a region of fixed size that its writer maps into memory, shared with the kernel. The writer
collects entries for the next block, and also puts each of them into this region, before it sends any message that the
entry reports. When the block is written, the writer empties the tail. So `kill -9` loses no entry. A loss of power may
lose entries that the kernel has not yet written to the disk.

    region     b"OMT2", u32be length of the rest of the region, then frames, up to one of length 0
    frame      u32be length, u32be crc32 of the payload, payload: msgpack
    the first  [source, role, incarnation, host, boot]: as in a block; boot names the run of the host's kernel
    the others [number, rows, keys]: number of the block that these entries will be in; rows as in
               `topic.journal.COLUMNS`. The first of these has no rows: its number shows how many blocks are written

A killed writer may leave a tail whose block it has already written. A reader that finds both the
tail and the block uses the block. This module only encodes and decodes entries: it opens no file and maps no memory.
"""

import zlib
from typing import Any

import attrs
import msgpack

MAGIC = b"OMT2"
REGION = 128 << 10
"""The size of a region, in bytes. If the entries of an event do not fit into it, the writer writes the block at
once."""
RESERVED = 4 << 10
"""The bytes of a region that are reserved for one frame. This frame has the entry which says that the disk had no room
for the block."""
_START = len(MAGIC) + 4
_FRAME = 8
_END = bytes(4)
_FIRST = [str, str, int, str, str]
_OTHERS = [int, list, bytes]


class Tail:
    """The tail as its writer sees it: frames in a region of `REGION` bytes, which are zeros at first."""

    def __init__(self, region: Any, head: tuple[str, str, int, str], boot: str, number: int) -> None:
        """`region`: a writable buffer that takes slices of bytes, as an `mmap` does. `head`, `boot`: the fields of the
        first frame. `number`: the number of the next block."""
        self._region = region
        region[:_START] = MAGIC + (REGION - _START).to_bytes(4, "big")
        self._end = _START
        has_room = self.append(msgpack.packb((*head, boot)))
        assert has_room, "names are far shorter than a region"
        self._begin = self._end
        self.clear(number)

    def append(self, payload: bytes, reserved: int = RESERVED) -> bool:
        """Append a frame. Returns False if the region has no room for it, apart from the `reserved` bytes. A frame
        becomes valid by its length, so the length is written last."""
        start, end = self._end, self._end + _FRAME + len(payload)
        if end + len(_END) > REGION - reserved:
            return False
        self._region[start + 4 : end + len(_END)] = zlib.crc32(payload).to_bytes(4, "big") + payload + _END
        self._region[start : start + 4] = len(payload).to_bytes(4, "big")
        self._end = end
        return True

    def clear(self, number: int) -> None:
        """Empty the tail, because its block is written. `number`: the number of the next block."""
        self._end = self._begin
        self.append(msgpack.packb((number, [], b"")))


@attrs.frozen(slots=True)
class Left:
    """The entries that a writer has left behind in a tail."""

    head: tuple[str, str, int, str]
    boot: str
    """Identifies one run of the kernel of the writer's host; "" if unknown."""
    number: int
    """The number of the block that the entries belong to, which was not written. All earlier blocks were written."""
    rows: list[list[Any]]
    keys: bytes


@attrs.frozen(slots=True)
class Region:
    """The region of a tail, as a reader finds it: the part of the segment before the first block."""

    left: Left | None
    """The entries in the tail; None if the tail cannot be read."""
    end: int
    """The offset of the first block, which follows the region; 0 if the data does not begin with a region."""
    damaged_at: int | None = None
    """The offset of the first damaged frame; `left` has the frames before it. None if no frame is damaged."""


def region_end(data: bytes) -> int:
    """The offset of the first block in a segment whose first bytes are `data`."""
    return _START + int.from_bytes(data[len(MAGIC) : _START], "big") if data[: len(MAGIC)] == MAGIC else 0


def read_region(data: bytes) -> Region:
    """Read the region at the beginning of a segment."""
    if data[: len(MAGIC)] != MAGIC:
        return Region(None, 0)
    end = min(region_end(data), len(data))
    at, found = _START, list[list[Any]]()
    while length := int.from_bytes(data[at : min(at + 4, end)], "big"):
        fields = _unpack(data[at + 4 : min(at + _FRAME + length, end)], length)
        if fields is None or list(map(type, fields)) != (_OTHERS if found else _FIRST):
            break
        if len(found) > 1 and fields[0] != found[1][0]:
            break
        found.append(fields)
        at += _FRAME + length
    left = None
    if len(found) > 1:
        head, (number, *_) = found[0], found[1]
        rows = [row for _, some, _ in found[1:] for row in some]
        keys = b"".join(keys for _, _, keys in found[1:])
        left = Left((head[0], head[1], head[2], head[3]), head[4], number, rows, keys)
    if left is None:
        at = 0
    return Region(left, end, None if left is not None and not length else at)


def _unpack(frame: bytes, length: int) -> list[Any] | None:
    """Decode a frame without its length; None if it is damaged."""
    payload = frame[4:]
    if len(payload) != length or zlib.crc32(payload) != int.from_bytes(frame[:4], "big"):
        return None
    try:
        fields = msgpack.unpackb(payload)
    except ValueError:
        return None
    return fields if isinstance(fields, list) else None
