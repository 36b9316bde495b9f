"""Whether a file system has room, asked before it is written to.

A write that finds no room is no quick refusal: file systems first wait until all that they have yet to write is on the
disk, in the hope of some. A loop that tries again and again would stand still for that long each time.
"""

import errno
import os
from pathlib import Path
from typing import Final

SPARE: Final = 1 << 20
"""Bytes that are left to others: to `router.log`, for one."""


def check_room(path: Path, file: int | None = None, size: int = 0) -> None:
    """Raises OSError, as a write would, where less than `SPARE` is left beside `size` bytes. What a quota allows is not
    known here. `file` is open, and was at `path`: its folder may be elsewhere by now."""
    found = os.statvfs(path if file is None else file)
    if found.f_blocks and found.f_bavail * found.f_frsize < SPARE + size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
