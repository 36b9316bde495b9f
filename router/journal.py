"""Writes a source's delivery log to its segment files (docs/architecture.md; formats: `topic.journal`, `topic.tail`).

The log is evidence, never state: a router never reads what is in it, and goes on where it cannot be written, if it may.
Then the log breaks off: it says so where there is still room, which is in the mapped tail, drops further entries, and
says how many these were once there is room again. As a tail is only ever overwritten, that takes nothing of the disk.
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
"""After so long an owner flushes: blocks of more entries are smaller, and what is in the tail is safe already."""
MOST_REASON = 200
"""Characters of a reason that the delivery log tells, the last ones."""


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
    """The segments of one incarnation, in one directory. Disks fail by OSError, which names the file."""

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
        """`goes_on`: where the log cannot be written it breaks off, and nothing is raised from here on. `kept`: only
        these segments are; `restate` then appends to the block what has to be told anew in each segment, and is given
        the first segment that is kept."""
        directory.mkdir(parents=True, exist_ok=True)
        self.block = block
        self.why = ""
        """It cannot be written just now."""
        self.missing = 0
        """Entries that were not written, ever."""
        self.expired: list[Path] = []
        """Segments for its owner to delete."""
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
        """Have the entries so far outlive the end of this process; before anything that they tell of leaves it."""
        if self.why:
            self.missing += self.block.drop_unsaved()
        elif (payload := self.block.unsaved()) is not None:
            if self._segment.tail.append(payload):
                self.block.saved()
            else:
                self.flush()

    def flush(self, *, last: bool = False) -> None:
        """Append what the block holds as one block, if anything; or try whether that can be done again. What is last
        ends its segment: none is begun behind it."""
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
        """Bytes of its segments, the regions of their tails included."""
        return self._former + self._segment.size

    def _begin_segment(self) -> None:
        """A disk that has room for one has room to go on."""
        former, self._segment = self._segment, self._open()
        self._former += former.size
        former.close()

    def _continue(self, kept: Retention) -> None:
        """Whoever deletes what has expired does so when it is told here that it may be gone."""
        with contextlib.suppress(OSError):  # it is looked at again with the next segment
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
    """One file: the region of its tail, mapped, and blocks behind it."""

    def __init__(self, path: Path, block: Block) -> None:
        self.size = 0
        self._path = path
        self._file = path.open("x+b", buffering=0)
        try:
            self._write(bytes(REGION))  # without room on the disk that is an error; a touch of the mapping were the end
        except OSError:
            self._file.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self._mapping = mmap.mmap(self._file.fileno(), REGION)
        self.tail = Tail(self._mapping, block.head, boot_id(), block.number)

    def append(self, block: Block) -> None:
        """What it holds is no longer in the tail, and the block is the next one."""
        self._write(block.encode())
        block.begin_next()
        self.tail.clear(block.number)

    def _write(self, data: bytes) -> None:
        """At the end, all or nothing."""
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
