"""Python's search for cycles of garbage, and what becomes of memory that is free, in processes that carry messages."""

import contextlib
import ctypes
import gc
import sys
from typing import Final

import psutil

LARGE_BYTES: Final = 4 << 20
MUCH_BYTES: Final = 64 << 20
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def tame() -> None:
    """What comes and goes with messages is freed by reference counts alone, and so are links and connections
    (`tests/router/test_nothing_left.py`). Looking for cycles every 700 objects costs a third of a message's time, and
    stalls of 100 ms."""
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


class _Mallinfo2(ctypes.Structure):
    """Of glibc's malloc.h, which has a word for each of these."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class FreeMemory:
    """Of smaller blocks, which glibc keeps wherever something lies above them: what a crowd has left behind."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._left = self._process.memory_info().rss

    def give_back(self) -> None:
        """To the system, if it is much. Whoever allocates meanwhile waits: some 100 ms for a GiB."""
        with contextlib.suppress(AttributeError, OSError):  # another C library
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
