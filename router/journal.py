"""Writes a source's delivery log to its segment files (docs/architecture.md; formats: `topic.journal`, `topic.tail`).

The log is evidence, never state: a router never reads what is in it.
"""

import mmap
from functools import cache
from pathlib import Path

from topic.journal import SEGMENT_LIMIT, Block, parse_segment_name, segment_name
from topic.tail import REGION, Tail

FLUSH_S = 1.0
"""After so long an owner flushes: blocks of more entries are smaller, and what is in the tail is safe already."""


def has_segments(directory: Path) -> bool:
    """Whether an earlier incarnation has written here."""
    return directory.is_dir() and any(parse_segment_name(path.name) for path in directory.iterdir())


@cache
def boot_id() -> str:
    """Which run of this machine's kernel it is: what was saved in one outlives the process, not the kernel."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class JournalFile:
    """The segments of one incarnation, in one directory."""

    def __init__(self, directory: Path, incarnation: int, block: Block) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.block = block
        self._directory = directory
        self._incarnation = incarnation
        self._number = 0
        self._segment: _Segment | None = None

    def save(self) -> None:
        """Have the entries so far outlive the end of this process; before anything that they tell of leaves it."""
        payload = self.block.unsaved()
        if payload is not None and not self._current().tail.append(payload):
            self.flush()

    def flush(self) -> None:
        """Append what the block holds as one block, if anything."""
        if not len(self.block):
            return
        segment = self._current()
        segment.append(self.block)
        if segment.size >= SEGMENT_LIMIT:
            self._close_segment()

    def _current(self) -> "_Segment":
        if self._segment is None:
            self._segment = _Segment(self._directory / segment_name(self._incarnation, self._number), self.block)
            self._number += 1
        return self._segment

    def _close_segment(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def close(self) -> None:
        self.flush()
        self._close_segment()


class _Segment:
    """One file: the region of its tail, mapped, and blocks behind it."""

    def __init__(self, path: Path, block: Block) -> None:
        self.size = 0
        self._file = path.open("x+b", buffering=0)
        self._write(bytes(REGION))  # where the disk has no room that is an error, a touch of the mapping were the end
        self._mapping = mmap.mmap(self._file.fileno(), REGION)
        self.tail = Tail(self._mapping, block.head, boot_id(), block.number)

    def append(self, block: Block) -> None:
        """What it holds is no longer in the tail."""
        self._write(block.encode())
        self.tail.clear(block.number)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) or 0 :]
        self.size += len(data)

    def close(self) -> None:
        self._mapping.close()
        self._file.close()
