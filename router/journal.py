"""Writes a source's delivery log to its segment files (docs/architecture.md; formats: `topic.journal`, `topic.tail`).

The log is evidence, never state: a router never reads it back. If the router cannot write the log, the router goes on,
if its topology allows this, and the log *breaks off*: the router drops all further entries. It notes this in the mapped
tail of the segment. The tail always has room for the note, because the router only overwrites the tail. When the disk
has room again, the log goes on, and the router logs the number of dropped entries.
"""

import contextlib
import json
import logging
import mmap
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from router.disk.room import check_room
from router.retention import Name, Retention
from topic.journal import SEGMENT_LIMIT, Block, Event, parse_segment_name, segment_name
from topic.tail import REGION, Tail

log = logging.getLogger("oncemesh")

FLUSH_S = 1.0
"""The seconds between two flushes. A shorter time would make smaller blocks, and would make no entry safer, because the
tail already has each entry."""
MOST_REASON = 200
"""The highest number of characters of a GAP entry's reason. A longer reason loses its beginning."""


def has_segments(directory: Path) -> bool:
    """Whether this directory has segments, which an earlier incarnation has written."""
    return directory.is_dir() and any(parse_segment_name(path.name) for path in directory.iterdir())


@cache
def boot_id() -> str:
    """The id of this boot of the kernel; "" if unknown. Saved entries survive the end of the process, but not of the
    kernel."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class JournalFile:
    """The segments of one incarnation, in one directory. A disk error is raised as OSError with the file's name."""

    def __init__(
        self,
        directory: Path,
        incarnation: int,
        block: Block,
        *,
        goes_on: bool = True,
        kept: Retention | None = None,
        restate: Callable[[Name | None], None] = lambda first: None,
    ) -> None:
        """`goes_on`: if a write fails, the log breaks off and no call raises; otherwise the call raises the error.
        `kept`: the limits of the segments that are kept; None: all are kept. `restate`: called at the beginning of each
        later segment if `kept` is given, with the first kept segment (`Retention.expired`). It appends to the block the
        entries that each segment has to repeat."""
        directory.mkdir(parents=True, exist_ok=True)
        self.block = block
        self.why = ""
        """The reason for which the log cannot be written now; empty if it can be."""
        self.missing = 0
        """The number of entries that were never written."""
        self.expired: list[Path] = []
        """Segments that the owner has to delete."""
        self._restate = restate
        self._missed_before = 0
        self._former = 0
        self._kept = kept
        self._goes_on = goes_on
        self._directory = directory
        self._incarnation = incarnation
        self._number = 0
        self._segment = self._open()

    def save(self) -> None:
        """Copy all entries of the block into the mapped tail, so that they survive the end of this process. The caller
        does this before it sends a message that depends on one of the entries."""
        if self.why:
            self.missing += self.block.drop_unsaved()
        elif (payload := self.block.unsaved()) is not None:
            if self._segment.tail.append(payload):
                self.block.saved()
            else:
                self.flush()

    def flush(self, *, last: bool = False) -> None:
        """Write the entries of the block, if there are any. If the log has broken off, try to begin a new segment.
        `last`: the log ends, so begin no new segment, even if the present one is full."""
        try:
            if self.why:
                self.missing += self.block.drop_unsaved()
            if len(self.block):
                self._segment.append(self.block)
            if is_new := bool(self.why) or (self._segment.size >= SEGMENT_LIMIT and not last):
                self._begin_segment()
        except OSError as error:
            self._break_off(error)
        else:
            self._go_on()
            if is_new and self._kept is not None:
                self._continue(self._kept)

    @property
    def written(self) -> int:
        """The bytes of all segments of this incarnation. The region of the tail counts for each."""
        return self._former + self._segment.size

    def _begin_segment(self) -> None:
        """Begin a new segment. If the log has broken off and the disk has room for a segment, the log goes on."""
        former, self._segment = self._segment, self._open()
        self._former += former.size
        former.close()

    def _continue(self, kept: Retention) -> None:
        """Called when a new segment has begun. Put the expired segments into `expired`, so that the owner deletes them.
        Then `_restate` repeats in the new segment what the first kept segment needs from deleted ones."""
        # After an error, the router lists the expired segments when it begins the next segment.
        with contextlib.suppress(OSError):
            self.expired, first = kept.expired(self._directory)
            self._restate(first)
        self.save()

    def _open(self) -> "_Segment":
        segment = _Segment(self._directory / segment_name(self._incarnation, self._number), self.block)
        self._number += 1
        return segment

    def _break_off(self, error: OSError) -> None:
        if self.why:
            return
        if not self._goes_on:
            raise error
        self.why = f"{error.filename}: {error.strerror}"
        self.missing += self.block.drop_unsaved()
        self._tell({"why": self.why[-MOST_REASON:]})
        has_room = self._segment.tail.append(self.block.unsaved() or b"", reserved=0)
        assert has_room, "a reason is shorter than what is reserved for it"
        self.block.saved()
        log.error("the delivery log breaks off because it cannot be written: %s", self.why)

    def _go_on(self) -> None:
        if not self.why:
            return
        self.why, missing = "", self.missing - self._missed_before
        self._missed_before = self.missing
        self._tell({"entries": missing})
        self.save()
        log.warning("the delivery log can be written again; %d entries are missing", missing)

    def _tell(self, detail: dict[str, object]) -> None:
        self.block.append(Event.GAP, time_us=time.time_ns() // 1000, hlc=0, detail=json.dumps(detail))

    def close(self) -> None:
        self.flush(last=True)
        self._segment.close()


class _Segment:
    """One segment file: the mapped region of its tail, and the blocks behind this region."""

    def __init__(self, path: Path, block: Block) -> None:
        self.size = 0
        self._path = path
        self._file = path.open("x+b", buffering=0)
        try:
            # A full disk raises an error here. Later, a write to the mapping would kill the process instead.
            self._write(bytes(REGION))
        except OSError:
            self._file.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self._mapping = mmap.mmap(self._file.fileno(), REGION)
        self.tail = Tail(self._mapping, block.head, boot_id(), block.number)

    def append(self, block: Block) -> None:
        """Append the block to the file and begin the next block. Clear the tail, because the file now has its
        entries."""
        self._write(block.encode())
        block.begin_next()
        self.tail.clear(block.number)

    def _write(self, data: bytes) -> None:
        """Append all of the data or nothing."""
        check_room(self._path, self._file.fileno())
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._file.fileno(), data[written:], self.size + written)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self.size)
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        self.size += len(data)

    def close(self) -> None:
        self._mapping.close()
        self._file.close()
