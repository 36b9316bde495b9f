"""The segments of one log directory, read as they grow: each block once, in order.

A segment is read to its end when a later one is there; then what its tail holds besides belongs to it. One that is
being read stays open, so that retention cannot take it away half read. One that is deleted before it was opened is
missing: its blocks' numbers tell.
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
"""Bytes that are read at a time."""
HEADER = 8
IDLE_NS = 2_000_000_000


@attrs.define(slots=True)
class Growing:
    """One segment; what is here can be pickled, and goes on elsewhere."""

    reading: SegmentReading
    offset: int = 0
    """What is behind it was not read, or is no whole block yet."""
    begun: bool = False
    skipped: int = 0
    """Bytes in which no block could be found."""
    first_bad: int = -1

    def read(self, file: BinaryIO, size: int) -> list[BlockView]:
        """The next whole blocks, of about so many bytes; none if there are none yet."""
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
        if not found and len(data) == size:  # a block that is larger, or damage
            return self.read(file, 2 * size)
        self.offset += at
        self.reading.add(found)
        return found

    def _skip(self, since: int, till: int) -> None:
        if till > since:
            self.first_bad = self.offset + since if self.first_bad < 0 else self.first_bad
            self.skipped += till - since

    def end(self, file: BinaryIO) -> list[BlockView]:
        """It grows no more: what the tail holds besides, and what of it cannot be read."""
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
        """What the tail holds, if it follows what was read: it will be in the next block."""
        file.seek(0)
        left = read_region(file.read(HEADER + REGION)).left
        return decode_tail(left) if left is not None and left.number == self.last + 1 else []

    @property
    def last(self) -> int:
        """The number of the last block that was read."""
        return self.reading.blocks[-1][1] if self.reading.blocks else -1


class GrowingLog:
    """All segments of one writer, of whichever incarnation."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ended: list[Growing] = []
        """Those that follow each other, and are all there, as one."""
        self.first = (0, 0)
        """Incarnation and number of the first segment that was read."""
        self.current: Growing | None = None
        self._file: BinaryIO | None = None
        self._read_ns = 0
        """When something of it was read last, by a clock of this machine."""

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_file": None, "_read_ns": 0}

    @property
    def time(self) -> int:
        """When the last entry that was read was written; 0 if none was."""
        known = [one.reading.last_time for one in (*self.ended[-1:], self.current) if one is not None]
        return max((time for time in known if time is not None), default=0)

    def behind(self) -> int:
        """Bytes of the segment that is being read, and were not."""
        return self._opened().seek(0, os.SEEK_END) - self.current.offset if self.current and self._open() else 0

    def read(self) -> list[BlockView] | None:
        """About one chunk, or the end of a segment; None if all that can be is read."""
        if self.current is None and not self._begin_next():
            return None
        assert self.current is not None
        following = self._following()  # looked for first: what is read then is all
        blocks = self.current.read(self._opened(), CHUNK) if self._open() else []
        if blocks:
            self._read_ns = time.monotonic_ns()
        if not blocks and following:
            blocks = self.end()
            self._begin_next()
            return blocks
        return blocks or None

    def readings(self) -> list[SegmentReading]:
        """Of all segments, as far as they were read."""
        return [one.reading for one in (*self.ended, self.current) if one is not None]

    @property
    def read_bytes(self) -> int:
        """Of all segments."""
        return sum(one.offset for one in (*self.ended, self.current) if one is not None)

    def is_idle(self) -> bool:
        """Whether its writer, if it runs, had time to write what it has."""
        return time.monotonic_ns() - self._read_ns > IDLE_NS

    def peek(self) -> list[BlockView]:
        """What is in no block yet."""
        if self.current is None or not self._open():
            return []
        return self.current.peek(self._opened())

    def end(self) -> list[BlockView]:
        """The segment that is being read grows no more."""
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
        """False if retention took it away."""
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
        """Segments behind those that were read, or are being."""
        known = [one for one in (*self.ended[-1:], self.current) if one is not None]
        last = _name(known[-1].reading.path) if known else (-1, -1)
        try:
            found = [(name, path) for path in self.directory.iterdir() if (name := parse_segment_name(path.name))]
        except FileNotFoundError:
            return []
        return [path for name, path in sorted(found) if name > last]


def _name(path: str) -> tuple[int, int]:
    return parse_segment_name(Path(path).name) or (0, 0)
