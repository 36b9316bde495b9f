"""Reads the segments of one log directory while they grow. It reads each block once, in order.

As soon as the next segment exists, the current segment no longer grows. The reader then reads the current segment to
its end, including the entries that only the segment's tail has. The reader keeps the current segment open, so retention
cannot remove a segment that is half read. If retention deletes a segment before the reader opens it, the result lacks
the numbers of this segment's blocks.
"""

import os
import time
from pathlib import Path
from typing import BinaryIO

import attrs

from failover.audit.read.segments import SegmentReading
from topic.blocks import BlockView, Damage, decode_tail, whole_blocks
from topic.journal import parse_segment_name
from topic.tail import REGION, read_region, region_end

CHUNK = 1 << 20
"""The number of bytes that one read of a segment asks for."""
HEADER = 8
IDLE_NS = 2_000_000_000


@attrs.define(slots=True)
class Growing:
    """One segment, and how far it is read. It can be pickled and continued in another process."""

    reading: SegmentReading
    offset: int = 0
    """The offset up to which the segment is read. The bytes from there on are new, or no whole block yet."""
    begun: bool = False
    skipped: int = 0
    """The number of bytes of the segment that belong to no block."""
    first_bad: int = -1

    def read(self, file: BinaryIO, size: int) -> list[BlockView]:
        """Read up to `size` bytes (more if one block is larger), and return the whole blocks in them. The result is
        empty if there is no whole block yet."""
        if not self.begun:
            file.seek(0)
            self.offset = region_end(file.read(HEADER))
            self.begun = True
        file.seek(self.offset)
        data = file.read(size)
        found, at = list[BlockView](), 0
        for start, end, block in whole_blocks(data, 0):
            self._skip(at, start)
            found.append(block)
            at = end
        if not found and len(data) == size:  # the next block is larger than `size`, or the file is damaged
            return self.read(file, 2 * size)
        self.offset += at
        self.reading.add(found)
        return found

    def _skip(self, since: int, till: int) -> None:
        if till > since:
            self.first_bad = self.offset + since if self.first_bad < 0 else self.first_bad
            self.skipped += till - since

    def end(self, file: BinaryIO) -> list[BlockView]:
        """Read the end of a segment that does not grow any more. Returns the blocks that only its tail has, and notes
        any damage."""
        size = file.seek(0, os.SEEK_END)
        self._skip(0, size - self.offset)
        file.seek(0)
        region = read_region(file.read(HEADER + REGION))
        left = region.left
        tail = decode_tail(left) if left is not None and left.number > self.last else []
        damage = None
        if self.first_bad >= 0:
            damage = Damage(self.first_bad, self.skipped, torn=self.first_bad + self.skipped == size)
        elif region.damaged_at is not None:
            damage = Damage(region.damaged_at, region.end - region.damaged_at, torn=True)
        file.seek(0)
        self.reading.add(tail)
        self.reading.end(file.read(HEADER + REGION), damage)
        self.reading.size = size
        return tail

    def peek(self, file: BinaryIO) -> list[BlockView]:
        """Return the blocks of the tail if the tail directly follows the last block that was read; otherwise none. The
        reader gets the same entries again with the next block."""
        file.seek(0)
        left = read_region(file.read(HEADER + REGION)).left
        return decode_tail(left) if left is not None and left.number == self.last + 1 else []

    @property
    def last(self) -> int:
        """The number of the last block that was read; -1 if none was."""
        return self.reading.blocks[-1][1] if self.reading.blocks else -1


class GrowingLog:
    """All segments that one writer has written, over all its incarnations."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ended: list[Growing] = []
        """The segments that are read to their end. Several complete segments that follow each other count as one."""
        self.first = (0, 0)
        """The incarnation and number of the first segment that was read."""
        self.current: Growing | None = None
        self._file: BinaryIO | None = None
        self._read_ns = 0
        """The time at which the reader last read a block, in ns of this machine's monotonic clock."""

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_file": None, "_read_ns": 0}

    @property
    def time(self) -> int:
        """When the last entry read so far was written, in µs of wall clock; 0 if none was read."""
        known = [one.reading.last_time for one in (*self.ended[-1:], self.current) if one is not None]
        return max((time for time in known if time is not None), default=0)

    def behind(self) -> int:
        """The number of bytes of the current segment that are not read yet."""
        return self._opened().seek(0, os.SEEK_END) - self.current.offset if self.current and self._open() else 0

    def read(self) -> list[BlockView] | None:
        """Return the blocks of about one chunk, or of the end of a segment. None if there is nothing more to read at
        present."""
        if self.current is None and not self._begin_next():
            return None
        assert self.current is not None
        # Look for the next segment first: if there is one, the current segment does not grow any more.
        following = self._following()
        blocks = self.current.read(self._opened(), CHUNK) if self._open() else []
        if blocks:
            self._read_ns = time.monotonic_ns()
        if not blocks and following:
            blocks = self.end()
            self._begin_next()
            return blocks
        return blocks or None

    def readings(self) -> list[SegmentReading]:
        """A `SegmentReading` for each segment that was read so far. The inventory needs them."""
        return [one.reading for one in (*self.ended, self.current) if one is not None]

    @property
    def read_bytes(self) -> int:
        """The number of bytes read so far, of all segments."""
        return sum(one.offset for one in (*self.ended, self.current) if one is not None)

    def is_idle(self) -> bool:
        """Whether the reader has read no block for so long that a running writer would have written all its entries."""
        return time.monotonic_ns() - self._read_ns > IDLE_NS

    def peek(self) -> list[BlockView]:
        """Return the entries of the current segment's tail that are in no block yet."""
        if self.current is None or not self._open():
            return []
        return self.current.peek(self._opened())

    def end(self) -> list[BlockView]:
        """End the current segment, which does not grow any more, and return its last blocks."""
        if self.current is None:
            return []
        blocks = []
        if self._open():
            blocks = self.current.end(self._opened())
            self._opened().close()
        self._file = None
        if self.ended and self.current.reading.continues(self.ended[-1].reading):
            former = self.ended.pop()
            self.current.reading.join(former.reading)
            self.current.offset += former.offset
        self.ended.append(self.current)
        self.current = None
        return blocks

    def _begin_next(self) -> bool:
        for path in self._following():
            self.current = Growing(SegmentReading(str(path.absolute())))
            if self._open():
                self.first = self.first if self.ended else _name(str(path))
                return True
            self.current = None
        return False

    def _open(self) -> bool:
        """Open the current segment if it is not open. Returns False if retention has deleted it."""
        if self._file is None and self.current is not None:
            try:
                self._file = Path(self.current.reading.path).open("rb")  # noqa: SIM115 - as long as it is read
            except FileNotFoundError:
                return False
        return self._file is not None

    def _opened(self) -> BinaryIO:
        assert self._file is not None
        return self._file

    def _following(self) -> list[Path]:
        """The segments after the last one that was opened, in order."""
        known = [one for one in (*self.ended[-1:], self.current) if one is not None]
        last = _name(known[-1].reading.path) if known else (-1, -1)
        try:
            found = [(name, path) for path in self.directory.iterdir() if (name := parse_segment_name(path.name))]
        except FileNotFoundError:
            return []
        return [path for name, path in sorted(found) if name > last]


def _name(path: str) -> tuple[int, int]:
    return parse_segment_name(Path(path).name) or (0, 0)
