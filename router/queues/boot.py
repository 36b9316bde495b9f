"""The identity of the machine's present start. Writes that were not synced survive until the next start."""

from pathlib import Path
from typing import Final

import psutil

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""A file of Linux with the boot id. Containers see the boot id of their host, whose kernel keeps their files."""


def boot_id() -> str:
    """Returns a text that stays the same until the machine starts again. On systems other than Linux it is the time of
    the start in seconds, which changes if the clock is set."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return str(int(psutil.boot_time()))
