"""What becomes of memory that is free (`router.garbage`)."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from router.garbage import MUCH_BYTES, FreeMemory
from tests.hangs import HANGS_S

BLOCK = 100 << 10
"""Less than the C library maps one by one."""
ROOT = Path(__file__).parents[2]


def rss() -> int:
    size: int = psutil.Process().memory_info().rss
    return size


def gives_back() -> None:
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


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_what_lies_below_something_that_stays_goes_back_to_the_system() -> None:
    """In a process of its own: one that has run other tests has free memory already."""
    program = f"from {__name__} import gives_back; gives_back()"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=HANGS_S)
