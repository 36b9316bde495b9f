"""Tunes Python's garbage collector and the return of free memory, for processes that carry messages."""

import contextlib
import ctypes
import gc
import sys
from typing import Final

import psutil

LARGE_BYTES: Final = 4 << 20
MUCH_BYTES: Final = 64 << 20
# The numbers of these options in glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def collect_rarely() -> None:
    """Make Python's collections of reference cycles rare. Messages, links and connections leave no cycles, so reference
    counts free them (`tests/router/test_nothing_left.py`). A collection every 700 objects would cost a third of a
    message's time, and stalls of 100 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def return_large_blocks() -> None:
    """Make glibc return the memory of large messages to the system as soon as it is free. Without these options, glibc
    adapts its limits: once the process has freed a block of 15 MiB, glibc takes further blocks of this size from its
    heap, and keeps their memory when they are freed."""
    if sys.platform == "linux":
        # Another C library than glibc lacks this function.
        with contextlib.suppress(AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
            mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BYTES)


class _Mallinfo2(ctypes.Structure):
    """The struct `mallinfo2` of glibc, which has figures of the process's memory."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class FreeMemory:
    """Returns the memory of freed small blocks to the system. glibc keeps this memory if blocks above it are in use,
    for example after many clients have left at once."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._left = self._process.memory_info().rss

    def give_back(self) -> None:
        """Return free memory to the system if there is much of it. This takes about 100 ms for a GiB, in which other
        threads wait if they allocate memory."""
        # Another C library than glibc lacks this function.
        with contextlib.suppress(AttributeError, OSError):
            library = ctypes.CDLL(None)
            if self._process.memory_info().rss > self._left + MUCH_BYTES and self._free(library) > MUCH_BYTES:
                library.malloc_trim(0)
                self._left = self._process.memory_info().rss

    @staticmethod
    def _free(library: ctypes.CDLL) -> int:
        ask = library.mallinfo2
        ask.restype = _Mallinfo2
        free: int = ask().fordblks
        return free
