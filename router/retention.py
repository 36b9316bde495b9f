"""Which segments of a delivery log go, where it is to keep only the latest (`log: {keep, size}` of the topology)."""

import contextlib
import time
from pathlib import Path

import attrs

from topic.journal import parse_segment_name

Name = tuple[int, int]
"""Incarnation and number of a segment."""


@attrs.frozen
class Retention:
    """Segments go whole, the oldest first, whichever incarnation of their writer has written them."""

    keep_s: float | None
    """They stay for so long after they were last written to."""
    size: int | None
    """Bytes of all that stay."""

    def expired(self, directory: Path) -> tuple[list[Path], Name | None]:
        """Those that are to go, and the first that stays, which is the one being written at the latest; None if it is
        the first of all."""
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
    """One that is not kept any more."""
    with contextlib.suppress(OSError):  # it is found again with the next segment
        segment.unlink(missing_ok=True)
