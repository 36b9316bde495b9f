"""Python's search for cycles of garbage, and what becomes of memory that is free, in processes that carry messages."""

import contextlib
import ctypes
import gc
import sys
from typing import Final

LARGE_BYTES: Final = 4 << 20
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def tame() -> None:
    """What comes and goes with messages is freed by reference counts alone; only connections leave cycles, and they are
    few. Looking for cycles every 700 objects costs a third of a message's time, and stalls of 100 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def return_large_blocks() -> None:
    """Memory of large messages goes back to the system as soon as it is free. Left to itself glibc keeps it in the
    process: once a block of 15 MiB was freed, it takes the next ones from its heap."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
            mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BYTES)
