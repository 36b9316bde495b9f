"""A full disk for a test that is not to depend on a file system of its own."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


@contextmanager
def full_disk() -> Iterator[None]:
    """No file grows that this process writes, nor any that its children write which are started meanwhile. The kernel
    answers EFBIG where a full disk would answer ENOSPC."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def set_full(pid: int, most: int) -> None:
    """The same for a process that runs, with room for so many bytes in each file; -1: without an end again."""
    psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (most, psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE)[1]))
