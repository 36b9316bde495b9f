"""How much space a file system has, and whether it has enough for a write.

A write to a full file system does not fail at once: the file system first flushes all its unwritten data, as this may
free some space. A loop that tries again and again would block for that long each time.
"""

import errno
import os
from pathlib import Path
from typing import Final

from attrs import frozen

SPARE: Final = 1 << 20
"""The bytes that a write leaves free for other writers, for example for `router.log`."""


@frozen
class DiskRoom:
    """The room of a file system."""

    free: int
    """The number of bytes that a process without privileges may still write."""
    whole: int


def room_of(path: Path) -> DiskRoom | None:
    """The room of the file system that has the path; None if the file system does not tell."""
    try:
        return _room_at(path)
    except OSError:
        return None


def _room_at(place: Path | int) -> DiskRoom | None:
    """The room of the file system of an open file; None if the file system does not tell. Raises OSError."""
    found = os.statvfs(place)
    return DiskRoom(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize) if found.f_blocks else None


def check_room(path: Path, file: int | None = None, size: int = 0) -> None:
    """Raise OSError (ENOSPC), as a write would, if writing `size` bytes leaves less than `SPARE` free. The check does
    not see quotas. `file` is the descriptor of the open file that was created at `path`; the check prefers it, because
    the folder may be on another file system by now."""
    room = _room_at(path if file is None else file)
    if room is not None and room.free < SPARE + size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
