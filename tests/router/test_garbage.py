"""What becomes of memory that is free (`router.garbage`)."""

import sys

import psutil
import pytest

from router.garbage import MUCH_BYTES, FreeMemory

BLOCK = 100 << 10
"""Less than the C library maps one by one."""


def rss() -> int:
    size: int = psutil.Process().memory_info().rss
    return size


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_what_lies_below_something_that_stays_goes_back_to_the_system() -> None:
    memory = FreeMemory()
    before = rss()
    blocks = [bytearray(BLOCK) for _ in range(3 * MUCH_BYTES // BLOCK)]
    last = blocks.pop()
    assert rss() > before + 2 * MUCH_BYTES
    memory.give_back()
    assert rss() > before + 2 * MUCH_BYTES, "it is not free"
    blocks.clear()
    memory.give_back()
    assert rss() < before + MUCH_BYTES
    assert len(last) == BLOCK
