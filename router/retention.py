"""Decides which segments of a delivery log are deleted, if the log keeps only the latest (`log: {keep, size}` in the
topology)."""

import contextlib
import time
from pathlib import Path

import attrs

from topic.journal import parse_segment_name

Name = tuple[int, int]
"""The name of a segment: the incarnation that has written it, and its number."""


@attrs.frozen
class Retention:
    """The limits of a delivery log. The router deletes whole segments, the oldest first, whichever incarnation has
    written them."""

    keep_s: float | None
    """A segment is kept for this many seconds after its last write; None: no limit."""
    size: int | None
    """The highest number of bytes of all segments that are kept; None: no limit."""

    def expired(self, directory: Path) -> tuple[list[Path], Name | None]:
        """The segments to delete, and the name of the first kept segment. The latest segment is always kept. The name
        is None if the log is complete: no segment is deleted now, and the first one has the number 0."""
        found = {name: path for path in directory.iterdir() if (name := parse_segment_name(path.name))}
        *older, first = sorted(found)
        stats = {name: found[name].stat() for name in found}
        total, oldest = sum(stat.st_size for stat in stats.values()), time.time() - (self.keep_s or 0)
        gone: list[Path] = []
        for name in older:
            too_old = self.keep_s is not None and stats[name].st_mtime < oldest
            too_much = self.size is not None and total > self.size
            if not (too_old or too_much):
                first = name
                break
            gone.append(found[name])
            total -= stats[name].st_size
        return gone, first if gone or first[1] else None


def delete(segment: Path) -> None:
    """Delete an expired segment."""
    # After a failure, `Retention.expired` lists the segment again when the next segment begins.
    with contextlib.suppress(OSError):
        segment.unlink(missing_ok=True)
