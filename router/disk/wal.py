"""Reads a write-ahead log of SQLite, and finds a gap in it, before SQLite opens the file.

To SQLite, a damaged log is a shorter one: it stops at the first frame whose checksum is wrong, and silently drops the
transactions behind. If each transaction was on the disk before the next one began, a power failure tears the last one
alone. So a bad frame with the ends of two transactions at or behind it is damage. Within the last transaction, damage
looks like a tear: a store that has to tell these apart keeps a mark of what was acknowledged.

Format: https://www.sqlite.org/fileformat2.html, section 4.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HEADER: Final = struct.Struct(">8I")
"""Magic, version, page size, checkpoints, two salts, two checksums."""
FRAME: Final = struct.Struct(">6I")
"""Page, pages of the file at the end of a transaction or 0, two salts, two checksums."""
MAGIC: Final = 0x377F0682
"""The lowest bit says that checksums are of big-endian words."""
PAGE: Final = 4096
"""Bytes that a page has if the log does not say it: SQLite's default."""

Sums = tuple[int, int]


def gap(log: str) -> str:
    """Why the log is damaged; empty if it is not, or if there is none. Raises OSError."""
    try:
        data = Path(log).read_bytes()
    except FileNotFoundError:
        return ""
    if len(data) <= HEADER.size:
        return ""
    magic, _, page, _, *salts, first, second = HEADER.unpack_from(data)
    words = "<" if magic == MAGIC else ">"
    is_whole = magic | 1 == MAGIC | 1 and _add((0, 0), data[:24], words) == (first, second)
    if not is_whole:
        ends = sum(end > 0 for _, end, *_ in _headers(data, PAGE))
        return f"damaged: the header of the write-ahead log, before {ends} transactions" if ends > 1 else ""
    sums: Sums | None = (first, second)
    bad = ends = 0
    for number, (_, end, one, other, *found) in enumerate(_headers(data, page), 1):
        if sums is not None:
            start = HEADER.size + (number - 1) * (FRAME.size + page)
            sums = _add(sums, data[start : start + 8], words)
            sums = _add(sums, data[start + FRAME.size : start + FRAME.size + page], words)
            if [one, other] == salts and sums == tuple(found):
                continue
            bad, sums = number, None
        ends += end > 0 and [one, other] == salts
    return f"damaged: frame {bad} of the write-ahead log, before the ends of {ends} transactions" if ends > 1 else ""


def ends(log: str) -> list[int]:
    """The bytes behind each whole transaction of a log without a gap; none if there is no log. Raises OSError."""
    try:
        data = Path(log).read_bytes()
    except FileNotFoundError:
        return []
    found: list[int] = []
    if len(data) <= HEADER.size:
        return found
    magic, _, page, _, *salts, first, second = HEADER.unpack_from(data)
    words, sums, at = "<" if magic == MAGIC else ">", (first, second), HEADER.size
    for _, end, one, other, *expected in _headers(data, page):
        sums = _add(sums, data[at : at + 8], words)
        sums = _add(sums, data[at + FRAME.size : at + FRAME.size + page], words)
        if [one, other] != salts or sums != tuple(expected):
            break  # a transaction that is not whole, or what an earlier log has left here
        at += FRAME.size + page
        found += [at] if end else []
    return found


def _headers(data: bytes, page: int) -> Iterator[tuple[int, ...]]:
    """The headers of all frames that have a page."""
    step = FRAME.size + page
    for start in range(HEADER.size, len(data) - step + 1, step):
        yield FRAME.unpack_from(data, start)


def _add(sums: Sums, data: bytes, words: str) -> Sums:
    """SQLite's checksum, continued with these bytes."""
    first, second = sums
    values = iter(struct.unpack(f"{words}{len(data) // 4}I", data))
    for one, other in zip(values, values, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
