"""Which start of the machine this is. Writes that were not synced last until the next one."""

from pathlib import Path
from typing import Final

import psutil

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Linux has it. Containers have their host's, whose kernel keeps their files."""


def boot_id() -> str:
    """The same text until the machine starts again. Elsewhere than on Linux it is the time of the start in seconds: a
    clock that is set makes another one of it."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return str(int(psutil.boot_time()))
