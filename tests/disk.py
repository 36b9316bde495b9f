"""Makes a full disk for a test, without a file system of its own."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


@contextmanager
def full_disk() -> Iterator[None]:
    """Keep all files of this process from growing, and all files of children that start meanwhile. The kernel answers
    EFBIG, where a full disk would answer ENOSPC."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def set_full(pid: int, most: int) -> None:
    """Keep the files of a running process from growing beyond `most` bytes. -1: without a limit again."""
    psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (most, psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE)[1]))
